"""Reflection: the model sees its draft, may propose again, and hands in by submitting."""

from __future__ import annotations

import asyncio

import pytest

from journeyman import Agent, DefinitionError, Output, Reflection, Rejected, Submit, run, tool
from journeyman.endings import SubmitContext
from journeyman.events import LayerStarted
from journeyman.model import ToolSpec
from journeyman.models.scripted import call
from journeyman.types import ToolResult
from tests.loop.players import (
    REJECTED,
    Report,
    context_of,
    failed,
    look,
    place_of,
    preview,
    report,
    small,
    submit,
    succeeded,
)
from tests.support.recorder import Recorder, calls, check_balance, transcript
from tests.support.stage import Stage

REFLECTED = Output(Report, reflection=preview)


# -- the submit tool ---------------------------------------------------------------------------------------------------


async def test_reflection_brings_its_own_submit_tool(stage: Stage) -> None:  # R12, R13, R14, R39
    model = stage.model([report(), submit()])
    await run(Agent(name="tester", model=model, tools=[look], output=REFLECTED), "Go.")
    assert stage.tool_names() == ["output", "look", "submit"]
    assert stage.requests[0].prefix.tools[-1] == ToolSpec(
        name="submit",
        description=(
            "Submit the output you proposed last. Call this once you are satisfied with it; it is then validated."
        ),
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    )


def test_submit_lives_inside_a_reflection_only() -> None:  # R10, R17
    with pytest.raises(TypeError, match="submit"):
        Output(Report, submit=Submit())  # pyright: ignore[reportCallIssue] - this is the test
    with pytest.raises(TypeError, match="handler"):
        Reflection(submit=Submit())  # pyright: ignore[reportCallIssue] - this is the test
    assert Reflection(preview).submit == Submit()


# -- drafts ------------------------------------------------------------------------------------------------------------


async def test_a_draft_is_shown_to_the_model_and_submit_hands_it_in(stage: Stage) -> None:  # R8, R16, R22, R42
    model = stage.model([call("look", id="a"), report(), submit()])
    recorder = Recorder()
    result = await run(Agent(name="tester", model=model, tools=[look], output=REFLECTED), "Go.", on_event=recorder)
    assert succeeded(result).output == Report(total=3)
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", "look({})#a"),
        ("user", "#a: found here"),
        ("assistant", 'output({"total":3})#out'),
        ("user", "#out: Total: 3"),
        ("assistant", "submit({})#sub"),
        ("user", "#sub: Accepted."),
    ]
    check_balance(recorder.events)


async def test_every_draft_is_shown_and_the_last_one_is_handed_in(stage: Stage) -> None:  # R16, R43
    shown: list[int] = []

    def keep(report: Report) -> str:
        shown.append(report.total)
        return "seen"

    model = stage.model([report(1), [report(2, id="o2"), report(3, id="o3")], submit()])
    result = await run(Agent(name="tester", model=model, output=Output(Report, reflection=keep)), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert shown == [1, 2, 3]


async def test_without_submit_nothing_is_handed_in(stage: Stage) -> None:  # R16, R42
    model = stage.model([report(1), call("look"), "I am happy with that."])
    result = await run(Agent(name="tester", model=model, tools=[look], output=REFLECTED), "Go.")
    assert failed(result).code == "INVALID_RESPONSE"
    assert failed(result).candidate == {"total": 1}
    assert failed(result).report is None


@pytest.mark.parametrize("order", ["output first", "submit first"])
async def test_a_draft_may_be_submitted_in_the_same_response(stage: Stage, order: str) -> None:  # R46, A4, A5
    drafted, handed_in = report(9), submit()
    response = [drafted, handed_in] if order == "output first" else [handed_in, drafted]
    result = await run(Agent(name="tester", model=stage.model([report(1, id="o1"), response]), output=REFLECTED), "Go.")
    assert succeeded(result).output == Report(total=9)
    assert stage.n_requests == 2


async def test_submit_ends_the_iteration_after_all_its_calls(stage: Stage) -> None:  # R46
    seen: list[str] = []

    @tool(thread=False)
    def note(word: str) -> None:
        seen.append(word)

    model = stage.model([report(), [call("note", word="before"), submit(), call("note", word="after")]])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[note], output=REFLECTED)
    result = await run(agent, "Go.", on_event=recorder)
    assert succeeded(result)
    assert seen == ["before", "after"]
    assert calls(recorder.events)[-1] == "submit#sub: Accepted."


async def test_submit_before_any_draft_ends_the_run(stage: Stage) -> None:  # R44, R65, A8
    model = stage.model([call("look"), submit()])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[look], output=REFLECTED)
    result = await run(agent, "Go.", on_event=recorder)
    assert failed(result).code == "SUBMIT_BEFORE_OUTPUT"
    assert (context_of(result, SubmitContext), place_of(result)) == (
        SubmitContext(output_tool="output", submit_tool="submit"),
        (1, 2),
    )
    check_balance(recorder.events)
    assert transcript(failed(result).history)[-1] == (
        "user",
        "#sub! Error: the run was stopped before this call finished.",
    )


async def test_an_early_submit_may_be_answered_instead(stage: Stage) -> None:  # R44, A8
    output = Output(Report, reflection=Reflection(preview, early_submit="answer"))
    result = await run(
        Agent(name="tester", model=stage.model([submit(), report(), submit("s2")]), output=output), "Go."
    )
    assert succeeded(result).output == Report(total=3)
    assert stage.tool_results(1) == [
        ToolResult("Error: nothing to submit yet. Propose the output with 'output' first.", True, "sub")
    ]


async def test_a_submit_after_a_rejection_needs_a_new_draft(stage: Stage) -> None:  # A8, R44, R6
    model = stage.model([report(7), submit(), submit("s2")])
    result = await run(Agent(name="tester", model=model, output=REFLECTED, validators=[small]), "Go.")
    assert failed(result).code == "SUBMIT_BEFORE_OUTPUT"
    assert failed(result).error.attempt == 2


async def test_the_rejection_is_the_result_of_submit(stage: Stage) -> None:  # R6, R56, A24, A25, D2
    model = stage.model([report(7), submit(), report(2, id="o2"), submit("s2")])
    result = await run(Agent(name="tester", model=model, output=REFLECTED, validators=[small]), "Go.")
    assert succeeded(result).output == Report(total=2)
    assert stage.tool_results(2) == [ToolResult(REJECTED, True, "sub")]


# -- the handler -------------------------------------------------------------------------------------------------------


async def test_a_reflection_may_be_async(stage: Stage) -> None:  # R22, A17
    async def look_again(report: Report) -> str:
        await asyncio.sleep(0)
        return f"{report.total}?"

    model = stage.model([report(), submit()])
    result = await run(Agent(name="tester", model=model, output=Output(Report, reflection=look_again)), "Go.")
    assert succeeded(result)
    assert stage.tool_results(1) == [ToolResult("3?", tool_use_id="out")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("cannot draw this"), "Error: cannot draw this"),  # R23, R24
        (Rejected("Draw something else."), "Draw something else."),  # X9
        (ZeroDivisionError(), "Error: ZeroDivisionError"),  # A20
    ],
    ids=["raised", "rejected", "without a message"],
)
async def test_what_a_reflection_raises_reaches_the_model(stage: Stage, error: Exception, text: str) -> None:
    def draw(report: Report) -> str:
        if report.total == 3:
            raise error
        return "drawn"

    recorder = Recorder()
    model = stage.model([report(3), report(4, id="o2"), submit()])
    result = await run(
        Agent(name="tester", model=model, output=Output(Report, reflection=draw)), "Go.", on_event=recorder
    )
    assert succeeded(result).output == Report(total=4)
    assert stage.tool_results(1) == [ToolResult(text, True, "out")]
    assert calls(recorder.events)[:2] == ["output#out?", f"output#out! {text}"]
    check_balance(recorder.events)


async def test_a_draft_that_does_not_fit_is_answered_without_asking_the_handler(stage: Stage) -> None:  # A7, D43
    shown: list[Report] = []

    def keep(report: Report) -> str:
        shown.append(report)
        return "seen"

    model = stage.model([call("output", total="much", id="o1"), report(), submit()])
    recorder = Recorder()
    result = await run(
        Agent(name="tester", model=model, output=Output(Report, reflection=keep)), "Go.", on_event=recorder
    )
    assert succeeded(result).output == Report(total=3)
    assert shown == [Report(total=3)]
    assert [result.is_error for result in stage.tool_results(1)] == [True]
    assert "total" in stage.tool_results(1)[0].text
    assert [record.number for record in result.metadata.attempts] == [1]
    assert [layer.name for layer in recorder.of(LayerStarted)] == ["schema"]


async def test_a_draft_whose_reflection_failed_may_be_submitted(stage: Stage) -> None:  # A6, A7
    model = stage.model([call("output", total="much", id="o1"), submit(), report(), submit("s2")])
    result = await run(Agent(name="tester", model=model, output=REFLECTED), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert [record.number for record in result.metadata.attempts] == [1, 2]
    assert stage.tool_results(2)[0].text.startswith("Validation failed: schema")


async def test_a_clean_reflection_may_be_required(stage: Stage) -> None:  # A6
    def refuse(report: Report) -> str:
        if report.total > 5:
            raise ValueError("too much")
        return "fine"

    output = Output(Report, reflection=Reflection(refuse, require_clean=True))
    model = stage.model([report(7), submit(), report(2, id="o2"), submit("s2")])
    result = await run(Agent(name="tester", model=model, output=output), "Go.")
    assert succeeded(result).output == Report(total=2)
    assert stage.tool_results(2) == [
        ToolResult("Error: the last draft was not accepted. Propose another with 'output'.", True, "sub")
    ]
    assert len(result.metadata.attempts) == 1


async def test_submit_may_be_required_to_come_alone(stage: Stage) -> None:  # A4
    output = Output(Report, reflection=Reflection(preview, submit_alone=True))
    model = stage.model([[report(), submit()], submit("s2")])
    result = await run(Agent(name="tester", model=model, output=output), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert stage.tool_results(1) == [
        ToolResult("Total: 3", tool_use_id="out"),
        ToolResult("Error: look at your draft first; submit it in a later response.", True, "sub"),
    ]


# -- a submit tool of one's own ----------------------------------------------------------------------------------------


HAND_IN = Submit(name="hand_in", description="Hand it in.")


async def test_the_submit_tool_may_have_another_name(stage: Stage) -> None:  # R78
    output = Output(Report, reflection=Reflection(preview, submit=HAND_IN))
    model = stage.model([report(7), call("hand_in", id="h1"), report(2, id="o2"), call("hand_in", id="h2")])
    result = await run(Agent(name="tester", model=model, output=output, validators=[small]), "Go.")
    assert succeeded(result).output == Report(total=2)
    assert stage.tool_names() == ["output", "hand_in"]
    assert stage.requests[0].prefix.tools[-1].description == "Hand it in."
    assert stage.tool_results(2) == [ToolResult(REJECTED, True, "h1")]
    assert result.metadata.tools["hand_in"].kind == "submit"


async def test_with_another_name_submit_is_a_tool_like_any_other(stage: Stage) -> None:  # R78, A14, D17
    @tool(name="submit", thread=False)
    def send(parcel: str) -> str:
        return f"sent {parcel}"

    output = Output(Report, reflection=Reflection(preview, submit=HAND_IN))
    model = stage.model([call("submit", parcel="box", id="a"), report(), call("hand_in")])
    result = await run(Agent(name="tester", model=model, tools=[send], output=output), "Go.")
    assert succeeded(result)
    assert stage.tool_results(1) == [ToolResult("sent box", tool_use_id="a")]
    assert result.metadata.tools["submit"].kind == "tool"


async def test_an_early_hand_in_is_told_by_its_own_name(stage: Stage) -> None:  # R78, R44
    output = Output(Report, reflection=Reflection(preview, submit=HAND_IN))
    result = await run(Agent(name="tester", model=stage.model([call("hand_in")]), output=output), "Go.")
    assert context_of(result, SubmitContext).submit_tool == "hand_in"
    assert "'hand_in'" in failed(result).error.message


@pytest.mark.parametrize(
    ("submit_name", "output_name", "code"),
    [
        ("look", "output", "RESERVED_TOOL_NAME"),
        ("output", "output", "RESERVED_TOOL_NAME"),
        ("hand in", "output", "INVALID_TOOL_NAME"),
        ("", "output", "INVALID_TOOL_NAME"),
        ("submit", "look", "RESERVED_TOOL_NAME"),
    ],
)
def test_colliding_and_bad_names_are_refused(submit_name: str, output_name: str, code: str) -> None:  # R78, A14, D8
    reflection = Reflection(preview, submit=Submit(name=submit_name))
    with pytest.raises(DefinitionError) as refused:
        Agent(
            name="tester",
            model="scripted:x",
            tools=[look],
            output=Output(Report, name=output_name, reflection=reflection),
        )
    assert [problem.code for problem in refused.value.problems] == [code]


def test_a_blank_description_of_submit_is_refused() -> None:  # R78
    with pytest.raises(DefinitionError) as refused:
        Agent(
            name="tester",
            model="scripted:x",
            output=Output(Report, reflection=Reflection(preview, submit=Submit(description=" "))),
        )
    assert [problem.code for problem in refused.value.problems] == ["EMPTY_DESCRIPTION"]


def test_a_tool_named_submit_collides_with_a_reflection_only() -> None:  # A14, D8
    @tool(name="submit", thread=False)
    def send() -> None: ...

    assert Agent(name="tester", model="scripted:x", tools=[send], output=Output(Report))
    with pytest.raises(DefinitionError, match="RESERVED_TOOL_NAME"):
        Agent(name="tester", model="scripted:x", tools=[send], output=REFLECTED)

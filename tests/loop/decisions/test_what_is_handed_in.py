"""Which of the calls of a response is the output, and what becomes of the others: every order of output and submit."""

from __future__ import annotations

import pytest

from journeyman import Agent, ErrorCode, Limits, Output, Reflection, Rejected, Submit, Success, ToolResult, run, tool
from journeyman.endings import SubmitContext
from journeyman.models.scripted import call
from journeyman.types import ToolUse
from tests.loop.pitfalls.players import SUPERSEDED, TOO_LARGE, Report, failed, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, calls, check_balance, transcript
from tests.support.stage import Stage


class Shows:
    """Reflects reports and keeps them; those above ten are refused."""

    def __init__(self) -> None:
        self.totals: list[int] = []

    def __call__(self, report: Report) -> str:
        self.totals.append(report.total)
        if report.total > 10:
            raise Rejected("That is too much to look at.")
        return shown(report)


# -- without reflection ------------------------------------------------------------------------------------------------


async def test_all_calls_beside_an_output_run_in_order_before_it_is_judged(stage: Stage) -> None:  # A2, R45
    order: list[str] = []

    @tool
    async def act(n: int) -> str:
        order.append(f"act {n}")
        return "acted"

    def judge(report: Report) -> None:
        order.append("judge")

    told = CallbackLog()
    model = stage.model([[call("act", n=1, id="a"), report(1, "b"), call("act", n=2, id="c")]])
    agent = Agent(name="a", model=model, tools=[act], output=Output(Report), validators=[judge])
    result = await run(agent, "Go.", callbacks=told.callbacks())
    assert result.unwrap() == Report(total=1)
    assert order == ["act 1", "act 2", "judge"]
    assert [(context.tool_use_id, rest[1]) for context, rest in told.of("tool_result")] == [
        ("a", "acted"),
        ("c", "acted"),
        ("b", "Accepted."),
    ]
    assert transcript(result.history)[-1] == ("user", "#a: acted", "#b: Accepted.", "#c: acted")
    assert result.metadata.tools["act"].calls == 2
    assert stage.n_requests == 1


async def test_without_reflection_the_last_of_several_outputs_counts(stage: Stage) -> None:  # A3, R47
    judged: list[int] = []
    model = stage.model([[report(3), report(99), report(1)]])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[lambda report: judged.append(report.total)])
    result = await run(agent, "Go.")
    assert (result.unwrap(), judged) == (Report(total=1), [1])
    assert [block.text for block in result.history[-1].content if isinstance(block, ToolResult)] == [
        SUPERSEDED,
        SUPERSEDED,
        "Accepted.",
    ]


async def test_a_valid_output_before_a_bad_one_does_not_save_the_response(stage: Stage) -> None:  # A3
    model = stage.model([[report(1), call("output", total="x")]])
    agent = Agent(name="a", model=model, output=Output(Report), limits=Limits(attempts=1))
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert failure.candidate == {"total": "x"}


# -- with reflection ---------------------------------------------------------------------------------------------------


def outputs(*totals: int) -> list[ToolUse]:
    return [report(total) for total in totals]


@pytest.mark.parametrize(
    ("responses", "total", "seen"),
    [
        ([[report(1), submit()]], 1, [1]),
        ([[submit(), report(1)]], 1, [1]),
        ([report(2), [submit(), report(1)]], 1, [2, 1]),
        ([[report(2), submit(), report(1)]], 1, [2, 1]),
        ([[report(3), report(2), report(1), submit()]], 1, [3, 2, 1]),
        ([report(3), report(2), report(1), submit()], 1, [3, 2, 1]),
        ([outputs(3, 2), outputs(5, 4), submit()], 4, [3, 2, 5, 4]),
        ([report(1), call("look"), submit()], 1, [1]),
        ([[report(1), call("look")], [call("nope"), submit(), call("look")]], 1, [1]),
        ([report(1), [submit(), submit(), submit()]], 1, [1]),
    ],
)
async def test_submit_hands_in_the_last_draft_of_all_responses_its_own_included(
    stage: Stage, responses: list[ToolUse | list[ToolUse]], total: int, seen: list[int]
) -> None:  # A3, A4, A5, R43, R46, R47
    shows, recorder = Shows(), Recorder()
    agent = Agent(name="a", model=stage.model(responses), tools=[look], output=Output(Report, reflection=shows))
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=total)
    assert (shows.totals, stage.n_left) == (seen, 0)


async def test_a_draft_may_have_to_be_looked_at_before_it_is_submitted(stage: Stage) -> None:  # A4
    reflection = Reflection(shown, submit_alone=True)
    model = stage.model([[report(1, "a"), submit("b")], submit("c")])
    result = await run(Agent(name="a", model=model, output=Output(Report, reflection=reflection)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(1) == [
        ToolResult("Total: 1", tool_use_id="a"),
        ToolResult("Error: look at your draft first; submit it in a later response.", is_error=True, tool_use_id="b"),
    ]


async def test_a_draft_of_an_earlier_response_may_be_submitted_beside_other_calls(stage: Stage) -> None:  # A4
    reflection = Reflection(shown, submit_alone=True)
    model = stage.model([report(1), call("look"), [call("look"), submit()]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report, reflection=reflection))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)


# -- drafts whose reflection failed ------------------------------------------------------------------------------------


async def test_a_draft_whose_reflection_failed_may_be_submitted_and_validation_decides(stage: Stage) -> None:  # A6
    model = stage.model([report(99, "a"), submit("b"), report(1, "c"), submit("d")])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=Shows()), validators=[small])
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [ToolResult("That is too much to look at.", is_error=True, tool_use_id="a")]
    assert stage.tool_results(2) == [ToolResult(TOO_LARGE, is_error=True, tool_use_id="b")]


async def test_a_reflection_that_is_broken_does_not_trap_the_run(stage: Stage) -> None:  # A6
    def broken(report: Report) -> str:
        raise RuntimeError("out of ink")

    model = stage.model([report(1, "a"), submit()])
    assert (await run(Agent(name="a", model=model, output=Output(Report, reflection=broken)), "Go.")).unwrap()
    assert stage.tool_results(1) == [ToolResult("Error: out of ink", is_error=True, tool_use_id="a")]


async def test_a_clean_reflection_may_be_required(stage: Stage) -> None:  # A6
    reflection = Reflection(Shows(), require_clean=True)
    model = stage.model([report(99), [submit("a")], [report(98), report(1), submit("b")]])
    result = await run(Agent(name="a", model=model, output=Output(Report, reflection=reflection)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(2) == [
        ToolResult(
            "Error: the last draft was not accepted. Propose another with 'output'.", is_error=True, tool_use_id="a"
        )
    ]
    assert len(result.metadata.attempts) == 1


# -- drafts that do not fit --------------------------------------------------------------------------------------------


async def test_a_draft_that_does_not_fit_costs_no_attempt_and_is_still_the_last_draft(stage: Stage) -> None:  # A7
    shows, recorder = Shows(), Recorder()
    model = stage.model([report(1), call("output", total="x", id="a"), submit("b"), report(2), submit()])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shows))
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=2)
    assert shows.totals == [1, 2]
    assert stage.tool_results(2)[0].text.startswith("Error: Invalid arguments for tool 'output':")
    assert stage.tool_results(3)[0].text.startswith("Validation failed: schema")
    assert [record.iterations for record in result.metadata.attempts] == [3, 2]
    events = [type(event).__name__ for event in recorder.events]
    assert events.index("LayerStarted") > [n for n, name in enumerate(events) if name == "IterationStarted"][2]


# -- submit before any output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [[], [call("look", id="a")]])
async def test_submit_before_any_output_ends_the_run(stage: Stage, before: list[ToolUse]) -> None:  # A8, R44
    told, recorder = CallbackLog(), Recorder()
    model = stage.model([call("look"), [*before, submit("s"), call("look", id="z")]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report, reflection=shown))
    failure = failed(await run(agent, "Go.", callbacks=told.callbacks(), on_event=recorder))
    check_balance(recorder.events)
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        SubmitContext(output_tool="output", submit_tool="submit"),
        1,
        2,
    )
    assert failure.phase == "iteration"
    assert "layer_start" not in told.names
    assert calls(recorder.events)[-4:-1] == ["submit#s?", "look#z?", "look#z: found here"]


async def test_submit_before_any_output_may_be_answered_instead(stage: Stage) -> None:  # A8
    reflection = Reflection(shown, early_submit="answer", submit=Submit(name="send"))
    model = stage.model([[call("send", id="a"), call("send", id="b")], call("draft", total=1), call("send")])
    agent = Agent(name="a", model=model, output=Output(Report, name="draft", reflection=reflection))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [
        ToolResult(SUPERSEDED, is_error=True, tool_use_id="a"),
        ToolResult(
            "Error: nothing to submit yet. Propose the output with 'draft' first.", is_error=True, tool_use_id="b"
        ),
    ]


async def test_a_draft_is_of_its_attempt_a_bare_submit_after_a_rejection_is_early_again(stage: Stage) -> None:  # A8
    model = stage.model([report(99), submit(), submit()])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown), validators=[small])
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        SubmitContext(output_tool="output", submit_tool="submit"),
        2,
        1,
    )
    assert failure.candidate == {"total": 99}


async def test_submit_takes_no_arguments_and_ignores_those_it_is_given(stage: Stage) -> None:  # A4, R14
    model = stage.model([report(1), call("submit", total=5, force=True)])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_names() == ["output", "submit"]
    schema = stage.requests[0].prefix.tools[1].input_schema
    assert (schema["type"], schema["properties"]) == ("object", {})

"""Handing in: which call of a response is the output, with and without reflection, and what counts as one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypedDict

from journeyman import Agent, DefinitionError, Limits, Output, Reflection, Rejected, SubmitTool, Success, run, tool
from journeyman.endings import ErrorCode, SubmitContext
from journeyman.model import ToolSpec
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import ToolResult, ToolUse
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import PLAIN, REFLECTED, STOPPED, SUPERSEDED, end_of, preview, rejected
from tests.play import Recorder, Report, Stage, calls, make_tool, report, reporter, submit, talker, transcript
from tests.play.results import context_of, failed, succeeded


async def test_reflection_brings_its_own_submit_tool(stage: Stage) -> None:  # R12, R13, R14, R39
    await run(reporter(stage.model([report(), submit()]), output=REFLECTED), "Go.")
    assert stage.tool_names() == ["output", "look", "submit"]
    assert stage.requests[0].prefix.tools[-1] == ToolSpec(
        name="submit",
        description=(
            "Submit the output you proposed last. Call this once you are satisfied with it; it is then validated."
        ),
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    )


def test_submit_lives_inside_a_reflection_only() -> None:  # R10, R17
    with pytest.raises(DefinitionError, match="Output has no 'submit'"):
        Output(Report, submit=SubmitTool())  # pyright: ignore[reportCallIssue] - this is the test
    with pytest.raises(DefinitionError, match="Reflection needs 'handler'"):
        Reflection(submit=SubmitTool())  # pyright: ignore[reportCallIssue] - this is the test
    assert Reflection(preview).submit == SubmitTool()


async def test_submit_ignores_the_arguments_that_it_is_given(stage: Stage) -> None:  # A4, R14
    agent = reporter(stage.model([report(1), call("submit", total=5, force=True)]), output=REFLECTED)
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)


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
    result = await run(reporter(model, tools=[act], validators=[judge]), "Go.", callbacks=told.callbacks())
    assert result.unwrap() == Report(total=1)
    assert order == ["act 1", "act 2", "judge"]
    ended = [(context.tool_use_id, rest[1]) for context, rest in told.of("tool_result")]
    assert ended == [("a", "acted"), ("c", "acted"), ("b", "Accepted.")]
    assert transcript(result.history)[-1] == ("user", "#a: acted", "#b: Accepted.", "#c: acted")
    assert stage.n_requests == 1


async def test_without_reflection_the_last_of_several_outputs_counts(stage: Stage) -> None:  # A3, R47
    judged: list[Report] = []
    model = stage.model([[report(3), report(99), report(1)]])
    result = await run(reporter(model, validators=[judged.append]), "Go.")
    assert (result.unwrap(), judged) == (Report(total=1), [Report(total=1)])
    read = [block.text for block in result.history[-1].content if isinstance(block, ToolResult)]
    assert read == [SUPERSEDED, SUPERSEDED, "Accepted."]


async def test_a_valid_output_before_a_bad_one_does_not_save_the_response(stage: Stage) -> None:  # A3
    agent = reporter(stage.model([[report(1), call("output", total="x")]]), limits=Limits(attempts=1))
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert failure.candidate == {"total": "x"}


class Shows:
    """Reflects reports and keeps them; those above ten are refused."""

    def __init__(self) -> None:
        self.totals: list[int] = []

    def __call__(self, report: Report) -> str:
        self.totals.append(report.total)
        if report.total > 10:
            raise Rejected("That is too much to look at.")
        return preview(report)


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
    stage: Stage, responses: list[ToolUse | list[ToolUse]], total: int, seen: list[int], recorder: Recorder
) -> None:  # A3, A4, A5, R43, R46, R47, R16
    shows = Shows()
    agent = reporter(stage.model(responses), output=Output(Report, reflection=shows))
    result = await run(agent, "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=total)
    assert (shows.totals, stage.n_left) == (seen, 0)


async def test_a_draft_may_have_to_be_looked_at_before_it_is_submitted(stage: Stage) -> None:  # A4
    reflection = Reflection(preview, submit_alone=True)
    model = stage.model([[report(1, "a"), submit("b")], submit("c")])
    result = await run(reporter(model, output=Output(Report, reflection=reflection)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(1) == [
        ToolResult("Total: 1", tool_use_id="a"),
        ToolResult("Error: look at your draft first; submit it in a later response.", is_error=True, tool_use_id="b"),
    ]


async def test_a_draft_of_an_earlier_response_may_be_submitted_beside_other_calls(stage: Stage) -> None:  # A4
    reflection = Reflection(preview, submit_alone=True)
    model = stage.model([report(1), call("look"), [call("look"), submit()]])
    assert (await run(reporter(model, output=Output(Report, reflection=reflection)), "Go.")).unwrap() == Report(total=1)


async def test_a_draft_that_does_not_fit_costs_no_attempt_and_is_still_the_last_draft(
    stage: Stage, recorder: Recorder
) -> None:  # A7
    shows = Shows()
    model = stage.model([report(1), call("output", total="x", id="a"), submit("b"), report(2), submit()])
    result = await run(reporter(model, output=Output(Report, reflection=shows)), "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=2)
    assert shows.totals == [1, 2]
    assert stage.tool_results(2)[0].text.startswith("Error: Invalid arguments for tool 'output':")
    assert stage.tool_results(3)[0].text.startswith("Validation failed: schema")
    assert [record.iterations for record in result.metadata.attempts] == [3, 2]
    events = [type(event).__name__ for event in recorder.events]
    assert events.index("LayerStarted") > [n for n, name in enumerate(events) if name == "IterationStarted"][2]


async def test_a_draft_whose_reflection_failed_may_be_submitted_and_validation_decides(stage: Stage) -> None:  # A6, A7
    model = stage.model([report(99, "a"), submit("b"), report(1, "c"), submit("d")])
    assert (await run(reporter(model, output=Output(Report, reflection=Shows())), "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [ToolResult("That is too much to look at.", is_error=True, tool_use_id="a")]
    assert stage.tool_results(2) == [ToolResult(rejected(99), is_error=True, tool_use_id="b")]


async def test_a_clean_reflection_may_be_required(stage: Stage) -> None:  # A6
    reflection = Reflection(Shows(), require_clean=True)
    model = stage.model([report(99), [submit("a")], [report(98), report(1), submit("b")]])
    result = await run(reporter(model, output=Output(Report, reflection=reflection)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(2) == [
        ToolResult("Error: the last draft was not accepted. Propose another with 'output'.", True, "a")
    ]
    assert len(result.metadata.attempts) == 1


@pytest.mark.parametrize("words", ["", "  \n"])
async def test_a_reflection_without_words_still_has_a_result(stage: Stage, words: str) -> None:  # D7
    def silent(report: Report) -> str:
        return words

    agent = reporter(stage.model([report(1, "a"), submit("b")]), output=Output(Report, reflection=silent))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [ToolResult("(no output)", tool_use_id="a")]


# A8, R44, R65, R77
@pytest.mark.parametrize("before", [[], [call("look", id="a")]])
async def test_submit_before_any_output_ends_the_run(stage: Stage, before: list[ToolUse], recorder: Recorder) -> None:
    told = CallbackLog()
    agent = reporter(stage.model([call("look"), [*before, submit("s"), call("look", id="z")]]), output=REFLECTED)
    failure = failed(await run(agent, "Go.", callbacks=told.callbacks(), on_event=recorder))
    assert end_of(failure) == (SubmitContext(output_tool="output", submit_tool="submit"), 1, 2)
    assert failure.phase == "iteration"
    assert "layer_start" not in told.names
    assert calls(recorder.events)[-4:] == [*("submit#s?", "look#z?", "look#z: found here"), f"submit#s! {STOPPED}"]
    assert transcript(failure.history)[-1][-2:] == (f"#s! {STOPPED}", "#z: found here")
    assert failure.metadata.tools["submit"].errors == {"interrupted": 1}


async def test_submit_before_any_output_may_be_answered_instead(stage: Stage) -> None:  # A8, R44
    reflection = Reflection(preview, early_submit="answer", submit=SubmitTool(name="send"))
    model = stage.model([[call("send", id="a"), call("send", id="b")], call("draft", total=1), call("send")])
    agent = reporter(model, output=Output(Report, name="draft", reflection=reflection))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [
        ToolResult(SUPERSEDED, is_error=True, tool_use_id="a"),
        ToolResult("Error: nothing to submit yet. Propose the output with 'draft' first.", True, "b"),
    ]


# A8, R6, R44
async def test_a_draft_is_of_its_attempt_a_bare_submit_after_a_rejection_is_early_again(stage: Stage) -> None:
    failure = failed(await run(reporter(stage.model([report(99), submit(), submit()]), output=REFLECTED), "Go."))
    assert end_of(failure) == (SubmitContext(output_tool="output", submit_tool="submit"), 2, 1)
    assert failure.candidate == {"total": 99}


HAND_IN = SubmitTool(name="hand_in", description="Hand it in.")


# R78, R6, R8, R16, R22, R42, R56, D2, A24, A25
async def test_the_submit_tool_may_have_another_name(stage: Stage) -> None:
    model = stage.model([report(7), call("hand_in", id="h1"), report(2, id="o2"), call("hand_in", id="h2")])
    result = await run(reporter(model, output=Output(Report, reflection=Reflection(preview, submit=HAND_IN))), "Go.")
    assert succeeded(result).output == Report(total=2)
    assert stage.tool_names() == ["output", "look", "hand_in"]
    assert stage.requests[0].prefix.tools[-1].description == "Hand it in."
    assert stage.tool_results(2) == [ToolResult(rejected(7), True, "h1")]
    assert result.metadata.tools["hand_in"].kind == "submit"


async def test_an_early_hand_in_is_told_by_its_own_name(stage: Stage) -> None:  # R78, R44
    output = Output(Report, reflection=Reflection(preview, submit=HAND_IN))
    result = await run(reporter(stage.model([call("hand_in")]), output=output), "Go.")
    assert context_of(result, SubmitContext).submit_tool == "hand_in"
    assert "'hand_in'" in failed(result).error.message


# A14, D17, R78
@pytest.mark.parametrize("reflecting", [False, True])
async def test_a_tool_may_be_named_submit_where_nothing_else_is(stage: Stage, reflecting: bool) -> None:
    forms: list[str] = []

    end = [call("hand_in")] if reflecting else []
    model = stage.model([call("submit", form="A1", id="a"), [report(1), *end]])
    output = Output(Report, reflection=Reflection(preview, submit=HAND_IN)) if reflecting else PLAIN
    result = await run(reporter(model, tools=[make_tool("submit", "sent", into=forms)], output=output), "Go.")
    assert result.unwrap() == Report(total=1)
    assert (forms, stage.tool_results(1)) == (["A1"], [ToolResult("sent", tool_use_id="a")])
    assert result.metadata.tools["submit"].kind == "tool"


async def test_a_tool_may_be_named_output_or_submit_by_an_agent_that_answers_with_text(stage: Stage) -> None:  # A14
    model = stage.model([[call("output", id="a"), call("submit", id="b")], "Done."])
    result = await run(talker(model, tools=[make_tool("output", "output"), make_tool("submit", "submit")]), "Go.")
    assert result.unwrap() == "Done."
    assert [answered.content for answered in stage.tool_results(1)] == ["output", "submit"]


async def test_without_reflection_the_output_tool_may_be_named_submit(stage: Stage) -> None:  # D17
    agent = reporter(stage.model([call("submit", total=1)]), output=Output(Report, name="submit"))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)


@pytest.mark.parametrize("typed", [True, False])
async def test_without_reflection_there_is_no_submit_tool(stage: Stage, typed: bool) -> None:  # R12, R15, D17
    agent: Agent[Any] = (reporter if typed else talker)(stage.model([submit("a"), report(1) if typed else "Done."]))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_names() == (["output", "look"] if typed else ["look"])
    assert stage.tool_results(1) == [ToolResult("Error: Unknown tool submit", is_error=True, tool_use_id="a")]


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    r: float


class Square(BaseModel):
    kind: Literal["square"] = "square"
    side: float


Shape = Annotated[Circle | Square, Field(discriminator="kind")]


class Colour(Enum):
    RED = "red"


class Anything(RootModel[dict[str, int]]): ...


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Options(TypedDict):
    verbose: bool


@dataclass
class Pair:
    left: int
    right: int


class Defaults(BaseModel):
    words: list[str] = []


@dataclass
class Falsy:
    n: int

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


def wrapped(value: object) -> dict[str, object]:
    return {"value": value}


SHAPES: dict[str, tuple[object, dict[str, object], object]] = {
    "a list": (list[int], wrapped([1, 2]), [1, 2]),
    "a text": (str, wrapped("words"), "words"),
    "a tagged union": (Shape, wrapped({"kind": "circle", "r": 1}), Circle(r=1)),
    "a model or nothing": (Report | None, wrapped(None), None),
    "an enum": (Colour, wrapped("red"), Colour.RED),
    "a tuple": (tuple[int, str], wrapped([1, "a"]), (1, "a")),
    "a root model of an object": (Anything, {"a": 1}, Anything({"a": 1})),
    "a recursive model": (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")])),
    "a list of recursive models": (list[Tree], wrapped([{"name": "a"}]), [Tree(name="a")]),
    "a mapping": (dict[str, int], {"a": 1}, {"a": 1}),
    "a typed dict": (Options, {"verbose": True}, {"verbose": True}),
    "a dataclass": (Pair, {"left": 1, "right": 2}, Pair(1, 2)),
    "zero": (int, wrapped(0), 0),
    "false": (bool, wrapped(False), False),
    "a number or a text": (int | str, wrapped("x"), "x"),
    "defaults alone": (Defaults, {}, Defaults()),
    "an object that is false": (Falsy, {"n": 0}, Falsy(0)),
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("reflecting", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_an_output_may_be_of_any_type_or_look_like_nothing_and_is_asked_for_as_an_object(
    stage: Stage, shape: str, reflecting: bool
) -> None:  # A16, D9, D20
    form, arguments, output = SHAPES[shape]
    drafts, judged, told = list[object](), list[object](), CallbackLog()

    def show(draft: object) -> str:
        drafts.append(draft)
        return "shown"

    agent = Agent(
        name="a",
        model=stage.model([[call("output", arguments), *([submit()] if reflecting else [])]]),
        output=Output(cast("type[object]", form), reflection=show if reflecting else None),
        validators=[judged.append],
    )
    result = succeeded(await run(agent, "Go.", callbacks=told.callbacks()))
    assert (result.output, judged, drafts) == (output, [output], [output] * reflecting)
    assert type(result.output) is type(output)
    assert told.of("success")[0][1] == (output,)
    assert result.history[1].tool_uses[0].input == arguments
    schema = stage.requests[0].prefix.tools[0].input_schema
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()
    assert "value" not in arguments or schema["required"] == ["value"]


@pytest.mark.parametrize("arguments", [{}, {"values": [1]}, {"value": [1], "more": 2}, {"value": "x"}, {"a": 1}])
async def test_a_wrapped_output_without_its_value_is_a_fault_of_the_models(
    stage: Stage, arguments: dict[str, object]
) -> None:  # A16
    model = stage.model([call("output", arguments), call("output", value=[1])])
    result = await run(Agent(name="a", model=model, output=Output(list[int])), "Go.")
    assert result.unwrap() == [1]
    assert stage.tool_results(1)[0].text.startswith("Validation failed: schema")
    assert len(result.metadata.attempts) == 2
    assert ("- value: " in stage.tool_results(1)[0].text) is (arguments != {"value": [1], "more": 2})


def test_a_type_that_cannot_be_described_is_refused_at_definition() -> None:  # A16, D39
    class Handle: ...

    wrong: list[dict[str, Any]] = [{"output": Output(Handle)}, {"input": Handle}]
    for options in wrong:
        with pytest.raises(DefinitionError):
            Agent[Any, Any](name="a", model=ScriptedModel([]), **options)


async def test_an_answer_that_reads_as_false_is_an_answer(stage: Stage) -> None:  # D20
    assert (await run(talker(stage.model(["0"])), "Go.")).unwrap() == "0"


async def test_the_verdict_quotes_an_output_that_is_no_object(stage: Stage) -> None:
    cut = ToolUse("a", "output", malformed='{"total": 1')
    await run(reporter(stage.model([cut, report()])), "Go.")
    told = stage.tool_results(1)[0].text
    assert told.startswith("Validation failed: schema")
    assert 'column 11\nYou wrote: {"total": 1\n\nCorrect the output' in told


async def test_a_draft_that_is_no_object_is_quoted_in_place_of_its_reflection(stage: Stage) -> None:
    cut = ToolUse("a", "output", malformed='{"total": 1')
    await run(reporter(stage.model([cut, report(), submit()]), output=REFLECTED), "Go.")
    assert stage.tool_results(1)[0].text.endswith('column 11\nYou wrote: {"total": 1')


async def test_an_output_is_judged_as_it_is_nulls_included(stage: Stage) -> None:
    class Noted(BaseModel):
        total: int
        note: str = ""

    script = stage.model([call("output", total=1, note=None), call("output", total=1)])
    assert succeeded(await run(reporter(script, output=Output(Noted)), "Go.")).output == Noted(total=1)
    assert "- note: should be a valid string, got null" in stage.tool_results(1)[0].text


async def test_a_long_reflection_is_cut_as_the_result_of_a_tool_is(stage: Stage) -> None:
    output = Output(Report, reflection=lambda draft: "x" * 90)
    script = stage.model([[call("long", id="a"), report(1, "b")], submit("c")])
    await run(
        reporter(script, output=output, tools=[make_tool("long", "x" * 90)], limits=Limits(result_chars=40)), "Go."
    )
    as_tool, as_reflection = stage.tool_results(1)
    assert as_tool.content == as_reflection.content == "x" * 40 + "\n[Cut: the first 40 of 90 characters.]"
    assert not as_reflection.is_error

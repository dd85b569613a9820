"""Responses that stop for another reason than tools; tokens counted once; and tools looked up by name."""

from __future__ import annotations

import pytest

from journeyman import (
    Agent,
    ErrorCode,
    Limits,
    Output,
    Result,
    Success,
    Tool,
    ToolResult,
    dump_messages,
    load_messages,
    run,
    tool,
)
from journeyman.endings import InvalidResponseContext, RefusedContext, TruncatedContext
from journeyman.model import Response
from journeyman.models.scripted import call, say
from journeyman.types import JsonObject, StopReason, ToolUse, Usage
from tests.loop.pitfalls.players import Report, failed, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, check_balance, transcript
from tests.support.stage import Stage

# -- stop reasons ------------------------------------------------------------------------------------------------------

CUT: list[StopReason] = ["max_tokens", "context_window"]


def stopped(*blocks: ToolUse | str, reason: StopReason, detail: str | None = None) -> Response:
    return Response(content=say(*blocks).content, stop_reason=reason, stop_detail=detail, usage=say().usage)


async def ran(stage: Stage, response: Response, *, typed: bool = True) -> tuple[Result[object], list[str]]:
    """Run a response that calls a tool and hands in; return the result and the tools that ran."""
    runs: list[str] = []

    @tool
    async def act() -> str:
        runs.append("act")
        return "acted"

    told, recorder = CallbackLog(), Recorder()
    model = stage.model([response])
    result: Result[object]
    if typed:
        agent = Agent(name="a", model=model, tools=[act], output=Output(Report))
        result = await run(agent, "Go.", callbacks=told.callbacks(), on_event=recorder)
    else:
        result = await run(Agent(name="a", model=model, tools=[act]), "Go.", on_event=recorder)
    check_balance(recorder.events)
    return result, runs


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
@pytest.mark.parametrize("reason", CUT)
async def test_the_calls_of_a_response_that_was_cut_do_not_run(stage: Stage, reason: StopReason, typed: bool) -> None:
    # D24
    response = stopped("I will act.", call("act", id="a"), report(1, "b"), reason=reason)
    result, runs = await ran(stage, response, typed=typed)
    failure = failed(result)
    assert failure.code == ErrorCode.TOKEN_LIMIT_EXCEEDED
    assert isinstance(failure.error.context, TruncatedContext)
    assert failure.error.context.stop_reason == reason
    assert (runs, failure.candidate) == ([], None)
    not_run = f"Error: not run, because the response stopped with {reason!r}."
    assert transcript(failure.history)[-1] == ("user", f"#a! {not_run}", f"#b! {not_run}")


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
async def test_a_refusal_is_one_with_its_category_and_its_words(stage: Stage, typed: bool) -> None:  # D24
    response = stopped("I will not.", call("act"), report(1), reason="refusal", detail="cyber")
    result, runs = await ran(stage, response, typed=typed)
    failure = failed(result)
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        RefusedContext(refusal="cyber", text="I will not."),
        1,
        1,
    )
    assert (failure.code, runs) == (ErrorCode.MODEL_REFUSED, [])


@pytest.mark.parametrize(
    ("reason", "detail"),
    [("end_turn", None), ("stop_sequence", "###"), ("other", "on_strike")],
)
async def test_any_other_stop_leaves_the_calls_alone_and_is_invalid(
    stage: Stage, reason: StopReason, detail: str | None
) -> None:  # D24, A30
    response = stopped("Here it is.", call("act"), report(1), reason=reason, detail=detail)
    result, runs = await ran(stage, response)
    failure = failed(result)
    assert (failure.code, runs) == (ErrorCode.INVALID_RESPONSE, [])
    context = failure.error.context
    assert isinstance(context, InvalidResponseContext)
    assert (context.stop_reason, context.expected_tool) == (reason, "output")
    if reason == "other":
        assert context.stop_detail == "on_strike"


async def test_a_pause_is_resumed_without_a_user_message(stage: Stage) -> None:  # D24, A30
    paused = stopped("Let me search.", reason="pause_turn")
    model = stage.model([paused, report(1)])
    result = await run(Agent(name="a", model=model, output=Output(Report)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert [message.role for message in stage.messages(1)] == ["user", "assistant"]
    assert [(message.role, message.continues) for message in result.history] == [
        ("user", False),
        ("assistant", False),
        ("assistant", True),
        ("user", False),
    ]


async def test_an_answer_of_several_pauses_is_one_text(stage: Stage) -> None:  # D24, A30
    model = stage.model([stopped("One, ", reason="pause_turn"), stopped("two, ", reason="pause_turn"), "three."])
    assert (await run(Agent(name="a", model=model), "Go.")).unwrap() == "One, two, three."


async def test_pauses_use_up_iterations(stage: Stage) -> None:  # D24, A11
    model = stage.model([stopped("Hm.", reason="pause_turn")], repeat=True)
    agent = Agent(name="a", model=model, output=Output(Report), limits=Limits(iterations=3))
    assert failed(await run(agent, "Go.")).code == ErrorCode.MAX_ITERATIONS
    assert stage.n_requests == 3


# -- tokens ------------------------------------------------------------------------------------------------------------


def using(block: ToolUse, input: int, output: int, *, written: int, read: int) -> Response:
    usage = Usage(
        requests=1, input_tokens=input, output_tokens=output, cache_write_tokens=written, cache_read_tokens=read
    )
    return say(block, usage=usage)


async def test_cached_tokens_are_counted_once_however_many_attempts_there_are(stage: Stage) -> None:  # D18
    model = stage.model(
        [
            using(report(99), 10, 5, written=100, read=0),
            using(report(98), 20, 6, written=0, read=100),
            using(report(1), 30, 7, written=0, read=100),
        ]
    )
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small])
    result = await run(agent, "Go.")
    assert result.metadata.usage == Usage(
        requests=3, input_tokens=60, output_tokens=18, cache_write_tokens=100, cache_read_tokens=200
    )
    assert [attempt.usage.cache_write_tokens for attempt in result.metadata.attempts] == [100, 0, 0]
    total = sum((attempt.usage for attempt in result.metadata.attempts), Usage())
    assert total == result.metadata.usage


async def test_iterations_of_one_attempt_add_up_once(stage: Stage) -> None:  # D18
    scripted = [call("look"), call("look"), call("look"), call("look"), report(1)]
    model = stage.model([using(block, 1, 1, written=1, read=10) for block in scripted])
    result = await run(Agent(name="a", model=model, tools=[look], output=Output(Report)), "Go.")
    assert result.metadata.usage == Usage(
        requests=5, input_tokens=5, output_tokens=5, cache_read_tokens=50, cache_write_tokens=5
    )


# -- looking tools up --------------------------------------------------------------------------------------------------


def found(arguments: JsonObject) -> str:
    return "found"


async def test_a_tool_is_called_by_the_name_it_is_offered_under(stage: Stage) -> None:  # D33
    def plain(n: int) -> str:
        return f"plain {n}"

    model = stage.model([[call("renamed", n=1, id="a"), call("plain", n=1, id="b"), call("look", id="c")], "Done."])
    agent = Agent(name="a", model=model, tools=[tool(plain, name="renamed"), look])
    await run(agent, "Go.")
    assert stage.tool_names() == ["renamed", "look"]
    assert stage.tool_results(1) == [
        ToolResult("plain 1", tool_use_id="a"),
        ToolResult("Error: Unknown tool plain", is_error=True, tool_use_id="b"),
        ToolResult("found here", tool_use_id="c"),
    ]


HOSTILE = ["constructor", "__class__", "__init__", "get", "items", "LOOK", "output", "None", "0"]
"""Names that no tool has, but some object may."""

UNSENDABLE = [
    "look ",
    " look",
    "look\x00",
    "l\u043eok",
    "",
    "../look",
    "{name}",
    "%s",
    "x" * 300,
    "\U0001f4a5",
    "\ud800",
]
"""Names that no tool may have. One has a Cyrillic letter, one half a pair of surrogates."""


@pytest.mark.parametrize("name", [*HOSTILE, *UNSENDABLE], ids=lambda name: repr(name)[:20])
async def test_a_name_that_no_tool_has_is_answered_as_unknown_whatever_it_is(stage: Stage, name: str) -> None:
    # D34, D42, R48
    if stage.over_http and name in UNSENDABLE:
        pytest.skip("the adapter sends another name, and the server wants its answers back unchanged")
    recorder = Recorder()
    agent = Agent(name="a", model=stage.model([call(name, id="a"), "Done."]), tools=[look])
    result = await run(agent, "Go.", on_event=recorder)
    assert isinstance(result, Success)
    check_balance(recorder.events)
    (answered,) = stage.tool_results(1)
    assert answered.is_error
    assert answered.text == f"Error: Unknown tool {name}".encode(errors="replace").decode()
    assert len(load_messages(dump_messages(result.history))) == len(result.history)
    stats = result.metadata.tools["(unknown)"]
    assert (stats.kind, stats.calls, stats.errors) == ("unknown", 1, {"unknown": 1})
    assert set(result.metadata.tools) == {"(unknown)"}


async def test_many_unknown_names_are_counted_in_one_place(stage: Stage) -> None:  # D34, R77
    model = stage.model([[call(f"tool_{n}") for n in range(50)], "Done."])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    assert {name: stats.calls for name, stats in result.metadata.tools.items()} == {"(unknown)": 50}


async def test_a_tool_may_have_the_name_of_an_attribute(stage: Stage) -> None:  # D34
    names = ["__class__", "get", "tools", "constructor", "None"]
    tools = [Tool(name, "A tool.", {"type": "object"}, found) for name in names]
    model = stage.model([[call(name) for name in names], "Done."])
    result = await run(Agent(name="a", model=model, tools=tools), "Go.")
    assert [answered.content for answered in stage.tool_results(1)] == ["found"] * 5
    assert set(result.metadata.tools) == set(names)


# -- texts -------------------------------------------------------------------------------------------------------------


async def test_a_text_that_a_tool_returns_is_sent_without_quotes(stage: Stage) -> None:  # D42
    @tool
    async def quote() -> str:
        return 'He said "r".\n'

    agent = Agent(name="a", model=stage.model([call("quote", id="a"), "Done."]), tools=[quote])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult('He said "r".\n', tool_use_id="a")]


async def test_a_text_that_a_reflection_returns_is_sent_without_quotes(stage: Stage) -> None:  # D42
    model = stage.model([report(1, "a"), submit()])
    await run(Agent(name="a", model=model, output=Output(Report, reflection=shown)), "Go.")
    assert stage.tool_results(1) == [ToolResult("Total: 1", tool_use_id="a")]

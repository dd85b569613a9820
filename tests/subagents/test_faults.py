"""Whatever goes wrong in a sub-agent, in any mode: siblings keep what they did, usage adds up exactly, nothing is left
running, and the lead's conversation can still be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from journeyman import Agent, Limits, Output, Result, Subagents, Usage, run, tool
from journeyman.errors import ProviderError
from journeyman.events import RunFailed, RunSucceeded
from journeyman.models.scripted import FromFunction, call, say
from journeyman.types import ToolResult, ToolUse
from tests.subagents.players import Count, code, hang, lead, look, read, results, scout
from tests.support.recorder import Recorder
from tests.support.stage import Stage, broken

Make = Callable[[Stage], Agent[Any, Any]]


def faulty(stage: Stage, *answers: Any, **fields: Any) -> Agent[Any, Any]:  # noqa: ANN401 - any answer, any field
    return scout(stage, *answers, name="faulty", **fields)


@tool
async def raises() -> str:
    """Raise what no tool should."""
    raise BaseExceptionGroup("several", [ValueError("one"), asyncio.CancelledError("leaked")])


def raising(stage: Stage) -> Agent[Any, Any]:
    def convert(messages: object) -> Any:  # noqa: ANN401 - never returns
        raise RuntimeError("broken hook")

    return faulty(stage, convert=convert)


def with_a_tool_that_raises(stage: Stage) -> Agent[Any, Any]:
    model = stage.model([call("raises", id="r"), ProviderError("gone", kind="network")])
    return Agent(name="faulty", model=model, tools=[raises])


def late(stage: Stage) -> Agent[Any, Any]:
    return faulty(stage, hang, limits=Limits(seconds=0.02))


def invalid(stage: Stage) -> Agent[Any, Any]:
    model = stage.model([call("output", total="many")], repeat=True)
    return Agent(name="faulty", model=model, output=Output(Count), limits=Limits(attempts=2))


FAULTS: dict[str, tuple[Make, str]] = {
    "raises": (raising, "INTERNAL_ERROR"),
    "a tool raises, then the network is gone": (with_a_tool_that_raises, "API_ERROR"),
    "hangs": (late, "BUDGET_EXCEEDED"),
    "is refused": (lambda stage: faulty(stage, say("No.", stop_reason="refusal")), "MODEL_REFUSED"),
    "overflows": (
        lambda stage: faulty(stage, ProviderError("prompt is too long", kind="context_overflow", status=400)),
        "CONTEXT_OVERFLOW",
    ),
    "is cut": (lambda stage: faulty(stage, say("half", stop_reason="max_tokens")), "TOKEN_LIMIT_EXCEEDED"),
    "breaks off": (lambda stage: faulty(stage, broken("half", " of it")), "API_ERROR"),
    "exceeds its iterations": (
        lambda stage: faulty(stage, call("look"), limits=Limits(iterations=2)),
        "MAX_ITERATIONS",
    ),
    "exceeds its tokens": (lambda stage: faulty(stage, limits=Limits(tokens=10)), "BUDGET_EXCEEDED"),
    "returns an invalid output": (invalid, "MAX_ATTEMPTS_EXCEEDED"),
    "has no model": (lambda stage: Agent(name="faulty", model="nowhere:x", tools=[look]), "MODEL_UNAVAILABLE"),
}

PAIR = [{"agent": "scout", "task": "a"}, {"agent": "faulty", "task": "b"}, {"agent": "scout", "task": "c"}]
MODES: dict[str, dict[str, Any]] = {"single": PAIR[1], "parallel": {"tasks": PAIR}, "chain": {"chain": PAIR}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_stays_where_it_is(stage: Stage, fault: str, mode: str) -> None:
    make, why = FAULTS[fault]
    recorder = Recorder()
    crew = Subagents(make(stage), scout(stage, call("look", id="a"), "found"))
    result = await run(lead(stage, crew, MODES[mode]), "Go.", on_event=recorder)
    assert code(result) == ""
    check_told(result, mode, why)
    check_usage(result, recorder)
    check_sendable(result)


def check_told(result: Result[Any], mode: str, why: str) -> None:
    """The model reads what went wrong, and what the siblings did."""
    [answer] = results(result)
    assert why in answer.text
    match mode:
        case "single":
            assert answer.is_error
        case "parallel":
            assert [item.get("is_error", False) for item in read(result)["results"]] == [False, True, False]
            assert [read(result)["results"][number]["output"] for number in (0, 2)] == ["found", "found"]
        case _:
            assert [item.get("is_error", False) for item in read(result)["results"]] == [False, True]
            assert read(result)["error"].startswith("Step 2 failed.")


def check_usage(result: Result[Any], recorder: Recorder) -> None:
    """What the parent used is what it used itself, and what its children did; each child has ended once."""
    ended = {event.path: event for event in (*recorder.of(RunSucceeded), *recorder.of(RunFailed))}
    children = {record.path: record.usage for record in result.metadata.children}
    assert {path for path in ended if len(path) > 1} == {*children}
    assert all(ended[path].metadata.usage == usage for path, usage in children.items())
    own = Usage(requests=2, input_tokens=20, output_tokens=10)
    assert result.metadata.usage == Usage.total([own, *[usage for usage in children.values() if usage.requests]])


def check_sendable(result: Result[Any]) -> None:
    """Every call is answered once, in the next message. Over HTTP, the strict server has checked the rest."""
    calls = [block.id for message in result.history for block in message.content if isinstance(block, ToolUse)]
    answers = [block for message in result.history for block in message.content if isinstance(block, ToolResult)]
    assert [answer.tool_use_id for answer in answers] == calls


async def test_a_sub_agent_that_is_cancelled_alone_leaves_its_siblings(stage: Stage) -> None:
    async def suicidal(request: object) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    crew = Subagents(Agent(name="faulty", model=FromFunction(suicidal)), scout(stage))
    result = await run(lead(stage, crew, {"tasks": PAIR}), "Go.")
    answer = read(result)
    assert answer["summary"] == "2/3 succeeded"
    assert answer["results"][1]["output"] == "Sub-agent 'faulty' was cancelled from outside."
    assert [record.code for record in result.metadata.children] == [None, "EXECUTION_CANCELLED", None]

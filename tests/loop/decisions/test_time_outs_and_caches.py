"""Tools that take too long, and results that are used again: within an attempt or a run, and never of a failed call."""

from __future__ import annotations

import asyncio
import threading

import pytest

from journeyman import Agent, Allowance, ErrorCode, Limits, Output, Success, ToolContext, ToolResult, run, tool
from journeyman import events as of
from journeyman.endings import BudgetContext
from journeyman.models.scripted import Scripted, call
from tests.loop.pitfalls.players import STOPPED, Report, failed, look, report, small
from tests.support.clock import virtual_clock
from tests.support.recorder import CallbackLog, Recorder, calls, check_balance
from tests.support.stage import Stage

# -- time-outs ---------------------------------------------------------------------------------------------------------


@virtual_clock
async def test_a_tool_that_takes_too_long_is_an_error_and_is_cancelled_and_awaited() -> None:  # A45
    ended: list[str] = []

    @tool(timeout_s=2)
    async def slow() -> str:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append("slow")
        return "unreachable"

    recorder = Recorder()
    agent = Agent(name="a", model=Scripted([[call("slow", id="a"), call("look", id="b")], "Done."]), tools=[slow, look])
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == "Done."
    assert calls(recorder.events) == [
        *("slow#a?", "slow#a! Error: slow timed out after 2s"),
        *("look#b?", "look#b: found here"),
    ]
    assert ended == ["slow"]
    assert result.metadata.tools["slow"].errors == {"timeout": 1}


@virtual_clock
async def test_a_time_out_of_one_call_leaves_its_siblings_alone() -> None:  # A45, R76
    @tool(parallel=True, timeout_s=5)
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"waited {seconds:g}"

    model = Scripted([[call("wait", seconds=n, id=f"w{n}") for n in (3, 60, 4)], "Done."])
    result = await run(Agent(name="a", model=model, tools=[wait]), "Go.")
    assert result.history[2].content == (
        ToolResult("waited 3", tool_use_id="w3"),
        ToolResult("Error: wait timed out after 5s", is_error=True, tool_use_id="w60"),
        ToolResult("waited 4", tool_use_id="w4"),
    )


@virtual_clock
async def test_a_tool_that_ends_in_time_is_no_time_out() -> None:  # A45
    @tool(timeout_s=2)
    async def just() -> str:
        await asyncio.sleep(1.9)
        return "just in time"

    result = await run(Agent(name="a", model=Scripted([call("just", id="a"), "Done."]), tools=[just]), "Go.")
    assert result.history[2].content == (ToolResult("just in time", tool_use_id="a"),)


async def test_a_time_out_of_the_tools_own_is_an_ordinary_error(stage: Stage) -> None:  # A45, A21
    @tool(timeout_s=60)
    async def fetch() -> str:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return "unreachable"

    agent = Agent(name="a", model=stage.model([call("fetch", id="a"), "Done."]), tools=[fetch])
    result = await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult("Error: TimeoutError", is_error=True, tool_use_id="a")]
    assert result.metadata.tools["fetch"].errors == {"raised": 1}


async def test_a_thread_that_takes_too_long_is_left_behind_and_its_late_result_dropped(stage: Stage) -> None:
    # A45, A17, design 4.5
    released = threading.Event()

    @tool(timeout_s=0.02)
    def block(ctx: ToolContext) -> str:
        released.wait(5)
        ctx.set_run_state("too late")
        return "too late"

    recorder, states = Recorder(), list[object]()
    agent = Agent(
        name="a",
        model=stage.model([call("block", id="a"), "Done."]),
        tools=[block],
        run_state=lambda given: "in time",
        project=lambda final: states.append(final.run),
    )
    result = await run(agent, "Go.", on_event=recorder)
    released.set()
    check_balance(recorder.events)
    assert isinstance(result, Success)
    assert stage.tool_results(1) == [ToolResult("Error: block timed out after 0.02s", is_error=True, tool_use_id="a")]
    assert [event.tool_use_id for event in recorder.of(of.CallAbandoned)] == ["a"]
    assert states == ["in time"]


@virtual_clock
async def test_the_time_of_a_run_stops_a_tool_in_flight_and_keeps_what_was_gathered() -> None:  # A45, R79
    @tool
    async def slow() -> str:
        await asyncio.sleep(100)
        return "unreachable"

    recorder = Recorder()
    agent = Agent(
        name="a",
        model=Scripted([[call("look", id="a"), call("slow", id="b")]]),
        tools=[look, slow],
        limits=Limits(seconds=30),
    )
    failure = failed(await run(agent, "Go.", on_event=recorder))
    check_balance(recorder.events)
    context = failure.error.context
    assert isinstance(context, BudgetContext)
    assert (context.policy, context.limit, context.used, context.scope) == ("seconds", 30, 30, "run")
    assert failure.history[-1].content == (
        ToolResult("found here", tool_use_id="a"),
        ToolResult(STOPPED, is_error=True, tool_use_id="b"),
    )


@virtual_clock
async def test_the_time_of_an_attempt_begins_anew_with_each() -> None:  # A45, A10
    @tool
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    model = Scripted(
        [call("slow", seconds=8), report(99), call("slow", seconds=8), report(98), call("slow", seconds=11)]
    )
    agent = Agent(
        name="a",
        model=model,
        tools=[slow],
        output=Output(Report),
        validators=[small],
        limits=Limits(each_attempt=Allowance(seconds=10)),
    )
    failure = failed(await run(agent, "Go."))
    context = failure.error.context
    assert isinstance(context, BudgetContext)
    assert (failure.code, context.scope, failure.error.attempt) == (ErrorCode.BUDGET_EXCEEDED, "attempt", 3)
    assert len(failure.metadata.attempts) == 3


# -- caches ------------------------------------------------------------------------------------------------------------


class Counting:
    """A tool's inside: it counts its calls, and fails where it is told to."""

    def __init__(self, *failing: int) -> None:
        self.seen: list[str] = []
        self.failing = failing

    async def find(self, what: str, at: int = 0) -> str:
        """Find it."""
        self.seen.append(f"{what}@{at}")
        await asyncio.sleep(0)
        if len(self.seen) in self.failing:
            raise ValueError(f"not found, {len(self.seen)}")
        return f"{what} number {len(self.seen)}"


async def test_a_failed_call_is_not_used_again(stage: Stage) -> None:  # R75, A9
    inside = Counting(1)
    find = tool(inside.find, effect="pure", cache="attempt")
    model = stage.model([call("find", what="x"), call("find", what="x"), call("find", what="x"), "Done."])
    told = CallbackLog()
    result = await run(Agent(name="a", model=model, tools=[find]), "Go.", callbacks=told.callbacks())
    texts = [stage.tool_results(n)[0].text for n in (1, 2, 3)]
    assert texts == ["Error: not found, 1", "x number 2", "x number 2"]
    assert [context.cached for context, _ in told.of("tool_result")] == [False, False, True]
    stats = result.metadata.tools["find"]
    assert (stats.calls, stats.succeeded, stats.cache_hits, stats.errors) == (3, 2, 1, {"raised": 1})


async def test_the_same_arguments_in_another_order_or_form_are_the_same(stage: Stage) -> None:  # R75
    inside = Counting()
    find = tool(inside.find, effect="pure", cache="run")
    arguments: list[dict[str, object]] = [
        {"what": "x", "at": 0},
        {"at": 0, "what": "x"},
        {"what": "x"},
        {"what": "x", "at": 1},
        {"what": "X"},
    ]
    model = stage.model([[call("find", each) for each in arguments], "Done."])
    await run(Agent(name="a", model=model, tools=[find]), "Go.")
    assert inside.seen == ["x@0", "x@1", "X@0"]
    assert len({result.tool_use_id for result in stage.tool_results(1)}) == 5


@pytest.mark.parametrize(("scope", "seen"), [("attempt", 2), ("run", 1)])
async def test_a_cache_lasts_as_long_as_it_says(stage: Stage, scope: str, seen: int) -> None:  # R75
    inside = Counting()
    find = tool(inside.find, effect="pure", cache="run" if scope == "run" else "attempt")
    model = stage.model([[call("find", what="x"), report(99)], [call("find", what="x"), report(1)]] * 2)
    agent = Agent(name="a", model=model, tools=[find], output=Output(Report), validators=[small])
    for n_runs in (1, 2):
        assert isinstance(await run(agent, "Go."), Success)
        assert len(inside.seen) == n_runs * seen


@pytest.mark.parametrize("failing", [(), (1,)])
async def test_equal_calls_at_the_same_time_share_one_execution(stage: Stage, failing: tuple[int, ...]) -> None:  # R75
    inside = Counting(*failing)
    find = tool(inside.find, effect="pure", cache="attempt", parallel=True)
    recorder = Recorder()
    model = stage.model([[call("find", what="x", id=f"f{n}") for n in range(4)], call("find", what="x"), "Done."])
    await run(Agent(name="a", model=model, tools=[find]), "Go.", on_event=recorder)
    check_balance(recorder.events)
    text = "Error: not found, 1" if failing else "x number 1"
    assert stage.tool_results(1) == [ToolResult(text, bool(failing), f"f{n}") for n in range(4)]
    assert len(inside.seen) == 1 + len(failing)


async def test_a_result_that_is_used_again_answers_its_own_call(stage: Stage) -> None:  # R75, A37
    @tool(effect="pure", cache="run")
    async def blocks() -> ToolResult:
        return ToolResult("same", tool_use_id="of the first")

    model = stage.model([[call("blocks", id="a"), call("blocks", id="b")], "Done."])
    await run(Agent(name="a", model=model, tools=[blocks]), "Go.")
    assert stage.tool_results(1) == [ToolResult("same", tool_use_id="a"), ToolResult("same", tool_use_id="b")]


async def test_a_cached_tool_may_not_set_state(stage: Stage) -> None:  # R75, A9
    @tool(effect="pure", cache="run")
    async def write(ctx: ToolContext) -> str:
        ctx.set_run_state(1)
        return "written"

    model = stage.model([call("write"), "Done."])
    await run(Agent(name="a", model=model, tools=[write], run_state=lambda given: 0), "Go.")
    assert stage.tool_results(1)[0].is_error

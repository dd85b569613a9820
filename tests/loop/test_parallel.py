"""Parallel tools and time-outs: neighbours run side by side, everything else waits its turn, and nothing for ever."""

import asyncio
import threading
from threading import Barrier

import pytest

from journeyman import Abort, Agent, Limits, Output, ToolContext, ToolResult, run, tool
from journeyman.events import CallAbandoned, ToolFinished
from journeyman.testing.scripted import ScriptedModel, call
from tests.loop.parts import STOPPED, preview
from tests.play import Report, Stage, cancelled, failed, look, make_tool, report, reporter, submit, succeeded, talker
from tests.play.recorder import Recorder, calls, check_balance, transcript
from tests.support.clock import virtual_clock


async def test_calls_run_one_after_the_other_unless_they_are_said_to_be_parallel(stage: Stage) -> None:  # A9, R76
    inside, most = 0, list[int]()

    async def busy() -> str:
        nonlocal inside
        inside += 1
        for _ in range(3):
            await asyncio.sleep(0)
        most.append(inside)
        inside -= 1
        return "done"

    one, many = tool(busy, name="one"), tool(busy, name="many", parallel=True)
    model = stage.model([[call("one")] * 3, [call("many")] * 3, [call("many"), call("one"), call("many")], "Done."])
    await run(talker(model, tools=[one, many]), "Go.")
    assert most == [1, 1, 1, 3, 2, 1, 1, 1, 1]


async def test_sync_tools_run_together_in_threads(stage: Stage) -> None:  # R76, A17
    together = Barrier(2, timeout=5)

    @tool(parallel=True)
    def meet(name: str) -> str:
        together.wait()
        return f"{name} met"

    await run(talker(stage.model([[call("meet", name="a"), call("meet", name="b")], "Done."]), tools=[meet]), "Go.")
    assert [result.text for result in stage.tool_results(1)] == ["a met", "b met"]


class Hall:
    """Knows who is inside at the same time."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.peak = 0
        self.log: list[str] = []

    async def visit(self, name: str, steps: int = 3) -> str:
        self.inside.append(name)
        self.log.append(f"+{name}")
        self.peak = max(self.peak, len(self.inside))
        try:
            for _ in range(steps):
                await asyncio.sleep(0)
        finally:
            self.inside.remove(name)
            self.log.append(f"-{name}")
        return f"{name} was here"


@pytest.mark.parametrize(("limits", "most"), [*((Limits(max_concurrency=n), n) for n in (1, 2, 5)), (Limits(), 8)])
async def test_not_more_run_together_than_the_limit_says(stage: Stage, limits: Limits, most: int) -> None:  # R76
    hall = Hall()
    model = stage.model([[call("visit", name=f"{n}") for n in range(20)], "Done."])
    await run(talker(model, tools=[tool(hall.visit, parallel=True)], limits=limits), "Go.")
    assert hall.peak == most
    assert len(stage.tool_results(1)) == 20


async def test_results_are_sent_in_call_order_whatever_ends_first(stage: Stage, recorder: Recorder) -> None:  # R76, R58
    turns = {name: asyncio.Event() for name in "abc"}
    after = {"c": "b", "b": "a"}

    @tool(parallel=True)
    async def wait(name: str) -> str:
        if name != "c":
            await turns[name].wait()
        if name in after:
            turns[after[name]].set()
        return name

    model = stage.model([[call("wait", name=name, id=name) for name in "abc"], "Done."])
    await run(talker(model, tools=[wait]), "Go.", on_event=recorder)
    assert [event.tool_use_id for event in recorder.of(ToolFinished)] == ["c", "b", "a"]
    assert stage.tool_results(1) == [ToolResult(name, tool_use_id=name) for name in "abc"]


async def test_other_calls_are_barriers_in_block_order(stage: Stage) -> None:  # R76
    hall = Hall()

    @tool
    async def sweep(name: str) -> str:
        assert not hall.inside
        return await hall.visit(name)

    a, b, c, d, e = (call("visit", name=name) for name in "abcde")
    model = stage.model([[a, b, call("sweep", name="s"), c, d, call("fly", name="unknown"), e], "Done."])
    await run(talker(model, tools=[tool(hall.visit, parallel=True), sweep]), "Go.")
    assert hall.log[:2] == ["+a", "+b"]
    assert hall.log[4:8] == ["+s", "-s", "+c", "+d"]
    assert hall.log[10:] == ["+e", "-e"]
    assert [result.is_error for result in stage.tool_results(1)] == [False] * 5 + [True, False]


async def test_output_and_submit_are_barriers(stage: Stage, recorder: Recorder) -> None:  # R76, R45
    hall = Hall()

    def show(report: Report) -> str:
        assert not hall.inside
        hall.log.append("shown")
        return preview(report)

    model = stage.model([[call("visit", name="a"), report(), call("visit", name="b"), submit()]])
    agent = reporter(model, tools=[tool(hall.visit, parallel=True)], output=Output(Report, reflection=show))
    assert succeeded(await run(agent, "Go.", on_event=recorder))
    assert hall.log == ["+a", "-a", "shown", "+b", "-b"]


async def test_a_failing_call_does_not_stop_its_siblings(stage: Stage) -> None:  # R76
    failed_first = asyncio.Event()

    @tool(parallel=True)
    async def work(name: str) -> str:
        if name == "b":
            failed_first.set()
            raise ValueError("b failed")
        await failed_first.wait()
        await asyncio.sleep(0)
        return name

    await run(talker(stage.model([[call("work", name=name, id=name) for name in "abc"], "Done."]), tools=[work]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("a", tool_use_id="a"),
        ToolResult("Error: b failed", True, "b"),
        ToolResult("c", tool_use_id="c"),
    ]


@pytest.mark.parametrize("how", ["signal", "cancel"])
async def test_cancelling_stops_all_siblings_and_waits_for_them(stage: Stage, how: str) -> None:  # R76, D22, A23
    hall, abort, inside, recorder = Hall(), Abort(), asyncio.Event(), Recorder()

    @tool(parallel=True)
    async def visit(name: str) -> str:
        if name == "b":
            inside.set()
        try:
            await hall.visit(name, steps=1_000_000)
        finally:
            await asyncio.sleep(0)
            hall.log.append(f"{name} tidied up")
        return name

    quick = make_tool("quick", "quick", parallel=True)
    model = stage.model([[call("quick", id="q"), call("visit", name="a", id="a"), call("visit", name="b", id="b")]])
    running = asyncio.create_task(run(talker(model, tools=[visit, quick]), "Go.", abort=abort, on_event=recorder))
    await inside.wait()
    if how == "cancel":
        await cancelled(running)
    else:
        abort.abort()
        result = failed(await running)
        assert transcript(result.history)[-1] == ("user", "#q: quick", f"#a! {STOPPED}", f"#b! {STOPPED}")
        assert result.metadata.tools["visit"].errors == {"interrupted": 2}
        check_balance(recorder.events)
        assert calls(recorder.events)[:4] == ["quick#q?", "visit#a?", "visit#b?", "quick#q: quick"]
    assert hall.inside == []
    assert sorted(hall.log[-2:]) == ["a tidied up", "b tidied up"]


@virtual_clock
async def test_a_slow_call_times_out_alone() -> None:  # R76, A45
    stage = Stage(over_http=False)

    @tool(parallel=True, timeout_s=2.5)
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"slept {seconds:g}"

    model = stage.model([[call("nap", seconds=s, id=f"s{s}") for s in (2, 60, 1)], "Done."])
    start = asyncio.get_running_loop().time()
    result = await run(talker(model, tools=[nap]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("slept 2", tool_use_id="s2"),
        ToolResult("Error: nap timed out after 2.5s", True, "s60"),
        ToolResult("slept 1", tool_use_id="s1"),
    ]
    assert asyncio.get_running_loop().time() - start == 2.5
    assert result.metadata.tools["nap"].errors == {"timeout": 1}


@virtual_clock
async def test_a_tool_that_takes_too_long_is_an_error_and_is_cancelled_and_awaited(recorder: Recorder) -> None:  # A45
    ended: list[str] = []

    @tool(timeout_s=2)
    async def slow() -> str:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append("slow")
        return "unreachable"

    agent = talker(ScriptedModel([[call("slow", id="a"), call("look", id="b")], "Done."]), tools=[slow, look])
    result = await run(agent, "Go.", on_event=recorder)
    assert result.unwrap() == "Done."
    assert calls(recorder.events) == [
        *("slow#a?", "slow#a! Error: slow timed out after 2s"),
        *("look#b?", "look#b: found here"),
    ]
    assert ended == ["slow"]
    assert result.metadata.tools["slow"].errors == {"timeout": 1}


async def test_a_time_out_of_the_tools_own_is_an_ordinary_error(stage: Stage) -> None:  # A45, A21
    @tool(timeout_s=60)
    async def fetch() -> str:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return "unreachable"

    result = await run(talker(stage.model([call("fetch", id="a"), "Done."]), tools=[fetch]), "Go.")
    assert stage.tool_results(1) == [ToolResult("Error: TimeoutError", is_error=True, tool_use_id="a")]
    assert result.metadata.tools["fetch"].errors == {"raised": 1}


async def test_a_thread_that_takes_too_long_is_left_behind_and_its_late_result_dropped(
    stage: Stage, recorder: Recorder
) -> None:
    # A45, A17, design 4.5
    released = threading.Event()

    @tool(timeout_s=0.02)
    def block(ctx: ToolContext) -> str:
        released.wait(5)
        ctx.set_run_state("too late")
        return "too late"

    model = stage.model([call("block", id="a"), "Done."])
    agent = Agent(
        name="a", model=model, tools=[block], run_state=lambda given: "in time", final_state=lambda final: final.run
    )
    result = succeeded(await run(agent, "Go.", on_event=recorder))
    released.set()
    assert stage.tool_results(1) == [ToolResult("Error: block timed out after 0.02s", is_error=True, tool_use_id="a")]
    assert [event.tool_use_id for event in recorder.of(CallAbandoned)] == ["a"]
    assert result.state == "in time"

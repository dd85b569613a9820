"""Parallel tools: neighbours run side by side; everything else waits its turn."""

from __future__ import annotations

import asyncio
from threading import Barrier

import pytest

from journeyman import Abort, Agent, Limits, Output, ToolContext, run, tool
from journeyman.events import ToolCalled, ToolFinished
from journeyman.models.scripted import call
from journeyman.types import ToolResult
from tests.loop.players import Report, failed, preview, report, submit, succeeded
from tests.support.clock import virtual_clock
from tests.support.recorder import Recorder, calls, check_balance, transcript
from tests.support.stage import Stage


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


async def test_tools_run_one_after_the_other_unless_asked_otherwise(stage: Stage) -> None:  # R76, A9
    hall = Hall()

    @tool
    async def visit(name: str) -> str:
        return await hall.visit(name)

    model = stage.model([[call("visit", name="a"), call("visit", name="b")], "Done."])
    await run(Agent(name="tester", model=model, tools=[visit]), "Go.")
    assert hall.log == ["+a", "-a", "+b", "-b"]


async def test_neighbouring_parallel_calls_run_together(stage: Stage) -> None:  # R76
    together = asyncio.Barrier(3)

    @tool(parallel=True)
    async def meet(name: str) -> str:
        await together.wait()
        return f"{name} met"

    model = stage.model([[call("meet", name=name, id=name) for name in "abc"], "Done."])
    recorder = Recorder()
    result = await run(Agent(name="tester", model=model, tools=[meet]), "Go.", on_event=recorder)
    assert succeeded(result)
    assert [result.text for result in stage.tool_results(1)] == ["a met", "b met", "c met"]
    check_balance(recorder.events)
    assert [event.tool_use_id for event in recorder.of(ToolCalled)] == ["a", "b", "c"]


async def test_sync_tools_run_together_in_threads(stage: Stage) -> None:  # R76, A17
    together = Barrier(2, timeout=5)

    @tool(parallel=True)
    def meet(name: str) -> str:
        together.wait()
        return f"{name} met"

    model = stage.model([[call("meet", name="a"), call("meet", name="b")], "Done."])
    await run(Agent(name="tester", model=model, tools=[meet]), "Go.")
    assert [result.text for result in stage.tool_results(1)] == ["a met", "b met"]


@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_not_more_run_together_than_the_limit_says(stage: Stage, cap: int) -> None:  # R76
    hall = Hall()

    @tool(parallel=True)
    async def visit(name: str) -> str:
        return await hall.visit(name)

    model = stage.model([[call("visit", name=f"{n}") for n in range(5)], "Done."])
    limits = Limits(parallel_calls=cap)
    await run(Agent(name="tester", model=model, tools=[visit], limits=limits), "Go.")
    assert hall.peak == cap


async def test_eight_run_together_by_default(stage: Stage) -> None:  # R76
    hall = Hall()

    @tool(parallel=True)
    async def visit(name: str) -> str:
        return await hall.visit(name)

    model = stage.model([[call("visit", name=f"{n}") for n in range(20)], "Done."])
    await run(Agent(name="tester", model=model, tools=[visit]), "Go.")
    assert hall.peak == 8
    assert len(stage.tool_results(1)) == 20


async def test_results_are_sent_in_call_order_whatever_ends_first(stage: Stage) -> None:  # R76, R58
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
    recorder = Recorder()
    await run(Agent(name="tester", model=model, tools=[wait]), "Go.", on_event=recorder)
    assert [event.tool_use_id for event in recorder.of(ToolFinished)] == ["c", "b", "a"]
    assert stage.tool_results(1) == [ToolResult(name, tool_use_id=name) for name in "abc"]


async def test_other_calls_are_barriers_in_block_order(stage: Stage) -> None:  # R76
    hall = Hall()

    @tool(parallel=True)
    async def visit(name: str) -> str:
        return await hall.visit(name)

    @tool
    async def sweep(name: str) -> str:
        assert not hall.inside
        return await hall.visit(name)

    model = stage.model(
        [
            [
                *(call("visit", name=name) for name in ("a", "b")),
                call("sweep", name="s"),
                *(call("visit", name=name) for name in ("c", "d")),
                call("fly", name="unknown"),
                call("visit", name="e"),
            ],
            "Done.",
        ]
    )
    await run(Agent(name="tester", model=model, tools=[visit, sweep]), "Go.")
    assert hall.log[:2] == ["+a", "+b"]
    assert hall.log[4:8] == ["+s", "-s", "+c", "+d"]
    assert hall.log[10:] == ["+e", "-e"]
    assert [result.is_error for result in stage.tool_results(1)] == [False] * 5 + [True, False]


async def test_output_and_submit_are_barriers(stage: Stage) -> None:  # R76, R45
    hall = Hall()

    @tool(parallel=True)
    async def visit(name: str) -> str:
        return await hall.visit(name)

    def show(report: Report) -> str:
        assert not hall.inside
        hall.log.append("shown")
        return preview(report)

    model = stage.model([[call("visit", name="a"), report(), call("visit", name="b"), submit()]])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[visit], output=Output(Report, reflection=show))
    assert succeeded(await run(agent, "Go.", on_event=recorder))
    check_balance(recorder.events)
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

    model = stage.model([[call("work", name=name, id=name) for name in "abc"], "Done."])
    await run(Agent(name="tester", model=model, tools=[work]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("a", tool_use_id="a"),
        ToolResult("Error: b failed", True, "b"),
        ToolResult("c", tool_use_id="c"),
    ]


@virtual_clock
async def test_a_slow_call_times_out_alone() -> None:  # R76, A45
    stage = Stage(over_http=False)

    @tool(parallel=True, timeout_s=2.5)
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"slept {seconds:g}"

    model = stage.model([[call("nap", seconds=s, id=f"s{s}") for s in (2, 60, 1)], "Done."])
    start = asyncio.get_running_loop().time()
    result = await run(Agent(name="tester", model=model, tools=[nap]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("slept 2", tool_use_id="s2"),
        ToolResult("Error: nap timed out after 2.5s", True, "s60"),
        ToolResult("slept 1", tool_use_id="s1"),
    ]
    assert asyncio.get_running_loop().time() - start == 2.5
    assert result.metadata.tools["nap"].errors == {"timeout": 1}


@pytest.mark.parametrize("how", ["signal", "cancel"])
async def test_cancelling_stops_all_siblings_and_waits_for_them(stage: Stage, how: str) -> None:  # R76, D22
    hall, abort, inside = Hall(), Abort(), asyncio.Event()

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

    @tool(parallel=True)
    async def quick() -> str:
        return "quick"

    model = stage.model([[call("quick", id="q"), call("visit", name="a", id="a"), call("visit", name="b", id="b")]])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[visit, quick])
    running = asyncio.create_task(run(agent, "Go.", abort=abort, on_event=recorder))
    await inside.wait()
    if how == "cancel":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        abort.abort()
        result = failed(await running)
        stopped = "Error: the run was stopped before this call finished."
        assert transcript(result.history)[-1] == ("user", "#q: quick", f"#a! {stopped}", f"#b! {stopped}")
        check_balance(recorder.events)
        assert calls(recorder.events)[:4] == ["quick#q?", "visit#a?", "visit#b?", "quick#q: quick"]
    assert hall.inside == []
    assert sorted(hall.log[-2:]) == ["a tidied up", "b tidied up"]


async def test_a_parallel_tool_may_not_set_state(stage: Stage) -> None:  # R76, A9
    @tool(parallel=True)
    async def keep(word: str, context: ToolContext) -> None:
        context.set_attempt_state(word)

    model = stage.model([call("keep", word="a"), "Done."])
    await run(Agent(name="tester", model=model, tools=[keep], attempt_state=lambda given, state: ""), "Go.")
    result = stage.tool_results(1)[0]
    assert result.is_error
    assert "runs in parallel, so it may not set state" in result.text

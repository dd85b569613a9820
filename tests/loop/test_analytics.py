"""How tools were used: counted by tool and kind of error, in every result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from journeyman import Agent, Limits, Output, Reflection, Rejected, Submit, ToolResult, run, tool
from journeyman.models.scripted import call
from journeyman.result import ToolStats
from tests.loop.players import Report, fail, failed, look, preview, report, small, submit, succeeded
from tests.support.clock import virtual_clock
from tests.support.stage import Stage


def timeless(tools: Mapping[str, ToolStats]) -> dict[str, ToolStats]:
    """Return the statistics without their durations."""
    return {name: replace(stats, duration_s=0.0) for name, stats in tools.items()}


async def test_calls_are_counted_by_tool_and_kind_of_error(stage: Stage) -> None:  # R77
    @tool(thread=False)
    def pick(n: int) -> str:
        if n == 1:
            raise ValueError("one")
        if n == 2:
            raise Rejected("not two")
        return f"{n}"

    picks = [call("pick", n=n) for n in (0, 1, 1, 2, 3)]
    model = stage.model([[*picks, call("pick", n="four"), call("pick", m=5), call("look")], "Done."])
    result = await run(Agent(name="tester", model=model, tools=[pick, look, fail]), "Go.")
    assert timeless(result.metadata.tools) == {
        "pick": ToolStats(kind="tool", calls=7, succeeded=2, errors={"raised": 3, "invalid_input": 2}),
        "look": ToolStats(kind="tool", calls=1, succeeded=1),
    }


async def test_an_error_result_is_a_rejection(stage: Stage) -> None:  # R77, X9
    @tool(thread=False)
    def refuse() -> ToolResult:
        return ToolResult("no", is_error=True)

    result = await run(Agent(name="tester", model=stage.model([call("refuse"), "Done."]), tools=[refuse]), "Go.")
    assert timeless(result.metadata.tools) == {
        "refuse": ToolStats(kind="tool", calls=1, succeeded=0, errors={"rejected": 1})
    }


async def test_unknown_names_share_one_entry(stage: Stage) -> None:  # R77
    model = stage.model([[call(f"fly_{n}") for n in range(50)], "Done."])
    result = await run(Agent(name="tester", model=model, tools=[look]), "Go.")
    assert timeless(result.metadata.tools) == {
        "(unknown)": ToolStats(kind="unknown", calls=50, succeeded=0, errors={"unknown": 50})
    }


async def test_reflection_and_submit_are_counted_apart_from_tools(stage: Stage) -> None:  # R77, R78
    output = Output(Report, name="draft", reflection=Reflection(preview, submit=Submit(name="hand_in")))
    answers = [call("draft", total=7), call("hand_in"), [call("draft", total=1), call("draft", total="x")]]
    model = stage.model([call("look"), *answers, call("draft", total=2), call("hand_in")])
    result = await run(Agent(name="tester", model=model, tools=[look], output=output, validators=[small]), "Go.")
    assert timeless(succeeded(result).metadata.tools) == {
        "look": ToolStats(kind="tool", calls=1, succeeded=1),
        "draft": ToolStats(kind="output", calls=4, succeeded=3, errors={"rejected": 1}),
        "hand_in": ToolStats(kind="submit", calls=2, succeeded=1, errors={"rejected": 1}),
    }


async def test_failures_carry_the_statistics_too(stage: Stage) -> None:  # R77, R66
    model = stage.model([call("look"), call("fail"), "Hello."])
    result = await run(Agent(name="tester", model=model, tools=[look, fail], output=Output(Report)), "Go.")
    assert failed(result).code == "INVALID_RESPONSE"
    assert timeless(result.metadata.tools) == {
        "look": ToolStats(kind="tool", calls=1, succeeded=1),
        "fail": ToolStats(kind="tool", calls=1, succeeded=0, errors={"raised": 1}),
    }


async def test_an_early_submit_is_counted_as_interrupted(stage: Stage) -> None:  # R77, R44
    agent = Agent(name="tester", model=stage.model([submit()]), output=Output(Report, reflection=preview))
    result = failed(await run(agent, "Go."))
    assert timeless(result.metadata.tools) == {
        "submit": ToolStats(kind="submit", calls=1, succeeded=0, errors={"interrupted": 1})
    }


async def test_calls_beyond_the_budget_are_counted(stage: Stage) -> None:  # R77, R79, A44
    model = stage.model([[call("look"), call("look"), call("look")], "Done."])
    result = await run(Agent(name="tester", model=model, tools=[look], limits=Limits(calls=2)), "Go.")
    assert timeless(result.metadata.tools) == {
        "look": ToolStats(kind="tool", calls=3, succeeded=2, errors={"over_budget": 1})
    }


@virtual_clock
async def test_durations_add_up_by_tool() -> None:  # R77
    @tool
    async def nap(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @tool(timeout_s=4)
    async def oversleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    model = Stage(over_http=False).model(
        [[call("nap", seconds=1.5), call("oversleep", seconds=99), call("nap", seconds=2)], "Done."]
    )
    result = await run(Agent(name="tester", model=model, tools=[nap, oversleep]), "Go.")
    assert {name: stats.duration_s for name, stats in result.metadata.tools.items()} == pytest.approx(
        {"nap": 3.5, "oversleep": 4}
    )
    assert result.metadata.tools["oversleep"].errors == {"timeout": 1}
    assert result.metadata.latency_s == pytest.approx(7.5)


async def test_a_rejected_hand_in_is_no_success(stage: Stage) -> None:  # R77
    model = stage.model([[report(1, id="o1"), report(7)], report(2, id="o2")])
    result = await run(Agent(name="tester", model=model, output=Output(Report), validators=[small]), "Go.")
    assert timeless(result.metadata.tools) == {
        "output": ToolStats(kind="output", calls=3, succeeded=1, errors={"rejected": 2})
    }

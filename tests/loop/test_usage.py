"""Usage and statistics: tokens added up over iterations and attempts, calls counted by tool; told on every ending."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from journeyman import Limits, Output, Reflection, Rejected, SubmitTool, run, tool
from journeyman.errors import ProviderError
from journeyman.events import ModelResponded
from journeyman.model import Response
from journeyman.result import ToolStats
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import Price, StopReason, ToolResult, ToolUse, Usage
from tests.loop.parts import PLAIN, REFLECTED, fail, preview
from tests.play import Recorder, Report, existing, failed, look, report, reporter, submit, succeeded, talker
from tests.play.stage import Stage, Staged
from tests.support.clock import virtual_clock


def used(input_tokens: int, output_tokens: int, read: int | None = None, written: int | None = None) -> Usage:
    told = Usage(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)
    return replace(told, cache_read_tokens=read, cache_write_tokens=written)


async def test_cached_tokens_are_counted_once_however_many_attempts_there_are(
    stage: Stage,
) -> None:  # X20, R37, R59, D18
    model = stage.model(
        [
            say(call("look"), usage=used(10, 5, read=0, written=100)),
            say(report(99), usage=used(10, 5, read=100, written=7)),
            say(report(98), usage=used(20, 6, read=107, written=0)),
            say(report(1), usage=used(30, 7, read=107, written=0)),
        ]
    )
    result = await run(reporter(model), "Go.")
    assert result.metadata.usage == Usage(
        requests=4, input_tokens=70, output_tokens=23, cache_write_tokens=107, cache_read_tokens=314
    )
    assert [attempt.usage.cache_write_tokens for attempt in result.metadata.attempts] == [107, 0, 0]
    assert sum((attempt.usage for attempt in result.metadata.attempts), Usage()) == result.metadata.usage


async def test_what_no_response_reported_stays_unknown(stage: Stage) -> None:  # X20, A31
    usage = existing(succeeded(await run(talker(stage.model(["Hello."])), "Go.")).metadata.usage)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens, usage.cost) == (None,) * 4


async def test_what_one_response_reported_is_kept(stage: Stage) -> None:  # X20
    model = stage.model([say(call("look"), usage=used(1, 1)), say("Done.", usage=used(1, 1, read=5))])
    usage = succeeded(await run(talker(model), "Go.")).metadata.usage
    assert usage == Usage(requests=2, input_tokens=2, output_tokens=2, cache_read_tokens=5)


async def test_what_a_priced_model_used_has_a_cost(stage: Stage) -> None:  # A31, R61, X21
    usage = Usage(requests=1, input_tokens=1_000, output_tokens=100, cache_read_tokens=500, cache_write_tokens=200)
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    model = stage.model([say(call("look"), usage=usage), say("Done.", usage=usage)], price=price)
    result = await run(talker(model), "Go.")
    assert existing(result.metadata.usage).cost == pytest.approx(2 * (3_000 + 1_500 + 150 + 750) / 1_000_000)


async def test_tracking_can_be_switched_off_and_events_and_budgets_still_count(
    stage: Stage, recorder: Recorder
) -> None:  # R60, X21, A31
    model = stage.model([say(call("look"), usage=used(990, 5))], repeat=True, price=Price(input=1, output=1))
    agent = talker(model, limits=Limits(tokens=1_000), track_tokens=False)
    result = failed(await run(agent, "Go.", on_event=recorder))
    assert (result.code, result.metadata.usage) == ("BUDGET_EXCEEDED", None)
    assert [event.usage.input_tokens for event in recorder.of(ModelResponded)] == [990]
    agent = talker(stage.model(["Hello."]), track_tokens=False)
    assert succeeded(await run(agent, "Go.")).metadata.usage is None


def using(*blocks: ToolUse | str, reason: StopReason | None = None, tokens: int = 10) -> Response:
    return say(*blocks, stop_reason=reason, usage=Usage(requests=1, input_tokens=tokens, output_tokens=1))


ENDS: dict[str, tuple[list[Staged], int, int]] = {
    "refused": ([using(call("look")), using("No.", reason="refusal")], 2, 20),
    "cut": ([using("I", reason="max_tokens")], 1, 10),
    "invalid": ([using(report(99)), using("Hm.")], 2, 20),
    "rejected": ([using(report(99)), using(report(98))], 2, 20),
    "success": ([using(call("look")), using(report(99)), using(call("look")), using(report(1))], 4, 40),
    "iterations": ([using(call("look")), using(call("look"))], 2, 20),
    "no key": ([using(call("look")), ProviderError("No.", kind="auth", usage=Usage())], 1, 10),
    "early": ([using(submit())], 1, 10),
    "error": ([using(call("look")), ProviderError("No.", kind="bad_request", usage=Usage())], 1, 10),
}


# A31, R38, R51, R66, A29
@pytest.mark.parametrize("end", ENDS)
async def test_every_response_that_came_is_counted_whatever_it_was(stage: Stage, end: str, recorder: Recorder) -> None:
    answers, n_responses, tokens = ENDS[end]
    output, limits = REFLECTED if end == "early" else PLAIN, Limits(iterations=2, attempts=2)
    agent = reporter(stage.model(answers), output=output, limits=limits)
    result = await run(agent, "Go.", on_event=recorder)
    usage = existing(result.metadata.usage)
    assert usage == Usage(requests=n_responses, input_tokens=tokens, output_tokens=n_responses)
    assert sum((record.usage for record in result.metadata.attempts), Usage()) == usage
    responded = [event.usage.input_tokens for event in recorder.of(ModelResponded)]
    assert sum(responded) == tokens
    assert result.metadata.latency_s > 0


def timeless(tools: Mapping[str, ToolStats]) -> dict[str, ToolStats]:
    """Return the statistics without their durations."""
    return {name: replace(stats, duration_s=0.0) for name, stats in tools.items()}


async def test_calls_are_counted_by_tool_and_kind_of_error(stage: Stage) -> None:  # R77, X9
    @tool(thread=False)
    def pick(n: int) -> str:
        if n == 1:
            raise ValueError("one")
        if n == 2:
            raise Rejected("not two")
        return f"{n}"

    @tool(thread=False)
    def refuse() -> ToolResult:
        return ToolResult("no", is_error=True)

    picks = [call("pick", n=n) for n in (0, 1, 1, 2, 3)]
    model = stage.model([[*picks, call("pick", n="four"), call("pick", m=5), call("look"), call("refuse")], "Done."])
    result = await run(talker(model, tools=[pick, look, fail, refuse]), "Go.")
    assert timeless(result.metadata.tools) == {
        "pick": ToolStats(kind="tool", calls=7, succeeded=2, errors={"raised": 3, "invalid_input": 2}),
        "look": ToolStats(kind="tool", calls=1, succeeded=1),
        "refuse": ToolStats(kind="tool", calls=1, succeeded=0, errors={"rejected": 1}),
    }


async def test_reflection_and_submit_are_counted_apart_from_tools(stage: Stage) -> None:  # R77, R78
    output = Output(Report, name="draft", reflection=Reflection(preview, submit=SubmitTool(name="hand_in")))
    answers = [call("draft", total=7), call("hand_in"), [call("draft", total=1), call("draft", total="x")]]
    model = stage.model([call("look"), *answers, call("draft", total=2), call("hand_in")])
    result = await run(reporter(model, output=output), "Go.")
    assert timeless(succeeded(result).metadata.tools) == {
        "look": ToolStats(kind="tool", calls=1, succeeded=1),
        "draft": ToolStats(kind="output", calls=4, succeeded=3, errors={"rejected": 1}),
        "hand_in": ToolStats(kind="submit", calls=2, succeeded=1, errors={"rejected": 1}),
    }


@virtual_clock
async def test_durations_add_up_by_tool() -> None:  # R77
    @tool
    async def nap(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @tool(timeout_s=4)
    async def oversleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    naps = [call("nap", seconds=1.5), call("oversleep", seconds=99), call("nap", seconds=2)]
    result = await run(talker(ScriptedModel([naps, "Done."]), tools=[nap, oversleep]), "Go.")
    durations = {name: stats.duration_s for name, stats in result.metadata.tools.items()}
    assert durations == pytest.approx({"nap": 3.5, "oversleep": 4})
    assert result.metadata.tools["oversleep"].errors == {"timeout": 1}
    assert result.metadata.latency_s == pytest.approx(7.5)


async def test_a_rejected_hand_in_is_no_success(stage: Stage) -> None:  # R77
    result = await run(reporter(stage.model([[report(1, id="o1"), report(7)], report(2, id="o2")])), "Go.")
    output = ToolStats(kind="output", calls=3, succeeded=1, errors={"rejected": 2})
    assert timeless(result.metadata.tools) == {"output": output}

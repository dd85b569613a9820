"""Streaming: the same run, seen piece by piece."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from journeyman import Agent, Event, Limits, ToolContext, Usage, run, stream, tool
from journeyman.errors import ProviderError
from journeyman.events import (
    IterationStarted,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolInputDelta,
)
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import Thinking
from tests.loop.callback_log import CallbackLog
from tests.play import Door, Report, Stage, broken, failed, make_tool, report, reporter, succeeded, talker
from tests.play.recorder import Recorder, calls, check_balance, names, transcript
from tests.support.clock import virtual_clock
from tests.support.made_events import made_events


def play(stage: Stage) -> Agent[Report]:
    """Return an agent whose run has everything in it: thinking, text, a call, a rejection, a success."""
    first = say(Thinking("Where is it?", "c2ln"), "I look.", call("look", where="left", id="a"))
    return reporter(stage.model([first, report(7, "out"), say("Again.", report(2, id="o2"))]))


async def test_no_event_is_made_for_nobody(stage: Stage, recorder: Recorder) -> None:
    @tool
    async def weigh(ctx: ToolContext) -> None:
        ctx.progress("on the scales")

    late = ProviderError("busy", kind="overloaded", retry_after_s=0)
    for listener in (None, recorder):
        model = stage.model([late, call("weigh"), call("weigh"), report(7, "out"), report(2, id="o2")])
        with made_events() as made:
            succeeded(await run(reporter(model, tools=[weigh]), "Go.", on_event=listener))
        assert made == [type(each).__name__ for each in recorder.events]
    assert {"ModelRetried", "ToolProgress", "LayerStarted", "ValidationFailed", "AttemptCompleted"} < {*made}


async def test_a_streamed_run_is_the_same_run(stage: Stage) -> None:  # R11, R74
    plain_log, plain_events = CallbackLog(), Recorder()
    plain = succeeded(await run(play(stage), "Go.", callbacks=plain_log.callbacks(), on_event=plain_events))
    log, recorder = CallbackLog(), Recorder()
    async with stream(play(stage), "Go.", callbacks=log.callbacks()) as events:
        async for event in events:
            recorder(event)
    result = succeeded(events.result)
    check_balance(recorder.events)
    assert result.output == plain.output
    assert transcript(result.history) == transcript(plain.history)
    assert result.metadata.usage == plain.metadata.usage
    assert log.names == plain_log.names
    assert names(recorder.events, deltas=True) == names(plain_events.events, deltas=True)
    assert stage.requests[:3] == stage.requests[3:]


async def test_deltas_come_while_the_model_writes_and_add_up(stage: Stage, recorder: Recorder) -> None:  # R74
    result = await run(play(stage), "Go.", on_event=recorder)
    assert names(recorder.events, deltas=True)[:12] == [
        *("RunStarted", "AttemptStarted", "MessageCommitted", "IterationStarted", "ThinkingDelta", "TextDelta"),
        *("ToolInputDelta", "MessageCommitted", "ModelResponded", "ToolCalled", "ToolFinished", "MessageCommitted"),
    ]
    assert "".join(event.text for event in recorder.of(ThinkingDelta)) == "Where is it?"
    assert "".join(event.text for event in recorder.of(TextDelta)) == "I look.Again."
    written = recorder.of(ToolInputDelta)
    assert {(event.tool_use_id, event.tool_name) for event in written} == {("a", "look")}
    assert "".join(event.json for event in written).replace(" ", "") == '{"where":"left"}'
    assert [event.text for event in recorder.of(ModelResponded)] == ["I look.", "", "Again."]
    assert succeeded(result)


async def test_the_output_grows_before_it_is_whole(stage: Stage, recorder: Recorder) -> None:  # R74
    await run(play(stage), "Go.", on_event=recorder)
    first = [event for event in recorder.of(OutputDelta) if event.tool_use_id == "out"]
    assert first[-1].partial() == {"total": 7}
    assert [len(event.json) for event in first] == sorted(len(event.json) for event in first)
    assert OutputDelta(path=(), tool_use_id="", json='{"headline": "Ma').partial() == {"headline": "Ma"}
    assert OutputDelta(path=(), tool_use_id="", json="").partial() == {}


async def test_tools_start_only_when_the_message_is_complete(stage: Stage, recorder: Recorder) -> None:  # R74, M7
    model = stage.model([broken(call("look", where="left", id="a"), "and then", after_blocks=1)])
    result = await run(talker(model, limits=Limits(request_retries=0)), "Go.", on_event=recorder)
    assert failed(result).code == "API_ERROR"
    assert recorder.of(ToolInputDelta)
    assert calls(recorder.events) == []
    assert transcript(failed(result).history) == [("user", "Go.")]


@pytest.mark.parametrize("ending", ["cut", "error"])
async def test_an_error_half_way_counts_what_was_reported(stage: Stage, ending: str) -> None:  # R74
    model = stage.model([call("look", id="a"), broken("Hel", "lo", ending="cut" if ending == "cut" else "error")])
    result = failed(await run(talker(model, limits=Limits(request_retries=0)), "Go."))
    assert result.metadata.usage == Usage(requests=2, input_tokens=20, output_tokens=6, exact=False)
    assert transcript(result.history) == [("user", "Go."), ("assistant", "look({})#a"), ("user", "#a: found here")]


@virtual_clock
async def test_a_cut_answer_is_asked_for_again_and_no_tool_is_run_twice(recorder: Recorder) -> None:  # R74, A42
    stage = Stage(over_http=False)
    runs: list[str] = []

    count = make_tool("count", "{word}", into=runs)
    model = stage.model(
        [
            call("count", word="one", id="a"),
            broken("Half a ", call("count", word="lost", id="b"), after_blocks=2),
            ProviderError("busy", kind="overloaded", retry_after_s=5),
            say("Now: ", call("count", word="two", id="c")),
            "Done.",
        ]
    )
    start = asyncio.get_running_loop().time()
    result = succeeded(await run(talker(model, tools=[count]), "Go.", on_event=recorder))
    assert runs == ["one", "two"]
    assert transcript(result.history)[3:5] == [("assistant", "Now: ", 'count({"word":"two"})#c'), ("user", "#c: two")]
    retried = [(each.request, each.max_requests, each.kind) for each in recorder.of(ModelRetried)]
    assert retried == [(1, 3, "stream_cut"), (2, 3, "overloaded")]
    assert len(recorder.of(ModelRestarted)) == 2
    assert len(recorder.of(IterationStarted)) == 3
    assert 5.5 <= asyncio.get_running_loop().time() - start <= 6
    assert result.metadata.usage is not None
    assert (result.metadata.usage.requests, result.metadata.usage.exact) == (5, False)
    assert result.metadata.usage.output_tokens == 5 + 6 + 5 + 5  # by what was written


@virtual_clock
async def test_after_a_restart_the_output_grows_anew(recorder: Recorder) -> None:  # R74
    stage = Stage(over_http=False)
    result = await run(reporter(stage.model([broken(report(7), "and so on"), report(2)])), "Go.", on_event=recorder)
    assert succeeded(result).output == Report(total=2)
    assert [event.partial() for event in recorder.of(OutputDelta)] == [{"total": 7}, {"total": 2}]
    told = ["IterationStarted", "OutputDelta", "ModelRetried", "ModelRestarted", "OutputDelta"]
    assert names(recorder.events, deltas=True)[3:8] == told


async def test_whoever_is_cancelled_while_leaving_a_stream_still_waits_for_the_end_of_the_run() -> None:  # R74
    is_ending, may_end = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    @tool
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()
            ended.append("tidied up")

    async def look_and_leave() -> None:
        async with stream(talker(ScriptedModel([call("hang")]), tools=[hang]), "Go.") as events:
            async for event in events:
                if isinstance(event, ToolCalled):
                    await asyncio.sleep(0)
                    break

    leaving = asyncio.create_task(look_and_leave())
    await is_ending.wait()
    for _ in range(3):
        leaving.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (leaving.done(), ended) == (False, [])
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert ended == ["tidied up"]


async def test_leaving_a_stream_while_the_model_writes_hangs_up(stage: Stage) -> None:  # R74
    agent = talker(stage.model([broken("Hello", "world", ending="stall")]))
    seen = list[type[Event]]()
    async with stream(agent, "Go.") as events:
        async for event in events:
            seen.append(type(event))
            if isinstance(event, TextDelta):
                break
    assert seen[-1] is TextDelta
    if stage.api is not None:
        api = stage.api
        await api.until(lambda: api.in_flight == 0)
        assert [request.hung_up for request in api.requests] == [True]


async def test_the_result_is_there_when_the_events_are_over(stage: Stage) -> None:  # R74
    door = Door()
    async with stream(talker(stage.model([door.before("Hello.")])), "Go.") as events:
        with pytest.raises(RuntimeError, match="The run has not ended"):
            _ = events.result
        door.opened.set()
        kinds = [type(event).__name__ async for event in events]
        assert succeeded(events.result).output == "Hello."
    assert kinds[0] == "RunStarted"
    assert kinds[-1] == "RunSucceeded"
    assert succeeded(events.result).output == "Hello."


async def test_a_stream_must_be_open() -> None:  # R74
    events = stream(talker("nobody:nothing"), "Go.")
    with pytest.raises(RuntimeError, match="not open"):
        await anext(events)


async def test_a_wrong_option_is_refused_at_the_call() -> None:
    options: dict[str, Any] = {"max_atempts": 3}
    with pytest.raises(TypeError, match=r"stream\(\) got an unexpected keyword argument 'max_atempts'"):
        stream(Agent(name="a", model=ScriptedModel(["Hello."])), "Go.", **options)


UNDER = {
    "stream": """
    async with stream(Agent(name="a", model=FunctionModel(interrupted)), "Go.") as events:
        async for event in events:
            pass
""",
    "chat": """
    async with Chat(Agent(name="a", model=FunctionModel(interrupted))) as chat:
        await chat.prompt("Go.")
""",
    "task": """
    async def work(task):
        interrupted(task)
    async with Tasks() as tasks:
        tasks.start(work, description="work")
        await tasks.wait()
""",
}


@pytest.mark.share(one_in=4)
@pytest.mark.parametrize("interrupt", ["KeyboardInterrupt", "SystemExit"])
@pytest.mark.parametrize("under", UNDER)
def test_an_interrupt_leaves_no_traceback_of_asyncios(interrupt: str, under: str) -> None:
    program = f"""
import asyncio
from journeyman import Agent, Chat, Tasks, stream
from journeyman.testing.scripted import FunctionModel

def interrupted(request):
    raise {interrupt}

async def main():
{UNDER[under]}
try:
    asyncio.run(main())
except {interrupt}:
    print("interrupted")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")

"""The signal and the task's own cancellation, fired at each event of a run in turn, and both at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from journeyman import (
    Abort,
    Agent,
    CallbackContext,
    Callbacks,
    ErrorCode,
    Event,
    Failure,
    Listener,
    Output,
    Result,
    Success,
    ToolResult,
    run,
    tool,
)
from journeyman import events as of
from journeyman.endings import CancelledContext
from journeyman.history import History
from journeyman.models.scripted import call
from tests.loop.pitfalls.players import STOPPED, Report, failed, look, report, shown, small, submit
from tests.support.recorder import Delta, Recorder, check_balance
from tests.support.stage import Stage

# -- at each event in turn ---------------------------------------------------------------------------------------------


@tool(parallel=True)
async def peek(n: int) -> str:
    await asyncio.sleep(0)
    return f"peeked {n}"


def long_run(stage: Stage) -> Agent[Report]:
    """Return an agent whose run takes two attempts of several iterations, alone and in parallel."""
    responses = [
        [call("look", id="a"), call("nope", id="b")],
        [call("peek", n=1, id="c"), call("peek", n=2, id="d"), report(99, "e")],
        submit("f"),
        [report(1, "g"), call("look", id="h"), submit("i")],
    ]
    output = Output(Report, reflection=shown)
    return Agent(name="a", model=stage.model(responses), tools=[look, peek], output=output, validators=[small, fine])


def fine(report: Report) -> None: ...


def fired_at(number: int, fire: Callable[[], object]) -> tuple[Recorder, Listener]:
    """Return a recorder, and a listener that also fires at an event, counted without deltas."""
    recorder, seen = Recorder(), list[Event]()

    def listen(event: Event) -> None:
        recorder(event)
        if not isinstance(event, Delta):
            seen.append(event)
            if len(seen) == number + 1:
                fire()

    return recorder, listen


async def n_events(stage: Stage) -> int:
    recorder = Recorder()
    assert isinstance(await run(long_run(stage), "Go.", on_event=recorder), Success)
    return sum(not isinstance(event, Delta) for event in recorder.events)


BEGINNINGS = (of.AttemptStarted, of.IterationStarted, of.LayerStarted)


def reached(events: list[Event]) -> tuple[int, int]:
    """Return the attempt and the iteration that began last."""
    attempt = iteration = 0
    for event in events:
        match event:
            case of.AttemptStarted():
                attempt, iteration = event.attempt, 0
            case of.IterationStarted():
                iteration = event.iteration
            case _:
                pass
    return attempt, iteration


def phases(events: list[Event]) -> set[str]:
    """Return the phases in which a run may be after these events."""
    last = [event for event in events if not isinstance(event, of.MessageCommitted | of.RunStarted | Delta)][-1:]
    match last:
        case [of.AttemptStarted()]:
            return {"prompt_generation", "iteration"}
        case [of.IterationStarted() | of.ModelRetried() | of.ModelRestarted() | of.ModelResponded()]:
            return {"iteration"}
        case [of.LayerStarted() | of.LayerCompleted() | of.ValidationFailed() | of.AttemptCompleted()]:
            return {"validation"}
        case [of.ToolCalled() | of.ToolFinished()]:  # it may be the last call before an output is judged, or after
            return {"iteration", "validation"}
        case _:
            return {"prompt_generation"}


async def test_a_signal_at_any_event_ends_the_run_there(stage: Stage) -> None:  # A23, D22, D23, R52
    for number in range(await n_events(stage) - 2):  # the last two tell of a run that is over
        abort, before = Abort(), stage.n_requests
        recorder, listen = fired_at(number, lambda abort=abort: abort.abort("enough"))
        failure = await run(long_run(stage), "Go.", abort=abort, on_event=listen)
        where = f"fired at event {number}, {type(at(recorder, number)).__name__}"
        assert isinstance(failure, Failure), where
        check_balance(recorder.events)
        context = failure.error.context
        assert isinstance(context, CancelledContext), where
        until = recorder.events[: recorder.events.index(at(recorder, number)) + 1]
        since = recorder.events[len(until) :]
        assert [type(event) for event in since if isinstance(event, BEGINNINGS)] == [], where
        assert (failure.error.attempt, failure.error.iteration) == reached(until), where
        assert failure.phase in phases(until), where
        answered = sum(isinstance(event, of.MessageCommitted) and event.message.role == "assistant" for event in until)
        assert stage.over_http or stage.n_requests - before == answered, where  # the server may note a request later
        assert History(failure.history).export() == failure.history, where
        assert len(failure.metadata.attempts) == reached(until)[0], where


def at(recorder: Recorder, number: int) -> Event:
    return [event for event in recorder.events if not isinstance(event, Delta)][number]


async def test_a_cancellation_at_any_event_leaves_the_run_there(stage: Stage) -> None:  # A22, A23
    for number in range(await n_events(stage) - 1):
        recorder, ended = await cancelled_at(number, stage)
        where = f"cancelled at event {number}, {type(at(recorder, number)).__name__}"
        assert ended, where
        until = recorder.events[: recorder.events.index(at(recorder, number)) + 1]
        since = recorder.events[len(until) :]
        assert [type(event) for event in since if isinstance(event, (*BEGINNINGS, of.RunFailed))] == [], where


async def cancelled_at(number: int, stage: Stage) -> tuple[Recorder, bool]:
    """Cancel a run in a task of its own at an event; return what it told and whether it ended as cancelled."""

    def cancel() -> None:
        task.cancel("from outside")

    recorder, listen = fired_at(number, cancel)
    task = asyncio.create_task(run(long_run(stage), "Go.", abort=Abort(), on_event=listen))
    await asyncio.wait([task])
    return recorder, task.cancelled()


@pytest.mark.parametrize(
    "name", ["on_run_start", "on_iteration_start", "on_tool_call", "on_tool_result", "on_layer_start"]
)
async def test_a_signal_that_comes_while_a_callback_is_awaited_ends_the_run_there(stage: Stage, name: str) -> None:
    # A23
    abort = Abort()

    async def hang(*given: object) -> None:
        abort.abort("enough")
        await asyncio.Event().wait()

    failure = failed(await run(long_run(stage), "Go.", abort=abort, callbacks=Callbacks(**{name: hang})))
    assert failure.code == ErrorCode.EXECUTION_CANCELLED
    assert failure.metadata.callback_errors == ()


async def test_a_callback_that_hangs_does_not_keep_a_cancelled_task_alive(stage: Stage) -> None:  # A22
    inside = asyncio.Event()

    async def hang(context: CallbackContext) -> None:
        inside.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(long_run(stage), "Go.", callbacks=Callbacks(on_iteration_start=hang)))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- both at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal_first", [True, False])
async def test_a_cancellation_from_outside_wins_over_the_signal(stage: Stage, signal_first: bool) -> None:  # A22
    abort = Abort()

    @tool
    async def stop() -> str:
        fire = [abort.abort, task.cancel]
        for each in fire if signal_first else reversed(fire):
            each()
        await asyncio.Event().wait()
        return "unreachable"

    agent = Agent(name="a", model=stage.model([call("stop")]), tools=[stop])
    task: asyncio.Task[Result[str]] = asyncio.create_task(run(agent, "Go.", abort=abort))
    await asyncio.wait([task])
    assert task.cancelled()


async def test_after_an_abort_the_task_is_as_it_was(stage: Stage) -> None:  # A22
    abort = Abort()

    @tool
    async def stop() -> str:
        abort.abort("enough")
        return "stopping"

    agent = Agent(name="a", model=stage.model([call("stop"), "Never said."]), tools=[stop])
    failed(await run(agent, "Go.", abort=abort))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert (await run(Agent(name="b", model=stage.model(["Hello."])), "Hi.")).unwrap() == "Hello."


# -- the signal --------------------------------------------------------------------------------------------------------


async def test_one_signal_ends_many_runs_and_stays_fired(stage: Stage) -> None:  # A22
    abort, waiting = Abort(), list[asyncio.Event]()

    @tool
    async def wait() -> str:
        waiting.append(asyncio.Event())
        if len(waiting) == 3:
            asyncio.get_running_loop().call_soon(abort.abort, "all of you")
        await waiting[-1].wait()
        return "unreachable"

    agents = [Agent(name=f"a{n}", model=stage.model([call("wait")]), tools=[wait]) for n in range(3)]
    results = await asyncio.gather(*(run(agent, "Go.", abort=abort) for agent in agents))
    assert [(result.error.context, *result.error.place[:2]) for result in results if isinstance(result, Failure)] == [
        (CancelledContext(reason="all of you", doing="running tools"), 1, 1)
    ] * 3
    abort.abort("again")
    assert (abort.aborted, abort.reason) == (True, "all of you")
    assert isinstance(await run(agents[0], "Go.", abort=abort), Failure)


async def test_the_signal_may_be_fired_from_another_thread(stage: Stage) -> None:  # A22
    abort = Abort()

    @tool
    async def wait() -> str:
        thread = threading.Thread(target=abort.abort, args=("from a thread",))
        thread.start()
        await asyncio.Event().wait()
        return "unreachable"

    result = await run(Agent(name="a", model=stage.model([call("wait")]), tools=[wait]), "Go.", abort=abort)
    context = failed(result).error.context
    assert isinstance(context, CancelledContext)
    assert context.reason == "from a thread"


async def test_a_signal_that_never_fires_changes_nothing_and_keeps_nothing(stage: Stage) -> None:  # A22
    abort = Abort()
    for _ in range(3):
        assert isinstance(await run(long_run(stage), "Go.", abort=abort), Success)
    assert repr(abort) == "<Abort>"
    abort.abort()  # nobody listens any more
    await asyncio.sleep(0)


# -- siblings ----------------------------------------------------------------------------------------------------------


async def test_the_results_of_siblings_that_finished_before_the_signal_are_kept(stage: Stage) -> None:  # A23, R76
    abort, ended = Abort(), list[str]()

    @tool(parallel=True)
    async def work(n: int) -> str:
        try:
            if n == 3:
                abort.abort("enough")
            if n != 1:
                await asyncio.Event().wait()
            return "finished"
        finally:
            ended.append(f"work {n}")

    model = stage.model([[call("work", n=n, id=f"w{n}") for n in (1, 2, 3)]])
    recorder = Recorder()
    failure = failed(await run(Agent(name="a", model=model, tools=[work]), "Go.", abort=abort, on_event=recorder))
    check_balance(recorder.events)
    assert failure.history[-1].content == (
        ToolResult("finished", tool_use_id="w1"),
        ToolResult(STOPPED, is_error=True, tool_use_id="w2"),
        ToolResult(STOPPED, is_error=True, tool_use_id="w3"),
    )
    assert sorted(ended) == ["work 1", "work 2", "work 3"]
    assert failure.metadata.tools["work"].errors == {"interrupted": 2}


async def test_a_thread_that_cannot_be_stopped_is_left_behind_and_its_result_dropped(stage: Stage) -> None:
    # A21, A22, design 4.5
    abort, inside, released = Abort(), threading.Event(), threading.Event()

    @tool
    def block() -> str:
        inside.set()
        released.wait(5)
        return "too late"

    def on_call(*given: object) -> None:
        threading.Thread(target=lambda: (inside.wait(5), abort.abort("enough"))).start()

    recorder = Recorder()
    agent = Agent(name="a", model=stage.model([call("block", id="b")]), tools=[block])
    result = await run(agent, "Go.", abort=abort, on_event=recorder, callbacks=Callbacks(on_tool_call=on_call))
    released.set()
    check_balance(recorder.events)
    assert failed(result).history[-1].content == (ToolResult(STOPPED, is_error=True, tool_use_id="b"),)
    assert [(event.tool_name, event.tool_use_id) for event in recorder.of(of.CallAbandoned)] == [("block", "b")]

"""Event loops that are not as usual: eager tasks, and none of asyncio."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import ModuleType
from typing import Any

import pytest

from journeyman import Abort, Agent, Chat, Limits, Subagents, Tasks, run, run_many, stream, tool
from journeyman.cancellation import is_done_for
from journeyman.durable import Durable, InMemoryEngine
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from tests.play import existing, failed
from tests.support.eager import run_eagerly


@tool
async def answer_at_once() -> str:
    """Answer."""
    return "seen"


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


def eagerly(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop with eager tasks."""

    def test_eagerly() -> None:
        run_eagerly(test)

    return test_eagerly


def scripted() -> Agent:
    calls = [call("answer_at_once", id="a"), call("answer_at_once", id="b")]
    return Agent(name="bot", model=ScriptedModel([calls, "Done."]), tools=[answer_at_once])


@eagerly
async def test_a_run_a_stream_and_a_chat_end_alike_with_eager_tasks() -> None:
    assert (await run(scripted(), "Go.")).unwrap() == "Done."
    async with stream(scripted(), "Go.") as events:
        kinds = [type(event).__name__ async for event in events]
    assert (kinds[0], kinds[-1], events.result.unwrap()) == ("RunStarted", "RunSucceeded", "Done.")
    async with Chat(scripted()) as chat:
        assert (await chat.prompt("Go.")).unwrap() == "Done."
    async with Durable(InMemoryEngine()) as durable:
        assert (await durable.run(scripted(), "Go.", id="a")).unwrap() == "Done."
    pairs = [(given, result.unwrap()) async for given, result in run_many(_echo(), ["a", "b", "c"], max_concurrency=2)]
    assert sorted(pairs) == [("a", "a"), ("b", "b"), ("c", "c")]


@eagerly
async def test_work_below_a_run_and_in_the_background_ends_alike_with_eager_tasks() -> None:
    helper = Agent(name="helper", description="Helps.", model=FunctionModel(lambda _: "Helped."))
    asked = call("subagent", {"tasks": [{"agent": "helper", "task": "a"}, {"agent": "helper", "task": "b"}]})
    lead = Agent(name="lead", model=ScriptedModel([asked, "Done."]), tools=[Subagents(helper)])
    result = await run(lead, "Go.")
    assert (result.unwrap(), len(result.metadata.children)) == ("Done.", 2)
    ended: list[str] = []
    async with Tasks() as tasks:
        for number in range(3):
            tasks.start(lambda context, n=number: _work(n), description=f"work {number}", notify=_hear(ended))
        await tasks.wait()
    assert len(ended) == 3


@eagerly
async def test_what_the_first_step_does_to_its_own_run_holds_with_eager_tasks() -> None:
    abort = Abort()
    failure = failed(await run(scripted(), "Go.", abort=abort, on_event=lambda _: abort.abort("enough")))
    assert failure.code == "EXECUTION_CANCELLED"
    slow = Agent(
        name="slow", model=ScriptedModel([call("wait_for_ever")]), tools=[wait_for_ever], limits=Limits(seconds=0.01)
    )
    assert failed(await run(slow, "Go.")).code == "BUDGET_EXCEEDED"
    places: list[bool] = []

    async with Chat(scripted(), on_event=lambda event: places.append(is_done_for(asyncio.current_task()))) as chat:
        await chat.prompt("Go.")
    assert all(places)


async def _work(number: int) -> str:
    return f"{number}"


def _hear(ended: list[str]) -> Callable[..., None]:
    def hear(text: str, *_: object) -> None:
        ended.append(text)

    return hear


def _echo() -> Agent:
    return Agent(name="echo", model=FunctionModel(lambda request: request.messages[-1].text))


def test_the_stop_button_of_a_notebook_stops_a_quiet_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel cancels the cell's task in a signal handler, and nothing wakes the loop then.
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    handler = signal.getsignal(signal.SIGUSR1)
    quiet = Agent(name="quiet", model=ScriptedModel([call("wait_for_ever")]), tools=[wait_for_ever])

    async def cell() -> None:
        task = existing(asyncio.current_task())

        def stop(*_: object) -> None:
            task.cancel()

        signal.signal(signal.SIGUSR1, stop)
        press = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        press.start()
        await run(quiet, "Go.")

    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cell())
    finally:
        signal.signal(signal.SIGUSR1, handler)


DOORS: dict[str, Callable[[], Awaitable[object]]] = {
    "run": lambda: run(_echo(), "x"),
    "stream": lambda: stream(_echo(), "x").__aenter__(),
    "Chat": lambda: Chat(_echo()).__aenter__(),
    "Tasks": lambda: Tasks().__aenter__(),
    "run_many": lambda: anext(run_many(_echo(), ["x"])),
    "Durable": lambda: Durable(InMemoryEngine()).__aenter__(),
}


@pytest.mark.parametrize("door", DOORS)
def test_whoever_runs_without_asyncio_is_told_so_at_every_door(door: str) -> None:
    steps: Iterator[object] = DOORS[door]().__await__()
    with pytest.raises(RuntimeError, match="Journeyman needs asyncio"):
        next(steps)

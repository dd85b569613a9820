"""A run, or a turn of a chat, as a stream of events, and then its result."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Unpack, overload

from typing_extensions import TypeVar

from journeyman.agent import Agent, Deps, In, Out, Runtime
from journeyman.cancellation import Abort, running_loop, wait_until_ended
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.events import Callbacks, Event, Listener
from journeyman.loop.run import run
from journeyman.loop.state import StreamOptions
from journeyman.result import Result
from journeyman.types import Content, Message

Given = TypeVar("Given", default=str)


class Events(Generic[Given]):
    """The events of one run, or of one turn of a chat, in order, while it goes on; then its result.

    Entering the block starts it, in a task of its own with a copy of the caller's context. Leaving it early stops it,
    and awaits its end: a run is cancelled, a turn is aborted.
    """

    def __init__(self, start: Callable[[Listener], tuple[asyncio.Task[Result[Given]], Callable[[], object]]]) -> None:
        """`start` begins what is shown, gives the listener its events, and returns its task, and what stops it."""
        self._start = start
        self._stop: Callable[[], object] | None = None
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[Result[Given]] | None = None

    async def __aenter__(self) -> Events[Given]:
        if self._task is not None:
            raise RuntimeError("The stream was entered before. Make another one.")
        self._task, self._stop = self._start(self._put)
        self._task.add_done_callback(self._end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and self._stop is not None and not self._task.done():
            self._stop()
            await wait_until_ended(self._task)

    def _end(self, task: asyncio.Task[Result[Given]]) -> None:
        if not task.cancelled():
            task.exception()  # an interrupt ends the program by itself: asyncio need not complain that nobody looked
        self._news.set()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self._news.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        """Give every event, up to `RunSucceeded` or `RunFailed`, or to the `TurnEnded` of a turn."""
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            raise RuntimeError("The stream is not open. Iterate inside 'async with stream(…) as events:'.")
        while not self._waiting:
            if self._task.done():
                # Not before all that waits is given out: the last events come in the same step of the event loop in
                # which the task ends.
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    @property
    def result(self) -> Result[Given]:
        """The result of the run.

        Raises:
            RuntimeError: it has not ended.
            asyncio.CancelledError: it was cancelled.
            StoreError: what a turn has said could not be stored.
        """
        if self._task is None or not self._task.done():
            raise RuntimeError("The run has not ended. Iterate over all events first, inside the block.")
        return self._task.result()


@overload
def stream(agent: Agent[Out, In], input: In, **options: Unpack[StreamOptions]) -> Events[Out]: ...
@overload
def stream(agent: Agent[Out, In, Deps], input: In, *, deps: Deps, **options: Unpack[StreamOptions]) -> Events[Out]: ...
@overload
def stream(agent: Agent[Out, str], input: Content, **options: Unpack[StreamOptions]) -> Events[Out]: ...
@overload
def stream(
    agent: Agent[Out, str, Deps], input: Content, *, deps: Deps, **options: Unpack[StreamOptions]
) -> Events[Out]: ...
@refuse_old_arguments
def stream(
    agent: Agent[Out, Any, Any],
    input: Any,
    *,
    deps: object = None,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    runtime: Runtime | None = None,
) -> Events[Out]:
    """Run `agent` on `input`, and show every event as it happens.

    Use it as `async with stream(agent, input) as events:`, iterate over `events`, then read `events.result`. The same
    run as `run` makes, with the same options.
    """

    def start(put: Listener) -> tuple[asyncio.Task[Result[Out]], Callable[[], object]]:
        loop = running_loop()
        work = run(
            agent,
            input,
            deps=deps,
            max_attempts=max_attempts,
            callbacks=callbacks,
            on_event=put,
            abort=abort,
            history=history,
            runtime=runtime,
        )
        task = loop.create_task(work)
        return task, task.cancel

    return Events(start)

"""Stopping: the signal a caller holds, and the scope that obeys it.

`Abort` is for callers. `Scope` is for the loop: it cancels the running task when the signal fires or the time is up,
and takes that cancellation back on its way out, exactly as `asyncio.timeout` does, so that a cancellation that came
from somewhere else is never swallowed. `ended` and `within` are for whoever waits for work of its own;
`is_awaited` tells whether the caller of a hook waits for what the hook returned.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from threading import Lock, get_ident
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

from typing_extensions import TypeIs

Cause: TypeAlias = Literal["abort", "deadline", "attempt_deadline"]


class Abort:
    """A signal that ends runs: they return `Failure(EXECUTION_CANCELLED)` with all they gathered.

    One signal may be given to many runs. It fires once and stays fired. Safe to fire from any task, thread or
    listener.
    """

    __slots__ = ("_lock", "_reason", "_waiting")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._waiting: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._lock = Lock()

    @property
    def aborted(self) -> bool:
        """True once `abort` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """What the first caller of `abort` gave as its reason; None before that."""
        return self._reason

    @property
    def is_heeded(self) -> bool:
        """True while somebody waits for the signal, so that it will be obeyed when it fires."""
        return bool(self._waiting)

    def abort(self, reason: str = "aborted by the caller") -> None:
        """Fire the signal. Later calls change nothing."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            waiting, self._waiting = list(self._waiting.values()), {}
        for loop, callback in waiting:
            _call_in(loop, callback)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in the running event loop when the signal fires. Return what unsubscribes it."""
        key = object()
        with self._lock:
            if self._reason is None:
                self._waiting[key] = (asyncio.get_running_loop(), callback)
                return lambda: self._forget(key)
        callback()
        return lambda: None

    def _forget(self, key: object) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def __repr__(self) -> str:
        return f"<Abort {self._reason!r}>" if self.aborted else "<Abort>"


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        callback()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(callback)


def is_stopping() -> bool:
    """Tell whether a `CancelledError` that arrives now is meant for the run that is going on here.

    If not, code in between cancelled something of its own and let the error leak.
    """
    scope = current_scope.get()
    return scope is None or scope.is_stopping()


def is_failure(error: BaseException) -> bool:
    """Tell whether what a caller's code raised is that code's failure, and no reason to stop.

    Every `Exception` is; so is a leaked `CancelledError`, unless the run is being stopped; so is a group of such.
    """
    if isinstance(error, asyncio.CancelledError):
        return not is_stopping()
    if isinstance(error, BaseExceptionGroup):
        return all(is_failure(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, Exception)


def is_cancellation(error: BaseException | None) -> bool:
    """Tell whether this is a cancellation, alone or in a group with failures."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        cancellations, others = group.split(asyncio.CancelledError)
        return cancellations is not None and (others is None or isinstance(others, ExceptionGroup))
    return isinstance(error, asyncio.CancelledError)


current_scope: ContextVar[Scope | None] = ContextVar("journeyman_scope", default=None)
"""What stops the run that is going on here."""


class Scope:
    """Run the block until it ends, the signal fires, or time is up; `cause` says which of the last two.

    A cancellation of the surrounding task always leaves the block as `CancelledError`. What stops a run stops those
    that it started, too: the scope above cancels their tasks, and their checkpoints ask it whether it has to.
    """

    def __init__(
        self, abort: Abort | None = None, deadline: float | None = None, *, above: Scope | None = None
    ) -> None:
        """`deadline` is a reading of the event loop's clock, in seconds; `above` is what stops the run above."""
        self._above = above
        self._abort = abort
        self._deadline = deadline
        self._attempt_deadline: float | None = None
        self._timers: dict[Cause, Callable[[], None]] = {}
        """How to call off what would stop the block."""
        self.cause: Cause | None = None
        self.reason: str | None = None
        """What `stop` was given."""
        self.is_over = False
        self._n_unhurried = 0
        self._paused_at = 0.0

    async def __aenter__(self) -> Scope:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A run needs a task: call it from a coroutine that asyncio runs.")
        self._task = task
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._entered_with = task.cancelling()
        self._arm()
        if self._abort is not None:
            self._timers["abort"] = self._abort.subscribe(lambda: self._stop("abort"))
        return self

    def limit_attempt(self, seconds: float | None) -> None:
        """Stop the block `seconds` from now, whatever an earlier call said. None: not for the attempt's sake."""
        if seconds is None and self._attempt_deadline is None:
            return
        self._disarm()
        self._attempt_deadline = None if seconds is None else self.loop.time() + seconds
        self._arm()

    def is_own_thread(self) -> bool:
        """Tell whether this is the thread of the event loop."""
        return get_ident() == self._thread

    def is_stopping(self) -> bool:
        """Tell whether a `CancelledError` that arrives now is meant for the run: it was stopped, or its task, or the
        running task of its own, was cancelled. If not, code in between cancelled something of its own and leaked the
        error."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > (self._entered_with if task is self._task else 0)

    @asynccontextmanager
    async def unhurried(self) -> AsyncGenerator[None]:
        """Let no time pass towards the deadlines in this block, nor towards those of the runs above."""
        scopes = [self, *self._scopes_above()]
        for scope in scopes:
            scope._pause()
        try:
            yield
        finally:
            for scope in scopes:
                scope._resume()

    def _scopes_above(self) -> Iterator[Scope]:
        above = self._above
        while above is not None:
            if not above.is_over:
                yield above
            above = above._above

    def _pause(self) -> None:
        self._n_unhurried += 1
        if self._n_unhurried == 1:
            self._paused_at = self.loop.time()
            self._disarm()

    def _resume(self) -> None:
        self._n_unhurried -= 1
        if self._n_unhurried:
            return
        spent = self.loop.time() - self._paused_at
        if self._deadline is not None:
            self._deadline += spent
        if self._attempt_deadline is not None:
            self._attempt_deadline += spent
        if not self.is_over:
            self._arm()

    def _arm(self) -> None:
        if self._deadline is not None:
            self._timers["deadline"] = self.loop.call_at(self._deadline, self._stop, "deadline").cancel
        if self._attempt_deadline is not None:
            timer = self.loop.call_at(self._attempt_deadline, self._stop, "attempt_deadline")
            self._timers["attempt_deadline"] = timer.cancel

    def _disarm(self) -> None:
        for cause in ("deadline", "attempt_deadline"):
            call_off = self._timers.pop(cause, None)
            if call_off is not None:
                call_off()

    def is_due(self) -> bool:
        """Tell whether a checkpoint would stop the block."""
        if self._deadline is None and self._attempt_deadline is None and self._above is None:
            return self._task.cancelling() > self._entered_with
        return True  # the checkpoint reads the clock

    async def checkpoint(self) -> None:
        """Let a cancellation through that is due, also where nothing would otherwise wait for anything."""
        self._stop_if_late()
        for above in self._scopes_above():
            above._stop_if_late()
            if above.cause is not None:
                self._stop("abort" if above.cause == "abort" else "deadline")
        if self._task.cancelling() > self._entered_with:
            await asyncio.sleep(0)
            # The cancellation was caught somewhere. Ours is still due. Another was meant for the code that caught it:
            # before Python 3.13, `asyncio.TaskGroup` leaves the count raised when one of its tasks fails.
            if self.cause is not None:
                raise asyncio.CancelledError
            while self._task.cancelling() > self._entered_with:
                self._task.uncancel()

    def _stop_if_late(self) -> None:
        if self._n_unhurried:
            return
        if self._deadline is not None and self.loop.time() >= self._deadline:
            self._stop("deadline")
        if self._attempt_deadline is not None and self.loop.time() >= self._attempt_deadline:
            self._stop("attempt_deadline")

    def stop(self, reason: str) -> None:
        """End the block as the caller's signal would."""
        if self.cause is None:
            self.reason = reason
        self._stop("abort")

    def _stop(self, cause: Cause) -> None:
        if self.cause is None and not self.is_over:
            self.cause = cause
            self._task.cancel(cause)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.is_over = True  # a signal from another thread may still be on its way
        for call_off in self._timers.values():
            call_off()
        if self.cause is None:
            return False
        with suppress(asyncio.CancelledError):
            # A signal fired by the task itself comes at its next await; without this one it could hit the caller.
            await asyncio.sleep(0)
        came_from_elsewhere = self._task.uncancel() > self._entered_with
        if kind is None and came_from_elsewhere:
            raise asyncio.CancelledError
        return is_cancellation(error) and not came_from_elsewhere


async def ended(
    task: asyncio.Future[Any], *, patience_s: float | None = None, on_cancel: Callable[[], object] | None = None
) -> None:
    """Wait until `task` has ended, whoever cancels the waiting. Such a cancellation is raised when the task has ended.

    How the task ended is not looked at.

    Args:
        task: What is waited for.
        patience_s: After so many seconds the task is cancelled, and again each time that they pass. None: never.
        on_cancel: Called whenever the waiting is cancelled, for example `task.cancel`.
    """
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            if not (await asyncio.wait({task}, timeout=patience_s))[0]:
                task.cancel()
        except asyncio.CancelledError as error:
            interrupted = error
            if on_cancel is not None:
                on_cancel()
    if interrupted is not None:
        raise interrupted


async def within(seconds: float, work: Awaitable[object]) -> None:
    """Wait for `work` for so long at most, also while a cancellation is on its way. What has not ended is cancelled."""
    # `asyncio.timeout` takes its own cancellation for that one, in the first versions of Python 3.11.
    waiting = asyncio.ensure_future(work)
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


class NeverAwaited:
    """What a hook may return and its caller does not await, although others may: it could be waiting for that hook."""

    __slots__ = ()


def is_awaited(value: object) -> TypeIs[Awaitable[Any]]:
    """Tell whether the caller of a hook awaits what the hook returned."""
    return inspect.isawaitable(value) and not isinstance(value, NeverAwaited)

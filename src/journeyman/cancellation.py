"""Stopping: the signal a caller holds, and the scope that obeys it.

`Abort` is for callers. `Scope` is for the loop: it carries work in a task of its own, cancels that when the signal
fires, the time is up or whoever waits for it is cancelled, and leaves it behind when it will not end. Whoever waits for
work of its own uses `wait_until_ended`, `within` and `cancel_within`. `is_awaited` tells whether the caller of a hook
waits for what the hook returned.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any, Final, Literal, TypeAlias, TypeVar

from typing_extensions import TypeIs

from journeyman.definition import explain_arguments
from journeyman.narrowing import is_group

T = TypeVar("T")

Cause: TypeAlias = Literal["abort", "deadline", "attempt_deadline"]


@explain_arguments
class Abort:
    """A signal that ends runs: they return `Failure(EXECUTION_CANCELLED)` with all that they have done so far.

    One signal may be given to many runs. It fires once and stays fired. Safe to fire from any task, thread or
    listener.
    """

    __slots__ = ("_lock", "_reason", "_waiting", "_was_heeded")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._waiting: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._was_heeded = False
        self._lock = Lock()

    @property
    def aborted(self) -> bool:
        """True once `abort` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """The reason that the first caller of `abort` gave; None before that."""
        return self._reason

    @property
    def is_heeded(self) -> bool:
        """True while somebody waits for the signal and so will obey it, and after the signal has reached somebody."""
        with self._lock:
            return bool(self._waiting) or self._was_heeded

    def abort(self, reason: str = "aborted by the caller") -> None:
        """Fire the signal. Later calls change nothing."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            waiting, self._waiting = list(self._waiting.values()), {}
            self._was_heeded = bool(waiting)
        for loop, callback in waiting:
            call_in(loop, callback)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in the running event loop when the signal fires. Return a function that unsubscribes it."""
        key = object()
        with self._lock:
            if self._reason is None:
                self._waiting[key] = (asyncio.get_running_loop(), callback)
                return lambda: self._forget(key)
            self._was_heeded = True
        callback()
        return lambda: None

    def _forget(self, key: object) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def __repr__(self) -> str:
        return f"<Abort {self._reason!r}>" if self.aborted else "<Abort>"


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs here.

    Raises:
        RuntimeError: none of asyncio does.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "Journeyman needs asyncio, and no event loop of asyncio runs here. Start the program with asyncio.run(…);"
            " under trio, call Journeyman in a thread of its own, with asyncio.run(…) in it."
        ) from None


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call `callback` in the thread of this event loop: now, if that is here. Once the loop is closed, nobody is there
    whom it could concern, and nothing happens."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        callback()
        return
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise


def is_stopping() -> bool:
    """Tell whether a `CancelledError` that arrives now is meant for the run that is going on here.

    If not, code in between cancelled something of its own and let the error leak.
    """
    scope = current_scope.get()
    return scope is None or scope.is_stopping()


def is_done_for(task: asyncio.Task[Any] | None) -> bool:
    """Tell whether what goes on here is done by `task`, or by a run that it waits for."""
    if task is None or asyncio.current_task() is task:
        return task is not None
    scope = current_scope.get()
    return scope is not None and scope.is_done_for(task)


def is_failure(error: BaseException) -> bool:
    """Tell whether what a caller's code raised is that code's failure, and no reason to stop.

    Whatever is raised is, as a panic of an extension in Rust, except for what ends the program or closes a generator;
    so is a leaked `CancelledError`, unless the run is being stopped; so is a group of such.
    """
    if isinstance(error, asyncio.CancelledError):
        return not is_stopping()
    if is_group(error):
        return all(is_failure(each) for each in error.exceptions)
    return not isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit)


def is_cancellation(error: BaseException | None) -> bool:
    """Tell whether this is a cancellation, alone or in a group with failures."""
    if is_group(error):
        cancellations, others = error.split(asyncio.CancelledError)
        return cancellations is not None and (others is None or isinstance(others, ExceptionGroup))
    return isinstance(error, asyncio.CancelledError)


def flatten_error(error: BaseException) -> Iterator[BaseException]:
    """Yield what a group of errors holds, through groups in it; of an error that is no group, itself."""
    if is_group(error):
        for each in error.exceptions:
            yield from flatten_error(each)
    else:
        yield error


current_scope: ContextVar[Scope | None] = ContextVar("journeyman_scope", default=None)
"""What stops the run that is going on here."""


current_call: ContextVar[Scope | None] = ContextVar("journeyman_call", default=None)
"""What limits the time of the tool call that goes on here."""

GRACE_S: Final = 10.0
"""How many seconds stopped work has to end by itself before it is left behind."""

_BEAT_S: Final = 0.5  # so long at most the stop button of a notebook goes unnoticed
_AGAIN_S: Final = 0.05
_MOST_AGAIN: Final = 20
"""A run waits this often, and so long each time, for the runs below to be done with what they have left behind."""


class Scope:
    """Carry work until it ends, the signal fires, or time is up; `cause` says which of the last two.

    The work has a task of its own. Whoever waits for it may be cancelled, and then waits for its end. But code that
    swallows cancellations cannot keep the caller: what has not ended `grace_s` after it was stopped is abandoned. What
    stops a run stops those that it started, too: the scope above cancels their tasks, and their checkpoints ask it
    whether it has to.
    """

    def __init__(
        self,
        abort: Abort | None = None,
        deadline: float | None = None,
        *,
        above: Scope | None = None,
        grace_s: float = GRACE_S,
        replays: Callable[[], bool] | None = None,
    ) -> None:
        """`deadline` is a reading of the event loop's clock, in seconds; `above` is what stops the run above. While the
        work `replays`, no deadline stops it: it would end without what it has done before."""
        self._above = above
        self._below: set[Scope] = set()
        self._call = current_call.get()
        self._abort = abort
        self.deadline: Final = deadline
        """When time is up, without what approvals add to it."""
        self._deadline = deadline
        self._attempt_deadline: float | None = None
        self._grace_s = grace_s
        self._replays = replays
        self._timers: dict[Cause | Literal["grace", "beat"], Callable[[], None]] = {}
        """How to call off what would stop the work."""
        self.cause: Cause | None = None
        self.source: Scope = self
        """What was stopped first: this scope, or that of a run above, of which it has the cause."""
        self.reason: str | None = None
        """What `stop` was given."""
        self.is_over = False
        self.is_abandoned = False
        """True when the work was stopped, and would not end."""
        self._is_stopped = False
        self._ends_program: BaseException | None = None
        self._n_again = 0
        self._n_unhurried = 0
        self._paused_at = 0.0

    async def carry(self, work: Coroutine[object, object, T]) -> T | None:
        """Do the work, and return what comes of it; None when it was stopped.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The work has ended by then, or was abandoned.
        """
        caller = asyncio.current_task()
        if caller is None:
            work.close()
            raise RuntimeError("A run needs a task: call it from a coroutine that asyncio runs.")
        self._caller, self._entered_with = caller, caller.cancelling()
        self.loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._news = self.loop.create_future()
        if self._above is not None:
            self._above._below.add(self)
        # An eager task factory takes the first step before it returns: what that reads has to be there by now, and the
        # step itself says which task it is in.
        self._task = self.loop.create_task(self._inside(work))
        if not self._task.done():
            self._task.add_done_callback(self._wake)
        interrupted: asyncio.CancelledError | None = None
        while not (self._task.done() or self.is_abandoned):
            if self._news.done():
                self._news = self.loop.create_future()
            try:
                await self._news
            except asyncio.CancelledError as error:
                interrupted = error
                self._press()
        self._leave(work)
        if interrupted is not None:
            raise interrupted
        if self._ends_program is not None:
            raise self._ends_program
        if self.cause is not None and (self.is_abandoned or self._was_cancelled()):
            return None
        return self._task.result()

    async def _inside(self, work: Coroutine[object, object, T]) -> T | None:
        self._task = own_task()
        self._arm()
        if self._abort is not None:
            self._timers["abort"] = self._abort.subscribe(lambda: self._stop("abort"))
        if self._above is None and "ipykernel" in sys.modules:
            self._beat()
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:  # a task that raises it ends the event loop before its caller
            self._ends_program = error
            return None

    def _beat(self) -> None:
        """Wake the loop now and then: the stop button of a notebook cancels the cell's task within a signal handler,
        which does not wake a loop that waits for the network."""
        self._timers["beat"] = self.loop.call_later(_BEAT_S, self._beat).cancel

    def _leave(self, work: Coroutine[object, object, object]) -> None:
        self.is_over = True  # a signal from another thread may still be on its way
        for call_off in self._timers.values():
            call_off()
        if self._above is not None:
            self._above._below.discard(self)
        if self.is_abandoned:
            _abandoned.add(self._task)
            self._task.add_done_callback(_abandoned.discard)
        elif self._task.cancelled():
            work.close()  # it may not even have begun
        if not self.is_abandoned:
            self._was_cancelled()

    def _was_cancelled(self) -> bool:
        return self._task.cancelled() or is_cancellation(self._task.exception())

    def _wake(self, _: object = None) -> None:
        if not self._news.done():
            self._news.set_result(None)

    def _press(self) -> None:
        """Cancel the work, and give it its time to end."""
        self._is_stopped = True
        self._task.cancel()
        if "grace" not in self._timers:
            self._timers["grace"] = self.loop.call_later(self._grace_s, self._give_up).cancel

    def _give_up(self) -> None:
        """Leave the work behind; before that, let the runs below leave theirs, and come to their end."""
        if self._task.done() or self.is_abandoned:
            return
        if self._below and self._n_again < _MOST_AGAIN:
            self._n_again += 1
            for below in tuple(self._below):
                below._give_up()
            self._timers["grace"] = self.loop.call_later(_AGAIN_S, self._give_up).cancel
            return
        self.is_abandoned = True
        self._wake()

    def limit_attempt(self, seconds: float | None) -> None:
        """Stop the block `seconds` from now, whatever an earlier call said. None: the attempt has no limit of its
        own."""
        if seconds is None and self._attempt_deadline is None:
            return
        self._disarm()
        self._attempt_deadline = None if seconds is None else self.loop.time() + seconds
        self._arm()

    def is_own_thread(self) -> bool:
        """Tell whether this is the thread of the event loop."""
        return get_ident() == self._thread

    def is_stopping(self) -> bool:
        """Tell whether a `CancelledError` that arrives now is meant for the run: it was stopped, or the running task of
        its own was cancelled. If not, code in between cancelled something of its own and leaked the error."""
        task = asyncio.current_task()
        return task is not None and (task.cancelling() > 0 or (task is self._task and self._is_stopped))

    def is_done_for(self, task: asyncio.Task[Any]) -> bool:
        """Tell whether `task` does the work, or waits for it."""
        return any(task in (scope._task, scope._caller) for scope in (self, *self._scopes_above()))

    @asynccontextmanager
    async def pause_deadlines(self) -> AsyncGenerator[None]:
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
            self._timers["deadline"] = self.loop.call_at(self._deadline, self._late, "deadline").cancel
        if self._attempt_deadline is not None:
            timer = self.loop.call_at(self._attempt_deadline, self._late, "attempt_deadline")
            self._timers["attempt_deadline"] = timer.cancel

    def _late(self, cause: Cause) -> None:
        """Stop the work, since its time is up; while it replays, look again soon."""
        if self._replays is not None and self._replays():
            self._timers[cause] = self.loop.call_later(_AGAIN_S, self._late, cause).cancel
            return
        self._replays = None
        self._stop(cause)

    def _disarm(self) -> None:
        for cause in ("deadline", "attempt_deadline"):
            call_off = self._timers.pop(cause, None)
            if call_off is not None:
                call_off()

    def is_due(self) -> bool:
        """Tell whether a checkpoint would stop the block."""
        if self._abort is not None and self._abort.aborted:
            return True
        if self._deadline is None and self._attempt_deadline is None and self._above is None:
            return self._task.cancelling() > 0 or self._is_stopped or self._caller.cancelling() > self._entered_with
        return True  # the checkpoint reads the clock

    async def checkpoint(self) -> None:
        """Let a cancellation through that is due, also where nothing would otherwise wait for anything."""
        self._stop_if_due()
        for above in self._scopes_above():
            above._stop_if_due()
            if above.cause is not None and self.cause is None:
                self.source = above.source
                self._stop("abort" if above.cause == "abort" else "deadline")
        for scope in reversed([self, *self._scopes_above()]):
            if scope._caller.cancelling() > scope._entered_with and not scope._is_stopped:
                scope._press()  # its caller was cancelled, and had no turn yet to say so
        if self._is_stopped or self._task.cancelling():
            await asyncio.sleep(0)
            # The cancellation was caught somewhere. Ours is still due. Another was meant for the code that caught it:
            # before Python 3.13, `asyncio.TaskGroup` leaves the count raised when one of its tasks fails.
            if self._is_stopped:
                raise asyncio.CancelledError
            while self._task.cancelling():
                self._task.uncancel()

    def _stop_if_due(self) -> None:
        if self._abort is not None and self._abort.aborted:
            self._stop("abort")  # fired in another thread: whoever has seen it may be here before its callback
        if self._n_unhurried or (self._replays is not None and self._replays()):
            return
        if self._deadline is not None and self.loop.time() >= self._deadline:
            self._stop("deadline")
        if self._attempt_deadline is not None and self.loop.time() >= self._attempt_deadline:
            self._stop("attempt_deadline")

    def late_s(self) -> float:
        """Return how many seconds ago time was up."""
        ended = self._attempt_deadline if self.cause == "attempt_deadline" else self._deadline
        return 0.0 if ended is None else self.loop.time() - ended

    def follow_above(self) -> bool:
        """Take the cause of a run above that was stopped, or of the tool call that took too long, for one's own. False:
        there is none, so a cancellation came from outside."""
        for scope in (self, *self._scopes_above()):
            if self.cause is None and scope.cause is not None:
                self.cause, self.source = "abort" if scope.cause == "abort" else "deadline", scope.source
                self.reason = scope.reason or (None if scope._abort is None else scope._abort.reason)
            if self.cause is None and scope._call is not None and scope._call.cause == "deadline":
                self.cause, self.reason = "abort", "the tool call in which it began took too long"
        return self.cause is not None

    def stop(self, reason: str) -> None:
        """End the block as the caller's signal would."""
        if self.cause is None:
            self.reason = reason
        self._stop("abort")

    def _stop(self, cause: Cause) -> None:
        if self.cause is None and not self.is_over:
            self.cause = cause
            self._press()


_CANCELLATIONS: Final = 16
"""How often what does not end is cancelled, at least."""
_abandoned: Final[set[asyncio.Task[Any]]] = set()
"""Work that was left behind and goes on: a task that nobody holds may be lost to the garbage collector."""


async def wait_until_ended(
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


async def cancel_within(seconds: float, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Cancel tasks again and again: each time, what keeps one of them is left. Return those that still go on
    after so many seconds; nobody waits for them any more."""
    clock = asyncio.get_running_loop().time
    until_s, late = clock() + seconds, {each for each in tasks if not each.done()}
    while late:
        for task in late:
            task.cancel()
        _, late = await asyncio.wait(late, timeout=min(seconds / _CANCELLATIONS, max(0.0, until_s - clock())))
        if clock() >= until_s:
            break
    for task in late:
        _abandoned.add(task)
        task.add_done_callback(_abandoned.discard)
    return late


async def within(seconds: float, work: Awaitable[object]) -> None:
    """Wait at most `seconds` for `work`, also while a cancellation is on its way. Work that has not ended by then is
    cancelled."""
    # `asyncio.timeout` takes its own cancellation for that one, in the first versions of Python 3.11.
    waiting = asyncio.ensure_future(work)
    # What was gathered ends with a cancellation as its error: asyncio need not complain that nobody looked.
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
        await wait_until_ended(waiting)


class NeverAwaited:
    """A base of awaitables that the caller of a hook does not await: such a one might be waiting for that very hook."""

    __slots__ = ()


def own_task() -> asyncio.Task[Any]:
    """Return the task that the caller runs in.

    Raises:
        RuntimeError: it runs in none.
    """
    if (task := asyncio.current_task()) is None:
        raise RuntimeError("A callback of the event loop called what only a task may. Call it in a task.")
    return task


def is_awaited(value: object) -> TypeIs[Awaitable[object]]:
    """Tell whether the caller of a hook awaits what the hook returned."""
    return inspect.isawaitable(value) and not isinstance(value, NeverAwaited)

"""Stopping: the signal a caller holds, and the scope that obeys it.

`Abort` is for callers. `Scope` is for the loop: it carries work in a task of its own, cancels that when the signal
fires, the time is up or whoever waits for it is cancelled, and leaves it behind when it will not end. Whoever waits for
work of its own uses `wait_until_ended`, `within` and `cancel_within`. `is_awaited` tells whether the caller of a hook
waits for what the hook returned.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any, Final, Literal, TypeAlias, TypeVar

from typing_extensions import TypeIs

from journeyman.definition.narrowing import is_group
from journeyman.definition.problems import explain_arguments
from journeyman.errors import HOW_TO_SEE_MORE, Told, name_and_words, place_of

T = TypeVar("T")
_log = logging.getLogger("journeyman")

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
        self._waiting: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = {}
        self._was_heeded = False
        # Whoever fires the signal may be in any thread, while runs begin and end in theirs.
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
        # Outside of the lock: a callback may unsubscribe, which takes the lock once more.
        for loop, callback in waiting:
            call_in(loop, callback)

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` in the running event loop when the signal fires. Return a function that unsubscribes it."""
        # A key of its own and not the callback, which may be subscribed more than once.
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
        # A closed loop refuses callbacks, and its own thread may close it at any moment. Anything else is a fault.
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


def log_caught(what: str, error: BaseException, *, level: int = logging.WARNING, told: Told | None = None) -> None:
    """Log what other people's code raised and nobody else sees: its class, file and line. The words and the traceback
    may hold content, so they are logged for debugging only.

    In a run and those below it the same error is logged once: their scopes remember it, or `told` for what outlives
    a run.
    """
    scope, place = current_scope.get(), place_of(error)
    told = scope.told if told is None and scope is not None else told
    if told is not None:
        if (what, place) in told:
            return
        told.add((what, place))
    where = f" at {place}" if place else ""
    _log.log(level, "%s raised %s%s. %s", what, type(error).__name__, where, HOW_TO_SEE_MORE)
    _log.debug("%s raised %s", what, name_and_words(error), exc_info=error)


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


GRACE_S: Final = 10.0
"""How many seconds stopped work has to end by itself before it is left behind."""

_BEAT_S: Final = 0.5  # so long at most the stop button of a notebook goes unnoticed
# A second in all: it bounds what a run may take beyond its grace.
_AGAIN_S: Final = 0.05
_MOST_AGAIN: Final = 20
"""A run waits this often, and so long each time, for the runs below to be done with what they have left behind."""

State: TypeAlias = Literal["armed", "stopping", "abandoned", "finished"]
_Timer: TypeAlias = Literal["signal", "clock", "grace", "beat"]
_ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)


class Scope:
    """A scope carries the work of a run, in a task of its own, until the work ends or is left behind.

                  its signal, its time,                     its grace
                  a scope above, or its                     is over
        armed ─── caller is cancelled ────► stopping ─────────────────────► abandoned
          │                                    │
          └── the work ends ──► finished ◄─────┘ the work ends

    `cause` says why a scope is `stopping`; None: its caller was cancelled, which then waits for the end of the work.
    Code that swallows cancellations cannot keep the caller: what has not ended `grace_s` after the stop is abandoned.
    What stops a run stops those that it started, too: the scope above cancels their tasks, and their checkpoints ask
    it whether it has to.
    """

    def __init__(
        self,
        abort: Abort | None = None,
        deadline: float | None = None,
        *,
        above: Scope | None = None,
        call: Scope | None = None,
        grace_s: float = GRACE_S,
        replays: Callable[[], bool] | None = None,
    ) -> None:
        """`deadline` is a reading of the event loop's clock, in seconds; `above` is what stops the run above, and
        `call` what limits the time of the tool call in which it began. While the work `replays`, no deadline stops it:
        it would end without what it has done before."""
        self.state: State = "armed"
        self.cause: Cause | None = None
        self.reason: str | None = None
        """The words of whoever stopped the work."""
        self._source: Scope | None = None
        self.deadlines: Final[dict[Cause, float]] = {} if deadline is None else {"deadline": deadline}
        """When time is up, on the clock of this scope."""
        self._clock: Final = _PausableClock()
        self._abort, self._above, self._grace_s, self._replays = abort, above, grace_s, replays
        self._below: Final[set[Scope]] = set()
        self._call = call
        self.told: Final[Told] = set() if above is None else above.told
        """The errors that were logged already of the run, and of those above and below it."""
        # Only until the work has ended: a task holds its context, in which this scope stands, and what is held in a
        # circle is freed only when garbage is collected, which stops every run for a while.
        self._task: asyncio.Task[Any] | None = None
        self._news: asyncio.Future[None] | None = None
        """The future for which the caller waits; it is done when there is something to look at."""
        self._timers: Final[dict[_Timer, Callable[[], None]]] = {}
        """How to call off what would change the state."""

    @property
    def source(self) -> Scope:
        """The scope that was stopped first: this one, or that of a run above, of which it has the cause."""
        return self._source or self

    @property
    def is_over(self) -> bool:
        """True when nobody waits for the work any more."""
        return self.state in ("abandoned", "finished")

    @property
    def _is_stopped(self) -> bool:
        return self.state in ("stopping", "abandoned")

    async def carry(self, work: Coroutine[object, object, T]) -> T | None:
        """Do the work, and return what comes of it; None when it was stopped.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The work has ended by then, or was abandoned.
        """
        caller = asyncio.current_task()
        if caller is None:
            work.close()
            raise RuntimeError("A run needs a task: call it from a coroutine that asyncio runs.")
        # How often it was cancelled so far: whoever caught such a cancellation before left the count raised, and that
        # is no new one.
        self._caller, self._entered_with = caller, caller.cancelling()
        self.loop = asyncio.get_running_loop()
        if self._above is not None:
            self._above._below.add(self)
        # An eager task factory takes the first step before it returns: what that reads has to be there by now, and the
        # step itself says which task it is in.
        task = self._task = self.loop.create_task(self._inside(work))
        interrupted: asyncio.CancelledError | None = None
        while not (task.done() or self.state == "abandoned"):
            # A new one for each wait: a cancellation that ends the wait cancels the future with it.
            self._news = self.loop.create_future()
            try:
                await self._news
            except asyncio.CancelledError as error:
                # Not raised yet: the caller is promised that nothing of the run is alive by then.
                interrupted = error
                self._cancel_work()
        was_cut = self._finish(task, work)
        if interrupted is not None:
            raise interrupted
        if was_cut and self.cause is not None:
            return None
        if self.state == "abandoned":
            raise asyncio.CancelledError
        result = task.result()
        if isinstance(result, _ENDS_PROGRAM):
            raise result
        return result

    async def _inside(self, work: Coroutine[object, object, T]) -> T | KeyboardInterrupt | SystemExit:
        self._task = own_task()
        if self.deadlines:
            self._set_clock()
        if self._abort is not None:
            self._timers["signal"] = self._abort.subscribe(self._stop_if_due)
        if self._above is None and "ipykernel" in sys.modules:
            self._beat()
        try:
            return await work
        except _ENDS_PROGRAM as error:  # a task that raises it ends the event loop before its caller
            return error
        finally:
            self._wake()  # its caller has its turn when this task has ended

    def _beat(self) -> None:
        """Wake the loop now and then: the stop button of a notebook cancels the cell's task within a signal handler,
        which does not wake a loop that waits for the network."""
        self._timers["beat"] = self.loop.call_later(_BEAT_S, self._beat).cancel

    def _wake(self, _: object = None) -> None:
        end_wait(self._news)

    def stop(self, reason: str) -> None:
        """Stop the work as the caller's signal would."""
        self._stop("abort", reason)

    def _stop(self, cause: Cause, reason: str | None = None, source: Scope | None = None) -> None:
        """Go to `stopping` for this cause, unless there was one before."""
        if self.cause is None and not self.is_over:
            self.cause, self.reason, self._source = cause, reason, source
            self._cancel_work()

    def _cancel_work(self) -> None:
        """Go to `stopping`, and give the work its time to end. If it goes on for a cancellation that it has caught,
        cancel it again."""
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(self._wake)  # it may not even have begun
        if self.state == "armed":
            self.state = "stopping"
            self._timers["grace"] = self.loop.call_later(self._grace_s, self._give_up).cancel

    def _give_up(self, number: int = 1) -> None:
        """Go to `abandoned`; before that, let the runs below leave their work behind, and come to their end.

        A run below that nothing has cancelled, since it began after the stop or is shielded, is cancelled first.
        """
        if self.is_over or self._task is None or self._task.done():
            return
        if self.state == "armed":
            self._cancel_work()
        elif self._below and number <= _MOST_AGAIN:
            for below in tuple(self._below):
                below._give_up(number + 1)
            self._call_off("grace")
            self._timers["grace"] = self.loop.call_later(_AGAIN_S, self._give_up, number + 1).cancel
        else:
            self.state = "abandoned"
            self._wake()

    def _finish(self, task: asyncio.Task[Any], work: Coroutine[object, object, object]) -> bool:
        """Go to `finished`, unless the work was abandoned. Return True if the work did not come to its own end."""
        for call_off in self._timers.values():
            call_off()
        if self._above is not None:
            self._above._below.discard(self)
        if self.state == "abandoned":
            _abandoned.add(task)
            # Only until it ends: the set would hold every task of a long program otherwise.
            task.add_done_callback(_abandoned.discard)
            return True
        self.state = "finished"  # a signal from another thread may still be on its way
        self._task = None
        if task.cancelled():
            work.close()  # it may not even have begun
            return True
        return is_cancellation(task.exception())

    def _call_off(self, name: _Timer) -> None:
        call_off = self._timers.pop(name, None)
        if call_off is not None:
            call_off()

    def limit_attempt(self, seconds: float | None) -> None:
        """Stop the work `seconds` from now, whatever an earlier call said. None: not for the attempt's sake."""
        self.deadlines.pop("attempt_deadline", None)
        if seconds is not None:
            self.deadlines["attempt_deadline"] = self._clock.time() + seconds
        self._set_clock()

    def pause_deadlines(self) -> DeadlinePause:
        """Let no time pass towards the deadlines in this block, nor towards those of the runs above."""
        # Those above, too: their limits would stop this run while somebody thinks about its question.
        return DeadlinePause(self._with_scopes_above())

    def turn_clock(self, *, is_paused: bool) -> None:
        """Stop the clock of this scope, or let it go on."""
        (self._clock.pause if is_paused else self._clock.resume)()
        self._set_clock()

    def _set_clock(self) -> None:
        """Wait for the deadline that is the next, as long as the clock goes."""
        self._call_off("clock")
        if self.deadlines and not self._clock.n_pauses and not self.is_over:
            cause = min(self.deadlines, key=self.deadlines.__getitem__)
            at = self.deadlines[cause] + self._clock.paused_s
            self._timers["clock"] = self.loop.call_at(at, self._end_time, cause).cancel

    def _end_time(self, cause: Cause) -> None:
        """Stop the work, since its time is up; while it replays, look again soon."""
        if self._is_replaying():
            self._timers["clock"] = self.loop.call_later(_AGAIN_S, self._end_time, cause).cancel
        else:
            self._stop(cause)

    def _is_replaying(self) -> bool:
        return self._replays is not None and self._replays()

    def late_s(self) -> float:
        """Return how many seconds ago time was up."""
        return 0.0 if self.cause not in self.deadlines else self._clock.time() - self.deadlines[self.cause]

    def is_stopping(self) -> bool:
        """Tell whether a `CancelledError` that arrives now is meant for the run: it was stopped, or the running task of
        its own was cancelled. If not, code in between cancelled something of its own and leaked the error."""
        task = asyncio.current_task()
        return task is not None and (task.cancelling() > 0 or (task is self._task and self._is_stopped))

    def is_done_for(self, task: asyncio.Task[Any]) -> bool:
        """Tell whether `task` does the work, or waits for it."""
        return any(task in (scope._task, scope._caller) for scope in self._with_scopes_above())

    def is_due(self) -> bool:
        """Tell whether a checkpoint would stop the work, or has to read a clock for that."""
        if self.deadlines or self._above is not None or (self._abort is not None and self._abort.aborted):
            return True
        return self._is_stopped or self._is_cancelled() or self._has_cancelled_caller()

    async def checkpoint(self) -> None:
        """Let a cancellation through that is due, also where nothing would otherwise wait for anything."""
        if not self.is_due():
            return
        scopes = self._with_scopes_above()
        for scope in scopes:
            scope._stop_if_due()
            if scope.cause is not None:
                self._stop(*scope._stop_of_below())
        for scope in reversed(scopes):
            if scope._has_cancelled_caller() and not scope._is_stopped:
                scope._cancel_work()  # its caller had no turn yet to do so
        if self._is_stopped or self._is_cancelled():
            # One step of the loop, so that a cancellation which was asked for arrives as asyncio delivers it.
            await asyncio.sleep(0)
            # The cancellation was caught somewhere. Ours is still due. Another was meant for the code that caught it:
            # before Python 3.13, `asyncio.TaskGroup` leaves the count raised when one of its tasks fails.
            if self._is_stopped:
                raise asyncio.CancelledError
            while self._task is not None and self._task.cancelling():
                self._task.uncancel()

    def follow_above(self) -> bool:
        """Take the cause of a run above that was stopped, or of the tool call that took too long, for one's own. False:
        there is none, so a cancellation came from outside."""
        for scope in self._with_scopes_above():
            if self.cause is None and scope.cause is not None:
                self.cause, self.reason, self._source = scope._stop_of_below()
            if self.cause is None and scope._call is not None and scope._call.cause == "deadline":
                self.cause, self.reason = "abort", "the tool call in which it began took too long"
        return self.cause is not None

    def _stop_of_below(self) -> tuple[Cause, str | None, Scope]:
        """Return the cause, the reason and the source with which a run below ends, since this one was stopped."""
        return "abort" if self.cause == "abort" else "deadline", self.reason, self.source

    def _stop_if_due(self) -> None:
        if self._abort is not None and self._abort.aborted:
            self._stop("abort", self._abort.reason)  # a checkpoint may be here before the signal of another thread
        if self._clock.n_pauses or self._is_replaying():
            return
        for cause, deadline in self.deadlines.items():
            if self._clock.time() >= deadline:
                self._stop(cause)

    def _is_cancelled(self) -> bool:
        return self._task is not None and self._task.cancelling() > 0

    def _has_cancelled_caller(self) -> bool:
        return self._caller.cancelling() > self._entered_with

    def _with_scopes_above(self) -> list[Scope]:
        scopes: list[Scope] = [self]
        above = self._above
        while above is not None:
            if not above.is_over:
                scopes.append(above)
            above = above._above
        return scopes


class DeadlinePause:
    """A block in which no time passes towards the deadlines of scopes. Every run that has its answer enters one."""

    __slots__ = ("_scopes",)

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes

    async def __aenter__(self) -> None:
        for scope in self._scopes:
            scope.turn_clock(is_paused=True)

    async def __aexit__(self, *_: object) -> None:
        for scope in self._scopes:
            scope.turn_clock(is_paused=False)


class _PausableClock:
    """The clock of the event loop, which stands still while somebody is asked."""

    n_pauses = 0
    _paused_at = 0.0
    paused_s = 0.0

    def time(self) -> float:
        return (self._paused_at if self.n_pauses else asyncio.get_running_loop().time()) - self.paused_s

    def pause(self) -> None:
        self._paused_at = self.time() + self.paused_s
        self.n_pauses += 1

    def resume(self) -> None:
        self.n_pauses -= 1
        if not self.n_pauses:
            self.paused_s += asyncio.get_running_loop().time() - self._paused_at


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
            # `wait` neither raises what the task raises, nor cancels the task with the waiting.
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
        # Also when the waiting was cancelled: nobody else holds the work.
        waiting.cancel()
        await wait_until_ended(waiting)


class Wakeup:
    """Wakes the one task that waits for it. A call that comes while it does not wait counts for its next wait."""

    # For what `asyncio.Event` could do too, with a task for each wait that has a time limit or ends with other things.
    __slots__ = ("_is_called", "_waiting")

    def __init__(self) -> None:
        self._is_called = False
        self._waiting: asyncio.Future[None] | None = None

    def call(self, _: object = None) -> None:
        """Wake whoever waits; a callback of tasks and futures may do so, too."""
        self._is_called = True
        end_wait(self._waiting)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the next call, at most so long."""
        if not self._is_called:
            loop = asyncio.get_running_loop()
            waiting = self._waiting = loop.create_future()
            timer = None if seconds is None else loop.call_later(seconds, end_wait, waiting)
            try:
                await waiting
            finally:
                if timer is not None:
                    timer.cancel()
        self._is_called = False


def end_wait(waiting: asyncio.Future[None] | None) -> None:
    """Wake whoever waits for a future, unless that is done, or its waiter was cancelled."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


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

"""An event loop on the virtual clock that counts its steps: something can be made to happen before any one of them.

A step is one callback. Between two of them a program may be cancelled, and nowhere else: whoever cancels before step
1, 2, 3 … has cancelled everywhere. The loop also knows which timers a program left behind.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from journeyman.cancellation import Scope
from tests.support.clock import VirtualClock

T = TypeVar("T")

_GLANCE_S = 0.001


class _Counting(asyncio.SelectorEventLoop):
    """Counts its steps, and keeps its timers."""

    steps = 0
    """How many callbacks have begun since `count_from_here`."""

    def __init__(self, *args: Any) -> None:
        self._actions: dict[int, Callable[[], object]] = {}
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._callbacks: dict[object, object] = {}
        super().__init__(*args)

    def count_from_here(self) -> None:
        """Count from 0 again, and forget what was to happen before which step."""
        self.steps = 0
        self._actions.clear()

    def before_step(self, number: int, action: Callable[[], object]) -> None:
        """Call `action` before the callback of this number, counted from 1."""
        self._actions[number] = action

    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """Return what is to be called later."""
        return [timer for place, timer in self._timers.items() if not timer.cancelled() and not self._is_awaited(place)]

    def _is_awaited(self, place: object) -> bool:
        """Tell whether the timer is the grace of a run that goes on, above those that have ended."""
        scope = getattr(self._callbacks[place], "__self__", None)
        return isinstance(scope, Scope) and not scope.is_over

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._step, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        place = object()
        self._callbacks[place] = callback
        timer = self._timers[place] = super().call_at(when, self._due, place, callback, *args, context=context)
        return timer

    def _due(self, place: object, callback: Callable[..., object], *args: object) -> None:
        del self._timers[place], self._callbacks[place]
        self._step(callback, *args)

    def _step(self, callback: Callable[..., object], *args: object) -> None:
        self.steps += 1
        action = self._actions.pop(self.steps, None)
        if action is not None:
            action()
        callback(*args)


class CountingRealLoop(_Counting):
    """Counts on a real clock: for tests with sockets."""


class CountingLoop(_Counting, VirtualClock):
    """Counts on a virtual clock, which moves on only when no thread is at work."""

    def __init__(self) -> None:
        self.parked: set[threading.Thread] = set()
        """Threads that wait for the end of the test: nobody is to wait for them."""
        self._strangers = frozenset(threading.enumerate())
        super().__init__()

    def working_threads(self) -> list[threading.Thread]:
        """Return the threads that were started since this loop was made, and are not parked."""
        return [thread for thread in threading.enumerate() if thread not in self._strangers | self.parked]

    def time(self) -> float:
        for thread in self.working_threads():
            while thread.is_alive() and thread not in self.parked and thread is not threading.current_thread():
                thread.join(_GLANCE_S)
        return super().time()


def the_counting_loop() -> CountingLoop | None:
    """Return the loop that runs here, if it is one that counts."""
    loop = asyncio.get_running_loop()
    return loop if isinstance(loop, CountingLoop) else None


def on_counting_loop(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `scenario` in a counting loop of its own."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(scenario())

"""A clock that jumps, for tests with real connections: it moves on only when nothing has arrived for a while."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PATIENCE_S = 0.02  # client and server share the event loop, so what was sent has long arrived
_PATIENCE_WITH_THREADS_S = 5.0


class PatientClock(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its timers; input, output and threads are real."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.n_in_threads = 0
        """Calls that threads are working on."""
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self.n_in_threads += 1
        future.add_done_callback(self._thread_is_back)
        return future

    def _thread_is_back(self, _: object) -> None:
        self.n_in_threads -= 1


class _Jumping(selectors.DefaultSelector):
    def __init__(self, clock: PatientClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(_PATIENCE_WITH_THREADS_S if self._clock.n_in_threads else _PATIENCE_S)
        if not ready:
            self._clock.now_s += timeout
        return ready


def on_patient_clock(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `scenario` in an event loop of its own whose clock jumps."""
    with asyncio.Runner(loop_factory=PatientClock) as runner:
        return runner.run(scenario())

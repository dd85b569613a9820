"""A clock that jumps: tests of waits, time-outs and deadlines take no time and come out the same each time.

Nothing is ever slept for. When no task can go on, the time is moved to the next timer; when there is none either, the
test is stuck, and `Deadlock` says who waits. Work in threads is real: let tools of such tests be async, run inline, or
wait for what the test releases at its end.
"""

import asyncio
import functools
import inspect
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_START_S = 1_000.0
_THREAD_WAIT_S = 5.0


class Deadlock(RuntimeError):
    """Every task waits, and nothing will wake any of them."""


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its timers."""

    def __init__(self) -> None:
        self.now_s = _START_S
        self.n_working = 0
        """How much goes on in threads of the loop's own."""
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401 - of the loop
        """Work in a thread, as `asyncio.to_thread` does; meanwhile the time stands still."""
        working = super().run_in_executor(executor, func, *args)
        self.n_working += 1

        def ended(_: object) -> None:
            self.n_working -= 1

        working.add_done_callback(ended)
        return working

    def stuck(self) -> Deadlock:
        waiting = "\n".join(f"- {task.get_name()}: {_awaits(task.get_coro())}" for task in asyncio.all_tasks(self))
        return Deadlock(f"Nothing will happen any more. Waiting:\n{waiting}")


def _awaits(waiting: object) -> str:
    """Return the names of the coroutines that wait for one another, from the outside in."""
    chain: list[str] = []
    while inspect.iscoroutine(waiting):
        chain.append(waiting.__qualname__)
        waiting = waiting.cr_await
    return " > ".join(chain)


class _Jumping(selectors.DefaultSelector):
    """Moves the time on instead of waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._n_threads = threading.active_count()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None and self._clock.n_working:
            ready = super().select(_THREAD_WAIT_S)
            if ready:
                return ready
        if timeout is not None:
            self._clock.now_s += timeout
            return ready
        if threading.active_count() > self._n_threads:
            ready = super().select(_THREAD_WAIT_S)
        ready = ready or super().select(0)  # a thread that is gone by now may have said something before
        if not ready:
            raise self._clock.stuck()
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return super().get_map()


def on_virtual_clock(scenario: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `scenario` in an event loop of its own whose clock jumps. No task may outlive it."""

    async def whole() -> T:
        outcome = await scenario(*args, **kwargs)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"Tasks were left behind: {left}"
        return outcome

    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        return runner.run(whole())


def virtual_clock(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test one that runs on a virtual clock."""

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        on_virtual_clock(test, *args, **kwargs)

    return wrapper

"""The virtual clock: it jumps, it is exact, and it says when nothing will happen any more."""

import asyncio
import threading

import pytest

from tests.play import on_virtual_clock
from tests.support.clock import Deadlock


async def _naps(*seconds: float) -> list[float]:
    """Sleep for these times side by side, and return when each awoke, since the start."""
    loop, woken = asyncio.get_running_loop(), list[float]()
    start = loop.time()

    async def nap(duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        woken.append(loop.time() - start)

    async with asyncio.TaskGroup() as tasks:
        for each in seconds:
            tasks.create_task(nap(each))
    return woken


def test_time_jumps_to_the_next_timer_and_takes_none() -> None:  # a test has 20 seconds
    assert on_virtual_clock(_naps, 3600.0, 1.5, 60.0) == [1.5, 60.0, 3600.0]


def test_nothing_to_wait_for_is_a_deadlock() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="stuck"):
        on_virtual_clock(stuck)


def test_a_thread_is_waited_for() -> None:
    async def with_thread() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, "done"))
        thread.start()
        return await answer

    assert on_virtual_clock(with_thread) == "done"


def test_a_task_left_behind_fails() -> None:
    async def careless() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(1))

    with pytest.raises(AssertionError, match="left behind"):
        on_virtual_clock(careless)

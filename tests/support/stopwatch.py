"""A stopwatch on the event loop: the longest time that one of its turns takes, whatever runs in it or beside it.

It is CPU time of the whole process, so that a loaded machine does not count. A thread that keeps the interpreter to
itself is seen, too. 50 ms are promised, and measured by `python -m benchmarks checks`; the tests allow `STALL_S`, on a
slower processor as much more, and their inputs are of a size that a fault takes ten times as long.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Final

STALL_S: Final = 0.1
"""The longest turn that anything hostile may cause in a test, in seconds of CPU time of the processor below."""
_LOOK_S: Final = 0.001
_TRIES: Final = 4
_STEPS: Final = 20_000
_STEPS_S: Final = 0.0017
"""What so many steps take on the processor for which all limits in the tests are meant, when it is quiet."""


def slowness(steps_s: float = _STEPS_S) -> float:
    """Return how many times as long as that processor this one takes now, at least 1: another one, or a shared one."""
    return max(1.0, min(_seconds_of_steps() for _ in range(3)) / steps_s)


def _seconds_of_steps() -> float:
    began_s, total = time.thread_time(), 0
    for number in range(_STEPS):
        total += number * number % 7
    return time.thread_time() - began_s


async def longest_stall(work: Callable[[], object]) -> float:
    """Return the longest turn of the loop while `work` runs, in seconds of a quick processor; it may be async.

    A page fault may fall into one try; so there are several, and the shortest counts. A collection of garbage looks
    through no more than the work has made, and not through all that the tests hold.
    """
    shortest = float("inf")
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        for _ in range(_TRIES):
            longest = await _once(work)
            shortest = min(shortest, longest if longest < STALL_S else longest / slowness())
            if shortest < STALL_S:
                break
    finally:
        if not was_frozen:
            gc.unfreeze()
    return shortest


async def _once(work: Callable[[], object]) -> float:
    longest, last = 0.0, time.process_time()

    def look() -> None:
        nonlocal longest, last
        now = time.process_time()
        longest, last = max(longest, now - last), now

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            look()

    watching = asyncio.create_task(watch())
    await asyncio.sleep(_LOOK_S)
    look()
    try:
        result = work()
        if isawaitable(result):
            await result
        look()
        await asyncio.sleep(2 * _LOOK_S)
    finally:
        watching.cancel()
    return longest

"""A stopwatch on the event loop: the longest time that one of its turns takes, whatever runs in it or beside it.

It is CPU time of the whole process, so that a loaded machine does not count. A thread that keeps the interpreter to
itself is seen, too. What is promised is `STALL_S`; inputs are of a size that a fault takes ten times as long.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Final

STALL_S: Final = 0.05
"""The longest turn that anything hostile may cause, in seconds of CPU time."""
_LOOK_S: Final = 0.001
_TRIES: Final = 4


async def longest_stall(work: Callable[[], object]) -> float:
    """Return the longest turn of the loop while `work` runs, in seconds; it may be async.

    A page fault may fall into one try; so there are several, and the shortest counts. A collection of garbage looks
    through no more than the work has made, and not through all that the tests hold.
    """
    shortest = float("inf")
    gc.freeze()
    try:
        for _ in range(_TRIES):
            shortest = min(shortest, await _once(work))
            if shortest < STALL_S:
                break
    finally:
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

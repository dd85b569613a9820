"""The stopwatch on the event loop sees what keeps it from turning, and nothing else."""

import asyncio
import time

from tests.support.stopwatch import STALL_S, longest_stall, slowness


def compute(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


async def test_the_stopwatch_sees_a_function_that_computes() -> None:
    assert await longest_stall(lambda: compute(4 * STALL_S)) >= STALL_S


async def test_the_stopwatch_sees_a_thread_that_keeps_the_interpreter() -> None:
    # One call of a function in C, which gives nobody else a turn.
    assert await longest_stall(lambda: asyncio.to_thread(sum, range(20_000_000))) >= STALL_S


async def test_the_stopwatch_does_not_mind_work_in_pieces() -> None:
    async def pieces() -> None:
        for _ in range(20):
            compute(STALL_S / 10)
            await asyncio.sleep(0)

    assert await longest_stall(pieces) < STALL_S


def test_a_slow_processor_is_allowed_as_much_more() -> None:
    assert 1 <= slowness() < 50 < slowness(steps_s=1e-6)

"""Waiting for work that somebody owns: to its end whoever cancels, or for so long at most."""

import asyncio

import pytest

from journeyman.cancellation import wait_until_ended, within
from tests.play import cancelled


async def steps() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_cancellation_of_the_waiting_is_raised_when_the_task_has_ended() -> None:
    release = asyncio.Event()
    task = asyncio.create_task(release.wait())
    waiting = asyncio.create_task(wait_until_ended(task))
    await steps()
    for reason in ("first", "second"):
        waiting.cancel(reason)
        await steps()
    assert not waiting.done()
    release.set()
    with pytest.raises(asyncio.CancelledError, match="second"):
        await waiting
    assert task.result() is True


async def test_a_cancellation_of_the_waiting_may_end_the_task() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    waiting = asyncio.create_task(wait_until_ended(task, on_cancel=task.cancel))
    await steps()
    await cancelled(waiting)
    assert task.cancelled()


async def test_a_task_that_outlasts_the_patience_is_cancelled_until_it_ends() -> None:
    caught: list[str] = []

    async def stubborn() -> None:
        for name in ("first", "second"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                caught.append(name)

    await wait_until_ended(asyncio.create_task(stubborn()), patience_s=0.01)
    assert caught == ["first", "second"]


async def test_how_the_task_ended_is_not_looked_at() -> None:
    async def broken() -> None:
        raise LookupError("lost")

    task = asyncio.create_task(broken())
    await wait_until_ended(task)
    assert isinstance(task.exception(), LookupError)


async def test_work_is_waited_for_so_long_at_most_and_then_cancelled() -> None:
    begun: list[str] = []

    async def never() -> None:
        begun.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            begun.append("ended")

    await within(0.01, never())
    assert begun == ["begun", "ended"]
    task = asyncio.create_task(within(60, never()))
    await steps()
    await cancelled(task)
    assert begun == ["begun", "ended"] * 2

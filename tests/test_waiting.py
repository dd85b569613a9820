"""Waiting for work that somebody owns: to its end whoever cancels, or for so long at most."""

import asyncio
from threading import get_ident

import pytest

from journeyman.cancellation import Scope, Wakeup, call_in, is_failure, wait_until_ended, within
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


async def test_the_first_cause_of_a_stop_stays() -> None:
    async def tidy_up() -> None:
        asyncio.get_running_loop().call_soon(scope.stop, "first")
        try:
            await asyncio.Event().wait()
        finally:
            scope.stop("second")

    scope = Scope()
    assert await scope.carry(tidy_up()) is None
    assert (scope.state, scope.cause, scope.reason) == ("finished", "abort", "first")


async def test_a_stop_that_comes_after_the_end_changes_nothing() -> None:
    async def work() -> str:
        return "done"

    scope = Scope()
    assert await scope.carry(work()) == "done"
    scope.stop("too late")
    assert (scope.state, scope.cause) == ("finished", None)


async def test_work_that_caught_a_cancellation_is_cancelled_again_with_its_caller() -> None:
    n_caught = 0

    async def stubborn() -> None:
        nonlocal n_caught
        while n_caught < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                n_caught += 1

    caller = asyncio.create_task(Scope().carry(stubborn()))
    for n_cancelled in range(1, 4):
        await steps()
        caller.cancel()
        await steps()
        assert n_caught == n_cancelled
    assert caller.cancelled()


def test_a_call_from_another_thread_arrives_in_the_thread_of_the_loop() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        await asyncio.to_thread(call_in, loop, lambda: arrived.set_result(get_ident()))
        async with asyncio.timeout(30):
            assert await arrived == get_ident()

    asyncio.run(scenario(), debug=True)  # in which a call that is not safe for threads is an error


async def test_a_group_is_a_failure_only_if_all_in_it_are() -> None:
    assert is_failure(BaseExceptionGroup("failures", [ValueError(), LookupError()]))
    assert not is_failure(BaseExceptionGroup("one ends the program", [ValueError(), KeyboardInterrupt()]))


async def test_a_call_wakes_the_wait_that_goes_on_or_the_next_one_and_no_second() -> None:
    woken, loop = Wakeup(), asyncio.get_running_loop()
    waiting = asyncio.create_task(woken.wait())
    await steps()
    assert not waiting.done()
    woken.call()
    woken.call()
    await steps()
    assert waiting.done()
    await woken.wait(0.001)  # both calls have woken the first
    woken.call()
    began_s = loop.time()
    await woken.wait(60.0)
    assert loop.time() - began_s < 10.0
    await cancelled(asyncio.create_task(woken.wait()))
    woken.call()  # whoever waited has gone
    await woken.wait()

"""A store that cannot be reached for a moment never ends a run, and loses nothing of it."""

import asyncio
from contextlib import suppress

import pytest

from journeyman import Agent, Result, Success
from journeyman.durable.durable import Durable
from journeyman.errors import StoreError
from journeyman.gate import Allow
from journeyman.testing.scripted import call
from tests.durable.processes import Stage, a_cut, found
from tests.durable.worlds import World, asked, asking_agent, is_cancelled
from tests.play import Door, following, texts, virtual_clock


@pytest.mark.share(one_in=3)  # each call, with one of the engines
@pytest.mark.parametrize("n", range(40))
@virtual_clock
async def test_a_store_that_cannot_be_reached_at_one_call_never_ends_a_run(stage: Stage, n: int) -> None:
    # K22
    world, n_calls = World(), 0
    agent = asking_agent(world)
    process = stage.process()

    async def fail(_: str) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == n + 1:
            raise a_cut()

    process.before = fail
    result: Result[str] | None = None
    async with Durable(process, now=stage.now, suspend_after_s=1) as durable, stage.durable() as other:
        answering = asyncio.create_task(_answering(other))
        for _ in range(2):
            with suppress(StoreError):  # the same call goes on with the run
                result = result or await durable.run(agent, "Go.", id="run")
        await answering
    assert isinstance(result, Success)
    assert texts(result) == ["did A"]
    assert world.done == ["A"]
    assert (await found(await stage.begin(), "run")).status == "done"


@virtual_clock
async def test_a_word_is_heard_although_the_store_was_away_when_it_was_to_be_read(stage: Stage) -> None:
    # K22: that something has come is told once, and must not be forgotten when it cannot be read then
    door, n_failed = Door(), 0
    agent = Agent(name="waiter", model=following(call("wait", id="w")), tools=[door.tool(effect="pure")])
    process = stage.process()

    async def fail(name: str) -> None:
        nonlocal n_failed
        if name == "signals" and door.reached.is_set() and not n_failed:
            n_failed += 1
            raise a_cut()

    process.before = fail
    async with Durable(process, now=stage.now) as durable, stage.durable() as other, asyncio.timeout(30):
        living = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await door.reached.wait()
        await other.stop("run", "not today")
        assert is_cancelled(await living)
    assert n_failed == 1


async def _answering(durable: Durable) -> None:
    info = await asked(durable)
    await (await durable.get("run")).approve(info.pending[0].question_id, Allow())

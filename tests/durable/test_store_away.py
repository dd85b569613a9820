"""A store that cannot be reached for a moment never ends a run, and loses nothing of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from journeyman import Result, Success
from journeyman.durable.durable import Durable
from journeyman.errors import StoreError
from journeyman.gate import Allow
from tests.durable.processes import Stage, a_cut, found
from tests.durable.world import World, asked, asking_agent, texts
from tests.support.clock import virtual_clock


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
    async with Durable(process, now=stage.now, linger_s=1) as durable, stage.durable() as other:
        answering = asyncio.create_task(_answering(other))
        for _ in range(2):
            with suppress(StoreError):  # the same call goes on with the run
                result = result or await durable.run(agent, "Go.", id="run")
        await answering
    assert isinstance(result, Success)
    assert texts(result) == ["did A"]
    assert world.done == ["A"]
    assert (await found(await stage.begin(), "run")).status == "done"


async def _answering(durable: Durable) -> None:
    while not await durable.list():
        await durable.hub.changed(0.5)
    info = await asked(durable)
    await (await durable.get("run")).approve(info.waits_for[0].digest, Allow())

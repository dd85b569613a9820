"""A worker that is told to stop ends in time, also where the store of its runs is away for good."""

import asyncio
import time
from typing import Any

from journeyman import Agent
from journeyman.closing import LEAST_S
from journeyman.durable import Durable, InMemoryEngine, Memory, Worker
from journeyman.errors import StoreError
from journeyman.testing.scripted import call
from tests.play import Door, existing, following
from tests.support.postgres import DeafSocket, PostgresServer


class _Leaving(InMemoryEngine):
    """A store that goes away and never comes back."""

    is_away = False

    async def settle(self, *given: Any, **more: Any) -> bool:
        if self.is_away:
            raise StoreError("The store is away.", hint="Wait.", may_pass=True)
        return await super().settle(*given, **more)


async def test_a_worker_whose_database_is_silent_ends_within_its_grace_and_closes_its_store(
    postgres: PostgresServer,
) -> None:
    door, stop = Door(), asyncio.Event()
    bot = Agent(name="bot", model=following(call("think", id="1")), tools=[door.tool("think", effect="pure")])
    async with DeafSocket(postgres, postgres.database()) as between:
        async with Durable(between.url) as durable:
            await durable.start(bot, "?", id="a")
            serving = asyncio.create_task(Worker(durable, agents=[bot]).run(stop=stop, grace_s=0.5))
            await door.reached.wait()
            between.is_silent = True
            stop.set()
            began_s = time.monotonic()
            await serving
        assert time.monotonic() - began_s < LEAST_S + 1.0


async def test_a_worker_ends_in_time_though_its_run_cannot_be_given_back() -> None:
    door, stop, engine = Door(), asyncio.Event(), _Leaving(Memory())
    bot = Agent(name="bot", model=following(call("think", id="1")), tools=[door.tool("think", effect="pure")])
    async with Durable(engine) as durable:
        await durable.start(bot, "?", id="a")
        serving = asyncio.create_task(Worker(durable, agents=[bot]).run(stop=stop, grace_s=0.0))
        await door.reached.wait()
        engine.is_away = True
        stop.set()
        await asyncio.wait_for(serving, 2.5)
        row = existing(await engine.get("a"))
        assert row.status == "running"  # whoever finds it goes on with it

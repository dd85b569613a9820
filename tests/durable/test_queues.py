"""Queues with limits, over several workers."""

from __future__ import annotations

import asyncio

from journeyman import Agent
from journeyman.durable.durable import Durable
from journeyman.durable.worker import Queue, Worker
from tests.durable.processes import Stage
from tests.durable.world import World, do, following
from tests.support.clock import virtual_clock
from tests.support.players import cancelled


@virtual_clock
async def test_a_worker_does_not_spin_while_its_queue_is_full(stage: Stage) -> None:
    # K18
    world = World(dies_in="A")  # it hangs there
    agent = Agent(name="clerk", model=following([do("idempotent", "A"), "Done."]), tools=world.tools())
    queues, stop = {"batch": Queue(at_once=1)}, asyncio.Event()
    process, n_claims = stage.process(), 0

    async def count(name: str) -> None:
        nonlocal n_claims
        n_claims += name == "claim"
        assert n_claims < 100

    process.before = count
    async with stage.durable() as left, Durable(process, now=stage.now) as right:
        handles = [await left.start(agent, "Go.", queue="batch") for _ in range(3)]
        working = asyncio.create_task(Worker(left, agents=[agent], queues=queues).run())
        await world.reached.wait()
        asyncio.get_running_loop().call_later(20, stop.set)
        await Worker(right, agents=[agent], queues=queues).run(stop=stop)
        assert sorted([(await handle.info()).status for handle in handles]) == ["ready", "ready", "running"]
        world.lives_on()
        await cancelled(working)
        await Worker(right, agents=[agent], queues=queues).run(until_idle=True)
        assert [(await handle.info()).status for handle in handles] == ["done"] * 3

"""The adapters of the examples for engines outside of the database: Celery with a broker in memory, and Temporal.

Temporal needs a server: `TEMPORAL_ADDRESS=localhost:7233` names one. Without it only its activity is run, by the test
environment of its own.
"""

import asyncio
import os

import pytest

from journeyman import Agent, Success
from journeyman.durable import Dispatcher, Durable, Ticket, Worker
from tests.durable.worlds import World, do
from tests.play import following

_TEMPORAL = os.environ.get("TEMPORAL_ADDRESS")


async def _drives_each_run_once(database: str, brings: Dispatcher) -> None:
    stop, world = asyncio.Event(), World()
    agent = Agent(name="clerk", model=following(do("once", "A"), do("pure", "B"), "Done."), tools=world.tools())
    async with Durable(database, dispatcher=brings) as durable:
        working = asyncio.create_task(Worker(durable, agents=[agent], max_concurrency=2).run(stop=stop))
        handles = [await durable.start(agent, f"{n}") for n in range(3)]
        for each in handles:
            assert isinstance(await asyncio.wait_for(each.result(), 30), Success)
        stop.set()
        await working
        assert [(await each.info()).leases for each in handles] == [1, 1, 1]
    assert sorted(world.done) == ["A"] * 3 + ["B"] * 3


async def test_celery_brings_runs_to_a_worker(database: str) -> None:
    celery = pytest.importorskip("celery", reason="Celery is not installed")
    from examples.dispatchers.celery_dispatcher import CeleryDispatcher  # noqa: PLC0415 - it needs Celery

    await _drives_each_run_once(database, CeleryDispatcher(celery.Celery("tests", broker="memory://")))


@pytest.mark.skipif(_TEMPORAL is None, reason="no server of Temporal: TEMPORAL_ADDRESS is not set")
async def test_temporal_brings_runs_to_a_worker(database: str) -> None:
    pytest.importorskip("temporalio", reason="Temporal's package is not installed")
    from examples.dispatchers.temporal_dispatcher import TemporalDispatcher  # noqa: PLC0415 - it needs Temporal

    await _drives_each_run_once(database, TemporalDispatcher(_TEMPORAL or ""))


async def test_the_activity_of_temporal_beats_while_it_drives_what_the_ticket_says() -> None:
    testing = pytest.importorskip("temporalio.testing", reason="Temporal's package is not installed")
    from examples.dispatchers.temporal_dispatcher import beating  # noqa: PLC0415 - it needs Temporal

    environment, beats, driven = testing.ActivityEnvironment(), asyncio.Event(), list[Ticket]()
    environment.on_heartbeat = lambda *_: beats.set()  # pyright: ignore[reportUnknownLambdaType] - of Temporal

    async def drive(ticket: Ticket) -> None:
        await beats.wait()
        driven.append(ticket)

    await asyncio.wait_for(environment.run(beating(drive, 10.0, asyncio.Semaphore(1)), "run", 3), 10)
    assert driven == [Ticket("run", 3)]

"""Runs that tickets bring to workers: through Procrastinate, in the database of the runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg

from journeyman import Agent, Success
from journeyman.durable import Durable, PostgresEngine, Queue, Worker
from journeyman.durable.dispatch import Ticket
from journeyman.durable.records import Change
from journeyman.gate import Allow
from journeyman.model import Request
from journeyman.models.scripted import FromFunction
from tests.durable.processes import START, a_row, a_signal, claimed, found
from tests.durable.world import World, asking_agent

JOBS = "SELECT args->>'run', (args->>'gen')::int, priority, status::text FROM procrastinate_jobs ORDER BY id"


@asynccontextmanager
async def engine_on(url: str, lease_s: float = 10.0) -> AsyncGenerator[PostgresEngine]:
    engine = PostgresEngine(url, grace_s=0.0, lease_s=lease_s)
    await engine.open()
    yield engine
    await engine.close()


async def jobs(engine: PostgresEngine) -> list[tuple[str, int, int, str]]:
    async def work(
        connection: psycopg.AsyncConnection[tuple[str, int, int, str]], _: bool
    ) -> list[tuple[str, int, int, str]]:
        return await (await connection.execute(JOBS)).fetchall()

    return await engine.connections.patiently(work)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so that only the database tells."""
    async with asyncio.timeout(15):
        while not await is_so():  # noqa: ASYNC110 - nobody else tells
            await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(durable: Durable, *agents: Agent[str, str], **options: object) -> AsyncGenerator[asyncio.Event]:
    """Let a worker serve meanwhile."""
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(durable, agents=agents, **options).run(stop=stop))  # pyright: ignore[reportArgumentType]
    try:
        yield stop
    finally:
        stop.set()
        await working


def talker() -> Agent[str, str]:
    return Agent(name="clerk", model=FromFunction(lambda _: "Done."))


async def test_what_is_started_is_done_by_a_worker_and_leaves_no_job_behind(database: str) -> None:
    async with Durable(database) as left, Durable(database) as right, serving(right, talker(), slots=3):
        handles = [
            await left.start(talker(), f"{n}", queue=queue) for n, queue in enumerate(["default", "mail", "a" * 300])
        ]
        for handle in handles:
            assert isinstance(await asyncio.wait_for(handle.result(), 10), Success)
        engine = right.hub.engine
        assert isinstance(engine, PostgresEngine)

        async def is_empty() -> bool:
            return not await jobs(engine)

        await until(is_empty)


async def test_a_ticket_is_written_with_what_makes_its_run_ready_and_what_goes_on_comes_first(database: str) -> None:
    async with engine_on(database) as engine:
        await engine.add(a_row("begins", priority=3))
        await engine.add(a_row("driven"), is_queued=False)
        assert await jobs(engine) == [("begins", 0, 6, "todo")]
        claim = await claimed(engine, "begins")
        assert await jobs(engine) == [], "who claims it without a ticket needs none"
        assert await engine.settle(claim, Change(status="waiting", wake=START + 60), now=START)
        assert await jobs(engine) == [("begins", 1, 7, "todo")], "its moment comes by a ticket"
        await engine.signal(a_signal("begins"))
        assert await jobs(engine) == [("begins", 2, 7, "todo")], "the signal brings it at once"
        claim = await claimed(engine, "begins", gen=2)
        await engine.settle(claim, Change(status="ready"), now=START)
        await engine.signal(a_signal("begins", "hold"))
        await engine.signal(a_signal("begins", "release"))
        assert await jobs(engine) == [("begins", 4, 7, "todo")]
        assert await engine.claim("begins", now=START, gen=3) is None, "a ticket of an older gen"  # D4
        assert await engine.hand_over(Ticket("begins", 4), now=START)
        assert not await engine.hand_over(Ticket("begins", 4), now=START)
        assert await jobs(engine) == [("begins", 5, 7, "todo")]
        assert (await found(engine, "begins")).epoch == 2


async def test_an_approval_wakes_a_run_in_another_process(database: str) -> None:
    world = World()
    async with (
        Durable(database, linger_s=0.05) as left,
        Durable(database, linger_s=0.05) as right,
        serving(right, asking_agent(world)),
    ):
        handle = await left.start(asking_agent(world), "Pay.")

        async def waits() -> bool:
            return (await handle.info()).status == "waiting"

        await until(waits)
        began_s = asyncio.get_running_loop().time()
        await handle.approve((await handle.info()).waits_for[0].digest, Allow())
        assert isinstance(await asyncio.wait_for(handle.result(), 10), Success)
        assert asyncio.get_running_loop().time() - began_s < 0.9, "nobody waited for the next look of a second"
    assert world.done == ["A"]


async def test_no_more_runs_of_a_queue_go_on_than_may_over_two_workers(database: str) -> None:
    n_now, most = 0, 0

    async def answer(request: Request) -> str:
        nonlocal n_now, most
        n_now += 1
        most = max(most, n_now)
        await asyncio.sleep(0.02)
        n_now -= 1
        return "Done."

    agent = Agent(name="clerk", model=FromFunction(answer))
    queues = {"batch": Queue(at_once=2)}
    async with (
        Durable(database) as left,
        Durable(database) as right,
        serving(left, agent, queues=queues),
        serving(right, agent, queues=queues),
    ):
        handles = [await left.start(agent, f"{n}", queue="batch") for n in range(12)]
        async with asyncio.timeout(12):
            for handle in handles:
                await handle.result()
    assert most == 2

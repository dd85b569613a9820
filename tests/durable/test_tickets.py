"""Runs that tickets bring to workers: through each dispatcher, in the database of the runs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Success
from journeyman.durable import Durable, PostgresEngine, Queue, Ticket, Worker, schema_sql
from journeyman.durable.binding import Program
from journeyman.durable.records import Change, Claim, Row
from journeyman.errors import StoreError
from journeyman.gate import Allow
from journeyman.model import Request
from journeyman.testing.scripted import FunctionModel
from tests.durable.dispatchers import DISPATCHERS, Jobs, asked_of
from tests.durable.processes import START, a_row, a_signal, claimed, found
from tests.durable.worlds import UNKNOWN, World, asking_agent, do, is_cancelled
from tests.play import following, texts
from tests.support import tamper
from tests.support.postgres import DeafSocket, PostgresServer
from tests.support.shares import share_of

if TYPE_CHECKING:
    from journeyman.store.client import Connection


FIRST, *OTHERS = DISPATCHERS
SELDOM = pytest.mark.seldom(one_in=3, but=())


@pytest.fixture(params=[FIRST, *[pytest.param(each, marks=SELDOM) for each in OTHERS]], ids=lambda each: each.name)
def jobs(request: pytest.FixtureRequest) -> Jobs:
    """The dispatcher that brings the runs."""
    return request.param


@pytest.fixture
def database(postgres: PostgresServer, jobs: Jobs) -> Iterator[str]:
    """The address of a database, in which the tables are, for tests that change them."""
    name = postgres.database(jobs.schema())
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def emptied(postgres: PostgresServer, jobs: Jobs) -> str:
    """The address of a database with empty tables, in which nobody else is."""
    return postgres.url(postgres.emptied(jobs.schema()))


@asynccontextmanager
async def engine_on(url: str, jobs: Jobs) -> AsyncGenerator[PostgresEngine]:
    engine = jobs.engine(url, grace_s=0.0)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def has_jobs(engine: PostgresEngine, jobs: Jobs, number: int) -> bool:
    return len(await asked_of(engine, jobs.all)) == number


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so that only the database tells."""
    async with asyncio.timeout(30):
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
    return Agent(name="clerk", model=FunctionModel(lambda _: "Done."))


async def test_what_is_started_is_done_by_a_worker_and_leaves_no_job_behind(emptied: str, jobs: Jobs) -> None:
    names = ["default", "mail", "a" * 300]
    queues = {} if jobs.serves_all_queues else {name: Queue() for name in names}
    async with (
        Durable(jobs.engine(emptied)) as left,
        Durable(jobs.engine(emptied)) as right,
        serving(right, talker(), max_concurrency=3, queues=queues),
    ):
        handles = [await left.start(talker(), f"{n}", queue=queue) for n, queue in enumerate(names)]
        for handle in handles:
            assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
        async with engine_on(emptied, jobs) as engine:
            await until(lambda: has_jobs(engine, jobs, 0))


async def test_a_run_that_a_worker_could_not_begin_gets_another_ticket(
    emptied: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journeyman.durable.worker._PATIENCE_S", 0.05)
    asked = list[str]()

    async def equip(row: Row, program: Program) -> Program:
        asked.append(row.id)
        if len(asked) < 3:
            raise OSError("not yet")
        return program

    async with Durable(jobs.engine(emptied)) as durable, serving(durable, talker(), prepare=equip):
        handle = await durable.start(talker(), "Go.")
        assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
        assert asked == [handle.id] * 3
        async with engine_on(emptied, jobs) as engine:
            await until(lambda: has_jobs(engine, jobs, 0))


async def test_a_ticket_is_written_with_what_makes_its_run_ready_and_what_goes_on_comes_first(
    emptied: str, jobs: Jobs
) -> None:
    async with engine_on(emptied, jobs) as engine:
        await engine.add(a_row("begins", priority=3))
        await engine.add(a_row("driven"), is_queued=False)
        assert await asked_of(engine, jobs.all) == [("begins", 0, 6, "todo")]
        claim = await claimed(engine, "begins")
        assert await asked_of(engine, jobs.all) == [], "who claims it without a ticket needs none"
        assert await engine.settle(claim, Change(status="waiting", wake=START + 60), now=START)
        assert await asked_of(engine, jobs.all) == [("begins", 1, 7, "todo")], "its moment comes by a ticket"
        await engine.signal(a_signal("begins"))
        assert await asked_of(engine, jobs.all) == [("begins", 2, 7, "todo")], "the signal brings it at once"
        claim = await claimed(engine, "begins", gen=2)
        await engine.settle(claim, Change(status="ready"), now=START)
        await engine.signal(a_signal("begins", "hold"))
        await engine.signal(a_signal("begins", "release"))
        assert await asked_of(engine, jobs.all) == [("begins", 4, 7, "todo")]
        assert await engine.claim("begins", now=START, gen=3) is None, "a ticket of an older gen"  # D4
        assert await engine.hand_over(Ticket("begins", 4), now=START)
        assert not await engine.hand_over(Ticket("begins", 4), now=START)
        assert await asked_of(engine, jobs.all) == [("begins", 5, 7, "todo")]
        assert (await found(engine, "begins")).epoch == 2


async def test_an_approval_wakes_a_run_in_another_process(
    emptied: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("durable.driver._LOOK_S", "store.client._POLL_S"):  # nobody waits for the next look
        monkeypatch.setattr(f"journeyman.{place}", 3_600.0)
    world = World()
    async with (
        Durable(jobs.engine(emptied), suspend_after_s=0.05) as left,
        Durable(jobs.engine(emptied), suspend_after_s=0.05) as right,
        serving(right, asking_agent(world)),
    ):
        handle = await left.start(asking_agent(world), "Pay.")

        async def waits() -> bool:
            return (await handle.info()).status == "waiting"

        await until(waits)
        await handle.approve((await handle.info()).pending[0].question_id, Allow())
        assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
    assert world.done == ["A"]


async def test_no_more_runs_of_a_queue_go_on_than_may_over_two_workers(emptied: str, jobs: Jobs) -> None:
    n_now, most, two = 0, 0, asyncio.Event()

    async def answer(request: Request) -> str:
        nonlocal n_now, most
        n_now += 1
        most = max(most, n_now)
        if n_now == 2:
            two.set()
        await two.wait()
        await asyncio.sleep(0.01)  # a third would come meanwhile
        n_now -= 1
        return "Done."

    agent = Agent(name="clerk", model=FunctionModel(answer))
    queues = {"batch": Queue(max_concurrency=2)}
    async with (
        Durable(jobs.engine(emptied)) as left,
        Durable(jobs.engine(emptied)) as right,
        serving(left, agent, queues=queues),
        serving(right, agent, queues=queues),
    ):
        handles = [await left.start(agent, f"{n}", queue="batch") for n in range(12)]
        async with asyncio.timeout(30):
            for handle in handles:
                await handle.result()
    assert most == 2


def paying(world: World) -> Agent[str, str]:
    return Agent(name="clerk", model=following(do("once", "A"), do("pure", "B"), "Done."), tools=world.tools())


async def test_a_ticket_that_is_brought_again_is_done_once(database: str, jobs: Jobs) -> None:  # D1
    world = World()
    async with engine_on(database, jobs) as engine, Durable(jobs.engine(database)) as durable:
        handle = await durable.start(paying(world), "Go.")
        await asked_of(engine, jobs.kept, jobs.again)
        async with serving(durable, paying(world)):
            assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
            await asked_of(engine, jobs.again)
            await until(lambda: has_jobs(engine, jobs, 0))
        assert (world.done, (await handle.info()).leases) == (["A", "B"], 1)


async def test_a_run_that_is_stopped_before_its_moment_has_a_ticket_at_once(database: str, jobs: Jobs) -> None:
    world = World()
    async with Durable(jobs.engine(database)) as durable, serving(durable, paying(world)):
        handle = await durable.start(paying(world), "Go.", after_s=3_600)
        await handle.stop()
        assert is_cancelled(await asyncio.wait_for(handle.result(), 30))
    assert world.done == []


class SlowToTell(PostgresEngine):
    """An engine that tells of a claim some time after it was stored, as a busy machine does."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.is_stored, self.may_tell = asyncio.Event(), asyncio.Event()

    async def claim(self, id: str, **options: Any) -> Claim | None:
        claim = await super().claim(id, **options)
        self.is_stored.set()
        await self.may_tell.wait()
        return claim


async def test_a_ticket_that_is_brought_again_while_its_run_is_claimed_here_is_void(database: str, jobs: Jobs) -> None:
    world = World()
    async with engine_on(database, jobs) as engine, Durable(slow := jobs.engine(database, kind=SlowToTell)) as durable:
        handle = await durable.start(paying(world), "Go.")
        await asked_of(engine, jobs.kept)
        async with serving(durable, paying(world)):
            await slow.is_stored.wait()
            await asked_of(engine, jobs.again)
            await until(lambda: has_jobs(engine, jobs, 1))
            slow.may_tell.set()
            assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
        assert (world.done, (await handle.info()).leases) == (["A", "B"], 1)


async def test_a_ticket_that_was_lost_is_written_again_by_the_sweep(emptied: str, jobs: Jobs) -> None:  # D2
    async with engine_on(emptied, jobs) as engine:
        await engine.add(a_row("ready"))
        await engine.add(a_row("waits"))
        await engine.settle(await claimed(engine, "waits"), Change(status="waiting", wake=START + 30), now=START)
        await engine.add(a_row("kept"))
        await asked_of(engine, jobs.lost(but="kept"))
        assert await engine.sweep(now=START + 120) == 2
        assert sorted([(run, status) for run, _, _, status in await asked_of(engine, jobs.all)]) == [
            *(("kept", "todo"), ("ready", "todo"), ("waits", "todo"))
        ]
        await asked_of(engine, jobs.lost())
        assert await engine.sweep(now=START + 120) == 0, "one process looks, every 30 seconds"


async def test_a_ticket_of_a_transaction_that_fails_was_never_written(emptied: str, jobs: Jobs) -> None:  # D5
    async with engine_on(emptied, jobs) as engine:
        await engine.add(a_row("a"))

        async def work(connection: Connection) -> None:
            async with connection.transaction(force_rollback=True):
                assert await engine.hand_over(Ticket("a", 0), now=START, connection=connection)

        await engine.connections.patiently(work)
        assert await asked_of(engine, jobs.all) == [("a", 0, 0, "todo")]
        assert (await found(engine, "a")).gen == 0


async def test_what_a_silent_worker_has_is_done_by_another_and_its_acknowledgement_harms_nobody(  # D6
    database: str, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    sleeping, awake = World(dies_in="A"), World()
    async with (
        engine_on(database, jobs) as engine,
        Durable(jobs.engine(database, lease_s=0.4), suspend_after_s=0.1) as left,
        Durable(jobs.engine(database, lease_s=0.4), suspend_after_s=0.1) as right,
    ):
        handle = await right.start(paying(sleeping), "Go.")
        async with serving(left, paying(sleeping)):
            await asyncio.wait_for(sleeping.reached.wait(), 30)
            await asked_of(engine, *jobs.silenced)  # it beats, and nobody hears it
            async with serving(right, paying(awake)):
                result = await asyncio.wait_for(handle.result(), 30)
            assert (await handle.info()).leases == 2
            assert UNKNOWN in " ".join(texts(result)), "what the silent one had begun is not done again"
            await until(lambda: has_jobs(engine, jobs, 0))
            sleeping.lives_on()
            later = await right.start(paying(sleeping), "Go.")
            assert isinstance(await asyncio.wait_for(later.result(), 30), Success)
        # Whoever asks first has the first run, which may be the worker that nobody heard.
        assert sorted([*awake.done, *sleeping.done]) == ["A", "B", "B"]


async def test_a_run_whose_worker_dies_before_it_claims_it_is_done_by_another(emptied: str, jobs: Jobs) -> None:  # D7
    world = World()
    async with engine_on(emptied, jobs) as engine, Durable(jobs.engine(emptied, lease_s=0.4)) as durable:
        handle = await durable.start(paying(world), "Go.")
        await asked_of(engine, *jobs.fetched)
        assert [each[3] for each in await asked_of(engine, jobs.all)] == ["doing"]
        async with serving(durable, paying(world)):
            assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
        assert (world.done, (await handle.info()).leases) == (["A", "B"], 1)


async def test_a_run_whose_worker_dies_after_it_has_claimed_it_is_done_by_another(
    emptied: str, jobs: Jobs
) -> None:  # D7
    world = World()
    async with Durable(jobs.engine(emptied, grace_s=0.0)) as durable:
        handle = await durable.start(paying(world), "Go.")
        async with engine_on(emptied, jobs) as dead:
            await claimed(dead, handle.id, gen=0, now=durable.hub.now())
        async with serving(durable, paying(world)):
            assert isinstance(await asyncio.wait_for(handle.result(), 30), Success)
        assert (world.done, (await handle.info()).leases) == (["A", "B"], 2)


async def test_a_worker_goes_on_whichever_answer_of_the_database_is_lost(  # D8
    postgres: PostgresServer, emptied: str, jobs: Jobs
) -> None:
    world = World()
    name = str(conninfo_to_dict(emptied)["dbname"])
    async with DeafSocket(postgres, name) as deaf, Durable(jobs.engine(emptied)) as sound:
        engine = jobs.engine(deaf.url, grace_s=0.0, lease_s=2.0)
        async with Durable(engine) as durable, serving(durable, paying(world)):
            for n in share_of(range(16), 2):  # of the answers, each second one, by the seed
                deaf.swallow(n)
                handle = await sound.start(paying(world), "Go.")
                assert isinstance(await asyncio.wait_for(handle.result(), 40), Success)
    assert deaf.n_swallowed > 2


async def test_a_worker_that_is_stopped_gives_back_what_it_drives_by_a_ticket(emptied: str, jobs: Jobs) -> None:
    world = World(dies_in="B")
    async with engine_on(emptied, jobs) as engine, Durable(jobs.engine(emptied)) as durable:
        handle = await durable.start(paying(world), "Go.")
        stop = asyncio.Event()
        working = asyncio.create_task(Worker(durable, agents=[paying(world)]).run(stop=stop, grace_s=0.05))
        await asyncio.wait_for(world.reached.wait(), 30)
        stop.set()
        await asyncio.wait_for(working, 30)
        assert (await handle.info()).status == "ready"
        assert [(run, priority, status) for run, _, priority, status in await asked_of(engine, jobs.all)] == [
            (handle.id, 1, "todo")
        ]


async def test_older_tables_are_named(database: str, jobs: Jobs) -> None:
    tamper.alter(database, jobs.older)
    with pytest.raises(StoreError, match=f"older tables of .*{re.escape(jobs.lacks)}"):
        async with engine_on(database, jobs):
            raise AssertionError("it was opened")


async def test_without_the_package_one_line_says_what_to_install(emptied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(StoreError, match=r"package procrastinate, .*pip install 'journeyman\[postgres\]'"):
        async with Durable(emptied):
            raise AssertionError("it was opened")


async def test_what_may_not_be_made_is_made_by_another_role(postgres: PostgresServer) -> None:
    name = postgres.database()
    postgres.execute("DO 'BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END'")
    poor = postgres.url(name).replace("user=tests", "user=poor")
    with psycopg.connect(postgres.url(name), autocommit=True) as owner:
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        owner.execute(schema_sql().partition("BEGIN;\n")[0].encode())  # all but those of the dispatcher
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO poor")
    with pytest.raises(StoreError, match=r"print\(schema_sql\(\)\)"):
        async with Durable(poor):
            raise AssertionError("it was opened")
    postgres.drop(name)


@pytest.mark.parametrize("name", ["procrastinate", "pgqueuer", "kafka"])
def test_a_dispatcher_is_an_object_and_a_name_says_where_they_are(tmp_path: Path, name: Any) -> None:  # noqa: ANN401 - of before
    where = (
        f"dispatcher='{name}' is a name. Leave it out for Procrastinate, .*examples/dispatchers has one for PgQueuer"
    )
    for opened in (Durable, PostgresEngine):
        with pytest.raises(ValueError, match=where):
            opened("postgresql://host/db", dispatcher=name)
    with pytest.raises(ValueError, match=f"Tables of '{name}' days .*made by its `setup`"):
        schema_sql(name)
    with pytest.raises(ValueError, match="a file needs none"):
        Durable(tmp_path / "runs.db", dispatcher=name)


async def test_runs_that_another_dispatcher_had_ready_go_on_when_it_is_left_out(emptied: str) -> None:
    other = OTHERS[0]
    async with engine_on(emptied, other) as engine:
        await engine.add(a_row("ready"))
    async with engine_on(emptied, FIRST) as engine:
        assert await engine.sweep(now=START + 120) == 1
        assert await asked_of(engine, FIRST.all) == [("ready", 1, 0, "todo")]

"""PgQueuer brings durable runs to workers, in the database of the runs: an adapter to copy.

    pip install 'pgqueuer>=1.6,<2'
    export PGDSN=postgresql://…
    journeyman worker agents.py:clerk --store "$PGDSN" --dispatcher pgqueuer_dispatcher.py:dispatcher

Whoever starts runs names it, too: `Durable("postgresql://…", dispatcher=dispatcher)`. A job is written in the
transaction that makes its run ready. PgQueuer brings a job again whose worker was silent for a lease: it is found to be
driven, and handed over by a new job. Only the queues that are named are served, or `default`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg  # noqa: TID253 - the library imports it later
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.adapters.persistence import qb
from pgqueuer.core.tm import TaskManager
from pgqueuer.domain.settings import DBSettings
from pgqueuer.models import Job
from pgqueuer.ports.driver import Driver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from journeyman.durable import Dispatcher, Requeue, ResumeRun, Ticket
from journeyman.errors import StoreError

NAMES = DBSettings(prefix="jm_")  # other tables than those of a program that uses PgQueuer itself
TABLE = NAMES.queue_table
INDEX = f"CREATE INDEX IF NOT EXISTS jm_pgqueuer_tickets ON {TABLE} ((headers->>'run'));"
DROP = f"DELETE FROM {TABLE} WHERE headers->>'run' = %s::text AND status = 'queued'"
UNKNOWN = (
    f"SELECT t.run, t.gen FROM unnest(%s::text[], %s::bigint[]) AS t(run, gen) WHERE NOT EXISTS (SELECT FROM {TABLE}"
    " WHERE headers->>'run' = t.run AND headers->>'gen' = t.gen::text AND status IN ('queued', 'picked'))"
)
MOST_S = 10 * 365 * 86_400.0  # Postgres knows no moment after the year 294276
MOST_URGENT = 2**31 - 1  # a column of 32 bits
AGAIN_S = 0.5
T = TypeVar("T")
log = logging.getLogger("journeyman")


class PgQueuerDispatcher:
    joins: bool = True
    drive_s: float | None = None

    def __init__(self, url: str, *, lease_s: float = 10.0) -> None:
        """`url` names the database of the runs."""
        self.url, self.lease_s = url, lease_s

    async def setup(self, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        queries = asking(PsycopgDriver(connection))
        if not await queries.has_table(TABLE):
            await connection.execute(schema())
        try:
            await QueueManager(queries, channel=NAMES.channel).verify_structure()
        except RuntimeError as error:
            raise StoreError(f"It has older tables of PgQueuer: {error}", hint="pgq --prefix jm_ upgrade") from error

    async def enqueue(
        self,
        ticket: Ticket,
        *,
        agent: str,
        queue: str,
        priority: int,
        after_s: float,
        connection: Any,  # noqa: ANN401 - of psycopg
    ) -> None:
        await self.drop(ticket.run, connection)  # a run has one ticket at most: that of its last wake-up
        await asking(PsycopgDriver(connection)).enqueue(
            place(agent, queue),
            None,
            max(min(priority, MOST_URGENT), -MOST_URGENT),
            timedelta(seconds=min(max(after_s, 0.0), MOST_S)),
            headers={"run": ticket.run, "gen": str(ticket.gen)},
        )

    async def drop(self, run: str, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        await connection.execute(DROP, [run])

    async def unknown(self, tickets: Sequence[Ticket], connection: Any) -> Sequence[Ticket]:  # noqa: ANN401 - of psycopg
        given = [[each.run for each in tickets], [each.gen for each in tickets]]
        return [Ticket(*each) for each in await (await connection.execute(UNKNOWN, given)).fetchall()]

    async def serve(
        self,
        drive: ResumeRun,
        hand_over: Requeue,
        *,
        agents: Collection[str],
        queues: Collection[str],
        max_concurrency: int,
        grace_s: float,
        stop: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        room, driving = asyncio.Semaphore(max_concurrency), set[asyncio.Future[None]]()

        async def driven(job: Job) -> None:
            headers = job.headers or {}
            ticket = Ticket(str(headers["run"]), int(str(headers["gen"])))
            async with room:
                if manager.shutdown.is_set():  # it was fetched in that moment
                    await hand_over(ticket, now=now())
                    return
                driving.add(task := asyncio.ensure_future(drive(ticket)))
                task.add_done_callback(driving.discard)
                await task

        places = [place(agent, queue) for agent in agents for queue in queues or ("default",)]
        async with PatientDriver(self.url, lease_s=self.lease_s) as driver:
            manager = QueueManager(asking(driver), channel=NAMES.channel)
            for each in places:
                manager.entrypoint(each, accepts_context=False)(driven)
            work = manager.run(
                dequeue_timeout=timedelta(seconds=1),
                batch_size=max(1, max_concurrency // 2),  # it refuses more than half of its tasks
                max_concurrent_tasks=max(2, max_concurrency),
                heartbeat_timeout=timedelta(seconds=self.lease_s),
            )
            working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                manager.shutdown.set()
                await asyncio.wait({working}, timeout=grace_s)
            finally:
                stopping.cancel()
                manager.shutdown.set()
                for task in list(driving):
                    task.cancel()
                driver.is_last = True
                await asyncio.wait({working}, timeout=self.lease_s)
                working.cancel()
                await asyncio.wait({working})
        working.result()


class PatientDriver:
    """The way on which a worker of PgQueuer asks the database: it ends when a call fails, so each is made again."""

    def __init__(self, url: str, *, lease_s: float) -> None:
        self.url, self.lease_s = url, lease_s
        self.is_last = False
        """Whether the next call that fails is not made again."""
        self.shutdown, self.tm = asyncio.Event(), TaskManager()
        self.connection: psycopg.AsyncConnection | None = None
        self.connecting = asyncio.Lock()
        self.hearing: asyncio.Task[None] | None = None

    async def asked(self, work: Callable[[PsycopgDriver], Awaitable[T]]) -> T:
        while True:
            try:
                async with self.connecting:  # else two that ask at once would connect, and one connection be forgotten
                    if self.connection is None or self.connection.closed:
                        self.connection = await connected(self.url)
                    connection = self.connection
                # A connection may be half open: then nobody would ever answer.
                late = asyncio.get_running_loop().call_later(self.lease_s, connection.pgconn.finish)
                try:
                    return await work(PsycopgDriver(connection))
                finally:
                    late.cancel()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if self.is_last:
                    raise
                log.warning("PgQueuer's tables cannot be read or written, which is tried again: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def fetch(self, query: str, *given: object) -> list[dict[str, object]]:
        return await self.asked(lambda driver: driver.fetch(query, *given))

    async def execute(self, query: str, *given: object) -> str:
        return await self.asked(lambda driver: driver.execute(query, *given))

    async def notify(self, channel: str, payload: str) -> None:
        await self.asked(lambda driver: driver.notify(channel, payload))

    async def add_listener(self, channel: str, callback: Callable[[str], None]) -> None:
        self.hearing = asyncio.create_task(self.hear(channel, callback))

    async def hear(self, channel: str, callback: Callable[[str], None]) -> None:
        while True:
            try:
                async with await connected(self.url) as connection:
                    await connection.execute(f'LISTEN "{channel}"'.encode())
                    async for told in connection.notifies():
                        callback(told.payload)
            except psycopg.Error as error:  # it looks for work every second anyway
                log.debug("PgQueuer is not heard, which is tried again: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.hearing is not None:
            self.hearing.cancel()
            await asyncio.wait({self.hearing})
        if self.connection is not None:
            await self.connection.close()


async def connected(url: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5)


def asking(driver: Driver) -> Queries:
    """Return the queries about our tables."""
    return Queries(
        driver,
        qbe=qb.QueryBuilderEnvironment(NAMES),
        qbq=qb.QueryQueueBuilder(NAMES),
        qbs=qb.QuerySchedulerBuilder(NAMES),
    )


def schema() -> str:
    """Return the statements that make PgQueuer's tables, for a role that may do so."""
    return f"{qb.QueryBuilderEnvironment(NAMES).build_install_query()}\n{INDEX}\n"


def place(agent: str, queue: str) -> str:
    return f"journeyman.{agent}.{queue}"


dispatcher = PgQueuerDispatcher(os.environ.get("PGDSN", ""))

if TYPE_CHECKING:
    _is_one: Dispatcher = dispatcher

"""Tickets as jobs of PgQueuer, which lie in the database of the runs.

A job is written in the transaction that makes its run ready, and deleted, with what the log says of it, when it has
nothing more to do. PgQueuer brings a job again whose worker was silent for a lease: it is found to be driven, handed
over by a new job, and done. Not used are its retries, schedules and limits of an entrypoint.

A worker of PgQueuer ends when a call of it fails. So what it asks of the database is asked again here until it is
answered. It looks for work whenever a job is written or deleted anywhere; here, when one is written or it has room.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self, cast

from journeyman.cancellation import own_task, wait_until_ended
from journeyman.durable.dispatch import GIVE_BACK_S, LEASE_S, Dispatcher, Requeue, ResumeRun, Ticket
from journeyman.durable.postgres.tickets import AGAIN_S, Lender, Patience, check_package, place_of_queue, places_of
from journeyman.errors import StoreError, name_and_words

if TYPE_CHECKING:
    from pgqueuer.db import PsycopgDriver
    from pgqueuer.domain.settings import DBSettings
    from pgqueuer.domain.types import QueueEntrypoint, QueueManagerId
    from pgqueuer.models import Job
    from pgqueuer.ports.repository import EntrypointExecutionParameter
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries

    from journeyman.durable.postgres.connections import Connection

_log = logging.getLogger("journeyman")
_POLL_S: Final = 1.0
"""How often, in seconds, the worker looks for work that is due, and for jobs of silent workers."""
_LOOK_S: Final = 1.0
"""How often, in seconds, the worker looks for new queues."""
# Postgres knows no moment after the year 294276.
_MOST_S: Final = 10 * 365 * 86_400.0
"""A job that is due later is due then, and is put off again."""
# The column is an integer of 32 bits.
_MOST_URGENT: Final = 2**31 - 1
_PREFIX: Final = "jm_"
"""Its tables are others than those of a program that uses PgQueuer itself, whose jobs would wake every worker."""
TABLE: Final = f"{_PREFIX}pgqueuer"
_LOG: Final = f"{TABLE}_log"
_CHANNEL: Final = f"{_PREFIX}ch_pgqueuer"
_WRITTEN: Final = json.dumps(
    {
        "type": "table_changed_event",
        "operation": "insert",
        "table": TABLE,
        "channel": _CHANNEL,
        "sent_at": "1970-01-01T00:00:00Z",
    }
)
"""What PgQueuer hears when a job is written."""
_NEEDED: Final = ((TABLE, "headers"), (TABLE, "slot"), (_LOG, "aggregated"))
"""The columns that came last. Before it serves, PgQueuer looks for all that it needs."""
_INDEX: Final = f"CREATE INDEX IF NOT EXISTS jm_pgqueuer_tickets ON {TABLE} ((headers->>'run'));"
_DROP: Final = (
    f"WITH gone AS (DELETE FROM {TABLE} WHERE headers->>'run' = %s::text AND status = 'queued' RETURNING id)"
    f" DELETE FROM {_LOG} WHERE job_id IN (SELECT id FROM gone)"
)
_DONE: Final = (
    f"WITH gone AS (DELETE FROM {TABLE} WHERE id = ANY(%(jobs)s::bigint[]))"
    f" DELETE FROM {_LOG} WHERE job_id = ANY(%(jobs)s::bigint[])"
)
_UNKNOWN: Final = (
    f"SELECT t.run, t.gen FROM unnest(%s::text[], %s::bigint[]) AS t(run, gen) WHERE NOT EXISTS (SELECT FROM {TABLE}"
    " WHERE headers->>'run' = t.run AND headers->>'gen' = t.gen::text AND status IN ('queued', 'picked'))"
)
_FETCHED: Final = (
    f"SELECT * FROM {TABLE} WHERE queue_manager_id = $1::uuid AND status = 'picked' AND id <> ALL($2::bigint[])"
)
_LACKING: Final = (
    "SELECT name, part FROM unnest(%s::text[], %s::text[]) AS needed(name, part)"
    " WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(name) AND attname = part)"
)
_PLACES: Final = f"""
WITH RECURSIVE place(name) AS (
    SELECT min(entrypoint) FROM {TABLE} WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(entrypoint) FROM {TABLE} WHERE status = 'queued' AND entrypoint > name)
    FROM place WHERE name IS NOT NULL
) SELECT name FROM place WHERE name IS NOT NULL
"""
"""From queue to queue: however many jobs wait, only as many are looked at as there are queues."""


class PgQueuer:
    """A dispatcher on the database of the runs."""

    joins: bool = True
    drive_s: float | None = None

    def __init__(self, lender: Lender, *, lease_s: float = LEASE_S) -> None:
        """A worker that was silent for `lease_s` seconds is treated as dead."""
        self.lease_s = lease_s
        self._lender: Final = lender

    async def setup(self, connection: Connection) -> None:
        """Make its tables, if they are not there. The caller sees to it that one process at a time does so.

        Raises:
            StoreError: it is not installed, of another version, or has older tables.
        """
        check_package("pgqueuer", extra="pgqueuer", least="1.6")
        found = await connection.execute(f"SELECT to_regclass('{TABLE}') IS NOT NULL".encode())
        [[is_there]] = await found.fetchall()
        if not is_there:
            await connection.execute(schema().encode())
            return
        needed = [[table for table, _ in _NEEDED], [column for _, column in _NEEDED]]
        if lacking := await (await connection.execute(_LACKING.encode(), needed)).fetchone():
            raise self._older(f"without {lacking[0]}.{lacking[1]}")

    async def enqueue(
        self, ticket: Ticket, *, agent: str, queue: str, priority: int, after_s: float, connection: Connection
    ) -> None:
        # A run has one ticket at most: that of its last wake-up.
        await connection.execute(_DROP.encode(), [ticket.run])
        await _queries(_joined(connection)).enqueue(
            place_of_queue(agent, queue),
            None,
            max(min(priority, _MOST_URGENT), -_MOST_URGENT),
            timedelta(seconds=min(max(after_s, 0.0), _MOST_S)),
            headers={"run": ticket.run, "gen": str(ticket.gen)},
        )

    async def drop(self, run: str, connection: Connection) -> None:
        await connection.execute(_DROP.encode(), [run])

    async def unknown(self, tickets: Sequence[Ticket], connection: Connection) -> Sequence[Ticket]:
        given = [[each.run for each in tickets], [each.gen for each in tickets]]
        found = await (await connection.execute(_UNKNOWN.encode(), given)).fetchall()
        return [Ticket(*each) for each in found]

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
        drives, leaving = set[asyncio.Task[Any]](), asyncio.Event()
        all_of = () if queues else tuple(places_of(agent) for agent in agents)

        async def driven(job: Job) -> None:
            headers, task = cast("dict[str, str]", job.headers), own_task()
            ticket = Ticket(headers["run"], int(headers["gen"]))
            if leaving.is_set():  # it was fetched in that moment
                await hand_over(ticket, now=now())
                return
            drives.add(task)
            try:
                await drive(ticket)
            finally:
                drives.discard(task)

        def made() -> QueueManager:
            driver = _Driver(self._lender, all_of, stop=leaving, lease_s=self.lease_s)
            manager = _manager(driver, max_concurrency)
            driver.serve = lambda place: manager.entrypoint(place, accepts_context=False)(driven)
            for each in [place_of_queue(agent, queue) for agent in agents for queue in queues or ("default",)]:
                driver.serve(each)
            return manager

        try:
            await made().verify_structure()
        except RuntimeError as error:
            raise self._older(str(error)) from error
        while not stop.is_set():
            await self._until(stop, made(), leaving=leaving, drives=drives, slots=max_concurrency, grace_s=grace_s)

    async def _until(
        self,
        stop: asyncio.Event,
        manager: QueueManager,
        *,
        leaving: asyncio.Event,
        drives: Collection[asyncio.Task[Any]],
        slots: int,
        grace_s: float,
    ) -> None:
        """Let a worker of PgQueuer run until it ends, or until it has stopped because it was told to."""
        work = manager.run(
            dequeue_timeout=timedelta(seconds=_POLL_S),
            # PgQueuer refuses a batch of more than half of its tasks.
            batch_size=max(1, slots // 2),
            max_concurrent_tasks=max(slots, 2),  # it takes no less: how many there are is said to each fetch
            heartbeat_timeout=timedelta(seconds=self.lease_s),
            # Nothing is put into its log here, so nothing in it is to be added up.
            log_aggregation_interval=timedelta(0),
        )
        running, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                error = None if running.cancelled() else running.exception()
                said = error and name_and_words(error)
                _log.warning("The worker of PgQueuer has ended, and begins again: %s", said)
                await asyncio.wait({stopping}, timeout=AGAIN_S)
            else:
                # Before it is told to stop: what it fetches in this moment is handed over.
                leaving.set()
                manager.shutdown.set()
                await asyncio.wait({running}, timeout=grace_s)
        except asyncio.CancelledError:
            leaving.set()
            raise
        finally:
            stopping.cancel()
            # In each case: without it, its tasks would go on for as long as they like.
            manager.shutdown.set()
            for each in list(drives):
                each.cancel()
            await wait_until_ended(running, patience_s=GIVE_BACK_S)
            if not running.cancelled():
                running.exception()  # nobody else looks

    def _older(self, what: str) -> StoreError:
        return StoreError(
            f"{self._lender.place} has older tables of PgQueuer: {what}",
            hint=f"Make them newer: pgq --prefix {_PREFIX} upgrade. Nothing was changed.",
        )


class _Driver(Patience):
    """The way on which a worker of PgQueuer asks the database, as its `Driver`."""

    def __init__(self, lender: Lender, all_of: tuple[str, ...], *, stop: asyncio.Event, lease_s: float) -> None:
        """Besides the queues that are served, those are whose names begin with one of `all_of`."""
        super().__init__(lender, stop=stop, lease_s=lease_s)
        self._served: Final = set[str]()
        self.serve: Callable[[str], object] = self._served.add
        """Lets the worker serve one queue more."""
        self._all_of: Final = all_of
        self._told: Callable[[str], None] = lambda _: None
        self._hearing: asyncio.Task[None] | None = None

    async def fetch(self, query: str, *given: object) -> list[dict[str, object]]:
        return await self.done(lambda connection, _: _joined(connection).fetch(query, *given))

    async def execute(self, query: str, *given: object) -> str:
        return await self.done(lambda connection, _: _joined(connection).execute(query, *given))

    async def notify(self, channel: str, payload: str) -> None:
        """Answer what is asked to see whether anything is heard: that is looked after here."""
        self._told(payload)

    async def add_listener(self, channel: str, callback: Callable[[str], None]) -> None:
        self._told = callback
        self._hearing = asyncio.create_task(self._listen(channel))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await wait_until_ended(self._hearing)

    def tell(self) -> None:
        """Let the worker look for work."""
        self._told(_WRITTEN)

    async def _listen(self, channel: str) -> None:
        from psycopg import Error

        while True:
            try:
                connection = await self.lender.listening()
                try:
                    await self._heard(connection, channel)
                finally:
                    connection.pgconn.finish()
            except (Error, OSError, StoreError) as error:  # it is looked for now and then anyway
                _log.debug("PgQueuer is not heard, which is tried again: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def _heard(self, connection: Connection, channel: str) -> None:
        clock, looked_s, is_written = asyncio.get_running_loop().time, float("-inf"), True
        await connection.execute(f'LISTEN "{channel}"'.encode())
        while True:
            if self._all_of and clock() - looked_s >= _LOOK_S:
                looked_s, found = clock(), await (await connection.execute(_PLACES.encode())).fetchall()
                for name in {name for (name,) in found if name.startswith(self._all_of)} - self._served:
                    self._served.add(name)
                    self.serve(name)
                    is_written = True
            if is_written:
                self.tell()
            is_written = False
            async for told in connection.notifies(timeout=_LOOK_S, stop_after=1):
                # It says so of every job that ends, anywhere: to look for work each time cost 73 ms of Postgres for a
                # start with 20 idle workers.
                is_written = is_written or '"delete"' not in told.payload


def _manager(driver: _Driver, slots: int) -> QueueManager:
    """Return a worker of PgQueuer that has so many slots."""
    from pgqueuer.models import Channel, Job
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries

    brought = set[int]()
    asking = _queries(driver)

    class PatientQueries(Queries):
        async def dequeue(  # noqa: PLR0917 - as PgQueuer has it
            self,
            batch_size: int,
            entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
            queue_manager_id: QueueManagerId,
            global_concurrency_limit: int | None,
            heartbeat_timeout: timedelta,
        ) -> list[Job]:
            async def work(connection: Connection, is_again: bool) -> list[Job]:
                if is_again:  # what was brought by an answer that was lost would wait here for nothing
                    lost = await _joined(connection).fetch(_FETCHED, queue_manager_id, list(brought))
                    if lost:
                        return [Job.model_validate(each) for each in lost]
                now_s = asyncio.get_running_loop().time()
                is_calm = now_s > driver.failed_s + heartbeat_timeout.total_seconds()
                # When the database was away, nobody could beat.
                patience = heartbeat_timeout if is_calm else timedelta(seconds=_MOST_S)
                asked = replace(asking, driver=_joined(connection))
                return await asked.dequeue(batch_size, entrypoints, queue_manager_id, slots, patience)

            jobs = await driver.done(work)
            brought.update([job.id for job in jobs])
            return jobs

        async def next_deferred_eta(self, entrypoints: list[Any]) -> timedelta:
            """Ask nothing: what is due later is found by the next look, within a second."""
            return timedelta(seconds=_MOST_S)

        async def log_jobs(self, job_status: list[Any]) -> None:
            jobs = [job.id for job, _, _ in job_status]
            await driver.done(lambda connection, _: connection.execute(_DONE.encode(), {"jobs": jobs}))
            brought.difference_update(jobs)
            driver.tell()  # there is room

    queries = PatientQueries(cast("Any", driver), qbe=asking.qbe, qbq=asking.qbq, qbs=asking.qbs)
    return QueueManager(queries, channel=Channel(_CHANNEL))


def _queries(driver: Any) -> Queries:  # noqa: ANN401 - of PgQueuer
    """Return what asks about our tables."""
    from pgqueuer.adapters.persistence import qb
    from pgqueuer.queries import Queries

    settings = _settings()
    return Queries(
        driver,
        qbe=qb.QueryBuilderEnvironment(settings),
        qbq=qb.QueryQueueBuilder(settings),
        qbs=qb.QuerySchedulerBuilder(settings),
    )


def _joined(connection: Connection) -> PsycopgDriver:
    """Return what makes calls of PgQueuer a part of what is done with a connection."""
    from pgqueuer.db import PsycopgDriver

    return PsycopgDriver(connection)


@cache
def _settings() -> DBSettings:
    """Return the names of our tables, whatever the environment says of those of others."""
    from pgqueuer.domain.settings import DBSettings, Durability
    from pgqueuer.models import Channel

    return DBSettings(
        prefix=_PREFIX,
        db_schema=None,
        durability=Durability.durable,
        channel=Channel(_CHANNEL),
        function=f"{_PREFIX}fn_pgqueuer_changed",
        queue_status_type=f"{TABLE}_status",
        queue_table=TABLE,
        queue_table_log=_LOG,
        schedules_table=f"{TABLE}_schedules",
        statistics_table=f"{TABLE}_statistics",
        trigger=f"{_PREFIX}tg_pgqueuer_changed",
    )


def schema() -> str:
    """Return the statements that make PgQueuer's tables, and an index of ours on them."""
    if find_spec("pgqueuer") is None:
        return ""
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment

    return f"{QueryBuilderEnvironment(_settings()).build_install_query()}\n{_INDEX}\n"


if TYPE_CHECKING:
    _dispatcher: type[Dispatcher] = PgQueuer

"""Tickets as jobs of Procrastinate, which lie in the database of the runs.

A job is written in the transaction that makes its run ready, and deleted when it has nothing more to do. Used are how
Procrastinate brings jobs, its beats, and its one row per job. Not used are its locks, retries and aborts: a run that
has to be done by somebody else gets a new job, so that nobody can acknowledge it by mistake.

A worker of Procrastinate ends, or its heart stops, when a call of it fails. So what it asks of the database is asked
again here until it is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from journeyman.cancellation import own_task, wait_until_ended
from journeyman.durable.dispatch import GIVE_BACK_S, LEASE_S, Dispatcher, Requeue, ResumeRun, Ticket
from journeyman.errors import StoreError, name_and_words
from journeyman.store.client import rows_of

if TYPE_CHECKING:
    from procrastinate.worker import Worker

    from journeyman.durable.postgres.connections import Connections
    from journeyman.store.client import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")
# A database that restarts is back in seconds, and all its workers ask.
_AGAIN_S: Final = 0.5
"""So long is waited before the database is asked again."""
_LEAST: Final = "3.10"
"""The oldest version that has what is used here. A new major one may have other tables and other functions, which are
used by name."""
_TASK: Final = "jm.drive"
# One that is late must not cost a lease.
_BEATS: Final = 5
"""How many beats there are in a lease."""
# What nobody has told is found within a second; most is told at once.
_POLL_S: Final = 1.0
# Postgres knows no moment after the year 294276.
_MOST_S: Final = 10 * 365 * 86_400.0
"""A job that is due later is due then, and is put off again."""
# The column is an integer of 32 bits.
_MOST_URGENT: Final = 2**31 - 1
_FUNCTIONS: Final = ("defer_jobs_v1", "fetch_job_v2", "finish_job_v1", "register_worker_v1", "update_heartbeat_v1")
_LACKING: Final = (
    f"SELECT name FROM (SELECT 'procrastinate_' || unnest(ARRAY{[*_FUNCTIONS]})) AS needed(name)"
    " WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = name AND pg_function_is_visible(oid))"
)
_INDEX: Final = (
    "CREATE INDEX IF NOT EXISTS jm_tickets ON procrastinate_jobs ((args->>'run'))"
    f" WHERE task_name = '{_TASK}' AND status IN ('todo', 'doing');"
)
_OURS: Final = f"task_name = '{_TASK}' AND status IN ('todo', 'doing')"
_DROP: Final = f"DELETE FROM procrastinate_jobs WHERE {_OURS} AND args->>'run' = %s::text AND status = 'todo'"
_ENQUEUE: Final = (
    f"WITH gone AS ({_DROP}) SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(%s::text, '{_TASK}', %s::int, NULL, NULL,"
    " jsonb_build_object('run', %s::text, 'gen', %s::bigint),"
    " now() + make_interval(secs => NULLIF(%s::float8, 0)))]::procrastinate_job_to_defer_v1[])"
)
_UNKNOWN: Final = (
    "SELECT t.run, t.gen FROM unnest(%s::text[], %s::bigint[]) AS t(run, gen) WHERE NOT EXISTS (SELECT FROM"
    f" procrastinate_jobs WHERE {_OURS} AND args->>'run' = t.run AND (args->>'gen')::bigint = t.gen)"
)
_SILENT: Final = (
    "SELECT j.id, j.args->>'run', (j.args->>'gen')::bigint, w.last_heartbeat FROM procrastinate_jobs j"
    f" LEFT JOIN procrastinate_workers w ON w.id = j.worker_id WHERE j.status = 'doing' AND j.task_name = '{_TASK}'"
    " AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %s::float8))"
)
_TAKE_AWAY: Final = "DELETE FROM procrastinate_jobs WHERE id = %s::bigint AND status = 'doing'"
_LAST_CALL_S: Final = 2.0
"""How long each of its last calls may wait for a database that is away, once a worker has to end."""
# As the triggers of Procrastinate's tables call it.
_CHANNEL: Final = "procrastinate_queue_v1#"
_WRITTEN: Final = '{"type": "job_inserted", "job_id": 0}'
_FETCHED: Final = (
    "SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id"
    " FROM procrastinate_jobs WHERE worker_id = %(worker_id)s AND status = 'doing' AND id <> ALL(%(jobs)s::bigint[])"
    " LIMIT 1"
)
_PLACES: Final = """
WITH RECURSIVE place(name) AS (
    SELECT min(queue_name) FROM procrastinate_jobs
    UNION ALL
    SELECT (SELECT min(queue_name) FROM procrastinate_jobs WHERE queue_name > name) FROM place WHERE name IS NOT NULL
) SELECT name FROM place WHERE name IS NOT NULL
"""
"""From queue to queue: however many jobs wait, only as many are looked at as there are queues."""


class Procrastinate:
    """A dispatcher on the database of the runs."""

    joins: bool = True
    drive_s: float | None = None

    def __init__(self, connections: Connections, *, lease_s: float = LEASE_S) -> None:
        """A worker that was silent for `lease_s` seconds is treated as dead."""
        self.lease_s = lease_s
        self._connections: Final = connections

    async def setup(self, connection: Connection) -> None:
        """Make its tables, if they are not there. The caller sees to it that one process at a time does so.

        Raises:
            StoreError: it is not installed, of another version, or has older tables.
        """
        _check_package()
        [[is_there]] = await rows_of(connection, "SELECT to_regclass('procrastinate_jobs') IS NOT NULL")
        if not is_there:
            await connection.execute(schema().encode())
            return
        if lacking := await rows_of(connection, _LACKING):
            raise StoreError(
                f"{self._connections.place} has older tables of Procrastinate, without {lacking[0][0]}.",
                hint="Make them newer, as Procrastinate's page on migrations says. Nothing was changed.",
            )
        [[is_there]] = await rows_of(connection, "SELECT to_regclass('jm_tickets') IS NOT NULL")
        if not is_there:
            await connection.execute(_INDEX.encode())

    async def enqueue(
        self, ticket: Ticket, *, agent: str, queue: str, priority: int, after_s: float, connection: Connection
    ) -> None:
        urgency = max(min(priority, _MOST_URGENT), -_MOST_URGENT)
        given = [ticket.run, _place_of_queue(agent, queue), urgency, *ticket, min(max(after_s, 0.0), _MOST_S)]
        await connection.execute(_ENQUEUE.encode(), given)

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
        from procrastinate import App
        from procrastinate.worker import Worker

        places = [_place_of_queue(agent, queue) for agent in agents for queue in queues or ("default",)]
        all_of = () if queues else tuple(_places_of(agent) for agent in agents)
        connector = _Connector(self._connections, places, all_of, stop=stop, lease_s=self.lease_s)
        app, drives = App(connector=cast("Any", connector)), set[asyncio.Task[Any]]()

        async def driven(run: str, gen: int) -> None:
            task = own_task()
            drives.add(task)
            try:
                await drive(Ticket(run, gen))
            finally:
                drives.discard(task)

        app.task(name=_TASK)(driven)

        def made() -> Worker:
            return Worker(
                app,
                queues=places,
                name=None,
                concurrency=max_concurrency,
                fetch_job_polling_interval=_POLL_S,
                # Never: stops are heard by the run itself.
                abort_job_polling_interval=_MOST_S,
                shutdown_graceful_timeout=grace_s,
                delete_jobs="always",
                # Its program has said what signals do.
                install_signal_handlers=False,
                update_heartbeat_interval=self.lease_s / _BEATS,
                # So long that it never does: its own way would take the job of whoever has taken over.
                stalled_worker_timeout=100 * self.lease_s,
            )

        rescuing = asyncio.create_task(self._rescue(connector, hand_over, now))
        try:
            while not stop.is_set():
                await _until(stop, made(), drives)
        finally:
            rescuing.cancel()
            await wait_until_ended(rescuing)

    async def _rescue(self, connector: _Connector, hand_over: Requeue, now: Callable[[], float]) -> None:
        """Hand over what silent workers have: seen twice, a quarter of a lease apart, with one last beat. So a jump
        of the database's clock takes nothing from anybody who beats."""
        random, seen = Random(), dict[int, object]()

        async def silent(connection: Connection) -> list[tuple[int, str, int, object]]:
            return await (await connection.execute(_SILENT.encode(), [self.lease_s])).fetchall()

        async def taken_away(connection: Connection, *, job: int, ticket: Ticket) -> None:
            async with connection.transaction():
                if (await connection.execute(_TAKE_AWAY.encode(), [job])).rowcount:
                    await hand_over(ticket, now=now(), connection=connection)

        while True:
            # Not all workers in the same moment.
            await asyncio.sleep(self.lease_s / 4 * random.uniform(0.9, 1.1))
            try:
                found = await connector.do_work(silent)
                for job, run, gen, beat in found:
                    if job in seen and seen[job] == beat:
                        await connector.do_work(partial(taken_away, job=job, ticket=Ticket(run, gen)))
                seen = {job: beat for job, _, _, beat in found}
            except StoreError as error:
                _log.warning("What silent workers had cannot be handed over, which is tried again: %s", error)


async def _until(stop: asyncio.Event, worker: Worker, drives: Collection[asyncio.Task[Any]]) -> None:
    """Let a worker of Procrastinate run until it ends, or until it has stopped because it was told to."""
    running, stopping = asyncio.create_task(worker.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            running.cancel()  # it fetches nothing more, and waits for what is driven
            await asyncio.wait({running})
            return
        error = None if running.cancelled() else running.exception()
        _log.warning("The worker of Procrastinate has ended, and begins again: %s", error and name_and_words(error))
        await asyncio.wait({stopping}, timeout=_POLL_S)
    except asyncio.CancelledError:
        if not running.cancelling():
            running.cancel()
        giving_back = list(drives)
        for each in giving_back:
            each.cancel()
        await wait_until_ended(asyncio.gather(*giving_back, return_exceptions=True), patience_s=GIVE_BACK_S)
        await wait_until_ended(running, patience_s=_LAST_CALL_S)
        raise
    finally:
        stopping.cancel()
        if running.done() and not running.cancelled():
            running.exception()  # nobody else looks


class _Connector:
    """The way on which a worker of Procrastinate asks the database, as its `BaseAsyncConnector`."""

    def __init__(
        self,
        connections: Connections,
        places: list[str],
        all_of: Collection[str],
        *,
        stop: asyncio.Event,
        lease_s: float,
    ) -> None:
        """`places` are the queues that are served; to them is added what begins with one of `all_of`."""
        self._connections: Final = connections
        self._stop: Final = stop
        self._lease_s: Final = lease_s
        self._places: Final = places
        self._all_of: Final = tuple(all_of)
        self._jobs: Final = set[object]()
        """The jobs that were brought and are not acknowledged."""

    async def do_work(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` with a connection; again, until it is done: it may have been done before, and only its answer was
        lost. A call that takes longer than a lease is made again.

        Raises:
            StoreError: it cannot be done; or the database is away while this process is to stop.
        """
        is_again = False

        while True:
            try:
                # A connection may be half open: without a limit, a worker would wait on it forever.
                async with asyncio.timeout(self._lease_s):
                    return await self._connections.patiently(work)
            except TimeoutError as error:
                late = f"{self._connections.place} has not answered within {self._lease_s:g} s."
                fault, cause = StoreError(late, hint="Look whether it runs.", may_pass=True), error
            except StoreError as error:
                fault, cause = error, error
            if self._stop.is_set() or not fault.may_pass:
                raise fault from cause
            if not is_again:
                _log.warning("The tickets cannot be read or written, which is tried again: %s", fault)
            is_again = True
            await asyncio.sleep(_AGAIN_S)

    def get_sync_connector(self) -> _Connector:
        return self

    async def execute_query_all_async(self, query: str, **arguments: object) -> list[dict[str, Any]]:
        from psycopg.errors import RaiseException
        from psycopg.rows import dict_row

        is_fetch, is_sent = arguments.keys() >= {"queues", "worker_id"}, False

        async def work(connection: Connection) -> list[dict[str, Any]]:
            nonlocal is_sent
            cursor = connection.cursor(row_factory=dict_row)
            is_again, is_sent = is_sent, True
            if is_fetch and is_again:  # a job whose bringing was lost is ours, and nobody else would ever get it
                await cursor.execute(_FETCHED.encode(), {**arguments, "jobs": list(self._jobs)})
                if lost := await cursor.fetchall():
                    return lost
            try:
                await cursor.execute(query.encode(), arguments or None)
            except RaiseException as error:  # it acknowledges a job that was given to somebody else, which is all right
                _log.debug("%s", error)
                return []
            return await cursor.fetchall() if cursor.description else []

        return await self.do_work(work)

    async def execute_query_one_async(self, query: str, **arguments: object) -> dict[str, Any]:
        row = (await self.execute_query_all_async(query, **arguments))[0]
        if "task_name" in row and row["id"] is not None:
            self._jobs.add(row["id"])
        return row

    async def execute_query_async(self, query: str, **arguments: object) -> None:
        await self.execute_query_all_async(query, **arguments)
        self._jobs.discard(arguments.get("job_id"))

    async def listen_notify(self, on_notification: Callable[..., Awaitable[None]], channels: Iterable[str]) -> None:
        """Tell of each job that is written for one of the queues. The channels are those of the queues."""
        from psycopg import Error

        while True:
            try:
                connection = await self._connections.client.connect(is_direct=True)
                try:
                    await self._heard(connection, on_notification)
                finally:
                    connection.pgconn.finish()
            except (Error, OSError, StoreError) as error:  # it is looked for every second anyway
                _log.debug("Procrastinate is not heard, which is tried again: %s", error)
            await asyncio.sleep(_AGAIN_S)

    async def _heard(self, connection: Connection, on_notification: Callable[..., Awaitable[None]]) -> None:
        heard = set[str]()
        while True:
            for place in set(self._places) - heard:
                await connection.execute(f'LISTEN "{_CHANNEL}{place}"'.encode())
                heard.add(place)
                await on_notification(channel=place, payload=_WRITTEN)  # what was written before it was heard
            async for told in connection.notifies(timeout=_POLL_S, stop_after=1):
                await on_notification(channel=told.channel, payload=told.payload)
            if self._all_of:
                found = await rows_of(connection, _PLACES)
                new = [name for (name,) in found if name.startswith(self._all_of) and name not in heard]
                self._places.extend(new)


def _check_package() -> None:
    """Raise a `StoreError` if Procrastinate is not installed, or its major version is another one."""
    if find_spec("procrastinate") is None:
        raise StoreError(
            "Durable runs in Postgres need the package procrastinate, which is not installed.",
            hint="Install it: pip install 'journeyman[postgres]'",
        )
    installed, major = version("procrastinate"), int(_LEAST.partition(".")[0])
    if installed.partition(".")[0] != str(major):
        raise StoreError(
            f"procrastinate {installed} is installed, and this version of journeyman knows version {major}.",
            hint=f"Install that one: pip install 'procrastinate>={_LEAST},<{major + 1}'",
        )


def _place_of_queue(agent: str, queue: str) -> str:
    """Return the queue of Procrastinate for an agent and a queue: a channel of Postgres has 63 bytes at most."""
    return f"{_places_of(agent)}{blake2b(queue.encode(), digest_size=8).hexdigest()}"


def _places_of(agent: str) -> str:
    """Return with what the names of all queues of an agent begin."""
    return f"jm{blake2b(agent.encode(), digest_size=8).hexdigest()}."


def schema() -> str:
    """Return the statements that make Procrastinate's tables, and an index of ours on them."""
    found = find_spec("procrastinate")
    if found is None or found.origin is None:
        return ""
    return f"{(Path(found.origin).parent / 'sql' / 'schema.sql').read_text('utf-8')}{_INDEX}\n"


if TYPE_CHECKING:
    _dispatcher: type[Dispatcher] = Procrastinate

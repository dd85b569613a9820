"""Durable runs in Postgres, which processes on many machines may share.

What decides who writes is one statement each time, so that nothing is locked while a process thinks, is stopped or
dies. What a run goes on from is on the disk before its writer goes on, but for steps that may be done again: those are
on the disk soon, and are written again when the database has lost them.

A process is alive while it is connected: it holds a lock there, which ends with its connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from journeyman.cancel import ended
from journeyman.durable.dispatch import (
    LATE_S,
    LEASE_S,
    SWEEP_S,
    Dispatcher,
    Ticket,
    Tickets,
    may_be_handed_over,
    urgency,
)
from journeyman.durable.engine import MOST_DEATHS, Engine, Taken, Written
from journeyman.durable.memory import killer, settled
from journeyman.durable.postgres_connections import (
    CHANNEL,
    COLUMNS,
    HAND_OVER,
    LATE,
    LIST,
    PARK,
    PARKED,
    READY,
    SWEEPS,
    UNPARK,
    Connections,
    owner_of,
    record_of,
    restored,
    row_of,
    rows_of,
    run_of,
    runs_of,
    shown,
    signal_of,
    written_out,
)
from journeyman.durable.procrastinate import Procrastinate, schema
from journeyman.durable.records import (
    OPEN,
    OVER,
    Change,
    Claim,
    Record,
    Row,
    Signal,
    SignalKind,
    Status,
    is_free,
    signalled,
)
from journeyman.store.database import MAKE, MIGRATING

if TYPE_CHECKING:
    from journeyman.durable.postgres_connections import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")
_BYTES: Final = ("head", "asked", "result")
_FLOATS: Final = ("created", "wake", "used_s", "cost", "ended")
_TEXTS: Final = ("id", "name", "parent", "agent", "app", "queue", "dedup", "status", "owner", "why")


def _mark(column: str) -> str:
    """Return the place of a value in a statement."""
    if column in _BYTES:
        return "%b::bytea"
    return "%s::text" if column in _TEXTS else "%s::float8" if column in _FLOATS else "%s::bigint"


_TELL: Final = f"pg_notify('{CHANNEL}', %s::text)"
_ADD_RUN: Final = (
    f"INSERT INTO jm_runs ({LIST}) VALUES ({', '.join(map(_mark, COLUMNS))}) ON CONFLICT DO NOTHING RETURNING {_TELL}"
)
_STEP: Final = "run, key, kind, about, effect, epoch, at, used_s, body, crc"
_STEP_MARKS: Final = (
    "%s::text, %s::text, %s::smallint, %b::bytea, %s::text, %s::bigint, %s::float8, %s::float8, %b::bytea, %s::bigint"
)
_ADD_STEP: Final = f"INSERT INTO jm_steps ({_STEP}) VALUES ({_STEP_MARKS}) ON CONFLICT DO NOTHING"
_SOON: Final = "set_config('synchronous_commit', 'off', true) = 'off'"
"""Lets a statement end before what it writes is on the disk."""
_WRITE: Final = (
    f"INSERT INTO jm_steps ({_STEP}) SELECT {_STEP_MARKS} FROM jm_runs WHERE id = %s::text AND epoch = %s::bigint"
)
_ONCE: Final = " ON CONFLICT DO NOTHING RETURNING n"
_WRITE_SYNCED: Final = f"{_WRITE}{_ONCE}"
_WRITE_SOON: Final = f"{_WRITE} AND {_SOON}{_ONCE}"
_KNOWN: Final = (
    f"SELECT r.epoch, {', '.join(f's.{each}' for each in _STEP.split(', '))} FROM jm_runs r LEFT JOIN jm_steps s"
    " ON s.run = %s::text AND s.key = %s::text AND s.kind = %s::smallint WHERE r.id = %s::text"
)
_CLAIMED: Final = ("status", "owner", "epoch", "gen", "lives", "deaths", "n_steps", "wake", "why", "head")
_CLAIM: Final = (
    f"UPDATE jm_runs SET {', '.join(f'{each} = {_mark(each)}' for each in _CLAIMED)} WHERE id = %s::text"
    " AND epoch = %s::bigint AND gen = %s::bigint AND n_signals = %s::bigint AND status = %s::text RETURNING id"
)
"""Changes a run only if it is as it was read."""
_UNCLAIM: Final = (
    "UPDATE jm_runs SET status = 'ready', owner = NULL, gen = gen + 1 WHERE id = %s::text AND epoch = %s::bigint"
    f" RETURNING {_TELL}"
)
_GIVEN_BACK: Final = (
    *("status", "owner", "why", "wake", "asked", "used_s", "tokens", "cost", "attempt", "iteration", "deaths"),
    *("result", "ended"),
)
_SETTLE: Final = (
    f"UPDATE jm_runs SET {', '.join(f'{each} = {_mark(each)}' for each in _GIVEN_BACK)}, gen = gen + %s::bigint"
    " WHERE id = %s::text AND epoch = %s::bigint AND (%s::bigint IS NULL OR n_signals = %s::bigint)"
    f" RETURNING {_TELL}"
)
_QUEUE_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('journeyman queue ' || %s::text, 0))"
_NUMBER_LOCK: Final = 0x6A6D_0002
_OWNERS: Final = "SELECT DISTINCT owner FROM jm_runs WHERE status = 'running' AND owner IS NOT NULL"


def _told(kind: SignalKind) -> str:
    """Return the statement that stores a signal, and makes of its run what `signalled` says."""
    after = {status: signalled(replace(_PROBE, status=status), kind) for status in OPEN}
    status = " ".join(f"WHEN '{each}' THEN '{row.status}'" for each, row in after.items())
    gen = ", ".join([f"'{each}'" for each, row in after.items() if row.gen] or ["''"])
    wakes = ", ".join([f"'{each}'" for each, row in after.items() if row.wake is None] or ["''"])
    return (
        "WITH was AS (SELECT id, gen FROM jm_runs WHERE id = %s::text FOR UPDATE),"
        f" told AS (UPDATE jm_runs r SET n_signals = n_signals + 1, status = CASE status {status} END,"
        f" gen = r.gen + (status IN ({gen}))::int, wake = CASE WHEN status IN ({wakes}) THEN NULL ELSE wake END"
        f" FROM was WHERE r.id = was.id AND status NOT IN ('done', 'failed') AND NOT EXISTS"
        " (SELECT FROM jm_signals WHERE run = %s::text AND kind = %s::text AND dedup = %s::text)"
        " RETURNING r.id, r.gen <> was.gen AS is_woken),"
        # One at a time until the end of the transaction: who has read a number must have read all before it.
        f" queued AS MATERIALIZED (SELECT id, pg_advisory_xact_lock({_NUMBER_LOCK}) FROM told)"
        " INSERT INTO jm_signals (run, kind, dedup, body, at, who)"
        " SELECT id, %s::text, %s::text, %b::bytea, %s::float8, %s::text FROM queued"
        f" RETURNING {_TELL}, (SELECT is_woken FROM told)"
    )


_PROBE: Final = Row(id="", name=None, agent="", head=b"", created=0.0, status="ready", wake=0.0)
_SIGNAL: Final[Mapping[SignalKind, str]] = {kind: _told(kind) for kind in get_args(SignalKind)}
_SIGNAL_COLUMNS: Final = "n, run, kind, dedup, body, at, who"
_FORGET: Final = (
    "WITH gone AS (DELETE FROM jm_runs WHERE id = ANY(%s::text[]) AND status IN ('done', 'failed') RETURNING id),"
    " steps AS (DELETE FROM jm_steps WHERE run IN (SELECT id FROM gone)),"
    " signals AS (DELETE FROM jm_signals WHERE run IN (SELECT id FROM gone)) SELECT count(*) FROM gone"
)
_MOST_SWEPT: Final = 5_000  # the next sweep goes on behind those
_KEPT_S: Final = 5.0
"""So long what was written without waiting for the disk is kept: Postgres writes it within a second."""
GRACE_S: Final = 10.0


def ddl() -> str:
    """Return the statements that make all tables; those of Procrastinate are last, and fail where they are there."""
    return f"{MAKE}BEGIN;\n{schema()}COMMIT;\n"


class PostgresEngine:  # noqa: PLR0904 - those of the port
    """An engine on a database, in which the tables are made if they are not there."""

    def __init__(self, url: str, *, grace_s: float = GRACE_S, lease_s: float = LEASE_S) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used.

        Args:
            url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters that Postgres knows, and two of
                ours: `prepare_threshold=none` behind a pooler in transaction mode, and `direct=HOST:PORT`, the
                database itself, for the one connection of a process that is held.
            grace_s: For so many seconds after the database was started, nobody is taken for dead.
            lease_s: A worker that is connected and silent for so many seconds is taken for dead.
        """
        self.owner = owner_of(secrets.randbits(64))
        self._claiming: Final = asyncio.Lock()
        """One claim at a time, so that one whose answer was lost is known by its epoch."""
        self._soon: deque[tuple[float, Claim, Record]] = deque()
        """What was written without waiting for the disk, with the time of the event loop."""
        self.connections: Final = Connections(url, owner=self.owner, grace_s=grace_s, on_renewed=self._write_again)
        self.dispatcher: Dispatcher = Procrastinate(self.connections, lease_s=lease_s)
        self._limited: Final = set[tuple[str, int]]()
        """The runs and epochs that were claimed here in queues with limits."""
        self._swept_to = ""

    @property
    def tickets(self) -> Tickets:
        return self

    async def open(self) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(b"SELECT pg_advisory_xact_lock(%s::bigint)", (MIGRATING,))
                await self.dispatcher.setup(connection)

        await self.connections.open()
        try:
            await self._read(work)
        except BaseException:
            self.connections.close()
            raise

    async def close(self) -> None:
        self.connections.close()

    def has_news(self) -> bool:
        return self.connections.has_news()

    def listen(self, wake: Callable[[], None]) -> None:
        self.connections.listen(wake)

    # -- runs

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        async def work(connection: Connection, _: bool) -> Row:
            while not await self._added(connection, row, records, is_queued=is_queued):
                where = "WHERE name = %s::text OR (agent = %s::text AND dedup = %s::text)"
                known = await runs_of(connection, where, [row.name, row.agent, row.dedup])
                known = known or await runs_of(connection, "WHERE id = %s::text", [row.id])
                if known:
                    return known[0]
            return row

        return await self._written(work)

    async def get(self, id: str) -> Row | None:
        where = "WHERE id = %s::text OR name = %s::text ORDER BY id = %s::text DESC LIMIT 1"
        found = await self._read(lambda connection: runs_of(connection, where, [id, id, id]))
        return found[0] if found else None

    async def rows(
        self,
        *,
        statuses: Collection[Status] = (),
        agent: str | None = None,
        prefix: str = "",
        ended_before: float | None = None,
        limit: int = 100,
    ) -> Sequence[Row]:
        where, given = ["true"], list[object]()
        if statuses:
            where.append("status = ANY(%s::text[])")
            given.append(list(statuses))
        if agent is not None:
            where.append("agent = %s::text")
            given.append(agent)
        if prefix:
            where.append("(id ^@ %s::text OR name ^@ %s::text)")
            given += [prefix] * 2
        if ended_before is not None:
            where.append("ended < %s::float8")
            given.append(ended_before)
        query = f"WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT %s::bigint"
        return await self._read(lambda connection: runs_of(connection, query, [*given, limit]))

    async def ready(self, *, now: float, agents: Collection[str], queues: Collection[str], limit: int) -> Sequence[Row]:
        async def work(connection: Connection) -> Sequence[Row]:
            owners = [owner for (owner,) in await rows_of(connection, _OWNERS)]
            alive = await self.connections.alive(connection, owners)
            given = {
                "now": now,
                "agents": shown(list(agents)),
                "queues": shown(list(queues)),
                "all": not queues,
                "limit": limit,
                "dead": [owner for owner in owners if owner not in alive],
            }
            return [row_of(each) for each in await rows_of(connection, READY, given)]

        return await self._read(work)

    async def claim(
        self,
        id: str,
        *,
        now: float,
        also: Collection[Status] = (),
        steal: bool = False,
        at_once: int | None = None,
        head: bytes | None = None,
        gen: int | None = None,
    ) -> Claim | None:
        tried: Row | None = None
        claim: Claim | None = None

        async def work(connection: Connection, _: bool) -> Claim | None:
            nonlocal tried, claim
            while (row := await run_of(connection, id)) is not None:
                if tried is not None and (row.epoch, row.owner) == (tried.epoch, self.owner):
                    claim = Claim(row, row.epoch)  # only the answer was lost
                    return claim
                is_dead = steal or (
                    row.status == "running" and row.owner not in await self.connections.alive(connection, {row.owner})
                )
                if gen not in (None, row.gen) or not is_free(row, now=now, also=also, owner_is_dead=is_dead):
                    return None
                after = await self._claimed(connection, row, died=row.owner is not None and not steal, head=head)
                after = after if gen is not None else replace(after, gen=row.gen + 1)
                async with connection.transaction():
                    if await self._is_full(connection, row, at_once, parks=gen is not None):
                        return None
                    tried = after
                    is_done = await self._changed(connection, row, after)
                if is_done:
                    claim = Claim(after, after.epoch) if after.status == "running" else None
                    return claim
            return None

        try:
            async with self._claiming:
                claimed = await self._written(work)
        except asyncio.CancelledError:
            if claim is not None:  # nobody will drive it
                await self._unclaimed(claim, now=now)
            raise
        if claimed is not None and at_once is not None:
            self._limited.add((id, claimed.epoch))
        return claimed

    async def note(self, claim: Claim, asked: bytes | None) -> None:
        change = (
            f"UPDATE jm_runs SET asked = %b::bytea WHERE id = %s::text AND epoch = %s::bigint AND {_SOON} RETURNING"
            f" {_TELL}"
        )
        given = [asked, shown(claim.row.id), claim.epoch, self.owner]
        await self._written(lambda connection, _: rows_of(connection, change, given))

    async def settle(self, claim: Claim, change: Change, *, now: float, n_signals: int | None = None) -> bool:
        after = settled(claim.row, change, now=now)
        values = [shown(getattr(after, each)) for each in _GIVEN_BACK]
        is_ready = int(change.status == "ready")
        given = [*values, is_ready, shown(claim.row.id), claim.epoch, n_signals, n_signals, self.owner]

        is_limited = (claim.row.id, claim.epoch) in self._limited

        async def work(connection: Connection, is_again: bool) -> bool:
            if is_again:
                row = await run_of(connection, claim.row.id)
                if row is not None and (row.epoch, row.owner) == (claim.epoch, None):
                    return True  # only the answer was lost
            if not is_limited and not may_be_handed_over(after):
                return bool(await rows_of(connection, _SETTLE, given))
            async with connection.transaction():
                if is_limited:
                    await rows_of(connection, _QUEUE_LOCK, [shown(after.queue)])
                is_done = bool(await rows_of(connection, _SETTLE, given))
                if is_done and may_be_handed_over(after):
                    await self._enqueue(connection, after, now=now)
                if is_done and is_limited:
                    await self._unpark(connection, after.queue, now=now)
                return is_done

        is_done = await self._written(work)
        if is_done:
            self._limited.discard((claim.row.id, claim.epoch))
        return is_done

    async def forget(self, ids: Collection[str]) -> int:
        given = [shown(list(ids))]
        found = await self._written(lambda connection, _: rows_of(connection, _FORGET, given))
        return found[0][0]

    # -- steps and signals

    async def records(self, id: str) -> Sequence[Record]:
        query = f"SELECT {_STEP} FROM jm_steps WHERE run = %s::text ORDER BY n"
        found = await self._read(lambda connection: rows_of(connection, query, [shown(id)]))
        return [record_of(each) for each in found]

    async def write(self, claim: Claim, record: Record, *, is_synced: bool = False) -> Written:
        given = [*written_out(record), shown(claim.row.id), claim.epoch]

        async def work(connection: Connection, is_again: bool) -> Written:
            if await rows_of(connection, _WRITE_SYNCED if is_synced else _WRITE_SOON, given):
                return "written"
            # An epoch only grows: what is read after the write is as true as what was read with it.
            found = await rows_of(connection, _KNOWN, [*given[:3], given[-2]])
            if not found or found[0][0] != claim.epoch:
                return "fenced"
            is_ours = is_again and found[0][2] is not None and record_of(found[0][1:]) == record
            return "written" if is_ours else "taken"

        written = await self._written(work)
        if written == "written" and not is_synced:
            now_s = asyncio.get_running_loop().time()
            self._soon.append((now_s, claim, record))
            while self._soon[0][0] < now_s - _KEPT_S:
                self._soon.popleft()
        return written

    async def signal(self, signal: Signal) -> Taken:
        body = json.dumps(signal.body).encode()
        where = [shown(each) for each in (signal.run, signal.kind, signal.dedup)]
        given = [signal.at, shown(signal.who)]
        query = (
            f"SELECT {_SIGNAL_COLUMNS} FROM jm_signals WHERE run = %s::text AND kind = %s::text AND dedup = %s::text"
        )

        async def work(connection: Connection, is_again: bool) -> Taken:
            from psycopg.errors import UniqueViolation  # noqa: PLC0415 - an optional package

            while True:
                values = [where[0], *where, *where[1:], body, *given, self.owner]
                try:
                    async with connection.transaction():
                        told = await rows_of(connection, _SIGNAL[signal.kind], values)
                        if told and told[0][1] and (woken := await run_of(connection, signal.run)):
                            await self._enqueue(connection, woken, now=signal.at)
                    if told:
                        return "taken"
                except UniqueViolation:  # the same was stored in this moment
                    continue
                row = await run_of(connection, signal.run)
                if row is None or row.status in OVER:
                    return "over"
                known = await rows_of(connection, query, where)
                if known:
                    is_ours = is_again and signal_of(known[0])._replace(n=0) == signal._replace(n=0)
                    return "taken" if is_ours else "known"

        return await self._written(work)

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        of_run = "" if run is None else " AND run = %s::text"
        query = f"SELECT {_SIGNAL_COLUMNS} FROM jm_signals WHERE n > %s::bigint{of_run} ORDER BY n"
        given = [after] if run is None else [after, shown(run)]
        return [signal_of(each) for each in await self._read(lambda connection: rows_of(connection, query, given))]

    async def newest(self) -> int:
        query = "SELECT coalesce(max(n), 0) FROM jm_signals"
        return (await self._read(lambda connection: rows_of(connection, query)))[0][0]

    # -- tickets

    async def hand_over(
        self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: Connection | None = None
    ) -> bool:
        async def work(connection: Connection) -> bool:
            handed = await rows_of(connection, HAND_OVER, [shown(ticket.run), ticket.gen])
            for each in handed:
                await self._enqueue(connection, row_of(each), now=now, after_s=after_s)
            return bool(handed)

        async def alone(connection: Connection, _: bool) -> bool:
            async with connection.transaction():
                return await work(connection)

        return await self._written(alone) if connection is None else await work(connection)

    async def rescue(self, *, now: float, agents: Collection[str]) -> int:
        async def work(connection: Connection) -> Sequence[Row]:
            owners = [owner for (owner,) in await rows_of(connection, _OWNERS)]
            alive = await self.connections.alive(connection, owners)
            dead = [owner for owner in owners if owner not in alive]
            where = "WHERE status = 'running' AND owner = ANY(%s::text[]) AND agent = ANY(%s::text[])"
            return await runs_of(connection, where, [dead, list(agents)]) if dead else ()

        left = await self._read(work)
        return sum([await self.hand_over(Ticket(row.id, row.gen), now=now) for row in left])

    async def sweep(self, *, now: float) -> int:
        async def work(connection: Connection, _: bool) -> int:
            async with connection.transaction():
                if not await rows_of(connection, SWEEPS, [SWEEP_S]):
                    return 0
                before = now - LATE_S
                late = await rows_of(connection, LATE, [before, before, self._swept_to, _MOST_SWEPT])
                self._swept_to = late[-1][0] if len(late) == _MOST_SWEPT else ""
                unknown = await self.dispatcher.unknown([Ticket(*each) for each in late], connection)
                n_handed = sum([await self.hand_over(each, now=now, connection=connection) for each in unknown])
                for (queue,) in await rows_of(connection, PARKED):
                    await self._unpark(connection, restored(queue), now=now)
                return n_handed

        return await self._written(work)

    # -- inside

    async def _enqueue(self, connection: Connection, row: Row, *, now: float, after_s: float = 0.0) -> None:
        await self.dispatcher.enqueue(
            Ticket(row.id, row.gen),
            agent=row.agent,
            queue=row.queue,
            priority=urgency(row),
            after_s=max(after_s, (row.wake or now) - now, 0.0),
            connection=connection,
        )

    async def _unpark(self, connection: Connection, queue: str, *, now: float) -> None:
        """Write a ticket for the first run that was brought to a queue when that was full."""
        for (run,) in await rows_of(connection, UNPARK, [shown(queue)]):
            if (first := await run_of(connection, run)) is not None:
                await self.hand_over(Ticket(run, first.gen), now=now, connection=connection)

    async def _changed(self, connection: Connection, row: Row, after: Row) -> bool:
        """Write what a claim changes of a run, if it is as it was read."""
        old = [row.id, row.epoch, row.gen, row.n_signals, row.status]
        is_done = bool(await rows_of(connection, _CLAIM, [shown(getattr(after, each)) for each in _CLAIMED] + old))
        if is_done and after.gen != row.gen:
            await self.dispatcher.drop(row.id, connection)
        return is_done

    async def _unclaimed(self, claim: Claim, *, now: float) -> None:
        after = replace(claim.row, status="ready", gen=claim.row.gen + 1)

        async def work(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                if await rows_of(connection, _UNCLAIM, [shown(after.id), claim.epoch, self.owner]):
                    await self._enqueue(connection, after, now=now)

        await self._written(work)

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await self.connections.patiently(lambda connection, _: work(connection))

    async def _written(self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Do `work`, also if the waiting is cancelled: what it writes counts."""
        writing = asyncio.ensure_future(self.connections.patiently(work))
        try:
            await ended(writing)
        except asyncio.CancelledError:
            if not writing.cancelled():
                writing.exception()
            raise
        return writing.result()

    async def _write_again(self, connection: Connection) -> None:
        """Write what may have been lost with the database, if the claims still hold."""
        n_lost = 0
        for _, claim, record in list(self._soon):
            given = [*written_out(record), shown(claim.row.id), claim.epoch]
            n_lost += len(await rows_of(connection, _WRITE_SYNCED, given))
        if n_lost:
            _log.warning("%s had lost %d steps, which were written again.", self.connections.place, n_lost)

    async def _added(self, connection: Connection, row: Row, records: Sequence[Record], *, is_queued: bool) -> bool:
        async with connection.transaction():
            if not await rows_of(connection, _ADD_RUN, [*map(shown, astuple(row)), self.owner]):
                return False
            if records:
                async with connection.cursor() as cursor:
                    await cursor.executemany(_ADD_STEP.encode(), [written_out(each) for each in records])
            if is_queued and may_be_handed_over(row):
                await self._enqueue(connection, row, now=row.created)
            return True

    async def _is_full(self, connection: Connection, row: Row, at_once: int | None, *, parks: bool) -> bool:
        """Tell whether as many runs of a queue go on as may. Nobody else asks until the end of the transaction.

        With `parks` the run gets a ticket when another one leaves the queue.
        """
        if at_once is None:
            return False
        await rows_of(connection, _QUEUE_LOCK, [shown(row.queue)])
        busy = "SELECT owner FROM jm_runs WHERE status = 'running' AND queue = %s::text AND id <> %s::text"
        owners = [owner for (owner,) in await rows_of(connection, busy, [shown(row.queue), row.id])]
        alive = await self.connections.alive(connection, set(owners))
        is_full = sum([owner in alive for owner in owners]) >= at_once
        if is_full and parks:
            await rows_of(connection, PARK, [row.id, shown(row.queue)])
        return is_full

    async def _claimed(self, connection: Connection, row: Row, *, died: bool, head: bytes | None) -> Row:
        """Return a run as it is once it is claimed; or blocked, if it takes its processes down."""
        n_steps = (await rows_of(connection, "SELECT count(*) FROM jm_steps WHERE run = %s::text", [shown(row.id)]))[0][
            0
        ]
        deaths = (row.deaths + 1 if n_steps == row.n_steps else 1) if died else 0
        if deaths >= MOST_DEATHS:
            return replace(row, status="blocked", why=killer(deaths), owner=None, deaths=0)
        return replace(
            row,
            status="running",
            owner=self.owner,
            epoch=row.epoch + 1,
            lives=row.lives + 1,
            deaths=deaths,
            n_steps=n_steps,
            wake=None,
            why=None,
            head=row.head if head is None else head,
        )


if TYPE_CHECKING:
    _engine: type[Engine] = PostgresEngine

"""Durable runs in Postgres, which processes on many machines may share.

What decides who writes is one statement for a step, and one short transaction for a change of a run, so that nothing is
locked while a process thinks or dies. What a run goes on from is on the disk before its writer goes on, except steps
that may be done again: those are on the disk soon, and are written again when the database has lost them.

A process is alive while it is connected: it holds a lock there, which ends with its connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import Unpack

from journeyman.definition.data import field_names
from journeyman.definition.problems import explain_arguments
from journeyman.durable.dispatch import Tickets
from journeyman.durable.engine import Engine, Taken, Written
from journeyman.durable.postgres import statements as sql
from journeyman.durable.postgres.connections import (
    add_said,
    conversation_of,
    record_of,
    restored,
    row_of,
    runs_of,
    storable_value,
    written_out,
)
from journeyman.durable.postgres.days import drop_days
from journeyman.durable.postgres.transactions import KEPT_S, RowChange, Transactions
from journeyman.durable.records import (
    QUEUES,
    Change,
    Claim,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    RunFilter,
    queue_state,
    wall_clock,
)
from journeyman.durable.rules import RowRule, return_row
from journeyman.errors import StoreError
from journeyman.inbox.signals import SIGNAL_COLUMNS, Signal, signal_of
from journeyman.session import Snapshot
from journeyman.store.client import rows_of
from journeyman.store.database import MIGRATING
from journeyman.store.postgres import PostgresSessions
from journeyman.store.sessions import SessionHead, StoredSession

if TYPE_CHECKING:
    from journeyman.store.client import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")


_SESSIONS: Final = (
    "SELECT id, agent, created FROM jm_sessions WHERE id ^@ %s::text"
    " AND (created, id) < (%s::float8, %s::text) ORDER BY created DESC, id DESC LIMIT %s::bigint"
)


@explain_arguments  # noqa: PLR0904 - those of the port
class PostgresEngine(Transactions):
    """An engine on a database, in which the tables are made if they are not there."""

    @property
    def tickets(self) -> Tickets:
        return self

    async def open(self) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                # Two processes that open a new database at once would both make its tables.
                await connection.execute(b"SELECT pg_advisory_xact_lock(%s::bigint)", (MIGRATING,))
                await self.dispatcher.setup(connection)

        await self.connections.client.open("Durable runs")
        try:
            await self.connections.patiently(work, takes_long=True)  # in turn
            await self._make_days(wall_clock())
        except BaseException:
            self.connections.close()
            raise

    async def close(self) -> None:
        self.connections.close()

    def has_news(self) -> bool:
        return self.connections.client.has_news()

    def listen(self, wake: Callable[[], None]) -> None:
        self.connections.listen(wake)

    # -- runs

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        async def work(connection: Connection) -> Row:
            # Neither stored nor found: it was forgotten in between, so once more.
            while not await self._added(connection, row, records, is_queued=is_queued):
                where = "WHERE name = %s::text OR (agent = %s::text AND dedup = %s::text)"
                known = await runs_of(connection, where, [row.name, row.agent, row.dedup])
                known = known or await runs_of(connection, "WHERE id = %s::text", [row.id])
                if known:
                    return known[0]
            return row

        return await self._transact(work)

    async def get(self, id: str) -> Row | None:
        where = "WHERE id = %s::text OR name = %s::text ORDER BY id = %s::text DESC LIMIT 1"
        found = await self.read(lambda connection: runs_of(connection, where, [id, id, id]))
        return found[0] if found else None

    async def rows(self, **which: Unpack[RunFilter]) -> Sequence[ListedRun]:
        where, given = ["true"], list[object]()
        if statuses := which.get("statuses"):
            where.append("status = ANY(%s::text[])")
            given.append(list(statuses))
        if (agent := which.get("agent")) is not None:
            where.append("agent = %s::text")
            given.append(agent)
        if prefix := which.get("prefix"):
            # No comparison: how texts are sorted is up to the database, which may pass over some characters.
            where.append("(id ^@ %s::text OR name ^@ %s::text)")
            given += [prefix] * 2
        if (before := which.get("ended_before")) is not None:
            where.append("created < %s::float8 AND ended < %s::float8")  # by age there is an index
            given += [before] * 2
        if (older_than := which.get("older_than")) is not None:
            where.append("(created, id) < (%s::float8, %s::text)")
            given += [older_than.created, older_than.id]
        columns = field_names(ListedRun)
        query = f"SELECT {', '.join(columns)} FROM jm_runs WHERE {' AND '.join(where)}"
        query += " ORDER BY created DESC, id DESC LIMIT %s::bigint"
        asked = [storable_value(each) for each in (*given, which.get("limit", 100))]
        found = await self.read(lambda connection: rows_of(connection, query, asked))
        return [ListedRun(**dict(zip(columns, map(restored, each), strict=True))) for each in found]

    async def queues(self, *, now: float) -> Sequence[QueueState]:
        query = QUEUES.format(now="%(now)s::float8")
        found = await self.read(lambda connection: rows_of(connection, query, {"now": now}))
        return [queue_state(each, now=now) for each in found]

    async def ready(self, *, now: float, agents: Collection[str], queues: Collection[str], limit: int) -> Sequence[Row]:
        async def work(connection: Connection) -> Sequence[Row]:
            owners = [owner for (owner,) in await rows_of(connection, sql.OWNERS)]
            alive = await self.connections.alive(connection, owners)
            given = {
                "now": now,
                "agents": storable_value(list(agents)),
                "queues": storable_value(list(queues)),
                "all": not queues,
                "limit": limit,
                "dead": [owner for owner in owners if owner not in alive],
            }
            return [row_of(each) for each in await rows_of(connection, sql.READY, given)]

        return await self.read(work)

    async def change(
        self,
        id: str,
        rule: RowRule,
        *,
        now: float,
        says: Change | None = None,
        posts: Signal | None = None,
        is_synced: bool = False,
    ) -> Row | None:
        tried: RowChange | None = None

        async def work(connection: Connection) -> Row | None:
            nonlocal tried
            if tried is not None:  # whether that holds, the run itself tells where the database cannot
                now_there = await runs_of(connection, "WHERE id = %s::text", [id])
                if now_there and tried.is_made(now_there[0]):
                    return tried.after
            if "n_busy" in rule.reads or id in self._limited:
                # First the lock of the queue and then the row: in another order, two would wait for each other.
                await connection.execute(sql.QUEUE_LOCK.encode(), [storable_value(id)])
            tried = await self._lock_run(connection, id, rule, now=now)
            if tried is None:
                return None
            await self._update_run(connection, tried, now=now)
            if says is not None:
                await add_said(connection, id, says, at=now)
            if posts is not None:
                await self._store_signal(connection, posts)
            return tried.after

        try:
            async with self._claiming if rule.reads else nullcontext():
                after = await self._transact(work)
        except (asyncio.CancelledError, StoreError):
            if tried is not None and tried.after.epoch > tried.row.epoch:  # a claim, and nobody will drive the run
                unused = Claim(tried.after, tried.after.epoch)
                with suppress(StoreError):  # the database is away, as the first error says
                    await self.change(id, RowRule(partial(return_row, claim=unused)), now=now)
            raise
        self._count_in(id, after, rule)
        return after

    async def forget(self, ids: Collection[str], *, by_days: bool = False) -> int:
        # With a whole day, its tables are dropped: what is deleted row by row costs as much as it took to write.
        tables = ("jm_steps_default", "jm_signals_default") if by_days else ("jm_steps", "jm_signals")

        async def work(connection: Connection) -> int:
            gone = [id for (id,) in await rows_of(connection, sql.FORGET, [storable_value(list(ids))])]
            for table in tables:
                await connection.execute(sql.FORGET_STEPS.format(table).encode(), [gone])
            await connection.execute(sql.FORGET_CONVERSATIONS, [gone])
            return len(gone)

        return await self._transact(work)

    async def drop_days(self, before: float) -> None:
        # A table may have to be waited for.
        await self._complete_work(lambda connection: drop_days(connection, before), takes_long=True)

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
        sessions = PostgresSessions(self.connections.database.url)
        return sessions.shared_session(id, agent=agent, any_agent=any_agent, create=create)

    async def conversation(self, id: str, *, n_runs: int | None = None) -> Snapshot:
        return await self.read(lambda connection: conversation_of(connection, id, n_runs))

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[SessionHead]:
        newest, first = older_than or ListPlace(math.inf, ""), storable_value(prefix)
        given = [first, newest.created, storable_value(newest.id), limit]
        found = await self.read(lambda connection: rows_of(connection, _SESSIONS, given))
        return [SessionHead(*map(restored, each)) for each in found]

    async def delete_session(self, id: str) -> None:
        # In a thread: it waits for the network on a connection of its own.
        await asyncio.to_thread(PostgresSessions(self.connections.database.url).delete, id)

    # -- steps and signals

    async def find_dead(self, owners: Collection[str]) -> Collection[str]:
        alive = await self.read(lambda connection: self.connections.alive(connection, owners))
        return {*owners}.difference(alive)

    async def records(self, id: str, *, key: str | None = None) -> Sequence[Record]:
        of_step, given = ("", [id]) if key is None else (" AND key = %s::text", [id, key])
        query = f"SELECT {sql.STEP} FROM jm_steps WHERE run = %s::text{of_step} ORDER BY n"
        asked = [storable_value(each) for each in given]
        found = await self.read(lambda connection: rows_of(connection, query, asked))
        return [record_of(each) for each in found]

    async def write(
        self,
        claim: Claim,
        record: Record,
        *,
        is_synced: bool = False,
        starts: Row | None = None,
        posts: Signal | None = None,
    ) -> Written:
        given = [*written_out(record), storable_value(claim.row.id), claim.epoch]
        has_more = starts is not None or posts is not None
        is_synced = is_synced or has_more

        is_sent = False

        async def work(connection: Connection) -> Written:
            nonlocal is_sent
            is_again, is_sent = is_sent, True
            if await rows_of(connection, sql.WRITE_SYNCED if is_synced else sql.WRITE_SOON, given):
                if starts is not None:
                    await self._added(connection, starts, (), is_queued=True)
                if posts is not None:
                    await self._store_signal(connection, posts)
                return "written"
            # An epoch only grows: what is read after the write is as true as what was read with it.
            found = await rows_of(connection, sql.KNOWN, [*given[:3], given[-2]])
            if not found or found[0][0] != claim.epoch:
                return "fenced"
            # Alone a step is one statement, which has no number that is known before its answer comes: it is found
            # under its key.
            is_ours = is_again and found[0][2] is not None and record_of(found[0][1:]) == record
            return "written" if is_ours else "taken"

        written = await (self._transact(work) if has_more else self._complete_work(work))
        if written == "written" and not is_synced:
            now_s = asyncio.get_running_loop().time()
            self._soon.append((now_s, claim, record))
            while self._soon[0][0] < now_s - KEPT_S:
                self._soon.popleft()
        return written

    async def signal(self, signal: Signal) -> Taken:
        return await self._transact(lambda connection: self._store_signal(connection, signal), may_repeat=False)

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        of_run = "" if run is None else " AND run = %s::text"
        query = f"SELECT {SIGNAL_COLUMNS} FROM jm_signals WHERE n > %s::bigint{of_run} ORDER BY n"
        given = [after] if run is None else [after, storable_value(run)]
        found = await self.read(lambda connection: rows_of(connection, query, given))
        return [signal_of([*map(restored, each)]) for each in found]

    async def newest(self) -> int:
        query = "SELECT coalesce(max(n), 0) FROM jm_signals"
        return (await self.read(lambda connection: rows_of(connection, query)))[0][0]


if TYPE_CHECKING:
    _engine: type[Engine] = PostgresEngine

"""Durable runs in Postgres, which processes on many machines may share.

What decides who writes is one statement for a step, and one short transaction for a change of a run, so that nothing is
locked while a process thinks or dies. What a run goes on from is on the disk before its writer goes on, except steps
that may be done again: those are on the disk soon, and are written again when the database has lost them.

A process is alive while it is connected: it holds a lock there, which ends with its connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from typing_extensions import Unpack

from journeyman.cancellation import wait_until_ended
from journeyman.definition.data import field_names
from journeyman.definition.problems import explain_arguments
from journeyman.durable.dispatch import (
    LATE_S,
    LEASE_S,
    SWEEP_S,
    Dispatcher,
    Ticket,
    Tickets,
    may_be_handed_over,
    write_ticket,
)
from journeyman.durable.engine import Engine, RunChanges, Taken, WriteOptions, Written
from journeyman.durable.postgres import statements as sql
from journeyman.durable.postgres.connections import (
    ANSWER_S,
    Connections,
    add_said,
    owner_of,
    record_of,
    restored,
    row_of,
    runs_of,
    storable_value,
    written_out,
)
from journeyman.durable.postgres.days import drop_days, make_days
from journeyman.durable.postgres.procrastinate import Procrastinate
from journeyman.durable.records import (
    QUEUES,
    Claim,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    RunFilter,
    RunGlance,
    queue_state,
    wall_clock,
)
from journeyman.durable.rules import FactName, RowRule, RunFacts, hand_over_row, needs_ticket, return_row, signal_row
from journeyman.errors import StoreError, name_and_words
from journeyman.inbox.signals import SIGNAL_COLUMNS, Signal, signal_of
from journeyman.session import Snapshot
from journeyman.store.client import in_transaction, rows_of
from journeyman.store.database import MIGRATING, NUMBER, OUTCOME, holds
from journeyman.store.log import SessionRecord, readable_records
from journeyman.store.postgres import PostgresSessions
from journeyman.store.sessions import READ, SessionHead, StoredSession

if TYPE_CHECKING:
    from journeyman.store.client import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")
# A sweep must not take long, since it is a transaction.
_MOST_SWEPT: Final = 5_000  # the next sweep goes on behind those
KEPT_S: Final = 5.0
"""So long what was written without waiting for the disk is kept: Postgres writes it within a second. A database that
restarts after a crash may have lost what was written in between."""
# After a restart of the database, its processes need a moment until they hold their locks again.
GRACE_S: Final = 10.0


class RowChange(NamedTuple):
    """A run that is locked, as it is and as it is to be."""

    row: Row
    after: Row

    def is_made(self, row: Row) -> bool:
        """Tell whether this has become of the run: another drives it, or nobody."""
        new = (self.after.epoch, self.after.owner)
        return (row.epoch, row.owner) == new != (self.row.epoch, self.row.owner)


class Transactions(RunChanges):
    """Reads and writes the tables of durable runs, with the tickets that belong to what is written."""

    def __init__(
        self,
        url: str,
        *,
        dispatcher: Dispatcher | None = None,
        grace_s: float = GRACE_S,
        lease_s: float = LEASE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used, or the dispatcher is a name.

        Args:
            url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters that Postgres knows, and two of
                ours: `prepare_threshold=none` behind a pooler in transaction mode, and `direct=HOST:PORT`, the database
                itself, for the one connection of a process that is held.
            dispatcher: What brings the runs to workers. None: Procrastinate.
            grace_s: For so many seconds after the database was started, no process is treated as dead.
            lease_s: A worker that is connected and silent for so many seconds is treated as dead.
            answer_s: A statement that is not answered within so many seconds is cancelled, and made again on another
                connection: one that is half open keeps nobody waiting.
        """
        if isinstance(dispatcher, str):
            raise ValueError(
                f"dispatcher={dispatcher!r} is a name. Leave it out for Procrastinate, or pass an object:"
                " examples/dispatchers has one for PgQueuer, for Celery and for Temporal."
            )
        self.owner = owner_of(secrets.randbits(64))
        self._claiming: Final = asyncio.Lock()
        """One claim at a time: those that wait for their turn in a queue must not have all connections."""
        self._soon: deque[tuple[float, Claim, Record]] = deque()
        """The steps that were written without waiting for the disk, each with the time of the loop and its claim."""
        self.connections: Final = Connections(
            url, owner=self.owner, grace_s=grace_s, answer_s=answer_s, on_renewed=self._write_again
        )
        self.dispatcher: Dispatcher = dispatcher or Procrastinate(self.connections, lease_s=lease_s)
        self._unsent: Final[dict[Connection, list[Callable[[], Awaitable[None]]]]] = {}
        """The tickets that are written when the transaction on a connection has ended."""
        self._numbers: Final[dict[Connection, str]] = {}
        """The numbers of the transactions that go on, as far as they are known."""
        self._limited: Final = set[str]()
        """The runs that were claimed here in queues with limits."""
        self._swept_to = ""
        self._may_make_days = True

    async def hand_over(
        self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: Connection | None = None
    ) -> bool:
        async def work(connection: Connection) -> bool:
            change = await self._lock_run(
                connection, ticket.run, RowRule(partial(hand_over_row, gen=ticket.gen)), now=now
            )
            if change is not None:
                await self._update_run(connection, change, now=now, after_s=after_s)
            return change is not None

        return await self._transact(work) if connection is None else await work(connection)

    async def rescue(self, *, now: float, agents: Collection[str]) -> int:
        async def work(connection: Connection) -> Sequence[Row]:
            owners = [owner for (owner,) in await rows_of(connection, sql.OWNERS)]
            alive = await self.connections.alive(connection, owners)
            dead = [owner for owner in owners if owner not in alive]
            where = "WHERE status = 'running' AND owner = ANY(%s::text[]) AND agent = ANY(%s::text[])"
            return await runs_of(connection, where, [dead, list(agents)]) if dead else ()

        left = await self.connections.patiently(work)
        return sum([await self.hand_over(Ticket(row.id, row.gen), now=now) for row in left])

    async def sweep(self, *, now: float) -> int:
        async def work(connection: Connection) -> int | None:
            if not await rows_of(connection, sql.SWEEPS, [SWEEP_S]):
                return None
            before = now - LATE_S
            late = await rows_of(connection, sql.LATE, [before, before, self._swept_to, _MOST_SWEPT])
            self._swept_to = late[-1][0] if len(late) == _MOST_SWEPT else ""
            unknown = await self.dispatcher.unknown([Ticket(*each) for each in late], connection)
            # In the same transaction: a run that was handed over has its ticket, or neither.
            n_handed = sum([await self.hand_over(each, now=now, connection=connection) for each in unknown])
            for (queue,) in await rows_of(connection, sql.PARKED_QUEUES):
                await self._unpark(connection, restored(queue), now=now)
            return n_handed

        n_handed = await self._transact(work)
        # After that transaction: what a sweep has locked need not wait for the tables.
        if n_handed is not None:
            await self._make_days(now)
        return n_handed or 0

    async def _make_days(self, now: float) -> None:
        """Make the tables of the coming days, or say once that this role may not."""
        may = self._may_make_days and await self._complete_work(lambda each: make_days(each, now), takes_long=True)
        if self._may_make_days and not may:
            self._may_make_days = False
            _log.warning(
                "%s has no tables for the coming days, and this role may not make them: what is stored lies in the"
                " default ones, and is moved when there are others. To make those of three months as another role:"
                ' python -c "from journeyman.durable import schema_sql; print(schema_sql(days=90))" | psql URL',
                self.connections.place,
            )

    async def _enqueue(self, connection: Connection, row: Row, *, now: float, after_s: float = 0.0) -> None:
        enqueue = partial(write_ticket, self.dispatcher, row, now=now, after_s=after_s, connection=connection)
        if self.dispatcher.joins:
            await enqueue()
        else:
            self._unsent[connection].append(enqueue)

    async def _lock_run(self, connection: Connection, id: str, rule: RowRule, *, now: float) -> RowChange | None:
        """Lock a run until the end of the transaction. Return how a rule changes it; None: not at all."""
        # This waits for a change under way: a signal must not find a run that looks as if somebody drove it, when
        # nobody is left who would see the signal.
        found = await rows_of(connection, sql.LOCK_RUN, [storable_value(id)])
        if not found:
            return None
        [[number, *stored]] = found
        self._numbers[connection] = number
        row = row_of(stored)
        after = rule.apply(row, await self._facts(connection, row, now=now, reads=rule.reads))
        return None if after is None else RowChange(row, after)

    async def _facts(self, connection: Connection, row: Row, *, now: float, reads: Collection[FactName]) -> RunFacts:
        facts = dict[str, Any]()
        if "owner_is_dead" in reads and row.status == "running":
            facts["owner_is_dead"] = row.owner not in await self.connections.alive(connection, {row.owner})
        if "n_steps" in reads and (row.lives or row.parent is not None):  # any other has none
            count = "SELECT count(*) FROM jm_steps WHERE run = %s::text"
            facts["n_steps"] = (await rows_of(connection, count, [storable_value(row.id)]))[0][0]
        if "n_busy" in reads:
            busy = "SELECT owner FROM jm_runs WHERE status = 'running' AND queue = %s::text AND id <> %s::text"
            owners = [owner for (owner,) in await rows_of(connection, busy, [storable_value(row.queue), row.id])]
            alive = await self.connections.alive(connection, set(owners))
            facts["n_busy"] = sum([owner in alive for owner in owners])
        return RunFacts(now=now, **facts)

    async def _update_run(self, connection: Connection, change: RowChange, *, now: float, after_s: float = 0.0) -> None:
        """Write what has changed of a run that is locked, and what that means for tickets."""
        row, after = change.row, change.after
        columns = [each for each in sql.COLUMNS if getattr(row, each) != getattr(after, each)]
        if columns:
            is_begun = after.status == "running" != row.status
            values = [storable_value(getattr(after, each)) for each in columns]
            # Nobody waits for the news that a run is driven.
            told = () if is_begun else (self.owner,)
            statement = sql.update_run(columns, tells=not is_begun)
            await connection.execute(statement.encode(), [*values, storable_value(row.id), *told])
        if needs_ticket(row, after):
            await self._enqueue(connection, after, now=now, after_s=after_s)
        elif after.gen != row.gen:
            # A claim without a ticket: those that are on their way would find a run that is driven.
            await self.dispatcher.drop(row.id, connection)
        if row.id in self._limited and row.status == "running" != after.status:
            await self._unpark(connection, row.queue, now=now)

    def _count_in(self, id: str, after: Row | None, rule: RowRule) -> None:
        """Remember, once it is stored, whether a run is driven here in a queue with a limit."""
        if after is not None and after.status != "running":
            self._limited.discard(id)
        elif after is not None and "n_busy" in rule.reads:
            self._limited.add(id)

    async def _store_signal(self, connection: Connection, signal: Signal) -> Taken:
        """Store a signal, in a transaction, and change its run."""
        rule = RowRule(partial(signal_row, kind=signal.kind))
        change = await self._lock_run(connection, signal.run, rule, now=signal.at)
        if change is None:
            return "over"
        which = [storable_value(each) for each in (signal.run, signal.kind, signal.dedup)]
        if await rows_of(connection, sql.KNOWN_SIGNAL, which):
            return "known"
        await self._update_run(connection, change, now=signal.at)
        # At the end: whoever stores another signal waits for this transaction from here on.
        body = json.dumps(signal.body).encode()
        await connection.execute(sql.SIGNAL.encode(), [*which, body, signal.at, storable_value(signal.who)])
        return "taken"

    async def _unpark(self, connection: Connection, queue: str, *, now: float) -> None:
        """Write a ticket for the first run that was brought to a queue when that was full."""
        for run, gen in await rows_of(connection, sql.PARKED, [storable_value(queue)]):
            await self.hand_over(Ticket(restored(run), gen), now=now, connection=connection)

    async def _transact(self, work: Callable[[Connection], Awaitable[T]], *, may_repeat: bool = True) -> T:
        """Do `work` in a transaction that holds once: if no answer to its end comes, the database is asked whether it
        holds. Where the database cannot know, `work` is done again, and finds what it has done.

        Raises:
            StoreError: it cannot be done; or nobody knows whether it was, and it may not be repeated.
        """
        tried: tuple[str, str, T] | None = None

        async def do_once(connection: Connection) -> T:
            nonlocal tried
            if tried is not None:
                *asked, result = tried
                [(outcome,)] = await rows_of(connection, OUTCOME, asked)
                is_held = holds(outcome)
                if is_held is None and not may_repeat:
                    raise StoreError(
                        f"{self.connections.place} was started again in the moment in which something was written, and"
                        " cannot tell whether that is stored.",
                        hint="Look whether it is there before you do it again.",
                    )
                if is_held:
                    return result
                tried = None
            # Before it begins: a number of this server is never taken for one of a later server.
            server = self.connections.client.server
            async with in_transaction(connection):
                self._numbers.pop(connection, None)
                result = await work(connection)
                # Before the end is sent: nobody could ask for it afterwards.
                number = self._numbers.pop(connection, None) or (await rows_of(connection, f"SELECT {NUMBER}"))[0][0]
                tried = number, server, result
            return result

        return await self._complete_work(do_once)

    async def _complete_work(self, work: Callable[[Connection], Awaitable[T]], *, takes_long: bool = False) -> T:
        """Do `work`, also if the waiting is cancelled: what it writes counts."""
        sending = work if self.dispatcher.joins else self._send_tickets_after(work)
        writing = asyncio.ensure_future(self.connections.patiently(sending, takes_long=takes_long))
        try:
            await wait_until_ended(writing)
        except asyncio.CancelledError:
            if not writing.cancelled():
                writing.exception()
            raise
        return writing.result()

    def _send_tickets_after(self, work: Callable[[Connection], Awaitable[T]]) -> Callable[[Connection], Awaitable[T]]:
        """Return `work`, after which its tickets are written. What cannot be written is found by the sweep."""

        async def do_and_send(connection: Connection) -> T:
            unsent = self._unsent[connection] = []
            try:
                result = await work(connection)
            finally:
                del self._unsent[connection]
            # After the commit: a ticket for what was taken back would be one for nothing.
            for enqueue in unsent:
                try:
                    await enqueue()
                except Exception as error:  # noqa: BLE001 - of a queue that may be anybody's, and the run is stored
                    _log.warning("A ticket was not written, so its run begins later: %s", name_and_words(error))
            return result

        return do_and_send

    async def _write_again(self, connection: Connection) -> None:
        """Write what may have been lost with the database, if the claims still hold."""
        n_lost = 0
        # A copy, since steps go on being written.
        for _, claim, record in list(self._soon):
            given = [*written_out(record), storable_value(claim.row.id), claim.epoch]
            n_lost += len(await rows_of(connection, sql.WRITE_SYNCED, given))
        if n_lost:
            _log.warning("%s had lost %d steps, which were written again.", self.connections.place, n_lost)

    async def _store_run(self, connection: Connection, row: Row, records: Sequence[Record], *, is_queued: bool) -> bool:
        """Store a run, in a transaction. False: it is known."""
        if not await rows_of(connection, sql.ADD_RUN, [*map(storable_value, astuple(row)), self.owner]):
            return False
        if records:
            async with connection.cursor() as cursor:
                await cursor.executemany(sql.ADD_STEP.encode(), [written_out(each) for each in records])
        if is_queued and may_be_handed_over(row):
            await self._enqueue(connection, row, now=row.created)
        return True


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

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        async def work(connection: Connection) -> Row:
            # Neither stored nor found: it was forgotten in between, so once more.
            while not await self._store_run(connection, row, records, is_queued=is_queued):
                where = "WHERE name = %s::text OR (agent = %s::text AND dedup = %s::text)"
                known = await runs_of(connection, where, [row.name, row.agent, row.dedup])
                known = known or await runs_of(connection, "WHERE id = %s::text", [row.id])
                if known:
                    return known[0]
            return row

        return await self._transact(work)

    async def get(self, id: str) -> Row | None:
        where = "WHERE id = %s::text OR name = %s::text ORDER BY id = %s::text DESC LIMIT 1"
        found = await self.connections.patiently(lambda connection: runs_of(connection, where, [id, id, id]))
        return found[0] if found else None

    async def glance(self, id: str) -> RunGlance | None:
        query = f"SELECT {', '.join(RunGlance._fields)} FROM jm_runs WHERE id = %s::text"
        return next((RunGlance(*each) for each in await self._find(query, id)), None)

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
        found = await self._find(query, *given, which.get("limit", 100))
        return [ListedRun(**dict(zip(columns, each, strict=True))) for each in found]

    async def queues(self, *, now: float) -> Sequence[QueueState]:
        query = QUEUES.format(now="%(now)s::float8")
        found = await self.connections.patiently(lambda connection: rows_of(connection, query, {"now": now}))
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

        return await self.connections.patiently(work)

    async def change(self, id: str, rule: RowRule, *, now: float, **options: Unpack[WriteOptions]) -> Row | None:
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
            if (says := options.get("says")) is not None:
                await add_said(connection, id, says, at=now)
            if (posts := options.get("posts")) is not None:
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
        found = await self._find(READ.format("%s::text"), id)
        return readable_records([SessionRecord(*each) for each in found], id, n_runs)[1]

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[SessionHead]:
        found = await self._find(_SESSIONS, prefix, *(older_than or ListPlace(math.inf, "")), limit)
        return [SessionHead(*each) for each in found]

    async def delete_session(self, id: str) -> None:
        # In a thread: it waits for the network on a connection of its own.
        await asyncio.to_thread(PostgresSessions(self.connections.database.url).delete, id)

    async def find_dead(self, owners: Collection[str]) -> Collection[str]:
        alive = await self.connections.patiently(lambda connection: self.connections.alive(connection, owners))
        return {*owners}.difference(alive)

    async def records(self, id: str, *, key: str | None = None) -> Sequence[Record]:
        of_step, given = ("", [id]) if key is None else (" AND key = %s::text", [id, key])
        query = f"SELECT {sql.STEP} FROM jm_steps WHERE run = %s::text{of_step} ORDER BY n"
        return [Record(*each) for each in await self._find(query, *given)]

    async def write(self, claim: Claim, record: Record, **options: Unpack[WriteOptions]) -> Written:
        given = [*written_out(record), storable_value(claim.row.id), claim.epoch]
        starts, posts = options.get("starts"), options.get("posts")
        has_more, is_sent = starts is not None or posts is not None, False
        is_synced = has_more or options.get("is_synced", False)

        async def work(connection: Connection) -> Written:
            nonlocal is_sent
            is_again, is_sent = is_sent, True
            if await rows_of(connection, sql.WRITE_SYNCED if is_synced else sql.WRITE_SOON, given):
                if starts is not None:
                    await self._store_run(connection, starts, (), is_queued=True)
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
        return [*map(signal_of, await self._find(query, after, *(() if run is None else (run,))))]

    async def newest(self) -> int:
        return (await self._find("SELECT coalesce(max(n), 0) FROM jm_signals"))[0][0]

    async def _find(self, query: str, *given: object) -> list[list[Any]]:
        """Return the rows of a query. Each value is as it was before it was stored."""
        asked = [storable_value(each) for each in given]
        found = await self.connections.patiently(lambda connection: rows_of(connection, query, asked))
        return [[*map(restored, row)] for row in found]


if TYPE_CHECKING:
    _engine: type[Engine] = PostgresEngine

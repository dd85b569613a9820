"""The foundation of the engine on Postgres: connections, transactions with their tickets, and records that are written
soon."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from journeyman.cancellation import wait_until_ended
from journeyman.durable.dispatch import LATE_S, LEASE_S, SWEEP_S, Dispatcher, Ticket, may_be_handed_over, write_ticket
from journeyman.durable.engine import RunChanges, Taken
from journeyman.durable.postgres import statements as sql
from journeyman.durable.postgres.connections import (
    ANSWER_S,
    Connections,
    owner_of,
    restored,
    row_of,
    runs_of,
    storable_value,
    written_out,
)
from journeyman.durable.postgres.days import make_days
from journeyman.durable.postgres.procrastinate import Procrastinate
from journeyman.durable.records import Claim, Record, Row
from journeyman.durable.rules import FactName, RowRule, RunFacts, hand_over_row, needs_ticket, signal_row
from journeyman.errors import StoreError, name_and_words
from journeyman.inbox.signals import Signal
from journeyman.store.client import in_transaction, rows_of
from journeyman.store.database import NUMBER, OUTCOME, holds

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
        """What was written without waiting for the disk, with the time of the event loop."""
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

    # -- tickets

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

        left = await self.read(work)
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

    # -- inside

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

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` on a connection, and again on another one when that breaks."""
        return await self.connections.patiently(work)

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

    async def _added(self, connection: Connection, row: Row, records: Sequence[Record], *, is_queued: bool) -> bool:
        """Store a run, in a transaction. False: it is known."""
        if not await rows_of(connection, sql.ADD_RUN, [*map(storable_value, astuple(row)), self.owner]):
            return False
        if records:
            async with connection.cursor() as cursor:
                await cursor.executemany(sql.ADD_STEP.encode(), [written_out(each) for each in records])
        if is_queued and may_be_handed_over(row):
            await self._enqueue(connection, row, now=row.created)
        return True

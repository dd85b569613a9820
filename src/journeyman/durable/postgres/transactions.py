"""The foundation of the engine on Postgres: connections, transactions with their tickets, and records that are written
soon."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from journeyman.cancellation import wait_until_ended
from journeyman.durable.dispatch import LATE_S, LEASE_S, SWEEP_S, Dispatcher, Ticket, may_be_handed_over, urgency
from journeyman.durable.engine import MOST_DEATHS
from journeyman.durable.memory import killer
from journeyman.durable.postgres import statements as sql
from journeyman.durable.postgres.connections import (
    ANSWER_S,
    Connections,
    add_lines,
    owner_of,
    restored,
    row_of,
    rows_of,
    run_of,
    runs_of,
    storable_value,
    written_out,
)
from journeyman.durable.postgres.days import make_days
from journeyman.durable.postgres.procrastinate import Procrastinate
from journeyman.durable.records import Change, Claim, Record, Row, Signal
from journeyman.errors import name_and_words

if TYPE_CHECKING:
    from journeyman.durable.postgres.connections import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")
# A sweep must not take long, since it is a transaction.
_MOST_SWEPT: Final = 5_000  # the next sweep goes on behind those
KEPT_S: Final = 5.0
"""So long what was written without waiting for the disk is kept: Postgres writes it within a second. A database that
restarts after a crash may have lost what was written in between."""
# After a restart of the database, its processes need a moment until they hold their locks again.
GRACE_S: Final = 10.0


class Transactions:
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
        """One claim at a time, so that one whose answer was lost is known by its epoch."""
        self._soon: deque[tuple[float, Claim, Record]] = deque()
        """What was written without waiting for the disk, with the time of the event loop."""
        self.connections: Final = Connections(
            url, owner=self.owner, grace_s=grace_s, answer_s=answer_s, on_renewed=self._write_again
        )
        self.dispatcher: Dispatcher = dispatcher or Procrastinate(self.connections, lease_s=lease_s)
        self._unsent: Final[dict[Connection, list[Callable[[], Awaitable[None]]]]] = {}
        """The tickets that are written when the transaction on a connection has ended."""
        self._limited: Final = set[tuple[str, int]]()
        """The runs and epochs that were claimed here in queues with limits."""
        self._swept_to = ""
        self._may_make_days = True

    # -- tickets

    async def hand_over(
        self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: Connection | None = None
    ) -> bool:
        async def work(connection: Connection) -> bool:
            handed = await rows_of(connection, sql.HAND_OVER, [storable_value(ticket.run), ticket.gen])
            for each in handed:
                await self._enqueue(connection, row_of(each), now=now, after_s=after_s)
            return bool(handed)

        async def alone(connection: Connection, _: bool) -> bool:
            async with connection.transaction():
                return await work(connection)

        return await self.written(alone) if connection is None else await work(connection)

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
        async def work(connection: Connection, _: bool) -> int | None:
            async with connection.transaction():
                if not await rows_of(connection, sql.SWEEPS, [SWEEP_S]):
                    return None
                before = now - LATE_S
                late = await rows_of(connection, sql.LATE, [before, before, self._swept_to, _MOST_SWEPT])
                self._swept_to = late[-1][0] if len(late) == _MOST_SWEPT else ""
                unknown = await self.dispatcher.unknown([Ticket(*each) for each in late], connection)
                # In the same transaction: a run that was handed over has its ticket, or neither.
                n_handed = sum([await self.hand_over(each, now=now, connection=connection) for each in unknown])
                for (queue,) in await rows_of(connection, sql.PARKED):
                    await self.unpark(connection, restored(queue), now=now)
                return n_handed

        n_handed = await self.written(work)
        # After that transaction: what a sweep has locked need not wait for the tables.
        if n_handed is not None:
            await self._make_days(now)
        return n_handed or 0

    # -- inside

    async def _make_days(self, now: float) -> None:
        """Make the tables of the coming days, or say once that this role may not."""
        may = self._may_make_days and await self.written(lambda each, _: make_days(each, now), takes_long=True)
        if self._may_make_days and not may:
            self._may_make_days = False
            _log.warning(
                "%s has no tables for the coming days, and this role may not make them: what is stored lies in the"
                " default ones, and is moved when there are others. To make those of three months as another role:"
                ' python -c "from journeyman.durable import schema_sql; print(schema_sql(days=90))" | psql URL',
                self.connections.place,
            )

    async def _enqueue(self, connection: Connection, row: Row, *, now: float, after_s: float = 0.0) -> None:
        enqueue = partial(
            self.dispatcher.enqueue,
            Ticket(row.id, row.gen),
            agent=row.agent,
            queue=row.queue,
            priority=urgency(row),
            after_s=max(after_s, (row.wake or now) - now, 0.0),
            connection=connection,
        )
        if self.dispatcher.joins:
            await enqueue()
        else:
            self._unsent[connection].append(enqueue)

    async def _posted(self, connection: Connection, signal: Signal) -> bool:
        """Store a signal, in a transaction, and write a ticket for the run that it wakes. False: it is known, or the
        run is over. A `UniqueViolation` says that the same was stored in this moment."""
        where = [storable_value(each) for each in (signal.run, signal.kind, signal.dedup)]
        body = json.dumps(signal.body).encode()
        given = [where[0], *where, *where[1:], body, signal.at, storable_value(signal.who), self.owner]
        told = await rows_of(connection, sql.SIGNAL[signal.kind], given)
        if told and told[0][1] and (woken := await run_of(connection, signal.run)):
            await self._enqueue(connection, woken, now=signal.at)
        return bool(told)

    async def unpark(self, connection: Connection, queue: str, *, now: float) -> None:
        """Write a ticket for the first run that was brought to a queue when that was full."""
        for (run,) in await rows_of(connection, sql.UNPARK, [storable_value(queue)]):
            if (first := await run_of(connection, run)) is not None:
                await self.hand_over(Ticket(run, first.gen), now=now, connection=connection)

    async def _follows(
        self, connection: Connection, after: Row, change: Change, posts: Signal | None, *, now: float
    ) -> None:
        """Write what belongs to a run that was given back: to its session, its ticket, and to whoever is told."""
        if change.lines:
            await add_lines(connection, change.session, change.lines, at=now)
        if may_be_handed_over(after):
            await self._enqueue(connection, after, now=now)
        if posts is not None:
            await self._posted(connection, posts)

    async def _changed(self, connection: Connection, row: Row, after: Row) -> bool:
        """Write what a claim changes of a run, if it is as it was read."""
        old = [row.id, row.epoch, row.gen, row.n_signals, row.status]
        is_done = bool(
            await rows_of(connection, sql.CLAIM, [storable_value(getattr(after, each)) for each in sql.CLAIMED] + old)
        )
        # A claim without a ticket: those that are on their way would find a run that is driven.
        if is_done and after.gen != row.gen:
            await self.dispatcher.drop(row.id, connection)
        return is_done

    async def _unclaimed(self, claim: Claim, *, now: float) -> None:
        after = replace(claim.row, status="ready", gen=claim.row.gen + 1)

        async def work(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                if await rows_of(connection, sql.UNCLAIM, [storable_value(after.id), claim.epoch, self.owner]):
                    await self._enqueue(connection, after, now=now)

        await self.written(work)

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` on a connection, and again on another one when that breaks."""
        return await self.connections.patiently(lambda connection, _: work(connection))

    async def written(self, work: Callable[[Connection, bool], Awaitable[T]], *, takes_long: bool = False) -> T:
        """Do `work`, also if the waiting is cancelled: what it writes counts."""
        sending = work if self.dispatcher.joins else self._sent(work)
        writing = asyncio.ensure_future(self.connections.patiently(sending, takes_long=takes_long))
        try:
            await wait_until_ended(writing)
        except asyncio.CancelledError:
            if not writing.cancelled():
                writing.exception()
            raise
        return writing.result()

    def _sent(self, work: Callable[[Connection, bool], Awaitable[T]]) -> Callable[[Connection, bool], Awaitable[T]]:
        """Return `work`, after which its tickets are written. What cannot be written is found by the sweep."""

        async def done(connection: Connection, is_again: bool) -> T:
            unsent = self._unsent[connection] = []
            try:
                result = await work(connection, is_again)
            finally:
                del self._unsent[connection]
            # After the commit: a ticket for what was taken back would be one for nothing.
            for enqueue in unsent:
                try:
                    await enqueue()
                except Exception as error:  # noqa: BLE001 - of a queue that may be anybody's, and the run is stored
                    _log.warning("A ticket was not written, so its run begins later: %s", name_and_words(error))
            return result

        return done

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
        async with connection.transaction():
            if not await rows_of(connection, sql.ADD_RUN, [*map(storable_value, astuple(row)), self.owner]):
                return False
            if records:
                async with connection.cursor() as cursor:
                    await cursor.executemany(sql.ADD_STEP.encode(), [written_out(each) for each in records])
            if is_queued and may_be_handed_over(row):
                await self._enqueue(connection, row, now=row.created)
            return True

    async def _is_full(self, connection: Connection, row: Row, at_once: int | None, *, parks: bool) -> bool:
        """Tell whether as many runs of a queue go on as may. Nobody else asks until the end of the transaction.

        With `parks` the run gets a ticket when another one leaves the queue.
        """
        if at_once is None:
            return False
        await rows_of(connection, sql.QUEUE_LOCK, [storable_value(row.queue)])
        busy = "SELECT owner FROM jm_runs WHERE status = 'running' AND queue = %s::text AND id <> %s::text"
        owners = [owner for (owner,) in await rows_of(connection, busy, [storable_value(row.queue), row.id])]
        alive = await self.connections.alive(connection, set(owners))
        is_full = sum([owner in alive for owner in owners]) >= at_once
        if is_full and parks:
            await rows_of(connection, sql.PARK, [row.id, storable_value(row.queue)])
        return is_full

    async def _claimed(self, connection: Connection, row: Row, *, died: bool, head: bytes | None) -> Row:
        """Return a run as it is once it is claimed; or blocked, if it takes its processes down."""
        n_steps = 0
        if row.lives or row.parent is not None:  # a run that is neither a fork nor was driven has none
            count = "SELECT count(*) FROM jm_steps WHERE run = %s::text"
            n_steps = (await rows_of(connection, count, [storable_value(row.id)]))[0][0]
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


def until_new(work: Callable[[Connection, bool], Awaitable[T]]) -> Callable[[Connection, bool], Awaitable[T]]:
    """Return what does `work` again when somebody else has stored the same signal in this moment, and when two have
    waited for each other: nothing of it was stored then."""

    async def again(connection: Connection, is_again: bool) -> T:
        from psycopg.errors import DeadlockDetected, UniqueViolation

        while True:
            try:
                return await work(connection, is_again)
            except (UniqueViolation, DeadlockDetected):
                continue

    return again

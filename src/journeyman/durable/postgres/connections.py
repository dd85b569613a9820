"""The connections of one process to the Postgres of its durable runs.

One connection is held for as long as the process has the store open: it holds a lock with the owner's number, which
Postgres releases when the process dies, and hears what other processes have written. The others are lent for a
statement or a transaction. A database that is away is waited for, as a busy file is.

At the end is how rows are kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journeyman.durable.postgres import statements as sql
from journeyman.durable.records import Change, Record, Row
from journeyman.store.client import Client, is_read_only, rows_of, take_lock_of, wait_in_loop
from journeyman.store.database import HELD, Database, restored, storable_value
from journeyman.store.log import seal_records
from journeyman.store.postgres import LOCK_AND_COUNT
from journeyman.store.postgres import WRITE as WRITE_SESSION

if TYPE_CHECKING:
    from journeyman.store.client import Connection

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How many seconds to wait for a database that is away before that is an error. Whoever drives a run tries again by
itself; everybody else should learn of it."""
ANSWER_S: Final = 30.0
"""How many seconds to wait for an answer before the statement is cancelled, and the connection counts as lost."""
# With the one that is held, 100 workers have 400 of them, and Postgres has a process for each.
_MOST_LENT: Final = 3
_ALIVE: Final = f"SELECT number FROM ({HELD}) AS held"
_IS_YOUNG: Final = "pg_postmaster_start_time() > now() - make_interval(secs => %s::float8)"
"""Tells whether the database was started so short a time ago that those who live may not have connected again."""


class Connections:
    """The connections to one database. They are used from one event loop."""

    def __init__(
        self,
        url: str,
        *,
        owner: str,
        grace_s: float,
        answer_s: float,
        on_renewed: Callable[[Connection], Awaitable[None]],
    ) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used.

        For `grace_s` seconds after the database was started, no process is treated as dead. A connection on which no
        answer comes within `answer_s` seconds counts as lost. `on_renewed` is called with a connection before anything
        else when the one that is held was lost: what was not on the disk then may be lost, too.
        """
        self.database: Final = Database(url)
        self._owner, self._grace_s, self._answer_s, self._on_renewed = owner, grace_s, answer_s, on_renewed
        self.client: Final = Client(
            self.database,
            waiting=wait_in_loop(answer_s),
            name=owner,
            channel=sql.CHANNEL,
            take=self._take,
            # By which an administrator sees whose connection it is.
            unless_given={"application_name": f"journeyman {owner}"},
        )
        """Has the connection that is held."""
        self.place: Final = self.database.place
        """The database, for messages: without a password."""
        self._free: list[Connection] = []
        self._used: set[Connection] = set()
        """Those that are lent."""
        self._attempts = set[asyncio.Timeout]()
        """What goes on with them, or waits for one: its time is up when all is closed."""
        self._room = asyncio.Semaphore(_MOST_LENT)
        self._wake: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ear: int | None = None
        """A second number of the held connection's socket: the driver watches the first one itself, now and then."""

    def close(self) -> None:
        """Close all connections, from any event loop. What waits for an answer fails: a driver that is interrupted
        would ask the database to cancel the statement, and wait for that."""
        self._close_ear()
        self.client.close()
        for each in (*self._free, *self._used):
            each.pgconn.finish()
        self._free.clear()
        for attempt in self._attempts:
            attempt.reschedule(0.0)

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` as soon as another process has written."""
        self._wake, self._loop = wake, asyncio.get_running_loop()
        self._listen()

    def _listen(self) -> None:
        self._close_ear()
        if self._loop is not None and self.client.held is not None and not self.client.is_lost:
            self._ear = os.dup(self.client.held.pgconn.socket)
            self._loop.add_reader(self._ear, self._hear)

    def _hear(self) -> None:
        if not self.client.hear():
            self._close_ear()
            self._wake()
        elif self.client.is_told:
            self._wake()

    def _close_ear(self) -> None:
        if self._ear is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._ear)
            os.close(self._ear)
            self._ear = None

    async def patiently(self, work: Callable[[Connection], Awaitable[T]], *, takes_long: bool = False) -> T:
        """Do `work` with a connection; again, as long as the database is away: it may have been done before, and only
        its answer was lost. `takes_long`: it is waited for however long it takes.

        Raises:
            StoreError: it cannot be done.
        """

        async def attempt() -> T:
            async with self._until_closed(), self._lent() as connection:
                async with asyncio.timeout(None if takes_long else self._answer_s):
                    return await work(connection)

        return await self.client.patiently(attempt, "used", patience_s=PATIENCE_S)

    @asynccontextmanager
    async def _until_closed(self) -> AsyncGenerator[None]:
        """Do what is in the block until all is closed: then it fails with a `TimeoutError`."""
        async with asyncio.timeout(None) as attempt:
            self._attempts.add(attempt)
            try:
                yield
            finally:
                self._attempts.discard(attempt)

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[Connection]:
        async with self._room:
            if self.client.is_lost:
                await self.client.hold()
                self._listen()
            connection = self._free.pop() if self._free else await self.client.connect()
            self._used.add(connection)
            try:
                yield connection
            except BaseException as error:
                await self._look_after(connection, error)
                raise
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        from psycopg.pq import TransactionStatus

        self._used.discard(connection)
        # A connection that is in the middle of a transaction is given to nobody.
        if not self.client.is_closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._free.append(connection)
        else:
            connection.pgconn.finish()

    async def _look_after(self, connection: Connection, error: BaseException) -> None:
        """Give a connection back that has failed. If it is lost, so may be the others."""
        is_lost = connection.closed or is_read_only(error)
        self._give_back(connection)
        if not is_lost:
            return
        # The others were made to the same server, and would fail one by one.
        for each in self._free:
            each.pgconn.finish()
        self._free.clear()
        if (held := self.client.held) is not None and not held.closed:
            try:
                async with asyncio.timeout(self._answer_s):
                    await held.execute(b"SELECT 1")
            except Exception:  # noqa: BLE001 - whatever it is, the connection cannot be used
                held.pgconn.finish()

    async def _take(self, connection: Connection) -> None:
        await take_lock_of(self._owner, connection)
        if self.client.held is not None:
            # What was lost is written before anybody else uses the database again.
            await self._on_renewed(connection)

    async def alive(self, connection: Connection, owners: Collection[str | None]) -> Collection[str | None]:
        """Return those of some owners that live."""
        # This process lives: nobody has to be asked.
        if not set(owners) - {self._owner}:
            return owners
        if (await rows_of(connection, f"SELECT {_IS_YOUNG}", [self._grace_s]))[0][0]:
            return owners
        numbers = await rows_of(connection, _ALIVE)
        return {self._owner, *[owner_of(number) for (number,) in numbers]}.intersection(owners)


def owner_of(number: int) -> str:
    """Return the name of the owner whose lock has this number."""
    return f"w{number % (1 << 64):016x}"


def row_of(stored: Sequence[Any]) -> Row:
    return Row(**dict(zip(sql.COLUMNS, map(restored, stored), strict=True)))


def written_out(record: Record) -> list[Any]:
    return [storable_value(each) for each in record]


def record_of(stored: Sequence[Any]) -> Record:
    return Record(*map(restored, stored))


async def runs_of(connection: Connection, where: str, given: Sequence[Any]) -> list[Row]:
    found = await rows_of(
        connection, f"SELECT {sql.LIST} FROM jm_runs {where}", [storable_value(each) for each in given]
    )
    return [row_of(each) for each in found]


async def add_said(connection: Connection, run: str, says: Change, *, at: float) -> None:
    """Write what a change of a run says, in a transaction: the last step, and lines at the end of a conversation."""
    if says.end is not None:
        await connection.execute(sql.ADD_STEP.encode(), written_out(says.end))
    if not says.lines:
        return
    n = 0
    if says.conversation != run:  # a run by itself has said nothing before, and nobody else writes there
        lock, count = LOCK_AND_COUNT
        await connection.execute(lock.encode(), [says.conversation])
        [(n,)] = await rows_of(connection, count, [says.conversation])
    records = seal_records(says.conversation, says.lines, after=n, at=at)
    await connection.execute(WRITE_SESSION.encode(), [*map(list, zip(*records, strict=True))])

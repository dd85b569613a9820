"""The connections of one process to the Postgres of its durable runs.

One connection is held for as long as the process has the store open: it holds a lock with the owner's number, which
Postgres releases when the process dies, and hears what other processes have written. The others are lent for a
statement or a transaction. A database that is away is waited for, as a busy file is.

At the end is how rows are kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from journeyman.durable.postgres import statements as sql
from journeyman.durable.records import Record, Row, Signal
from journeyman.errors import StoreError
from journeyman.session import Snapshot
from journeyman.store.database import (
    END_OLD,
    GET_VERSION,
    HAS_VERSION,
    HELD,
    NOTICED,
    Database,
    check_installed,
    lock_number,
    make_tables,
    restored,
    storable_value,
)
from journeyman.store.log import NewRecord, SessionRecord, readable_records, seal_records
from journeyman.store.postgres import LOCK_AND_COUNT
from journeyman.store.postgres import WRITE as WRITE_SESSION
from journeyman.store.sessions import READ as READ_SESSION

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
    """A connection to the database, as psycopg has it."""

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How many seconds to wait for a database that is away before that is an error. Whoever drives a run tries again by
itself; everybody else should learn of it."""
ANSWER_S: Final = 30.0
"""How many seconds to wait for an answer before the statement is cancelled, and the connection counts as lost."""
# At first soon, since most faults are over at once; then less and less often.
_AGAIN_S, _SELDOM_S = 0.02, 0.5
_POLL_S: Final = 1.0
"""How often, in seconds, a process looks for news of which nobody has told it."""
# With the one that is held, 100 workers have 400 of them, and Postgres has a process for each.
_MOST_LENT: Final = 3
_READ_ONLY: Final = "25006"
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
        self.place: Final = self.database.place
        """The database, for messages: without a password."""
        self.server = ""
        """The server that it is connected to, by the name that it has until it is started again."""
        self._is_open = False
        self._held: Connection | None = None
        """Holds the owner's lock."""
        self._free: list[Connection] = []
        self._used: set[Connection] = set()
        """Those that are lent."""
        self._attempts = set[asyncio.Timeout]()
        """What goes on with them, or waits for one: its time is up when all is closed."""
        self._room = asyncio.Semaphore(_MOST_LENT)
        self._holding = asyncio.Lock()
        self._looked_s = -_POLL_S
        self._is_told = False
        """True when somebody else has said that it has written something."""
        self._wake: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ear: int | None = None
        """A second number of the held connection's socket: the driver watches the first one itself, now and then."""

    async def open(self) -> None:
        """Connect, and make the tables if they are not there.

        Raises:
            StoreError: the database cannot be used.
        """
        check_installed("Durable runs")
        try:
            self._held = await self._hold()
            await _prepare(self._held, self.database)
        except BaseException as error:
            self.close()
            raise self._fault(error, "opened") from error
        self._is_open = True

    def close(self) -> None:
        """Close all connections, from any event loop. What waits for an answer fails: a driver that is interrupted
        would ask the database to cancel the statement, and wait for that."""
        self._is_open = False
        self._close_held()
        for each in (*self._free, *self._used):
            each.pgconn.finish()
        self._free.clear()
        for attempt in self._attempts:
            attempt.reschedule(0.0)

    def has_news(self) -> bool:
        """Tell whether another process may have written, without waiting for the database."""
        now_s = asyncio.get_running_loop().time()
        # The lock is lost with it: whoever asks next connects again, and looks at everything.
        if self._held is None or self._held.closed:
            return self._is_open
        if not self._hear():
            return True
        has_news = self._is_told or now_s - self._looked_s >= _POLL_S
        self._is_told = False
        if has_news:
            self._looked_s = now_s
        return has_news

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` as soon as another process has written."""
        self._wake = wake
        self._listen()

    def _listen(self) -> None:
        if self._held is not None and not self._held.closed and self._ear is None:
            self._ear = os.dup(self._held.pgconn.socket)
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._ear, lambda: self._wake() if not self._hear() or self._is_told else None)

    def _hear(self) -> bool:
        """Read what others have said. False: the connection is lost, and the next call makes another one."""
        from psycopg import Error
        from psycopg.pq import TransactionStatus

        held = self._held
        if held is None or held.closed:
            self._close_held()
            return False
        if held.pgconn.transaction_status == TransactionStatus.ACTIVE:
            return True  # the driver reads an answer
        try:
            # Without a question to the server: what it has told lies in the socket already.
            held.pgconn.consume_input()
            while (told := held.pgconn.notifies()) is not None:
                self._is_told = self._is_told or told.extra.decode() != self._owner
        except Error:
            self._close_held()
            return False
        return True

    def _close_held(self) -> None:
        if self._ear is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._ear)
            os.close(self._ear)
            self._ear = None
        if self._held is not None:
            self._held.pgconn.finish()

    async def patiently(self, work: Callable[[Connection], Awaitable[T]], *, takes_long: bool = False) -> T:
        """Do `work` with a connection; again, as long as the database is away: it may have been done before, and only
        its answer was lost. `takes_long`: it is waited for however long it takes.

        Raises:
            StoreError: it cannot be done.
        """
        loop = asyncio.get_running_loop()
        until, wait_s = loop.time() + PATIENCE_S, _AGAIN_S
        while True:
            try:
                async with self._until_closed(), self._lent() as connection:
                    async with asyncio.timeout(None if takes_long else self._answer_s):
                        return await work(connection)
            except Exception as error:
                fault = self._fault(error, "used") if self._is_open else self._closed()
                if not fault.may_pass or not self._is_open or loop.time() > until:
                    raise fault from error
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _SELDOM_S)

    def _fault(self, error: BaseException, what: str) -> StoreError:
        if isinstance(error, TimeoutError):
            late = f"{self.place} has not answered within {self._answer_s:g} s."
            return StoreError(late, hint="Look whether it runs, and what it waits for.", may_pass=True)
        return self.database.explained(error, what)

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
        self._check_open()
        async with self._room:
            if self._held is None or self._held.closed:
                await self._hold_again()
            connection = self._free.pop() if self._free else await self.connected()
            self._used.add(connection)
            try:
                yield connection
            except BaseException as error:
                # What was the primary may be a copy now, which can only be read.
                await self._look_after(connection, is_lost=getattr(error, "sqlstate", None) == _READ_ONLY)
                raise
            self._give_back(connection)

    def _check_open(self) -> None:
        if not self._is_open:
            raise self._closed()

    def _closed(self) -> StoreError:
        return StoreError(f"{self.place} was closed.", hint="Open another Durable on it.")

    def _give_back(self, connection: Connection) -> None:
        from psycopg.pq import TransactionStatus

        self._used.discard(connection)
        # A connection that is in the middle of a transaction is given to nobody.
        if self._is_open and connection.info.transaction_status == TransactionStatus.IDLE:
            self._free.append(connection)
        else:
            connection.pgconn.finish()

    async def _look_after(self, connection: Connection, *, is_lost: bool) -> None:
        """Give a connection back that has failed. If it is lost, so may be the others."""
        is_broken = connection.closed
        self._give_back(connection)
        if not is_lost and not is_broken:
            return
        # The others were made to the same server, and would fail one by one.
        for each in self._free:
            each.pgconn.finish()
        self._free.clear()
        async with self._holding:
            if self._held is not None and not self._held.closed:
                try:
                    async with asyncio.timeout(self._answer_s):
                        await self._held.execute(b"SELECT 1")
                except Exception:  # noqa: BLE001 - whatever it is, the connection cannot be used
                    is_lost = True
                if is_lost:
                    self._close_held()

    async def connected(self, *, is_direct: bool = False) -> Connection:
        """Return another connection. `is_direct`: to the database itself, and not to a pooler before it."""
        from psycopg import AsyncConnection

        # The name by which an administrator sees whose connection it is.
        given = self.database.parameters(is_direct=is_direct, application_name=f"journeyman {self._owner}")
        threshold = self.database.prepare_threshold
        return await AsyncConnection.connect("", autocommit=True, prepare_threshold=threshold, **given)

    async def alive(self, connection: Connection, owners: Collection[str | None]) -> Collection[str | None]:
        """Return those of some owners that live."""
        # This process lives: nobody has to be asked.
        if not set(owners) - {self._owner}:
            return owners
        if (await rows_of(connection, f"SELECT {_IS_YOUNG}", [self._grace_s]))[0][0]:
            return owners
        numbers = await rows_of(connection, _ALIVE)
        return {self._owner, *[owner_of(number) for (number,) in numbers]}.intersection(owners)

    async def listening(self) -> Connection:
        """Return a connection to the database itself, which the caller closes."""
        return await self.connected(is_direct=True)

    async def _hold_again(self) -> None:
        async with self._holding:
            if self._held is None or self._held.closed:
                held = await self._hold()
                try:
                    # What was lost is written before anybody else uses the database again.
                    await self._on_renewed(held)
                    self._check_open()  # who has closed it meanwhile did not see this connection, nor its lock
                except BaseException:
                    held.pgconn.finish()
                    raise
                self._close_held()
                self._held = held
                self._looked_s = -_POLL_S  # nobody was told anything meanwhile
                if self._loop is not None:
                    self._listen()

    async def _hold(self) -> Connection:
        """Return a connection that holds the owner's lock, and hears what is written."""
        connection = await self.connected(is_direct=True)
        try:
            number = lock_number(self._owner)
            async with asyncio.timeout(self._answer_s):
                found = await (await connection.execute(NOTICED.encode())).fetchone()
            assert found is not None
            self.database.check_number(connection.info.backend_pid, found[0])
            self.server = found[1]
            async with asyncio.timeout(self._answer_s):
                # Whoever holds the lock by now is a connection of this process that was lost.
                await connection.execute(END_OLD.encode(), (number,))
                await connection.execute(b"SELECT pg_advisory_lock(%s::bigint)", (number,))
                await connection.execute(f"LISTEN {sql.CHANNEL}".encode())
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection


def owner_of(number: int) -> str:
    """Return the name of the owner whose lock has this number."""
    return f"w{number % (1 << 64):016x}"


async def _prepare(connection: Connection, database: Database) -> None:
    """Make the tables that are not there."""
    found = await (await connection.execute(HAS_VERSION.encode())).fetchone()
    version = None
    if found is not None and found[0]:
        made = await (await connection.execute(GET_VERSION.encode())).fetchone()
        version = None if made is None else made[0]
    info = connection.info
    if database.lacks_tables(info.server_version, info.parameter_status("server_encoding"), version):
        await connection.execute(make_tables().encode())


@asynccontextmanager
async def in_transaction(connection: Connection) -> AsyncGenerator[None]:
    """Do what is in the block in a transaction.

    In a pipeline: no statement waits for the answer to the one before. Whoever reads rows waits, and so does the end.
    """
    from psycopg import Error

    failed: BaseException | None = None
    try:
        async with connection.pipeline():
            # The driver warns in the log of an error that leaves a pipeline whose connection is lost: so none leaves.
            try:
                await connection.execute(b"BEGIN")
                yield
                await connection.execute(b"COMMIT")
            except BaseException as error:  # noqa: BLE001 - raised below
                failed = error
    except Error as error:
        failed = failed or error
    if failed is not None:
        if not connection.closed:
            await connection.rollback()
        raise failed


# -- values ------------------------------------------------------------------------------------------------------------


async def rows_of(
    connection: Connection, query: str, given: Sequence[object] | Mapping[str, object] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows that a statement gives back."""
    # As text, bytes would come as hexadecimal digits, twice as long.
    cursor = connection.cursor(binary=True)
    await cursor.execute(query.encode(), given or None)
    return await cursor.fetchall()


def row_of(stored: Sequence[Any]) -> Row:
    return Row(**dict(zip(sql.COLUMNS, map(restored, stored), strict=True)))


def written_out(record: Record) -> list[Any]:
    return [storable_value(each) for each in record]


def record_of(stored: Sequence[Any]) -> Record:
    return Record(*map(restored, stored))


def signal_of(stored: Sequence[Any]) -> Signal:
    n, run, kind, dedup, body, at, who = map(restored, stored)
    return Signal(n, run, kind, dedup, json.loads(body), at, who)


async def runs_of(connection: Connection, where: str, given: Sequence[Any]) -> list[Row]:
    found = await rows_of(
        connection, f"SELECT {sql.LIST} FROM jm_runs {where}", [storable_value(each) for each in given]
    )
    return [row_of(each) for each in found]


# -- sessions ----------------------------------------------------------------------------------------------------------


async def conversation_of(connection: Connection, session: str) -> Snapshot:
    """Return what is stored of a session."""
    found = await rows_of(connection, READ_SESSION.format("%s::text"), [session])
    return readable_records([SessionRecord(*each) for each in found], session)[1]


async def add_lines(connection: Connection, session: str, lines: Sequence[NewRecord], *, at: float) -> None:
    """Write lines at the end of a session that is stored, in a transaction."""
    lock, count = LOCK_AND_COUNT
    await connection.execute(lock.encode(), [session])
    [(n,)] = await rows_of(connection, count, [session])
    records = seal_records(session, lines, after=n, at=at)
    await connection.execute(WRITE_SESSION.encode(), [*map(list, zip(*records, strict=True))])

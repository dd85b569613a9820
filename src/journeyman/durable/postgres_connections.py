"""The connections of one process to the Postgres of its durable runs.

One connection is held for as long as the process has the store open: it holds a lock with the owner's number, which
Postgres releases when the process dies, and hears what other processes have written. The others are lent for a
statement or a transaction. A database that is away is waited for, as a busy file is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from journeyman.errors import StoreError
from journeyman.store.database import GET_VERSION, HAS_VERSION, HELD, MAKE, NOTICED, Database, check_installed

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]

T = TypeVar("T")

CHANNEL: Final = "journeyman"
PATIENCE_S: Final = 5.0
"""So long a database that is away is waited for before it is an error."""
_AGAIN_S, _SELDOM_S = 0.02, 0.5
_POLL_S: Final = 1.0
"""So often a process looks for news of which nobody has told it."""
_MOST_LENT: Final = 3
_READ_ONLY: Final = "25006"
_END_OLD: Final = (
    f"SELECT pg_terminate_backend(pid) FROM ({HELD}) AS held WHERE number = %s::bigint AND pid <> pg_backend_pid()"
)
"""Ends a connection that was lost here, and still holds the lock there."""


class Connections:
    """The connections to one database. They are used from one event loop."""

    def __init__(self, url: str, *, owner: str, on_renewed: Callable[[Connection], Awaitable[None]]) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used.

        `on_renewed` is called with a connection before anything else when the one that is held was lost: what was not
        on the disk then may be lost, too.
        """
        self.database: Final = Database(url)
        self._owner, self._on_renewed = owner, on_renewed
        self.place: Final = self.database.place
        """The database, for messages: without a password."""
        self._is_open = False
        self._held: Connection | None = None
        """Holds the owner's lock."""
        self._free: list[Connection] = []
        self._room = asyncio.Semaphore(_MOST_LENT)
        self._holding = asyncio.Lock()
        self._looked_s = -_POLL_S

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
            raise self.database.explained(error, "opened") from error
        self._is_open = True

    def close(self) -> None:
        """Close all connections, from any event loop."""
        self._is_open = False
        held = [] if self._held is None else [self._held]
        for each in (*held, *self._free):
            each.pgconn.finish()
        self._free.clear()

    def has_news(self) -> bool:
        """Tell whether another process may have written, without waiting for the database."""
        now_s = asyncio.get_running_loop().time()
        if self._held is None or self._held.closed:
            return self._is_open
        has_news = now_s - self._looked_s >= _POLL_S
        from psycopg import Error  # noqa: PLC0415 - an optional package

        try:
            self._held.pgconn.consume_input()
            while (told := self._held.pgconn.notifies()) is not None:
                has_news = has_news or told.extra.decode() != self._owner
        except Error:  # the connection is lost: the next call makes another one
            self._held.pgconn.finish()
            return True
        if has_news:
            self._looked_s = now_s
        return has_news

    async def patiently(self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Do `work` with a connection; again, as long as the database is away. `work` is told whether it may have been
        done before, and only its answer was lost.

        Raises:
            StoreError: it cannot be done.
        """
        loop = asyncio.get_running_loop()
        until, wait_s, is_again = loop.time() + PATIENCE_S, _AGAIN_S, False
        while True:
            is_begun = False
            try:
                async with self._lent() as connection:
                    is_begun = True
                    return await work(connection, is_again)
            except Exception as error:
                fault = self.database.explained(error, "used")
                if not fault.may_pass or not self._is_open or loop.time() > until:
                    raise fault from error
            is_again = is_again or is_begun
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _SELDOM_S)

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[Connection]:
        if not self._is_open:
            raise StoreError(f"{self.place} was closed.", hint="Open another Durable on it.")
        async with self._room:
            if self._held is None or self._held.closed:
                await self._hold_again()
            connection = self._free.pop() if self._free else await self.connected()
            try:
                yield connection
            except BaseException as error:
                # What was the primary may be a copy now, which can only be read.
                await self._look_after(connection, is_lost=getattr(error, "sqlstate", None) == _READ_ONLY)
                raise
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        from psycopg.pq import TransactionStatus  # noqa: PLC0415 - an optional package

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
        for each in self._free:
            each.pgconn.finish()
        self._free.clear()
        async with self._holding:
            if self._held is not None and not self._held.closed:
                try:
                    await self._held.execute(b"SELECT 1")
                except Exception:  # noqa: BLE001 - whatever it is, the connection cannot be used
                    is_lost = True
                if is_lost:
                    self._held.pgconn.finish()

    async def connected(self, *, is_direct: bool = False) -> Connection:
        """Return another connection. `is_direct`: to the database itself, and not to a pooler before it."""
        from psycopg import AsyncConnection  # noqa: PLC0415 - an optional package

        given = self.database.parameters(is_direct=is_direct, application_name=f"journeyman {self._owner}")
        threshold = self.database.prepare_threshold
        return await AsyncConnection.connect("", autocommit=True, prepare_threshold=threshold, **given)

    async def _hold_again(self) -> None:
        async with self._holding:
            if self._held is None or self._held.closed:
                held = await self._hold()
                try:
                    await self._on_renewed(held)
                except BaseException:
                    held.pgconn.finish()
                    raise
                self._held = held
                self._looked_s = -_POLL_S  # nobody was told anything meanwhile

    async def _hold(self) -> Connection:
        """Return a connection that holds the owner's lock, and hears what is written."""
        connection = await self.connected(is_direct=True)
        try:
            number = lock_number(self._owner)
            found = await (await connection.execute(NOTICED.encode())).fetchone()
            if found is not None:
                self.database.check_number(connection.info.backend_pid, found[0])
            await connection.execute(_END_OLD.encode(), (number,))
            await connection.execute(b"SELECT pg_advisory_lock(%s::bigint)", (number,))
            await connection.execute(f"LISTEN {CHANNEL}".encode())
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection


def lock_number(owner: str) -> int:
    """Return the number of the lock that an owner holds: that of its name, as Postgres has numbers."""
    number = int(owner[1:], 16)
    return number - (1 << 64) if number >= 1 << 63 else number


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
        await connection.execute(MAKE.encode())

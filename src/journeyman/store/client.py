"""The client of a Postgres database, by which durable runs, recordings and sessions reach theirs.

It holds one connection as long as its owner has the database open: that holds the owner's lock, which dies with the
process, hears what others have written, and is made again when it was lost. A database that is away is waited for.

All of it is written for an event loop. Where there is none, `run_now` does it over connections that wait in the thread
that calls: nothing of what it awaits is then left to a loop.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from journeyman.errors import StoreError
from journeyman.machine.files import check_same_process
from journeyman.store.database import END_OLD, NOTICED, Database, check_installed, lock_number, make_tables

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg import Connection as PsycopgConnection

    Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
    """A connection to the database, as psycopg has it."""

T = TypeVar("T")

# At first soon, since most faults are over at once; then less and less often.
_AGAIN_S, _SELDOM_S = 0.02, 0.5
_POLL_S: Final = 1.0
"""The seconds between two looks for news of which nobody has told: nobody tells of what was said while the connection
was lost."""


class WaitMode(NamedTuple):
    """The means by which a client waits: those of an event loop, or of the thread that calls."""

    answer_s: float
    """So many seconds it waits for an answer before the connection counts as lost."""
    connect: Callable[..., Awaitable[Connection]]
    """Makes a connection, with the parameters of the driver."""
    sleep: Callable[[float], Awaitable[None]]
    limit: Callable[[float], AbstractAsyncContextManager[object]]
    """Ends what is in the block after so many seconds, if it is not the connection that waits."""


class Client:
    """The connection of one owner to a database, in one event loop or in one thread at a time."""

    def __init__(
        self,
        database: Database,
        *,
        waiting: WaitMode,
        name: str = "",
        settings: str = NOTICED,
        channel: str | None = None,
        take: Callable[[Connection], Awaitable[None]] | None,
        unless_given: dict[str, str] | None = None,
        always: dict[str, str] | None = None,
    ) -> None:
        """Nothing is connected yet.

        `take` is called with each connection that is to be held, and takes the owner's lock; None: it holds none, and a
        pooler may be in between. `settings` begins such a connection, and gives back what `NOTICED` does. On `channel`
        it hears of what others have written; what was said by its own `name` is no news. `unless_given` are parameters
        to connect with, if the URL says nothing else, and `always` whatever it says.
        """
        self.database: Final = database
        self._waiting, self._take = waiting, take
        self._name, self._settings, self._channel = name, settings, channel
        self._unless_given, self._always = unless_given or {}, always or {}
        self.server = ""
        """The server that it is connected to, by the name that it has until it is started again."""
        self.is_closed = False
        self.held: Connection | None = None
        """The connection that is held. It may be lost."""
        self.is_told = False
        """True when somebody else has said that it has written something."""
        self._holding = asyncio.Lock()
        self._due_s = 0.0
        """When it is next looked for news unasked."""
        self._pid = os.getpid()

    async def open(self, what: str, prepare: Callable[[Connection, bool], Awaitable[None]] | None = None) -> None:
        """Connect, and make the tables if they are not there; or let `prepare` do so, which is told whether they are
        lacking. The error says `what` needs the database.

        Raises:
            StoreError: it cannot be used.
        """
        check_installed(what)

        async def attempt() -> None:
            made = await self.hold()
            ((has_version,),) = await rows_of(made, "SELECT to_regclass('jm_version') IS NOT NULL")
            version = (await rows_of(made, "SELECT max(version) FROM jm_version"))[0][0] if has_version else None
            encoding = made.info.parameter_status("server_encoding")
            is_lacking = self.database.lacks_tables(made.info.server_version, encoding, version)
            if prepare is not None:
                await prepare(made, is_lacking)
            elif is_lacking:
                await made.execute(make_tables().encode())

        try:
            await self.patiently(attempt, "opened", patience_s=0.0)
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """True: the connection is not there, or it is that of the process of which this one is a fork."""
        return self.held is None or self.held.closed or self._pid != os.getpid()

    async def connect(self, *, is_direct: bool = False) -> Connection:
        """Return another connection. `is_direct`: to the database itself, and not to a pooler before it."""
        given = self.database.parameters(is_direct=is_direct, unless_given=self._unless_given) | self._always
        threshold = self.database.prepare_threshold
        return await self._waiting.connect(autocommit=True, prepare_threshold=threshold, **given)

    async def hold(self) -> Connection:
        """Return the connection that is held, made again if it was lost.

        Raises:
            Exception: it cannot be made.
        """
        check_same_process(self._pid, self.database.place)
        async with self._holding:
            self._check_open()
            if self.held is None or self.held.closed:
                made = await self.connect(is_direct=True)
                try:
                    async with self._waiting.limit(self._waiting.answer_s):
                        await self._begin(made)
                    self._check_open()  # who has closed it meanwhile did not see this connection, nor its lock
                except BaseException:
                    made.pgconn.finish()
                    raise
                self.held, self._due_s = made, 0.0  # nobody was told anything meanwhile
            return self.held

    async def _begin(self, made: Connection) -> None:
        ((pid, self.server, *_),) = await rows_of(made, self._settings)
        if self._take is not None:
            self.database.check_number(made.info.backend_pid, pid)
            await self._take(made)
        if self._channel is not None and made.info.backend_pid == pid:  # no pooler is between
            made.add_notify_handler(lambda told: self._note(told.payload))
            await made.execute(f"LISTEN {self._channel}".encode())

    def lose(self) -> None:
        """Let the connection go, with its lock; but not one that a forked child shares with its parent."""
        if self.held is not None and self._pid == os.getpid():
            self.held.pgconn.finish()

    def close(self) -> None:
        """Let the connection go for good. Doing so again changes nothing."""
        self.is_closed = True
        self.lose()

    def _check_open(self) -> None:
        if self.is_closed:
            raise self._make_closed_error()

    def _make_closed_error(self) -> StoreError:
        return StoreError(f"{self.database.place} was closed.", hint="Open it again.")

    def has_news(self) -> bool:
        """Tell whether somebody else may have written, without waiting for the database."""
        # Its lock is lost with the connection: whoever asks next connects again, and looks at everything.
        is_lost = not self.hear() and self._take is not None
        now_s = time.monotonic()
        has_news = is_lost or self.is_told or now_s >= self._due_s
        if has_news:
            self.is_told, self._due_s = False, now_s + _POLL_S
        return has_news and not self.is_closed

    def hear(self) -> bool:
        """Read what others have said. False: the connection is lost, and who uses the database next makes another."""
        from psycopg import Error
        from psycopg.pq import TransactionStatus

        held = self.held
        if held is None or held.closed:
            return False
        if held.pgconn.transaction_status == TransactionStatus.ACTIVE:
            return True  # the driver reads an answer
        try:
            # Without a question to the server: what it has told lies in the socket already.
            held.pgconn.consume_input()
            while (told := held.pgconn.notifies()) is not None:
                self._note(told.extra.decode())
        except Error:
            self.lose()
            return False
        return True

    def _note(self, name: str) -> None:
        self.is_told = self.is_told or name != self._name

    async def patiently(self, attempt: Callable[[], Awaitable[T]], what: str, *, patience_s: float) -> T:
        """Do something; again, as long as the database is away, for `patience_s` seconds. It may have been done before,
        and only its answer was lost. The error says `what` could not be done.

        Raises:
            StoreError: it cannot be done.
        """
        from psycopg.errors import ConnectionTimeout

        until_s, wait_s = time.monotonic() + patience_s, 0.0
        while True:
            try:
                return await attempt()
            except Exception as error:
                if is_read_only(error):
                    self.lose()
                fault = self._explain(error, what)
                # A connection that was lost is replaced once in any case, but not after it was waited for in vain.
                is_late = wait_s > 0 or isinstance(error, TimeoutError | ConnectionTimeout)
                if not fault.may_pass or self.is_closed or (is_late and time.monotonic() > until_s):
                    raise fault from error
            await self._waiting.sleep(wait_s)
            wait_s = min(max(2 * wait_s, _AGAIN_S), _SELDOM_S)

    def _explain(self, error: Exception, what: str) -> StoreError:
        """Return what went wrong as a `StoreError`."""
        if self.is_closed:
            return self._make_closed_error()
        if isinstance(error, TimeoutError):
            late = f"{self.database.place} has not answered within {self._waiting.answer_s:g} s."
            return StoreError(late, hint="Look whether it runs, and what it waits for.", may_pass=True)
        return self.database.explained(error, what)


def is_read_only(error: BaseException) -> bool:
    """Tell whether what was the primary is a copy now, which can only be read."""
    return getattr(error, "sqlstate", None) == "25006"


async def take_lock_of(owner: str, made: Connection) -> None:
    """Take the lock of an owner. Whoever holds it by now is a connection of this process that was lost."""
    number = lock_number(owner)
    await made.execute(END_OLD.encode(), (number,))
    await made.execute(b"SELECT pg_advisory_lock(%s::bigint)", (number,))


async def rows_of(
    connection: Connection, query: str, given: Sequence[object] | Mapping[str, object] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows that a statement gives back."""
    # As text, bytes would come as hexadecimal digits, twice as long.
    cursor = connection.cursor(binary=True)
    await cursor.execute(query.encode(), given)
    return await cursor.fetchall()


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


def wait_in_loop(answer_s: float) -> WaitMode:
    """Return how a client waits in an event loop."""

    async def connect(**given: Any) -> Connection:
        from psycopg import AsyncConnection

        return await AsyncConnection.connect("", **given)

    return WaitMode(answer_s, connect, asyncio.sleep, asyncio.timeout)


def wait_here(answer_s: float) -> WaitMode:
    """Return how a client waits in the thread that calls."""

    async def connect(**given: Any) -> Connection:
        from psycopg import Connection as Driver

        made = _connection_here()(Driver.connect("", **given), answer_s)
        made.prepare_threshold = given["prepare_threshold"]
        await made.set_autocommit(given["autocommit"])
        return made

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    return WaitMode(answer_s, connect, sleep, nullcontext)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Do what waits for nothing but connections and pauses that wait in this thread."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("it waits for an event loop")


def do_here(client: Client, what: str, work: Callable[[Connection], Awaitable[T]], *, patience_s: float = 0.0) -> T:
    """Do `work` with the connection that is held, as `Client.patiently` does."""

    async def attempt() -> T:
        return await work(await client.hold())

    return run_now(client.patiently(attempt, what, patience_s=patience_s))


@contextmanager
def without_limit(made: Any) -> Generator[None]:  # noqa: ANN401 - a `ConnectionHere`
    """Wait in this thread for answers however long they take."""
    answer_s, made.answer_s = made.answer_s, None
    try:
        yield
    finally:
        made.answer_s = answer_s


@cache
def _connection_here() -> Callable[[PsycopgConnection[Any], float], Connection]:
    """Return the class of connections that wait in the thread that calls, and no longer than they are told to."""
    from psycopg import AsyncConnection
    from psycopg.errors import ConnectionTimeout
    from psycopg.rows import tuple_row

    class ConnectionHere(AsyncConnection[tuple[Any, ...]]):
        def __init__(self, made: PsycopgConnection[Any], answer_s: float | None) -> None:
            super().__init__(made.pgconn, tuple_row)
            self._made, self.answer_s = made, answer_s

        # The driver itself waits without end, and looks up each tenth of a second: then it is asked here.
        async def wait(self, gen: Generator[Any, Any, T], *given: Any, **more: Any) -> T:
            return self._made.wait(self._until(gen), *given, **more)

        def _until(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
            until_s = time.monotonic() + (self.answer_s or math.inf)  # a server that is well gives up sooner
            try:
                waits = next(gen)
                while True:
                    is_ready = yield waits
                    if not is_ready and time.monotonic() > until_s:
                        # For good: the answer could still come, and be read as that of the next statement.
                        self.pgconn.finish()
                        raise ConnectionTimeout(f"no answer came within {self.answer_s:g} seconds")
                    waits = gen.send(is_ready)
            except StopIteration as end:
                return end.value

    return ConnectionHere

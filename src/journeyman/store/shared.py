"""The rows of recordings in a Postgres database, which processes on many machines may share.

Each has a connection of its own to the database itself, which holds the lock of who records there, and hears what
others say. Whatever fails loses the connection, and with it what was begun. Who records then connects again, for a
while, and says once more what was said in that transaction: unless only the answer to its end was lost, which the
database knows.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journeyman.errors import StoreError
from journeyman.files import check_same_process
from journeyman.store.connection import patient_connection
from journeyman.store.database import (
    END_OLD,
    GET_VERSION,
    HAS_VERSION,
    HELD,
    NOTICED,
    NUMBER,
    NUMBERING,
    OUTCOME,
    Database,
    check_installed,
    holds,
    lock_number,
    make_recordings,
    make_tables,
    restored,
    storable_value,
)
from journeyman.store.storage import Purpose, Rows, Storage, Transaction

if TYPE_CHECKING:
    from journeyman.store.connection import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")

ANSWER_S: Final = 30.0
"""How many seconds to wait for an answer before the connection counts as lost. A recorder has a thread of its own,
so nothing else waits for it."""
PATIENCE_S: Final = 30.0
"""How many seconds a recorder waits for a database that is away."""
_BRIEFLY_S: Final = 5.0
"""How many seconds everybody else who writes waits for it."""
_AGAIN_S, _SELDOM_S = 0.02, 0.5
_POLL_S: Final = 1.0
"""How often, in seconds, to look for news of which nobody has told. Nobody tells of what was said while the
connection was lost."""
# Whoever records and has lost its connection is back sooner.
_GONE_S: Final = 0.5
# Looks at the locks are remembered so long: a list of many recordings waits once, and not for each.
_REMEMBERED_S: Final = 5.0
_NUMBERS: Final = f"SELECT number FROM ({HELD}) AS held"
_FORGETTING: Final = 0x6A6D_0004
_LOCKS: Final[dict[Purpose, str]] = {
    "records": f"SELECT pg_advisory_xact_lock_shared({_FORGETTING}::bigint)",
    "forgets": f"SELECT pg_advisory_xact_lock({_FORGETTING}::bigint)",
    "speaks": f"SELECT pg_advisory_xact_lock({NUMBERING}::bigint)",
}
_BEGUN: Final = f"{NOTICED}, set_config('statement_timeout', '{ANSWER_S * 1000:.0f}', false)"
_FORGETS: Final = "UPDATE rec_format SET forgotten = forgotten + 1"
_MAY_WRITE: Final = "INSERT INTO rec_events (run, at, path, kind) SELECT 0, 0, '', '' WHERE false"
_SIZE: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r'"
    " AND relname ~ '^(jm|rec)_' AND pg_table_is_visible(oid)"
)
_TABLES: Final = ("rec_runs", "rec_events", "rec_requests", "rec_pieces", "rec_shared", "rec_watched", "rec_words")
_TO_LOOKERS, _TO_RECORDERS = "journeyman_recorded", "journeyman_said"
"""The channels on which who looks is told of what was recorded, and recorders of what was said."""
_AHEAD: Final = {"rec_runs": 1, "rec_requests": 16, "rec_pieces": 128}
"""How many numbers of a table are taken at once. Each time is a round trip, and a request has many pieces."""
_GIVES_BACK: Final = re.compile(r"^SELECT|\bRETURNING\b")
_SPELLINGS: Final = (
    (re.compile("%"), "%%"),
    (re.compile(r"CAST\(\? AS TEXT\)"), "convert_to(?, 'UTF8')"),
    (re.compile(r"\?"), "%s"),
    (re.compile(r"\binstr\("), 'pg_catalog."position"('),
    (re.compile(r"\bLIKE\b"), "ILIKE"),
    (re.compile(r"CAST\(([^()]+) AS INTEGER\)"), r"floor(\1)::bigint"),
    (re.compile(r"\bbody ->> '(\w+)'"), r"convert_from(body, 'UTF8')::json ->> '\1'"),
)
"""What SQLite reads in another way."""


@lru_cache(maxsize=512)
def _spelled(statement: str) -> bytes:
    """Return a statement as Postgres reads it."""
    for pattern, instead in _SPELLINGS:
        statement = pattern.sub(instead, statement)
    return statement.encode()


def _values(given: Sequence[object]) -> list[Any]:
    # The columns are numbers, since SQLite has no truth values.
    return [int(each) if isinstance(each, bool) else storable_value(each) for each in given]


class _Found:
    """The rows that a statement found."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:  # noqa: ANN401 - whatever the columns hold
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows


def _said(connection: Connection, statement: bytes, given: Sequence[object], *, gives_back: bool) -> _Found:
    cursor = connection.cursor(binary=True)
    cursor.execute(statement, given)
    if not gives_back:  # in a pipeline its answer is waited for at the end
        return _Found([])
    return _Found([tuple([restored(value) for value in row]) for row in cursor.fetchall()])


class SharedStorage:
    """Rows in a database."""

    def __init__(self, url: str, *, owner: str | None) -> None:
        """Connect, and hold what is there as `owner`; None: it is only looked at.

        Raises:
            StoreError: the database cannot be used.
        """
        check_installed("Recordings")
        try:
            self.database = Database(url)
        except ValueError as error:  # of an option
            raise StoreError(str(error), hint="Look at the URL.") from None
        self.place: Final = self.database.place
        self.notice: Final = None
        self.owner: Final = owner
        self._name: Final = secrets.token_hex(8)
        """Tells what was said here from what others say."""
        self._alone = RLock()
        self._made: Connection | None = None
        self._pid = os.getpid()
        self._is_closed = False
        self._version = 0
        self.server = ""
        """The server that it is connected to."""
        self.n_connected = 0
        """How often it has connected: what was written last may be lost by then."""
        self._due_s = 0.0
        """When it is next looked for news unasked."""
        self._looks: list[tuple[float, set[int]]] = []
        """Which locks were held, and when."""
        self.tells: Final = (b"SELECT pg_notify(%s, %s)", (_TO_RECORDERS if owner is None else _TO_LOOKERS, self._name))
        """The statement that tells others that something was written."""
        self.numbers: Final[dict[str, list[int]]] = {}
        """By table, those of rows that may be inserted."""
        try:
            with self.database.explaining("opened"):
                connection = self.connected()
                self._lacks_tables(connection)  # or they cannot be used
                if owner is not None and self.has("rec_events"):
                    # It writes nothing, and fails where writing would.
                    connection.execute(_MAY_WRITE.encode())
        except BaseException:
            self.close()
            raise

    # -- the connection

    def connected(self) -> Connection:
        """Return the connection, made again if it was lost."""
        check_same_process(self._pid, self.place)
        if self._is_closed:
            raise StoreError(f"{self.place} was closed.", hint="Open it again.")
        if self._made is None or self._made.closed:
            self._made = self._connect()
            self.n_connected += 1
            self._version += 1
        return self._made

    def _connect(self) -> Connection:
        given = self.database.parameters(is_direct=True)
        given["application_name"] = f"journeyman {self.owner or 'reader'}"
        threshold = self.database.prepare_threshold
        made = patient_connection().connect("", autocommit=True, prepare_threshold=threshold, **given)
        try:
            made.answer_s = ANSWER_S
            made.add_notify_handler(lambda told: self._hear(told.payload))
            ((pid, self.server, *_),) = made.execute(_BEGUN.encode()).fetchall()
            if self.owner is not None:
                self.database.check_number(made.info.backend_pid, pid)
                number = lock_number(self.owner)
                # A connection of this process that was lost here may hold the lock there.
                made.execute(END_OLD.encode(), (number,))
                made.execute(b"SELECT pg_advisory_lock(%s::bigint)", (number,))
            if made.info.backend_pid == pid:  # no pooler is between
                made.execute(f"LISTEN {_TO_LOOKERS if self.owner is None else _TO_RECORDERS}".encode())
        except BaseException:
            made.close()
            raise
        return made

    def lose(self) -> None:
        """Let the connection go, with what was begun; but not one that a forked child shares with its parent."""
        if self._made is not None and self._pid == os.getpid():
            self._made.close()

    def fault(self, error: BaseException, what: str) -> StoreError:
        """Return what went wrong as a `StoreError`."""
        fault = self.database.explained(error, what)
        fault.is_busy = fault.may_pass
        return fault

    def _tried(self, what: str, work: Callable[[Connection], T]) -> T:
        """Do some work; if the connection was lost meanwhile, once more."""
        with self._alone:
            for is_second in (False, True):
                was_there = self._made is not None and not self._made.closed
                try:
                    return work(self.connected())
                except Exception as error:
                    is_lost = self._made is not None and self._made.closed
                    # A connection that could not be made is not tried again here, nor one that was lost twice.
                    if is_second or not (was_there and is_lost):
                        raise self.fault(error, what) from error
        raise AssertionError("unreachable")

    def _hear(self, name: str) -> None:
        if name != self._name:
            self._due_s = 0.0

    # -- rows

    def rows(self, query: str, given: Sequence[object] = (), /) -> list[Any]:
        return self._tried(
            "read", lambda made: _said(made, _spelled(query), _values(given), gives_back=True).fetchall()
        )

    def write(self, statement: str, given: Sequence[object], /) -> int:
        def work(made: Connection) -> int:
            n_rows = made.execute(_spelled(statement), _values(given)).rowcount
            made.execute(*self.tells)
            return n_rows

        return self._tried("written", work)

    @contextmanager
    def transaction(self, purpose: Purpose = "", *, tells: bool = False) -> Generator[Transaction]:
        with self._alone:
            made = _SharedTransaction(self, purpose)
            try:
                yield made
                made.end(tells=tells)
            except BaseException as error:
                # With its connection: what was begun is then taken back, whatever state it was in.
                made.let_go()
                if isinstance(error, StoreError) or not isinstance(error, Exception):
                    raise
                raise self.fault(error, "written") from error

    # -- the tables

    def _lacks_tables(self, connection: Connection) -> bool:
        (has_version,) = connection.execute(HAS_VERSION.encode()).fetchall()[0]
        version = connection.execute(GET_VERSION.encode()).fetchall()[0][0] if has_version else None
        info = connection.info
        return self.database.lacks_tables(info.server_version, info.parameter_status("server_encoding"), version)

    def has(self, table: str) -> bool:
        return self.rows("SELECT to_regclass(?) IS NOT NULL", (table,))[0][0]

    def make(self) -> None:
        with self._alone, self.database.explaining("opened"):
            try:
                if self._lacks_tables(self.connected()):
                    self.connected().execute(make_tables().encode())
                self.connected().execute(make_recordings().encode())
            except BaseException:
                self.lose()
                raise

    def version(self) -> int:
        """A database that is away has no news: whoever reads it is told."""
        from psycopg import Error

        with self._alone:
            now_s = time.monotonic()
            try:
                if self._made is not None and not self._made.closed:
                    # Without a question to the server: what it has told lies in the socket.
                    self._made.pgconn.consume_input()
                    while (told := self._made.pgconn.notifies()) is not None:
                        self._hear(told.extra.decode())
                if now_s >= self._due_s or (self.owner is not None and self._made is not None and self._made.closed):
                    self._due_s = now_s + _POLL_S
                    self.connected()
                    self._version += 1
            except Error:
                self.lose()
            return self._version

    def size(self) -> int:
        return self.rows(_SIZE)[0][0]

    def reclaim(self) -> str | None:
        warned: list[str] = []

        def work(made: Connection) -> None:
            made.add_notice_handler(lambda told: warned.append(told.message_primary or ""))
            # To vacuum a table may take any time.
            made.answer_s = None
            made.execute(b"SET statement_timeout = 0")
            for table in _TABLES:
                made.execute(f"VACUUM {table}".encode())

        try:
            self._tried("vacuumed", work)
        finally:
            self.lose()  # with what was set for it
        if not warned:
            return None
        return f"{self.place} uses the room again once it was vacuumed by its owner, or by itself: {warned[0]}."

    def is_held(self, owner: str) -> bool:
        """One who has lost its connection connects again in a moment: gone is who is not there for longer."""
        number = lock_number(owner)
        with self._alone:
            while True:
                held = {each for (each,) in self.rows(_NUMBERS)}
                now_s = time.monotonic()
                self._looks = [each for each in self._looks if each[0] > now_s - _REMEMBERED_S]
                self._looks.append((now_s, held))
                missed_s = next(at_s for at_s, then in self._looks if then is held or number not in then)
                if number in held or now_s - missed_s >= _GONE_S:
                    return number in held
                time.sleep(missed_s + _GONE_S - now_s)

    def close(self) -> None:
        with self._alone:
            self._is_closed = True
            self.lose()


class _SharedTransaction:
    """Says what is written as it comes, and waits for few answers; all of it once more if the connection is lost."""

    def __init__(self, storage: SharedStorage, purpose: Purpose) -> None:
        self._storage = storage
        self._purpose: Purpose = purpose
        self._all: list[tuple[bytes, list[Any]]] = []
        """What was said so far."""
        self._until_s = time.monotonic() + (_BRIEFLY_S if storage.owner is None else PATIENCE_S)
        self._wait_s = _AGAIN_S
        self._made: Connection | None = None
        """The connection in which the transaction was begun."""
        self._pipeline: Any = None
        self._number, self._server = "", ""
        """Its number, and the server that has given it."""
        self._n_forgotten = 0

    def execute(self, statement: str, given: Sequence[object] = (), /) -> Rows:
        spelled, values = _spelled(statement), _values(given)
        gives_back = _GIVES_BACK.search(statement) is not None
        found = self._patiently(lambda: _said(self._begun(), spelled, values, gives_back=gives_back))
        self._all.append((spelled, values))
        return found

    def executemany(self, statement: str, rows: Iterable[Sequence[object]], /) -> None:
        for row in rows:
            self.execute(statement, row)

    def add(self, statement: str, given: Sequence[object], /) -> int:
        head, _, columns = statement.partition(" (")
        number = self._number_for(head.rpartition(" ")[2])
        self.execute(f"{head} (n, {columns.replace('VALUES (', 'VALUES (?, ', 1)}", (number, *given))
        return number

    def _number_for(self, table: str) -> int:
        numbers = self._storage.numbers.setdefault(table, [])
        if not numbers:
            query = f"SELECT nextval(pg_get_serial_sequence('{table}', 'n')) FROM generate_series(1, {_AHEAD[table]})"
            found = self._patiently(lambda: _said(self._begun(), query.encode(), (), gives_back=True))
            # The least first: `nextval` gives each its number, but not in the order of the rows.
            numbers += sorted([n for (n,) in found.fetchall()], reverse=True)
        return numbers.pop()

    def forgotten(self) -> int:
        self._patiently(self._begun)
        return self._n_forgotten

    def end(self, *, tells: bool) -> None:
        """Let it hold."""
        if self._purpose == "forgets":
            self.execute(_FORGETS)
        is_unsure = False

        def work() -> None:
            nonlocal is_unsure
            # The end was sent, and its answer lost: to say all of it again could write it twice.
            if is_unsure and self._holds():
                return
            made = self._begun()
            is_unsure = True
            if tells:
                made.execute(*self._storage.tells)
            made.execute(b"COMMIT")
            if self._pipeline is not None:
                pipeline, self._pipeline = self._pipeline, None
                # Now all answers are waited for, at once.
                pipeline.__exit__(None, None, None)
            made.answer_s = ANSWER_S

        self._patiently(work)
        # Who goes on with a run elsewhere takes higher ones.
        self._storage.numbers.pop("rec_requests", None)
        self._storage.numbers.pop("rec_runs", None)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do some work in the transaction; if the connection is lost, once more, for as long as that is worth it."""
        while True:
            try:
                return work()
            except Exception as error:
                self.let_go()
                fault = self._storage.fault(error, "written")
                if not fault.may_pass or time.monotonic() > self._until_s:
                    fault.is_busy = fault.may_pass and self._storage.owner is None  # a recorder has waited long enough
                    raise fault from error
            time.sleep(self._wait_s)
            self._wait_s = min(2 * self._wait_s, _SELDOM_S)

    def let_go(self) -> None:
        """Let go what was begun, with its connection."""
        from psycopg import Error

        self._storage.lose()
        pipeline, self._pipeline, self._made = self._pipeline, None, None
        if pipeline is not None:
            with suppress(Error):  # nothing more comes; left alone, the driver would log that
                pipeline.__exit__(None, None, None)

    def _begun(self) -> Connection:
        """Return the connection in which it was begun; if that was lost, another one, in which all was said again."""
        if self._made is not None:
            return self._made
        made = self._storage.connected()
        if self._purpose == "records":
            # Without waiting for each answer: a batch has many statements.
            self._pipeline = made.pipeline()
            self._pipeline.__enter__()
        made.execute(b"BEGIN")
        if self._purpose:
            made.execute(_LOCKS[self._purpose].encode())
        if self._purpose == "forgets":
            made.answer_s = None  # a long run has much
            made.execute(b"SET LOCAL statement_timeout = 0")
            made.execute(b"SET LOCAL idle_in_transaction_session_timeout = '10s'")  # all who record wait for its end
        forgotten = "(SELECT forgotten FROM rec_format)" if self._purpose == "records" else "0"
        found = made.execute(f"SELECT {NUMBER}, {forgotten}".encode()).fetchall()
        (self._number, n_forgotten), self._server = found[0], self._storage.server
        # Another connection means that it was away: others may have forgotten something meanwhile.
        self._n_forgotten = (self._storage.n_connected << 40) + n_forgotten
        for each in self._all:
            made.execute(*each)
        self._made = made
        return made

    def _holds(self) -> bool:
        """Tell whether the database has ended this transaction as it was told to."""
        ((outcome,),) = self._storage.connected().execute(OUTCOME.encode(), (self._number, self._server)).fetchall()
        if (is_held := holds(outcome)) is None:
            # Rather a gap than the same twice: of an event, nothing tells that it is there already.
            missing = "%s was started again as a recording was written: what happened in that moment may be missing."
            _log.warning(missing, self._storage.place)
        return is_held is not False


if TYPE_CHECKING:
    _storage: type[Storage] = SharedStorage

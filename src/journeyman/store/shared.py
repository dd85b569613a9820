"""The rows of recordings in a Postgres database, which processes on many machines may share.

Each has a connection of its own to the database itself, which holds the lock of who records there, and hears what
others say. Whatever fails loses the connection, and with it what was begun. Who writes then connects again, for a
while, and writes all of it once more, which changes nothing if only the answer was lost.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journeyman.errors import StoreError
from journeyman.files import check_same_process
from journeyman.store.connection import patient_connection
from journeyman.store.database import (
    END_OLD,
    HELD,
    NOTICED,
    NUMBERING,
    Database,
    check_installed,
    lock_number,
    make_recordings,
    make_tables,
    restored,
    storable_value,
)
from journeyman.store.storage import SAY, Statement, Storage

if TYPE_CHECKING:
    from psycopg import Cursor

    from journeyman.store.connection import Connection

T = TypeVar("T")

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
_NUMBERING: Final = f"SELECT pg_advisory_xact_lock({NUMBERING}::bigint)"
_BEGUN: Final = f"{NOTICED}, set_config('statement_timeout', '{ANSWER_S * 1000:.0f}', false)"
_MAY_WRITE: Final = "INSERT INTO rec_words (run, at, body) SELECT '', 0, '' WHERE false"
_SIZE: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r'"
    " AND relname ~ '^(jm|rec)_' AND pg_table_is_visible(oid)"
)
_TABLES: Final = ("rec_runs", "rec_events", "rec_requests", "rec_pieces", "rec_watched", "rec_words")
_TO_LOOKERS, _TO_RECORDERS = "journeyman_recorded", "journeyman_said"
"""The channels on which who looks is told of what was recorded, and recorders of what was said."""
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


def _fetch_rows(cursor: Cursor[tuple[Any, ...]]) -> list[Any]:
    return [tuple([restored(value) for value in row]) for row in cursor.fetchall()]


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
        self._due_s = 0.0
        """When it is next looked for news unasked."""
        self._looks: list[tuple[float, set[int]]] = []
        """Which locks were held, and when."""
        self._tells: Final = (
            b"SELECT pg_notify(%s, %s)",
            (_TO_RECORDERS if owner is None else _TO_LOOKERS, self._name),
        )
        """The statement that tells others that something was written."""
        try:
            with self.database.explaining("opened"):
                connection = self._connect_if_lost()
                lacks = self.database.lacks_tables_at(connection)  # or they cannot be used
                if owner is not None and lacks:
                    connection.execute(make_tables().encode())
                if owner is not None and not self.has("rec_words"):  # the newest: whoever has it has all
                    connection.execute(make_recordings().encode())
                elif owner is not None:
                    # It writes nothing, and fails where writing would.
                    connection.execute(_MAY_WRITE.encode())
        except BaseException:
            self.close()
            raise

    # -- the connection

    def _connect_if_lost(self) -> Connection:
        """Return the connection, made again if it was lost."""
        check_same_process(self._pid, self.place)
        if self._is_closed:
            raise StoreError(f"{self.place} was closed.", hint="Open it again.")
        if self._made is None or self._made.closed:
            self._made = self._connect()
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

    def _lose(self) -> None:
        """Let the connection go, with what was begun; but not one that a forked child shares with its parent."""
        if self._made is not None and self._pid == os.getpid():
            self._made.close()

    def _explain(self, error: BaseException, what: str) -> StoreError:
        """Return what went wrong as a `StoreError`."""
        fault = self.database.explained(error, what)
        fault.is_busy = fault.may_pass
        return fault

    def _try_twice(self, what: str, work: Callable[[Connection], T]) -> T:
        """Do some work; if the connection was lost meanwhile, once more."""
        with self._alone:
            for is_second in (False, True):
                was_there = self._made is not None and not self._made.closed
                try:
                    return work(self._connect_if_lost())
                except Exception as error:
                    is_lost = self._made is not None and self._made.closed
                    # A connection that could not be made is not tried again here, nor one that was lost twice.
                    if is_second or not (was_there and is_lost):
                        raise self._explain(error, what) from error
        raise AssertionError("unreachable")

    def _hear(self, name: str) -> None:
        if name != self._name:
            self._due_s = 0.0

    # -- rows

    def rows(self, query: str, given: Sequence[object] = (), /) -> list[Any]:
        return self._try_twice(
            "read", lambda made: _fetch_rows(made.execute(_spelled(query), _values(given), binary=True))
        )

    def write(self, *said: Statement, tells: bool = False, is_large: bool = False) -> list[Any]:
        with self._alone:
            until_s, wait_s = time.monotonic() + (_BRIEFLY_S if self.owner is None else PATIENCE_S), _AGAIN_S
            while True:
                try:
                    return self._write(said, tells=tells, is_large=is_large)
                except BaseException as error:
                    # With its connection: what was begun is then taken back, whatever state it was in.
                    self._lose()
                    if not isinstance(error, Exception):
                        raise
                    fault = self._explain(error, "written")
                    if not fault.may_pass or time.monotonic() > until_s:
                        fault.is_busy = fault.may_pass and self.owner is None  # a recorder has waited long enough
                        raise fault from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _SELDOM_S)

    def _write(self, said: Sequence[Statement], *, tells: bool, is_large: bool) -> list[Any]:
        made = self._connect_if_lost()
        made.answer_s = None if is_large else ANSWER_S
        # Without waiting for each answer: a batch has many statements.
        with made.pipeline():
            made.execute(b"BEGIN")
            if is_large:
                made.execute(b"SET LOCAL statement_timeout = 0")
            cursor = made.cursor(binary=True)
            for statement, rows in said:
                cursor = made.cursor(binary=True)
                if len(rows) == 1:
                    cursor.execute(_spelled(statement), _values(rows[0]))
                else:
                    cursor.executemany(_spelled(statement), [_values(row) for row in rows])
            if tells:
                made.execute(*self._tells)
            made.execute(b"COMMIT")
        made.answer_s = ANSWER_S
        return _fetch_rows(cursor) if cursor.description else []

    def say(self, given: Sequence[object], /) -> None:
        self.write((_NUMBERING, [()]), (SAY, [given]), tells=True)

    # -- the tables

    def has(self, table: str) -> bool:
        return self.rows("SELECT to_regclass(?) IS NOT NULL", (table,))[0][0]

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
                    self._connect_if_lost()
                    self._version += 1
            except Error:
                self._lose()
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
            self._try_twice("vacuumed", work)
        finally:
            self._lose()  # with what was set for it
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
            self._lose()


if TYPE_CHECKING:
    _storage: type[Storage] = SharedStorage

"""Sessions in a Postgres database, which processes on many machines may share.

An open session has a connection of its own, on which it holds a lock and writes: who lost the connection has lost the
lock, and can write nothing before it holds it again and has seen that nobody else went on. The lock dies with the
process.

A write is one statement in the thread that asks for it, which is that of the event loop: it waits for the network and
for the disk of the database. A machine nearby answers in a millisecond or two; none is waited for longer than
`ANSWER_S` seconds.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from journeyman.errors import SessionInUse, StoreError
from journeyman.inbox import Queue
from journeyman.session import Session, Sessions, Snapshot, Step, check_session_id
from journeyman.store.database import GET_VERSION, HAS_VERSION, HELD, MAKE, NOTICED, Database, check_installed
from journeyman.store.log import Line, Record, crc_of, first_crc, lines_of, queued, readable
from journeyman.store.repair import StoreRepaired
from journeyman.store.store import Head, SessionInfo, beginning, closed, exported, info_of
from journeyman.types import Message

if TYPE_CHECKING:
    from psycopg import Connection as PsycopgConnection

    Connection: TypeAlias = PsycopgConnection[tuple[Any, ...]]

T = TypeVar("T")

ANSWER_S: Final = 5.0
"""So long an answer of the database is waited for, in seconds."""
_STATEMENT_MS: Final = 4_000
"""So long the database works on one statement before it gives up by itself, in milliseconds."""
_ENDING_MS: Final = 1_000
"""So long the lock of a connection that is ending is waited for, in milliseconds."""
_TRIES: Final = 3
_READ_ONLY: Final = "25006"
_SHORT: Final[Mapping[str, str]] = {"connect_timeout": "3", "tcp_user_timeout": "5000"}
_BEGUN: Final = f"{NOTICED}, set_config('statement_timeout', '{_STATEMENT_MS}', false)"
_NUMBER: Final = "SELECT hashtextextended('journeyman session ' || 'jm_sessions'::regclass::oid || ' ' || %s::text, 0)"
"""The number of a session's lock. It is another one for the tables of another schema."""
_HOLDERS: Final = f"FROM ({HELD}) AS held JOIN pg_stat_activity AS holder USING (pid) WHERE number = %s::bigint"
_WHO: Final = f"SELECT holder.application_name, host(holder.client_addr) {_HOLDERS}"
_END_OLD: Final = (
    f"SELECT pg_terminate_backend(pid) {_HOLDERS} AND holder.application_name = %s::text AND pid <> pg_backend_pid()"
)
"""Ends a connection of this session that was lost here, and still holds the lock there."""
_FIND: Final = "SELECT id, agent, created, parent FROM jm_sessions WHERE id = %s::text"
_READ: Final = "SELECT n, kind, position, body, crc FROM jm_session_records WHERE session = %s::text ORDER BY n"
_OF: Final = "FROM jm_session_records WHERE session = s.id"
_NEWEST: Final = "ORDER BY n DESC LIMIT 1"
_INFO: Final = (
    f"SELECT s.id, s.agent, s.created, s.parent, (SELECT at {_OF} {_NEWEST}) AS updated,"
    f" (SELECT position + (kind = 'message')::int {_OF} AND kind IN ('message', 'cut') {_NEWEST}),"
    f" (SELECT body {_OF} AND kind = 'used' {_NEWEST}), (SELECT body {_OF} AND kind = 'title' {_NEWEST})"
    " FROM jm_sessions AS s"
)
_END: Final = "SELECT n, crc, at FROM jm_session_records WHERE session = %s::text AND n >= %s::bigint ORDER BY n"
_WRITE: Final = (
    "INSERT INTO jm_session_records (session, n, kind, position, at, body, crc)"
    " SELECT %s::text, n, kind, position, %s::float8, body, crc"
    " FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %b::bytea[], %s::bigint[]) AS u(n, kind, position, body, crc)"
)
_BEGIN: Final = (
    "WITH head AS (INSERT INTO jm_sessions (id, agent, created, parent)"
    " VALUES (%s::text, %s::text, %s::float8, %s::text) ON CONFLICT (id) DO NOTHING) "
)
_TAKE_BACK: Final = "DELETE FROM jm_session_records WHERE session = %s::text AND n > %s::bigint"
_PUT_ASIDE: Final = (
    "WITH bad AS (DELETE FROM jm_session_records WHERE session = %s::text AND n > %s::bigint RETURNING *)"
    " INSERT INTO jm_session_damage (found, session, n, kind, position, at, body, crc)"
    " SELECT %s::float8, session, n, kind, position, at, body, crc FROM bad"
)
_MOST_KNOWN: Final = 1_000
"""So many ids are looked at for one that is like an unknown one."""


class PostgresSessions:
    """Sessions in the database that a URL names: `PostgresSessions("postgresql://USER:PASSWORD@HOST:PORT/DATABASE")`.

    The URL takes what Postgres knows; `direct=HOST:PORT`, which names the database itself behind a pooler; and
    `prepare_threshold=none`. An open session holds one connection, to the database itself. Opening one waits for some
    five answers of the database, and each step for one, in the thread that asks.
    """

    def __init__(self, url: str) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used. Nothing is connected yet."""
        self._database = Database(url)

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> PostgresSession:
        """Open a session of the agent called `agent`: a new one, or the one with this id, which `create` makes if there
        is none. The tables are made if they are not there. Damaged records, and what is behind such, are put aside,
        with a `StoreRepaired` warning.

        Raises:
            StoreError: there is none, it is another agent's, unless `any_agent`, or the id cannot be one; or the
                database cannot be used.
            SessionInUse: somebody has it open.
        """
        if id is not None:
            check_session_id(id)
        line = _Line(self._database)
        try:
            with self._database.explaining("opened"):
                line.open()
                if id is None:
                    return PostgresSession(line, self._new(line, agent))
                return self._named(line, id, agent=agent, any_agent=any_agent, create=create)
        except BaseException:
            line.close()
            raise

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the one that was last written to first."""
        with self._reading() as line:
            return [_info(row) for row in line.rows(f"{_INFO} ORDER BY updated DESC NULLS LAST, s.created DESC")]

    def snapshot(self, id: str) -> Snapshot:
        """Return what is stored of a session, as it is: the last calls may have no results.

        Raises:
            StoreError: there is none.
        """
        with self._reading() as line:
            self._head(line, id)
            return readable(_records(line, id), id)[1]

    def messages(self, id: str) -> list[Message]:
        """Return the conversation of a session, its open calls closed."""
        return closed(self.snapshot(id))

    def export(self, id: str) -> bytes:
        """Return a session as one JSON object. `load_messages` reads what is in its `messages`."""
        with self._reading() as line:
            self._head(line, id)
            return exported(
                _info(line.rows(f"{_INFO} WHERE s.id = %s::text", id)[0]), readable(_records(line, id), id)[1]
            )

    def branch(self, id: str, at: int) -> str:
        """Begin another session with the first `at` messages of this one, and return its id.

        Raises:
            StoreError: there is no such session, or it has fewer messages.
        """
        step = beginning(id, self.snapshot(id), at)
        with self._reading() as line:
            agent = self._head(line, id).agent
            branch = PostgresSession(line, replace(self._new(line, agent), parent=id))
            branch.write(step)
            return branch.id

    def delete(self, id: str) -> None:
        """Forget a session.

        Raises:
            StoreError: there is none.
            SessionInUse: somebody has it open.
        """
        with self._reading() as line:
            self._head(line, id)
            line.take(id)
            line.rows("DELETE FROM jm_sessions WHERE id = %s::text", id)
            line.rows("DELETE FROM jm_session_damage WHERE session = %s::text", id)

    # -- inside

    @contextmanager
    def _reading(self) -> Generator[_Line]:
        line = _Line(self._database)
        try:
            with self._database.explaining("read"):
                line.open()
                yield line
        finally:
            line.close()

    def _head(self, line: _Line, id: str) -> Head:
        rows = line.rows(_FIND, id)
        if not rows:
            raise self._unknown(line, id)
        return Head(*rows[0])

    def _new(self, line: _Line, agent: str) -> Head:
        while True:
            id = secrets.token_hex(4)
            if not line.rows(_FIND, id):
                line.take(id)
                return Head(id, agent, time.time())

    def _named(self, line: _Line, id: str, *, agent: str, any_agent: bool, create: bool) -> PostgresSession:
        def found() -> Head | None:
            rows = line.rows(_FIND, id)
            if not rows and not create:
                raise self._unknown(line, id, or_else="To begin one of this id, give create=True.")
            head = Head(*rows[0]) if rows else None
            if head is not None and head.agent not in ("", agent) and not any_agent:
                raise StoreError(
                    f"Session {id} is one of the agent {head.agent!r}, not of {agent!r}.",
                    hint="Open it with that agent, or give any_agent=True to go on with this one.",
                )
            return head

        found()
        line.take(id)
        head = found()  # until the lock was taken, somebody may have made it, or deleted it
        if head is None:
            return PostgresSession(line, Head(id, agent, time.time()))
        records = _records(line, id)
        good, snapshot = readable(records, id)
        notice = None if len(good) == len(records) else self._repaired(line, id, good, len(records) - len(good))
        return PostgresSession(line, head, good, snapshot=snapshot, notice=notice)

    def _repaired(self, line: _Line, id: str, good: Sequence[Record], n_bad: int) -> str:
        line.rows(_PUT_ASIDE, id, good[-1].n if good else 0, time.time())
        recovered = "1 record was" if len(good) == 1 else f"{len(good)} records were"
        notice = (
            f"Session {id} in {line.place} was damaged. {recovered} recovered, and {n_bad} left out that are damaged or"
            " behind such. Those are kept in the table jm_session_damage."
        )
        warnings.warn(StoreRepaired(notice), stacklevel=5)
        return notice

    def _unknown(self, line: _Line, id: str, *, or_else: str = "") -> StoreError:
        known = [known for (known,) in line.rows(f"SELECT id FROM jm_sessions LIMIT {_MOST_KNOWN}")]
        close = get_close_matches(id, known, n=1)
        hint = f"Did you mean {close[0]}? " if close else "" if known else "It has none yet: leave the id out. "
        hint = f"{hint}{or_else}".strip() or "Look for it with PostgresSessions.sessions()."
        return StoreError(f"{self._database.place} has no session {id!r}.", hint=hint)


class PostgresSession:
    """One session in a database, open for writing."""

    def __init__(
        self,
        line: _Line,
        head: Head,
        records: Sequence[Record] = (),
        *,
        snapshot: Snapshot | None = None,
        notice: str | None = None,
    ) -> None:
        self.notice = notice
        self.snapshot = Snapshot() if snapshot is None else snapshot
        self._line = line
        self._head = head
        self._n = records[-1].n if records else 0
        """The number of the last record that is stored for certain. They are counted from 1 in each session."""
        self._crc = records[-1].crc if records else first_crc(head.id)
        """The checksum of that one."""
        self._unsure: list[_Sent] = []
        """What was sent behind it, and may be stored: the connection was lost before the answer."""
        self._lock = RLock()

    @property
    def id(self) -> str:
        return self._head.id

    def add(self, text: str, queue: Queue) -> int:
        return self._append([queued(text, queue)])

    def write(self, step: Step) -> None:
        self._append([*lines_of(step)])

    def close(self) -> None:
        with self._lock:
            self._line.close()

    def _append(self, lines: Sequence[Line]) -> int:
        """Write the lines, all or none. Return the number of the last one."""
        with self._lock, self._line.database.explaining("written"):
            sent = self._made(lines)
            if self._unsure or self._line.is_lost or not self._is_written(sent):
                self._go_on(sent)
            self._n, self._crc = sent.records[-1].n, sent.records[-1].crc
            self._unsure.clear()
            return self._n

    def _made(self, lines: Sequence[Line]) -> _Sent:
        records, crc = list[Record](), self._crc
        for n, line in enumerate(lines, self._n + 1):
            crc = crc_of(line.kind, line.position, line.body, crc)
            records.append(Record(n, line.kind, line.position, line.body, crc))
        return _Sent(time.time(), records)

    def _is_written(self, sent: _Sent) -> bool:
        """Write. False: the connection was lost."""
        from psycopg import OperationalError  # noqa: PLC0415 - an optional package
        from psycopg.errors import ConnectionTimeout, ReadOnlySqlTransaction  # noqa: PLC0415 - an optional package

        self._unsure.append(sent)
        try:
            self._send(sent)
        except ConnectionTimeout:
            raise
        except (OperationalError, ReadOnlySqlTransaction) as error:
            if isinstance(error, ReadOnlySqlTransaction):  # what was the primary is a copy now
                self._line.lose()
            if self._line.is_lost:
                return False
            self._unsure.pop()
            raise
        except Exception:
            self._unsure.pop()
            raise
        return True

    def _go_on(self, sent: _Sent) -> None:
        """Connect again and write, unless it is written already, or somebody else went on with the session."""
        line, id = self._line, self._head.id
        line.connect()
        try:
            line.take(id)
            stored = line.rows(_END, id, self._n)
            last, stored = (stored[:1], stored[1:]) if self._n else ([], stored)
            is_ours = not self._n or (bool(last) and last[0][:2] == (self._n, self._crc))
            if not is_ours or (stored and not any(each.is_stored_as(stored) for each in self._unsure)):
                raise self._changed()
            if not sent.is_stored_as(stored):
                self._unsure.append(sent)
                with line.connection.transaction():
                    if stored:  # whoever asked for it was told that it could not be written
                        line.rows(_TAKE_BACK, id, self._n)
                    self._send(sent)
        except BaseException:
            line.lose()
            raise

    def _send(self, sent: _Sent) -> None:
        from psycopg import IntegrityError  # noqa: PLC0415 - an optional package

        head, rows = self._head, [(each.n, each.kind, each.position, each.body, each.crc) for each in sent.records]
        begin = () if self._n else (head.id, head.agent, head.created, head.parent)
        write = _WRITE if self._n else f"{_BEGIN}{_WRITE}"
        try:
            self._line.rows(write, *begin, head.id, sent.at, *map(list, zip(*rows, strict=True)))
        except IntegrityError as error:
            raise self._changed() from error

    def _changed(self) -> StoreError:
        return StoreError(
            f"Session {self.id} in {self._line.place} was changed elsewhere while it was open. Nothing is written.",
            hint="Open it again to go on from what is stored.",
        )

    def __repr__(self) -> str:
        return f"<PostgresSession {self.id} in {self._line.place}>"


class _Sent:
    """Records that are sent together, and when that was."""

    def __init__(self, at: float, records: Sequence[Record]) -> None:
        self.at = at
        self.records = records

    def is_stored_as(self, rows: Sequence[tuple[int, int, float]]) -> bool:
        return [*rows] == [(each.n, each.crc, self.at) for each in self.records]


# -- the connection ----------------------------------------------------------------------------------------------------


class _Line:
    """The connection of one session, which holds its lock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.place = f"t{database.place[1:]}"
        self._name = f"journeyman chat {os.getpid()} {secrets.token_hex(4)} {socket.gethostname()[:24]}"
        """Tells others who has the session."""
        self._number: int | None = None
        """The number of the lock, once it was taken."""
        self._made: Connection | None = None
        self._is_closed = False

    @property
    def is_lost(self) -> bool:
        return self._made is None or self._made.closed

    @property
    def connection(self) -> Connection:
        assert self._made is not None
        return self._made

    def connect(self) -> None:
        """Make the connection, instead of one that there was."""
        self.lose()
        if self._is_closed:
            raise StoreError(f"The session in {self.place} was closed.", hint="Open it again.")
        given: dict[str, Any] = self.database.parameters(is_direct=True, **_SHORT)
        given["application_name"] = self._name
        threshold = self.database.prepare_threshold
        self._made = _patient_connection().connect("", autocommit=True, prepare_threshold=threshold, **given)
        self.database.check_number(self._made.info.backend_pid, self.rows(_BEGUN)[0][0])

    def open(self) -> None:
        """Connect, and make the tables that are not there."""
        check_installed("Sessions")
        self.connect()
        info, encoding = self.connection.info, self.connection.info.parameter_status("server_encoding")
        version = self.rows(GET_VERSION)[0][0] if self.rows(HAS_VERSION)[0][0] else None
        if self.database.lacks_tables(info.server_version, encoding, version):
            self.connection.execute(MAKE.encode())

    def rows(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        """Return the rows that a statement gives back, if it gives back any."""
        cursor = self.connection.cursor(binary=True)
        cursor.execute(query.encode(), given or None)
        return cursor.fetchall() if cursor.description else []

    def take(self, id: str) -> None:
        """Take the lock of a session.

        Raises:
            SessionInUse: somebody else has it.
        """
        self._number = number = self.rows(_NUMBER, id)[0][0]
        waits, holders = bool(self.rows(_END_OLD, number, self._name)), list[tuple[Any, ...]]()
        for _ in range(_TRIES):
            if self._has_taken(number, waits=waits):
                return
            holders = self.rows(_WHO, number)
            if holders and (waits or not _has_died(holders[0][0])):
                break
            waits = bool(holders)
        pid, whose = _who(*(holders[0] if holders else (None, None)))
        what = f"Session {id} in {self.place} is open in {whose}."
        raise SessionInUse(what, hint="Close it there first, or open another one.", pid=pid)

    def _has_taken(self, number: int, *, waits: bool) -> bool:
        if not waits:
            return self.rows("SELECT pg_try_advisory_lock(%s::bigint)", number)[0][0]
        from psycopg.errors import LockNotAvailable  # noqa: PLC0415 - an optional package

        self.rows(f"SET lock_timeout = {_ENDING_MS}")
        try:
            self.rows("SELECT pg_advisory_lock(%s::bigint)", number)
        except LockNotAvailable:
            return False
        finally:
            self.rows("RESET lock_timeout")
        return True

    def lose(self) -> None:
        """Let the connection go, with the lock."""
        if self._made is not None:
            self._made.close()

    def close(self) -> None:
        """Let the lock and the connection go, for good. Doing so again changes nothing."""
        self._is_closed = True
        if not self.is_lost and self._number is not None:
            from psycopg import Error  # noqa: PLC0415 - an optional package

            with suppress(Error):  # the end of a connection is noticed there a moment later
                self.rows("SELECT pg_advisory_unlock(%s::bigint)", self._number)
        self.lose()


def _records(line: _Line, id: str) -> list[Record]:
    return [Record(*row) for row in line.rows(_READ, id)]


def _info(row: tuple[Any, ...]) -> SessionInfo:
    head, (updated, n_messages, used, title) = Head(*row[:4]), row[4:]
    return info_of(head, updated=updated, n_messages=n_messages or 0, used=used, title=title)


_NAME: Final = re.compile(r"journeyman chat (\d+) [0-9a-f]{8} (.*)")


def _has_died(name: str | None) -> bool:
    """Tell whether a connection of this name is that of a process of this machine which is there no more."""
    found = _NAME.fullmatch(name or "")
    if found is None or found[2] != socket.gethostname()[:24] or os.name != "posix":
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is somebody else's
        return False
    return False


def _who(name: str | None, address: str | None) -> tuple[int | None, str]:
    """Return the number of the process that has a connection of this name, and what to call it."""
    found = _NAME.fullmatch(name or "")
    if found is None:
        return None, "another process" if address is None else f"another process on {address}"
    pid, host = int(found[1]), found[2]
    if (pid, host) == (os.getpid(), socket.gethostname()[:24]):
        return pid, "this process"
    return pid, f"process {pid} on {host}"


@cache
def _patient_connection() -> type[Connection]:
    """Return the class of connections that wait for an answer no longer than `ANSWER_S`."""
    from psycopg import Connection  # noqa: PLC0415 - an optional package
    from psycopg.errors import ConnectionTimeout  # noqa: PLC0415 - an optional package

    class Patient(Connection[tuple[Any, ...]]):
        def wait(self, gen: Generator[Any, Any, T], *given: Any, **more: Any) -> T:  # noqa: ANN401 - of the driver
            return super().wait(self._until(gen), *given, **more)

        def _until(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
            until = time.monotonic() + ANSWER_S  # a server that is well gives up sooner
            try:
                waits = next(gen)
                while True:
                    is_ready = yield waits
                    if not is_ready and time.monotonic() > until:
                        self.pgconn.finish()
                        raise ConnectionTimeout(f"no answer came within {ANSWER_S:g} seconds")
                    waits = gen.send(is_ready)
            except StopIteration as end:
                return end.value

    return Patient


def open_session(where: str, id: str | None, *, agent: str, any_agent: bool, create: bool) -> PostgresSession:
    """Open a session of the database that is named by what is behind `postgresql:` in its URL.

    Raises:
        StoreError: as for `PostgresSessions.session`; or the URL cannot be one.
    """
    if not where.startswith("//"):
        hint = "Give postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        raise StoreError("The place names a Postgres database, and is no URL of one.", hint=hint)
    try:
        sessions = PostgresSessions(f"postgresql:{where}")
    except ValueError as error:
        raise StoreError(str(error), hint="Nothing was opened.") from error
    return sessions.session(id, agent=agent, any_agent=any_agent, create=create)


if TYPE_CHECKING:
    _session: type[Session] = PostgresSession
    _sessions: type[Sessions] = PostgresSessions

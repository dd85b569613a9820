"""Sessions in a Postgres database, which processes on many machines may share.

An open session has a connection of its own, on which it holds a lock and writes. A session that lost its connection has
lost the lock, and can write nothing until it holds the lock again and has seen that nobody else went on. The lock dies
with the process.

A write is one statement in the thread that asks for it, which is that of the event loop: it waits for the network and
for the disk of the database. A machine nearby answers in a millisecond or two; none is waited for longer than
`ANSWER_S` seconds.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from journeyman.definition import explain_arguments
from journeyman.errors import StoreError
from journeyman.inbox import Queue
from journeyman.session import Sessions, SharedSession, Snapshot, Step, check_session_id, turns_of
from journeyman.store.connection import HeldConnection
from journeyman.store.database import Database
from journeyman.store.log import (
    RECORD,
    NewRecord,
    SessionRecord,
    first_crc,
    lines_of_step,
    queued,
    readable_records,
    seal_records,
)
from journeyman.store.repair import StoreRepaired
from journeyman.store.store import SessionHead, SessionInfo, beginning, closed, exported, info_of, unfinished
from journeyman.types import Message

_FIND: Final = "SELECT id, agent, created, parent FROM jm_sessions WHERE id = %s::text"
READ: Final = f"SELECT {RECORD} FROM jm_session_records WHERE session = %s::text ORDER BY n"
_OF: Final = "FROM jm_session_records WHERE session = s.id"
_NEWEST: Final = "ORDER BY n DESC LIMIT 1"
_INFO: Final = (
    f"SELECT s.id, s.agent, s.created, s.parent, (SELECT at {_OF} {_NEWEST}) AS updated,"
    f" (SELECT position + (kind = 'message')::int {_OF} AND kind IN ('message', 'cut') {_NEWEST}),"
    f" (SELECT body {_OF} AND kind = 'used' {_NEWEST}), (SELECT body {_OF} AND kind = 'title' {_NEWEST})"
    " FROM jm_sessions AS s"
)
WRITE: Final = (
    f"INSERT INTO jm_session_records (session, {RECORD}) SELECT %s::text, {RECORD}"
    # One statement for any number of records: the event loop waits for one answer.
    " FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::float8[], %s::bigint[], %b::bytea[], %s::bigint[])"
    f" AS u({RECORD})"
)
_BEGIN: Final = (
    "WITH head AS (INSERT INTO jm_sessions (id, agent, created, parent)"
    # With the first record and not before: a session in which nothing was said is not stored.
    " VALUES (%s::text, %s::text, %s::float8, %s::text) ON CONFLICT (id) DO NOTHING) "
)
LAST: Final = f"SELECT n, crc FROM jm_session_records WHERE session = %s::text {_NEWEST}"
_TURNS: Final = "name >= %s::text AND name < %s::text"
_OPEN_TURN: Final = f"SELECT name FROM jm_runs WHERE {_TURNS} AND status NOT IN ('done', 'failed') LIMIT 1"
_DELETE_TURNS: Final = (
    f"WITH gone AS (DELETE FROM jm_runs WHERE {_TURNS} RETURNING id),"
    " steps AS (DELETE FROM jm_steps WHERE run IN (SELECT id FROM gone))"
    " DELETE FROM jm_signals WHERE run IN (SELECT id FROM gone)"
)
_TAKE_BACK: Final = "DELETE FROM jm_session_records WHERE session = %s::text AND n > %s::bigint"
_PUT_ASIDE: Final = (
    "WITH bad AS (DELETE FROM jm_session_records WHERE session = %s::text AND n > %s::bigint RETURNING *)"
    f" INSERT INTO jm_session_damage (found, session, {RECORD}) SELECT %s::float8, session, {RECORD} FROM bad"
)
_MOST_KNOWN: Final = 1_000
"""How many ids are searched for one that is like an unknown one."""


@explain_arguments
class PostgresSessions:
    """Sessions in the database that a URL names: `PostgresSessions("postgresql://USER:PASSWORD@HOST:PORT/DATABASE")`.

    The URL takes the parameters that Postgres knows; `direct=HOST:PORT`, which names the database itself behind a
    pooler; and `prepare_threshold=none`. An open session holds one connection, to the database itself. Opening a
    session waits for about ten answers of the database, and each step waits for one, in the thread that calls.
    """

    def __init__(self, url: str) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used. Nothing is connected yet."""
        self._database = Database(url)

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> PostgresSession:
        """Open a session of the agent called `agent`: a new one, or the one with this id, which `create` makes if there
        is none. The tables are made if they are not there. Damaged records, and the records after them, are put aside,
        with a `StoreRepaired` warning.

        Raises:
            StoreError: there is no such session, it is another agent's and not `any_agent`, the id cannot be one, or
                the database cannot be used.
            SessionInUse: somebody has it open.
        """
        return self.shared_session(id, agent=agent, any_agent=any_agent, create=create, has_turns=False)

    def shared_session(
        self, id: str | None, *, agent: str, any_agent: bool, create: bool, has_turns: bool = True
    ) -> PostgresSession:
        """Open a session whose turns are durable runs, unless `has_turns` is false: what ends such a turn is written
        there, whoever drives it.

        Raises:
            StoreError, SessionInUse: as for `session`.
        """
        if id is not None:
            check_session_id(id)
        line = HeldConnection(self._database)
        try:
            with self._database.explaining("opened"):
                line.open()
                if id is None:
                    return PostgresSession(line, self._new(line, agent), is_shared=has_turns)
                return self._named(line, id, agent=agent, any_agent=any_agent, create=create, has_turns=has_turns)
        except BaseException:
            line.close()
            raise

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the one that was last written to first."""
        with self._reading() as line:
            return [_info(row) for row in line.rows(f"{_INFO} ORDER BY updated DESC NULLS LAST, s.created DESC")]

    def snapshot(self, id: str) -> Snapshot:
        """Return what is stored of a session, unchanged: the last calls may have no results.

        Raises:
            StoreError: there is none.
        """
        with self._reading() as line:
            self._head(line, id)
            return readable_records(_records(line, id), id)[1]

    def messages(self, id: str) -> list[Message]:
        """Return the conversation of a session, its open calls closed."""
        return closed(self.snapshot(id))

    def export(self, id: str) -> bytes:
        """Return a session as one JSON object. `load_messages` reads what is in its `messages`."""
        with self._reading() as line:
            self._head(line, id)
            return exported(
                _info(line.rows(f"{_INFO} WHERE s.id = %s::text", id)[0]), readable_records(_records(line, id), id)[1]
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
        """Forget a session, and its turns, if they were durable runs.

        Raises:
            StoreError: there is none.
            SessionInUse: somebody has it open.
        """
        with self._reading() as line:
            self._head(line, id)
            # Under its lock: whoever has it open would go on writing to what is not there.
            line.take(id)
            line.rows("DELETE FROM jm_sessions WHERE id = %s::text", id)
            line.rows("DELETE FROM jm_session_damage WHERE session = %s::text", id)
            line.rows(_DELETE_TURNS, *turns_of(id))

    # -- inside

    @contextmanager
    def _reading(self) -> Generator[HeldConnection]:
        line = HeldConnection(self._database)
        try:
            with self._database.explaining("read"):
                line.open()
                yield line
        finally:
            line.close()

    def _head(self, line: HeldConnection, id: str) -> SessionHead:
        rows = line.rows(_FIND, id)
        if not rows:
            raise self._unknown(line, id)
        return SessionHead(*rows[0])

    def _new(self, line: HeldConnection, agent: str) -> SessionHead:
        while True:
            id = secrets.token_hex(4)
            if not line.rows(_FIND, id):
                line.take(id)
                return SessionHead(id, agent, time.time())

    def _named(
        self, line: HeldConnection, id: str, *, agent: str, any_agent: bool, create: bool, has_turns: bool
    ) -> PostgresSession:
        def found() -> SessionHead | None:
            rows = line.rows(_FIND, id)
            if not rows and not create:
                raise self._unknown(line, id, or_else="To begin one of this id, give create=True.")
            head = SessionHead(*rows[0]) if rows else None
            if head is not None and head.agent not in ("", agent) and not any_agent:
                raise StoreError(
                    f"Session {id} is one of the agent {head.agent!r}, not of {agent!r}.",
                    hint="Open it with that agent, or give any_agent=True to go on with this one.",
                )
            return head

        # Once before the lock, so that a wrong id is told without taking anything.
        found()
        line.take(id)
        head = found()  # until the lock was taken, somebody may have made it, or deleted it
        if head is None:
            return PostgresSession(line, SessionHead(id, agent, time.time()), is_shared=has_turns)
        if not has_turns and (left := line.rows(_OPEN_TURN, *turns_of(id))):
            raise unfinished(left[0][0], id)
        records = _records(line, id)
        good, snapshot = readable_records(records, id)
        notice = None if len(good) == len(records) else self._repaired(line, id, good, len(records) - len(good))
        return PostgresSession(line, head, good, snapshot=snapshot, notice=notice, is_shared=has_turns)

    def _repaired(self, line: HeldConnection, id: str, good: Sequence[SessionRecord], n_bad: int) -> str:
        line.rows(_PUT_ASIDE, id, good[-1].n if good else 0, time.time())
        recovered = "1 record was" if len(good) == 1 else f"{len(good)} records were"
        notice = (
            f"Session {id} in {line.place} was damaged. {recovered} recovered, and {n_bad} left out that are damaged or"
            " behind such. Those are kept in the table jm_session_damage."
        )
        warnings.warn(StoreRepaired(notice), stacklevel=5)
        return notice

    def _unknown(self, line: HeldConnection, id: str, *, or_else: str = "") -> StoreError:
        known = [known for (known,) in line.rows(f"SELECT id FROM jm_sessions LIMIT {_MOST_KNOWN}")]
        close = get_close_matches(id, known, n=1)
        hint = f"Did you mean {close[0]}? " if close else "" if known else "It has none yet: leave the id out. "
        hint = f"{hint}{or_else}".strip() or "Look for it with PostgresSessions.sessions()."
        return StoreError(f"{self._database.place} has no session {id!r}.", hint=hint)


class PostgresSession:
    """One session in a database, open for writing."""

    def __init__(
        self,
        line: HeldConnection,
        head: SessionHead,
        records: Sequence[SessionRecord] = (),
        *,
        snapshot: Snapshot | None = None,
        notice: str | None = None,
        is_shared: bool = False,
    ) -> None:
        self.notice = notice
        self.snapshot = Snapshot() if snapshot is None else snapshot
        self._line = line
        self._head = head
        self._n = records[-1].n if records else 0
        """The number of the last record that is stored for certain. They are counted from 1 in each session."""
        self._crc = records[-1].crc if records else first_crc(head.id)
        """The checksum of that one."""
        self._unsure = set[tuple[int, int]]()
        """The ends of what was sent behind it, and may be stored: the connection was lost before the answer."""
        self._is_shared = is_shared
        """True when others may write, too: whoever drives a turn, when it ends."""
        # A text that waits may be stored from any thread.
        self._lock = RLock()

    @property
    def id(self) -> str:
        return self._head.id

    def add(self, text: str, queue: Queue) -> int:
        return self._append([queued(text, queue)])

    def write(self, step: Step) -> None:
        self._append([*lines_of_step(step)])

    def refresh(self) -> None:
        with self._lock, self._line.database.explaining("read"):
            if not self._line.is_lost and (last := self._line.rows(LAST, self.id)):
                self._n, self._crc = last[0]

    def close(self) -> None:
        with self._lock:
            self._line.close()

    def _append(self, lines: Sequence[NewRecord]) -> int:
        """Write the lines, all or none. Return the number of the last one."""
        try:
            return self._appended(lines)
        except StoreError as error:
            if not self._is_shared or error.__cause__ is None or self._unsure:
                raise
            n = self._n
            self.refresh()
            if n == self._n:
                raise
        return self._appended(lines)  # somebody else has written, who may

    def _appended(self, lines: Sequence[NewRecord]) -> int:
        with self._lock, self._line.database.explaining("written"):
            records = seal_records(lines, n=self._n, crc=self._crc, at=time.time())
            if self._unsure or self._line.is_lost or not self._is_written(records):
                self._go_on(records)
            self._n, self._crc = _end_of(records)
            self._unsure.clear()
            return self._n

    def _is_written(self, records: Sequence[SessionRecord]) -> bool:
        """Write. False: the connection was lost."""
        from psycopg import OperationalError
        from psycopg.errors import ConnectionTimeout, ReadOnlySqlTransaction

        # Before it is sent: without an answer, nobody knows whether it is stored.
        self._unsure.add(_end_of(records))
        try:
            self._send(records)
        except Exception as error:
            if isinstance(error, ReadOnlySqlTransaction):  # what was the primary is a copy now
                self._line.lose()
                return False
            if not self._line.is_lost:
                self._unsure.discard(_end_of(records))
            # Not after a timeout: all of its time is used up, while the event loop stood still. What is stored is
            # looked at before the next write.
            elif isinstance(error, OperationalError) and not isinstance(error, ConnectionTimeout):
                return False
            raise
        return True

    def _go_on(self, records: Sequence[SessionRecord]) -> None:
        """Connect again and write, unless it is written already, or somebody else went on with the session."""
        line, id = self._line, self._head.id
        line.connect()
        try:
            # The lock first: what is read of the end then stays the end.
            line.take(id)
            end = next(iter(line.rows(LAST, id)), (0, first_crc(id)))
            # A checksum builds on those of all records before, and on the moment: what ends so is what was sent.
            if end == _end_of(records):
                return
            if end != (self._n, self._crc) and end not in self._unsure:
                raise self._changed()
            self._unsure.add(_end_of(records))
            with line.connection.transaction():
                # Whoever asked for what is behind the known end was told that it could not be written.
                line.rows(_TAKE_BACK, id, self._n)
                self._send(records)
        except BaseException:
            line.lose()
            raise

    def _send(self, records: Sequence[SessionRecord]) -> None:
        from psycopg import IntegrityError

        head = self._head
        begin = () if self._n else (head.id, head.agent, head.created, head.parent)
        write = WRITE if self._n else f"{_BEGIN}{WRITE}"
        try:
            self._line.rows(write, *begin, head.id, *map(list, zip(*records, strict=True)))
        except IntegrityError as error:
            # The number is taken: somebody else has written.
            raise self._changed() from error

    def _changed(self) -> StoreError:
        return StoreError(
            f"Session {self.id} in {self._line.place} was changed elsewhere while it was open. Nothing is written.",
            hint="Open it again to go on from what is stored.",
        )

    def __repr__(self) -> str:
        return f"<PostgresSession {self.id} in {self._line.place}>"


def _end_of(records: Sequence[SessionRecord]) -> tuple[int, int]:
    return records[-1].n, records[-1].crc


def _records(line: HeldConnection, id: str) -> list[SessionRecord]:
    return [SessionRecord(*row) for row in line.rows(READ, id)]


def _info(row: tuple[Any, ...]) -> SessionInfo:
    head, (updated, n_messages, used, title) = SessionHead(*row[:4]), row[4:]
    return info_of(head, updated=updated, n_messages=n_messages or 0, used=used, title=title)


def open_session(url: str, id: str | None, *, agent: str, any_agent: bool, create: bool) -> PostgresSession:
    """Open a session of the database that a URL names.

    Raises:
        StoreError: as for `PostgresSessions.session`; or an option of the URL cannot be used.
    """
    try:
        sessions = PostgresSessions(url)
    except ValueError as error:
        raise StoreError(str(error), hint="Nothing was opened.") from error
    return sessions.session(id, agent=agent, any_agent=any_agent, create=create)


if TYPE_CHECKING:
    _session: type[SharedSession] = PostgresSession
    _sessions: type[Sessions] = PostgresSessions

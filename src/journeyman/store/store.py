"""Sessions and recordings in one SQLite file.

`Chat.open` uses it for conversations that outlive their process, and a `Runtime` records into it what happened for
whoever looks at it later. Everything is appended as JSON; nothing is changed afterwards.
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from sqlite3 import Connection
from typing import TYPE_CHECKING, Final, TypeVar, cast

from pydantic_core import from_json, to_json

from journeyman.connect import recorder_at
from journeyman.data import lazy_dataclass
from journeyman.definition import explain_arguments, missing_attribute
from journeyman.errors import StoreError
from journeyman.history import History
from journeyman.inbox import Queue
from journeyman.journal import OpenRecords, RecordingSink, TapeKind
from journeyman.session import Sessions, SharedSession, Snapshot, Step, check_session_id, turns_of
from journeyman.store.address import find_store
from journeyman.store.codec import unpack
from journeyman.store.database import without_password
from journeyman.store.file import Damaged, File, Lock, damaged
from journeyman.store.log import (
    RECORD,
    NewRecord,
    SessionRecord,
    Used,
    first_crc,
    lines_of_step,
    queued,
    readable_records,
    seal_records,
)
from journeyman.store.repair import StoreRepaired, open_or_repair, rescue, rescue_on_close
from journeyman.types import NOTHING_USED, Message, Usage, adapter_of, dump_messages

T = TypeVar("T")


@lazy_dataclass(frozen=True, kw_only=True)
class SessionInfo:
    """A session in a list."""

    id: str
    """The id of the session."""
    agent: str
    """The name of the agent; empty when it could not be recovered."""
    title: str
    """The beginning of the first prompt."""
    created: float
    """Seconds since 1970."""
    updated: float
    """Seconds since 1970."""
    messages: int
    """How many messages it has."""
    usage: Usage
    """What its runs have used."""
    parent: str | None = None
    """The session that it was branched from."""

    @property
    def cost(self) -> float | None:
        """US dollars; None when that is not known."""
        return self.usage.cost


@explain_arguments
class Store:
    """Sessions and recordings in the file at `path`, which is made if it is not there.

    Several processes may use a file at the same time; a session has one writer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file.

        A damaged file is put aside, and a new one with everything that can be read takes its place, with a
        `StoreRepaired` warning.

        Raises:
            StoreError: it cannot be opened, it is of a newer version, or it is not a store.
        """
        found = find_store(path)
        if isinstance(found, str):
            hint = "Give Chat.open, Durable or Recorder the URL, or use PostgresSessions."
            raise StoreError(f"A Store is a file, and {without_password(found)} is a database.", hint=hint)
        self.path = found
        self._recorder: OpenRecords | None = None
        self.notice: str | None
        """What was repaired; None if nothing was."""
        self._file, self.notice = open_or_repair(self.path)

    def _read(self, work: Callable[[], T]) -> T:
        """Do something that reads; if the file turns out to be damaged, repair it and do it again."""
        try:
            return work()
        except Damaged:
            # First: what stays open would go on with the file that is put aside.
            self._file.close()
            self.notice = rescue(self.path)
            warnings.warn(StoreRepaired(self.notice), stacklevel=2)
            self._file = File(self.path)
        return work()

    # -- sessions

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> FileSession:
        """Open a session of the agent called `agent`: a new one, or the one with this id, which `create` makes if there
        is none. An id has 1 to 200 characters that can be shown, no slashes, and not only dots.

        Raises:
            StoreError: there is no such session, it is another agent's and not `any_agent`, or the id cannot be one.
            SessionInUse: somebody has it open.
        """
        return self.shared_session(id, agent=agent, any_agent=any_agent, create=create, has_turns=False)

    def shared_session(
        self, id: str | None, *, agent: str, any_agent: bool, create: bool, has_turns: bool = True
    ) -> FileSession:
        """Open a session whose turns are durable runs, unless `has_turns` is false: what ends such a turn is written
        there, whoever drives it.

        Raises:
            StoreError, SessionInUse: as for `session`.
        """
        if id is not None:
            check_session_id(id)

            def named() -> FileSession:
                return self._named(id, agent=agent, any_agent=any_agent, create=create, has_turns=has_turns)

            return self._read(named)
        head = SessionHead(self._free_id(), agent, time.time())
        return FileSession(Log(self._file, head, is_shared=has_turns), self._lock(head.id), Snapshot(), self.notice)

    def _named(self, id: str, *, agent: str, any_agent: bool, create: bool, has_turns: bool) -> FileSession:
        def found() -> SessionHead | None:
            head = self._found(id)
            if head is None and not create:
                raise self._unknown(id, or_else=" To begin one of this id, give create=True.")
            if head is not None and head.agent not in ("", agent) and not any_agent:
                raise StoreError(
                    f"Session {id} is one of the agent {head.agent!r}, not of {agent!r}.",
                    hint="Open it with that agent, or give any_agent=True to go on with this one.",
                )
            return head

        # Once before the lock, so that a wrong id is told without taking anything.
        found()
        lock = self._lock(id)
        try:
            head = found()  # until the lock was taken, somebody may have made it, or deleted it
            if head is None:
                log = Log(self._file, SessionHead(id, agent, time.time()), is_shared=has_turns)
                return FileSession(log, lock, Snapshot(), self.notice)
            if not has_turns and (left := self._file.rows(OPEN_TURN, turns_of(id))):
                raise unfinished(left[0][0], id)
            records = self._records(id)
            good, snapshot = readable_records(records, id)
            # Records that the index does not know count, too: whatever is written would not fit to them.
            more = "SELECT 1 FROM records NOT INDEXED WHERE n > ? AND session = ? LIMIT 1"
            if len(good) < len(records) or self._file.rows(more, (records[-1].n if records else 0, id)):
                raise damaged(self.path, f"session {id} ends after {len(good)} records of {len(records)}")
        except BaseException:
            lock.release()
            raise
        log = Log(self._file, head, good[-1].crc if good else first_crc(id), is_shared=has_turns)
        return FileSession(log, lock, snapshot, self.notice)

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the one that was last written to first."""
        infos = self._read(lambda: [self._info(head) for head in self._heads()])
        return sorted(infos, key=lambda info: info.updated, reverse=True)

    def branch(self, id: str, at: int) -> str:
        """Begin another session with the first `at` messages of this one, and return its id.

        Raises:
            StoreError: there is no such session, or it has fewer messages.
        """
        head, step = self._read(lambda: self._head(id)), beginning(id, self.snapshot(id), at)
        log = Log(self._file, SessionHead(self._free_id(), head.agent, time.time(), parent=id))
        log.append([*lines_of_step(step)])
        return log.head.id

    def snapshot(self, id: str) -> Snapshot:
        """Return what is stored of a session, unchanged: the last calls may have no results."""
        return self._read(lambda: readable_records(self._records(self._head(id).id), id)[1])

    def messages(self, id: str) -> list[Message]:
        """Return the conversation of a session, its open calls closed."""
        return closed(self.snapshot(id))

    def export(self, id: str) -> bytes:
        """Return a session as one JSON object. `load_messages` reads what is in its `messages`."""
        return exported(self._read(lambda: self._info(self._head(id))), self.snapshot(id))

    def delete(self, id: str) -> None:
        """Forget a session, and its turns, if they were durable runs.

        Raises:
            StoreError: there is none.
            SessionInUse: somebody has it open.
        """
        head, lock = self._read(lambda: self._head(id)), self._lock(id)
        try:
            # All or nothing: turns of a session that is gone would still be found by their names.
            with self._file.transaction() as connection:
                connection.execute("DELETE FROM records WHERE session = ?", (head.id,))
                connection.execute("DELETE FROM sessions WHERE id = ?", (head.id,))
                for table in ("jm_steps", "jm_signals"):
                    which = "run IN (SELECT id FROM jm_runs WHERE name >= ? AND name < ?)"
                    connection.execute(f"DELETE FROM {table} WHERE {which}", turns_of(id))
                connection.execute("DELETE FROM jm_runs WHERE name >= ? AND name < ?", turns_of(id))
        finally:
            lock.release()

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(missing_attribute(self, "Store", name), name=name, obj=self)

    # -- recordings

    def begin(self, kind: TapeKind, agent: str, *, id: str | None = None) -> RecordingSink:
        """Begin to record: `Runtime(recorder=store)`. `Recordings` reads what was recorded.

        Raises:
            StoreError: the store cannot be written.
        """
        if self._recorder is None:
            self._recorder = recorder_at(self.path)
        return self._recorder.begin(kind, agent, id=id)

    # -- closing

    def close(self) -> None:
        """Write the records that still wait, close the file, and let others go on with its runs."""
        # First those who still write, then the file that they write to.
        if self._recorder is not None:
            self._recorder.close()
        self._file.close()
        if self._file.is_damaged:  # which turned out when it was written to
            self.notice = rescue_on_close(self.path) or self.notice

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- inside

    def _lock(self, id: str) -> Lock:
        return Lock(self.path, id, what=f"Session {id} in {self.path}")

    def _free_id(self) -> str:
        while True:
            # Short enough to be typed, so whether it is free is looked up.
            id = secrets.token_hex(4)
            if not self._read(lambda: self._file.rows("SELECT 1 FROM sessions WHERE id = ?", (id,))):  # noqa: B023
                return id

    def _heads(self) -> list[SessionHead]:
        return [
            SessionHead(*row) for row in self._file.rows("SELECT id, agent, created, parent FROM sessions ORDER BY n")
        ]

    def _head(self, id: str) -> SessionHead:
        head = self._found(id)
        if head is None:
            raise self._unknown(id)
        return head

    def _found(self, id: str) -> SessionHead | None:
        rows = self._file.rows("SELECT id, agent, created, parent FROM sessions WHERE id = ?", (id,))
        return SessionHead(*rows[0]) if rows else None

    def _unknown(self, id: str, *, or_else: str = "") -> StoreError:
        known = [head.id for head in self._heads()]
        close = get_close_matches(id, known, n=1) or known[-1:]
        hint = f"Did you mean {close[0]}? It has {len(known)}." if close else "It has none yet: leave the id out."
        return StoreError(f"{self.path} has no session {id!r}.", hint=f"{hint}{or_else}")

    def _records(self, id: str) -> list[SessionRecord]:
        query = f"SELECT {RECORD} FROM records WHERE session = ? ORDER BY n"
        return [SessionRecord(*row) for row in self._file.rows(query, (id,))]

    def _info(self, head: SessionHead) -> SessionInfo:
        rows = self._file.rows("SELECT at FROM records WHERE session = ? ORDER BY n DESC LIMIT 1", (head.id,))
        ends = "SELECT kind, position FROM records WHERE session = ? AND kind IN ('message', 'cut')"
        end = self._file.rows(f"{ends} ORDER BY n DESC LIMIT 1", (head.id,))
        used, title = self._newest(head.id, "used"), self._newest(head.id, "title")
        n_messages = 0 if not end else end[0][1] + (end[0][0] == "message")
        return info_of(head, updated=rows[0][0] if rows else None, n_messages=n_messages, used=used, title=title)

    def _newest(self, id: str, kind: str) -> bytes | None:
        query = "SELECT body FROM records WHERE session = ? AND kind = ? ORDER BY n DESC LIMIT 1"
        rows = self._file.rows(query, (id, kind))
        return rows[0][0] if rows else None


@lazy_dataclass(frozen=True)
class SessionHead:
    """The facts of a session that never change."""

    id: str
    agent: str
    created: float
    """Seconds since 1970."""
    parent: str | None = None
    """The session that it was branched from."""


@lazy_dataclass()
class Log:
    """The end of one session's log."""

    file: File
    head: SessionHead
    crc: int | None = None
    """The checksum of the last record. None until the first is written: a session in which nothing was said is not
    stored."""
    is_shared: bool = False
    """True when others may write, too: whoever drives a turn, when it ends."""

    def append(self, lines: Sequence[NewRecord], *, waits: bool = True) -> int:
        """Write the lines, all or none. Return the number of the last one. `waits`: for another process that writes."""
        head = self.head
        with self.file.transaction(waits=waits) as connection:
            if self.crc is None:
                row = (head.id, head.agent, head.created, head.parent)
                connection.execute("INSERT INTO sessions (id, agent, created, parent) VALUES (?, ?, ?, ?)", row)
            # Where others may write, the last checksum is read in the same transaction: a chain that does not fit is
            # damage.
            before = first_crc(head.id) if self.crc is None else None if self.is_shared else self.crc
            n, crc = add_lines(connection, head.id, lines, before)
        self.crc = crc
        return n


def add_lines(connection: Connection, id: str, lines: Sequence[NewRecord], crc: int | None = None) -> tuple[int, int]:
    """Write lines at the end of a session that is stored, in a transaction. Return the number and the checksum of the
    last one. `crc` is the checksum of the record before them; None: it is looked for."""
    if crc is None:
        last = connection.execute(_LAST, (id,)).fetchone()
        crc = first_crc(id) if last is None else cast("int", last[0])
    n = 0  # each gets its number as it is written: one file numbers those of all sessions
    for each in seal_records(lines, n=n, crc=crc, at=time.time()):
        crc, n = each.crc, connection.execute(_INSERT, (id, *each[1:])).lastrowid or 0
    return n, crc


def info_of(
    head: SessionHead, *, updated: float | None, n_messages: int, used: bytes | None, title: bytes | None
) -> SessionInfo:
    """Return what a list tells of a session. `used` and `title` are the bodies of its newest records of these kinds."""
    return SessionInfo(
        id=head.id,
        agent=head.agent,
        title="" if title is None else adapter_of(str).validate_json(unpack(title)),
        created=head.created,
        updated=head.created if updated is None else updated,
        messages=n_messages,
        usage=NOTHING_USED if used is None else adapter_of(Used).validate_json(unpack(used)).usage,
        parent=head.parent,
    )


def beginning(id: str, snapshot: Snapshot, at: int) -> Step:
    """Return what another session begins with that has the first `at` messages of this one.

    Raises:
        StoreError: it has fewer.
    """
    messages, turns = snapshot.messages, [turn for turn in snapshot.turns if turn.position < at]
    if not 0 < at <= len(messages):
        what = f"Session {id} cannot be branched at message {at}: it has {len(messages)}."
        raise StoreError(what, hint="Give the number of one of its messages, from 1 on.")
    return Step(position=0, messages=messages[:at], turns=turns)


def closed(snapshot: Snapshot) -> list[Message]:
    """Return a conversation with its open calls closed."""
    staged = (Message("user", snapshot.staged),) if snapshot.staged else ()
    return list(History((*snapshot.messages, *staged)).export())


def exported(info: SessionInfo, snapshot: Snapshot) -> bytes:
    """Return a session as one JSON object."""
    names = ("id", "agent", "title", "created", "updated", "parent", "usage")
    document: dict[str, object] = {name: getattr(info, name) for name in names}
    document["waiting"] = [{"queue": text.queue, "text": text.text} for text in snapshot.waiting]
    document["messages"] = from_json(dump_messages(closed(snapshot)))
    return to_json(document, indent=2)


_LAST: Final = "SELECT crc FROM records WHERE session = ? ORDER BY n DESC LIMIT 1"
OPEN_TURN: Final = "SELECT name FROM jm_runs WHERE name >= ? AND name < ? AND status NOT IN ('done', 'failed') LIMIT 1"
"""Finds a turn of a session that has not ended. It takes what `turns_of` gives."""
_INSERT: Final = "INSERT INTO records (session, kind, position, at, f, body, crc) VALUES (?, ?, ?, ?, ?, ?, ?)"


def unfinished(turn: str, id: str) -> StoreError:
    """Return the refusal to go on with a session without the turn that was begun there."""
    hint = "Open the chat with a Durable of this store, which goes on with the turn."
    return StoreError(f"In session {id}, the durable turn {turn} has not ended.", hint=hint)


class FileSession:
    """One session of a store, open for writing."""

    def __init__(self, log: Log, lock: Lock, snapshot: Snapshot, notice: str | None) -> None:
        self.notice = notice
        self.snapshot = snapshot
        self.on_close: Callable[[], None] | None = None
        """Called when the session is closed: it closes the store that was opened for it."""
        self._log = log
        self._lock = lock
        self._is_closed = False

    @property
    def id(self) -> str:
        return self._log.head.id

    def add(self, text: str, queue: Queue) -> int:
        return self._append([queued(text, queue)])

    def write(self, step: Step) -> None:
        self._append([*lines_of_step(step)])

    def write_at_once(self, step: Step) -> None:
        self._append([*lines_of_step(step)], waits=False)

    def _append(self, lines: Sequence[NewRecord], *, waits: bool = True) -> int:
        if self._is_closed:  # somebody else may write there now
            raise StoreError(f"The session {self.id} was closed. Nothing is written.", hint="Open it again.")
        return self._log.append(lines, waits=waits)

    def refresh(self) -> None:
        """Nothing is known of the end that is not read when something is written."""

    def close(self) -> None:
        # First this: once the lock is free, somebody else may write.
        self._is_closed = True
        self._lock.release()
        if self.on_close is not None:
            self.on_close()

    def __repr__(self) -> str:
        return f"<FileSession {self.id} in {self._log.file.path}>"


def open_session(
    path: str | os.PathLike[str], id: str | None, *, agent: str, any_agent: bool, create: bool, has_turns: bool = False
) -> FileSession:
    """Open a session of the store at `path`, which is closed with it. `has_turns`: its turns are durable runs."""
    store = Store(path)
    try:
        session = store.shared_session(id, agent=agent, any_agent=any_agent, create=create, has_turns=has_turns)
    except BaseException:
        # Nobody else closes it: the caller gets nothing.
        store.close()
        raise
    session.on_close = store.close
    return session


if TYPE_CHECKING:
    _session: type[SharedSession] = FileSession
    _sessions: type[Sessions] = Store

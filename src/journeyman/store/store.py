"""Sessions and recordings in one SQLite file.

`Chat.open` uses it for conversations that outlive their process, and a `Runtime` records into it what happened for
whoever looks at it later. Everything is appended as JSON; nothing is changed afterwards.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from journeyman.connect import recorder_at
from journeyman.definition.problems import explain_arguments, missing_attribute
from journeyman.errors import StoreError
from journeyman.journal import OpenRecords, RecordingSink, TapeKind
from journeyman.session import Sessions
from journeyman.store.address import find_store
from journeyman.store.database import without_password
from journeyman.store.file import Damaged, File, Lock, damaged
from journeyman.store.log import RECORD, NewRecord, SessionRecord, seal_records
from journeyman.store.redacted import StepRedactor
from journeyman.store.repair import StoreRepaired, open_or_repair, repair, repair_on_close
from journeyman.store.sessions import SessionHead, SessionInfo, SessionRows, SqlRows, StoredSession, StoredSessions
from journeyman.tools.redaction import Secret

__all__ = ["FileRows", "SessionInfo", "Store", "StoreRepaired", "add_lines", "open_session"]

T = TypeVar("T")

_BEGIN: Final = "INSERT INTO jm_sessions (id, agent, created, parent) VALUES (?, ?, ?, ?)"
_WRITE: Final = f"INSERT INTO jm_conversation ({RECORD}) VALUES ({', '.join('?' * len(SessionRecord._fields))})"


@explain_arguments
class Store(StoredSessions):
    """Sessions and recordings in the file at `path`, which is made if it is not there.

    Several processes may use a file at the same time; a session has one writer.
    """

    def __init__(self, path: str | os.PathLike[str], *, redact: Sequence[Secret] | None = None) -> None:
        """Open the file.

        A damaged file is put aside, and a new one with everything that can be read takes its place, with a
        `StoreRepaired` warning.

        Args:
            path: The file.
            redact: Write sessions without what looks like a secret, and without what this says, as for a cassette:
                with `redact=()`, only the first. None: they are written word for word.

        Raises:
            StoreError: it cannot be opened, it is of a newer version, or it is not a store.
        """
        found = find_store(path)
        if isinstance(found, str):
            hint = "Give Chat.open, Durable or Recorder the URL, or use PostgresSessions."
            raise StoreError(f"A Store is a file, and {without_password(found)} is a database.", hint=hint)
        self.path = found
        self._redactor = None if redact is None else StepRedactor(redact)
        self._recorder: OpenRecords | None = None
        self._file, self.notice = open_or_repair(self.path)

    def _open(self) -> SqlRows:
        return FileRows(self._file)

    def _use(self, work: Callable[[SqlRows], T], *, stays_open: bool = False) -> T:
        """Do it; if the file turns out to be damaged, repair it and do it again."""
        try:
            return super()._use(work, stays_open=stays_open)
        except Damaged:
            # First: what stays open would go on with the file that is put aside.
            self._file.close()
            self.notice = repair(self.path)
            warnings.warn(StoreRepaired(self.notice), stacklevel=2)
            self._file = File(self.path)
        return super()._use(work, stays_open=stays_open)

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(missing_attribute(self, "Store", name), name=name, obj=self)

    def begin(self, kind: TapeKind, agent: str, *, id: str | None = None) -> RecordingSink:
        """Begin to record: `Runtime(recorder=store)`. `Recordings` reads what was recorded.

        Raises:
            StoreError: the store cannot be written.
        """
        if self._recorder is None:
            self._recorder = recorder_at(self.path)
        return self._recorder.begin(kind, agent, id=id)

    def close(self) -> None:
        """Write the records that still wait, close the file, and let others go on with its runs."""
        # First those who still write, then the file that they write to.
        if self._recorder is not None:
            self._recorder.close()
        self._file.close()
        if self._file.is_damaged:  # which turned out when it was written to
            self.notice = repair_on_close(self.path) or self.notice

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FileRows(SqlRows):
    """The rows of sessions in a file."""

    mark: ClassVar[str] = "?"

    def __init__(self, file: File) -> None:
        self.place = str(file.path)
        self._file = file
        self._lock: Lock | None = None

    def select(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._file.rows(query, given)

    def execute_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._file.transaction() as connection:
            for statement, given in statements:
                connection.execute(statement, given)

    def lock(self, id: str) -> None:
        self._lock = Lock(self._file.path, id, what=f"Session {id} in {self.place}")

    def read(self, id: str) -> Sequence[SessionRecord]:
        records = super().read(id)
        if self._lock is not None:
            # Records that the index does not know count, too: whatever is written would not fit to them.
            last = "(SELECT ifnull(max(rowid), 0) FROM jm_conversation WHERE session = ?)"
            more = f"SELECT 1 FROM jm_conversation NOT INDEXED WHERE rowid > {last} AND session = ? LIMIT 1"
            if self.select(more, (id, id)):
                raise damaged(self._file.path, f"session {id} has more than {len(records)} records")
        return records

    def append(self, head: SessionHead, lines: Sequence[NewRecord], *, is_new: bool, waits: bool) -> int:
        with self._file.transaction(waits=waits) as connection:
            if is_new:
                connection.execute(_BEGIN, (head.id, head.agent, head.created, head.parent))
            return add_lines(connection, head.id, lines)

    def put_aside(self, id: str, good: Sequence[SessionRecord], n_bad: int) -> str:
        raise damaged(self._file.path, f"session {id} ends after {len(good)} records of {len(good) + n_bad}")

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()


def add_lines(connection: Connection, session: str, lines: Sequence[NewRecord]) -> int:
    """Write lines at the end of a session that is stored, in a transaction. Return the number of the last one."""
    # Read in that transaction: others may write, too, such as who drives a turn, when it ends.
    last = "SELECT ifnull(max(n), 0) FROM jm_conversation WHERE session = ?"
    records = seal_records(session, lines, after=connection.execute(last, (session,)).fetchone()[0], at=time.time())
    for each in records:
        connection.execute(_WRITE, each)
    return records[-1].n


def open_session(
    path: str | os.PathLike[str], id: str | None, *, agent: str, any_agent: bool, create: bool, has_turns: bool = False
) -> StoredSession:
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
    _rows: type[SessionRows] = FileRows
    _sessions: type[Sessions] = Store

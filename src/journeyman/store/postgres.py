"""Sessions in a Postgres database, which processes on many machines may share.

An open session has a connection of its own, on which it holds a lock and writes. A session that lost its connection has
lost the lock, and can write nothing until it holds the lock again and has seen that nobody else went on. The lock dies
with the process.

A write is one statement in the thread that asks for it, which is that of the event loop: it waits for the network and
for the disk of the database. A machine nearby answers in a millisecond or two; none is waited for longer than
`ANSWER_S` seconds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from journeyman.definition import explain_arguments
from journeyman.errors import StoreError
from journeyman.session import Sessions
from journeyman.store.connection import HeldConnection
from journeyman.store.database import Database
from journeyman.store.log import RECORD, NewRecord, SessionRecord, seal_records
from journeyman.store.redacted import StepRedactor
from journeyman.store.repair import StoreRepaired
from journeyman.store.sessions import SessionHead, SessionRows, SqlRows, StoredSession, StoredSessions, aside_of
from journeyman.tools.redaction import Secret

_LOCKED: Final = "SELECT id FROM jm_sessions WHERE id = %s::text FOR UPDATE"
LOCK_AND_COUNT: Final = (_LOCKED, "SELECT coalesce(max(n), 0) FROM jm_conversation WHERE session = %s::text")
"""Who writes in a transaction locks the session first, and asks then for the number of its last record: in one
statement it would be the number of before the lock was waited for."""
WRITE: Final = (
    f"INSERT INTO jm_conversation ({RECORD}) SELECT {RECORD}"
    # One statement for any number of records: one answer is waited for.
    " FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::float8[], %s::bigint[], %b::bytea[],"
    f" %s::bigint[]) AS u({RECORD})"
)
_WRITE_ON: Final = f"WITH head AS ({_LOCKED}) {WRITE}, head RETURNING n"
_BEGIN: Final = (
    "WITH head AS (INSERT INTO jm_sessions (id, agent, created, parent)"
    # With the first record and not before: a session in which nothing was said is not stored.
    f" VALUES (%s::text, %s::text, %s::float8, %s::text) ON CONFLICT (id) DO NOTHING) {WRITE} RETURNING n"
)
_END: Final = "SELECT n, crc FROM jm_conversation WHERE session = %s::text ORDER BY n DESC LIMIT 1"
_TAKE_BACK: Final = "DELETE FROM jm_conversation WHERE session = %s::text AND n > %s::bigint"
_PUT_ASIDE: Final = "UPDATE jm_conversation SET session = %s::text WHERE session = %s::text AND n > %s::bigint"
_TRIES: Final = 3


@explain_arguments
class PostgresSessions(StoredSessions):
    """Sessions in the database that a URL names: `PostgresSessions("postgresql://USER:PASSWORD@HOST:PORT/DATABASE")`.

    The URL takes the parameters that Postgres knows; `direct=HOST:PORT`, which names the database itself behind a
    pooler; and `prepare_threshold=none`. An open session holds one connection, to the database itself. Opening a
    session waits for about ten answers of the database, and each step waits for one, in the thread that calls. The
    tables are made if they are not there.
    """

    def __init__(self, url: str, *, redact: Sequence[Secret] | None = None) -> None:
        """Raise a `ValueError` if an option of the URL cannot be used. Nothing is connected yet.

        `redact` is that of `Store`.
        """
        self._database = Database(url)
        self._redactor = None if redact is None else StepRedactor(redact)

    def _open(self) -> SqlRows:
        return DatabaseRows(self._database)


class DatabaseRows(SqlRows):
    """The rows of sessions in a database, on a connection that holds the lock of one."""

    mark: ClassVar[str] = "%s::text"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._line = HeldConnection(database)
        self.place = self._line.place
        self._n = 0
        """The number of the last record of the session, which is stored for certain."""
        self._sent: SessionRecord | None = None
        """The last record of what was sent behind it and may be stored: the connection was lost before the answer."""
        try:
            with database.explaining("opened"):
                self._line.open()
        except BaseException:
            self._line.close()
            raise

    def select(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._database.explaining("read"):
            return self._line.rows(query, *given)

    def execute_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._database.explaining("written"), self._line.connection.transaction():
            for statement, given in statements:
                self._line.rows(statement, *given)

    def lock(self, id: str) -> None:
        with self._database.explaining("opened"):
            self._line.take(id)

    def read(self, id: str) -> Sequence[SessionRecord]:
        records = super().read(id)
        self._n = records[-1].n if records else 0
        return records

    def refresh(self, id: str) -> None:
        if not self._line.is_lost and (end := self.select(_END, (id,))):
            self._n = end[0][0]

    def put_aside(self, id: str, good: Sequence[SessionRecord], n_bad: int) -> str:
        self._n, name = len(good), f"{aside_of(id)[0]}damaged-{time.time():.3f}"
        self.execute_all([(_PUT_ASIDE, (name, id, self._n))])
        recovered = "1 record was" if self._n == 1 else f"{self._n} records were"
        notice = (
            f"Session {id} in {self.place} was damaged. {recovered} recovered, and {n_bad} left out that are damaged or"
            f" behind such. Those are kept in the table jm_conversation, as the session {name}."
        )
        warnings.warn(StoreRepaired(notice), stacklevel=6)
        return notice

    def append(self, head: SessionHead, lines: Sequence[NewRecord], *, is_new: bool, waits: bool) -> int:
        with self._database.explaining("written"):
            if self._line.is_lost or self._sent is not None:
                if self._go_on(head.id):
                    # Whoever asked for it was told that it could not be written.
                    self._line.rows(_TAKE_BACK, head.id, self._n)
                self._sent = None
            for _ in range(_TRIES):
                records = seal_records(head.id, lines, after=self._n, at=time.time())
                if self._is_written(head, records, is_new=is_new):
                    self._n, self._sent = records[-1].n, None
                    return self._n
        what = f"Session {head.id} in {self.place} could not be written: its connection was lost again and again."
        raise StoreError(what, hint="Try again.", may_pass=True)

    def _is_written(self, head: SessionHead, records: Sequence[SessionRecord], *, is_new: bool) -> bool:
        """Write. False: it is not stored, and may be written again.

        As for a step, one statement does it, which has no number that is known before its answer comes: records are
        found under the numbers that they have in their session.
        """
        from psycopg import OperationalError
        from psycopg.errors import ConnectionTimeout, ReadOnlySqlTransaction, UniqueViolation

        line = self._line
        begin = (head.id, head.agent, head.created, head.parent) if is_new else (head.id,)
        self._sent = records[-1]  # before it is sent: without an answer, nobody knows whether it is stored
        try:
            if not line.rows(_BEGIN if is_new else _WRITE_ON, *begin, *map(list, zip(*records, strict=True))):
                raise self._changed(head.id)
        except Exception as error:
            if not line.is_lost:  # that was the answer
                self._sent = None
            if isinstance(error, UniqueViolation):  # who has ended a turn has used the number
                self.refresh(head.id)
                return False
            if isinstance(error, ReadOnlySqlTransaction):  # what was the primary is a copy now
                line.lose()
            # Not after a timeout: all of its time is used up, while the event loop stood still. What is stored is
            # looked at before the next write.
            elif not line.is_lost or not isinstance(error, OperationalError) or isinstance(error, ConnectionTimeout):
                raise
            if self._go_on(head.id):
                return True
            self._sent = None
            return False
        return True

    def _go_on(self, id: str) -> bool:
        """Connect again, and see where the session ends. True: with what was sent last.

        Raises:
            SessionInUse: somebody else has it open.
            StoreError: the database is away, or somebody else went on with the session.
        """
        line = self._line
        line.connect()
        try:
            # The lock first: what is read of the end then stays the end.
            line.take(id)
            end = next(iter(line.rows(_END, id)), (0, 0))
            is_held = self._sent is not None and end == (self._sent.n, self._sent.crc)
            if not is_held and end[0] != self._n:
                raise self._changed(id)
        except BaseException:
            line.lose()
            raise
        return is_held

    def _changed(self, id: str) -> StoreError:
        return StoreError(
            f"Session {id} in {self.place} was changed elsewhere while it was open. Nothing is written.",
            hint="Open it again to go on from what is stored.",
        )

    def close(self) -> None:
        self._line.close()


def open_session(url: str, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
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
    _rows: type[SessionRows] = DatabaseRows
    _sessions: type[Sessions] = PostgresSessions

"""Sessions in a Postgres database, which processes on many machines may share.

An open session has a connection of its own, on which it holds a lock and writes. A session that lost its connection has
lost the lock, and can write nothing until it holds the lock again and has seen that nobody else went on. The lock dies
with the process.

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
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from journeyman.definition.problems import explain_arguments
from journeyman.errors import SessionInUse, StoreError
from journeyman.session import Sessions
from journeyman.store.client import Client, do_here, in_transaction, rows_of, run_now, wait_here
from journeyman.store.database import HELD, NOTICED, Database
from journeyman.store.log import RECORD, NewRecord, SessionRecord, seal_records
from journeyman.store.redacted import StepRedactor
from journeyman.store.repair import StoreRepaired
from journeyman.store.sessions import SessionHead, SessionRows, SqlRows, StoredSession, StoredSessions, aside_of
from journeyman.tools.redaction import Secret

if TYPE_CHECKING:
    from journeyman.store.client import Connection

ANSWER_S: Final = 5.0
"""The seconds in which the database has to answer. Its answer is waited for where the event loop runs, so it bounds how
long a server of many clients stands still."""
_STATEMENT_MS: Final = 4_000
"""How many milliseconds the database works on one statement before it gives up by itself. Less than `ANSWER_S`: a
server that is well then says so itself, and the connection and its lock stay."""
_ENDING_MS: Final = 1_000
"""How many milliseconds to wait for the lock of a connection that is ending. A process that was killed is noticed
there a moment later."""
# Shorter than for runs in the background: whoever opens or writes a session holds up the event loop.
_SHORT: Final = {"connect_timeout": "3", "tcp_user_timeout": "5000"}
_BEGUN: Final = f"{NOTICED}, set_config('statement_timeout', '{_STATEMENT_MS}', false)"
_NUMBER: Final = "SELECT hashtextextended('journeyman session ' || 'jm_sessions'::regclass::oid || ' ' || %s::text, 0)"
"""The number of a session's lock. It is another one for the tables of another schema."""
_HOLDERS: Final = f"FROM ({HELD}) AS held JOIN pg_stat_activity AS holder USING (pid) WHERE number = %s::bigint"
_WHO: Final = f"SELECT holder.application_name, host(holder.client_addr) {_HOLDERS}"
_END_OLD: Final = (
    f"SELECT pg_terminate_backend(pid) {_HOLDERS} AND holder.application_name = %s::text AND pid <> pg_backend_pid()"
)
"""Ends a connection of this session that was lost here, and still holds the lock there."""
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
    """The rows of sessions in a database, on a connection that holds the lock of one: who lost the connection has lost
    the lock."""

    mark: ClassVar[str] = "%s::text"

    def __init__(self, database: Database) -> None:
        """Connect, and make the tables that are not there."""
        self.place = f"t{database.place[1:]}"
        # Postgres cuts a name at 63 bytes: with 24 of the host's, the longest has 57.
        self._name = f"journeyman chat {os.getpid()} {secrets.token_hex(4)} {socket.gethostname()[:24]}"
        """Tells others who has the session."""
        self._client: Final = Client(
            database,
            waiting=wait_here(ANSWER_S),
            settings=_BEGUN,
            take=self._take,
            unless_given=_SHORT,
            always={"application_name": self._name},
        )
        self._id: str | None = None
        """The session that is locked."""
        self._number = 0
        """The number of its lock."""
        self._n = 0
        """The number of the last record of the session, which is stored for certain."""
        self._sent: SessionRecord | None = None
        """The last record of what was sent behind it and may be stored: the connection was lost before the answer."""
        run_now(self._client.open("Sessions"))

    def select(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return do_here(self._client, "read", lambda made: rows_of(made, query, given))

    def execute_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        async def work(made: Connection) -> None:
            async with in_transaction(made):
                for statement, given in statements:
                    await made.execute(statement.encode(), given)

        do_here(self._client, "written", work)

    def lock(self, id: str) -> None:
        do_here(self._client, "opened", lambda made: self._lock(made, id))
        self._id = id

    async def _lock(self, made: Connection, id: str) -> None:
        ((self._number,),) = await rows_of(made, _NUMBER, [id])
        # First whoever is left of this very process: a connection that was lost here may hold the lock there for a
        # while.
        was_here = bool(await rows_of(made, _END_OLD, [self._number, self._name]))
        if not was_here and (await rows_of(made, "SELECT pg_try_advisory_lock(%s::bigint)", [self._number]))[0][0]:
            return
        holders = await rows_of(made, _WHO, [self._number])
        is_ending = was_here or not holders or _has_died(holders[0][0])
        if is_ending and await self._has_waited(made):
            return
        pid, whose = _who(*(holders[0] if holders else (None, None)))
        what = f"Session {id} in {self.place} is open in {whose}."
        raise SessionInUse(what, hint="Close it there first, or open another one.", pid=pid)

    async def _has_waited(self, made: Connection) -> bool:
        """Wait for the lock. False: it is not free yet."""
        from psycopg.errors import LockNotAvailable

        await made.execute(f"SET lock_timeout = {_ENDING_MS}".encode())
        try:
            await made.execute(b"SELECT pg_advisory_lock(%s::bigint)", [self._number])
        except LockNotAvailable:
            return False
        finally:
            await made.execute(b"RESET lock_timeout")
        return True

    async def _take(self, made: Connection) -> None:
        """Lock the session on another connection, too, and see whether it ends with what was sent last.

        Raises:
            SessionInUse: somebody else has it open.
            StoreError: somebody else went on with it.
        """
        if self._id is None:
            return
        # The lock first: what is read of the end then stays the end.
        await self._lock(made, self._id)
        end = await self._end_of(made, self._id)
        if self._sent is None or end != (self._sent.n, self._sent.crc):
            if end[0] != self._n:
                raise self._explain_change(self._id)
            self._sent = None

    async def _end_of(self, made: Connection, id: str) -> tuple[int, int]:
        """Return the number and the checksum of the last record of a session."""
        n, crc = next(iter(await rows_of(made, _END, [id])), (0, 0))
        return n, crc

    def read(self, id: str) -> Sequence[SessionRecord]:
        records = super().read(id)
        self._n = records[-1].n if records else 0
        return records

    def refresh(self, id: str) -> None:
        if not self._client.is_lost:
            self._n, _ = do_here(self._client, "read", lambda made: self._end_of(made, id))

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
        sent: SessionRecord | None = None

        async def work(made: Connection) -> int:
            nonlocal sent
            if self._sent is not None and self._sent is not sent:
                # It is stored, and whoever asked for it was told that it could not be written.
                await made.execute(_TAKE_BACK.encode(), [head.id, self._n])
                self._sent = None
            while self._sent is None:
                records = seal_records(head.id, lines, after=self._n, at=time.time())
                sent = self._sent = records[-1]  # before it is sent: without an answer, nobody knows if it is stored
                await self._write(made, head, records, is_new=is_new)
            self._n, self._sent = self._sent.n, None
            return self._n

        return do_here(self._client, "written", work)

    async def _write(
        self, made: Connection, head: SessionHead, records: Sequence[SessionRecord], *, is_new: bool
    ) -> None:
        """Write. Nothing counts as sent if the database has refused it.

        As for a step, one statement does it, which has no number that is known before its answer comes: records are
        found under the numbers that they have in their session.
        """
        from psycopg.errors import UniqueViolation

        begin = (head.id, head.agent, head.created, head.parent) if is_new else (head.id,)
        given = [*begin, *map(list, zip(*records, strict=True))]
        try:
            if not await rows_of(made, _BEGIN if is_new else _WRITE_ON, given):
                raise self._explain_change(head.id)
        except UniqueViolation:  # who has ended a turn has used the number
            self._sent = None
            self._n, _ = await self._end_of(made, head.id)
        except Exception:
            if not made.closed:
                self._sent = None
            raise
        except BaseException:
            self._client.lose()  # what is stored is seen on the next one
            raise

    def _explain_change(self, id: str) -> StoreError:
        return StoreError(
            f"Session {id} in {self.place} was changed elsewhere while it was open. Nothing is written.",
            hint="Open it again to go on from what is stored.",
        )

    def close(self) -> None:
        held = self._client.held
        if self._id is not None and held is not None and not self._client.is_lost:
            from psycopg import Error

            with suppress(Error):  # the end of a connection is noticed there a moment later
                run_now(held.execute(b"SELECT pg_advisory_unlock(%s::bigint)", [self._number]))
        self._client.close()


_NAME: Final = re.compile(r"journeyman chat (\d+) [0-9a-f]{8} (.*)")


def _has_died(name: str | None) -> bool:
    """Tell whether a connection of this name is that of a process of this machine which is there no more."""
    found = _NAME.fullmatch(name or "")
    # On Windows, signal 0 is Ctrl-C.
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

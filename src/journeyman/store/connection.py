"""The connection of one open session in Postgres, which holds its lock: who lost the connection has lost the lock, and
the lock dies with the process."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from journeyman.errors import SessionInUse, StoreError
from journeyman.files import check_same_process
from journeyman.store.database import GET_VERSION, HAS_VERSION, HELD, NOTICED, Database, check_installed, make_tables

if TYPE_CHECKING:
    from psycopg import Connection as PsycopgConnection

    class Connection(PsycopgConnection[tuple[Any, ...]]):
        """A connection that waits for an answer no longer than it is told to."""

        answer_s: float | None


T = TypeVar("T")

ANSWER_S: Final = 5.0
"""How many seconds to wait for an answer of the database. It is waited for where the event loop runs, so it bounds
how long a server of many clients stands still."""
_STATEMENT_MS: Final = 4_000
"""How many milliseconds the database works on one statement before it gives up by itself. Less than `ANSWER_S`: a
server that is well then says so itself, and the connection and its lock stay."""
_ENDING_MS: Final = 1_000
"""How many milliseconds to wait for the lock of a connection that is ending. A process that was killed is noticed
there a moment later."""
_TRIES: Final = 3
# Shorter than for runs in the background: whoever opens or writes a session holds up the event loop.
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


class HeldConnection:
    """The connection of one session, which holds its lock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.place = f"t{database.place[1:]}"
        # Postgres cuts a name at 63 bytes: with 24 of the host's, the longest has 57.
        self._name = f"journeyman chat {os.getpid()} {secrets.token_hex(4)} {socket.gethostname()[:24]}"
        """Tells others who has the session."""
        self._number: int | None = None
        """The number of the lock, once it was taken."""
        self._made: Connection | None = None
        self._is_closed = False
        self._pid = os.getpid()

    @property
    def is_lost(self) -> bool:
        return self._made is None or self._made.closed

    @property
    def connection(self) -> Connection:
        assert self._made is not None
        return self._made

    def connect(self) -> None:
        """Make the connection, instead of one that there was."""
        check_same_process(self._pid, f"The session in {self.place}")
        self.lose()
        if self._is_closed:
            raise StoreError(f"The session in {self.place} was closed.", hint="Open it again.")
        # To the database itself: a pooler gives each transaction another connection, and a lock belongs to one.
        given: dict[str, Any] = self.database.parameters(is_direct=True, **_SHORT)
        given["application_name"] = self._name
        threshold = self.database.prepare_threshold
        self._made = patient_connection().connect("", autocommit=True, prepare_threshold=threshold, **given)
        self.database.check_number(self._made.info.backend_pid, self.rows(_BEGUN)[0][0])

    def open(self) -> None:
        """Connect, and make the tables that are not there."""
        check_installed("Sessions")
        self.connect()
        info, encoding = self.connection.info, self.connection.info.parameter_status("server_encoding")
        version = self.rows(GET_VERSION)[0][0] if self.rows(HAS_VERSION)[0][0] else None
        if self.database.lacks_tables(info.server_version, encoding, version):
            self.connection.execute(make_tables().encode())

    def rows(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        """Return the rows that a statement gives back, if it gives back any."""
        check_same_process(self._pid, f"The session in {self.place}")
        # As text, the bytes of a body would come as hexadecimal digits, twice as long.
        cursor = self.connection.cursor(binary=True)
        cursor.execute(query.encode(), given or None)
        return cursor.fetchall() if cursor.description else []

    def take(self, id: str) -> None:
        """Take the lock of a session.

        Raises:
            SessionInUse: somebody else has it.
        """
        self._number = number = self.rows(_NUMBER, id)[0][0]
        # First whoever is left of this very process: a connection that was lost here may hold the lock there for a
        # while.
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
        from psycopg.errors import LockNotAvailable

        self.rows(f"SET lock_timeout = {_ENDING_MS}")
        try:
            self.rows("SELECT pg_advisory_lock(%s::bigint)", number)
        except LockNotAvailable:
            return False
        finally:
            self.rows("RESET lock_timeout")
        return True

    def lose(self) -> None:
        """Let the connection go, with the lock; but not a connection that a forked child shares with its parent."""
        if self._made is not None and self._pid == os.getpid():
            self._made.close()

    def close(self) -> None:
        """Let the lock and the connection go, for good. Doing so again changes nothing."""
        self._is_closed = True
        if self._pid == os.getpid() and not self.is_lost and self._number is not None:
            from psycopg import Error

            with suppress(Error):  # the end of a connection is noticed there a moment later
                self.rows("SELECT pg_advisory_unlock(%s::bigint)", self._number)
        self.lose()


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


@cache
def patient_connection() -> type[Connection]:
    """Return the class of connections that wait for an answer no longer than `answer_s`; None: forever."""
    from psycopg import Connection as Driver
    from psycopg.errors import ConnectionTimeout

    class PatientConnection(Driver[tuple[Any, ...]]):
        answer_s: float | None = ANSWER_S

        # The driver itself waits without end, and looks up each tenth of a second: then it is asked here.
        def wait(self, gen: Generator[Any, Any, T], *given: Any, **more: Any) -> T:
            return super().wait(self._until(gen), *given, **more)

        def _until(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
            until = time.monotonic() + (self.answer_s or math.inf)  # a server that is well gives up sooner
            try:
                waits = next(gen)
                while True:
                    is_ready = yield waits
                    if not is_ready and time.monotonic() > until:
                        # For good: the answer could still come, and be read as that of the next statement.
                        self.pgconn.finish()
                        raise ConnectionTimeout(f"no answer came within {self.answer_s:g} seconds")
                    waits = gen.send(is_ready)
            except StopIteration as end:
                return end.value

    return cast("type[Connection]", PatientConnection)

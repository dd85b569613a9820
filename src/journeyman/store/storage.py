"""The storage of the rows of recordings: a port, with the SQLite file behind it; `shared` has Postgres.

Both understand the same statements, which are written as SQLite reads them. What the two do in ways of their own is a
method here, and nothing above asks which of the two it has.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from journeyman.errors import StoreError
from journeyman.store.file import Lock, is_held
from journeyman.store.recordings import FORMAT, tables
from journeyman.store.repair import open_or_repair, rescue_on_close

Purpose: TypeAlias = Literal["records", "forgets", "speaks", ""]
"""What a transaction does that others must not be in the middle of. `records`: it uses pieces that are there, so nobody
forgets any meanwhile; `forgets`; `speaks`: it numbers what is said, so that who has read one has read all before it."""


class Rows(Protocol):
    """The rows that a statement found."""

    def fetchone(self) -> Any: ...  # noqa: ANN401 - whatever the columns hold

    def fetchall(self) -> list[Any]: ...


class Transaction(Protocol):
    """Writes all of it, or nothing."""

    def execute(self, statement: str, given: Sequence[object] = (), /) -> Rows:
        """Do what a statement says, and return what it finds, or gives back by RETURNING."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[object]], /) -> object:
        """Do the same for each row."""
        ...

    def add(self, statement: str, given: Sequence[object], /) -> int:
        """Insert a row into a table that numbers its rows by a column `n`, and return its number."""
        ...

    def forgotten(self) -> int:
        """Return a number that is another one when somebody else may have taken rows out since it was last asked for:
        in a transaction that `records`."""
        ...


class Storage(Protocol):
    """Keeps rows. Any thread may use it; one does at a time.

    Whatever goes wrong is a `StoreError`. What is away, and may come back, is one that `is_busy`.
    """

    @property
    def place(self) -> str:
        """What it is called, in messages: without a password."""
        ...

    @property
    def notice(self) -> str | None:
        """What was repaired as it was opened."""
        ...

    def rows(self, query: str, given: Sequence[object] = (), /) -> list[Any]:
        """Return the rows of a query."""
        ...

    def write(self, statement: str, given: Sequence[object], /) -> int:
        """Write what one statement writes, and tell those who look. Return how many rows that are."""
        ...

    def transaction(self, purpose: Purpose = "", *, tells: bool = False) -> AbstractContextManager[Transaction]:
        """Write what the block writes: all of it, or nothing if it raises. `tells`: those who wait for it hear of it at
        once: who looks of what a recorder writes, and recorders of the rest."""
        ...

    def has(self, table: str) -> bool:
        """Tell whether there is a table of this name."""
        ...

    def make(self) -> None:
        """Make the tables of recordings that are not there."""
        ...

    def version(self) -> int:
        """Return a number that is another one when somebody else may have written since it was last asked for."""
        ...

    def size(self) -> int:
        """Return how many bytes it takes."""
        ...

    def reclaim(self) -> str | None:
        """Give what is free to whoever can use it, and return why not all of it was, if so."""
        ...

    def is_held(self, owner: str) -> bool:
        """Tell whether the process that has opened it as this owner still has it."""
        ...

    def close(self) -> None:
        """Close it. Doing so again changes nothing."""
        ...


class _FileTransaction:
    """Writes to a file."""

    __slots__ = ("_connection", "execute", "executemany")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany

    def add(self, statement: str, given: Sequence[object], /) -> int:
        return self._connection.execute(statement, given).lastrowid or 0

    def forgotten(self) -> int:
        # SQLite changes this number when another connection has committed, and not for what this one writes.
        return self._connection.execute("PRAGMA data_version").fetchone()[0]


class FileStorage:
    """Rows in the SQLite file of a store, which is made and repaired as that of a store is."""

    def __init__(self, path: Path, *, owner: str | None) -> None:
        """Open the file, and hold it as `owner`; None: it is only looked at.

        Raises:
            StoreError: it cannot be opened, or it is something else.
        """
        self._file, self.notice = open_or_repair(path)
        self._path = path
        self.place: Final = str(path)
        self._inode = path.stat().st_ino
        self.rows = self._file.rows
        self.write = self._file.write
        try:
            self._lock = None if owner is None else Lock(path, owner, what=f"The recorder {owner}")
        except BaseException:
            self._file.close()
            raise

    @contextmanager
    def transaction(self, purpose: Purpose = "", *, tells: bool = False) -> Generator[Transaction]:
        with self._file.transaction() as connection:
            yield _FileTransaction(connection)

    def has(self, table: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)))

    def make(self) -> None:
        with self._file.transaction() as connection:
            for statement in filter(str.strip, tables().split(";")):
                connection.execute(statement)
            # Two processes may make the tables at once, and a second key would make all digests wrong.
            once = "INSERT INTO rec_format SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM rec_format)"
            connection.execute(once, (FORMAT, secrets.token_bytes(16)))

    def version(self) -> int:
        if self._lock is None:  # a recorder writes to the file that it has opened, wherever that is
            try:
                is_same = self._path.stat().st_ino == self._inode
            except OSError as error:
                raise StoreError(f"{self.place} is gone: {error.strerror}.", hint="Open it again.") from error
            if not is_same:
                raise StoreError(f"{self.place} was replaced by another file.", hint="Open it again.")
        return self.rows("PRAGMA data_version")[0][0]

    def size(self) -> int:
        pages, size = (self.rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "page_size"))
        return pages * size

    def reclaim(self) -> str | None:
        try:
            self._file.write("VACUUM", ())
            # In a write-ahead log, what VACUUM writes stands in the log at first: the file shrinks when that is taken
            # over.
            self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        except StoreError as error:
            if not error.is_busy:
                raise
            return f"{self.place} takes as much room as before, since somebody is at work in it: it is used again."
        return None

    def is_held(self, owner: str) -> bool:
        return is_held(self._path, owner)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._file.close()
        if self._file.is_damaged:  # which turned out when it was read, or written to
            self.notice = rescue_on_close(self._path) or self.notice


if TYPE_CHECKING:
    _storage: type[Storage] = FileStorage

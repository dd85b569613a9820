"""The storage of the rows of recordings: a port, with the SQLite file behind it; `shared` has Postgres.

Both understand the same statements, which are written as SQLite reads them. What the two do in ways of their own is a
method here, and nothing above asks which of the two it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from journeyman.errors import StoreError
from journeyman.store.file import File, Lock, is_held
from journeyman.store.recordings import EVENTS, events_path
from journeyman.store.repair import is_readable, open_or_repair, repair_on_close

Statement: TypeAlias = tuple[str, Sequence[Sequence[object]]]
"""SQL that writes, and the values of each time that it is executed."""

SAY: Final = (
    "INSERT INTO jm_signals (run, kind, dedup, body, at, who) VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?)"
    " ON CONFLICT DO NOTHING"
)


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

    def write(self, *said: Statement, tells: bool = False, is_large: bool = False) -> list[Any]:
        """Write all of it, or nothing, and return the rows that the last statement gives back. If an answer is lost,
        this is done again: each statement is such that the second time changes nothing.

        Args:
            said: What is written, in this order.
            tells: Those who wait for it hear of it at once: who looks of what a recorder writes, and recorders of the
                rest.
            is_large: It may take any time.
        """
        ...

    def say(self, given: Sequence[object], /) -> None:
        """Put a word to a run among the signals, unless it is there, and tell recorders of it. Who has read it has read
        all before it."""
        ...

    def has(self, table: str) -> bool:
        """Tell whether there is a table of this name."""
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


class FileStorage:
    """Rows in a SQLite file beside a store, with locks, syncs and damage of its own: whatever becomes of it, the store
    is whole, and nobody who writes there waits. What is read, is read of both."""

    def __init__(self, path: Path, *, owner: str | None) -> None:
        """Open the files, and hold the recordings as `owner`; None: it is only looked at, and no file is made for it.

        Raises:
            StoreError: one of them cannot be opened, or it is something else.
        """
        self.place: Final = str(path)
        self._path, self._owner = events_path(path), owner
        self._store, self.notice = open_or_repair(path)
        self._events: File | None = None
        self._lock: Lock | None = None
        self.rows = self._store.rows
        try:
            if owner is not None:
                self._open_events()
                self._lock = Lock(self._path, owner, what=f"The recorder {owner}")
        except BaseException:
            self.close()
            raise

    def _open_events(self) -> File:
        self._events, notice = open_or_repair(self._path, kind=EVENTS)
        self.notice = " ".join(filter(None, (self.notice, notice))) or None
        self._store.attach(self._path, "events")
        return self._events

    @property
    def _files(self) -> list[File]:
        return [self._store] if self._events is None else [self._store, self._events]

    def write(self, *said: Statement, tells: bool = False, is_large: bool = False) -> list[Any]:
        found: list[Any] = []
        with (self._events or self._open_events()).transaction() as connection:
            for statement, rows in said:
                if len(rows) == 1:
                    found = connection.execute(statement, rows[0]).fetchall()
                else:
                    connection.executemany(statement, rows)
        return found

    def say(self, given: Sequence[object], /) -> None:
        self._store.write(SAY, given)

    def has(self, table: str) -> bool:
        if self._events is None and self._path.exists():
            self._open_events()
        names = ("main", "events")[: len(self._files)]
        return any(self.rows(f"SELECT 1 FROM {name}.sqlite_master WHERE name = ?", (table,)) for name in names)

    def version(self) -> int:
        for each in self._files:
            # A recorder writes to the file that it has opened, wherever that is.
            if self._owner is None and not each.is_there:
                raise StoreError(f"{each.path} was removed, or replaced by another file.", hint="Open it again.")
        return sum([each.rows("PRAGMA main.data_version")[0][0] for each in self._files])

    def size(self) -> int:
        return sum([math.prod(each.rows(f"PRAGMA main.{name}")[0][0] for name in _SIZE) for each in self._files])

    def reclaim(self) -> str | None:
        try:
            for each in self._files:
                each.write("VACUUM", ())
                # In a write-ahead log, what VACUUM writes stands in the log at first: the file shrinks when that is
                # taken over.
                each.rows("PRAGMA main.wal_checkpoint(TRUNCATE)")
        except StoreError as error:
            if not error.is_busy:
                raise
            return f"{self.place} takes as much room as before, since somebody is at work in it: it is used again."
        return None

    def is_held(self, owner: str) -> bool:
        # Who records holds the one file, and who drives a durable run the other.
        return is_held(self._path, owner) or is_held(Path(self.place), owner)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
        is_damaged = any(each.is_damaged for each in self._files)
        for each in self._files:
            each.close()
            each.is_damaged = False
        if is_damaged:  # which turned out when both were read at once, or one was written to
            is_store = self._events is None or is_readable(self._path)
            notice = repair_on_close(Path(self.place)) if is_store else repair_on_close(self._path, EVENTS)
            self.notice = notice or self.notice


_SIZE: Final = ("page_count", "page_size")

if TYPE_CHECKING:
    _storage: type[Storage] = FileStorage

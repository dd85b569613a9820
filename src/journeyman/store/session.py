"""A session in a file: loads a conversation, and appends to its log. Imports `session`, `store_file`, `store_lock` and
`store_log`. Read `store.py` next."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from journeyman.inbox import Queue
from journeyman.session import Kept, Session, Step
from journeyman.store.file import File
from journeyman.store.lock import Lock
from journeyman.store.log import Line, Record, crc_of, first_crc, lines_of, queued

_INSERT = "INSERT INTO records (session, kind, position, at, body, crc) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Head:
    """What a session is from its beginning."""

    id: str
    agent: str
    created: float
    """Seconds since 1970."""
    parent: str | None = None
    """The session that it was branched from."""


@dataclass(slots=True)
class Log:
    """The end of one session's log."""

    file: File
    head: Head
    crc: int
    """Of the last record."""
    is_new: bool
    """True until the first record was written: a session in which nothing was said is not kept."""

    @classmethod
    def new(cls, file: File, head: Head) -> Log:
        """Begin a log."""
        return cls(file, head, first_crc(head.id), is_new=True)

    @classmethod
    def after(cls, file: File, head: Head, records: Sequence[Record]) -> Log:
        """Go on behind these records."""
        return cls(file, head, records[-1].crc if records else first_crc(head.id), is_new=False)

    def append(self, lines: Sequence[Line]) -> int:
        """Write the lines, all or none. Return the number of the last one."""
        crc, n = self.crc, 0
        with self.file.transaction() as connection:
            if self.is_new:
                _insert_head(connection, self.head)
            for line in lines:
                crc = crc_of(line.kind, line.position, line.body, crc)
                row = (self.head.id, line.kind, line.position, time.time(), line.body, crc)
                n = connection.execute(_INSERT, row).lastrowid or 0
        self.crc, self.is_new = crc, False
        return n


def _insert_head(connection: sqlite3.Connection, head: Head) -> None:
    row = (head.id, head.agent, head.created, head.parent)
    connection.execute("INSERT INTO sessions (id, agent, created, parent) VALUES (?, ?, ?, ?)", row)


class FileSession:
    """One session, open for writing."""

    def __init__(self, log: Log, lock: Lock, kept: Kept, notice: str | None) -> None:
        self.notice = notice
        self.kept = kept
        self.on_close: Callable[[], None] | None = None
        """What is closed with it."""
        self._log = log
        self._lock = lock

    @property
    def id(self) -> str:
        return self._log.head.id

    def add(self, text: str, queue: Queue) -> int:
        """Keep a text that waits, and return its number."""
        return self._log.append([queued(text, queue)])

    def write(self, step: Step) -> None:
        """Keep what is new: all of it, or nothing."""
        self._log.append(list(lines_of(step)))

    def close(self) -> None:
        """Let somebody else open it."""
        self._lock.release()
        if self.on_close is not None:
            self.on_close()

    def __repr__(self) -> str:
        return f"<FileSession {self.id} in {self._log.file.path}>"


if TYPE_CHECKING:
    _session: type[Session] = FileSession

"""The stored rows of a run: the journal of its steps.

Each row carries a checksum, so that a damaged step counts as not finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING
from zlib import crc32

from journeyman.data import lazy_dataclass
from journeyman.journal import LIFE, LIFE_OVER, Lives, Steps, StoringJournal, worked_s
from journeyman.store.file import File, Lock


@lazy_dataclass()
class FileJournal(StoringJournal):
    """The journal of one run. If you give it to the same run again, finished steps are not repeated."""

    file: File
    """The file in which it stands."""
    run: str
    """The id of the run."""
    lock: Lock
    """What keeps other writers out."""
    _lives: Lives = field(default_factory=Lives, init=False)

    def begin_life(self, prefix: str = "") -> float:
        rows = self.file.rows("SELECT key, at FROM steps WHERE run = ? ORDER BY n", (self.run,))
        before = [(key, at) for key, at in rows if key.startswith(prefix)]
        used_s = worked_s(before)
        StoringJournal.begin_life(self, prefix)
        self._lives.learn(prefix, [key for key, _ in before])
        self._insert(f"{prefix}{LIFE}", None)
        return used_s

    def end_life(self, prefix: str = "") -> None:
        self._insert(f"{prefix}{LIFE_OVER}", None)

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        known: dict[str, bytes | None] = {}
        for key, body, crc in self.file.rows("SELECT key, body, crc FROM steps WHERE run = ? ORDER BY n", (self.run,)):
            if key.startswith(prefix) and key.rpartition("/")[2] != LIFE:
                known.setdefault(key, None if body is None else b"")  # what is damaged counts for nothing
                if isinstance(body, bytes) and crc == crc_of_step(self.run, key, body):
                    known[key] = body
        return iter(known.items())

    def steps(self) -> tuple[str, ...]:
        """Return the keys of the finished steps, oldest first."""
        rows = self.file.rows("SELECT key FROM steps WHERE run = ? AND body IS NOT NULL ORDER BY n", (self.run,))
        return tuple(row[0] for row in rows)

    def found(self, key: str) -> tuple[bool, bytes | None]:
        rows = self.file.rows("SELECT body, crc FROM steps WHERE run = ? AND key = ? ORDER BY n", (self.run, key))
        finished = [body for body, crc in rows if isinstance(body, bytes) and crc == crc_of_step(self.run, key, body)]
        return bool(rows), finished[-1] if finished else None

    def put(self, key: str, value: bytes | None) -> None:
        self._insert(key, value, is_synced=value is None)

    def _insert(self, key: str, value: bytes | None, *, is_synced: bool = False) -> None:
        row = (self.run, key, time.time(), value, crc_of_step(self.run, key, value))
        with self.file.transaction(is_synced=is_synced) as connection:
            connection.execute("INSERT INTO steps (run, key, at, body, crc) VALUES (?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Let somebody else go on with the run."""
        self.lock.release()


def crc_of_step(run: str, key: str, body: bytes | None) -> int:
    """Return the checksum of one step."""
    # With the run and the key: a body that damage has put under another key is not taken for that step.
    return crc32(body or b"", crc32(f"{run}\n{key}\n".encode()))


if TYPE_CHECKING:
    _steps: type[Steps] = FileJournal

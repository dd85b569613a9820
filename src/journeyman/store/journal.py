"""A journal and a log of events in a file.

The journal writes a line when a step begins, if beginning it twice would matter, and one when it is finished. Imports
`journal`, `store_file` and `store_lock`. Read `store.py` next.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.errors import OutcomeUnknown
from journeyman.journal import Codec, Journal
from journeyman.store.file import File, Lock
from journeyman.types import Effect, JsonObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileJournal:
    """The journal of one run. Give it to the same run again, and finished steps are not repeated."""

    file: File
    run: str
    lock: Lock

    def reserve(self, key: str) -> _Place:
        return _Place(self, key)

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        return await self.reserve(key).step(work, codec=codec, effect=effect)

    def steps(self) -> tuple[str, ...]:
        """Return the keys of the finished steps, oldest first."""
        rows = self.file.rows("SELECT key FROM steps WHERE run = ? AND body IS NOT NULL ORDER BY n", (self.run,))
        return tuple(row[0] for row in rows)

    def found(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether a step was begun, and what it came to if it was finished."""
        rows = self.file.rows("SELECT body, crc FROM steps WHERE run = ? AND key = ? ORDER BY n", (self.run, key))
        finished = [body for body, crc in rows if isinstance(body, bytes) and crc == crc_of_step(self.run, key, body)]
        return bool(rows), finished[-1] if finished else None

    def put(self, key: str, body: bytes | None) -> None:
        """Write that a step was begun, or what it came to."""
        row = (self.run, key, time.time(), body, crc_of_step(self.run, key, body))
        with self.file.transaction() as connection:
            connection.execute("INSERT INTO steps (run, key, at, body, crc) VALUES (?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Let somebody else go on with the run."""
        self.lock.release()


def crc_of_step(run: str, key: str, body: bytes | None) -> int:
    """Return the checksum of one step."""
    return crc32(body or b"", crc32(f"{run}\n{key}\n".encode()))


@dataclass(frozen=True, slots=True)
class _Place:
    journal: FileJournal
    key: str

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        was_begun, stored = self.journal.found(self.key)
        if stored is not None:
            return codec.decode(stored)
        if effect == "once":
            if was_begun:
                raise OutcomeUnknown(self.key)
            self.journal.put(self.key, None)
        value = await work()
        self.journal.put(self.key, codec.encode(value))
        return value


@dataclass(frozen=True, slots=True)
class EventLog:
    """The recorded events of one run, as JSON objects, in order."""

    file: File
    run: str

    def append(self, *events: Mapping[str, JsonValue]) -> None:
        """Record events, all or none."""
        self.append_json([to_json(event) for event in events])

    def append_json(self, events: Sequence[bytes]) -> None:
        """Record events that are JSON already."""
        now = time.time()
        rows = [(self.run, now, body, crc32(body)) for body in events]
        with self.file.transaction() as connection:
            connection.executemany("INSERT INTO events (run, at, body, crc) VALUES (?, ?, ?, ?)", rows)

    def read(self, after: int = 0) -> Iterator[tuple[int, JsonObject]]:
        """Give the events behind number `after`, each with its number. One that is damaged is left out."""
        query = "SELECT n, body, crc FROM events WHERE run = ? AND n > ? ORDER BY n LIMIT 500"
        while rows := self.file.rows(query, (self.run, after)):
            for n, body, crc in rows:
                if isinstance(body, bytes) and crc == crc32(body):
                    yield n, from_json(body)
            after = rows[-1][0]


if TYPE_CHECKING:
    _journal: type[Journal] = FileJournal

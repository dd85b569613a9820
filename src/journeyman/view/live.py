"""Streams what happens in the store to browsers, as server-sent events.

One task looks at the store for all who look, and only while there are any; each of them then reads what is new to it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from journeyman.cancellation import wait_until_ended
from journeyman.errors import StoreError
from journeyman.events.run_status import GOES_ON
from journeyman.record.live import WordsDocument
from journeyman.record.packing import dumped
from journeyman.view.documents import RefusalDocument, RunDocument
from journeyman.view.queries import StoreReader

T = TypeVar("T")
_log = logging.getLogger("journeyman")

MOST_WATCHERS: Final = 64
"""How many streams there may be at once."""
TEXT_SHOWN: Final = 4_000
"""How long a text in a stream may be, in characters; of a longer one the beginning is sent."""
_LOOK_S: Final = 0.05
_SURELY_S: Final = 2.0
"""How often it is looked without a sign that anything has changed: a process may have died, a file may be gone."""
_MARK_S: Final = 6.0
"""How long a mark that somebody looks is good for: it is renewed three times in that time."""
_PAGE: Final = 500


@dataclass(slots=True)
class _BrowserPosition:
    """The part of a run that one browser has been sent: the last event, its document, and the words so far."""

    after: int
    run: RunDocument = field(default_factory=dict[str, Any])
    words: dict[str, WordsDocument] = field(default_factory=dict[str, WordsDocument])


class Reader:
    """A source, opened when it is first needed, and read in one thread at a time."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._source: StoreReader | None = None
        self._alone = asyncio.Lock()

    async def read(self, work: Callable[[StoreReader], T]) -> T:
        """Return what `work` makes of the source, or raise what that raises. Whoever cancels this waits until the
        thread has ended: what it opens would be left open, and the next one would read in another thread at the same
        time."""

        def read_source() -> T:
            if self._source is None:
                self._source = StoreReader(self._path)
            return work(self._source)

        async with self._alone:
            reading = asyncio.ensure_future(asyncio.to_thread(read_source))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look
            await wait_until_ended(reading)
            return reading.result()

    async def close(self) -> None:
        """Close the file."""
        async with self._alone:
            source, self._source = self._source, None
            if source is not None:
                await asyncio.to_thread(source.close)


class LiveStreams:
    """The streams of one store."""

    def __init__(self, path: Path | str, *, read_only: bool) -> None:
        self._looker, self._reader, self._marker = Reader(path), Reader(path), Reader(path)
        self._read_only = read_only
        self._runs: Counter[str] = Counter()
        """How many look at each run; under the empty id: at the list of all."""
        self._n_seats = 0
        """How many look, or begin to."""
        self._name: Final = f"v{secrets.token_hex(8)}"
        self._task: asyncio.Task[None] | None = None
        self._mark = 0
        """Grows when something may have changed."""
        self._news = asyncio.Event()
        self._was_refused = False
        self.gone: StoreError | None = None
        """Why the store cannot be looked at any more."""

    @property
    def is_full(self) -> bool:
        """True when nobody else may look."""
        return self._n_seats >= MOST_WATCHERS

    @contextmanager
    def take_seat(self) -> Generator[None]:
        """Count one more who looks, from before anything is waited for."""
        self._n_seats += 1
        try:
            yield
        finally:
            self._n_seats -= 1

    @asynccontextmanager
    async def _watching(self, run: str) -> AsyncGenerator[None]:
        self._runs[run] += 1
        if self._task is None or self._task.done():
            self.gone = None
            self._task = asyncio.create_task(self._look(), name="journeyman view")
        await self._say_so()
        try:
            yield
        finally:
            self._runs[run] -= 1
            self._runs += Counter()  # drops those at which nobody looks
            if not self._runs:
                self._rest()

    def _rest(self) -> None:
        """Look no more, until somebody else does."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Look no more."""
        self._rest()
        if not self._read_only and not self._was_refused:
            self._runs.clear()
            await self._say_so()
        for each in (self._looker, self._reader, self._marker):
            await each.close()

    async def _look(self) -> None:
        """Look whether the store has changed, again and again."""
        version, surely_s = -1, 0.0
        while self.gone is None:
            here_s = time.monotonic()
            surely = here_s >= surely_s
            try:
                now = await self._looker.read(lambda source, surely=surely: source.version(surely=surely))
            except StoreError as error:
                if not error.is_busy:
                    self.gone = error
                now = version
            if surely:
                surely_s = here_s + _SURELY_S
                await self._say_so()
                version = -1
            if now != version or self.gone is not None:
                version = now
                self._mark += 1
                news, self._news = self._news, asyncio.Event()
                news.set()
            await asyncio.sleep(_LOOK_S)

    async def _say_so(self) -> None:
        """Say in the store who is looked at, for those who record there."""
        if self._read_only or self._was_refused:
            return
        runs = list(self._runs)
        until = time.time() + _MARK_S if runs else 0.0
        try:
            await self._marker.read(lambda source: source.mark(self._name, runs, until))
        except StoreError as error:
            if not error.is_busy:
                self._was_refused = True
                _log.warning("nobody who records can be told that somebody looks: %s", error.message)

    async def _wait_for_news(self, mark: int) -> None:
        news = self._news
        if self._mark == mark:
            await news.wait()

    async def of_run(self, id: str, after: int) -> AsyncGenerator[bytes]:
        """Give what happens in one run after the event with a number, until it is over; a `LookupError` if there is
        none."""
        seen = _BrowserPosition(after)
        async with self._watching(id):
            while self.gone is None:
                mark = self._mark
                try:
                    async for told in self._of_run(id, seen):
                        yield told
                except (StoreError, LookupError) as error:
                    if not isinstance(error, StoreError) or not error.is_busy:
                        yield _gone_message(error)
                        return
                if seen.run.get("status", "running") not in GOES_ON:
                    return
                yield b": \n\n"
                await self._wait_for_news(mark)
            yield _gone_message(self.gone)

    async def _of_run(self, id: str, seen: _BrowserPosition) -> AsyncGenerator[bytes]:
        """Give what is new in a run: first what has happened, and then how it stands."""
        run, said = await self._reader.read(lambda source: (source.run(id), source.words(id)))
        if run["status"] not in GOES_ON:  # its recorder deletes the words only after it has written how the run ended
            said = {}
        more = True
        while more:
            page = await self._reader.read(
                lambda source: source.events(id, after=seen.after, limit=_PAGE, most=TEXT_SHOWN)
            )
            more = page["more"]
            if page["events"]:
                seen.after = page["events"][-1]["n"]
                yield message("events", page["events"])
        silent: dict[str, WordsDocument] = {
            path: {**each, "text": ""} for path, each in seen.words.items() if path not in said
        }
        for path, each in {**said, **silent}.items():
            if seen.words.get(path) != each:
                yield message("words", each)
        is_new, seen.run, seen.words = run != seen.run, run, said
        if is_new:
            # Whoever comes back with this number has seen how it ended.
            yield message("run", run, id=None if run["status"] in GOES_ON else seen.after)

    async def of_all(self, newest: int = -1, shown: Sequence[str] = ()) -> AsyncGenerator[bytes]:
        """Give the runs that are new or have changed. At first those that go on; where somebody has a list already,
        also those that are newer than the recording with the number `newest`, and those that were shown as live."""
        known: dict[str, RunDocument] = {id: {"id": id, "status": "running"} for id in shown}
        async with self._watching(""):
            while True:
                mark = self._mark
                try:
                    now, newest = await self._reader.read(
                        lambda source, known=known, newest=newest: source.live(known, newest)
                    )
                except StoreError as error:
                    if error.is_busy:
                        continue
                    yield _gone_message(error)
                    return
                changed = [run for id, run in now.items() if known.get(id) != run]
                known = now
                yield message("runs", changed) if changed else b": \n\n"
                await self._wait_for_news(mark)
                if self.gone is not None:
                    yield _gone_message(self.gone)
                    return


def message(kind: str, value: object, *, id: int | None = None) -> bytes:
    """Return one server-sent event."""
    named = b"" if id is None else b"id: %d\n" % id
    return named + b"event: %b\ndata: %b\n\n" % (kind.encode(), dumped(value).encode())


def _gone_message(error: StoreError | LookupError) -> bytes:
    told: RefusalDocument = (
        {"error": error.message, "hint": error.hint}
        if isinstance(error, StoreError)
        else {"error": str(error.args[0]), "hint": ""}
    )
    return message("gone", told)

"""The exchange between a recorder and those who look at its recordings, through the store, while runs go on.

Somebody who looks says so in `rec_watched`; then the last words of answers that are being written are put into
`rec_words`, one row for each recording. What is said from outside is read from `jm_signals`, and handed to the run.
Where nobody else writes, a look costs one question to SQLite, and none to Postgres.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

from journeyman.cancellation import call_in
from journeyman.errors import StoreError
from journeyman.events import ModelResponded, ModelRestarted, OutputDelta, RunFailed, RunSucceeded, SinkEvent, TextDelta
from journeyman.inbox.signals import SIGNAL_COLUMNS, signal_of
from journeyman.record.packing import dumped
from journeyman.store.storage import Storage
from journeyman.tools.redaction import Redactor
from journeyman.types import RunPath

if TYPE_CHECKING:
    from journeyman.record.rows import RecordingRow

_log = logging.getLogger("journeyman")

ENDS_WORDS: Final = frozenset({ModelResponded, ModelRestarted, RunFailed, RunSucceeded})
"""The events after which an answer is no longer being written."""
_MOST: Final = 4_000
"""How many characters of an answer are shown, at most: its last. What stands in front of them is no longer read
while the answer is being written."""
_SHOW: Final = (
    "INSERT INTO rec_words (run, at, body) VALUES (?, ?, ?)"
    " ON CONFLICT (run) DO UPDATE SET at = excluded.at, body = excluded.body"
)
_EACH_S: Final = 0.1
"""How often the words of a recording are written, at most. Each of them is a write to the file that the runs are
written to."""
_UNFINISHED: Final = re.compile(r"[\w+/=.:-]{1,200}\Z", re.ASCII)
"""What may be the beginning of a secret: it is shown once it is whole."""


class WordsDocument(TypedDict):
    """The last words of an answer that is being written, and the iteration in which they are said."""

    path: RunPath
    attempt: int
    iteration: int
    text: str


def write_on(words: dict[RunPath, str], event: SinkEvent) -> None:
    """Add a piece of an answer to the words of its run."""
    if isinstance(event, OutputDelta):  # it has all that was written so far
        words[event.path] = event.json[-_MOST:]
    elif isinstance(event, TextDelta):
        words[event.path] = (words.get(event.path, "") + event.text)[-_MOST:]


class LiveRecordings:
    """The recordings of one recorder that go on. Used by its thread, except for `enter`."""

    def __init__(self, file: Storage, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._lines: dict[str, RecordingRow] = {}
        self._version = -1
        self._heard = 0
        """The number of the last word that was handed on."""
        self._until = self._watched()
        """Until when somebody looks at a recording, in seconds since 1970; under the empty id: at the store. It is
        known before the first run begins: what that asks at once waits for whoever looks."""
        self._due_s = 0.0

    @property
    def is_watched(self) -> bool:
        """True while somebody looks at the store."""
        return self._until.get("", 0.0) > time.time()

    def enter(self, line: RecordingRow) -> None:
        """Look also at this one from now on. If somebody has looked at an earlier part of it, its first words are kept
        until it is known who looks now."""
        line.live.is_watched = line.id in self._until
        self._lines[line.id] = line

    def leave(self, lines: Sequence[RecordingRow]) -> None:
        """Look at these no longer."""
        for line in lines:
            # The very row: a later life of the same durable run may have begun here.
            if self._lines.get(line.id) is line:
                del self._lines[line.id]
            if line.live.shown != "[]":
                self._write("DELETE FROM rec_words WHERE run = ?", (line.id,))

    def look(self) -> None:
        """Hand on what was said since the last look, and show what is being written."""
        if not self._lines:
            return
        try:
            version = self._file.version()
            if version != self._version:
                self._version = version
                self._read()
        except StoreError as error:
            if not error.is_busy:
                _log.warning("what is said from outside cannot be read: %s", error.message)
        # Two clocks: others have stored the time of day, and one that is set must not stop the words.
        now, here_s = time.time(), time.monotonic()
        if here_s < self._due_s:
            return
        # A copy: tapes begin in other threads meanwhile.
        for line in list(self._lines.values()):
            line.live.is_watched = self._until.get(line.id, 0.0) > now
            if line.live.is_watched or line.live.shown != "[]":
                self._due_s = here_s + _EACH_S
                self._show(line, now)

    def _watched(self) -> dict[str, float]:
        return dict(self._file.rows("SELECT run, max(until) FROM rec_watched GROUP BY run"))

    def _read(self) -> None:
        self._until = self._watched()
        for run, until in self._until.items():
            if run in self._lines:  # before what was said after that is heard
                self._lines[run].live.is_watched = until > time.time()
        lines = list(self._lines)
        runs = f"run IN ({', '.join('?' * len(lines))})"
        query = f"SELECT {SIGNAL_COLUMNS} FROM jm_signals WHERE n > ? AND {runs} ORDER BY n"
        for word in map(signal_of, self._file.rows(query, (self._heard, *lines))):
            self._heard = word.n
            line = self._lines.get(word.run)
            if line is not None and line.outside is not None:
                call_in(line.outside.loop, partial(line.outside.deliver, word))

    def _show(self, line: RecordingRow, now: float) -> None:
        told: list[WordsDocument] = []
        # A copy, since the run writes on in its own thread.
        for path, text in dict(line.live.words).items() if line.live.is_watched else ():
            attempt, iteration = line.live.places.get(path, (0, 0))
            shown = _UNFINISHED.sub("", self._redactor.redacted_text(text))
            told.append({"path": path, "attempt": attempt, "iteration": iteration, "text": shown})
        body = dumped(told)
        if body != line.live.shown and self._write(_SHOW, (line.id, now, body)):
            line.live.shown = body

    def _write(self, statement: str, given: Sequence[object]) -> bool:
        try:
            self._file.write((statement, [given]), tells=True)
        except StoreError as error:
            if not error.is_busy:
                _log.warning("the words of an answer cannot be shown: %s", error.message)
            return False
        return True

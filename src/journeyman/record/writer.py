"""The thread that writes what tapes take down, in batches: no event loop waits for the disk.

A file that cannot be written any more ends recording, with one warning, and never a run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from secrets import token_hex
from typing import Final, TypeAlias

from journeyman.errors import StoreError, name_and_words
from journeyman.forks import hold_at_forks
from journeyman.record.live import LiveRecordings
from journeyman.record.packing import Folder, Pieces
from journeyman.record.retention import Keeping, prune_old
from journeyman.record.rows import RecordingEnd, RecordingRow, RowMaker, match_answers
from journeyman.record.schema import make, storage_at
from journeyman.tools.redaction import Redactor

_log = logging.getLogger("journeyman")

MOST_WAITING: Final = 10_000
"""How many events may wait to be written before runs wait for them. It bounds what a slow disk costs in memory."""
_BATCH_S: Final = 0.05
"""How long an event waits for others, in seconds. A transaction for each event would cost more than the event, and
nobody who looks notices the delay."""
_AT_ONCE: Final = 500
"""How many events one transaction writes: others may want to write, too."""
_PATIENCE_S: Final = 60.0
"""How many seconds another process may keep the file."""
_PRUNE_S: Final = 3_600.0
"""How often, in seconds, to look for recordings that are too old."""

Item: TypeAlias = tuple[RecordingRow, float, object]
"""Whose it is, when it happened, and what: an event, or a class of `lines`."""


class QueueWriter:
    """Writes the items of a queue until it is closed."""

    def __init__(
        self, path: str | os.PathLike[str], *, redactor: Redactor, has_content: bool, keeping: Keeping
    ) -> None:
        """Open the store.

        Raises:
            StoreError: it cannot be opened, or it is something else.
        """
        self.queue: Final[deque[Item]] = deque()
        self._failure = ""
        self._n_failures = 0
        self._has_failed = False
        """Whether the last thing that was tried has failed: it is said once."""
        self._is_over = False
        """Whether nothing is written any more, since what failed will not pass."""
        self._pid = os.getpid()
        self._redactor = redactor
        self._keeping = keeping
        owner = f"r{token_hex(8)}"
        self._file = storage_at(path, owner=owner)
        try:
            make(self._file)
        except BaseException:
            self._file.close()
            raise
        self._pieces = Pieces(self._file, has_content=has_content)
        self._rows = RowMaker(self._pieces, owner=owner, has_content=has_content)
        self.live: Final = LiveRecordings(self._file, redactor)
        self._n_live = 0
        """How many tapes go on: while there are any, the queue is looked at by the clock."""
        # Runs of any event loop put somebody here to wait, and the thread takes them out.
        self._alone = threading.Lock()
        # Held while a file is written: a process forks between two writes only, since the child has no thread that
        # would let go.
        self._at_work = threading.Lock()
        hold_at_forks(self._at_work)
        self._waiting: list[Future[None]] = []
        """Who waits until what is in the queue now is written."""
        self._wake = threading.Event()
        self._is_closing = False
        # A daemon, which does not hold the program: the recorder's finalizer writes what is left when the interpreter
        # ends.
        self._thread = threading.Thread(target=self._work, name="journeyman recorder", daemon=True)
        self._thread.start()

    # -- for those who fill the queue

    @property
    def is_inherited(self) -> bool:
        """Whether this is the writer of the process from which this one was forked: its thread is not here."""
        return self._pid != os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether anything that is put into the queue may be written."""
        return not (self._is_over or self._is_closing or self.is_inherited)

    def takes(self, line: RecordingRow) -> bool:
        """Tell whether what is put into the queue for a recording is written."""
        return line.n_failures == self._n_failures and self.is_open

    def failure(self, line: RecordingRow) -> str | None:
        """Return why nothing more is written of a recording; None: it is."""
        if self.is_inherited:
            return "it was begun before this process was forked"
        return self._failure if line.n_failures != self._n_failures or self._is_over else None

    def begin(self, line: RecordingRow) -> None:
        """Note that a tape begins. What failed for those before may have passed."""
        line.n_failures = self._n_failures
        with self._alone:
            self._n_live += 1
        self._wake.set()

    def written(self) -> Future[None]:
        """Return what is done when all that is in the queue now is written, or will never be."""
        future: Future[None] = Future()
        if self.is_inherited:
            future.set_result(None)
            return future
        with self._alone:
            self._waiting.append(future)
        # After it was put there: the thread would look before.
        self._wake.set()
        if self._is_over or not self._thread.is_alive():
            self._settle([future])
        return future

    def close(self) -> None:
        """Write what waits, and close the store. Doing so again, or in a forked child, changes nothing."""
        if self.is_inherited:
            return
        self._is_closing = True
        self._wake.set()
        self._thread.join()

    # -- the thread

    def _work(self) -> None:
        due_s = 0.0
        try:
            while self.queue or not self._is_closing:
                # Events do not wake the thread, which spares the event loop a call for each: while a tape goes on, it
                # looks by itself.
                self._wake.wait(_BATCH_S if self._n_live else None)
                self._wake.clear()
                with self._at_work:
                    self._drain()
                    if not self._is_over:
                        self.live.look()
                    if time.monotonic() >= due_s and self._keeping.has_limits and not self._is_over:
                        due_s = time.monotonic() + _PRUNE_S
                        self._prune()
        finally:
            self._settle([*self._waiting])
            self._file.close()

    def _prune(self) -> None:
        try:
            prune_old(self._file, self._keeping)
        except StoreError as error:
            if not error.is_busy:  # else it is tried again in an hour
                what = "recordings that are too old could not be removed from %s: %s"
                _log.warning(what, self._file.place, error.message)
        # What was forgotten may have been known here.
        self._pieces.forget()

    def _drain(self) -> None:
        """Write all that waits now."""
        # Before the queue is measured: all that they wait for is in it by now.
        with self._alone:
            waiting = [*self._waiting]
        left = len(self.queue)
        while left > 0 and not self._is_over:
            batch = [self.queue.popleft() for _ in range(min(left, _AT_ONCE))]
            left -= len(batch)
            try:
                # What had begun before the store failed has a gap, and is not gone on with.
                self._write([each for each in batch if each[0].n_failures == self._n_failures])
                self._has_failed = False
            except Exception as error:  # noqa: BLE001 - whatever it is, no run may die of it
                self._fail(error)
            over = [line for line, _, item in batch if isinstance(item, RecordingEnd)]
            self.live.leave(over)
            with self._alone:
                self._n_live -= len(over)
        if self._is_over:
            self.queue.clear()
        self._settle(waiting)

    def _fail(self, error: Exception) -> None:
        """End all recordings that go on, which would have gaps. If what failed may pass, those that begin later are
        written."""
        self._pieces.forget()  # those of this transaction are not there
        self._is_over = not (isinstance(error, StoreError) and error.may_pass)
        self._failure = error.message if isinstance(error, StoreError) else name_and_words(error)
        self._n_failures += 1
        if not self._has_failed:
            hint = f" {error.hint}" if isinstance(error, StoreError) else ""
            which = "" if self._is_over else ", of what goes on now"
            _log.warning("nothing more is recorded in %s%s: %s%s", self._file.place, which, self._failure, hint)
        self._has_failed = True

    def _settle(self, waiting: Sequence[Future[None]]) -> None:
        with self._alone:
            mine = [each for each in waiting if each in self._waiting]
            self._waiting = [each for each in self._waiting if each not in mine]
        for each in mine:
            # Whoever waited may have been cancelled.
            if each.set_running_or_notify_cancel():
                each.set_result(None)

    def _write(self, batch: Sequence[Item]) -> None:
        """Write a batch, all of it or nothing. While another process keeps the file, try again."""
        if not batch:
            return
        folder, began_s = Folder(self._redactor), time.monotonic()
        match_answers(batch)
        # Outside of the transaction, during which nobody else may write.
        prepared = [self._rows.prepare(folder, line, item) for line, _, item in batch]
        folded = folder.done()
        while True:
            try:
                with self._file.transaction("records", tells=self.live.is_watched) as connection:
                    self._pieces.begin(connection)
                    for (line, at, item), texts in zip(batch, prepared, strict=True):
                        self._rows.add(connection, line, at, item=item, texts=[folded[number] for number in texts])
                    self._rows.update(connection, {id(line): line for line, _, _ in batch}.values())
                return
            except StoreError as error:
                if not error.is_busy or time.monotonic() - began_s > _PATIENCE_S:
                    raise

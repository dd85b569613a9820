"""Recorders and tapes: what a program gives a run, and what the run tells.

All of this is done where the event loop runs, so it only notes: a thread writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

from journeyman.definition.problems import explain_arguments
from journeyman.errors import StoreError, name_and_words
from journeyman.events import (
    IterationStarted,
    OutputDelta,
    RunSucceeded,
    SinkEvent,
    Target,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolProgress,
)
from journeyman.journal import RecordingSink, Records, TapeEnd, TapeKind, Where, new_id
from journeyman.machine.forks import hold_at_forks
from journeyman.model import Model, Request, Response, Tap
from journeyman.record.live import ENDS_WORDS, LiveRecordings, write_on
from journeyman.record.packing import Folder, Pieces
from journeyman.record.retention import Keeping, prune_old
from journeyman.record.rows import (
    BEGIN,
    FoldedItem,
    ModelAsked,
    ReceivedResponse,
    RecordingEnd,
    RecordingRow,
    RowMaker,
    SentRequest,
    match_answers,
)
from journeyman.record.schema import is_there, storage_at
from journeyman.record.signals import FromOutside
from journeyman.result import plain_output
from journeyman.store.address import find_store
from journeyman.store.storage import Statement
from journeyman.tools.redaction import Redactor, Secret
from journeyman.types import JsonObject, RunPath, ToolUse

DELTAS: Final = frozenset({TextDelta, ThinkingDelta, ToolInputDelta, OutputDelta})
"""What is not recorded: the whole follows."""
DROPPABLE: Final = frozenset({ToolProgress})
"""What is left out when the disk is too slow."""
# A file that nobody looks after must not fill the disk.
KEPT_S: Final = 30 * 86_400.0
KEPT_BYTES: Final = 1_000_000_000
_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version", "anthropic-beta"}
)
"""The headers that are kept. A list of those that hold a secret would never be complete."""
_ANYWHERE: Final = nullcontext()


@explain_arguments
class Recorder:
    """Records runs in the store at a path: `Runtime(recorder=recorder)`, inside of `with Recorder("runs.db") as
    recorder:`.

    Leaving the block writes what still waits. `Runtime(recorder="runs.db")` makes a recorder for each run, and waits at
    the run's end until everything is written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        redact: Sequence[Secret] = (),
        content: bool = True,
        keep_s: float | Literal["default"] | None = "default",
        keep_bytes: int | Literal["default"] | None = "default",
        asks: bool | None = None,
        target: str | None = None,
        is_for_one: bool = False,
    ) -> None:
        """Open the store, which is made if it is not there.

        Args:
            path: Where the store is: the path of a file, or postgresql://….
            redact: What to take out in addition to everything that looks like a secret, as for a cassette.
            content: False: only the lengths and digests of texts are kept, and only the sizes of the pieces of
                requests.
            keep_s: How long what is recorded here is kept, in seconds, and at most a day more; None: forever. If left
                out: 30 days in a file, and forever in a database, because others use it, too.
            keep_bytes: About how many bytes all recordings may take; the oldest are forgotten first. None: without
                limit. If left out: 1 GB in a file, and no limit in a database.
            asks: What becomes of a question of a gate, or of a model with `ask_user`, if the program has nobody to
                answer. True: it waits until somebody answers from outside, in `journeyman view` or with `journeyman
                tell`. False: it is denied at once. None: it waits while somebody looks at the store in `journeyman
                view`.
            target: Where the recorded agent is found, in the form that commands take: agents.py:scout.
            is_for_one: True: the recorder is closed with the first recording that ends.

        Raises:
            StoreError: it cannot be opened, it is of a newer version, or it is not a store.
        """
        self.path: Final = find_store(path)
        usual_s, usual_bytes = (KEPT_S, KEPT_BYTES) if isinstance(self.path, Path) else (None, None)
        keeping = Keeping(
            seconds=usual_s if keep_s == "default" else keep_s,
            bytes=usual_bytes if keep_bytes == "default" else keep_bytes,
        )
        self._open: Final = partial(
            QueueWriter, self.path, redactor=Redactor(redact), has_content=content, keeping=keeping
        )
        self._writer = self._open()
        self._inherited: Final[list[QueueWriter]] = []
        """Those of the processes from which this one was forked. They are kept: who forgets a connection closes it,
        and it is still the parent's."""
        self._finalizer = weakref.finalize(self, self._writer.close)  # also when the interpreter ends
        self.target: Final = target
        self.is_for_one: Final = is_for_one
        self.asks: Final = asks
        self._shows_words = content

    def begin(self, kind: TapeKind, agent: str, *, id: str | None = None) -> RunRecording:
        """Begin a recording, or go on with that of this `id`."""
        now = time.time()
        if self._writer.is_inherited:  # the thread that writes is the parent's
            self._inherited.append(self._writer)
            self._writer = self._open()
            self._finalizer = weakref.finalize(self, self._writer.close)
        line = RecordingRow(id or new_id(now), kind, agent, now)
        self._writer.begin(line)
        tape = RunRecording(self, self._writer, line, shows_words=self._shows_words)
        if self.target is not None:
            tape.hear(Target(path=(agent,), target=self.target))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody could be told
            return tape
        if kind != "durable":  # what is said to one of those is read by whoever drives it
            live, asks = self._writer.live, self.asks
            is_asked: Callable[[], bool] = (lambda: live.is_watched) if asks is None else lambda: asks
            line.outside = FromOutside(loop, tape.hear, (agent,), is_asked=is_asked)
        self._writer.live.enter(line)
        return tape

    async def flush(self) -> None:
        """Wait until everything that was recorded so far is written."""
        await asyncio.wrap_future(self._writer.written())

    def close(self) -> None:
        """Write what waits, and close the store. Doing so again changes nothing."""
        self._finalizer()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunRecording:
    """Takes down one recording."""

    __slots__ = ("_has_ended", "_line", "_queue", "_recorder", "_shows_words", "_was_told", "_writer")

    def __init__(self, recorder: Recorder, writer: QueueWriter, line: RecordingRow, *, shows_words: bool) -> None:
        self._recorder = recorder
        self._writer = writer
        self._queue = writer.queue
        self._line = line
        self._was_told = False
        self._has_ended = False
        self._shows_words = shows_words

    @property
    def outside(self) -> FromOutside | None:
        return self._line.outside

    @property
    def wants_words(self) -> bool:
        return self._line.live.is_watched and self._shows_words

    @property
    def id(self) -> str:
        """The id of the recording."""
        return self._line.id

    @property
    def is_behind(self) -> bool:
        return len(self._queue) >= MOST_WAITING

    def hear(self, event: SinkEvent) -> None:
        kind, line = type(event), self._line
        if kind in DELTAS:
            if line.live.is_watched and self._shows_words:
                write_on(line.live.words, event)
            return
        if not self._writer.takes(line):
            return
        if line.live.words and kind in ENDS_WORDS:
            line.live.words.pop(event.path, None)
        if isinstance(event, IterationStarted):
            line.live.places[event.path] = event.attempt, event.iteration
            if line.outside is not None and line.outside.has_waiting:
                line.outside.look()
        if kind in DROPPABLE and len(self._queue) >= MOST_WAITING:
            self._line.dropped += 1
            return
        if isinstance(event, RunSucceeded):  # the output is the program's, which may change it
            event = replace(event, output=plain_output(event.output, None))
        self._queue.append((self._line, time.time(), event))

    def tap(self, where: Where, model: Model, request: Request) -> RequestTap:
        return RequestTap(self, where, model, request)

    def active(self, path: RunPath, use: ToolUse | None = None) -> AbstractContextManager[object]:
        return _ANYWHERE

    def apart(self) -> None:
        """Runs that nobody waits for are recorded as all others."""

    def put(self, item: object) -> None:
        """Have something written."""
        if self._writer.takes(self._line):
            self._queue.append((self._line, time.time(), item))

    async def room(self) -> None:
        # Again and again: others have put more in meanwhile.
        while self.is_behind and self._writer.takes(self._line):
            await asyncio.wrap_future(self._writer.written())

    def ended_early(self) -> str | None:
        failure = self._writer.failure(self._line)
        if failure is None or self._was_told:
            return None
        self._was_told = True
        return failure

    async def end(self, status: TapeEnd, code: str | None = None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._line.outside is not None:
            self._line.outside.leave()
        if self._writer.is_open:  # also of one whose recording has failed: it is not looked at any more
            self._queue.append((self._line, time.time(), RecordingEnd(status, code)))
        if self._recorder.is_for_one:
            await asyncio.wrap_future(self._writer.written())
            self._recorder.close()


class RequestTap:
    """Takes down one request, and what comes back. What is made of it, the writer makes."""

    __slots__ = (*("_asked", "_assembled", "_came", "_began_s", "_model", "_request", "_sent", "_tape", "_where"),)

    def __init__(self, tape: RunRecording, where: Where, model: Model, request: Request) -> None:
        self._tape = tape
        self._where = where
        self._model = model
        self._request = replace(request, messages=(*request.messages,))  # the list grows after the call
        self._assembled: tuple[bytes, Sequence[bytes]] | None = None
        self._sent: SentRequest | None = None
        self._came = ReceivedResponse(time.perf_counter())
        self._began_s = self._came.began_s

    def note_body(self, body: bytes, pieces: Sequence[bytes]) -> None:
        self._assembled = body, pieces

    def note_request(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._sent is not None:  # a model around models asks the next
            self._end()
            self._came = ReceivedResponse(time.perf_counter())
        known = self._assembled
        # The very object: what changed the body on its way would make the pieces those of another one.
        pieces = known[1] if known is not None and known[0] is body else ()
        self._sent = self._made(around=around(url, headers), body=body, pieces=pieces)
        self._tape.put(self._sent)

    def note_status(self, status: int, request_id: str | None) -> None:
        self._came.status, self._came.request_id = status, request_id

    def note_data(self, data: bytes | Sequence[tuple[bytes, bytes]]) -> None:
        self._came.take(time.perf_counter(), data)

    def note_response(self, response: Response) -> None:
        self._came.response = response
        self._end()
        self._tape.put(ModelAsked(self._where, self._model, self._request, self._took_s(), response))

    def note_failure(self, error: BaseException) -> None:
        self._came.error = error
        self._end()
        self._tape.put(ModelAsked(self._where, self._model, self._request, self._took_s(), error=error))

    def _took_s(self) -> float:
        return self._came.ended_s - self._began_s

    def _end(self) -> None:
        came = self._came
        if self._sent is None:
            self._sent = self._made(around={}, asked=self._request)
            self._tape.put(self._sent)
        came.sent, came.ended_s = self._sent, time.perf_counter()
        self._tape.put(came)

    def _made(self, **facts: Any) -> SentRequest:
        facts["is_shared"] = self._request.prefix.is_shared
        return SentRequest(where=self._where, provider=self._model.provider, model=self._model.name, **facts)


def around(url: str, headers: Mapping[str, str]) -> JsonObject:
    """Return what may be kept of an address and of headers."""
    shown = urlsplit(url)
    # Neither the user and password in front of the host, nor the query: some services are given their key there.
    place = urlunsplit((shown.scheme, shown.netloc.rpartition("@")[2], shown.path, "", ""))
    return {"url": place, "headers": {name: value for name, value in headers.items() if name.lower() in _HEADERS}}


#
# In batches: no event loop waits for the disk. A file that cannot be written any more ends recording, with one warning,
# and never a run.

_log = logging.getLogger("journeyman")
T = TypeVar("T")

MOST_WAITING: Final = 10_000
"""The number of events that may wait to be written before runs wait for them: the memory that a slow disk costs."""
_BATCH_S: Final = 0.05
"""The seconds for which an event waits for others. A transaction for each event would cost more than the event, and
nobody who looks notices the delay."""
_AT_ONCE: Final = 20
"""The most events that one transaction writes. Others may want to write, too; and a process that is killed while the
texts of many are looked through would take all of a short run with it."""
_MOST_BEHIND: Final = MOST_WAITING // 2
_REST_S: Final = 0.001
_MOST_WORK: Final = 0.001
"""Unless so many wait, the thread rests for so long whenever it has computed for this part of the time for which its
first event has waited. While it computes, whoever needs the interpreter waits up to 5 ms for it, and the event loop
needs it after each statement of a step; the later the events are, the less that counts."""
_PATIENCE_S: Final = 60.0
"""The seconds for which another process may keep the file."""
_PRUNE_S: Final = 3_600.0
"""The seconds after which recordings that are too old are looked for again."""

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
        """True: the last thing that was tried has failed, which is said once."""
        self._is_over = False
        """True: nothing is written any more, since what failed will not pass."""
        self._pid = os.getpid()
        self._redactor = redactor
        self._keeping = keeping
        owner = f"r{token_hex(8)}"
        self._file = storage_at(path, owner=owner)
        try:
            is_there(self._file)
        except BaseException:
            self._file.close()
            raise
        self._pieces = Pieces(self._file.rows("SELECT key FROM rec_format")[0][0])
        self._rows = RowMaker(self._pieces, has_content=has_content)
        self._owner = owner
        self._has_content = has_content
        self.live: Final = LiveRecordings(self._file, redactor)
        self._n_live = 0
        """The number of tapes that go on: while there are any, the queue is looked at by the clock."""
        # Runs of any event loop put somebody here to wait, and the thread takes them out.
        self._alone = threading.Lock()
        # Held while a file is written: a process forks between two writes only, since the child has no thread that
        # would let go.
        self._at_work = threading.Lock()
        hold_at_forks(self._at_work)
        self._waiting: list[Future[None]] = []
        """Those that wait until the queue of now is written."""
        self._wake = threading.Event()
        self._is_closing = False
        # A daemon, which does not hold the program: the recorder's finalizer writes what is left when the interpreter
        # ends.
        self._thread = threading.Thread(target=self._work, name="journeyman recorder", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """True: it is the writer of the process from which this one was forked; its thread is not here."""
        return self._pid != os.getpid()

    @property
    def is_open(self) -> bool:
        """True: all that is put into the queue may be written."""
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
            prune_old(self._file, self._keeping, time.time())
        except StoreError as error:
            if not error.is_busy:  # else it is tried again in an hour
                what = "recordings that are too old could not be removed from %s: %s"
                _log.warning(what, self._file.place, error.message)

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
        folder, lasts = Folder(self._redactor), self._keeping.lasts(time.time())
        match_answers(batch)
        for line in {id(line): line for line, _, _ in batch if not line.n}.values():
            what = (line.id, line.kind, line.agent, self._owner, lasts.until, lasts.until, self._has_content)
            line.take_up(self._patiently((BEGIN, [(*what, line.started, line.started)]))[0])
        pace = partial(self._with_rests, batch[0][1])
        prepared = [self._rows.prepare(folder, line, item, lasts) for line, _, item in pace(batch)]
        folded = folder.fold(pace)
        items = [
            FoldedItem(*item, [folded[number] for number in numbers], spoken)
            for item, (numbers, spoken) in zip(batch, prepared, strict=True)
        ]
        self._patiently(*self._rows.statements(items, lasts))

    def _with_rests(self, began: float, each: Iterable[T]) -> Iterator[T]:
        """Go through something that has waited since then, and rest in between, unless somebody waits for what is
        written."""
        rested_s = time.thread_time()
        for one in each:
            yield one
            is_wanted = self._waiting or self._is_closing or len(self.queue) >= _MOST_BEHIND
            if not is_wanted and time.thread_time() - rested_s > (time.time() - began) * _MOST_WORK:
                time.sleep(_REST_S)
                rested_s = time.thread_time()

    def _patiently(self, *said: Statement) -> list[Any]:
        began_s = time.monotonic()
        while True:
            try:
                return self._file.write(*said, tells=self.live.is_watched)
            except StoreError as error:
                if not error.is_busy or time.monotonic() - began_s > _PATIENCE_S:
                    raise


if TYPE_CHECKING:
    _records: type[Records] = Recorder
    _tape: type[RecordingSink] = RunRecording
    _tap: type[Tap] = RequestTap

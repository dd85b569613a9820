"""Reads from a store what the viewer shows: recordings, and durable runs that have none. All of it is read in threads.

Whatever is asked for comes in pages that are bounded in rows and in bytes: a run of any size can be looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from journeyman.definition.data import copy_with, field_names
from journeyman.durable.asking import asked_event
from journeyman.durable.records import OVER, Row, load_head, questions_of
from journeyman.errors import RunBlocked, quoted
from journeyman.events.json_form import told_of
from journeyman.events.run_status import GOES_ON, RunStatus
from journeyman.machine.version import package_version
from journeyman.record.live import WordsDocument
from journeyman.record.operator import Told, outcomes, told
from journeyman.record.packing import dumped
from journeyman.record.page import piece_document, request_document, run_document
from journeyman.record.reading import MOST, RecordedRun, Recordings, StoredRequest
from journeyman.record.repeats import forms_of
from journeyman.record.schema import is_there, shorten_object, unpack_piece
from journeyman.types import RunPath
from journeyman.view.documents import (
    DayDocument,
    DaysDocument,
    EventDocument,
    EventsDocument,
    RequestAddition,
    RequestDocument,
    RunAddition,
    RunDocument,
    RunsDocument,
    StoreDocument,
    WholeRequestDocument,
)

PAGE_BYTES: Final = 8_000_000
"""How long the events of one page are, at most, except for its first."""
_AT_ONCE: Final = 100
_SEARCH_S: Final = 1.5
"""How long one request looks for a text; then it says where to go on."""
_SHOWN: Final = 200
_NEWEST: Final = 30
_ASKS: Final[Mapping[str, RunAddition]] = {
    "ApprovalRequested": {"waits": "approval"},
    "QuestionAsked": {"waits": "an answer"},
}
_SETTLES: Final = ("ApprovalAnswered", "QuestionAnswered", "ToolFinished")
_COLUMNS: Final = field_names(Row)
_MOST_LIVE: Final = 500
_MARK: Final = (
    "INSERT INTO rec_watched (watcher, run, until) VALUES (?, ?, ?)"
    " ON CONFLICT (watcher, run) DO UPDATE SET until = excluded.until"
)
_LAST_EVENT: Final = 2_000_000_000  # behind all others, however many the run has
_RUN: Final = "(SELECT n FROM rec_runs WHERE id = ?)"
_NTH: Final = f"SELECT n FROM rec_events WHERE run = {_RUN} AND n > ? ORDER BY n LIMIT 1 OFFSET ?"
_EACH_TIME: Final = 100
"""How many events there may be of each state of a durable run that is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of the list of runs: only runs that fit all of them are shown."""

    agent: str | None = None
    status: RunStatus | None = None
    failed: bool = False
    since: float | None = None
    over_cost: float | None = None
    text: str = ""
    """In the input, the name of the agent, the id, or anything that happened."""
    tool: str | None = None
    """The name of a tool that was called."""


_OF_ROWS: Final = ("agent", "status", "failed", "since", "over_cost")
"""The filters that the rows of runs answer."""


class StoreReader:  # noqa: PLR0904 - one for each thing that is looked at
    """One open store, for one reader at a time; several may be open at once.

    What is not there is a `LookupError`; a store that cannot be read or written, or is newer, is a `StoreError`.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the store."""
        self.recordings: Final = Recordings(path)

    def close(self) -> None:
        """Close the store."""
        self.recordings.close()

    def version(self, *, surely: bool) -> int:
        """Return a number that changes when somebody else may have written. `surely`: look also whether a newer version
        of this library has changed the tables."""
        if surely:
            is_there(self.recordings.file)
        return self.recordings.file.version()

    def store(self, *, read_only: bool) -> StoreDocument:
        """Return what is known of the store itself."""
        file = self.recordings.file
        return {
            "place": file.place,
            "version": package_version(),
            "bytes": file.size(),
            "runs": self.recordings.count(),
            "read_only": read_only,
            "notice": self.recordings.notice,
        }

    def runs(self, filters: Filters, *, before: str | None, limit: int) -> RunsDocument:
        """Return a page of runs, the newest first: those behind the one with the id `before`."""
        found: list[RunDocument] = []
        newest = self._newest()  # asked for first: what is newer than the page is told to who looks on
        until, last = time.monotonic() + _SEARCH_S, before
        behind = None if not before else self.run(before)
        at = None if behind is None else (behind["started"], behind["id"])
        page = self._page(filters, at, limit + 1)
        while page:
            for run in page:
                if not self._holds(run, filters):
                    continue
                if len(found) == limit:
                    return {"runs": found, "more": True, "next": found[-1]["id"], "newest": newest}
                found.append(run)
            last = str(page[-1]["id"])
            if len(page) <= limit:
                break
            if time.monotonic() > until:
                return {"runs": found, "more": True, "next": last, "newest": newest}
            page = self._page(filters, (page[-1]["started"], last), limit + 1)
        return {"runs": found, "more": False, "next": None, "newest": newest}

    def _newest(self) -> int:
        """Return the number of the newest recording; 0: there is none yet."""
        rows = self.recordings.file.rows("SELECT max(n) FROM rec_runs") if self.recordings.has_any else [(0,)]
        return rows[0][0] or 0

    def _page(self, filters: Filters, at: tuple[float, str] | None, limit: int) -> list[RunDocument]:
        """Return the next runs, by what stands in their rows."""
        given: dict[str, Any] = {name: getattr(filters, name) for name in _OF_ROWS}
        found = self.recordings.runs(**given, before=at, unrecorded=not filters.tool, limit=limit)
        return [*map(self._to_document, found)]

    def _holds(self, run: RunDocument, filters: Filters) -> bool:
        text, id = filters.text, run["id"]
        if filters.tool:
            query = f"SELECT 1 FROM rec_events WHERE run = {_RUN} AND tool = ? LIMIT 1"
            if not self.recordings.file.rows(query, (id, filters.tool)):
                return False
        if not text or any(text.lower() in str(run[name]).lower() for name in ("id", "agent", "model", "input")):
            return True
        return bool(run["bytes"]) and self._was_said(str(id), text)

    def _was_said(self, id: str, text: str) -> bool:
        """Tell whether a text, as JSON writes it, stands in anything that happened in a recording."""
        read = self.recordings.file.rows
        forms = forms_of(dumped(text)[1:-1])
        for each in forms:
            like = "%" + each.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            if read(f"SELECT 1 FROM rec_events WHERE run = {_RUN} AND body LIKE ? ESCAPE '\\' LIMIT 1", (id, like)):
                return True
        pieces = f"SELECT digest, body FROM rec_pieces WHERE root = {_RUN} AND digest > ? ORDER BY digest LIMIT 50"
        wanted, after = [each.lower() for each in forms], -(1 << 63)
        while found := read(pieces, (id, after)):
            bodies = [(unpack_piece(body) or b"").decode("utf-8", "replace").lower() for _, body in found]
            if any(each in body for body in bodies for each in wanted):
                return True
            after = found[-1][0]
        return False

    def run(self, id: str) -> RunDocument:
        """Return a run."""
        return self._to_document(self._find(id))

    def _find(self, id: str) -> RecordedRun:
        for run in self.recordings.chosen("id = ?", (id,), unrecorded=True):
            return run
        raise self._make_unknown_error(id)

    def _make_unknown_error(self, id: str) -> LookupError:
        return LookupError(f"{self.recordings.file.place} has no run {quoted(id[:80])}. It may have been forgotten.")

    def _to_document(self, run: RecordedRun) -> RunDocument:
        """Return a run as the page has it, with what it waits for from a person as far as its newest events tell."""
        if not run.is_recorded:
            return self._unrecorded_document(run)
        document = run_document(run)
        if run.status not in GOES_ON:
            return document
        settled: set[tuple[str, str]] = set()
        query = f"SELECT kind, path, coalesce(call, '') FROM rec_events WHERE run = {_RUN} ORDER BY n DESC LIMIT ?"
        for kind, path, call in self.recordings.file.rows(query, (run.id, _NEWEST)):
            if kind in _SETTLES:
                settled.add((path, call))
            elif kind in _ASKS and (path, call) not in settled:
                return {**document, **_ASKS[kind]}
        return document

    def recording(self, id: str) -> RecordedRun | None:
        """Return the recording with exactly this id; None: there is none."""
        found = self.recordings.chosen("id = ?", (id,))
        return found[0] if found else None

    def _lone_row(self, id: str) -> Row:
        """Return the durable run with exactly this id, of which there is no recording."""
        for found in self.recordings.heads([id], _COLUMNS):
            return Row(**found)
        raise self._make_unknown_error(id)

    def find_all(self, ids: Sequence[str]) -> tuple[Sequence[RecordedRun], Sequence[str]]:
        """Return the runs with exactly these ids, recorded or not, and the ids of the durable runs among them."""
        return [*map(self._find, ids)], [each["id"] for each in self.recordings.heads(ids, ["id"])]

    def _unrecorded_document(self, run: RecordedRun) -> RunDocument:
        document: RunDocument = run_document(run)
        try:
            row = self._lone_row(run.id)
        except LookupError:  # it was forgotten meanwhile
            return document
        try:
            head = load_head(row)
            model, text = head.model, " ".join(head.input[:2_000].split())[:_SHOWN]
        except RunBlocked as blocked:
            model, text = "", blocked.why[:_SHOWN]
        how = "It has died" if run.status == "died" else f"It is {run.status}"
        waits = "" if row.status in OVER else f" {how}{f': {row.why}' if row.why else ''}."
        why = f"It was not recorded: only its figures are known, and what it waits for.{waits}"
        return {**document, "model": model, "input": text, "why": why}

    def days(self, n_days: int) -> DaysDocument:
        """Return the counts of each of the last days, by UTC, the oldest first."""
        today = int(time.time() // 86_400)
        first = today - n_days + 1
        found: Mapping[int, Any] = {day: (day, *sums) for day, *sums in self.recordings.days(first)}
        days = [found.get(day, (day, 0, 0, 0.0)) for day in range(first, today + 1)]
        made = (DayDocument(day=d * 86_400, runs=n, failed=bad, cost=cost) for d, n, bad, cost in days)
        return {"days": [*made]}

    def events(self, id: str, *, after: int, limit: int, most: int | None, skip: int = 0) -> EventsDocument:
        """Return what happened in a run after the event with a number and so many more, and whether there is more.
        `most`: of a longer text, only its beginning, as `{"cut": …, "characters": …}`."""
        run = self.recording(id)
        if run is None:
            row = self._lone_row(id)
            lone = [each for each in _lone_events(row, self._find_answered(id)) if each["n"] > after][skip:]
            return {"events": lone if most is None else [shorten_object(each, most) for each in lone], "more": False}
        if skip:
            skipped = self.recordings.file.rows(_NTH, (id, after, skip - 1))
            if not skipped:
                return {"events": [], "more": False}
            after = skipped[0][0]
        found: list[EventDocument] = []
        n_bytes = 0
        while len(found) < limit:
            wanted = min(_AT_ONCE if most is None else MOST, limit - len(found))
            page = self.recordings.event_documents(run, after=after, limit=wanted, most=most)
            if most is not None:
                found += page
            else:
                for document in page:
                    n_bytes += len(dumped(document))
                    if found and n_bytes > PAGE_BYTES:
                        return {"events": found, "more": True}
                    found.append(document)
            if len(page) < wanted:
                return {"events": found, "more": False}
            after = page[-1]["n"]
        return {"events": found, "more": True}

    def _find_answered(self, id: str) -> list[str]:
        """Return the ids of the last questions of a durable run that were answered."""
        query = "SELECT dedup FROM jm_signals WHERE run = ? AND kind IN ('approve', 'answer') ORDER BY n DESC LIMIT ?"
        return [row[0] for row in self.recordings.file.rows(query, (id, _EACH_TIME // 4))]

    def event(self, id: str, n: int) -> EventDocument:
        """Return one event, whole."""
        run = self.recording(id)
        found = () if run is None else self.recordings.event_documents(run, after=n - 1, limit=1)
        for each in found if run is not None else _lone_events(self._lone_row(id), self._find_answered(id)):
            if each["n"] == n:
                return each
        raise LookupError(f"The run {quoted(id[:80])} has no event {n}.")

    def requests(self, id: str) -> list[RequestDocument]:
        """Return all requests of a run."""
        run = self.recording(id)
        return [] if run is None else [*map(request_document, self.recordings.all_requests(run))]

    def request(self, id: str, n: int) -> StoredRequest:
        """Return one request."""
        run = self.recording(id)
        found = [] if run is None else self.recordings.requests(run, after=n - 1, limit=1)
        if not found or found[0].n != n:
            raise LookupError(f"The run {quoted(id[:80])} has no request {n}.")
        return found[0]

    def pieces(self, id: str, n: int) -> WholeRequestDocument:
        """Return one request with its pieces. The same piece may stand in it more than once."""
        request = self.request(id, n)
        added: RequestAddition = {"pieces": [piece_document(each) for each in self.recordings.pieces(request)]}
        return {**request_document(request), **added}

    def body(self, id: str, n: int) -> bytes:
        """Return the bytes of a request; a `LookupError` also where its content was not kept."""
        body = self.recordings.body(self.request(id, n))
        if body is None:
            raise LookupError("The recording was made without content: there are no bytes to show.")
        return body

    def told(self, id: str) -> list[Told]:
        """Return what people have said to a run, the oldest first."""
        run = self.recording(id)
        if run is None:
            is_over = self._lone_row(id).status in OVER
            query = "SELECT n FROM jm_signals WHERE run = ? AND kind <> 'steer'"  # all but texts are heard at once
            heard = {n: ("taken", "") for (n,) in ([] if is_over else self.recordings.file.rows(query, (id,)))}
            return told(self.recordings, id, heard, is_over=is_over)
        return told(self.recordings, id, outcomes(self.recordings, run), is_over=run.status not in GOES_ON)

    def words(self, id: str) -> dict[str, WordsDocument]:
        """Return the last words of the answers that are being written in a run: each text by its path."""
        if not self.recordings.has_any:
            return {}
        rows = self.recordings.file.rows("SELECT body FROM rec_words WHERE run = ?", (id,))
        return {} if not rows else {"/".join(each["path"]): each for each in from_json(rows[0][0])}

    def live(self, known: Mapping[str, RunDocument], newest: int) -> tuple[dict[str, RunDocument], int]:
        """Return the runs that go on, those that did by `known`, and those that are newer than `newest`, by id; and
        the number of the newest recording."""
        top = self._newest()
        going = self.recordings.going(limit=_MOST_LIVE)
        new = self.recordings.chosen("n > ?", (newest,), limit=_MOST_LIVE) if newest >= 0 else []
        found = [self._to_document(run) for run in (*going, *new)]
        now = {str(run["id"]): run for run in found}
        for id, run in known.items():
            if id not in now and run["status"] in GOES_ON:
                try:
                    now[id] = self.run(id)
                except LookupError:  # it was forgotten
                    continue
        return now, top

    def mark(self, watcher: str, runs: Sequence[str], until: float) -> None:
        """Say that somebody looks at the store, and at these runs, until a moment."""
        if not self.recordings.has_any:  # nobody who records here can show what is being written
            return
        old = [(watcher, time.time() - 60)]
        rows = [(watcher, run, until) for run in {"", *runs}] if until else []
        said = ("DELETE FROM rec_watched WHERE watcher = ? OR until < ?", old), (_MARK, rows)
        self.recordings.file.write(*said, tells=True)


def is_anothers(path: Path) -> bool:
    """Tell whether a store belongs to another user of this machine."""
    return hasattr(os, "geteuid") and path.exists() and path.stat().st_uid != os.geteuid()


def _lone_events(row: Row, answered: Sequence[str] = ()) -> Iterator[EventDocument]:
    """Give what is known of a durable run that was not recorded, as if it had been: its input, what it waits for, and
    how it ended. `answered` are the ids of what was answered."""
    path = (row.agent,)

    def event(n: int, kind: str, at: float, where: RunPath, **facts: object) -> EventDocument:
        told = {name: fact for name, fact in facts.items() if fact is not None}
        return {"n": n, "at": at, "type": kind, "path": where, **told}

    try:
        head = load_head(row)
        yield event(1, "RunStarted", row.created, path, agent=row.agent, model=head.model)
        yield event(2, "Input", row.created, path, input=head.input)
    except RunBlocked as blocked:
        yield event(1, "RunStarted", row.created, path, agent=row.agent, model="")
        yield event(2, "Input", row.created, path, input=blocked.why)
    n = (row.gen + row.n_signals + 1) * _EACH_TIME
    for id in answered:
        n += 1
        yield event(n, "ApprovalAnswered", row.created, path, id=id)
    for each in questions_of(row) if row.status not in OVER else ():
        if each.key in answered:  # whoever drives it has not read that yet
            continue
        place = {"attempt": each.attempt, "iteration": each.iteration, "tool_use_id": each.tool_use_id}
        if each.tool_use_id:
            yield event(
                n + 1, "ToolCalled", row.created, each.path, **place, tool_name=each.tool, tool_input=each.arguments
            )
        told = told_of(asked_event(each, each.key))
        n += 2
        yield copy_with(told, n=n, at=row.created).document()
    if row.status == "failed":
        error = {"code": row.why, "message": f"It failed with {row.why}.", "hint": ""}
        yield event(_LAST_EVENT, "RunFailed", row.ended or row.created, path, error=error)
    elif row.status == "done":
        yield event(_LAST_EVENT, "RunSucceeded", row.ended or row.created, path)

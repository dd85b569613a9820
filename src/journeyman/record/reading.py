"""Reading what was recorded: runs, what happened in them, and each request as it was sent.

Everything is read in pages, so that a run of any length, in a store of any size, can be looked at.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence, Set
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_object
from journeyman.definition.narrowing import as_object
from journeyman.definition.problems import explain_arguments
from journeyman.errors import StoreError, quoted
from journeyman.events.json_form import PLACE, RecordedEvent, document_of
from journeyman.events.run_status import RunStatus, StoredStatus, status_of, words_of
from journeyman.record.packing import dumped
from journeyman.record.repeats import SAID, fill_in, forms_of
from journeyman.record.retention import forget
from journeyman.record.schema import SHARED, Texts, is_there, shorten_object, storage_at, unpacked_places
from journeyman.store.address import find_store
from journeyman.store.recordings import unpack_piece
from journeyman.store.storage import Storage
from journeyman.types import JsonObject, RunPath, Usage

RecordedKind: TypeAlias = Literal["run", "chat", "team", "durable"]
"""What a recording is of."""

MOST: Final = 1_000
"""How many rows one call returns at most. It bounds the memory that a question takes, whatever was recorded."""


@lazy_dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One recording: a run with all runs in it, or all turns of a chat."""

    id: str
    """36 characters, which sort by the time of the beginning. For a durable run, this is the run's own id."""
    kind: RecordedKind
    """What was recorded: a run, a chat, a team, or a durable run."""
    agent: str
    """The agent's name; of a chat, that of its last turn."""
    model: str
    """`provider:name`, of the outermost run."""
    input: str
    """The beginning of the first prompt, in one line; empty if no content is kept."""
    has_content: bool
    """False: only shapes, sizes and digests were kept."""
    started: float
    """Seconds since 1970."""
    seen: float
    """When something was last written to it, in seconds since 1970."""
    ended: float | None
    """Seconds since 1970; None while it goes on."""
    status: RunStatus
    """Whether it goes on, and how it ended."""
    code: str | None
    """The code of the failure; for a chat, that of its last turn."""
    attempts: int
    """How many attempts the outermost run made; for a chat, all its turns together."""
    iterations: int
    """How many model calls were made, including those of the runs inside."""
    calls: int | None
    """The number of tool calls, with those of the runs inside; None: nobody has recorded them."""
    children: int
    """How many runs are inside."""
    usage: Usage
    """What all these runs used; its `cost` is None if the cost of any response is unknown."""
    bytes: int
    """About how many bytes it takes on the disk. What several recordings share counts for one of them."""
    dropped: int
    """How many reports of progress were not written because the disk was too slow."""
    why: str | None
    """Why the recording ended before the run did; None if it did not."""
    is_recorded: bool = True
    """False: it is a durable run that is not recorded, of which only the figures of its row are known. What the viewer
    shows as its events is made of its steps, and numbered like them."""

    @property
    def duration_s(self) -> float:
        """The seconds from its beginning to its end, or to the last time that something was written."""
        return max(0.0, (self.seen if self.ended is None else self.ended) - self.started)


@lazy_dataclass(frozen=True, kw_only=True)
class StoredRequest:
    """One request to a model, and what came back."""

    run: str
    """The id of the recording."""
    n: int
    """Its number in the recording. Later requests have higher numbers."""
    at: float
    """Seconds since 1970."""
    path: RunPath
    attempt: int
    iteration: int
    form: Literal["http", "neutral"]
    """`http`: the bytes as they were sent. `neutral`: the model sends nothing over this library's transport, so its
    request is written as JSON in this library's own form."""
    model: str
    """The model that was asked."""
    size: int
    """The size of the body in bytes."""
    around: JsonObject
    """The `url`, and those `headers` that may be kept. Empty for `neutral`."""
    answer: JsonObject | None
    """What came back: `status`, `request_id`, `id`, `model`, `stop_reason`, `stop_detail`, `usage` (the provider's own
    words), `first_ms`, `total_ms`, `longest_gap_ms`, `n_chunks`; for a request that failed, `error` and `error_body`.
    None: the process died, or nothing has come back yet."""


@lazy_dataclass(frozen=True, kw_only=True)
class RequestPart:
    """A part of a request. Parts that two requests have in common are the same pieces."""

    number: int
    """Its number, of at most 53 bits. In one store, the same number means the same bytes."""
    body: bytes | None
    """The bytes; None if the content was not kept."""


@lazy_dataclass(frozen=True, kw_only=True)
class TextMatch:
    """A place where a text was found."""

    run: str
    """The id of the recording."""
    event: RecordedEvent
    """The event that holds the text."""


_STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)
_FAILED: Final[frozenset[RunStatus]] = frozenset(("failed", "cancelled", "died"))
_RUN_FACTS: Final = (
    *("id", "kind", "agent", "model", "input", "has_content", "started", "seen", "ended", "status", "code"),
    *("attempts", "iterations", "calls", "children", "bytes", "dropped", "why"),
)
_USED: Final = ("input_tokens", "cached_tokens", "output_tokens", "cost", "owner", "n")
_HEAD: Final = "h.status AS head, h.why AS head_why, h.owner AS head_owner, h.ended AS head_ended"
_RECORDED: Final = (
    f"SELECT {', '.join(f'r.{name}' for name in (*_RUN_FACTS, *_USED))}, {_HEAD}"
    " FROM rec_runs AS r LEFT JOIN jm_runs AS h ON h.id = r.id"
)
"""Recordings, and with them how those are that are durable runs of the same store."""
_UNRECORDED: Final = (
    "SELECT h.id, 'durable' AS kind, h.agent, '' AS model, '' AS input, 0 AS has_content, h.created AS started,"
    " coalesce(h.ended, h.created) AS seen, h.ended, '' AS status, NULL AS code, h.attempt AS attempts,"
    " (SELECT count(*) FROM jm_steps AS s WHERE s.run = h.id AND s.kind = 'model' AND s.state = 'done')"
    " + CASE WHEN h.iteration = 0 OR EXISTS (SELECT 1 FROM jm_steps AS s WHERE s.run = h.id AND s.kind = 'model'"
    " AND s.state = 'done' AND s.attempt = h.attempt AND s.iteration = h.iteration) THEN 0 ELSE 1 END AS iterations,"
    " 0 AS calls, 0 AS children, 0 AS bytes, 0 AS dropped, NULL AS why,"
    f" h.tokens AS input_tokens, 0 AS cached_tokens, 0 AS output_tokens, h.cost, NULL AS owner, 0 AS n, {_HEAD}"
    " FROM jm_runs AS h"
)
"""Durable runs in the columns of recordings. The last of their iterations may have got no answer."""
_NOT_IN_BOTH: Final = " WHERE NOT EXISTS (SELECT 1 FROM rec_runs WHERE rec_runs.id = h.id)"
# A durable run that is kept in the same store says itself how it is. Not by what was joined: it would be looked up for
# each run.
_HEAD_IS: Final = "id IN (SELECT id FROM jm_runs WHERE status {})"
_HEADS: Final = "SELECT created AS started, status, cost FROM jm_runs"
_ALL: Final = (
    f"{_HEADS} UNION ALL SELECT started, status, cost FROM rec_runs AS r"
    " WHERE NOT EXISTS (SELECT 1 FROM jm_runs WHERE jm_runs.id = r.id)"
)
"""The rows from which runs are counted: each run stands here once."""
_OF_A_RUN: Final = "e.run = (SELECT n FROM rec_runs WHERE id = ?) AND e.n > ?"
_EVENT: Final = (
    "SELECT e.run, e.n, e.at, e.path, e.kind, e.attempt, e.iteration, e.call, e.tool, e.body, e.refs, m.body, m.refs"
    " FROM rec_events AS e LEFT JOIN rec_events AS m ON m.run = e.run AND m.n = e.said"
)
"""Events, each with what is stored of the message that says what was left out of it."""
_REQUEST_FACTS: Final = "attempt, iteration, form, model, size"
_REQUEST: Final = f"run, n, at, path, {_REQUEST_FACTS}, around, answer, refs"


@explain_arguments  # noqa: PLR0904 - one for each thing that is looked at
class Recordings:
    """The recordings of a store: `with Recordings("runs.db") as recordings: …`. Other processes may write meanwhile."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the store at `path`, a file or `postgresql://…`, which must exist.

        Raises:
            StoreError: there is none, it cannot be read, it is of a newer version, or it is not a store.
        """
        self.path: Final = find_store(path)
        if isinstance(self.path, Path) and not self.path.exists():
            raise StoreError(f"There is no store {self.path}.", hint="Check the path; a relative one begins here.")
        self.file: Final = storage_at(self.path)
        try:
            self._has_any = is_there(self.file)
        except BaseException:
            self.file.close()
            raise

    @property
    def notice(self) -> str | None:
        """What was repaired when the store was opened or closed; None if nothing was."""
        return self.file.notice

    def close(self) -> None:
        """Close the store. If the file turned out to be damaged, what can be read of it is recovered."""
        self.file.close()

    def __enter__(self) -> Recordings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, query: str, given: Sequence[object] = ()) -> list[Any]:
        # A recorder may have made the tables since.
        if not self._has_any:
            self._has_any = is_there(self.file)
        return self.file.rows(query, given) if self._has_any else []

    def runs(
        self,
        *,
        agent: str | None = None,
        status: RunStatus | None = None,
        failed: bool = False,
        since: float | None = None,
        over_cost: float | None = None,
        before: RecordedRun | tuple[float, str] | None = None,
        unrecorded: bool = False,
        limit: int = 50,
    ) -> list[RecordedRun]:
        """Return recordings, the newest first.

        Args:
            agent: Only those of the agent with this name.
            status: Only those with this status.
            failed: Only those that failed, died, or were cancelled.
            since: Only those that began then or later, in seconds since 1970.
            over_cost: Only those that cost more, in US dollars.
            before: Only those that come after this one in the list: the next page. Or after a place in it: a beginning,
                in seconds since 1970, and an id.
            unrecorded: True: all runs of the store, also the durable ones that are not recorded.
            limit: How many at most; no more than `MOST`.

        Raises:
            ValueError: no run has this status.
        """
        where, given = ["true"], list[object]()
        for condition, value in (("agent = ?", agent), ("started >= ?", since), ("cost > ?", over_cost)):
            if value is not None:
                where.append(condition)
                given.append(value)
        wanted: set[RunStatus] = {*_STATUSES} if status is None else {status}
        if not wanted.issubset(_STATUSES):
            raise ValueError(f"No run is {str(status)[:50]!r}: it is one of {', '.join(_STATUSES)}.")
        wanted = wanted & _FAILED if failed else wanted
        if len(wanted) < len(_STATUSES):
            words = ", ".join([f"'{word}'" for each in wanted for word in words_of(each)]) or "NULL"
            where.append(f"(status IN ({words}) OR {_HEAD_IS.format(f'IN ({words})')})")
        if before is not None:
            where.append("(started, id) < (?, ?)")
            given += (before.started, before.id) if isinstance(before, RecordedRun) else before
        found, page, limit = list[RecordedRun](), list[RecordedRun](), max(1, min(limit, MOST))
        while len(found) < limit:  # only a look at its lock tells which of those that have no end are alive
            last = [page[-1].started, page[-1].id] if page else []
            more = [*where, "(started, id) < (?, ?)"] if page else where
            page = self.chosen(" AND ".join(more), [*given, *last], unrecorded=unrecorded, limit=limit)
            found += [run for run in page if run.status in wanted]
            if len(page) < limit:
                break
        return found[:limit]

    def chosen(
        self,
        where: str,
        given: Sequence[object] = (),
        *,
        unrecorded: bool = False,
        order: str = "started DESC, id DESC",
        limit: int = MOST,
    ) -> list[RecordedRun]:
        """Return the runs that fulfil a condition on the columns of `rec_runs`, in an order by these."""
        listed = [_RECORDED] if self.has_any else []
        if unrecorded:
            listed.append(_UNRECORDED + (_NOT_IN_BOTH if self.has_any else ""))
        if not (listed and self.file.has("jm_runs")):  # which are made before those of recordings
            return []
        # Of each kind alone: an index gives the first of it, and no more are read.
        part = f"SELECT * FROM (SELECT * FROM ({{}}) AS runs WHERE {where} ORDER BY {order} LIMIT ?) AS part"
        parts = [part.format(each) for each in listed]
        query = f"{' UNION ALL '.join(parts)} ORDER BY {order} LIMIT ?"
        rows = self.file.rows(query, [*[*given, limit] * len(parts), limit])
        # Each look at a lock asks the system or the database, and most rows have the same few owners.
        is_held, now = cache(self.file.is_held), time.time()
        return [_run_of(row, is_held, now) for row in rows]

    def going(self, *, limit: int) -> list[RecordedRun]:
        """Return the runs that may go on, recorded or not, the newest first."""
        own = _HEAD_IS.format("NOT IN ('done', 'failed')")
        return self.chosen(f"(status = 'live' OR {own})", unrecorded=True, limit=limit)

    def heads(self, ids: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return columns of the rows of durable runs with some ids, of those that are there."""
        found: list[Any] = []
        # SQLite takes no more than 999 parameters before version 3.32.
        for start in range(0, len(ids) if self.file.has("jm_runs") else 0, 500):
            some = ids[start : start + 500]
            query = f"SELECT {', '.join(columns)} FROM jm_runs WHERE id IN ({_marks(some)})"
            found += self.file.rows(query, some)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def days(self, first: int) -> list[Any]:
        """Return for each day from one on, counted by UTC since 1970, how many runs began, recorded or not, how many of
        them failed, and their cost."""
        if not self.file.has("jm_runs"):
            return []
        words = ", ".join(f"'{word}'" for word in words_of("cancelled"))
        query = (
            "SELECT CAST(started / 86400 AS INTEGER), count(*),"
            f" sum(CASE WHEN status IN ({words}) THEN 1 ELSE 0 END), coalesce(sum(cost), 0)"
            f" FROM ({_ALL if self.has_any else _HEADS}) AS runs WHERE started >= ? GROUP BY 1"
        )
        return self.file.rows(query, (first * 86_400.0,))

    def count(self) -> int:
        """Return how many runs the store has, recorded or not."""
        if not self.file.has("jm_runs"):
            return 0
        tables = [f"jm_runs AS h{_NOT_IN_BOTH}", "rec_runs"] if self.has_any else ["jm_runs"]
        return sum(self.file.rows(f"SELECT count(*) FROM {each}")[0][0] for each in tables)

    @property
    def has_any(self) -> bool:
        """True once the store has the tables of recordings."""
        self._rows("SELECT 1")
        return self._has_any

    def older(self, moment: float) -> list[RecordedRun]:
        """Return the recordings of which nothing was written since a moment, in seconds since 1970; oldest first."""
        return self.chosen("seen < ?", (moment,), order="seen", limit=1 << 31)

    def forget(self, runs: Sequence[RecordedRun]) -> str | None:
        """Forget recordings, with all that is stored of them, and give their room back to the disk, or to other data in
        the database. If the room cannot be given back, return the reason; the store then uses it again later.

        Raises:
            StoreError: the store cannot be written.
        """
        numbers = [row[0] for run in runs for row in self._rows("SELECT n FROM rec_runs WHERE id = ?", (run.id,))]
        forget(self.file, numbers)
        return self.file.reclaim() if self._has_any else None

    def find(self, id: str) -> RecordedRun:
        """Return the recording with this id, or whose id begins so; `last` is the newest.

        Raises:
            StoreError: there is none, or there are several. The text names the nearest.
        """
        if id == "last":
            newest = self.runs(limit=1)
            if not newest:
                raise StoreError(f"{self.file.place} has no recordings yet.", hint="Record a run: Runtime(recorder=…).")
            return newest[0]
        # A range and no pattern: an index finds it.
        end = id[:-1] + chr(ord(id[-1]) + 1) if id and ord(id[-1]) < 0x10FFFF else ""
        found = self.chosen("id >= ? AND id < ?", (id, end), order="id", limit=3)
        exact = [run for run in found if run.id == id]
        if len(found) == 1 or exact:
            return (exact or found)[0]
        if found:
            names = " and ".join(run.id for run in found[:2])
            raise StoreError(
                f"Several recordings begin with {quoted(id)}, {names} among them.", hint="Give more of the id."
            )
        raise self._make_unknown_error(id)

    def has(self, id: str) -> bool:
        """Tell whether `find` would return a recording."""
        try:
            self.find(id)
        except StoreError:
            return False
        return True

    def _make_unknown_error(self, id: str) -> StoreError:
        # Enough to find a slip of the pen, without reading a large store.
        known = [row[0] for row in self._rows("SELECT id FROM rec_runs ORDER BY started DESC LIMIT 10000")]
        by_start = {each[: max(len(id), 1)]: each for each in reversed(known)}
        close = get_close_matches(id, [*by_start], n=1, cutoff=0.4)
        near = by_start[close[0]] if close else next(iter(known), None)
        hint = "It has none yet." if near is None else f"The nearest is {near}. 'last' is the newest."
        return StoreError(f"{self.file.place} has no recording {quoted(id)}.", hint=hint)

    def events(
        self,
        run: RecordedRun,
        *,
        after: int = 0,
        path: RunPath | None = None,
        kinds: Sequence[str] = (),
        limit: int = MOST,
        most: int | None = None,
    ) -> list[RecordedEvent]:
        """Return what happened in a run, in order.

        Args:
            run: Which one.
            after: Only what follows the event with this number.
            path: Only what happened in the run of this path.
            kinds: Only these.
            limit: How many at most; no more than `MOST`.
            most: Of a longer text, only so many characters of its beginning are read. The text is then `{"cut": ...,
                "characters": about how many it has}`.
        """
        more = f" AND e.kind IN ({_marks(kinds)})" if kinds else ""
        rows = self._part(f"{_EVENT} WHERE {_OF_A_RUN}{more}", (run.id, after, *kinds), path=path, limit=limit)
        return self._events(rows, most)

    def _part(self, query: str, given: Sequence[object], *, path: RunPath | None, limit: int) -> list[Any]:
        """Return rows of what is stored of a run, which the query calls `e`, in order."""
        where, wanted = ("", ()) if path is None else (" AND e.path = ?", ("/".join(path),))
        return self._rows(f"{query}{where} ORDER BY e.n LIMIT ?", (*given, *wanted, max(1, min(limit, MOST))))

    def event_documents(
        self, run: RecordedRun, *, after: int = 0, limit: int = MOST, most: int | None = None
    ) -> list[dict[str, Any]]:
        """Return what `events` does, each in its JSON form: for who shows thousands at once, to whom
        making objects of them would take longer than reading them."""
        rows = self._part(f"{_EVENT} WHERE {_OF_A_RUN}", (run.id, after), path=None, limit=limit)
        stored = _StoredFacts(self.file, most)
        return [
            document_of((n, at, kind, _path_of(path)), row[5:9], stored.read(row))
            for row in rows
            for _, n, at, path, kind, *_ in [row]
        ]

    def all_events(
        self, run: RecordedRun, *, path: RunPath | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[RecordedEvent]:
        """Give everything that happened in a run, in order, read in pages; or only what is of these kinds."""
        after = 0
        while page := self.events(run, after=after, path=path, kinds=kinds):
            yield from page
            after = page[-1].n

    def _events(self, rows: Sequence[Any], most: int | None = None) -> list[RecordedEvent]:
        stored = _StoredFacts(self.file, most)
        return [
            RecordedEvent(
                n=row[1],
                at=row[2],
                path=_path_of(row[3]),
                kind=row[4],
                **dict(zip(PLACE[1:], row[5:9], strict=True)),
                facts=stored.read(row),
            )
            for row in rows
        ]

    def search(self, text: str, *, tool: str | None = None, limit: int = 50) -> list[TextMatch]:
        """Return events that hold a text, the newest first. Capital and small letters are different.

        Args:
            text: What to look for, in texts as JSON writes them; empty: anything.
            tool: Only calls of the tool with this name.
            limit: How many at most; no more than `MOST`.
        """
        wanted = max(1, min(limit, MOST))
        where, given = ["true"], list[object]()
        if tool is not None:
            where.append("e.tool = ?")
            given.append(tool)
        if not text:
            query = f"{_EVENT} WHERE {' AND '.join(where)} ORDER BY e.run DESC, e.n DESC LIMIT ?"
            return self._founds(self._rows(query, [*given, wanted]))
        forms = forms_of(text)
        pieces = self._pieces_with({each.encode("utf-8", "surrogateescape") for each in forms})
        if pieces:
            where.append("(e.refs IS NOT NULL OR m.body IS NOT NULL OR instr(e.body, ?) > 0)")
            given.append(text)
        else:
            where.append(f"(instr(e.body, ?) > 0{' OR instr(m.body, ?) > 0' * len(forms)})")
            given += (text, *forms)
        query, stored = f"{_EVENT} WHERE {' AND '.join(where)} ORDER BY e.run DESC, e.n DESC", _StoredFacts(self.file)
        found: list[Any] = []
        for row in self._rows(query, given):
            *_, body, refs, message, its_refs = row
            digests = unpacked_places(refs)[1] + unpacked_places(its_refs)[1]
            is_in_pieces = any((root, digest) in pieces for digest in digests for root in (row[0], SHARED))
            may_hold = is_in_pieces or any(each in f"{body}\n{message}" for each in forms)
            if may_hold and text in dumped(stored.read(row)):
                found.append(row)
                if len(found) == wanted:
                    break
        return self._founds(found)

    def _pieces_with(self, texts: Set[bytes]) -> set[tuple[int, int]]:
        """Return the roots and digests of the long texts that hold one of some texts. Those that are stored smaller are
        read one by one."""
        found = {(root, digest) for text in texts for root, digest in self._rows(_WITH_TEXT, (text,))}
        # What was packed, the database cannot search.
        after = (-1, 0)
        while rows := self._rows(_PACKED, after):
            bodies = [(root, digest, unpack_piece(body) or b"") for root, digest, body in rows]
            found |= {(root, digest) for root, digest, body in bodies if any(text in body for text in texts)}
            after = rows[-1][:2]
        return found

    def _founds(self, rows: Sequence[Any]) -> list[TextMatch]:
        ids = {run: self._rows("SELECT id FROM rec_runs WHERE n = ?", (run,))[0][0] for run in {row[0] for row in rows}}
        events = self._events(rows)
        return [TextMatch(run=ids[row[0]], event=event) for row, event in zip(rows, events, strict=True)]

    def requests(
        self, run: RecordedRun, *, after: int = 0, path: RunPath | None = None, limit: int = MOST
    ) -> list[StoredRequest]:
        """Return the requests of a run in the order in which they were sent. `after`, `path` and `limit` are as for
        `events`."""
        query = f"SELECT {_REQUEST} FROM rec_requests AS e WHERE {_OF_A_RUN}"
        rows = self._part(query, (run.id, after), path=path, limit=limit)
        texts = Texts(self.file, rows[0][0] if rows else 0)
        # Nearly all of a run were sent to the same address with the same headers.
        heads = {around: texts.find(around) for around in {row[9] for row in rows}}
        return [
            StoredRequest(
                run=run.id,
                n=n,
                at=at,
                path=_path_of(path),
                **dict(zip(_REQUEST_FACTS.split(", "), facts, strict=True)),
                around=_json_of(heads[around]) or {},
                answer=_json_of(None if answer is None else texts.unfold(answer, refs)),
            )
            for _, n, at, path, *facts, around, answer, refs in rows
        ]

    def all_requests(self, run: RecordedRun, *, path: RunPath | None = None) -> Iterator[StoredRequest]:
        """Give all requests of a run, in order, read in pages."""
        after = 0
        while page := self.requests(run, after=after, path=path):
            yield from page
            after = page[-1].n

    def pieces(self, request: StoredRequest) -> list[RequestPart]:
        """Return the pieces of a request, in order: their bytes, joined, are the body as it was sent. If damage to the
        store has lost which pieces these are, return one piece without a body."""
        try:
            digests = self._digests(request.run, request.n)
        except (LookupError, ValueError, struct.error):
            return [RequestPart(number=0, body=None)]
        bodies: dict[int, bytes | None] = {}
        wanted = sorted({*digests})
        # SQLite takes no more than 999 parameters before version 3.32.
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            query = f"{_ITS_PIECES} AND digest IN ({_marks(some)})"
            bodies |= {digest: unpack_piece(body) for digest, body in self._rows(query, [request.run, *some])}
        # So much JavaScript holds exactly.
        return [RequestPart(number=digest & (1 << 53) - 1, body=bodies.get(digest)) for digest in digests]

    def body(self, request: StoredRequest) -> bytes | None:
        """Return the body of a request, byte for byte as it was sent, except that secrets were taken out. None: its
        content was not kept, or a part of it was damaged."""
        bodies = [piece.body for piece in self.pieces(request)]
        known = [body for body in bodies if body is not None]
        return b"".join(known) if len(known) == len(bodies) else None

    def _digests(self, run: str, n: int) -> list[int]:
        """Return the digests of a request's pieces. It says only how it differs from the one that it goes on from.

        Raises:
            LookupError, ValueError, struct.error: a part of that is not in the store.
        """
        head: list[int] | None = None
        tails: list[tuple[int, list[int]]] = []
        at: int | None = n
        while at is not None:
            rows = self._rows(_GOES_ON, (run, at))
            if not rows:
                raise LookupError(at)
            at, said = rows[0]
            n_first, *digests = struct.unpack(f">{len(said) // 8}q", said)
            head = digests[:n_first] if head is None else head
            kept, *tail = digests[n_first:]
            tails.append((kept, tail))
        digests = list[int]()
        for kept, tail in reversed(tails):
            digests = [*digests[:kept], *tail]
        return [*(head or ()), *digests]


_ITS_PIECES: Final = (
    f"SELECT digest, body FROM rec_pieces WHERE root IN ((SELECT n FROM rec_runs WHERE id = ?), {SHARED})"
)
_GOES_ON: Final = "SELECT base, pieces FROM rec_requests WHERE run = (SELECT n FROM rec_runs WHERE id = ?) AND n = ?"
_WITH_TEXT: Final = "SELECT root, digest FROM rec_pieces WHERE instr(body, ?) > 0"
_PACKED: Final = (
    "SELECT root, digest, body FROM rec_pieces WHERE (root, digest) > (?, ?) AND length(body) < size"
    " ORDER BY root, digest LIMIT 1000"
)


class _StoredFacts:
    """The facts of events, with their long texts, and with what a message says of them."""

    def __init__(self, file: Storage, most: int | None = None) -> None:
        self._file = file
        self._most = most
        self._texts: dict[tuple[int, int | None], Texts] = {}
        self._message: tuple[object, JsonObject] = None, {}
        """The last one that was read: several calls of one message follow one another."""

    def read(self, row: Sequence[Any]) -> JsonObject:
        """Return the facts of a row of `_EVENT`. What is not in the store is not among them, and `lost` says so."""
        run, body, refs, *message = (row[0], *row[-4:])
        text = self._unfold(run, body or "{}", refs, self._most)
        facts = _json_of(text)
        if facts is None:
            return {**_LOST}
        is_filled = SAID in facts
        if is_filled:
            if self._message[0] != (run, *message):
                told = _json_of(self._unfold(run, message[0] or "{}", message[1], None))
                self._message = (run, *message), as_object((told or {}).get("message"))
            if not fill_in(facts, self._message[1]):
                facts |= _LOST
        most = self._most
        return shorten_object(facts, most) if most is not None and (is_filled or len(text or "") > most) else facts

    def _unfold(self, run: int, body: str, refs: bytes | None, most: int | None) -> str | None:
        texts = self._texts.setdefault((run, most), Texts(self._file, run, most=most))
        return texts.unfold(body, refs)


_LOST: Final = {"lost": "a part of this event is not in the store"}


def _json_of(text: str | bytes | None) -> JsonObject | None:
    """Return what a text says; None: there is none, or it was damaged."""
    try:
        return None if text is None else read_object(text)
    except ValueError:
        return None


@lru_cache(maxsize=1_000)
def _path_of(text: str) -> RunPath:
    return tuple(text.split("/")) if text else ()


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _run_of(row: Sequence[Any], is_held: Callable[[str], bool], now: float) -> RecordedRun:
    *facts, plain, cached, out, cost, owner, n, word, why, driver, ended = row
    told = dict(zip(_RUN_FACTS, facts, strict=True))
    told["is_recorded"], told["calls"] = n > 0, told["calls"] if n else None
    head = None if word is None else StoredStatus(word, why, driver, ended)
    recording = StoredStatus(told["status"], told["code"], owner) if n else None
    told["status"] = status = status_of(head, recording, is_held, now=now)
    if head is not None:  # a recorder that has left knows nothing of its end
        is_over = status in ("done", "failed", "cancelled")
        told["ended"], told["code"] = (head.ended, head.code if status != "done" else None) if is_over else (None, None)
    told["has_content"] = bool(told["has_content"])
    usage = Usage(
        requests=told["iterations"], input_tokens=plain, cache_read_tokens=cached, output_tokens=out, cost=cost
    )
    return RecordedRun(**told, usage=usage)

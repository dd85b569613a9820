"""The items of a tape, and the rows that are made of them: recordings, events, and requests.

A request says only how it differs from the one before it of the same run, and its parts are stored once: so a recording
grows with the conversation, and not with its square.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_json_object
from journeyman.errors import ProviderError, words_of
from journeyman.events import (
    AttemptStarted,
    ContextCompacted,
    Input,
    IterationStarted,
    MessageCommitted,
    ModelResponded,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
)
from journeyman.events.json_form import PLACE, plain, plain_fields, told_of
from journeyman.journal import TapeEnd, Where
from journeyman.model import Model, ModelSettings, Prefix, Request, Response
from journeyman.model import facts_of as facts_of_model
from journeyman.record.packing import Folded, Folder, Pieces, dumped, shape_of
from journeyman.record.repeats import REPEATS, leave_out
from journeyman.record.retention import Lasts
from journeyman.record.schema import SHARED, packed_places
from journeyman.record.signals import FromOutside
from journeyman.store.storage import Statement
from journeyman.tools.redaction import words_without_secrets
from journeyman.types import NOTHING_USED, JsonObject, Message, RunPath, Usage, adapter_of

_MOST_HOPS: Final = 64
"""So many requests may go on from one another. As many have to be read to read the last of them. The next one goes on
from that in which the last such chain began: it says again what has come since, and nothing of before."""
_WIRE: Final = "record"
"""In `Message.wire`: the message as JSON of ours."""
_BEGINS: Final = re.compile(rb'(?<=[\[,])(?=\{"(?:role|type|parts)":)')
"""Where a body that came in one piece is cut: at its messages and blocks."""
_USAGE: Final = re.compile(rb'"usage(?:Metadata)?":')
_INPUT_SHOWN: Final = 200
# Services tell the use in the first event or in one of the last. What lies between may be long.
_LAST_CHUNKS: Final = 16
# Of an error, a person reads the beginning; a page of a proxy may be long.
_ERROR_BYTES: Final = 64 * 1024


@lazy_dataclass(kw_only=True)
class SentRequest:
    """A request that goes out."""

    where: Where
    provider: str
    model: str
    around: JsonObject
    """Its address and headers; empty for one that is `asked`."""
    body: bytes = b""
    pieces: Sequence[bytes] = ()
    """The body in the pieces that it was joined from; none where nobody told."""
    asked: Request | None = None
    """The request itself, if no transport of ours carries it."""
    size: int = 0
    now: _Last | None = None
    """What the next one may go on from."""
    before: _Last | None = None
    """What this one goes on from, until it is written."""
    n_kept: int = 0
    """How many pieces of that it begins with, behind the first."""
    is_shared: bool = False
    """Its system prompt and its tools come from the definition of the agent alone."""
    shared: Sequence[bool] = ()
    """Of each piece that is new, the first one included, whether it is one of these."""


@lazy_dataclass()
class ReceivedResponse:
    """The answer to a request, with the times of its pieces. Times are in seconds, by a clock that only goes on."""

    began_s: float
    ended_s: float = 0.0
    sent: SentRequest | None = None
    status: int | None = None
    request_id: str | None = None
    response: Response | None = None
    error: BaseException | None = None
    n_chunks: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    gap_s: float = 0.0
    first: bytes | Sequence[tuple[bytes, bytes]] = ()
    """The first events of the answer, or all of it."""
    last: deque[bytes | Sequence[tuple[bytes, bytes]]] = field(default_factory=lambda: deque(maxlen=_LAST_CHUNKS))

    def take(self, now_s: float, data: bytes | Sequence[tuple[bytes, bytes]]) -> None:
        """Take in what has come of the answer."""
        if self.n_chunks == 0:
            self.first_s, self.first = now_s, data
        else:
            self.gap_s = max(self.gap_s, now_s - self.last_s)
            self.last.append(data)
        self.last_s = now_s
        self.n_chunks += 1

    def facts(self) -> JsonObject:
        """Return what is kept of it."""
        facts: JsonObject = {"total_ms": round((self.ended_s - self.began_s) * 1e3, 1)}
        if self.status is not None:
            facts["status"] = self.status
        if self.request_id is not None:
            facts["request_id"] = self.request_id
        if self.n_chunks:
            facts["first_ms"] = round((self.first_s - self.began_s) * 1e3, 1)
            facts["longest_gap_ms"] = round(self.gap_s * 1e3, 1)
            facts["n_chunks"] = self.n_chunks
        if self.response is not None:
            names = ("stop_reason", "stop_detail", "id", "model")
            facts |= {name: told for name in names if (told := getattr(self.response, name))}
        if self.error is not None:
            facts["error"] = words_without_secrets(self.error)
            facts["error_kind"] = str(getattr(self.error, "kind", "cancelled"))
            if self.status is not None and self.status >= 300 and isinstance(self.first, bytes):
                facts["error_body"] = self.first[:_ERROR_BYTES].decode("utf-8", "replace")
        chunks = [[each] if isinstance(each, bytes) else [one[1] for one in each] for each in (self.first, *self.last)]
        return {**facts, **_usage_in([each for chunk in chunks for each in chunk])}


@lazy_dataclass()
class ModelAsked:
    """A request of a run to a model and its answer, in terms of ours: a cassette is made of these."""

    where: Where
    model: Model
    request: Request
    took_s: float
    response: Response | None = None
    error: BaseException | None = None
    told: ModelResponded | None = None
    """The event behind it, if it and the message before it say what was answered."""

    def outcome(self) -> JsonObject:
        """Return what came of it: of an answer that events tell, only what they do not."""
        facts: JsonObject = {"ms": round(self.took_s * 1e3, 1)}
        if self.response is not None:
            facts["answer"] = answer = plain_fields(self.response)
            if self.told is not None:
                del answer["content"], answer["stop_reason"]
                answer["usage"] = plain(self.response.usage)
                if self.told.usage == self.response.usage:
                    del answer["usage"]
        elif isinstance(self.error, ProviderError):
            names = ("kind", "status", "type", "request_id", "retry_after_s", "usage")
            told = {name: plain(fact) for name in names if (fact := getattr(self.error, name)) is not None}
            facts["error"] = {"message": words_of(self.error), **told}
        return facts


@lazy_dataclass()
class RecordingEnd:
    """The end of a recording."""

    status: TapeEnd
    code: str | None


@dataclass(slots=True, eq=False)
class _Last:
    """A request that another one may go on from."""

    pieces: Sequence[bytes]
    """As the encoder gave them, except for the first."""
    hops: int
    """How many others have to be read to read it."""
    start: _Last | None
    """The one in which its chain began; None: it began here."""
    head: tuple[Request, bytes] | None
    """For a request that is `asked`: the piece with its system prompt and its tools."""
    until: int
    """The day on which it goes."""
    n: int = 0
    """Its number in the recording."""
    ends: list[int] = field(default_factory=list[int])
    """For each piece, the number of digests up to its end."""
    digests: list[int] = field(default_factory=list[int])


@dataclass(slots=True, eq=False)
class SpokenMessage:
    """A message of a model that later events may repeat."""

    message: Message
    until: int
    """The day on which it goes."""
    n: int = 0
    """The number of the event that tells it; 0 before that is written."""


@dataclass(slots=True, eq=False)
class ToldFacts:
    """The facts that the events have told of one run of a recording."""

    messages: list[Message] = field(default_factory=list[Message])
    """The messages that a reader expects to be sent next."""
    spoken: SpokenMessage | None = None
    """The last message of the model."""
    head: tuple[Model, Prefix, ModelSettings] | None = None
    """The model, the prefix and the settings of the last request."""


@dataclass(slots=True, eq=False)
class LiveView:
    """The part of a recording that changes as it goes on, for those who look at it now."""

    is_watched: bool = False
    """Set by the writer: somebody looks at it now."""
    words: dict[RunPath, str] = field(default_factory=dict[RunPath, str])
    """The last words of the answers that are being written."""
    places: dict[RunPath, tuple[int, int]] = field(default_factory=dict[RunPath, tuple[int, int]])
    """The attempt and the iteration that each run is in."""
    shown: str = "[]"
    """What the store has of them."""


@dataclass(slots=True, eq=False)
class RecordingRow:
    """One recording, as the writer knows it."""

    id: str
    kind: str
    agent: str
    started: float
    n: int = 0
    """Its number in the store; 0 before it is there."""
    told: int = 0
    """The number of the last event or request: each life of a recording has numbers of its own."""
    n_failures: int = 0
    """How often the store had failed when it began: one more, and what follows is not written."""
    model: str = ""
    input: str = ""
    attempts: int = 0
    iterations: int = 0
    calls: int = 0
    children: int = 0
    usage: Usage = NOTHING_USED
    bytes: int = 0
    dropped: int = 0
    """Counted by the tape."""
    seen: float = 0.0
    code: str | None = None
    """How the last run ended that is in no other."""
    ended: RecordingEnd | None = None
    requests: dict[RunPath, _Last] = field(default_factory=lambda: {})
    """The last request of each path."""
    outside: FromOutside | None = None
    """Who is told what is said from outside; None: nobody, or somebody else reads it."""
    live: LiveView = field(default_factory=lambda: LiveView())
    known: dict[RunPath, ToldFacts] = field(default_factory=lambda: defaultdict(ToldFacts))
    """By path, what a reader knows of each run in it."""

    def number(self) -> int:
        """Return the number of what is told next: higher than all before it, and known before it is written."""
        self.told += 1
        return self.told

    def take_up(self, known: Sequence[Any]) -> None:
        """Go on with what `BEGIN` has given back."""
        self.n, life, *counts, asked, cached, out, cost = known
        self.told = life << 32
        self.attempts, self.iterations, self.calls, self.children, self.bytes, self.model, self.input = counts
        self.usage = Usage(
            requests=self.iterations, input_tokens=asked, cache_read_tokens=cached, output_tokens=out, cost=cost
        )


class FoldedItem(NamedTuple):
    """An item of a batch, whose texts are folded."""

    line: RecordingRow
    at: float
    item: object
    texts: Sequence[Folded]
    spoken: SpokenMessage | None
    """The message that it is, or that says what was left out of it."""


class RowMaker:
    """Makes the rows of what a batch holds."""

    def __init__(self, pieces: Pieces, *, has_content: bool) -> None:
        self._pieces = pieces
        self._has_content = has_content

    def prepare(
        self, folder: Folder, line: RecordingRow, item: object, lasts: Lasts
    ) -> tuple[list[int], SpokenMessage | None]:
        """Have the texts of an item folded, and return their numbers, and the message that it is, or that says what was
        left out of it."""
        match item:
            case RecordingEnd():
                return [], None
            case SentRequest():
                return self._fold_request(folder, line, item, lasts), None
            case ReceivedResponse():
                return [folder.add(self._dumped(item.facts()))], None
            case ModelAsked():
                return [folder.add(self._dumped({**_asked_anew(line, item), **item.outcome()}))], None
            case MessageCommitted():
                known, spoken = line.known[item.path], None
                known.messages.append(item.message)
                if item.message.role == "assistant":
                    spoken = known.spoken = SpokenMessage(item.message, lasts.until)
                return [folder.add(self._dumped(told_of(item).facts))], spoken
            case _:
                told, spoken = told_of(item), None
                if self._has_content and (name := REPEATS.get(type(item))) is not None:
                    spoken = line.known[told.path].spoken
                    # Where the message goes earlier, it would leave a gap.
                    if spoken is not None and (
                        spoken.until < lasts.until or not leave_out(told.facts, name, spoken.message, told.tool_use_id)
                    ):
                        spoken = None
                return [folder.add(self._dumped(told.facts))], spoken

    def _dumped(self, facts: JsonObject) -> str:
        return dumped(facts if self._has_content else shape_of(facts))

    def _fold_request(self, folder: Folder, line: RecordingRow, sent: SentRequest, lasts: Lasts) -> list[int]:
        before = line.requests.get(sent.where[0])
        head: tuple[Request, bytes] | None = None
        if sent.asked is not None:  # it is no request over HTTP of ours
            pieces, head = _neutral(
                f"{sent.provider}:{sent.model}", sent.asked, None if before is None else before.head
            )
        else:
            pieces = sent.pieces or _BEGINS.split(sent.body)
        first, rest = pieces[0], pieces[1:]
        sent.size = sum(map(len, pieces))
        begins = before is not None and before.hops >= _MOST_HOPS
        base = before.start if before is not None and begins else before
        if base is not None and base.hops < _MOST_HOPS and base.until >= lasts.until:
            kept = _in_common(base.pieces, rest)
            sent.before, sent.n_kept = (base, kept) if kept else (None, 0)
        hops = 0 if sent.before is None else sent.before.hops + 1
        start = None if sent.before is None or begins else sent.before.start or sent.before
        sent.now = line.requests[sent.where[0]] = _Last(rest, hops, start, head, lasts.until)
        # What opens the list of messages stands behind the system prompt and the tools. In one form, the system prompt
        # is the first of these. Of a body that nobody has told the pieces of, nothing is known.
        is_known = sent.is_shared and (sent.pieces or sent.asked is not None)
        n_shared = next((n for n, piece in enumerate(rest[:4], 1) if is_known and piece.endswith(b"[")), 0)
        n_shared += 0 < n_shared < len(rest) and rest[n_shared].startswith(b'{"role":"system"')
        sent.shared = [False, *[n < n_shared for n in range(sent.n_kept, len(rest))]]
        # The bytes are in the texts by now; they would stay in memory as long as the run.
        sent.body, sent.pieces, sent.asked = b"", (), None
        new = [first, *rest[sent.n_kept :]]
        return [
            folder.add(self._dumped(sent.around)),
            *[folder.add(piece.decode("utf-8", "surrogateescape")) for piece in new],
        ]

    def statements(self, items: Iterable[FoldedItem], lasts: Lasts) -> list[Statement]:
        """Return what writes the items of a batch. To write it again changes nothing."""
        batch, lines = _Batch(lasts), dict[int, RecordingRow]()
        for each in items:
            lines[id(each.line)] = each.line
            each.line.seen = max(each.line.seen, each.at)
            self._add(batch, each)
        runs = [_row_of(line, batch.lasts) for line in lines.values()]
        made = (
            *((_ADD_PIECE, self._pieces.take()), (_ADD_EVENT, batch.events), (_ADD_REQUEST, batch.requests)),
            *((_ADD_ANSWER, batch.answers), (_UPDATE_RUN, runs)),
        )
        return [(statement, rows) for statement, rows in made if rows]

    def _add(self, batch: _Batch, folded: FoldedItem) -> None:
        line, at, item, texts, _ = folded
        match item:
            case RecordingEnd():
                line.ended = item
            case SentRequest():
                self._send(batch, line, at, sent=item, texts=texts)
            case ReceivedResponse():
                if item.sent is not None and item.sent.now is not None:
                    batch.answers.append((*self._place(batch, line, texts[0]), line.n, item.sent.now.n))
            case ModelAsked():
                self._event(batch, folded, (item.where[0], *item.where[1][:2], None, None))
            case _:
                if isinstance(item, Input) and not line.input and self._has_content:
                    told: dict[str, object] = orjson.loads(b"".join(texts[0].segments()))
                    # Only the beginning is looked at: an input may have megabytes.
                    line.input = " ".join(str(told.get("input", ""))[:2_000].split())[:_INPUT_SHOWN]
                _count(line, item)
                self._event(batch, folded, tuple([getattr(item, name, None) for name in PLACE]))

    def _place(self, batch: _Batch, line: RecordingRow, folded: Folded) -> tuple[str, bytes | None]:
        """Return a text as it is stored, and what of it stands elsewhere."""
        line.bytes += len(folded.text)
        if not folded.strings:
            return folded.text, None
        if not self._has_content:  # no text stands anywhere else
            return b"".join(folded.segments()).decode(), None
        digests: list[int] = []
        for _, string in folded.strings:
            digest, added = self._pieces.place(string.encode("utf-8", "surrogateescape"), line.n, batch.lasts)
            digests.append(digest)
            line.bytes += added
        return folded.text, packed_places([at for at, _ in folded.strings], digests)

    def _event(self, batch: _Batch, folded: FoldedItem, place: tuple[Any, ...]) -> None:
        line, at, item, texts, spoken = folded
        text, refs = self._place(batch, line, texts[0])
        path, *rest = place
        line.bytes += 40
        head = (line.n, n := line.number(), batch.lasts.until, at, "/".join(path or ()), type(item).__name__)
        said = None if spoken is None or isinstance(item, MessageCommitted) else spoken.n
        if spoken is not None and said is None:
            spoken.n = n
        # What says nothing takes no room.
        batch.events.append((*head, *rest, said, None if text == "{}" else text, refs))

    def _send(
        self, batch: _Batch, line: RecordingRow, at: float, *, sent: SentRequest, texts: Sequence[Folded]
    ) -> None:
        """Add a request: how it differs from the one before of the same path."""
        now, before = sent.now, sent.before
        if now is None:
            return

        def digests_of(folded: Folded, root: int) -> list[int]:
            found: list[int] = []
            for segment in folded.segments():
                if self._has_content:
                    digest, added = self._pieces.place(segment, root, batch.lasts)
                    line.bytes += added
                else:
                    digest = self._pieces.digest(segment)
                found.append(digest)
            return found

        [around], first, *rest = [
            digests_of(text, SHARED if is_shared else line.n)
            for text, is_shared in zip(texts, (True, *sent.shared), strict=True)
        ]
        if before is not None:
            now.ends = before.ends[: sent.n_kept]
            now.digests = before.digests[: now.ends[-1]]
        n_kept = len(now.digests)
        for each in rest:
            now.digests += each
            now.ends.append(len(now.digests))
        said = [len(first), *first, n_kept, *now.digests[n_kept:]]
        form = "http" if sent.around else "neutral"
        path, spot = sent.where
        now.n = line.number()
        where = ("/".join(path), spot.attempt, spot.iteration)
        head = (line.n, now.n, batch.lasts.until, at, *where, form, f"{sent.provider}:{sent.model}")
        base = None if before is None else before.n
        batch.requests.append((*head, around, sent.size, base, struct.pack(f">{len(said)}q", *said)))
        line.bytes += 8 * len(said) + 60
        # Otherwise each request would hold all that went before it in memory.
        sent.before = None


@dataclass(slots=True)
class _Batch:
    """The rows of a batch, and the days on which they go."""

    lasts: Lasts
    events: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    requests: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    answers: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])


def _row_of(line: RecordingRow, lasts: Lasts) -> tuple[object, ...]:
    """Return what is counted of a recording, and how it ended if it has."""
    used, ended = line.usage, line.ended
    return (
        *(line.model, line.input, line.attempts, line.iterations, line.calls, line.children),
        *(used.input_tokens + (used.cache_write_tokens or 0), used.cache_read_tokens or 0, used.output_tokens),
        *(used.cost, line.bytes, line.dropped, line.seen),
        *(("live", None, None) if ended is None else (ended.status, line.seen, ended.code or line.code)),
        *(lasts.until, lasts.until, line.n),
    )


_COUNTS: Final = (
    "attempts, iterations, calls, children, bytes, model, input, input_tokens, cached_tokens, output_tokens, cost"
)
BEGIN: Final = (
    "INSERT INTO rec_runs (id, kind, agent, owner, life, due, until, has_content, started, seen, model, input, status)"
    " VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, '', '', 'live')"
    " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, life = rec_runs.life + 1, status = 'live', ended = NULL,"
    " due = CASE WHEN excluded.due < rec_runs.due THEN excluded.due ELSE rec_runs.due END"
    f" RETURNING n, life, {_COUNTS}"
)
"""Makes the row of a recording, or takes it up again. If it does so twice, a life has no events."""
_UPDATE_RUN: Final = (
    "UPDATE rec_runs SET model = ?, input = ?, attempts = ?, iterations = ?, calls = ?, children = ?, input_tokens = ?,"
    " cached_tokens = ?, output_tokens = ?, cost = ?, bytes = ?, dropped = ?, seen = ?, status = ?, ended = ?,"
    " code = ?, until = CASE WHEN until > ? THEN until ELSE ? END WHERE n = ?"
)
_ADD_PIECE: Final = (
    "INSERT INTO rec_pieces (root, digest, until, size, body) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (root, digest) DO UPDATE SET until = excluded.until WHERE excluded.until > rec_pieces.until"
)
_ADD_EVENT: Final = (
    "INSERT INTO rec_events (run, n, until, at, path, kind, attempt, iteration, call, tool, said, body, refs)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_ADD_REQUEST: Final = (
    "INSERT INTO rec_requests (run, n, until, at, path, attempt, iteration, form, model, around, size, base, pieces)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_ADD_ANSWER: Final = "UPDATE rec_requests SET answer = ?, refs = ? WHERE run = ? AND n = ?"


def _count(line: RecordingRow, event: object) -> None:
    """Count what an event adds to the recording."""
    match event:
        case RunStarted():
            is_outermost = event.tool_use_id is None and len(event.path) == 1
            line.children += not is_outermost
            line.model = line.model or event.model
        case AttemptStarted():
            line.attempts += len(event.path) == 1
        case IterationStarted():
            line.iterations += 1
        case ToolCalled(kind="tool" | "unknown"):
            line.calls += 1
        case ModelResponded() | ContextCompacted():
            line.usage += event.usage
        case RunFailed() if len(event.path) == 1:
            line.code = str(event.error.code)
        case RunSucceeded() if len(event.path) == 1:
            line.code = None
        case _:
            pass


def _asked_anew(line: RecordingRow, asked: ModelAsked) -> JsonObject:
    """Return what a request has that a reader would not expect: another beginning than the one before it, and other
    messages than those that were committed since."""
    known, request = line.known[asked.where[0]], asked.request
    facts: JsonObject = {}
    head = (asked.model, request.prefix, request.settings)
    if known.head is None or any(one is not other for one, other in zip(known.head, head, strict=True)):
        known.head = head
        facts["model"] = {
            "name": f"{asked.model.provider}:{asked.model.name}",
            "facts": plain(facts_of_model(asked.model)),
        }
        facts["system"], facts["tools"] = plain(request.prefix.system), plain(request.prefix.tools)
        facts["settings"] = plain(request.settings)
    said, messages = known.messages, [*request.messages]
    if said != messages:
        pairs = enumerate(zip(said, messages, strict=False))
        kept = next((n for n, (one, other) in pairs if one != other), min(len(said), len(messages)))
        facts["kept"], facts["messages"] = kept, plain(messages[kept:])
        known.messages = messages
    return facts


def match_answers(batch: Iterable[tuple[RecordingRow, float, object]]) -> None:
    """Tell each answer in a batch whether the events behind it say the same: then it need not be stored twice."""
    behind: dict[tuple[str, RunPath], list[MessageCommitted | ModelResponded]] = {}
    for line, _, item in reversed([*batch]):
        match item:
            case MessageCommitted() | ModelResponded():
                behind.setdefault((line.id, item.path), []).append(item)
            case ModelAsked(response=answer):
                match behind.pop((line.id, item.where[0]), [])[-2:]:
                    case [ModelResponded() as told, MessageCommitted(message=said)] if answer is not None:
                        is_same = (said.content, told.stop_reason) == (answer.content, answer.stop_reason)
                        item.told = told if is_same else None
                    case _:
                        pass
            case _:
                pass


def _in_common(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Return how many pieces two requests begin with in common."""
    most = min(len(before), len(now))
    # First what is usual: the conversation has only grown. Whole lists are compared quickly, single pieces are not.
    if before[:most] == now[:most]:
        return most
    return next(n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other)


def _neutral(
    model: str, asked: Request, known: tuple[Request, bytes] | None
) -> tuple[list[bytes], tuple[Request, bytes]]:
    """Return a request as JSON of ours, in pieces, and the one with the system prompt and the tools, which is mostly
    that of the one before."""
    before = None if known is None else known[0]
    # The same object in nearly all requests of a run: comparing what is in it would take longer.
    if known is not None and before is not None and before.prefix is asked.prefix:
        head = known[1]
    else:
        facts = {"system": plain(asked.prefix.system), "tools": plain(asked.prefix.tools)}
        head = b"," + dumped(facts)[1:-1].encode() + b',"messages":['
    pieces = [message.wire.get(_WIRE) or _message_piece(message) for message in asked.messages]
    if pieces:
        pieces[0] = pieces[0][1:]
    start = dumped({"model": model, "max_tokens": asked.max_tokens, "settings": plain(asked.settings)})[:-1].encode()
    return [start, head, *pieces, b"]}"], (replace(asked, messages=()), head)


def _message_piece(message: Message) -> bytes:
    """Return a message as JSON of ours, with a comma before it."""
    # A message may hold what a user has put there: no recording fails because of it.
    facts: object = adapter_of(Message).dump_python(message, mode="json", exclude_none=True, fallback=repr)
    message.wire[_WIRE] = piece = b"," + dumped(facts).encode()
    return piece


def _usage_in(raw: Sequence[bytes]) -> JsonObject:
    """Return what a provider told of the use, in its own words: all that its events say, the last word of each."""
    told: JsonObject = {}
    for data in raw:
        # A look with a pattern first: most events tell no use, and need not be parsed.
        if _USAGE.search(data) is None:
            continue
        try:
            event: object = orjson.loads(data)
        except orjson.JSONDecodeError:
            continue
        for each in _usages(event, 0):
            told |= {name: value for name, value in each.items() if value is not None}
    return {"usage": told} if told else {}


def _usages(value: object, depth: int) -> Iterable[JsonObject]:
    # The use stands that deep at most, in all services; a stranger's answer may be nested without end.
    if not is_json_object(value) or depth > 2:
        return
    for name, item in value.items():
        if name in ("usage", "usageMetadata") and is_json_object(item):
            yield item
        elif name in ("message", "response"):
            yield from _usages(item, depth + 1)

"""The two things that a cassette puts into a run: a model that is recorded or replayed, and the journal for its calls.

Both ask the recording first, unless all is recorded again; what they pass on is what whoever asked would have seen
without a cassette.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import field, replace
from difflib import SequenceMatcher, unified_diff
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import JsonValue

from journeyman.cancellation import current_scope, is_failure
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import CassetteError, ModelUnavailable, NotRecorded, ProviderError, count, name_and_words
from journeyman.journal import About, Codec, Journal, StepFacts, decode_step, encode_step
from journeyman.model import Facts, InputPart, Model, Part, Request, TextPart, ThinkingPart, opened
from journeyman.models.cassette.format import CassetteFile, ModelLine, RecordedCall, RecordedRequest, messages_of
from journeyman.models.cassette.pieces import json_line
from journeyman.models.cassette.record import LiveRun, NewRequest, Recording, model_line, note_tools
from journeyman.step import RunStep
from journeyman.types import Effect, JsonObject

if TYPE_CHECKING:
    from journeyman.model import WholeModel

T = TypeVar("T")

_started_here: ContextVar[list[LiveRun] | None] = ContextVar("journeyman_cassette_call", default=None)
"""Inside a call that is recorded: the runs that it has started."""

_DISPLAYED = (TextPart, ThinkingPart, InputPart)


@lazy_dataclass(kw_only=True)
class CassetteState:
    """The state that the model and the journal of a cassette share."""

    recording: Recording
    playback: Playback
    records: Literal["nothing", "new", "all"]
    runs_tools: bool
    misses: list[NotRecorded] = field(default_factory=list[NotRecorded])

    def run(self) -> LiveRun:
        """Return the run that is going on here."""
        return self.recording.run_of(current_scope.get())

    def note_miss(self, miss: NotRecorded) -> NotRecorded:
        self.misses.append(miss)
        return miss


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class CassetteModel:
    """A model around a model: asks it and records, or answers instead of it."""

    def __init__(self, state: CassetteState, line: ModelLine, inner: Callable[[], Model]) -> None:
        self._state = state
        self._line = line
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{self._line.model} on a cassette>"

    @property
    def provider(self) -> str:
        return self._line.model.partition(":")[0]

    @property
    def name(self) -> str:
        return self._line.model.partition(":")[2]

    @property
    def facts(self) -> Facts:
        """The facts of the model that was recorded."""
        line = self._line
        return Facts(
            max_output_tokens=line.max_output_tokens,
            context_window=line.context_window,
            price=line.price,
            loads_tools=line.loads_tools,
        )

    def open(self) -> AbstractAsyncContextManager[object]:
        """Hold open what the model needs, if it is sure to be asked."""
        return opened(self._inner()) if self._state.records == "all" else nullcontext()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Answer from the cassette, or ask the model and record; see `Model.stream`."""
        state = self._state
        new = state.recording.make_comparable(state.run(), self._line.model, request)
        found = None
        if state.records != "all":
            found = state.playback.request(new.run, new.digest, complete=state.records == "new")
        if found is not None:
            async with aclosing(self._replay_answer(found, new.run, deltas=request.deltas)) as parts:
                yield parts
        elif state.records == "nothing":
            raise state.note_miss(state.playback.missing(new.body, new.digest, new.number))
        else:
            async with self._record_answer(new, request) as parts:
                yield parts

    async def _replay_answer(self, found: RecordedRequest, run: LiveRun, *, deltas: bool) -> AsyncGenerator[Part]:
        """Give the parts of a recorded answer."""
        state = self._state
        for part in found.parts:
            note_tools(run, part)
            if deltas or not isinstance(part, _DISPLAYED):
                yield part
        error = found.error()
        if error is not None:
            if state.playback.is_repeated(found):
                error.retry_after_s = 0.0  # it was waited for when it was recorded
            raise error
        if found.is_stopped:
            raise state.note_miss(state.playback.cut_off(found))

    @asynccontextmanager
    async def _record_answer(self, new: NewRequest, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        recording = self._state.recording
        try:
            inner = self._inner()
        except ModelUnavailable as error:
            raise error.in_stream() from error
        recording.model(model_line(inner, self._line.called))
        recording.begin(new)
        if (started := _started_here.get()) is not None:
            started.append(new.run)
        started_s, answer = _now_s(), _Replayed(run=new.run, deltas=request.deltas)
        failure: ProviderError | None = None
        try:
            async with (
                inner.stream(request if request.deltas else replace(request, deltas=True)) as parts,
                aclosing(answer.pass_on_parts(parts)) as shown,
            ):
                yield shown
        except ProviderError as error:
            failure = error
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            failure = ProviderError(f"The model {self._line.model} raised {name_and_words(error)}.", kind="unknown")
            raise failure from error
        finally:
            stopped = failure is None and not answer.is_whole
            recording.end(new, answer.parts, ms=(_now_s() - started_s) * 1000, error=failure, stopped=stopped)


@lazy_dataclass(kw_only=True)
class _Replayed:
    """An answer that is recorded while it comes."""

    run: LiveRun
    deltas: bool
    """Whether the pieces of a text are passed on; they are recorded in any case."""
    parts: list[Part] = field(default_factory=list[Part])
    is_whole: bool = False

    async def pass_on_parts(self, parts: AsyncIterator[Part]) -> AsyncGenerator[Part]:
        async for part in parts:
            self.parts.append(part)
            note_tools(self.run, part)
            if self.deltas or not isinstance(part, _DISPLAYED):
                yield part
        self.is_whole = True


@lazy_dataclass(frozen=True)
class CassetteJournal(Journal):
    """A journal that records and replays the outcomes of tool calls. Model calls pass through: `CassetteModel` records
    them."""

    state: CassetteState
    """What is recorded and replayed."""

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> CallStep:
        run = self.state.run()
        is_looked_up = _is_call(step) and self.state.records != "all"
        found = self.state.playback.call(run, step.key) if is_looked_up else None
        return CallStep(self.state, run, step, effect, found)


def _is_call(step: RunStep) -> bool:
    """Tell whether a step is a call of the model; an output's function is none."""
    return step.kind == "call" and step.call is not None


@lazy_dataclass(frozen=True)
class CallStep:
    """One step of a run; only what comes of a call is recorded and replayed."""

    state: CassetteState
    run: LiveRun
    made: RunStep
    effect: Effect
    found: RecordedCall | None
    """What is recorded of it."""

    @property
    def is_known(self) -> bool:
        return self.found is not None and self._takes_the_place_of(self.found)

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        if not _is_call(self.made):
            return await work()
        state, found = self.state, self.found
        if found is not None and self._takes_the_place_of(found):
            return await self._replay_call(found, codec)
        if state.records != "nothing" and found is None:
            return await self._record_call(work, codec)
        if self.effect == "pure" or found is not None or state.runs_tools:
            return await work()
        tool = self.run.tools.get(self.made.call or "")
        raise state.note_miss(state.playback.missing_call(self.made.key, tool, self.effect))

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        if self.state.records != "nothing" and self.found is None:

            async def nothing() -> T:
                return value

            await self._record_call(nothing, codec)

    def _takes_the_place_of(self, found: RecordedCall) -> bool:
        """Tell whether the recorded outcome is returned, and the call not made. The call of another agent is made
        again, since that agent's requests and calls are on the cassette as well; but not a call that must not be
        repeated."""
        return not self.state.runs_tools and not (found.call.runs and self.effect != "once")

    async def _replay_call(self, found: RecordedCall, codec: Codec[T]) -> T:
        self.state.playback.skip(found.call.runs)
        try:
            return codec.decode(encode_step(json_line(found.call.outcome), StepFacts(kind="call")))
        except ValueError as error:
            where = f"{self.state.playback.path}, line {found.line}"
            what = f"{where}: the outcome cannot be read: {name_and_words(error)}."
            raise CassetteError(what, hint="Record it again.", line=found.line) from error

    async def _record_call(self, work: Callable[[], Awaitable[T]], codec: Codec[T]) -> T:
        started_s, started = _now_s(), list[LiveRun]()
        token = _started_here.set(started)
        try:
            value = await work()
        finally:
            _started_here.reset(token)
        ms = (_now_s() - started_s) * 1000
        try:
            outcome: JsonValue = json.loads(decode_step(codec.encode(value))[1])
            if not isinstance(outcome, dict):
                raise ValueError("it is no JSON object")
        except (ValueError, TypeError) as error:
            what = f"What came of {self.made.key} cannot be recorded: {name_and_words(error)}."
            hint = "Keep values in the run's states that Pydantic can write as JSON."
            raise CassetteError(what, hint=hint) from error
        self.state.recording.call(self.run, self.made, ms=ms, outcome=outcome, started=started)
        return value


#
# A request is answered by an equal one; of several equal ones by the first that is left. Runs that go on at the same
# time may ask the same: once a run has been given an answer of a recorded run, it is given that run's answers first.

ADVICE: Final = (
    'Undo the change, or record again: mode="all", pytest --journeyman-record=all, journeyman cassette record.'
)


class Playback:
    """The content of a file on its way out: each request and each call is given once."""

    def __init__(self, file: CassetteFile) -> None:
        self._file = file
        self._requests: defaultdict[str, list[RecordedRequest]] = defaultdict(list)
        for request in file.requests.values():
            if request.answer is not None:
                self._requests[request.digest].append(request)
        self._calls: defaultdict[str, list[RecordedCall]] = defaultdict(list)
        for call in file.calls:
            self._calls[call.call.key].append(call)
        self._followed: dict[object, int] = {}
        """The recorded run that each run follows."""
        self.superseded: set[int] = set()
        """The lines with answers that were stopped, and are recorded again."""

    @property
    def path(self) -> Path:
        """The file, as people would type it."""
        path = self._file.path
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    def request(self, run: object, digest: str, *, complete: bool = False) -> RecordedRequest | None:
        """Return the request that answers one of `run`; with `complete`, none whose answer was stopped half-way."""
        left = [each for each in self._requests[digest] if not each.is_used]
        if complete:
            self.superseded |= {each.answer_line for each in left if each.is_stopped}
            left = [each for each in left if not each.is_stopped]
        if not left:
            return None
        followed, others = self._followed.get(run), set(self._followed.values())
        is_preferred = (each.run not in others if followed is None else each.run == followed for each in left)
        found = next((each for each, is_best in zip(left, is_preferred, strict=True) if is_best), left[0])
        found.is_used = True
        self._followed.setdefault(run, found.run)
        return found

    def call(self, run: object, key: str) -> RecordedCall | None:
        """Return the recorded outcome of a call of `run`."""
        left = [call for call in self._calls[key] if not call.is_used]
        if not left:
            return None
        followed = self._followed.get(run)
        found = next((call for call in left if call.call.run == followed), left[0])
        found.is_used = True
        return found

    def skip(self, runs: Sequence[int]) -> None:
        """Count as used what these runs asked and called, and the runs that their calls started."""
        left = list(runs)
        while left:
            run = left.pop()
            for request in self._file.requests.values():
                request.is_used = request.is_used or request.run == run
            for call in self._file.calls:
                if call.call.run == run:
                    call.is_used = True
                    left += call.call.runs

    def is_repeated(self, request: RecordedRequest) -> bool:
        """Tell whether the same request was made again after this one: it was a retry."""
        equal = self._requests[request.digest]
        return any(other.number > request.number and other.run == request.run for other in equal)

    def list_unused(self) -> Iterator[str]:
        """Yield the names of the requests and calls that nobody asked for."""
        for request in self._file.requests.values():
            if request.answer is not None and not request.is_used:
                yield f"request {request.number} (line {request.line})"
        for call in self._file.calls:
            if not call.is_used:
                yield f"call {call.call.key} of {call.call.tool or 'a tool'} (line {call.line})"

    def missing(self, body: JsonObject, digest: str, number: int) -> NotRecorded:
        """Return the error that there is no answer to the new request `number`."""
        path = self.path
        if equal := self._requests[digest]:
            said = f"request {number}: it equals request {equal[0].number} of {path} (line {equal[0].line}), "
            times = "once" if len(equal) == 1 else f"{len(equal)} times"
            return NotRecorded(f"{said}which is recorded {times} and asked for once more.\n{ADVICE}")
        recorded = [each for equal in self._requests.values() for each in equal]
        if not recorded:
            nothing = f"there is no file {path}" if self._file.header is None else f"{path} holds no answer"
            return NotRecorded(f"request {number}: {nothing}.\n{ADVICE}")
        recorded.sort(key=lambda each: (each.is_used, each.number))
        near = nearest(body, recorded)
        headline, lines = compare_requests(near.body, body)
        said = f"request {number}: {headline} ({path}, line {near.line}; - recorded, + now):"
        return NotRecorded("\n".join([said, *lines, ADVICE]))

    def cut_off(self, request: RecordedRequest) -> NotRecorded:
        """Return the error that the rest of an answer was not recorded."""
        said = f"request {request.number}: its answer ends here in {self.path} (line {request.line}): "
        return NotRecorded(f"{said}the run that was recorded was stopped.\n{ADVICE}")

    def missing_call(self, key: str, tool: str | None, effect: str) -> NotRecorded:
        """Return the error that there is no result of a call."""
        said = f"call {key} of {tool or 'a tool'} is not in {self.path}, and it is not made while replaying"
        return NotRecorded(
            f'{said}: its effect is {effect!r}.\nRecord again: mode="all", with pytest --journeyman-record=all; '
            'or let tools run: Cassette(…, tools="run").'
        )


_COMPARED_CHARS: Final = 2_000
_COMPARED_REQUESTS: Final = 40


def nearest(asked: JsonObject, recorded: Sequence[RecordedRequest]) -> RecordedRequest:
    """Return the recorded request that is most like `asked`; of equally like ones the first."""
    scores = [_score(asked, other.body) for other in recorded]
    best = max(scores)
    equal = [other for other, score in zip(recorded, scores, strict=True) if score == best]
    if len(equal) == 1:
        return equal[0]
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(_end_of_messages(asked))

    def likeness(other: RecordedRequest) -> float:
        matcher.set_seq1(_end_of_messages(other.body))
        return matcher.quick_ratio()

    return max(equal[:_COMPARED_REQUESTS], key=likeness)


def _score(asked: JsonObject, other: JsonObject) -> tuple[int, int, int]:
    """Return how much two requests are alike: messages in common, then how close they are in length, then equal fields
    beside the messages."""
    mine, theirs = messages_of(asked), messages_of(other)
    beside = sum(asked.get(name) == other.get(name) for name in asked if name != "messages")
    return _n_common(mine, theirs), -abs(len(mine) - len(theirs)), beside


def _n_common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of items, from the beginning, in which two lists are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _end_of_messages(body: JsonObject) -> str:
    return json.dumps(messages_of(body), ensure_ascii=False)[-_COMPARED_CHARS:]


_WIDTH: Final = 100
"""Longer lines of a text are cut into pieces of this many characters, which are compared one by one."""
_COMPARED_LINES: Final = 400
_SHOWN_LINES: Final = 18


def compare_requests(recorded: JsonObject, now: JsonObject) -> tuple[str, list[str]]:
    """Return the first difference in short, and the lines that show all: those recorded with `-`, those asked now with
    `+`."""
    before, after = (
        [*_json_lines({name: each for name, each in body.items() if each != {}})] for body in (recorded, now)
    )
    start = max(0, _n_common(before, after) - 1)
    ends = (before[start : start + _COMPARED_LINES], after[start : start + _COMPARED_LINES])
    _, _, _, *diff = unified_diff(*ends, lineterm="", n=1)
    places = list(dict.fromkeys(_place_in_line(line) for line in diff if line[0] in "-+"))
    kept = [line for line in diff if line[0] == "@" or _place_in_line(line) in places]
    lines = ["  …" if line[0] == "@" else f"{line[0]} {line[1:]}" for line in kept]
    hidden = len(lines) - _SHOWN_LINES
    shown = lines if hidden <= 0 else [*lines[:_SHOWN_LINES], f"and {count(hidden, 'more line')}"]
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return f"{places[0]} differs{more}", shown


def _place_in_line(line: str) -> str:
    return line[1:].partition(": ")[0]


def _json_lines(value: JsonValue, place: str = "") -> Iterator[str]:
    """Give JSON as lines of `place: value`, a line for each line of a text, so that a diff names message and field."""
    match value:
        case dict() if value:
            for key in sorted(value) if place else value:
                name = key if key.isidentifier() else json.dumps(key)
                yield from _json_lines(value[key], f"{place}.{name}" if place else name)
        case list() if value:
            for index, item in enumerate(value):
                # a tool by its name, so that one tool more does not change those behind it
                name = item.get("name", index) if place == "tools" and isinstance(item, dict) else index
                yield from _json_lines(item, f"{place}[{json.dumps(name)}]")
        case str() if value:
            for line in value.splitlines(keepends=True):
                for index in range(0, len(line), _WIDTH):
                    yield f"{place}: {json.dumps(line[index : index + _WIDTH], ensure_ascii=False)}"
        case _:
            yield f"{place}: {json.dumps(value)}"


if TYPE_CHECKING:
    _model: WholeModel = CassetteModel.__new__(CassetteModel)

"""The two things that a cassette puts into a run: a model that is recorded or replayed, and the journal for its calls.

Both ask the recording first, unless all is recorded again; what they pass on is what whoever asked would have seen
without a cassette.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import JsonValue

from journeyman.cancellation import current_scope, is_failure
from journeyman.data import lazy_dataclass
from journeyman.errors import CassetteError, ModelUnavailable, NotRecorded, ProviderError, name_and_words
from journeyman.journal import About, Codec, Journal, StepFacts, decode_step, encode_step
from journeyman.model import Facts, InputPart, Model, Part, Request, TextPart, ThinkingPart, opened
from journeyman.models.cassette.format import ModelLine, RecordedCall, RecordedRequest
from journeyman.models.cassette.pieces import json_line
from journeyman.models.cassette.record import LiveRun, NewRequest, Recording, TimedPart, model_line, note_tools
from journeyman.models.cassette.replay import Playback
from journeyman.types import Effect

if TYPE_CHECKING:
    from journeyman.model import HasFacts, Opens

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
    realtime: bool
    misses: list[NotRecorded] = field(default_factory=list[NotRecorded])

    def run(self) -> LiveRun:
        """Return the run that is going on here."""
        return self.recording.run_of(current_scope.get())

    def note_miss(self, miss: NotRecorded) -> NotRecorded:
        self.misses.append(miss)
        return miss

    async def wait_until(self, moment_s: float) -> None:
        """Wait as long as the model did, in a replay that takes its time."""
        if self.realtime and (delay_s := moment_s - _now_s()) > 0:
            await asyncio.sleep(delay_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


# -- models -----------------------------------------------------------------------------------------------------------


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
        state, started_s = self._state, _now_s()
        for ms, part in found.parts:
            note_tools(run, part)
            if deltas or not isinstance(part, _DISPLAYED):
                await state.wait_until(started_s + ms / 1000)
                yield part
        if found.answer is not None:
            await state.wait_until(started_s + found.answer.ms / 1000)
        error = found.error()
        if error is not None:
            if not state.realtime and state.playback.is_repeated(found):
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
        answer = _Replayed(run=new.run, deltas=request.deltas, started_s=_now_s())
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
            recording.end(new, answer.parts, ms=answer.ms(), error=failure, stopped=stopped)


@lazy_dataclass(kw_only=True)
class _Replayed:
    """An answer that is recorded while it comes."""

    run: LiveRun
    deltas: bool
    """Whether the pieces of a text are passed on; they are recorded in any case."""
    started_s: float
    parts: list[TimedPart] = field(default_factory=list[TimedPart])
    is_whole: bool = False

    def ms(self) -> float:
        return (_now_s() - self.started_s) * 1000

    async def pass_on_parts(self, parts: AsyncIterator[Part]) -> AsyncGenerator[Part]:
        async for part in parts:
            self.parts.append((self.ms(), part))
            note_tools(self.run, part)
            if self.deltas or not isinstance(part, _DISPLAYED):
                yield part
        self.is_whole = True


# -- tool calls -------------------------------------------------------------------------------------------------------


@lazy_dataclass(frozen=True)
class CassetteJournal(Journal):
    """A journal that records and replays the outcomes of tool calls. Model calls pass through: `CassetteModel` records
    them."""

    state: CassetteState
    """What is recorded and replayed."""

    def reserve(self, key: str, *, effect: Effect, about: About | None = None) -> CallStep:
        run = self.state.run()
        is_looked_up = "/call/" in key and self.state.records != "all"
        return CallStep(self.state, run, key, effect, self.state.playback.call(run, key) if is_looked_up else None)


@lazy_dataclass(frozen=True)
class CallStep:
    """One step of a run; only what comes of a call is recorded and replayed."""

    state: CassetteState
    run: LiveRun
    key: str
    effect: Effect
    found: RecordedCall | None
    """What is recorded of it."""

    @property
    def is_known(self) -> bool:
        return self.found is not None and self._takes_the_place_of(self.found)

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        if "/call/" not in self.key:
            return await work()
        state, found = self.state, self.found
        if found is not None and self._takes_the_place_of(found):
            return await self._replay_call(found, codec)
        if state.records != "nothing" and found is None:
            return await self._record_call(work, codec)
        if self.effect == "pure" or found is not None or state.runs_tools:
            return await work()
        tool = self.run.tools.get(self.key.rpartition("/")[2])
        raise state.note_miss(state.playback.missing_call(self.key, tool, self.effect))

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
        if self.state.realtime:
            await asyncio.sleep(found.call.ms / 1000)
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
            what = f"What came of {self.key} cannot be recorded: {name_and_words(error)}."
            hint = "Keep values in the run's states that Pydantic can write as JSON."
            raise CassetteError(what, hint=hint) from error
        self.state.recording.call(self.run, self.key, ms=ms, outcome=outcome, started=started)
        return value


if TYPE_CHECKING:
    _model: Model = CassetteModel.__new__(CassetteModel)
    _opens: Opens = CassetteModel.__new__(CassetteModel)
    _has_facts: HasFacts = CassetteModel.__new__(CassetteModel)

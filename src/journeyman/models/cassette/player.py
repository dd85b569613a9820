"""The two things that a cassette puts into a run: a model that is recorded or replayed, and the journal for its calls.

Imports `recording`, `playback` and the ports. Read `cassette.py` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from journeyman.cancel import current_scope, is_failure
from journeyman.errors import CassetteError, ModelUnavailable, NotRecorded, ProviderError, name_and_words
from journeyman.journal import Codec
from journeyman.model import InputPart, Model, Part, Request, TextPart, ThinkingPart, opened
from journeyman.models.cassette.format import ModelLine, RecordedCall, RecordedRequest
from journeyman.models.cassette.pieces import json_line
from journeyman.models.cassette.record import (
    LiveRun,
    NewRequest,
    Recording,
    TimedPart,
    model_line,
    note_tools,
    outcome_of,
)
from journeyman.models.cassette.replay import Playback
from journeyman.types import Effect, Price

if TYPE_CHECKING:
    from journeyman.journal import Journal
    from journeyman.model import Opens, Priced

T = TypeVar("T")

_started_here: ContextVar[list[LiveRun] | None] = ContextVar("journeyman_cassette_call", default=None)
"""Inside a call that is recorded: the runs that it has started."""

_DISPLAYED = (TextPart, ThinkingPart, InputPart)


@dataclass(slots=True, kw_only=True)
class CassetteState:
    """What the model and the journal of a cassette share."""

    recording: Recording
    playback: Playback
    records: Literal["nothing", "new", "all"]
    runs_tools: bool
    realtime: bool
    misses: list[NotRecorded] = field(default_factory=list[NotRecorded])

    def run(self) -> LiveRun:
        """Return the run that is going on here."""
        return self.recording.run_of(current_scope.get())

    def missed(self, miss: NotRecorded) -> NotRecorded:
        self.misses.append(miss)
        return miss


async def _wait_until(moment_s: float) -> None:
    delay_s = moment_s - _now_s()
    if delay_s > 0:
        await asyncio.sleep(delay_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


# -- models -----------------------------------------------------------------------------------------------------------


class CassetteModel:
    """A model around a model: asks it and records, or answers in its stead."""

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
    def max_output_tokens(self) -> int | None:
        return self._line.max_output_tokens

    @property
    def context_window(self) -> int | None:
        return self._line.context_window

    @property
    def price(self) -> Price | None:
        return self._line.price

    @property
    def loads_tools(self) -> bool:
        return self._line.loads_tools

    def open(self) -> AbstractAsyncContextManager[object]:
        """Hold open what the model needs, if it is sure to be asked."""
        return opened(self._inner()) if self._state.records == "all" else nullcontext()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Answer from the cassette, or ask the model and record; see `Model.stream`."""
        state = self._state
        asked = state.recording.asked(state.run(), self._line.model, request)
        take = None
        if state.records != "all":
            take = state.playback.request(asked.run, asked.digest, complete=state.records == "new")
        if take is not None:
            yield _Replay(state, take, asked.run, deltas=request.deltas)
        elif state.records == "nothing":
            raise state.missed(state.playback.missing(asked.body, asked.digest, asked.number))
        else:
            async with self._recorded(asked, request) as parts:
                yield parts

    @asynccontextmanager
    async def _recorded(self, asked: NewRequest, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        state = self._state
        inner = self._connected()
        state.recording.model(model_line(inner, self._line.called))
        state.recording.begin(asked)
        if (started := _started_here.get()) is not None:
            started.append(asked.run)
        take = _Recorder(asked.run, deltas=request.deltas)
        whole = request if request.deltas else replace(request, deltas=True)
        failure: ProviderError | None = None
        try:
            async with inner.stream(whole) as parts:
                take.parts = parts
                yield take
        except ProviderError as error:
            failure = error
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            failure = ProviderError(f"The model {self._line.model} raised {name_and_words(error)}.", kind="unknown")
            raise failure from error
        finally:
            stopped = failure is None and not take.is_over
            state.recording.end(asked, take.taken, ms=take.ms(), error=failure, stopped=stopped)

    def _connected(self) -> Model:
        try:
            return self._inner()
        except ModelUnavailable as error:
            raise error.in_stream() from error


class _Recorder:
    """Passes parts on, and keeps them."""

    __slots__ = ("_deltas", "_run", "_started_s", "is_over", "parts", "taken")

    def __init__(self, run: LiveRun, *, deltas: bool) -> None:
        self.parts: AsyncIterator[Part] | None = None
        self.taken: list[TimedPart] = []
        self.is_over = False
        self._run = run
        self._deltas = deltas
        self._started_s = _now_s()

    def ms(self) -> float:
        return (_now_s() - self._started_s) * 1000

    def __aiter__(self) -> AsyncIterator[Part]:
        return self

    async def __anext__(self) -> Part:
        assert self.parts is not None, "handed out once the stream is there"
        async for part in self.parts:
            self.taken.append((self.ms(), part))
            note_tools(self._run, part)
            if self._deltas or not isinstance(part, _DISPLAYED):
                return part
        self.is_over = True
        raise StopAsyncIteration


class _Replay:
    """The parts of a recorded answer."""

    __slots__ = ("_deltas", "_parts", "_run", "_started_s", "_state", "_take")

    def __init__(self, state: CassetteState, take: RecordedRequest, run: LiveRun, *, deltas: bool) -> None:
        self._state = state
        self._take = take
        self._run = run
        self._deltas = deltas
        self._parts: Iterator[TimedPart] = iter(take.parts)
        self._started_s = _now_s()

    def __aiter__(self) -> AsyncIterator[Part]:
        return self

    async def __anext__(self) -> Part:
        for ms, part in self._parts:
            note_tools(self._run, part)
            if self._deltas or not isinstance(part, _DISPLAYED):
                await self._wait(ms)
                return part
        return await self._end()

    async def _wait(self, ms: float) -> None:
        if self._state.realtime:
            await _wait_until(self._started_s + ms / 1000)

    async def _end(self) -> Part:
        take = self._take
        await self._wait(take.answer.ms if take.answer is not None else 0.0)
        error = take.error()
        if error is not None:
            if not self._state.realtime and self._state.playback.is_repeated(take):
                error.retry_after_s = 0.0  # it was waited for then
            raise error
        if take.answer is not None and take.answer.stopped:
            raise self._state.missed(self._state.playback.cut_off(take))
        raise StopAsyncIteration


# -- tool calls -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CassetteJournal:
    """Records and replays what comes of tool calls. Model calls pass through: their cassette is the model's."""

    state: CassetteState

    def reserve(self, key: str) -> _Place:
        return _Place(self.state, self.state.run(), key)

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        return await self.reserve(key).step(work, codec=codec, effect=effect)


@dataclass(frozen=True, slots=True)
class _Place:
    state: CassetteState
    run: LiveRun
    key: str

    # A call of another agent runs again, since its requests and calls are on the cassette as well; but not one that
    # must not be repeated.
    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        if "/call/" not in self.key:
            return await work()
        state = self.state
        take = None if state.records == "all" else state.playback.call(self.run, self.key)
        if take is not None and not state.runs_tools and not (take.call.runs and effect != "once"):
            return await self._replayed(take, codec)
        if state.records != "nothing" and take is None:
            return await self._recorded(work, codec)
        if effect == "pure" or take is not None or state.runs_tools:
            return await work()
        tool = self.run.tools.get(self.key.rpartition("/")[2])
        raise state.missed(state.playback.missing_call(self.key, tool, effect))

    async def _replayed(self, take: RecordedCall, codec: Codec[T]) -> T:
        if self.state.realtime:
            await asyncio.sleep(take.call.ms / 1000)
        self.state.playback.skip(take.call.runs)
        try:
            return codec.decode(json_line(take.call.outcome))
        except ValueError as error:
            what = f"{self.state.playback.path}, line {take.line}: the outcome cannot be read: {name_and_words(error)}."
            raise CassetteError(what, hint="Record it again.", line=take.line) from error

    async def _recorded(self, work: Callable[[], Awaitable[T]], codec: Codec[T]) -> T:
        started_s, started = _now_s(), list[LiveRun]()
        token = _started_here.set(started)
        try:
            value = await work()
        finally:
            _started_here.reset(token)
        ms = (_now_s() - started_s) * 1000
        try:
            outcome = outcome_of(codec.encode(value))
        except (ValueError, TypeError) as error:
            what = f"What came of {self.key} cannot be recorded: {name_and_words(error)}."
            hint = "Keep values in the run's states that Pydantic can write as JSON."
            raise CassetteError(what, hint=hint) from error
        self.state.recording.call(self.run, self.key, ms=ms, outcome=outcome, started=started)
        return value


if TYPE_CHECKING:
    _model: Model = CassetteModel.__new__(CassetteModel)
    _opens: Opens = CassetteModel.__new__(CassetteModel)
    _priced: Priced = CassetteModel.__new__(CassetteModel)
    _journal: Journal = CassetteJournal.__new__(CassetteJournal)

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
from journeyman.model import Facts, InputPart, Model, Part, Request, TextPart, ThinkingPart, opened
from journeyman.models.cassette.format import CallTake, ModelLine, Take
from journeyman.models.cassette.pieces import json_line
from journeyman.models.cassette.record import Asked, LiveRun, Recording, TimedPart, model_line, note_tools, outcome_of
from journeyman.models.cassette.replay import Playback
from journeyman.types import Effect

if TYPE_CHECKING:
    from journeyman.journal import Journal
    from journeyman.model import HasFacts, Opens

T = TypeVar("T")

_started_here: ContextVar[list[LiveRun] | None] = ContextVar("journeyman_cassette_call", default=None)
"""Inside a call that is recorded: the runs that it has started."""

_DISPLAYED = (TextPart, ThinkingPart, InputPart)


@dataclass(slots=True, kw_only=True)
class Deck:
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

    def __init__(self, deck: Deck, line: ModelLine, inner: Callable[[], Model]) -> None:
        self._deck = deck
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
        """What is known about the model that was recorded."""
        line = self._line
        return Facts(
            max_output_tokens=line.max_output_tokens,
            context_window=line.context_window,
            price=line.price,
            loads_tools=line.loads_tools,
        )

    def open(self) -> AbstractAsyncContextManager[object]:
        """Hold open what the model needs, if it is sure to be asked."""
        return opened(self._inner()) if self._deck.records == "all" else nullcontext()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Answer from the cassette, or ask the model and record; see `Model.stream`."""
        deck = self._deck
        asked = deck.recording.asked(deck.run(), self._line.model, request)
        take = None
        if deck.records != "all":
            take = deck.playback.take(asked.run, asked.digest, complete=deck.records == "new")
        if take is not None:
            yield _Replay(deck, take, asked.run, deltas=request.deltas)
        elif deck.records == "nothing":
            raise deck.missed(deck.playback.missing(asked.body, asked.digest, asked.number))
        else:
            async with self._recorded(asked, request) as parts:
                yield parts

    @asynccontextmanager
    async def _recorded(self, asked: Asked, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        deck = self._deck
        inner = self._connected()
        deck.recording.model(model_line(inner, self._line.called))
        deck.recording.begin(asked)
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
            deck.recording.end(asked, take.taken, ms=take.ms(), error=failure, stopped=stopped)

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

    __slots__ = ("_deck", "_deltas", "_parts", "_run", "_started_s", "_take")

    def __init__(self, deck: Deck, take: Take, run: LiveRun, *, deltas: bool) -> None:
        self._deck = deck
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
        if self._deck.realtime:
            await _wait_until(self._started_s + ms / 1000)

    async def _end(self) -> Part:
        take = self._take
        await self._wait(take.answer.ms if take.answer is not None else 0.0)
        error = take.error()
        if error is not None:
            if not self._deck.realtime and self._deck.playback.is_repeated(take):
                error.retry_after_s = 0.0  # it was waited for then
            raise error
        if take.answer is not None and take.answer.stopped:
            raise self._deck.missed(self._deck.playback.cut_off(take))
        raise StopAsyncIteration


# -- tool calls -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CassetteJournal:
    """Records and replays what comes of tool calls. Model calls pass through: their cassette is the model's."""

    deck: Deck

    def reserve(self, key: str) -> _Place:
        return _Place(self.deck, self.deck.run(), key)

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        return await self.reserve(key).step(work, codec=codec, effect=effect)


@dataclass(frozen=True, slots=True)
class _Place:
    deck: Deck
    run: LiveRun
    key: str

    # A call of another agent runs again, since its requests and calls are on the cassette as well; but not one that
    # must not be repeated.
    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        if "/call/" not in self.key:
            return await work()
        deck = self.deck
        take = None if deck.records == "all" else deck.playback.call(self.run, self.key)
        if take is not None and not deck.runs_tools and not (take.call.runs and effect != "once"):
            return await self._replayed(take, codec)
        if deck.records != "nothing" and take is None:
            return await self._recorded(work, codec)
        if effect == "pure" or take is not None or deck.runs_tools:
            return await work()
        tool = self.run.tools.get(self.key.rpartition("/")[2])
        raise deck.missed(deck.playback.missing_call(self.key, tool, effect))

    async def _replayed(self, take: CallTake, codec: Codec[T]) -> T:
        if self.deck.realtime:
            await asyncio.sleep(take.call.ms / 1000)
        self.deck.playback.skip(take.call.runs)
        try:
            return codec.decode(json_line(take.call.outcome))
        except ValueError as error:
            what = f"{self.deck.playback.path}, line {take.line}: the outcome cannot be read: {name_and_words(error)}."
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
        self.deck.recording.call(self.run, self.key, ms=ms, outcome=outcome, started=started)
        return value


if TYPE_CHECKING:
    _model: Model = CassetteModel.__new__(CassetteModel)
    _opens: Opens = CassetteModel.__new__(CassetteModel)
    _has_facts: HasFacts = CassetteModel.__new__(CassetteModel)
    _journal: Journal = CassetteJournal.__new__(CassetteJournal)

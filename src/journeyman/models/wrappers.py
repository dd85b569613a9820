"""Models around models: one that takes over when another fails, and one that can be exchanged while runs go on.

Each is an ordinary model, so they nest in any order, with `RateLimited` of `rate_limit.py` among them. What an answer
used is charged at the price of the model that gave it.

A model that is asked no more often than allowed, by all runs that share it.

Whoever comes first is served first. Nothing runs in the background: each caller waits by itself, on the event loop's
clock, and leaves nothing behind when it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, get_args

from journeyman.errors import DefinitionError, ModelUnavailable, Problem, ProviderError, ProviderErrorKind
from journeyman.model import (
    Answered,
    Collector,
    Model,
    Part,
    Prefix,
    Request,
    ResponseFinished,
    ResponseStarted,
    Restarted,
    Retried,
    UsageSeen,
    context_window_of,
    loads_tools_of,
    max_output_tokens_of,
    opened,
    price_of,
)
from journeyman.types import Message, Price, Usage
from journeyman.window import estimate_message, estimate_prefix

if TYPE_CHECKING:
    from journeyman.model import Opens, Priced


_MINUTE_S: Final = 60.0
_MARGIN_S: Final = 0.001  # waits end a little late rather than a little early, whatever the rounding
_LONGEST_ANSWER_TOKENS: Final = 8_192  # of a model that does not tell its own
_ESTIMATE: Final = "rate_limit/tokens"  # in `wire`: a message's or prefix's tokens, estimated once


class RateLimited:
    """A model with limits on how often, how much and how much at once it is asked.

    The limits hold for any minute, for all runs that use this object, in one event loop or in several one after the
    other. Before a call, its tokens are estimated: the input by its size, and the longest answer that the request
    allows, or `expected_output_tokens`. Afterwards the reported usage counts instead, until a minute after the answer's
    end. A request that is larger than the limit by itself waits until it is alone.
    """

    def __init__(
        self,
        model: Model,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrency: int | None = None,
        expected_output_tokens: int | None = None,
        count_cache_reads: bool = True,
    ) -> None:
        """None: no limit. `count_cache_reads=False` is for providers whose limit leaves out what a cache gave.

        Raises:
            DefinitionError: a limit is below 1.
        """
        self.model = model
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.concurrency = concurrency
        self.expected_output_tokens = expected_output_tokens
        self.count_cache_reads = count_cache_reads
        self._window = _Window(requests_per_minute, tokens_per_minute, concurrency)
        if problems := [*self._problems()]:
            raise DefinitionError("RateLimited", problems)

    def __repr__(self) -> str:
        return f"<RateLimited {self.model!r}>"

    @property
    def provider(self) -> str:
        return self.model.provider

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def max_output_tokens(self) -> int | None:
        return max_output_tokens_of(self.model)

    @property
    def context_window(self) -> int | None:
        return context_window_of(self.model)

    @property
    def price(self) -> Price | None:
        return price_of(self.model)

    @property
    def loads_tools(self) -> bool:
        return loads_tools_of(self.model)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Hold open what the model needs."""
        return opened(self.model)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Wait for the turn, then ask the model; see `Model.stream`."""
        held = self._estimated_tokens(request)
        await self._window.enter(held)
        seen, used = Collector(), None
        try:
            async with self.model.stream(request) as parts:
                yield parts if self.tokens_per_minute is None else _Seen(parts, seen)
        except ProviderError as error:
            used = seen.used_before(error)
            raise
        finally:
            self._window.leave(held, self._counted(used or seen.used(), held))

    def _estimated_tokens(self, request: Request) -> int:
        if self.tokens_per_minute is None:
            return 0
        longest = request.max_tokens or request.settings.max_tokens or max_output_tokens_of(self.model)
        answer = longest or _LONGEST_ANSWER_TOKENS
        if self.expected_output_tokens is not None:
            answer = min(answer, self.expected_output_tokens)
        input_tokens = _tokens_of_prefix(request.prefix) + sum(map(_tokens_of_message, request.messages))
        return min(self.tokens_per_minute, input_tokens + answer)

    def _counted(self, usage: Usage, held: int) -> int:
        """Return how many tokens count afterwards: what was reported, and all that was held where that is not exact."""
        cached = 0 if self.count_cache_reads else usage.cache_read_tokens or 0
        tokens = usage.total_tokens - cached
        return tokens if usage.exact else max(tokens, held)

    def _problems(self) -> Iterator[Problem]:
        for name in ("requests_per_minute", "tokens_per_minute", "concurrency", "expected_output_tokens"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                yield Problem("INVALID_RATE", f"{name} is {value!r}.", "Pass a whole number of at least 1, or None.")


# -- who may go when ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Queue:
    """Those who wait in one event loop. Its locks belong to that loop."""

    loop: asyncio.AbstractEventLoop
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one who goes next. Locks are fair."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call has ended."""


class _Window:
    """The calls under way and those of the last minute."""

    __slots__ = ("_ended", "_in_flight", "_queue", "_starts", "_tokens", "concurrency", "requests", "tokens")

    def __init__(self, requests: int | None, tokens: int | None, concurrency: int | None) -> None:
        self.requests = requests
        self.tokens = tokens
        self.concurrency = concurrency
        self._queue: _Queue | None = None
        self._starts: deque[float] = deque()
        """When the calls of the last minute began."""
        self._ended: deque[tuple[float, int]] = deque()
        """When those that have ended did so, and with how many tokens."""
        self._tokens = 0
        """All that count now: of the calls under way, and of those in `_ended`."""
        self._in_flight = 0

    async def enter(self, tokens: int) -> None:
        """Wait until one more call of so many tokens is allowed, and count it."""
        queue = self._queue_here()
        async with queue.turn:
            while (wait_until_s := self._next_chance_s(tokens, queue.loop.time())) is not None:
                queue.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if wait_until_s == float("inf") else wait_until_s):
                        await queue.changed.wait()
            self._in_flight += 1
            self._tokens += tokens
            if self.requests is not None:
                self._starts.append(queue.loop.time())

    def leave(self, held: int, used: int) -> None:
        """Count a call that has ended with what it used, instead of what was held for it."""
        queue = self._queue_here()
        self._in_flight -= 1
        self._tokens += used - held
        if self.tokens is not None:
            self._ended.append((queue.loop.time(), used))
        queue.changed.set()

    def _next_chance_s(self, tokens: int, now_s: float) -> float | None:
        """Return when to look again, on the loop's clock: None for at once, infinity for when a call has ended."""
        self._forget_before(now_s - _MINUTE_S)
        if self.concurrency is not None and self._in_flight >= self.concurrency:
            return float("inf")
        if self.requests is not None and len(self._starts) >= self.requests:
            return self._starts[0] + _MINUTE_S + _MARGIN_S
        if self.tokens is not None and self._tokens and self._tokens + tokens > self.tokens:
            return self._ended[0][0] + _MINUTE_S + _MARGIN_S if self._ended else float("inf")
        return None

    def _forget_before(self, time_s: float) -> None:
        while self._starts and self._starts[0] < time_s:
            self._starts.popleft()
        while self._ended and self._ended[0][0] < time_s:
            self._tokens -= self._ended.popleft()[1]

    def _queue_here(self) -> _Queue:
        loop = asyncio.get_running_loop()
        if self._queue is None or self._queue.loop is not loop:
            self._queue = _Queue(loop)
            now_s = loop.time()  # the clocks of loops agree; one that is behind must not make anyone wait for longer
            self._starts = deque(min(start_s, now_s) for start_s in self._starts)
            self._ended = deque((min(end_s, now_s), tokens) for end_s, tokens in self._ended)
        return self._queue


# -- tokens ------------------------------------------------------------------------------------------------------------


class _Seen:
    """The parts of an answer, added up on their way."""

    __slots__ = ("_collector", "_parts")

    def __init__(self, parts: AsyncIterator[Part], collector: Collector) -> None:
        self._parts = parts
        self._collector = collector

    def __aiter__(self) -> _Seen:
        return self

    async def __anext__(self) -> Part:
        part = await anext(self._parts)
        self._collector.add(part)
        return part


def _tokens_of_message(message: Message) -> int:
    estimate = message.wire.get(_ESTIMATE)
    if estimate is None:
        estimate = message.wire[_ESTIMATE] = b"%d" % estimate_message(message)
    return int(estimate)


def _tokens_of_prefix(prefix: Prefix) -> int:
    estimate = prefix.wire.get(_ESTIMATE)
    if estimate is None:
        estimate = prefix.wire[_ESTIMATE] = b"%d" % estimate_prefix(prefix)
    return int(estimate)


if TYPE_CHECKING:
    _limited: type[Model] = RateLimited
    _opening: type[Opens] = RateLimited
    _costing: type[Priced] = RateLimited


PASSED_ON: Final[frozenset[ProviderErrorKind]] = frozenset(
    {"rate_limited", "timeout", "network", "stream_idle", "stream_cut", "overloaded"}
)
"""The kinds of `ProviderError` for which `Fallback` asks the next model, unless told otherwise."""


# -- Fallback ----------------------------------------------------------------------------------------------------------


class Fallback:
    """Asks the first model; if that fails in a way that another may not, the next.

    Every call begins with the first model again. An answer that broke off is thrown away (`Restarted`), and what it
    used stays counted. `Answered` tells who gives the answer that follows. When nobody is left to ask, the last error
    is raised.
    """

    def __init__(self, *models: Model, on: Collection[ProviderErrorKind] = PASSED_ON) -> None:
        """`on` are the kinds of `ProviderError` for which the next model is asked.

        Raises:
            DefinitionError: there is no model, or `on` names what is no kind.
        """
        if problems := [*_problems(models, on)]:
            raise DefinitionError("Fallback", problems)
        self.models = models
        self.on = frozenset(on)

    def __repr__(self) -> str:
        return f"<Fallback {', '.join(map(repr, self.models))}>"

    @property
    def provider(self) -> str:
        """The first model's."""
        return self.models[0].provider

    @property
    def name(self) -> str:
        """The first model's."""
        return self.models[0].name

    @property
    def max_output_tokens(self) -> int | None:
        """The smallest that is known."""
        return _smallest(max_output_tokens_of(model) for model in self.models)

    @property
    def context_window(self) -> int | None:
        """The smallest that is known."""
        return _smallest(context_window_of(model) for model in self.models)

    @property
    def price(self) -> Price | None:
        """The most that an answer may cost, for budgets; None unless the price of every model is known."""
        prices = [price for price in map(price_of, self.models) if price is not None]
        return _dearest(prices) if len(prices) == len(self.models) else None

    @property
    def loads_tools(self) -> bool:
        """Whether every model does."""
        return all(loads_tools_of(model) for model in self.models)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold open what each of the models needs."""
        async with AsyncExitStack() as stack:
            for model in self.models:
                await stack.enter_async_context(opened(model))
            yield

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Ask one model after the other; see `Model.stream`."""
        async with AsyncExitStack() as stack:
            yield _FirstToAnswer(self, request, stack)


class _FirstToAnswer:
    """The parts of the first answer that comes to its end. One stream at a time is open, in `stack`."""

    __slots__ = ("_collector", "_left", "_on", "_parts", "_price", "_request", "_stack")

    def __init__(self, fallback: Fallback, request: Request, stack: AsyncExitStack) -> None:
        self._on = fallback.on
        self._left = list(fallback.models)
        self._request = request
        self._stack = stack
        self._parts: AsyncIterator[Part] | None = None
        self._price: Price | None = None
        self._collector = Collector()
        """Of the current model's answer, since it last started."""

    def __aiter__(self) -> _FirstToAnswer:
        return self

    async def __anext__(self) -> Part:
        try:
            part = await anext(self._parts or await self._next_model(), None)
            if part is None:
                self._collector.response()  # an answer without an end has failed, too
        except ProviderError as error:
            error.usage = self._lost(error)
            if not self._left or error.kind not in self._on:
                raise
            self._parts = None
            await self._stack.aclose()
            return Restarted(error.usage)
        if part is None:
            raise StopAsyncIteration
        if type(part) is Restarted:
            self._collector = Collector()
        else:
            self._collector.add(part)
        return part if self._price is None else _charged(part, self._price)

    async def _next_model(self) -> AsyncIterator[Part]:
        model = self._left.pop(0)
        self._price = price_of(model)
        self._collector = Collector()
        self._parts = await self._stack.enter_async_context(_announced(model, self._request))
        return self._parts

    def _lost(self, error: ProviderError) -> Usage:
        """Return what the request that failed has used, at its model's price."""
        used = self._collector.used_before(error)
        return used if self._price is None or not used.requests else self._price.charged(used)


def _charged(part: Part, price: Price) -> Part:
    """Return the part with the cost of the usage that it tells, for a model that does not tell costs itself."""
    match part:
        case ResponseStarted(usage=usage) | UsageSeen(usage):
            return part if (charged := price.charged(usage)) is usage else replace(part, usage=charged)
        case ResponseFinished(usage=Usage() as usage):
            return part if (charged := price.charged(usage)) is usage else replace(part, usage=charged)
        case _:
            return part


def _problems(models: Sequence[Model], on: Collection[str]) -> Iterator[Problem]:
    if not models:
        yield Problem("NO_MODELS", "It has no models.", "Give it at least one, as in Fallback(first, second).")
    kinds: tuple[str, ...] = get_args(ProviderErrorKind)
    if unknown := sorted({*on} - {*kinds}):
        hint = f"Choose from: {', '.join(kinds)}."
        yield Problem("UNKNOWN_ERROR_KIND", f"on names {', '.join(map(repr, unknown))}, which is no kind.", hint)


def _smallest(limits: Iterable[int | None]) -> int | None:
    return min([limit for limit in limits if limit is not None], default=None)


def _dearest(prices: Sequence[Price]) -> Price:
    """Return a price that is nowhere below any of `prices`."""
    steps = sorted({tokens for price in prices for tokens, _ in price.above})
    above = tuple((tokens, _highest([price.at(tokens + 1) for price in prices])) for tokens in steps)
    return replace(_highest(prices), above=above)


def _highest(prices: Sequence[Price]) -> Price:
    return Price(
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cache_read=max(price.input if price.cache_read is None else price.cache_read for price in prices),
        cache_write=max(price.input if price.cache_write is None else price.cache_write for price in prices),
    )


# -- Swappable ---------------------------------------------------------------------------------------------------------


class Swappable:
    """A model that can be exchanged while runs go on: a swap counts from the next call, in running runs, too.

    Without a model every call fails, and a run ends as `MODEL_UNAVAILABLE`.
    """

    def __init__(self, model: Model | None = None) -> None:
        self._model = model

    def __repr__(self) -> str:
        return f"<Swappable {self._model!r}>"

    @property
    def model(self) -> Model | None:
        """The model of the next call."""
        return self._model

    def swap(self, model: Model | None) -> Model | None:
        """Use `model` from the next call on, and return the one before. Answers under way are not disturbed."""
        before, self._model = self._model, model
        return before

    @property
    def provider(self) -> str:
        return "swappable" if self._model is None else self._model.provider

    @property
    def name(self) -> str:
        return "none" if self._model is None else self._model.name

    @property
    def max_output_tokens(self) -> int | None:
        return None if self._model is None else max_output_tokens_of(self._model)

    @property
    def context_window(self) -> int | None:
        return None if self._model is None else context_window_of(self._model)

    @property
    def price(self) -> Price | None:
        return None if self._model is None else price_of(self._model)

    @property
    def loads_tools(self) -> bool:
        return self._model is not None and loads_tools_of(self._model)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold open what the current model needs. One that is swapped in later opens what it needs for each call."""
        async with AsyncExitStack() as stack:
            if self._model is not None:
                await stack.enter_async_context(opened(self._model))
            yield

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the current model; see `Model.stream`."""
        return _announced(self._model, request)


@asynccontextmanager
async def _announced(model: Model | None, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
    """Ask `model`, and let its answer say whose it is."""
    if model is None:
        raise ModelUnavailable(
            "it holds no model",
            model="swappable",
            hint="Give it one: Swappable(model), or swap(model) before the call.",
        ).in_stream()
    async with model.stream(request) as parts:
        yield _Announced(parts, Answered(model.provider, model.name))


class _Announced:
    """The parts of an answer, after whose it is; that is left out where they tell it themselves."""

    __slots__ = ("_answered", "_first", "_parts")

    def __init__(self, parts: AsyncIterator[Part], answered: Answered) -> None:
        self._parts = parts
        self._answered: Answered | None = answered
        self._first: Part | None = None

    def __aiter__(self) -> _Announced:
        return self

    async def __anext__(self) -> Part:
        if self._answered is not None:
            return await self._begin(self._answered)
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await anext(self._parts)

    async def _begin(self, answered: Answered) -> Part:
        first = await anext(self._parts)
        self._answered = None
        if isinstance(first, Answered | Restarted | Retried):  # a model around models: it tells, and knows better
            return first
        self._first = first
        return answered


if TYPE_CHECKING:
    _fallback: Model = Fallback()
    _opens: Opens = Fallback()
    _priced: Priced = Fallback()
    _swappable: Model = Swappable()
    _swappable_opens: Opens = Swappable()
    _swappable_priced: Priced = Swappable()

"""Models around models: one that takes over when another fails, one that can be exchanged, one that is asked less.

Each is an ordinary model, so they nest in any order. What an answer used is charged at the price of the model that gave
it. Nothing runs in the background: a call that waits does so on the event loop's clock, and leaves nothing behind when
it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, get_args

from journeyman.definition.problems import COUNT_OR_NONE, explain_arguments, field_problems, raise_problems
from journeyman.errors import ModelUnavailable, Problem, ProviderError, ProviderErrorKind
from journeyman.hosted.tools import HostedToolSupport
from journeyman.model import (
    Answered,
    Collector,
    Facts,
    Model,
    Part,
    Prefix,
    Request,
    ResponseFinished,
    ResponseStarted,
    Restarted,
    Retried,
    UsageSeen,
    current_request,
    facts_of,
    opened,
    read_unfinished_text,
)
from journeyman.models.requests import UNKNOWN_MAX_TOKENS
from journeyman.types import Message, Price, Usage
from journeyman.window import believable_usage, estimate_message, estimate_prefix

if TYPE_CHECKING:
    from journeyman.model import WholeModel


@explain_arguments
class WrapperModel:
    """A model around a model: everything that a wrapper does not define itself comes from the model inside.

    A wrapper adds a `stream`. A model that is swapped in later opens what it needs for each call.
    """

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    @property
    def provider(self) -> str:
        return self._inner.provider

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def facts(self) -> Facts:
        """The facts of the model inside."""
        return facts_of(self._inner)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Hold open what the model inside needs."""
        return opened(self._inner)


class HeldOpen(WrapperModel):
    """A model that can be used as `async with`: the block holds open what the model inside needs."""

    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._held: list[AbstractAsyncContextManager[object]] = []

    def __repr__(self) -> str:
        return repr(self._inner)

    async def __aenter__(self) -> HeldOpen:
        holding = self.open()
        await holding.__aenter__()
        self._held.append(holding)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._held.pop().__aexit__(None, None, None)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model inside; see `Model.stream`."""
        return self._inner.stream(request)


PASSED_ON: Final[frozenset[ProviderErrorKind]] = frozenset(
    {"rate_limited", "timeout", "network", "stream_idle", "stream_cut", "overloaded"}
)
"""The kinds of `ProviderError` for which `FallbackModel` asks the next model, unless told otherwise."""


@explain_arguments
class FallbackModel(WrapperModel):
    """A model around several: it asks the first one; if that fails in a way in which another may not, it asks the next.

    Every call begins with the first model again. An answer that broke off is thrown away (`Restarted`), and what it
    used stays counted. `Answered` tells who gives the answer that follows. When no model is left, the last error is
    raised.
    """

    def __init__(self, *models: Model, on: Collection[ProviderErrorKind] = PASSED_ON) -> None:
        """`on` are the kinds of `ProviderError` for which the next model is asked.

        Raises:
            DefinitionError: there is no model, or `on` names something that is not a kind.
        """
        raise_problems("FallbackModel", _problems_of_fallback(models, on))
        super().__init__(models[0])  # whose provider and name it has
        self.models = models
        self.on = frozenset(on)

    def __repr__(self) -> str:
        return f"<FallbackModel {', '.join(map(repr, self.models))}>"

    @property
    def facts(self) -> Facts:
        """The facts that hold whichever model answers: the smallest known limits, and whether every model loads tools.
        The price is the highest that an answer may cost, for budgets; it is unknown unless the price of every model is
        known."""
        every = [*map(facts_of, self.models)]
        prices = [facts.price for facts in every if facts.price is not None]
        known = [facts.hosted for facts in every if facts.hosted is not None]
        return Facts(
            max_output_tokens=_smallest(facts.max_output_tokens for facts in every),
            context_window=_smallest(facts.context_window for facts in every),
            price=_dearest(prices) if len(prices) == len(every) else None,
            loads_tools=all(facts.loads_tools for facts in every),
            hosted=HostedToolSupport.common(known) if known else None,
        )

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
            yield _FirstToAnswer([*self.models], self.on, request, stack)


@dataclass(slots=True, repr=False, eq=False)
class _FirstToAnswer:
    """The parts of the first answer that comes to its end. One stream at a time is open, in `stack`."""

    _left: list[Model]
    _on: frozenset[ProviderErrorKind]
    _request: Request
    _stack: AsyncExitStack
    _parts: AsyncIterator[Part] | None = None
    _price: Price | None = None
    _collector: Collector = field(default_factory=Collector)
    """It adds up the answer of the current model since it last started."""

    def __aiter__(self) -> _FirstToAnswer:
        return self

    def unfinished_text(self) -> str:
        return read_unfinished_text(self._parts)

    async def __anext__(self) -> Part:
        try:
            part = await anext(self._parts or await self._next_model(), None)
            if part is None:
                self._collector.response()  # an answer without an end has failed, too
        except ProviderError as error:
            told, collector, parts = self._collector.used_before(error), self._collector, self._parts
            used = believable_usage(told, self._request, lambda: collector.words + read_unfinished_text(parts))
            error.usage = used if self._price is None or not used.requests else self._price.charged(used)
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
        return part if self._price is None else _charge_part(part, self._price)

    async def _next_model(self) -> AsyncIterator[Part]:
        model = self._left.pop(0)
        self._price = facts_of(model).price
        self._collector = Collector()
        request, under_way = self._request, current_request.get()
        if under_way is not None and under_way.paid_max_tokens is not None:
            request = replace(request, max_tokens=under_way.paid_max_tokens)
        self._parts = await self._stack.enter_async_context(_announce_model(model, request))
        return self._parts


def _charge_part(part: Part, price: Price) -> Part:
    """Return the part with the cost of the usage that it tells, for a model that does not tell costs itself."""
    match part:
        case ResponseStarted(usage=usage) | UsageSeen(usage) | ResponseFinished(usage=Usage() as usage):
            return part if (charged := price.charged(usage)) is usage else replace(part, usage=charged)
        case _:
            return part


def _problems_of_fallback(models: Sequence[Model], on: Collection[str]) -> Iterator[Problem]:
    if not models:
        yield Problem("NO_MODELS", "It has no models.", "Give it at least one, as in FallbackModel(first, second).")
    kinds: tuple[str, ...] = get_args(ProviderErrorKind)
    if unknown := sorted({*on} - {*kinds}):
        hint = f"Choose from: {', '.join(kinds)}."
        yield Problem(
            "UNKNOWN_ERROR_KIND", f"on names {', '.join(map(repr, unknown))}, which is not a kind of error.", hint
        )


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
        web_search=_dearest_call([price.web_search for price in prices]),
        code_execution=_dearest_call([price.code_execution for price in prices]),
        file_search=_dearest_call([price.file_search for price in prices]),
    )


def _dearest_call(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


@explain_arguments
class SwappableModel(WrapperModel):
    """A model that can be exchanged while runs go on: a swap takes effect with the next call, in running runs, too.

    While there is no model, every call fails, and a run ends as `MODEL_UNAVAILABLE`.
    """

    def __init__(self, model: Model | None = None) -> None:
        super().__init__(_NoModel() if model is None else model)

    def __repr__(self) -> str:
        return f"<SwappableModel {self.model!r}>"

    @property
    def model(self) -> Model | None:
        """The model of the next call."""
        return None if isinstance(self._inner, _NoModel) else self._inner

    def swap(self, model: Model | None) -> Model | None:
        """Use `model` from the next call on, and return the model before it. Answers that have begun are not
        disturbed."""
        before, self._inner = self.model, _NoModel() if model is None else model
        return before

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the current model; see `Model.stream`."""
        return _announce_model(self._inner, request)


@dataclass(frozen=True, slots=True)
class _NoModel:
    """The placeholder in a `SwappableModel` without a model: it refuses to be asked, and says what to do."""

    provider: str = "swappable"
    name: str = "none"

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        raise ModelUnavailable(
            "it holds no model",
            model="swappable",
            hint="Give it one: SwappableModel(model), or swap(model) before the call.",
        ).in_stream()


@asynccontextmanager
async def _announce_model(model: Model, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
    """Ask `model`, and let an `Answered` come before its answer."""
    async with model.stream(request) as parts:
        yield _Through(parts, Answered(model.provider, model.name))


@dataclass(slots=True, repr=False, eq=False)
class _Through:
    """The parts of an answer on their way to whoever asked."""

    _parts: AsyncIterator[Part]
    _before: Answered | None = None
    """Comes before them, unless they bring one themselves."""
    _on_part: Callable[[Part], None] | None = None
    """Is told each of them."""
    _held: Part | None = field(default=None, init=False)

    def __aiter__(self) -> _Through:
        return self

    def unfinished_text(self) -> str:
        return read_unfinished_text(self._parts)

    async def __anext__(self) -> Part:
        if self._held is not None:
            part, self._held = self._held, None
            return part
        part = await anext(self._parts)
        if self._on_part is not None:
            self._on_part(part)
        before, self._before = self._before, None
        if before is None or isinstance(part, Answered | Restarted | Retried):  # a model around models knows better
            return part
        self._held = part
        return before


_MINUTE_S: Final = 60.0
_MARGIN_S: Final = 0.001  # waits end a little late rather than a little early, whatever the rounding
_ESTIMATE: Final = "rate_limit/tokens"  # in `wire`: a message's or prefix's tokens, estimated once


@explain_arguments
class RateLimitedModel(WrapperModel):
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
        max_concurrency: int | None = None,
        expected_output_tokens: int | None = None,
        count_cache_reads: bool = True,
    ) -> None:
        """None means no limit. `count_cache_reads=False` is for providers whose limit does not count tokens from a
        cache.

        Raises:
            DefinitionError: a limit is below 1.
        """
        super().__init__(model)
        self.model = model
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.max_concurrency = max_concurrency
        self.expected_output_tokens = expected_output_tokens
        self.count_cache_reads = count_cache_reads
        self._window = _Window(requests_per_minute, tokens_per_minute, max_concurrency)
        limits = ("requests_per_minute", "tokens_per_minute", "max_concurrency", "expected_output_tokens")
        raise_problems(
            "RateLimitedModel", field_problems("INVALID_RATE", "", self, dict.fromkeys(limits, COUNT_OR_NONE))
        )

    def __repr__(self) -> str:
        return f"<RateLimitedModel {self.model!r}>"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Wait for the turn, then ask the model; see `Model.stream`."""
        held = self._estimated_tokens(request)
        await self._window.enter(held)
        seen, used, parts = Collector(), None, None
        try:
            async with self.model.stream(request) as parts:
                parts = parts if self.tokens_per_minute is None else _Through(parts, _on_part=seen.add)
                yield parts
        except ProviderError as error:
            used = seen.used_before(error)
            raise
        finally:
            used = believable_usage(used or seen.sum_usage(), request, lambda: seen.words + read_unfinished_text(parts))
            self._window.leave(held, self._count_tokens(used, held))

    def _estimated_tokens(self, request: Request) -> int:
        if self.tokens_per_minute is None:
            return 0
        longest = request.max_tokens or request.settings.max_tokens or self.facts.max_output_tokens
        answer = longest or UNKNOWN_MAX_TOKENS
        if self.expected_output_tokens is not None:
            answer = min(answer, self.expected_output_tokens)
        input_tokens = _tokens_of(request.prefix) + sum(map(_tokens_of, request.messages))
        return min(self.tokens_per_minute, input_tokens + answer)

    def _count_tokens(self, usage: Usage, held: int) -> int:
        """Return how many tokens count afterwards: what was reported, and all that was held where that is not exact."""
        cached = 0 if self.count_cache_reads else usage.cache_read_tokens or 0
        tokens = usage.total_tokens - cached
        return tokens if usage.exact else max(tokens, held)


@dataclass(slots=True, repr=False, eq=False)
class _Window:
    """The calls under way and those of the last minute."""

    requests: int | None
    tokens: int | None
    concurrency: int | None
    _loop: asyncio.AbstractEventLoop | None = None
    """To whom the next two belong."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one who goes next. Locks are fair."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call has ended."""
    _starts: deque[float] = field(default_factory=deque[float])
    """When the calls of the last minute began."""
    _ended: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    """When those that have ended did so, and with how many tokens."""
    _tokens: int = 0
    """All that count now: of the calls under way, and of those in `_ended`."""
    _in_flight: int = 0

    async def enter(self, tokens: int) -> None:
        """Wait until one more call of so many tokens is allowed, and count it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._begin_in(loop)
        async with self._turn:
            while (wait_until_s := self._next_chance_s(tokens, loop.time())) is not None:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if wait_until_s == float("inf") else wait_until_s):
                        await self._changed.wait()
            self._in_flight += 1
            self._tokens += tokens
            if self.requests is not None:
                self._starts.append(loop.time())

    def leave(self, held: int, used: int) -> None:
        """Count a call that has ended with what it used, instead of what was held for it."""
        self._in_flight -= 1
        self._tokens += used - held
        if self.tokens is not None:
            self._ended.append((asyncio.get_running_loop().time(), used))
        self._changed.set()

    def _next_chance_s(self, tokens: int, now_s: float) -> float | None:
        """Return the moment to look again, on the loop's clock: None for at once, infinity for when a call has
        ended."""
        while self._starts and self._starts[0] < now_s - _MINUTE_S:
            self._starts.popleft()
        while self._ended and self._ended[0][0] < now_s - _MINUTE_S:
            self._tokens -= self._ended.popleft()[1]
        if self.concurrency is not None and self._in_flight >= self.concurrency:
            return float("inf")
        if self.requests is not None and len(self._starts) >= self.requests:
            return self._starts[0] + _MINUTE_S + _MARGIN_S
        if self.tokens is not None and self._tokens and self._tokens + tokens > self.tokens:
            return self._ended[0][0] + _MINUTE_S + _MARGIN_S if self._ended else float("inf")
        return None

    def _begin_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._turn, self._changed = loop, asyncio.Lock(), asyncio.Event()
        now_s = loop.time()  # the clocks of loops agree; one that is behind must not make anyone wait for longer
        self._starts = deque(min(start_s, now_s) for start_s in self._starts)
        self._ended = deque((min(end_s, now_s), tokens) for end_s, tokens in self._ended)


def _tokens_of(sent: Message | Prefix) -> int:
    tokens = sent.wire.get(_ESTIMATE)
    if tokens is None:
        estimate = estimate_message(sent) if isinstance(sent, Message) else estimate_prefix(sent)
        tokens = sent.wire[_ESTIMATE] = b"%d" % estimate
    return int(tokens)


if TYPE_CHECKING:
    _fallback: WholeModel = FallbackModel()
    _swappable: WholeModel = SwappableModel()
    _limited: type[Model] = RateLimitedModel

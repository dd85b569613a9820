"""Models around models: one that takes over when another fails, and one that can be exchanged while runs go on.

Each is an ordinary model, so they nest in any order, with `RateLimited` of `rate_limit.py` among them. What an answer
used is charged at the price of the model that gave it. Imports `model`, `errors` and `types`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, get_args

from journeyman.errors import DefinitionError, ModelUnavailable, Problem, ProviderError, ProviderErrorKind
from journeyman.model import (
    Answered,
    Collector,
    Model,
    Part,
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
from journeyman.types import Price, Usage

if TYPE_CHECKING:
    from journeyman.model import Opens, Priced

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

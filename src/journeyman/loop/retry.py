"""One logical model call: as many requests as it takes, or as many as are allowed.

Only failures that may pass are repeated: a rate limit, an overload, a network fault, a cut or silent stream. The wait
doubles from one second to a minute, with jitter; a wait that the provider asks for is obeyed instead. Nothing was done
with a response that broke off, so a repetition is always safe. The runs of a batch pause together: see `RatePause`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from journeyman.cancellation import is_failure
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import BudgetRefused, ProviderError
from journeyman.loop.state import run_context
from journeyman.model import (
    Collector,
    Model,
    Part,
    Request,
    RequestUnderWay,
    Response,
    Restarted,
    Retried,
    Tap,
    current_request,
    facts_of,
    read_unfinished_text,
)
from journeyman.tools.redaction import words_without_secrets
from journeyman.types import Price, Usage
from journeyman.window import believable_usage

PASSING: Final = frozenset({"rate_limited", "overloaded", "timeout", "stream_idle", "stream_cut", "network"})
"""The kinds of `ProviderError` that are worth another request."""

LONGEST_WAIT_S: Final = 60.0
"""The longest wait by back-off. A provider that asks for more is not asked again. Providers count requests and
tokens by the minute: whoever is refused for longer has used up something else, and a run should end rather than
sleep."""


class _Reserve(Protocol):
    """A function that pays for the next request, and returns it."""

    async def __call__(self, *, waits: bool = True) -> Request:
        """`waits`: what others have reserved may be waited for."""
        ...


async def respond(
    model: Model,
    request: Request | _Reserve,
    *,
    retries: int,
    spent: Callable[[Usage], None],
    on_part: Callable[[Part], None] | None = None,
    on_cut: Callable[[str], None] | None = None,
    asked: Callable[[Model, Request], Tap] | None = None,
    jitter: Callable[[], float] = random.random,
) -> Response:
    """Ask `model` until it answers, at most `retries` times more than once.

    `request` may be a function that pays for the next request and returns it; that is called once `spent` was told what
    the one before has used. `spent` is told that of each request, also of one that failed or was cancelled, at the
    price that the model had when it was asked; `Response.usage` is the last request's. `on_part` sees every part, with
    `Retried` before and `Restarted` after each wait. `on_cut` is told the text of an answer that broke off. `asked`
    returns what hears one request.

    Raises:
        ProviderError: of the last request.
        BudgetRefused: the next request is not paid for.
    """
    requests, pause = retries + 1, run_context.get().pause
    for number in range(1, requests + 1):
        if pause is not None:
            await pause.over(model.provider)
        # For each request and not once: a repetition must not use up a multiple of what was reserved for the call.
        paid = request if isinstance(request, Request) else await request()
        reserve = None if isinstance(request, Request) else request
        under_way = RequestUnderWay()
        around = current_request.set(under_way)
        try:
            tap = under_way.tap = None if asked is None else asked(model, paid)
            asking = _ask_once(model, paid, under_way, spent=spent, on_part=on_part, on_cut=on_cut, reserve=reserve)
            return await (asking if tap is None else _tell_tap(tap, asking))
        except ProviderError as error:
            # Before it is known whether this run asks again: the others of the batch have to pause even when this one
            # gives up.
            wait_s = _wait_before_next(error, number, jitter)
            if pause is not None and error.kind == "rate_limited":
                pause.begin(model.provider, error.retry_after_s or wait_s or 0.0)
            if number == requests or wait_s is None:
                raise
            if on_part is not None:
                on_part(Retried(number, requests, wait_s, error))
            await asyncio.sleep(wait_s)
            if on_part is not None:
                on_part(Restarted())
                await asyncio.sleep(0)  # who hears of it may stop the run
        finally:
            current_request.reset(around)
    raise AssertionError("unreachable: the last request returns or raises")


async def _tell_tap(tap: Tap, asking: Awaitable[Response]) -> Response:
    """Make a request, and tell its tap how it ended."""
    try:
        response = await asking
    except BaseException as error:
        tap.note_failure(error)
        raise
    tap.note_response(response)
    return response


@lazy_dataclass()
class _Asking:
    """One request under way, or one after the other of those that a model around models makes."""

    request: Request
    under_way: RequestUnderWay
    price: Price | None
    spent: Callable[[Usage], None]
    reserve: _Reserve | None
    collector: Collector
    is_asked: bool = True
    """False while the next request is not paid for."""

    def spend(self, usage: Usage, unread: str = "") -> Usage:
        """Count what the request used."""
        usage = believable_usage(usage, self.request, lambda: self.collector.words + unread)
        usage = usage if self.price is None or not usage.requests else self.price.charged(usage)
        self.spent(usage)
        return usage

    async def begin_next(self, used: Usage | None) -> None:
        """Begin another request, which has to be paid for, too."""
        self.spend(self.collector.sum_usage() if used is None else used)
        self.collector, self.is_asked = Collector(self.request.max_tokens or self.request.settings.max_tokens), False
        if self.reserve is not None:
            # Who waits inside of a model may hold what others need to go on: a place of a `RateLimitedModel`.
            self.under_way.paid_max_tokens = (await self.reserve(waits=False)).max_tokens
        self.is_asked = True


async def _ask_once(
    model: Model,
    request: Request,
    under_way: RequestUnderWay,
    *,
    spent: Callable[[Usage], None],
    on_part: Callable[[Part], None] | None,
    on_cut: Callable[[str], None] | None,
    reserve: _Reserve | None,
) -> Response:
    collector = Collector(request.max_tokens or request.settings.max_tokens)
    asking, parts = _Asking(request, under_way, facts_of(model).price, spent, reserve, collector), None
    try:
        async with model.stream(request) as parts:
            async for part in parts:
                is_restart = type(part) is Restarted
                if is_restart:
                    await asking.begin_next(part.usage)
                else:
                    asking.collector.add(part)
                if on_part is not None:
                    on_part(part)
                if is_restart:
                    await asyncio.sleep(0)  # who hears of it may stop the run
        response = asking.collector.response()
    except BaseException as error:
        # A cancelled request has used something, too, and somebody pays for that.
        collector, unread = asking.collector, read_unfinished_text(parts)
        if on_cut is not None and (said := "\n\n".join(filter(None, (collector.text, unread)))):
            on_cut(said)
        if asking.is_asked:
            asking.spend(collector.used_before(error), unread)
        if isinstance(error, ProviderError | BudgetRefused) or not is_failure(error):
            raise
        # A user's model may raise anything, and its words may quote the request with its key.
        words = f"The model {model.provider}:{model.name} raised {words_without_secrets(error)}."
        raise ProviderError(words, kind="unknown") from error
    response.usage = asking.spend(response.usage)
    return response


def _wait_before_next(error: ProviderError, number: int, jitter: Callable[[], float]) -> float | None:
    """Return how many seconds to wait after request `number` failed; None when another would be pointless."""
    if error.kind not in PASSING:
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= LONGEST_WAIT_S else None
    # Half of the wait is certain and half is chance: clients that were refused together must not come back together.
    return min(LONGEST_WAIT_S, 2.0 ** (number - 1)) * (0.5 + jitter() / 2)

"""One logical model call: as many requests as it takes, or as many as are allowed.

Only failures that may pass are repeated: a rate limit, an overload, a network fault, a cut or silent stream. The wait
doubles from one second to a minute, with jitter; a wait that the provider asks for is obeyed instead. Nothing was done
with a response that broke off, so a repetition is always safe. The runs of a batch pause together: see `RatePause`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

from journeyman.cancel import is_failure
from journeyman.errors import ProviderError
from journeyman.model import (
    Collector,
    Model,
    Part,
    Request,
    Response,
    Restarted,
    Retried,
    Tap,
    current_tap,
    price_of,
    unfinished,
)
from journeyman.tools.redaction import words_without_secrets
from journeyman.types import Price, Usage

PASSING: Final = frozenset({"rate_limited", "overloaded", "timeout", "stream_idle", "stream_cut", "network"})
"""The kinds of `ProviderError` that are worth another request."""

LONGEST_WAIT_S: Final = 60.0
"""The longest wait by back-off. A provider that asks for more is not asked again."""


LONGEST_PAUSE_S: Final = 3_600.0
"""The longest that the runs of a batch pause together, whatever a provider asks for."""


class RatePause:
    """What the runs of a batch share: when a provider limits the rate of one, none of them asks it for a while."""

    def __init__(self, told: Callable[[str, float], object]) -> None:
        """`told` is called with the provider and the seconds of each pause, when it begins or becomes longer."""
        self._told = told
        self._ends: dict[str, float] = {}
        """When the pause of each provider ends, on the event loop's clock."""

    def begin(self, provider: str, seconds: float) -> None:
        """Let nobody ask the provider for so many seconds; a longer pause that goes on stays."""
        ends = asyncio.get_running_loop().time() + min(seconds, LONGEST_PAUSE_S)
        if seconds > 0 and ends > self._ends.get(provider, 0.0):
            self._ends[provider] = ends
            self._told(provider, min(seconds, LONGEST_PAUSE_S))

    async def over(self, provider: str) -> None:
        """Wait until the provider may be asked."""
        left_s = self._ends.get(provider, 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)
            await self.over(provider)  # it may be longer by now


rate_pause: ContextVar[RatePause | None] = ContextVar("journeyman_rate_pause", default=None)
"""What the runs of the batch share that goes on here; None outside a batch."""


async def respond(
    model: Model,
    request: Request,
    *,
    retries: int,
    spent: Callable[[Usage], None],
    on_part: Callable[[Part], None] | None = None,
    on_cut: Callable[[str], None] | None = None,
    asked: Callable[[Model, Request], Tap] | None = None,
    jitter: Callable[[], float] = random.random,
) -> Response:
    """Ask `model` until it answers, at most `retries` times more than once.

    `spent` is told what each request used, also one that failed or was cancelled, at the price that the model had when
    it was asked; `Response.usage` is the last request's. `on_part` sees every part, with `Retried` before and
    `Restarted` after each wait. `on_cut` is told the text of an answer that broke off. `asked`
    returns what hears one request.

    Raises:
        ProviderError: of the last request.
    """
    requests, pause = retries + 1, rate_pause.get()
    for number in range(1, requests + 1):
        if pause is not None:
            await pause.over(model.provider)
        try:
            if asked is None:
                return await _ask_once(model, request, spent=spent, on_part=on_part, on_cut=on_cut)
            return await _tapped(
                asked(model, request), _ask_once(model, request, spent=spent, on_part=on_part, on_cut=on_cut)
            )
        except ProviderError as error:
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
    raise AssertionError("unreachable: the last request returns or raises")


async def _tapped(tap: Tap, asking: Awaitable[Response]) -> Response:
    """Let a request be heard."""
    token = current_tap.set(tap)
    try:
        response = await asking
    except BaseException as error:
        tap.failed(error)
        raise
    finally:
        current_tap.reset(token)
    tap.finished(response)
    return response


async def _ask_once(
    model: Model,
    request: Request,
    *,
    spent: Callable[[Usage], None],
    on_part: Callable[[Part], None] | None,
    on_cut: Callable[[str], None] | None,
) -> Response:
    collector, price = Collector(request.max_tokens or request.settings.max_tokens), price_of(model)
    parts: object = None
    try:
        async with model.stream(request) as parts:
            async for part in parts:
                collector.add(part)
                if on_part is not None:
                    on_part(part)
        response = collector.response()
    except ProviderError as error:
        _tell_cut(collector.text, parts, on_cut)
        spent(_charged(collector.used_before(error), price))
        raise
    except BaseException as error:
        _tell_cut(collector.text, parts, on_cut)
        spent(_charged(collector.used(), price))
        if not is_failure(error):
            raise
        words = f"The model {model.provider}:{model.name} raised {words_without_secrets(error)}."
        raise ProviderError(words, kind="unknown") from error
    if price is not None:
        response.usage = _charged(response.usage, price)
    spent(response.usage)
    return response


def _tell_cut(text: str, parts: object, on_cut: Callable[[str], None] | None) -> None:
    """Tell what a model had said when its answer broke off, if it had said anything."""
    if on_cut is not None and (said := "\n\n".join([each for each in (text, unfinished(parts)) if each])):
        on_cut(said)


def _charged(usage: Usage, price: Price | None) -> Usage:
    return usage if price is None or not usage.requests else price.charged(usage)


def _wait_before_next(error: ProviderError, number: int, jitter: Callable[[], float]) -> float | None:
    """Return how many seconds to wait after request `number` failed; None when another would be pointless."""
    if error.kind not in PASSING:
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= LONGEST_WAIT_S else None
    return min(LONGEST_WAIT_S, 2.0 ** (number - 1)) * (0.5 + jitter() / 2)

"""Asking the model once: within the budget, with retries, from the journal if it already answered.

What went wrong becomes an `Ending`; what was used is counted, whatever happens. Imports `conversation`,
`fitting`, `paying` and the parts.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace

from journeyman.budget import Spent
from journeyman.contexts import (
    ApiErrorContext,
    BudgetContext,
    ModelUnavailableContext,
    OverflowContext,
    RateLimitContext,
)
from journeyman.endings import Context, Ending
from journeyman.errors import BudgetRefused, ModelUnavailable, ProviderError
from journeyman.kept_view import KeptView
from journeyman.loop.deltas import shower
from journeyman.loop.paying import Count, paid
from journeyman.loop.record import Conversation
from journeyman.loop.request import fit, room_for_answer, shrink
from journeyman.loop.retry import respond
from journeyman.model import Request, Response, max_output_tokens_of
from journeyman.types import NOTHING_USED, Message


async def ask(talk: Conversation) -> Response | Ending:
    """Make one logical model call. Return its response, or why there is none."""
    talk.doing = "calling the model"
    talk.call_usage = NOTHING_USED
    over = _over_policy(talk) if talk.policies or talk.above is not None else None
    if over is not None:
        return Ending(over, "iteration")
    try:
        response = await _ask(talk, talk.max_tokens, key="model")
        longer = _longer_answer(talk, response)
        return response if longer is None else await _ask(talk, longer, key="model/extended")
    except BudgetRefused as refused:
        return Ending(_budget_context(talk, refused), "iteration", refused)
    except ProviderError as error:
        return Ending(_provider_context(talk, error), "iteration", error)


def _longer_answer(talk: Conversation, response: Response) -> int | None:
    """Return the longer answer to ask for once more, if this one was cut and the limits say so."""
    longer = talk.limits.extended_max_tokens
    if longer is None or response.stop_reason != "max_tokens":
        return None
    longer = min(longer, max_output_tokens_of(talk.model) or longer)
    return longer if longer > talk.max_tokens else None


def _ask(talk: Conversation, max_tokens: int, *, key: str) -> Coroutine[object, object, Response]:
    if talk.kept is None:
        return _ask_paid(talk, talk.history.messages, max_tokens, key=key)
    return _ask_fitted(talk, talk.kept, max_tokens, key=key)


async def _ask_fitted(talk: Conversation, kept: KeptView, max_tokens: int, *, key: str) -> Response:
    """Ask with a view that fits the window; once more with a smaller one, if the provider says it does not."""
    try:
        messages = await fit(talk)
        return await _ask_paid(talk, messages, room_for_answer(talk, max_tokens), key=key)
    except ProviderError as error:
        if error.kind != "context_overflow" or not await shrink(talk):
            raise
    return await _ask_paid(talk, kept.messages, room_for_answer(talk, max_tokens), key=f"{key}/smaller")


def _ask_paid(
    talk: Conversation, messages: Sequence[Message], max_tokens: int, *, key: str
) -> Coroutine[object, object, Response]:
    watched = talk.watch is not None and talk.watch.is_heard
    settings = talk.settings if max_tokens <= talk.max_tokens else replace(talk.settings, max_tokens=max_tokens)
    request = Request(
        prefix=talk.prefix,
        messages=messages if talk.convert is None else talk.convert(messages),
        settings=settings,
        max_tokens=max_tokens,
        deltas=watched,
    )
    if talk.journal is None and not talk.budget.limits_spending:
        return _send(talk, request, talk.spend)

    def send(request: Request, count: Count) -> Coroutine[object, object, Response]:
        return _send(talk, request, count)

    return paid(talk, talk.model, request, send, count=talk.spend, input_tokens=talk.estimated_tokens, key=key)


def _send(talk: Conversation, request: Request, count: Count) -> Coroutine[object, object, Response]:
    talk.asked_max_tokens = request.max_tokens or 0
    on_part = shower(talk) if request.deltas else None
    return respond(talk.model, request, retries=talk.retries, spent=count, on_part=on_part)


# -- what went wrong --------------------------------------------------------------------------------------------------


def _over_policy(talk: Conversation) -> Context | None:
    """Ask the policies of this run, and those of the runs above: what they limit is spent here, too."""
    level: Conversation | None = talk
    while level is not None:
        for policy in level.policies:
            exceeded = policy.check(_spent(level, level.iterations - (level is talk)))
            if exceeded is not None:
                refused = BudgetRefused(policy.name, limit=exceeded.limit, used=exceeded.used, scope="run")
                return _budget_context(talk, refused)
        level = level.above
    return None


def _spent(talk: Conversation, iterations: int) -> Spent:
    return Spent(
        usage=talk.ledger.usage,
        iterations=iterations,
        calls=talk.ledger.calls,
        seconds=talk.now() - talk.started_s,
        attempt=talk.attempt,
    )


def _budget_context(talk: Conversation, refused: BudgetRefused) -> BudgetContext:
    return BudgetContext(
        policy=refused.policy,
        limit=refused.limit,
        used=refused.used,
        scope=refused.scope,
        attempt=talk.attempt,
        iteration=talk.iteration,
    )


def _provider_context(talk: Conversation, error: ProviderError) -> Context:
    if isinstance(error.__cause__, ModelUnavailable):
        return ModelUnavailableContext.of(error.__cause__)
    if error.kind == "context_overflow":
        return OverflowContext(message=str(error), attempt=talk.attempt, iteration=talk.iteration)
    if error.kind == "rate_limited":
        return RateLimitContext(
            message=str(error),
            status=error.status,
            request_id=error.request_id,
            retry_after_s=error.retry_after_s,
            attempt=talk.attempt,
            iteration=talk.iteration,
        )
    return ApiErrorContext(
        kind=error.kind,
        message=str(error),
        status=error.status,
        type=error.type,
        request_id=error.request_id,
        retry_after_s=error.retry_after_s,
        attempt=talk.attempt,
        iteration=talk.iteration,
    )

"""Asking the model once: within the budget, with retries, from the journal if it already answered.

What went wrong becomes an `Ending`; what was used is counted, whatever happens. Imports `conversation` and the parts.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter

from journeyman.budget import Spent
from journeyman.contexts import (
    ApiErrorContext,
    BudgetContext,
    ModelUnavailableContext,
    OverflowContext,
    RateLimitContext,
)
from journeyman.conversation import Conversation
from journeyman.deltas import shower
from journeyman.endings import Context, Ending
from journeyman.errors import BudgetRefused, ModelUnavailable, ProviderError
from journeyman.history import encodable
from journeyman.model import Request, Response, context_window_of, max_output_tokens_of, price_of, unpriced
from journeyman.retry import respond
from journeyman.types import NOTHING_USED, Message, Usage
from journeyman.window import fitted


async def ask(talk: Conversation) -> Response | Ending:
    """Make one logical model call. Return its response, or why there is none."""
    talk.doing = "calling the model"
    if talk.scope.is_due():
        await talk.scope.checkpoint()
    talk.call_usage = NOTHING_USED
    over = _over_policy(talk) if talk.policies else None
    if over is not None:
        return Ending(over, "iteration")
    try:
        response = await _ask_fitted(talk, talk.max_tokens, key="model")
        longer = _longer_answer(talk, response)
        return response if longer is None else await _ask_fitted(talk, longer, key="model/extended")
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


async def _ask_fitted(talk: Conversation, max_tokens: int, *, key: str) -> Response:
    """Ask with a view that fits the window; once more with a smaller one, if the provider says it does not."""
    if not talk.strategies and talk.journal is None:
        return await _ask_paid(talk, _converted(talk, talk.history.messages), max_tokens)
    if not talk.strategies:
        return await _ask_recorded(talk, _converted(talk, talk.history.messages), max_tokens, key=key)
    excess = _excess_tokens(talk, max_tokens)
    try:
        return await _ask_recorded(talk, await _view(talk, excess), max_tokens, key=key)
    except ProviderError as error:
        if error.kind != "context_overflow":
            raise
    smaller = max(excess, 0) + talk.estimated_tokens() // 4
    return await _ask_recorded(talk, await _view(talk, smaller), max_tokens, key=f"{key}/smaller")


async def _view(talk: Conversation, excess: int) -> Sequence[Message]:
    messages: Sequence[Message] = talk.history.messages
    if excess > 0:
        messages = await fitted(talk.strategies, messages, excess_tokens=excess)
    return _converted(talk, messages)


def _converted(talk: Conversation, messages: Sequence[Message]) -> Sequence[Message]:
    return messages if talk.convert is None else talk.convert(messages)


def _excess_tokens(talk: Conversation, max_tokens: int) -> int:
    window = context_window_of(talk.model)
    return 0 if window is None else talk.estimated_tokens() + max_tokens - window


async def _ask_recorded(talk: Conversation, messages: Sequence[Message], max_tokens: int, *, key: str) -> Response:
    """Ask, or take the answer from the journal."""
    if talk.journal is None:
        return await _ask_paid(talk, messages, max_tokens)
    asked = False

    async def work() -> _Answer:
        nonlocal asked
        asked = True
        response = await _ask_paid(talk, messages, max_tokens)
        content = tuple(encodable(block) for block in response.content)
        return _Answer(replace(response, content=content), talk.call_usage)

    where = f"attempt/{talk.attempt}/iteration/{talk.iteration}/{key}"
    answer = await talk.journal.step(where, work, codec=_AnswerCodec(), effect="idempotent")
    if not asked:
        talk.spend(answer.spent)
    return answer.response


async def _ask_paid(talk: Conversation, messages: Sequence[Message], max_tokens: int) -> Response:
    """Reserve what the call may use, make it, and settle what it used."""
    watched = talk.watch is not None and bool(talk.watch.listeners)
    settings = talk.settings if max_tokens <= talk.max_tokens else replace(talk.settings, max_tokens=max_tokens)
    request = Request(prefix=talk.prefix, messages=messages, settings=settings, max_tokens=max_tokens, deltas=watched)
    if not talk.budget.limits_spending:
        return await _respond(talk, request)
    price = price_of(talk.model)
    if price is None and talk.budget.limits_cost:
        raise unpriced(talk.model).in_stream()
    grant = await talk.budget.reserve(input_tokens=talk.estimated_tokens(), max_tokens=max_tokens, price=price)
    before = talk.call_usage
    talk.call_usage = NOTHING_USED
    try:
        return await _respond(talk, replace(request, max_tokens=grant.max_tokens))
    finally:
        talk.budget.settle(grant, talk.call_usage)
        talk.call_usage = before + talk.call_usage


def _respond(talk: Conversation, request: Request) -> Coroutine[object, object, Response]:
    talk.asked_max_tokens = request.max_tokens or 0
    on_part = shower(talk) if request.deltas else None
    return respond(
        talk.model,
        request,
        retries=talk.retries,
        spent=talk.spend,
        on_part=on_part,
    )


# -- what went wrong --------------------------------------------------------------------------------------------------


def _over_policy(talk: Conversation) -> Context | None:
    spent = Spent(
        usage=talk.ledger.usage,
        iterations=talk.iterations - 1,
        calls=talk.ledger.calls,
        seconds=talk.now() - talk.started_s,
        attempt=talk.attempt,
    )
    for policy in talk.policies:
        exceeded = policy.check(spent)
        if exceeded is not None:
            refused = BudgetRefused(policy.name, limit=exceeded.limit, used=exceeded.used, scope="run")
            return _budget_context(talk, refused)
    return None


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


# -- how a journal keeps an answer ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    response: Response
    spent: Usage
    """By all requests of the call, failed ones included."""


class _AnswerCodec:
    def encode(self, value: _Answer) -> bytes:
        return _answers().dump_json(value, exclude_none=True)

    def decode(self, data: bytes) -> _Answer:
        return _answers().validate_json(data)


@cache
def _answers() -> TypeAdapter[_Answer]:
    return TypeAdapter(_Answer)

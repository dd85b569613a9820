"""One model call that is paid for and remembered: within the budget, and from the journal if it was made before.

Imports `conversation` and the parts. Read `asking.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from pydantic import TypeAdapter

from journeyman.history import encodable
from journeyman.loop.record import Conversation
from journeyman.model import Model, Request, Response, price_of, unpriced
from journeyman.types import Usage

Count: TypeAlias = Callable[[Usage], None]
Send: TypeAlias = Callable[[Request, Count], Coroutine[object, object, Response]]
"""Makes the call, and tells what each of its requests used."""


async def paid(
    talk: Conversation,
    model: Model,
    request: Request,
    send: Send,
    *,
    count: Count,
    input_tokens: Callable[[], int],
    key: str,
) -> Response:
    """Make a call within the run's budget, or take its answer from the journal, where its place is `key`.

    Raises:
        ProviderError: of the last request.
        BudgetRefused: too little is left.
    """
    if talk.journal is None:
        return await _settled(talk, model, request, send, count=count, input_tokens=input_tokens)
    used: list[Usage] = []

    def also_count(usage: Usage) -> None:
        used.append(usage)
        count(usage)

    async def work() -> _Answer:
        response = await _settled(talk, model, request, send, count=also_count, input_tokens=input_tokens)
        content = tuple(encodable(block) for block in response.content)
        return _Answer(replace(response, content=content), Usage.total(used))

    where = f"attempt/{talk.attempt}/iteration/{talk.iteration}/{key}"
    answer = await talk.journal.step(where, work, codec=_AnswerCodec(), effect="idempotent")
    if not used:
        count(answer.spent)
    return answer.response


async def _settled(
    talk: Conversation,
    model: Model,
    request: Request,
    send: Send,
    *,
    count: Count,
    input_tokens: Callable[[], int],
) -> Response:
    """Reserve what the call may use, make it, and settle what it used."""
    if not talk.budget.limits_spending:
        return await send(request, count)
    price = price_of(model)
    if price is None and talk.budget.limits_cost:
        raise unpriced(model).in_stream()
    longest = request.max_tokens or talk.max_tokens
    grant = await talk.budget.reserve(input_tokens=input_tokens(), max_tokens=longest, price=price)
    used: list[Usage] = []

    def also_count(usage: Usage) -> None:
        used.append(usage)
        count(usage)

    try:
        return await send(replace(request, max_tokens=grant.max_tokens), also_count)
    finally:
        talk.budget.settle(grant, Usage.total(used))


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

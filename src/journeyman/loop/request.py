"""The view of a conversation that a request sends: kept as it is while it fits, and made smaller when it does not.

The strategies are asked one after the other, at the threshold or when the provider says that the window is full. What
they do wrong costs nothing but their saving: the run goes on with what it has. `compaction.py` has ready strategies.

One model call that is paid for and remembered: within the budget, and from the journal if it was made before.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter

from journeyman.cancel import is_failure
from journeyman.errors import name_and_words
from journeyman.events import CompactionStep, ContextCompacted
from journeyman.history import History, encodable
from journeyman.loop.record import Conversation
from journeyman.loop.retry import respond
from journeyman.model import Model, Prefix, Request, Response, price_of, unpriced
from journeyman.types import NOTHING_USED, Message, Usage
from journeyman.window import (
    AnyStrategy,
    Compaction,
    Informed,
    KeptView,
    Situation,
    View,
    estimate_message,
    estimate_prefix,
    fault_of_view,
    without_stale_thinking,
)

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


_SHORTEST_ANSWER_TOKENS: Final = 1_024
"""However full the window is, an answer of this length is asked for."""
_UNKNOWN_THRESHOLD_TOKENS: Final = 64_000
"""What strategies are told to be the threshold where the window is not known."""

Reason = Literal["threshold", "overflow", "breaker"]


def compaction_of(
    given: Sequence[AnyStrategy] | Compaction | Callable[[Model], Sequence[AnyStrategy] | Compaction], model: Model
) -> Compaction | None:
    """Return what an agent's `compaction` comes to for a run with `model`; None if there are no strategies."""
    made = given(model) if callable(given) else given
    compaction = made if isinstance(made, Compaction) else Compaction(made or ())  # None means nothing
    return compaction if compaction.strategies else None


def kept_view_of(history: History, prefix: Prefix) -> KeptView:
    """Return what is sent of `history`: as the run before left it, if there was one."""
    kept = history.kept
    if not isinstance(kept, KeptView):
        kept = history.kept = KeptView()
    kept.begin_run(estimate_prefix(prefix))
    return kept


async def fit(talk: Conversation) -> Sequence[Message]:
    """Return what to send: what was sent before and what came since or, if that is too long, a shorter view."""
    kept, compaction = _in_use(talk)
    kept.follow(talk.history.messages)
    threshold = _threshold(talk, kept, compaction)
    if threshold is not None and kept.tokens > threshold:
        await _compact(talk, "breaker" if kept.skips() else "threshold", kept.tokens - threshold * 4 // 5)
    return kept.messages


async def shrink(talk: Conversation) -> bool:
    """Make the view smaller because the provider said that it is too long. Return whether it is."""
    kept, compaction = _in_use(talk)
    kept.was_too_long()
    threshold = _threshold(talk, kept, compaction) or kept.tokens
    return await _compact(talk, "overflow", max(kept.tokens - threshold * 4 // 5, kept.tokens // 2))


def room_for_answer(talk: Conversation, max_tokens: int) -> int:
    """Return how long the answer may be, at most `max_tokens`, so that it fits the window together with the view."""
    kept, compaction = _in_use(talk)
    window = compaction.window_of(talk.model)
    if window is None:
        return max_tokens
    return min(max_tokens, max(window - window // 50 - kept.tokens, _SHORTEST_ANSWER_TOKENS))


def _in_use(talk: Conversation) -> tuple[KeptView, Compaction]:
    if talk.kept is None or talk.compaction is None:
        raise AssertionError("unreachable: asked only for runs with a compaction")
    return talk.kept, talk.compaction


def _threshold(talk: Conversation, kept: KeptView, compaction: Compaction) -> int | None:
    window = compaction.window_of(talk.model)
    known = None if window is None else compaction.threshold_tokens(window, max_tokens=talk.settings.max_tokens)
    limits = [limit for limit in (known, kept.ceiling_tokens) if limit is not None]
    return min(limits, default=None)


# -- one compaction ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """One compaction under way."""

    talk: Conversation
    kept: KeptView
    messages: Sequence[Message]
    threshold_tokens: int
    steps: list[CompactionStep] = field(default_factory=list[CompactionStep])
    usage: Usage = NOTHING_USED
    n_asked: int = 0

    async def apply(self, place: int, strategy: AnyStrategy, excess_tokens: int) -> int:
        """Let one strategy make its view. Return how many tokens that saves."""
        error, saved = None, 0
        try:
            view = await self._view(place, strategy, excess_tokens)
            error = fault_of_view(self.messages, view.messages)
        except BaseException as raised:
            if not is_failure(raised):
                raise
            error = name_and_words(raised)
        else:
            saved = 0 if error else max(0, _size(self.messages) - _size(view.messages))
            self.messages = view.messages if saved else self.messages
        self.steps.append(CompactionStep(strategy=strategy.name, saved_tokens=saved, error=error))
        return saved

    async def _view(self, place: int, strategy: AnyStrategy, excess_tokens: int) -> View:
        if isinstance(strategy, Informed):
            situation = Situation(
                model=self.talk.model,
                threshold_tokens=self.threshold_tokens,
                memory=self.kept.memories[place],
                ask=self._ask,
            )
            strategy = strategy.informed(situation)
        return await strategy.view(tuple(self.messages), excess_tokens=excess_tokens)

    async def _ask(self, model: Model, request: Request) -> Response:
        """Make a model call for a strategy: the run pays for it."""
        self.n_asked += 1

        def send(request: Request, count: Count) -> Coroutine[object, object, Response]:
            return respond(model, request, retries=self.talk.retries, spent=count)

        def size() -> int:
            return estimate_prefix(request.prefix) + _size(request.messages)

        key = f"compaction/{self.n_asked}"
        return await paid(self.talk, model, request, send, count=self._count, input_tokens=size, key=key)

    def _count(self, usage: Usage) -> None:
        self.talk.ledger.add(usage)
        self.usage += usage


async def _compact(talk: Conversation, reason: Reason, excess_tokens: int) -> bool:
    """Let the strategies save `excess_tokens`. Return whether they have saved any."""
    kept, compaction = _in_use(talk)
    before_tokens, threshold = kept.tokens, _threshold(talk, kept, compaction)
    work = _Work(talk, kept, kept.messages, threshold or _UNKNOWN_THRESHOLD_TOKENS)
    try:
        for place, strategy in enumerate(() if reason == "breaker" else compaction.strategies):
            excess_tokens -= await work.apply(place, strategy, excess_tokens)
            if excess_tokens <= 0:
                break
    finally:
        is_shorter = work.messages is not kept.messages
        if is_shorter:
            kept.rewrite(without_stale_thinking(kept.messages, work.messages))
        elif reason != "breaker":
            kept.failed()
    if talk.watch is not None:
        await talk.watch.tell(_event(talk, work, reason, before_tokens))
    return is_shorter


def _event(talk: Conversation, work: _Work, reason: Reason, before_tokens: int) -> ContextCompacted:
    return ContextCompacted(
        path=talk.path,
        attempt=talk.attempt,
        iteration=talk.iteration,
        reason=reason,
        before_tokens=before_tokens,
        after_tokens=work.kept.tokens,
        steps=tuple(work.steps),
        usage=work.usage,
    )


def _size(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))

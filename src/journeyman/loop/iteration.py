"""One iteration: one model call, and the calls that its response asks for.

The two verbs at the heart of everything: `ask` produces one message, `iterate` produces one message and runs its
calls. A run repeats `iterate` until there is an output; a chat, until there is nothing left to do.

Asking the model once: within the budget, with retries, from the journal if it already answered.

What went wrong becomes an `Ending`; what was used is counted, whatever happens.

The parts of a model's answer, as the events that listeners see.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace

from journeyman.budget import Spent
from journeyman.endings import (
    ApiErrorContext,
    BudgetContext,
    Context,
    Ending,
    ModelUnavailableContext,
    OverflowContext,
    RateLimitContext,
)
from journeyman.errors import BudgetRefused, ModelUnavailable, ProviderError
from journeyman.events import (
    Event,
    IterationStarted,
    ModelAnswered,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from journeyman.loop.calls import run_calls
from journeyman.loop.record import Conversation, Iterated
from journeyman.loop.request import Count, fit, paid, room_for_answer, shrink
from journeyman.loop.retry import respond
from journeyman.loop.watch import Watch
from journeyman.model import (
    Answered,
    InputPart,
    Part,
    Request,
    Response,
    Restarted,
    Retried,
    TextPart,
    ThinkingPart,
    max_output_tokens_of,
)
from journeyman.types import NOTHING_USED, Message, ToolResult
from journeyman.window import KeptView


def shower(talk: Conversation) -> Callable[[Part], None]:
    """Return what shows the parts of one model call to the listeners."""
    watch = talk.watch
    if watch is None:
        return lambda part: None
    written: dict[str, str] = {}
    """The output as far as it is written, by call: a model may propose several in one response."""

    def show(part: Part) -> None:
        if isinstance(part, Restarted):
            written.clear()
        event = _event(talk, part, written)
        if event is not None:
            watch.show(event)

    return show


def _event(talk: Conversation, part: Part, written: dict[str, str]) -> Event | None:
    path = talk.path
    match part:
        case TextPart(text):
            return TextDelta(path=path, text=text)
        case ThinkingPart(text):
            return ThinkingDelta(path=path, text=text)
        case InputPart():
            return _input_event(talk, part, written)
        case _:
            return _request_event(talk, part)


def _request_event(talk: Conversation, part: Part) -> Event | None:
    """Return the event for a part that tells of the requests and not of the answer."""
    match part:
        case Retried():
            return ModelRetried(
                path=talk.path,
                attempt=talk.attempt,
                iteration=talk.iteration,
                request=part.attempt,
                max_requests=part.max_attempts,
                delay_s=part.delay_s,
                kind=part.error.kind,
                message=str(part.error),
            )
        case Restarted():
            return ModelRestarted(path=talk.path, attempt=talk.attempt, iteration=talk.iteration)
        case Answered(provider, model):
            return ModelAnswered(path=talk.path, provider=provider, model=model)
        case _:
            return None


def _input_event(talk: Conversation, part: InputPart, written: dict[str, str]) -> Event:
    own = talk.hand_in.get(part.tool_name)
    if own is None or own.kind != "output":
        return ToolInputDelta(path=talk.path, tool_use_id=part.tool_use_id, tool_name=part.tool_name, json=part.json)
    so_far = written.get(part.tool_use_id, "") + part.json
    written[part.tool_use_id] = so_far
    return OutputDelta(path=talk.path, tool_use_id=part.tool_use_id, json=so_far)


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


async def iterate(talk: Conversation) -> Iterated | Ending:
    """Make one model call, run the calls it asks for, and stage their results."""
    await _begin(talk)
    response = await ask(talk)
    if isinstance(response, Ending):
        return response
    said = talk.history.respond(response.content)
    talk.measured(response.usage)
    if talk.keep is not None:
        talk.keep()
    if talk.watch is not None:
        await _tell(talk, talk.watch, response, said)
    uses = talk.history.calls
    if not uses:
        return Iterated(response, said)
    if response.stop_reason != "tool_use":
        _answer_unrun(talk, response)
        return Iterated(response, said)
    talk.doing = "running tools"
    return Iterated(response, said, await run_calls(talk, uses))


async def _begin(talk: Conversation) -> None:
    """Put what is staged into the history, after it what the user said meanwhile, and count the iteration."""
    if talk.inbox is not None and talk.inbox.has_news and talk.history.may_say:
        talk.say(*talk.inbox.take_steering())
    committed = talk.history.commit()
    if talk.keep is not None:
        talk.keep()
    if talk.watch is not None:
        await talk.committed(committed)
    if talk.scope.is_due():
        await talk.scope.checkpoint()
    talk.iteration += 1
    talk.iterations += 1
    if talk.watch is not None:
        await talk.watch.tell(IterationStarted(path=talk.path, attempt=talk.attempt, iteration=talk.iteration))
        await talk.scope.checkpoint()


async def _tell(talk: Conversation, watch: Watch, response: Response, said: Message | None) -> None:
    await talk.committed(said)
    await watch.tell(
        ModelResponded(
            path=talk.path,
            attempt=talk.attempt,
            iteration=talk.iteration,
            stop_reason=response.stop_reason,
            text=said.text if said is not None else "",
            usage=talk.call_usage,
            model=response.model or talk.model.name,
        )
    )


def _answer_unrun(talk: Conversation, response: Response) -> None:
    """Answer the calls of a response that did not stop for them: they may be cut short, so they must not run."""
    text = f"Error: not run, because the response stopped with {response.stop_detail or response.stop_reason!r}."
    for call in talk.history.unanswered:
        talk.history.answer(ToolResult(text, is_error=True, tool_use_id=call.id))

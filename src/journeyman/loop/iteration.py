"""One iteration: one model call, and the calls that its response asks for.

The two verbs at the heart of everything: `ask` produces one message, `iterate` produces one message and runs its
calls. A run repeats `iterate` until there is an output; a chat, until there is nothing left to do. What goes wrong
becomes an `ErrorInfo`; what was used is counted, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Final

from journeyman.budget import Spending
from journeyman.endings import (
    ApiErrorContext,
    BudgetContext,
    CancelledContext,
    Context,
    ErrorInfo,
    ModelUnavailableContext,
    OverflowContext,
    RateLimitContext,
    UnusableAnswerContext,
    told_reason,
)
from journeyman.errors import BudgetRefused, ModelUnavailable, ProviderError, UnusableAnswer
from journeyman.events import (
    Event,
    HostedToolRan,
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
from journeyman.gate import make_seen_hosted_call
from journeyman.hosted.calls import hosted_calls
from journeyman.inbox.inbox import Inbox
from journeyman.loop.calls import run_calls
from journeyman.loop.replay import CONTENT, decide_once
from journeyman.loop.request import ModelCall, explain_cut, fit, note_failure, once, room_for_answer, shrink, taps_of
from journeyman.loop.retry import respond
from journeyman.loop.state import Iterated, Run, iteration_place, wait_while_held
from journeyman.loop.toolsets import ToolsetFailed, is_asked_again, show_tools
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
    facts_of,
)
from journeyman.step import iteration_key
from journeyman.tools.prose import ObjectFinder
from journeyman.types import NOTHING_USED, Opaque, Text, ToolResult, UserContent
from journeyman.window import CompactedView


async def iterate(run: Run) -> Iterated | ErrorInfo:
    """Make one model call, run the calls it asks for, and stage their results."""
    await _begin_iteration(run)
    if run.agent.plan.sources and is_asked_again(run):
        try:
            await show_tools(run)
        except ToolsetFailed as failed:
            return run.ending(failed.context, failed.__cause__)
    response = await ask(run)
    if isinstance(response, ErrorInfo):
        return response
    said = run.history.respond(response.content)
    run.attempt.cut = ""
    # An answer of calls alone, or of blanks, does not replace the last words that said something: a failure gives
    # these.
    run.answer = (said.text.strip() and said.text if said is not None else "") or run.answer
    # The view is measured with the answer in the history, and the answer is stored before any of its calls has an
    # effect.
    run.prepared.view.measure(response.usage, run.history.messages)
    if run.options.store_step is not None:
        await run.options.store_step()
    await run.tell_message(said)
    await run.tell(
        lambda: ModelResponded(
            **iteration_place(run),
            stop_reason=response.stop_reason,
            text=said.text if said is not None else "",
            usage=run.ledger.call_usage,
            model=response.model or run.prepared.model.name,
        )
    )
    if any([type(block) is Opaque or (type(block) is Text and block.extra) for block in response.content]):
        await _tell_hosted(run, response)
    uses = run.history.calls
    if not uses:
        return Iterated(response, said)
    if response.stop_reason != "tool_use":
        _answer_unrun(run, response)
        return Iterated(response, said)
    run.attempt.doing = "running tools"
    calls = await run_calls(run, uses)
    if run.calls.stop is not None:
        return run.ending(CancelledContext(reason=run.calls.stop, doing=run.attempt.doing))
    return Iterated(response, said, calls)


async def _tell_hosted(run: Run, response: Response) -> None:
    """Tell the gates and the listeners what the provider's own tools did. The model has read it when it makes calls in
    the same response."""
    # A turn that paused stands in several messages: the result of a provider's tool may come in another one than its
    # call.
    turn = takewhile(lambda message: message.role == "assistant", reversed(run.history.messages))
    before = [block for message in reversed([*turn][1:]) for block in message.content]
    for call in hosted_calls(response.content, before=before):
        run.prepared.guard.see(make_seen_hosted_call(call, n_model_calls=run.ledger.n_model_calls - 1))
        await run.tell(partial(HostedToolRan, **iteration_place(run), call=call))


async def _begin_iteration(run: Run) -> None:
    """Put what is staged into the history, after it what the user said meanwhile, and count the iteration."""
    options, attempt, ledger = run.options, run.attempt, run.ledger
    inbox = options.inbox
    if inbox is not None and run.history.may_say and (inbox.has_news or run.options.kept_journal is not None):
        await _hear(run, inbox)
    # Stored before the model is asked, so that nothing is answered that a death of the process could lose.
    committed = run.history.commit()
    if options.store_step is not None:
        await options.store_step()
    await run.tell_message(committed)
    if run.scope.is_due():
        await run.scope.checkpoint()
    attempt.iteration += 1
    attempt.doing = "calling the model"
    ledger.n_model_calls += 1
    ledger.call_usage = NOTHING_USED
    if run.watch is not None:
        # The one place where a run waits for its recorder: nothing of an iteration is half done here.
        if run.watch.tape is not None and run.watch.tape.is_behind:
            await run.watch.tape.room()
        await wait_while_held(run)
        await run.tell(lambda: IterationStarted(**iteration_place(run)))
        # Once more: a callback may have stopped the run meanwhile, or whoever held it.
        await run.scope.checkpoint()


async def _hear(run: Run, inbox: Inbox) -> None:
    """Stage the texts that the user said meanwhile; in a run that replays, those that were said at this point in an
    earlier life."""

    async def take(_: Run) -> tuple[UserContent, ...]:
        return inbox.take_steering()

    step, is_said = run.attempt.next_said(), True
    if not run.options.journal.reserve(step, effect="pure").is_known:
        # What waits now was not there when the model answered in an earlier life: it is said later.
        answers = iteration_key(step.attempt, step.iteration, "model")
        is_said = inbox.has_news and not any(True for _ in run.options.journal.stored(answers))
    if is_said:
        run.prepared.guard.hear(run.history.say(*await decide_once(run, step, take, codec=CONTENT)))


def _answer_unrun(run: Run, response: Response) -> None:
    """Answer the calls of a response that did not stop for them: they may be cut short, so they must not run."""
    reason = told_reason(response.stop_reason, response.stop_detail)
    text = f"Error: not run, because the response stopped with {reason!r}."
    for call in run.history.unanswered:
        run.history.answer(ToolResult(text, is_error=True, tool_use_id=call.id))


async def ask(run: Run) -> Response | ErrorInfo:
    """Make one logical model call. Return its response, or why there is none."""
    over = _over_policy(run) if run.agent.limits.budget_policies or run.above is not None else None
    if over is not None:
        return run.ending(over)
    try:
        response = await _ask_model(run, run.prepared.max_tokens, step="model")
        longer = _longer_answer(run, response)
        return response if longer is None else await _ask_model(run, longer, step="model/extended")
    except BudgetRefused as refused:
        return run.ending(_budget_context(refused), refused)
    except ProviderError as error:
        return run.ending(_provider_context(error), error)


def _longer_answer(run: Run, response: Response) -> int | None:
    """Return the longer answer to ask for once more, if this one was cut and the limits say so."""
    longer = run.agent.limits.extended_max_tokens
    if longer is None or response.stop_reason != "max_tokens":
        return None
    if explain_cut(run, response).cut_by != "max_tokens":
        return None  # it would be cut at the same place
    # A provider refuses a request for more than the model's longest answer.
    longer = min(longer, facts_of(run.prepared.model).max_output_tokens or longer)
    return longer if longer > run.prepared.max_tokens else None


def _ask_model(run: Run, max_tokens: int, *, step: str) -> Coroutine[object, object, Response]:
    run.attempt.asked_by = "max_tokens"
    if isinstance(run.prepared.view, CompactedView):
        return _ask_fitting(run, run.prepared.view, max_tokens, step=step)
    return _send(run, _model_call(run, max_tokens), step=step)


async def _ask_fitting(run: Run, view: CompactedView, max_tokens: int, *, step: str) -> Response:
    """Ask with what fits the window; with a smaller view, if the provider says that it does not, and with a smaller one
    yet."""
    await fit(run, view, step=step)
    for again, place in ((False, step), (True, f"{step}/smaller")):
        call = _fitting_call(run, view, max_tokens)
        try:
            return await _send(run, call, step=place)
        except ProviderError as error:
            if error.kind != "context_overflow" or not await shrink(run, view, step=place, again=again):
                raise
            await note_failure(run, call, error, step=place)
    return await _send(run, _fitting_call(run, view, max_tokens), step=f"{step}/smaller/smaller")


def _fitting_call(run: Run, view: CompactedView, max_tokens: int) -> ModelCall:
    """Return the call that sends the view, for an answer that fits the window with it."""
    room = room_for_answer(run, view, max_tokens)
    run.attempt.asked_by = "max_tokens" if room == max_tokens else "window"
    return _model_call(run, room)


def _model_call(run: Run, max_tokens: int) -> ModelCall:
    """Return the call that sends the view."""
    settings, view = run.agent.settings, run.prepared.view
    convert = view.compaction.transform_messages
    request = Request(
        prefix=view.prefix,
        messages=view.messages if convert is None else convert(view.messages),
        settings=settings if max_tokens <= run.prepared.max_tokens else replace(settings, max_tokens=max_tokens),
        max_tokens=max_tokens,
        # The pieces of an answer cost an object each: they are made only where somebody hears them.
        deltas=run.watch is not None and run.watch.wants_words,
    )
    asked = taps_of(run)
    on_part = _shower(run) if request.deltas else None if asked is None else _shower(run, shows_pieces=False)
    return ModelCall(run.prepared.model, request, run.ledger.spend, lambda: view.tokens, on_part, asked)


def _send(run: Run, call: ModelCall, *, step: str) -> Coroutine[object, object, Response]:
    """Make a call, under its name in the journal and within the budget. Without both, it goes straight to the
    retries."""
    run.attempt.asked_max_tokens = call.request.max_tokens or run.prepared.max_tokens
    if run.options.runtime.journal is None and not run.attempt.budget.limits_spending:
        return respond(
            call.model,
            call.request,
            retries=run.prepared.retries,
            spent=run.ledger.spend,
            on_part=call.on_part,
            on_cut=run.cut_off,
            asked=call.asked,
        )
    return once(run, call, step=step)


def _over_policy(run: Run) -> Context | None:
    """Ask the policies of this run, and those of the runs above: what they limit is spent here, too."""
    level: Run | None = run
    while level is not None:
        for policy in level.agent.limits.budget_policies:
            # This run has counted the call already that it is about to make, and a policy is asked before it. The runs
            # above have not.
            exceeded = policy.check(_sum_spending(level, level.ledger.n_model_calls - (level is run)))
            if exceeded is not None:
                refused = BudgetRefused(policy.name, limit=exceeded.limit, used=exceeded.used, scope="run")
                return _budget_context(refused)
        level = level.above
    return None


def _sum_spending(run: Run, iterations: int) -> Spending:
    return Spending(
        usage=run.ledger.usage,
        iterations=iterations,
        calls=run.ledger.calls,
        seconds=run.clock.elapsed_s,
        attempt=run.attempt.number,
    )


def _budget_context(refused: BudgetRefused) -> BudgetContext:
    return BudgetContext(
        policy=refused.policy, limit=refused.limit, used=refused.used, scope=refused.scope, needed=refused.needed
    )


def _provider_context(error: ProviderError) -> Context:
    # Before the kinds: a provider's error wraps it, and the kind alone would not say what to install or to start.
    if isinstance(error.__cause__, ModelUnavailable):
        return ModelUnavailableContext.of(error.__cause__)
    if isinstance(error, UnusableAnswer):
        return UnusableAnswerContext(reason=error.reason, limit=error.limit)
    if error.kind == "context_overflow":
        return OverflowContext(message=str(error))
    if error.kind == "rate_limited":
        return RateLimitContext(
            message=str(error), status=error.status, request_id=error.request_id, retry_after_s=error.retry_after_s
        )
    return ApiErrorContext(
        kind=error.kind,
        message=str(error),
        status=error.status,
        type=error.type,
        request_id=error.request_id,
        retry_after_s=error.retry_after_s,
        advice=error.hint,
    )


def _shower(run: Run, *, shows_pieces: bool = True) -> Callable[[Part], None]:
    """Return a function that shows the parts of one model call to the listeners, or only those about requests, where a
    tape alone hears them."""
    written: dict[str, str] = {}
    """The output as far as it is written, by call: a model may propose several in one response."""
    prose = ObjectFinder()

    def show(part: Part) -> None:
        nonlocal prose
        if not shows_pieces and type(part) not in _OF_REQUESTS:
            return
        # The request is made again, and its answer begins from nothing: what was shown of the broken one is no
        # beginning of it.
        if isinstance(part, Restarted):
            written.clear()
            prose = ObjectFinder()
        if isinstance(part, TextPart) and run.prepared.hand_in.mode == "prompted":
            events = _prose_events(run, part.text, prose)
        else:
            events = (_event(run, part, written),)
        for event in events:
            if event is not None:
                run.show(lambda event=event: event)

    return show


def _event(run: Run, part: Part, written: dict[str, str]) -> Event | None:
    match part:
        case TextPart(text) if run.prepared.hand_in.mode == "native":
            return _output_so_far(run, InputPart("", "", text), written)
        case TextPart(text):
            return TextDelta(path=run.path, text=text)
        case ThinkingPart(text):
            return ThinkingDelta(path=run.path, text=text)
        case InputPart(id, name, json):
            own = run.prepared.hand_in.tools.get(name)
            if own is not None and own.kind == "output":
                return _output_so_far(run, part, written)
            return ToolInputDelta(path=run.path, tool_use_id=id, tool_name=name, json=json)
        case _:
            return _request_event(run, part)


def _prose_events(run: Run, piece: str, prose: ObjectFinder) -> Iterator[Event]:
    """Give the events of a piece of a prompted answer: of the words before its JSON, and of the JSON so far."""
    before = prose.first()
    n_words = len(prose.text)
    prose.add(piece)
    json = prose.first()
    if not before:
        words = prose.text[n_words : prose.text.index(json, n_words)] if json else piece
        if words:
            yield TextDelta(path=run.path, text=words)
    if json != before:
        yield _output_event(run, "", "", json)


def _output_so_far(run: Run, part: InputPart, written: dict[str, str]) -> Event:
    so_far = written.get(part.tool_use_id, "") + part.json
    written[part.tool_use_id] = so_far
    return _output_event(run, part.tool_use_id, part.tool_name, so_far)


def _output_event(run: Run, tool_use_id: str, tool_name: str, json: str) -> OutputDelta:
    outputs = run.agent.plan.outputs
    is_wrapped = outputs.members.get(tool_name, outputs.member).schema.is_wrapped
    return OutputDelta(path=run.path, tool_use_id=tool_use_id, tool_name=tool_name, json=json, is_wrapped=is_wrapped)


_OF_REQUESTS: Final = frozenset({Retried, Restarted, Answered})


def _request_event(run: Run, part: Part) -> Event | None:
    """Return the event for a part that tells of the requests and not of the answer."""
    match part:
        case Retried():
            return ModelRetried(
                **iteration_place(run),
                request=part.attempt,
                max_requests=part.max_attempts,
                delay_s=part.delay_s,
                kind=part.error.kind,
                message=str(part.error),
            )
        case Restarted():
            return ModelRestarted(**iteration_place(run))
        case Answered(provider, model):
            return ModelAnswered(path=run.path, provider=provider, model=model)
        case _:
            return None

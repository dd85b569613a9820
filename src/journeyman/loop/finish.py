"""The beginning and the end of a run, as those who watch it hear of them, and the result that the caller gets."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.cancellation import Cause, is_awaited, is_failure, log_caught
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import collecting_later
from journeyman.definition.narrowing import is_group
from journeyman.endings import (
    BudgetContext,
    CancelledContext,
    Context,
    ErrorInfo,
    InternalContext,
    InvalidInputContext,
    ProjectionContext,
    PromptContext,
    ValidationContext,
)
from journeyman.errors import InvalidArguments, is_ours
from journeyman.events import CallAbandoned, RunFailed, RunStarted, RunSucceeded
from journeyman.gate import NO_GUARD
from journeyman.history import History
from journeyman.journal import END, Journal, TypedCodec
from journeyman.loop.calls import finish
from journeyman.loop.replay import StepCodec
from journeyman.loop.results import dump_result, load_result
from journeyman.loop.state import Finished, Outcome, Run, call_with_deps, last_handed_in
from journeyman.loop.validation import complete_layer
from journeyman.result import Failure, Metadata, Result, Success
from journeyman.step import RunStep
from journeyman.tools.collection import do_aside
from journeyman.tools.context import own_copy
from journeyman.tools.redaction import words_without_secrets
from journeyman.types import NOTHING_USED, JsonObject, Text, Usage

_log = logging.getLogger("journeyman")

INTERRUPTED = "Error: the run was stopped before this call finished."
"""The result of a call that was under way, or not begun, when the run ended."""

CUT = "[Your answer broke off. The user has seen this much of it:]"
"""What the model of a chat reads of an answer that was interrupted, in front of that answer's text."""


async def announce(run: Run) -> None:
    """Tell that the run begins."""

    def make_event() -> RunStarted:
        model, origin = run.options.runtime.model or run.agent.model, run.options.origin
        name = model if isinstance(model, str) else f"{getattr(model, 'provider', '?')}:{getattr(model, 'name', '?')}"
        return RunStarted(
            path=run.path,
            agent=run.agent.name,
            model=name,
            max_attempts=run.max_attempts,
            max_iterations=run.agent.limits.iterations,
            tool_use_id=None if origin is None else origin.tool_use_id,
            mode=None if origin is None else origin.mode,
            description=run.agent.description,
        )

    await run.tell(make_event)


def failed_inside(run: Run, error: BaseException) -> ErrorInfo:
    """Return the ending of a run in which something around the loop raised `error`."""
    first = error
    while is_group(first):  # as of calls that ran together: the group's own words say nothing
        first = first.exceptions[0]
    where = "preparing the run" if run.clock.prepared_s is None else run.attempt.doing
    return run.ending(InternalContext(where=where, error=words_without_secrets(first)), error)


def _describe_stop(run: Run, cause: Cause | None) -> ErrorInfo:
    """Return the ending of a run that the caller's signal, or a deadline, has stopped."""
    if cause != "abort":
        return run.ending(_late(run))
    return run.ending(CancelledContext(reason=run.scope.reason or "", doing=run.attempt.doing))


def _late(run: Run) -> Context:
    """Return the facts of a deadline that has passed: the run's, its attempt's, or that of a run above."""
    late, scope = run, run.scope.source
    while late.scope is not scope and late.above is not None:
        late = late.above
    level = late.budget
    if scope.cause == "attempt_deadline":
        level = late.attempt.budget
    else:
        deadline = scope.deadlines["deadline"]
        level = next((each for each in level.levels() if each.own_deadline == deadline), level)
    limit = level.seconds or 0.0
    return BudgetContext(policy="seconds", limit=limit, used=limit + scope.late_s(), scope=level.scope)


def left_behind(run: Run) -> Run:
    """Return the record of a run whose work was abandoned. The work keeps one that nobody reads: what comes late is
    dropped, except for what a late answer costs."""
    rest = copy(run)
    # The work goes on with the old object, and cannot be stopped from writing into it. It gets a history that nobody
    # reads.
    run.history, run.watch = History(), None
    if run.clock.prepared_s is not None:
        run.prepared = replace(run.prepared, guard=NO_GUARD)
    run.options = replace(run.options, store_step=None, inbox=None)
    calls = tuple(rest.calls.announced.values())
    for id, name in [(use.id, use.name) for use in calls] or [(None, None)]:
        rest.show(partial(CallAbandoned, path=rest.path, tool_use_id=id, tool_name=name))
    if not calls:
        # A request may be under way, and what it costs is not known: the sum is a lower bound.
        rest.ledger.spend(replace(NOTHING_USED, exact=False))
    names = ", ".join([f"the tool {use.name} (call {use.id})" for use in calls]) or f"what was {rest.attempt.doing}"
    _log.warning(
        "%s: %s did not end within %g s, and was left behind", rest.path[-1], names, rest.options.runtime.grace_s
    )
    return rest


async def conclude(run: Run, ended: Finished | ErrorInfo | None) -> Result[Any]:
    """Close the history and the attempt, make the result, and tell it. `ended` is None for a run that was stopped."""
    # Also where there is an output: a signal that came during the last validator has ended the run.
    if ended is None or run.scope.cause is not None:
        ended = _describe_stop(run, run.scope.cause)
    # First what is open, then what is made of it: listeners hear an end for each beginning, and the history can be sent
    # when `final_state` sees it.
    await _close(run)
    state: object = None
    if isinstance(ended, Finished):
        try:
            state = (
                None
                if run.agent.final_state is None
                else call_with_deps(run, run.agent.final_state, run.prepared.states.copied())
            )
            state = await state if is_awaited(state) else state
        except BaseException as error:
            if not is_failure(error):
                raise
            ended = run.ending(ProjectionContext(reason=words_without_secrets(error)), error)
    if isinstance(ended, ErrorInfo):
        _log_bug(run, ended)
    result = _make_result(run, ended, state)
    # Stored before anybody is told: a run of which an end was told can then not end in another way in a later life.
    await _note_end(run, result)
    settle = run.options.settle
    while settle is not None and not await settle(result):
        result = _make_result(run, _describe_stop(run, "abort"), None)
    return await _told_result(run, result)


def _log_bug(run: Run, ending: ErrorInfo) -> None:
    """Log what the user's code raised, if that ends the run. What our own code raises, the ending tells in full."""
    match ending.context:
        case InternalContext(where=what):
            error = ending.cause
        case PromptContext(prompt=prompt):
            what, error = f"the {prompt} prompt", ending.cause
        case ProjectionContext():
            what, error = "Agent.final_state", ending.cause
        case ValidationContext(layer=layer):
            what, error = f"the validator {layer}", ending.cause
        case InvalidInputContext():
            what, error = "the type of the input", ending.cause and ending.cause.__cause__
        case _:
            return
    if error is not None and not is_ours(error):
        log_caught(f"{run.path[-1]}: the run ended as {ending.code}, since {what}", error, level=logging.ERROR)


async def _close(run: Run) -> None:
    if run.clock.prepared_s is None:
        run.history.close()
        return
    if run.attempt.open_layer is not None:
        await complete_layer(run, run.attempt.open_layer.cut_short("The run was stopped."))
    # A copy, because `finish` takes each call out.
    for use in list(run.calls.announced.values()):
        await finish(run, use, Outcome.failure("interrupted", INTERRUPTED))
    note = run.options.abort_note
    if note is not None and run.history.expects_answer:
        words = note() if run.scope.cause == "abort" else ""
        if run.attempt.cut:
            words = f"{words}\n{CUT}\n{run.attempt.cut}".strip()
        if words:
            run.history.say(Text(words))
    await run.tell_message(run.history.close(INTERRUPTED))
    if run.attempt.is_open:
        await run.complete_attempt(succeeded=False)


def _make_result(run: Run, ended: Finished | ErrorInfo, state: object) -> Success[Any] | Failure:
    history, metadata = run.history.export(), _metadata(run)
    if isinstance(ended, Finished):
        output, terminal = ended.output, ended.terminal_result
        return Success(
            output=output,
            metadata=metadata,
            history=history,
            state=state,
            has_state=run.agent.final_state is not None,
            terminal_result=terminal,
            output_type=run.agent.plan.outputs.kind,
        )
    return Failure(
        error=ended,
        metadata=metadata,
        history=history,
        candidate=_candidate(run),
        answer=run.answer or None,
        report=run.report,
    )


def _candidate(run: Run) -> JsonObject | str | None:
    raw = last_handed_in(run)
    if raw is None or run.agent.plan.output is None:
        return raw
    try:
        with collecting_later():
            value: object = from_json(raw)
    except ValueError:
        # The model may have written anything, and the caller should see it.
        return raw
    return value if isinstance(value, dict) else raw  # pyright: ignore[reportUnknownVariableType] - JSON edge


def _metadata(run: Run) -> Metadata:
    watch = run.watch
    return Metadata(
        usage=run.ledger.usage if run.agent.track_tokens else None,
        latency_s=run.clock.elapsed_s,
        agent=run.agent.name,
        attempts=tuple(run.records),
        tools=run.ledger.stats(),
        callback_errors=() if watch is None else tuple(watch.errors),
        children=run.children.records(),
        overshoot_tokens=run.budget.overshoot_tokens,
        overshoot_cost=run.budget.overshoot_cost,
        background_usage=run.ledger.background_usage if run.agent.track_tokens else None,
    )


@lazy_dataclass(frozen=True, kw_only=True)
class _End:
    """The end of a run, as a journal keeps it. When another run waits for this one, nothing else is read of it: it is
    not replayed."""

    code: str
    result: JsonValue = None
    usage: Usage = NOTHING_USED
    calls_below: int = 0


END_STEP: Final = RunStep(key=END, kind="end")
_ENDS: Final = TypedCodec[_End | str](_End | str)
"""Earlier versions stored the code alone."""


async def known_end(run: Run) -> Result[Any] | None:
    """Return how a run ended in an earlier life of the run above, and count what it took. None: it has not ended, or
    nothing waits for it."""
    if run.above is None or not run.options.journal.is_replaying():
        return None
    place = run.options.journal.reserve(END_STEP, effect="pure")
    if not place.is_known:
        return None

    async def never() -> _End | str:
        raise AssertionError("A step that is known was to be done again.")

    try:
        end = await place.step(never, codec=StepCodec("end", _ENDS, None))
        if isinstance(end, str) or end.result is None:
            return None
        result = await do_aside(to_json(end.result), partial(load_result, agent=run.agent))
    except (ValueError, InvalidArguments):
        return None  # what cannot be read is replayed
    metadata = result.metadata
    background = metadata.background_usage or NOTHING_USED
    run.ledger.recall(end.usage, metadata.tools, background=background, calls_below=end.calls_below)
    run.ledger.n_model_calls = sum([each.iterations for each in metadata.attempts])
    run.records = list(metadata.attempts)
    run.children.ended = dict(enumerate(metadata.children))
    run.clock.started_s = run.clock.now() - metadata.latency_s
    return result


async def _note_end(run: Run, result: Success[Any] | Failure) -> None:
    """Note in the journal that the run has ended, so that nobody is told of it in a later life. One that was stopped
    has not, unless its own time was up: it may go on."""
    journal, scope = run.options.kept_journal, run.scope
    if run.options.settle is not None:  # whoever settles it stores its end
        return
    is_late = scope.cause in ("deadline", "attempt_deadline") and scope.source is scope
    if journal is None or (isinstance(result, Failure) and scope.cause is not None and not is_late):
        return
    try:
        is_stored = run.clock.prepared_s is not None and await _store_end(run, journal, result)
        if run.above is None and not is_stored:
            journal.end_life()
    except BaseException as error:
        if not is_failure(error):
            raise
        # The run has ended, and its result is there: a journal that cannot be written costs a replay, and no answer.
        said = words_without_secrets(error)
        _log.warning("%s: its journal does not know that it has ended, and goes on with it: %s", run.path[-1], said)


async def _store_end(run: Run, journal: Journal, result: Success[Any] | Failure) -> bool:
    """Store how the run has ended. False: it had ended in an earlier life."""

    async def end(_: Run) -> _End | str:
        code = result.code if isinstance(result, Failure) else "success"
        if run.above is None:
            return code
        written = last_handed_in(run) if run.agent.plan.outputs.is_what_is_written else None
        document: JsonValue = from_json(await dump_result(result, run.agent, written=written))
        return _End(code=code, result=document, usage=run.ledger.usage, calls_below=run.ledger.calls_below)

    unstored = 0 if run.above is None else run.calls.n_unstored  # which a run that is replayed counts again
    codec = StepCodec("end", _ENDS, None, counts=lambda _: unstored)
    await journal.reserve(END_STEP, effect="pure").step(lambda: end(run), codec=codec)
    return codec.known is None


async def _told_result(run: Run, result: Success[Any] | Failure) -> Result[Any]:
    """Tell how the run ended; what goes wrong in the telling is part of the result too."""
    watch = run.watch
    if watch is None:
        return result
    watch.is_over = True
    if isinstance(result, Success):
        # A listener that changes what it hears must not change what the caller gets.
        output = await do_aside(result.output, own_copy)
        await run.tell(lambda: RunSucceeded(path=run.path, output=output, metadata=result.metadata))
    else:
        await run.tell(lambda: RunFailed(path=run.path, error=result.error, metadata=result.metadata))
    # Listeners of the end itself may have raised, after the metadata was made.
    if len(watch.errors) == len(result.metadata.callback_errors):
        return result
    return replace(result, metadata=replace(result.metadata, callback_errors=tuple(watch.errors)))

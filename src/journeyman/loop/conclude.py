"""How a run begins and ends for those who watch and for the caller: what is told, and what the result carries.

Imports `execution`, `attempts`, `calls`, `verdict` and the parts. Read `loop.py` for the order of things.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, cast

from pydantic_core import from_json

from journeyman.cancel import Cause, is_failure
from journeyman.endings import (
    BudgetContext,
    CancelledContext,
    Context,
    Ending,
    InternalContext,
    ProjectionContext,
)
from journeyman.errors import name_and_words
from journeyman.events import RunFailed, RunStarted, RunSucceeded
from journeyman.loop.calls import finish
from journeyman.loop.record import Conversation, Execution, Finished, Outcome, complete_attempt
from journeyman.loop.validation import complete_layer
from journeyman.result import Failure, Metadata, Result, Success
from journeyman.types import JsonObject, Text

INTERRUPTED = "Error: the run was stopped before this call finished."
"""The result of a call that was under way, or not begun, when the run ended."""


# -- a run begins -----------------------------------------------------------------------------------------------------


async def announce(execution: Execution) -> None:
    """Tell that the run begins."""
    if execution.watch is None:
        return
    model = execution.options.host.model or execution.agent.model
    origin = execution.options.origin
    name = model if isinstance(model, str) else f"{getattr(model, 'provider', '?')}:{getattr(model, 'name', '?')}"
    await execution.watch.tell(
        RunStarted(
            path=execution.path,
            agent=execution.agent.name,
            model=name,
            max_attempts=execution.max_attempts,
            max_iterations=execution.agent.limits.iterations,
            tool_use_id=None if origin is None else origin.tool_use_id,
            mode=None if origin is None else origin.mode,
        )
    )


# -- endings ----------------------------------------------------------------------------------------------------------


def failed_inside(execution: Execution, error: BaseException) -> Ending:
    """Something around the loop raised."""
    talk = execution.talk
    where = "preparing the run" if talk is None else talk.doing
    phase = "prompt_generation" if talk is None else talk.phase
    return Ending(InternalContext(where=where, error=name_and_words(_first(error))), phase, error)


def _first(error: BaseException) -> BaseException:
    """Return the first of a group's errors, as of calls that ran together: the group's own words say nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _stopped(execution: Execution, cause: Cause | None) -> Ending:
    """The caller's signal fired, or time is up."""
    talk = execution.talk
    phase = "prompt_generation" if talk is None else talk.phase
    attempt, iteration = (0, 0) if talk is None else (talk.attempt, talk.iteration)
    if cause != "abort":
        return Ending(_late(execution, attempt, iteration), phase)
    abort = execution.abort
    context = CancelledContext(
        reason=execution.scope.reason or (abort.reason if abort is not None else None) or "",
        doing="building the prompts" if talk is None else talk.doing,
        attempt=attempt,
        iteration=iteration,
    )
    return Ending(context, phase)


def _late(execution: Execution, attempt: int, iteration: int) -> Context:
    level, used = execution.budget, execution.now() - execution.started_s
    while level.parent is not None and level.parent.deadline == level.deadline:
        level = level.parent
    if level is not execution.budget and level.own_deadline is not None:
        used = execution.now() - (level.own_deadline - (level.allowance.seconds or 0.0))
    if execution.scope.cause == "attempt_deadline" and execution.talk is not None:
        level, used = execution.talk.budget, execution.now() - execution.attempt_started_s
    return BudgetContext(
        policy="seconds",
        limit=level.allowance.seconds or 0.0,
        used=used,
        scope=level.scope,
        attempt=attempt,
        iteration=iteration,
    )


# -- a run ends -------------------------------------------------------------------------------------------------------


async def conclude(execution: Execution, ended: Finished | Ending | None) -> Result[Any]:
    """Close the history and the attempt, make the result, and tell it. A run that was stopped has not `ended`."""
    talk = execution.talk
    if ended is None or execution.scope.cause is not None:
        ended = _stopped(execution, execution.scope.cause)
    if talk is not None:
        await _close(execution, talk)
    else:
        execution.history.close()
    state: object = None
    if isinstance(ended, Finished):
        try:
            state = await _projected(execution)
        except BaseException as error:
            if not is_failure(error):
                raise
            context = ProjectionContext(reason=name_and_words(error))
            ended = Ending(context, "validation", error)
    return await _told_result(execution, _result(execution, ended, state))


async def _close(execution: Execution, talk: Conversation) -> None:
    if execution.open_layer is not None:
        await complete_layer(execution, talk, execution.open_layer.cut_short("The run was stopped."))
    for use in list(talk.announced.values()):
        outcome = Outcome.failed("interrupted", INTERRUPTED)
        await finish(talk, use, outcome)
    note = execution.options.abort_note
    if note is not None and execution.scope.cause == "abort" and talk.history.expects_answer:
        talk.history.say(Text(note()))
    await talk.committed(talk.history.close(INTERRUPTED))
    if execution.attempt_is_open:
        await complete_attempt(execution, talk, succeeded=False)


async def _projected(execution: Execution) -> object:
    project = execution.agent.project
    if project is None or execution.talk is None:
        return None
    state = project(execution.talk.states)
    return await state if inspect.isawaitable(state) else state


def _result(execution: Execution, ended: Finished | Ending, state: object) -> Success[Any] | Failure:
    history = execution.history.export()
    if isinstance(ended, Finished):
        return Success(
            output=ended.output,
            metadata=_metadata(execution),
            history=history,
            state=state,
            terminal_result=ended.terminal_result,
        )
    return Failure(
        error=ended,
        metadata=_metadata(execution),
        history=history,
        candidate=_candidate(execution),
        report=execution.report,
    )


def _candidate(execution: Execution) -> JsonObject | str | None:
    raw = execution.hand_in.last_raw
    if raw is None or execution.agent.plan.output is None:
        return raw
    try:
        value: object = from_json(raw)
    except ValueError:
        return raw
    return value if isinstance(value, dict) else raw  # pyright: ignore[reportUnknownVariableType] - JSON edge


def _metadata(execution: Execution) -> Metadata:
    watch = execution.watch
    return Metadata(
        usage=execution.ledger.usage if execution.agent.observability.track_tokens else None,
        latency_s=execution.now() - execution.started_s,
        attempts=tuple(execution.records),
        tools=execution.ledger.stats(),
        callback_errors=() if watch is None else tuple(watch.errors),
        children=execution.ended_children(),
        overshoot_tokens=execution.budget.overshoot_tokens,
        overshoot_cost=execution.budget.overshoot_cost,
    )


async def _told_result(execution: Execution, result: Success[Any] | Failure) -> Result[Any]:
    """Tell how the run ended; what goes wrong in the telling is part of the result too."""
    watch = execution.watch
    if watch is None:
        return result
    if isinstance(result, Success):
        await watch.tell(RunSucceeded(path=execution.path, output=result.output, metadata=result.metadata))
    else:
        await watch.tell(RunFailed(path=execution.path, error=result.error, metadata=result.metadata))
    if len(watch.errors) == len(result.metadata.callback_errors):
        return result
    return replace(result, metadata=replace(result.metadata, callback_errors=tuple(watch.errors)))

"""Running an agent: attempts, each of iterations until an output is handed in, which is then validated.

The loop is `_attempts` and `_attempt`: one screen. `preparing.py` says how a run begins, `attempts.py` and
`concluding.py` how its parts end, `handin.py` what counts as handing in, `iteration.py` what one iteration is. Imports
all of these.

How an attempt begins and ends: what it starts with, and how the model learns the verdict on its output.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from journeyman.agent import NOTHING_AROUND, Agent, Host, In, Out
from journeyman.budget import UNLIMITED, Budget
from journeyman.cancel import Abort, current_scope, is_cancellation, is_failure
from journeyman.endings import AttemptsContext, Ending, ErrorCode, IterationsContext, PromptContext
from journeyman.errors import name_and_words
from journeyman.events import AttemptStarted, Callbacks, Listener, ValidationFailed
from journeyman.gate import guarding
from journeyman.loop.calls import finish
from journeyman.loop.conclude import announce, conclude, failed_inside
from journeyman.loop.iteration import iterate
from journeyman.loop.prepare import Unprepared, begin, prepare
from journeyman.loop.record import (
    Candidate,
    Conversation,
    Execution,
    Finished,
    Options,
    Outcome,
    complete_attempt,
    current_path,
    current_run,
)
from journeyman.loop.validation import Verdict, judge
from journeyman.model import opened
from journeyman.prompt import PromptFailed, Rejection, default_error_prompt, made
from journeyman.result import Failure, Result
from journeyman.types import Message, Text, ToolResult

ACCEPTED = "Accepted."
"""The result of the call that handed in an output that passed."""


async def begin_attempt(execution: Execution, talk: Conversation, attempt: int) -> None:
    """Give the attempt its own state, cache, counters and budget, and tell that it begins."""
    await talk.scope.checkpoint()
    agent = execution.agent
    talk.attempt, talk.iteration = attempt, 0
    talk.ledger.begin_attempt()
    talk.attempt_cache = {}
    talk.phase = "iteration"
    execution.hand_in.begin_attempt()
    each = agent.limits.each_attempt
    if each is not UNLIMITED and each != UNLIMITED:
        talk.budget = Budget(each, scope="attempt", now=talk.now(), parent=execution.budget)
        execution.scope.limit_attempt(each.seconds)
    execution.attempt_report = None
    execution.attempt_is_open, execution.attempt_started_s = True, talk.now()
    if execution.watch is not None:
        await execution.watch.tell(AttemptStarted(path=talk.path, attempt=attempt))
    if agent.attempt_state is not None:
        state = agent.attempt_state(talk.input, talk.states.run)
        talk.states.attempt = await state if inspect.isawaitable(state) else state


async def accept(execution: Execution, talk: Conversation, candidate: Candidate, verdict: Verdict) -> Finished:
    """Answer the call that handed the output in, and close the attempt."""
    if candidate.call is not None:
        outcome = Outcome(ToolResult(ACCEPTED, tool_use_id=candidate.call.id))
        await finish(talk, candidate.call, outcome)
    await complete_attempt(execution, talk, succeeded=True)
    return Finished(verdict.value, candidate.terminal_result)


async def reject(execution: Execution, talk: Conversation, candidate: Candidate, verdict: Verdict) -> Ending | None:
    """Tell the model what is wrong with its output, and close the attempt. An ending: there is no way to tell."""
    feedback = verdict.report.feedback
    if execution.watch is not None:
        await execution.watch.tell(ValidationFailed(path=talk.path, attempt=talk.attempt, feedback=feedback))
    talk.phase, talk.doing = "prompt_generation", "building the error prompt"
    try:
        told = await _told(execution, talk, verdict)
    except PromptFailed as failed:
        context = PromptContext(prompt="error", reason=failed.reason, attempt=talk.attempt)
        return Ending(context, "prompt_generation", failed.__cause__ or failed)
    talk.phase, talk.doing = "validation", "giving the feedback"
    await _give_back(execution, talk, candidate, told)
    await complete_attempt(execution, talk, succeeded=False)
    return None


async def _told(execution: Execution, talk: Conversation, verdict: Verdict) -> str:
    """Return what the model is told. On the last attempt nobody will read it, so the caller's function is not asked."""
    failed = verdict.report.layers[-1]
    rejection = Rejection(
        feedback=failed.feedback,
        layer=failed.name,
        description=failed.description,
        report=verdict.report,
        attempt=talk.attempt,
        max_attempts=execution.max_attempts,
    )
    if talk.attempt == execution.max_attempts:
        return default_error_prompt(rejection)
    try:
        text = execution.agent.error_prompt(rejection)
        content = await made(await text if inspect.isawaitable(text) else text)
    except PromptFailed:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise PromptFailed(f"it raised {name_and_words(error)}") from error
    return "\n".join(block.text for block in content if isinstance(block, Text))


async def _give_back(execution: Execution, talk: Conversation, candidate: Candidate, told: str) -> None:
    if candidate.call is None:
        talk.history.say(Text(told))
        return
    in_result = execution.agent.feedback == "result"
    text = told if in_result else "Error: the output did not pass validation. The reason follows."
    outcome = Outcome(ToolResult(text, is_error=True), "rejected")
    await finish(talk, candidate.call, outcome)
    if not in_result:
        talk.history.say(Text(told))


def out_of_iterations(execution: Execution, talk: Conversation) -> Ending:
    """The attempt made all its model calls."""
    context = IterationsContext(
        attempt=talk.attempt,
        iteration_count=talk.iteration,
        max_iterations=talk.limits.iterations,
        has_draft=execution.hand_in.has_draft,
    )
    return Ending(context, "iteration")


def out_of_attempts(execution: Execution) -> Ending:
    """The last attempt's output was rejected."""
    context = AttemptsContext(
        attempts=len(execution.records),
        max_attempts=execution.max_attempts,
        last_error=execution.report.feedback if execution.report else "",
    )
    return Ending(context, "validation", _last_error(execution))


def _last_error(execution: Execution) -> BaseException | None:
    return execution.report.layers[-1].error if execution.report and execution.report.layers else None


async def run(
    agent: Agent[Out, In],
    input: In,
    *,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    host: Host | None = None,
) -> Result[Out]:
    """Run `agent` on `input`, and return how it ended.

    `max_attempts` replaces `agent.limits.attempts` for this run. `history` is an earlier conversation to go on from;
    what could not be sent of it is mended. `abort` ends the run with `Failure(EXECUTION_CANCELLED)`.

    Raises:
        asyncio.CancelledError: the surrounding task was cancelled. Nothing that the run started is alive by then.
    """
    options = Options(
        max_attempts=max_attempts,
        callbacks=callbacks,
        listeners=() if on_event is None else (on_event,),
        abort=abort,
        history=history,
        host=host or NOTHING_AROUND,
    )
    return await carry_out(begin(agent, input, options))


async def carry_out(execution: Execution) -> Result[Any]:
    """Do the run that was begun, and return how it ended."""
    path, scope = current_path.set(execution.path), current_scope.set(execution.scope)
    above = current_run.set(execution)
    code: ErrorCode | None = ErrorCode.EXECUTION_CANCELLED
    try:
        ended: Finished | Ending | None = None
        async with execution.scope:
            ended = await _ended(execution)
        result = await conclude(execution, ended)
        code = result.code if isinstance(result, Failure) else None
        return result
    except BaseExceptionGroup as group:
        if is_cancellation(group):
            raise asyncio.CancelledError from group
        raise
    finally:
        current_path.reset(path)
        current_scope.reset(scope)
        current_run.reset(above)
        execution.end(code)


def run_sync(
    agent: Agent[Out, In],
    input: In,
    *,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    host: Host | None = None,
) -> Result[Out]:
    """Run `agent` from a program that has no event loop; the same as `run`.

    Raises:
        RuntimeError: an event loop is running here; await `run` instead.
    """
    return asyncio.run(
        run(
            agent,
            input,
            max_attempts=max_attempts,
            callbacks=callbacks,
            on_event=on_event,
            abort=abort,
            history=history,
            host=host,
        )
    )


async def _ended(execution: Execution) -> Finished | Ending:
    """Return how the run ended, whatever was raised."""
    try:
        await announce(execution)
        talk = execution.talk = await prepare(execution)
        async with opened(talk.model):
            with guarding(talk.guard):
                return await _attempts(execution, talk)
    except Unprepared as unprepared:
        return unprepared.ending
    except BaseException as error:
        if not is_failure(error):
            raise
        return failed_inside(execution, error)


async def _attempts(execution: Execution, talk: Conversation) -> Finished | Ending:
    """Attempt until an output passes."""
    for attempt in range(1, execution.max_attempts + 1):
        await begin_attempt(execution, talk, attempt)
        candidate = await _attempt(execution, talk)
        if isinstance(candidate, Ending):
            return candidate
        verdict = await judge(execution, talk, candidate)
        if isinstance(verdict, Ending):
            return verdict
        if verdict.report.passed:
            return await accept(execution, talk, candidate, verdict)
        ending = await reject(execution, talk, candidate, verdict)
        if ending is not None:
            return ending
    return out_of_attempts(execution)


async def _attempt(execution: Execution, talk: Conversation) -> Candidate | Ending:
    """Iterate until an output is handed in."""
    for _ in range(talk.limits.iterations):
        turn = await iterate(talk)
        if isinstance(turn, Ending):
            return turn
        handed_in = await execution.hand_in.judge(talk, turn)
        if handed_in is not None:
            return handed_in
    return out_of_iterations(execution, talk)

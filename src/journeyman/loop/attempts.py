"""Running an agent: attempts, each of iterations until an output is handed in, which is then validated.

The loop is `_attempts` and `_attempt`: one screen. `preparing.py` says how a run begins, `attempts.py` and
`concluding.py` how its parts end, `handin.py` what counts as handing in, `iteration.py` what one iteration is. Imports
all of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from journeyman.agent import NOTHING_AROUND, Agent, Host, In, Out
from journeyman.cancel import Abort, current_scope, is_cancellation, is_failure
from journeyman.contexts import ErrorCode
from journeyman.endings import Ending
from journeyman.events.run import Callbacks, Listener
from journeyman.guard import guarding
from journeyman.loop.attempts_part import Finished, accept, begin_attempt, out_of_attempts, out_of_iterations, reject
from journeyman.loop.conclude import announce, conclude, failed_inside
from journeyman.loop.execution import Execution, Options, begin, current_path, current_run
from journeyman.loop.hand_in import Candidate
from journeyman.loop.iteration import iterate
from journeyman.loop.prepare import Unprepared, prepare
from journeyman.loop.record import Conversation
from journeyman.loop.validation import judge
from journeyman.model import opened
from journeyman.result import Failure, Result
from journeyman.types import Message


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

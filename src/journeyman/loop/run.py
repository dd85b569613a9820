"""Running an agent: attempts, each of iterations until an output is handed in, which is then validated.

`_attempts` and `_iterations` are the loop; what stands above them opens and closes a run, what stands below begins and
ends an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from journeyman.agent import DEFAULT_RUNTIME, Agent, Deps, In, Out, Runtime
from journeyman.budget import open_budget
from journeyman.cancellation import Abort, is_awaited, is_cancellation, is_failure
from journeyman.definition.data import copy_with
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.endings import (
    AttemptsContext,
    ErrorCode,
    ErrorInfo,
    InvalidInputContext,
    IterationsContext,
    PromptContext,
)
from journeyman.errors import name_and_words
from journeyman.events import AttemptStarted, Callbacks, Listener, ValidationFailed
from journeyman.gate import enter_guard
from journeyman.inbox.inbox import current_conversation, enter_conversation
from journeyman.journal import TypedCodec
from journeyman.loop.calls import finish
from journeyman.loop.finish import announce, conclude, failed_inside, known_end, left_behind
from journeyman.loop.iteration import iterate
from journeyman.loop.pending import refuse_to_wait, run_or_pause
from journeyman.loop.prepare import Unprepared, adapt_to_server, begin, prepare
from journeyman.loop.replay import decide_once, first_state, recall
from journeyman.loop.state import (
    Attempt,
    Candidate,
    Finished,
    Options,
    Outcome,
    PausingOptions,
    Run,
    RunOptions,
    attempt_place,
    call_with_deps,
    enter,
    input_for_functions,
    outside_of,
)
from journeyman.loop.validation import Verdict, validate
from journeyman.loop.watch import ANYWHERE
from journeyman.model import opened
from journeyman.prompt import ErrorPromptContext, PromptBlank, PromptFailed, default_error_prompt, make_content
from journeyman.result import Failure, Pending, Result, fail_before_start
from journeyman.tools.check import n_taken
from journeyman.tools.context import isolated
from journeyman.types import Content, Message, Text, ToolResult

_log = logging.getLogger("journeyman")
ACCEPTED = "Accepted."
"""The result of the call that handed in an output that passed. A model refuses a conversation in which a call has no
result, so the history that the caller gets could not be continued without it."""


@overload
async def run(agent: Agent[Out, In], input: In, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
async def run(agent: Agent[Out, In, Deps], input: In, *, deps: Deps, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
async def run(agent: Agent[Out, str], input: Content, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
async def run(
    agent: Agent[Out, str, Deps], input: Content, *, deps: Deps, **options: Unpack[RunOptions]
) -> Result[Out]: ...
@overload
async def run(
    agent: Agent[Out, In, Any], input: In | Pending, *, wait: Literal[False], **options: Unpack[PausingOptions]
) -> Result[Out] | Pending: ...
@refuse_old_arguments
async def run(  # noqa: PLR0913 - one for each option, all by name
    agent: Agent[Out, Any, Any],
    input: object,
    *,
    deps: object = None,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    runtime: Runtime | None = None,
    wait: bool = True,
    results: Mapping[str, object] | None = None,
) -> Result[Out] | Pending:
    """Run `agent` on `input`, and return how it ended.

    An agent that takes a text also takes content: texts and `Image`, `Document` and `Audio`, in a list. Its functions
    are given the words; the files follow what `prompt` makes of them.

    `deps` is what the agent's tools and functions use, of the type that it declares. `max_attempts` replaces
    `agent.limits.attempts` for this run. `history` is an earlier conversation to continue; what could not be sent of it
    is repaired. `abort` ends the run with `Failure(EXECUTION_CANCELLED)`. `callbacks` are called at the steps of the
    run, and `on_event` with every event, in order. `runtime` is what surrounds the run: a journal, approvals,
    telemetry.

    With `wait=False`, a run in which external tools are called, or somebody is asked and there is no approver, returns
    a `Pending`. It goes on as `run(agent, pending, results={…}, wait=False)`, with results by the ids of what is open;
    for a question, that is a decision, such as `Allow()`, or a text. What is not given stays open.

    Wrong arguments end it, too: `Failure(INVALID_INPUT)` lists them all.

    Raises:
        asyncio.CancelledError: the surrounding task was cancelled. Nothing that the run started is alive by then.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        model = repr(agent) if isinstance(agent, str) and ":" in agent else "…"
        wrong = f"the agent is {agent!r}. Pass an Agent(name='assistant', model={model})"
        return fail_before_start(InvalidInputContext(issues=(wrong,)))
    options = Options(
        deps=deps,
        max_attempts=max_attempts,
        callbacks=callbacks,
        listeners=() if on_event is None else (on_event,),
        abort=abort,
        history=history,
        runtime=DEFAULT_RUNTIME if runtime is None else runtime,
    )
    if not wait:
        return await run_or_pause(agent, input, options, results=results, carry_out=carry_out)
    if results is not None or isinstance(input, Pending):
        return refuse_to_wait()
    return await carry_out(begin(agent, input, options))


_run: Callable[..., Coroutine[Any, Any, Result[Any] | Pending]] = run
"""For whoever hands its options on: no overload takes both kinds of `wait`."""


@overload
def run_sync(agent: Agent[Out, In], input: In, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
def run_sync(agent: Agent[Out, In, Deps], input: In, *, deps: Deps, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
def run_sync(agent: Agent[Out, str], input: Content, **options: Unpack[RunOptions]) -> Result[Out]: ...
@overload
def run_sync(
    agent: Agent[Out, str, Deps], input: Content, *, deps: Deps, **options: Unpack[RunOptions]
) -> Result[Out]: ...
@overload
def run_sync(
    agent: Agent[Out, In, Any], input: In | Pending, *, wait: Literal[False], **options: Unpack[PausingOptions]
) -> Result[Out] | Pending: ...
@refuse_old_arguments
def run_sync(  # noqa: PLR0913 - see run
    agent: Agent[Out, Any, Any],
    input: object,
    *,
    deps: object = None,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    runtime: Runtime | None = None,
    wait: bool = True,
    results: Mapping[str, object] | None = None,
) -> Result[Out] | Pending:
    """Run `agent` from a program that has no event loop; the same as `run`, also with `wait=False`.

    Raises:
        RuntimeError: an event loop is running here; await `run` instead.
    """
    if _has_loop():
        raise RuntimeError("An event loop is running here, so run_sync would block it. Use 'await run(…)' instead.")
    return asyncio.run(
        _run(
            agent,
            input,
            deps=deps,
            max_attempts=max_attempts,
            callbacks=callbacks,
            on_event=on_event,
            abort=abort,
            history=history,
            runtime=runtime,
            wait=wait,
            results=results,
        )
    )


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def carry_out(run: Run) -> Result[Any]:
    """Do the run that was begun, and return how it ended."""
    leave = enter(path=run.path, run=run)
    code: ErrorCode | None = ErrorCode.EXECUTION_CANCELLED
    watch, result = run.watch, None
    try:
        # Asked before anything that could refuse the run: what has ended in an earlier life is taken as it is, whatever
        # the arguments or limits are now.
        known = await known_end(run)
        if known is not None:
            code = known.code if isinstance(known, Failure) else None
            result = known
            return known
        try:
            # In a task of its own: a tool or a client that swallows its cancellation can then be left behind, and does
            # not hold the caller.
            ended = await run.scope.carry(_run_to_end(run))
        finally:
            if run.scope.state == "abandoned":
                run = left_behind(run)
        result = await conclude(run, ended)
        code = result.code if isinstance(result, Failure) else None
        return result
    except BaseException as error:
        if not is_cancellation(error):
            raise
        is_told = run.watch is not None and run.watch.is_over
        if not is_told and run.scope.follow_above():  # its own end is told, and then that of the run above
            result = await conclude(run, None)
            code = result.code if isinstance(result, Failure) else None
        if isinstance(error, BaseExceptionGroup):
            # A group of tasks wraps the cancellation in a group. Whoever cancelled this task waits for a plain
            # `CancelledError`: `asyncio.timeout` would take a group for a failure.
            raise asyncio.CancelledError from error
        raise
    finally:
        leave()
        run.end(code)
        # After the run's own last event, which the tape still has to hear.
        if watch is not None and (own_tape := watch.own_tape) is not None:
            how = "cancelled" if result is None else "failure" if code is not None else "success"
            await own_tape.end(how, code)


async def _run_to_end(run: Run) -> Finished | ErrorInfo:
    """Do the whole run, and return its end. A failure that is raised on the way becomes an `ErrorInfo`."""
    # Not where somebody can be asked already: the user of a chat is nearer than whoever watches the recording.
    around, outside = current_conversation.get(), outside_of(run)
    if outside is not None and around.asker is None:
        enter_conversation(copy_with(around, asker=outside.questions))
    try:
        await announce(run)
        with ANYWHERE if run.watch is None else run.watch.active():
            run.prepared, run.clock.prepared_s = await prepare(run), run.clock.now()
            async with opened(run.prepared.model):  # a server of one's own tells the window by now
                run.prepared = await adapt_to_server(run, run.prepared)
                enter_guard(run.prepared.guard)
                return await _attempts(run)
    except Unprepared as unprepared:
        return unprepared.ending
    except BaseException as error:
        if not is_failure(error):
            raise
        return failed_inside(run, error)


async def _attempts(run: Run) -> Finished | ErrorInfo:
    """Attempt until an output passes."""
    for attempt in range(1, run.max_attempts + 1):
        await _begin_attempt(run, attempt)
        candidate = await _iterations(run)
        if isinstance(candidate, ErrorInfo):
            return candidate
        verdict = await validate(run, candidate)
        if isinstance(verdict, ErrorInfo):
            return verdict
        if verdict.report.passed:
            return await _accept(run, candidate, verdict)
        ending = await _reject(run, candidate, verdict)
        if ending is not None:
            return ending
    return _out_of_attempts(run)


async def _iterations(run: Run) -> Candidate | ErrorInfo:
    """Iterate until an output is handed in."""
    for _ in range(run.agent.limits.iterations):
        iterated = await iterate(run)
        if isinstance(iterated, ErrorInfo):
            return iterated
        candidate = await run.prepared.hand_in.look(run, iterated)
        if candidate is not None:
            return candidate
    done, most, has_draft = run.attempt.iteration, run.agent.limits.iterations, run.prepared.hand_in.has_draft
    never = bool(run.calls.tools or run.agent.plan.specs) and not any(
        [message.tool_uses for message in run.history.messages]
    )
    return run.ending(
        IterationsContext(iteration_count=done, max_iterations=most, has_draft=has_draft, never_called_tools=never)
    )


async def _begin_attempt(run: Run, attempt: int) -> None:
    """Give the attempt its own state, cache, counters and budget, and tell that it begins."""
    # Also between attempts: a run that is stopped there must not tell of an attempt that never started.
    await run.scope.checkpoint()
    run.ledger.begin_attempt()
    # A draft is one attempt's: after a verdict, a submit alone comes before any output again.
    run.prepared.hand_in.begin_attempt()
    now, each, budget = run.clock.now(), run.agent.limits.per_attempt, run.budget
    if each is not None:
        budget = open_budget(each, scope="attempt", parent=run.budget)
        budget.begin(now)
        recall(budget, run.options.journal, f"attempt/{attempt}/")
        run.scope.limit_attempt(each.seconds)
    run.attempt = Attempt(attempt, now, budget, phase="iteration", is_open=True)
    await run.tell(lambda: AttemptStarted(**attempt_place(run)))
    states = run.prepared.states
    states.number = attempt
    if run.agent.attempt_state is not None:
        make: Callable[..., object] = run.agent.attempt_state
        numbered = n_taken(make, 2) is None  # it needs a third
        # Both get copies: a function that kept or changed the live state would change that of the next call.
        given = (await input_for_functions(run), isolated(states.run, "run"))

        async def made_state(_: Run) -> object:
            state = call_with_deps(run, make, *given, attempt) if numbered else make(*given)
            return await state if is_awaited(state) else state

        state = await first_state(run, run.attempt.outer_step("state", "state"), make, made_state)
        states.attempt = isolated(state, "attempt")


async def _accept(run: Run, candidate: Candidate, verdict: Verdict) -> Finished:
    """Answer the call that handed the output in, and close the attempt."""
    if candidate.call is not None:
        # Only now, after the verdict: the result of the call that hands in is the verdict, and each call has one
        # result.
        await finish(run, candidate.call, Outcome(ToolResult(ACCEPTED, tool_use_id=candidate.call.id)))
    await run.complete_attempt(succeeded=True)
    return Finished(verdict.value, candidate.terminal_result)


async def _reject(run: Run, candidate: Candidate, verdict: Verdict) -> ErrorInfo | None:
    """Tell the model what is wrong with its output, and close the attempt. Return an `ErrorInfo` if the error prompt
    fails."""
    await run.tell(lambda: ValidationFailed(**attempt_place(run), feedback=verdict.report.feedback))
    run.enter("prompt_generation", "building the error prompt")
    try:
        step = run.attempt.outer_step("feedback", "feedback")
        feedback = await decide_once(run, step, lambda run: _feedback(run, verdict), codec=TypedCodec[str](str))
    except PromptFailed as failed:
        return run.ending(PromptContext(prompt="error", reason=failed.reason), failed.__cause__ or failed)
    run.enter("validation", "giving the feedback")
    await _give_back(run, candidate, feedback)
    await run.complete_attempt(succeeded=False)
    return None


async def _feedback(run: Run, verdict: Verdict) -> str:
    """Return the feedback for the model. On the last attempt nobody will read it, so the caller's function is not
    asked."""
    failed = verdict.report.layers[-1]
    rejection = ErrorPromptContext(
        feedback=failed.feedback,
        layer=failed.name,
        description=failed.description,
        report=verdict.report,
        attempt=run.attempt.number,
        max_attempts=run.max_attempts,
    )
    if run.attempt.number == run.max_attempts:
        return default_error_prompt(rejection)
    try:
        given = call_with_deps(run, run.agent.error_prompt, rejection)
        given = await given if is_awaited(given) else given
        content = await make_content("" if given is None else given)  # pyright: ignore[reportUnnecessaryComparison] - users' code may not be typed
    except PromptBlank:
        content = ()
    except PromptFailed:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise PromptFailed(f"it raised {name_and_words(error)}") from error
    words = "\n".join(block.text for block in content if isinstance(block, Text))
    if words:
        return words
    _log.warning(
        "%s: the error prompt gave no words after attempt %d, so the model reads the default. Let it return a text.",
        run.path[-1],
        run.attempt.number,
    )
    return default_error_prompt(rejection)


async def _give_back(run: Run, candidate: Candidate, feedback: str) -> None:
    if candidate.call is None:
        run.history.say(Text(feedback))
        return
    # Within the result, if nobody says otherwise: text that follows results teaches models to end their turn after
    # calls.
    in_result = candidate.member is None or candidate.member.output.feedback_role == "result"
    text = feedback if in_result else "Error: the output did not pass validation. The reason follows."
    await finish(run, candidate.call, Outcome(ToolResult(text, is_error=True), "rejected"))
    if not in_result:
        run.history.say(Text(feedback))


def _out_of_attempts(run: Run) -> ErrorInfo:
    report = run.report
    context = AttemptsContext(
        attempts=len(run.records), max_attempts=run.max_attempts, last_error=report.feedback if report else ""
    )
    return run.ending(context, report.layers[-1].error if report and report.layers else None)

"""One call of a tool, from top to bottom in the order in which it happens.

Every call is answered exactly once, whatever its tool does. Consecutive calls of parallel tools run together; every
other call waits for those before it, and those behind it wait for it. Only a cancellation that is meant for the run
leaves here as one; all else becomes an `Outcome`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

from journeyman.cancellation import Scope, call_in, is_awaited, is_failure, log_caught
from journeyman.definition.json_numbers import LONG, read_object, write_json
from journeyman.errors import InvalidArguments, OutcomeUnknown, Rejected, StepTooLarge, count
from journeyman.events import CallAbandoned, GateDecided, SandboxRefused, ToolCalled, ToolFinished, ToolProgress
from journeyman.gate import DECISION_WORDS, Deny, GateRequest, Stop, make_seen_result
from journeyman.journal import NO_JOURNAL, Reservation, TypedCodec, about_call
from journeyman.loop.approvers import find_approver
from journeyman.loop.replay import OutcomeCodec, StepCodec, decide_once, facts_of_step, note_outcome, recall_runs
from journeyman.loop.state import Call, Outcome, Run, StepTally, current_tally, enter, iteration_place, wait_while_held
from journeyman.loop.watch import ANYWHERE
from journeyman.result import ToolKind
from journeyman.tools.collection import do_aside, give_turns, is_large
from journeyman.tools.context import RefusedThing, ToolContext, own_copy
from journeyman.tools.results import error_result, to_result
from journeyman.tools.tools import AnyTool, Middleware, MiddlewareCall
from journeyman.tools.written import quoting
from journeyman.types import Effect, ToolReference, ToolResult, ToolUse

Arguments = dict[str, object]
Execute: TypeAlias = Callable[[Run, AnyTool, ToolUse, Arguments], Awaitable[Outcome]]
"""Runs the handler of a call that may be made."""

SKIPPED = "Error: not run, because the user wrote something new. Read it first; call again if that is still right."
"""The result of a call that had not begun when steering came."""

STOPPED = "Error: not run, because an earlier call has stopped the run."
"""The result of a call that follows on one that has stopped the run."""

_TOO_MANY = "Error: not run: this run may make {left}, and this answer asks for {asked}: none was made. Ask for fewer."

_NOT_FOUND = (
    "Error: not run: you have not read yet what {name} does and takes. "
    "Find it with tool_search, by its name, read that, and call it then."
)

_FAILING = "Error: not run: {name} failed {times} in a row. Do not call it again; go on without it, or say so."

_SAYS_NOTHING = frozenset(("denied", "over_budget", "interrupted", "skipped", "failing"))
"""The kinds of failure for which the tool is not to blame."""

_NOT_RUN = _SAYS_NOTHING | {"unknown", "invalid_input", "timeout"}
"""The kinds of failure whose text is the loop's own."""


async def run_calls(run: Run, uses: Sequence[ToolUse]) -> tuple[Call, ...]:
    """Run the calls and stage their results. Return them in call order."""
    if not (run.agent.limits.whole_responses and run.attempt.budget.limits_calls):
        return await _run_groups(run, uses)
    await _take_all(run, uses)
    try:
        return await _run_groups(run, uses)
    finally:
        # What was taken and not used, because a call was denied or the run stopped, is left for later responses.
        run.attempt.budget.count_calls(-(run.calls.n_taken or 0))
        run.calls.n_taken, run.calls.refusal = None, ""


async def _take_all(run: Run, uses: Sequence[ToolUse]) -> None:
    """Reserve calls of the run's limits for all calls of a response at once, or refuse all of them. A call that an
    earlier life of the run has begun is counted already."""
    budget = run.attempt.budget
    known = {key for key, _ in run.options.journal.stored(run.attempt.key("call/"))}
    counted = [use for use in uses if use.name in run.calls.tools and use.name not in run.prepared.hand_in.tools]
    n_open = len([use for use in counted if run.attempt.key(f"call/{use.id}") not in known])
    is_taken = False

    async def take(_: Run) -> str:
        nonlocal is_taken
        left, is_taken = budget.left().calls or 0, budget.take_calls(n_open)
        return "" if is_taken else _TOO_MANY.format(left=count(left, "more call"), asked=len(counted))

    run.calls.refusal = await decide_once(run, run.attempt.step("calls", "calls"), take, codec=TypedCodec[str](str))
    if run.calls.refusal:
        n_open = 0
    elif not is_taken:  # an earlier life has promised them
        budget.count_calls(n_open)
    run.calls.n_taken = n_open


async def _run_groups(run: Run, uses: Sequence[ToolUse]) -> tuple[Call, ...]:
    done: list[Call] = []
    for use in uses:
        if len(use.input_json) >= LONG:  # which was read for the history, and is read again for its event
            await give_turns()
        await _look_behind(run, use)
    for group in _groups(run, uses) if len(uses) > 1 else (uses,):
        # Also between the calls of one response: an abort must not wait for those that have not begun.
        if run.scope.is_due():
            await run.scope.checkpoint()
        # All of a group before the first of them begins, so that their beginnings are told in the order of the calls.
        for use in group:
            run.calls.announced[use.id] = use
            await run.tell(partial(_called_event, run, use))
        if len(group) == 1:
            done.append(await _run_call(run, group[0], _reserve(run, group[0])))
        else:
            done += await _run_together(run, group)
        if run.calls.stop is None:  # those that run together all end, as they would in another life of the run
            stops = [call.outcome.stop for call in done if call.outcome is not None]
            run.calls.stop = next((stop for stop in stops if stop is not None), None)
    return tuple(done)


def _groups(run: Run, uses: Sequence[ToolUse]) -> Iterator[list[ToolUse]]:
    """Cut the calls into groups: neighbours whose tools are parallel, and single others."""
    group: list[ToolUse] = []
    for use in uses:
        tool, _ = _resolve_call(run, use)
        if tool is not None and tool.parallel:
            group.append(use)
            continue
        if group:
            yield group
            group = []
        yield [use]
    if group:
        yield group


def _called_event(run: Run, use: ToolUse) -> ToolCalled:
    kind = _kind_of_call(run, use)
    return ToolCalled(**iteration_place(run), tool_use_id=use.id, tool_name=use.name, kind=kind, tool_input=use.input)


async def _run_together(run: Run, group: Sequence[ToolUse]) -> list[Call]:
    places = asyncio.Semaphore(run.agent.limits.max_concurrency)

    async def in_place(use: ToolUse, reservation: Reservation) -> Call:
        async with places:
            return await _run_call(run, use, reservation)

    # A failure of a call is an outcome and never raised here: the group cancels siblings only when the run is stopped.
    async with asyncio.TaskGroup() as tasks:
        # Reserved in the order of the calls, and not in the order in which they get a place: a journal compares that
        # order with an earlier life's.
        running = [tasks.create_task(in_place(use, _reserve(run, use))) for use in group]
    return [task.result() for task in running]


def _kind_of_call(run: Run, use: ToolUse) -> ToolKind:
    """Return the kind of a call: of a tool of the agent's, of one that hands in, or of no known tool."""
    own = run.prepared.hand_in.tools.get(use.name)
    if own is not None:
        return own.kind
    return "tool" if use.name in run.calls.tools else "unknown"


def _resolve_call(run: Run, use: ToolUse) -> tuple[AnyTool | None, ToolUse]:
    """Return the tool that is called, if there is one, and the call under its name: a call of the tool that passes
    calls on is another spelling of one of the tool behind it."""
    tool = None if use.name in run.prepared.hand_in.tools else run.calls.tools.get(use.name)
    return run.calls.passed_on.get(use.id, (tool, use))


async def _look_behind(run: Run, use: ToolUse) -> None:
    """Note the tool behind the one that is called, if that passes calls on. It is read once, since it may be long."""
    tool, _ = _resolve_call(run, use)
    if tool is None or not tool.is_proxy:
        return
    try:
        given = await do_aside(use.malformed if use.malformed is not None else use.input_json, tool.parse)
    except InvalidArguments:
        return
    behind = run.calls.tools.get(str(given["name"]))
    if behind is not None and behind.deferred:
        arguments = write_json(given["arguments"]).decode()
        run.calls.passed_on[use.id] = behind, ToolUse(use.id, behind.name, arguments)


def _is_found(run: Run, tool: AnyTool) -> bool:
    """Tell whether the model has read what the tool takes, where it has to find that first."""
    return not tool.deferred or any(
        isinstance(part, ToolReference) and part.name == tool.name
        for message in run.history.messages
        for block in message.content
        if isinstance(block, ToolResult) and not isinstance(block.content, str)
        for part in block.content
    )


def _reserve(run: Run, use: ToolUse) -> Reservation:
    """Reserve the call's place in the journal, in the order of the calls."""
    journal = run.options.runtime.journal
    if journal is None:
        return NO_JOURNAL
    tool, _ = _resolve_call(run, use)
    effect = run.calls.effects.get(use.name) or ("pure" if tool is None else effect_of(run, tool))
    step = run.attempt.step("call", f"call/{use.id}", call=use.id)
    return journal.reserve(step, effect=effect, about=lambda: about_call(use))


async def _run_call(run: Run, use: ToolUse, reservation: Reservation) -> Call:
    if reservation is NO_JOURNAL:
        return await _made_call(run, use, reservation)
    tool, _ = _resolve_call(run, use)
    with StepTally(run, run.calls.tally, is_stored=tool is not None and tool.journals_itself):
        return await _made_call(run, use, reservation)


async def _made_call(run: Run, use: ToolUse, reservation: Reservation) -> Call:
    inbox, own, started = run.options.inbox, run.prepared.hand_in.tools.get(use.name), run.clock.now()
    if reservation.is_known:
        outcome: Outcome | None = await recall_outcome(run, use, reservation)
    elif run.calls.stop is not None:
        outcome = await settle_outcome(run, reservation, Outcome.failure("skipped", STOPPED))
    elif run.calls.refusal:
        outcome = await settle_outcome(run, reservation, Outcome.failure("over_budget", run.calls.refusal))
    # Not what an earlier life has begun, or has asked about: the model would be told that it was not made, and its
    # effects would come twice.
    elif (
        inbox is not None
        and inbox.has_steering
        and not any(run.options.journal.stored(run.attempt.key(f"call/{use.id}/")))
    ):
        outcome = await settle_outcome(run, reservation, Outcome.failure("skipped", SKIPPED))
    elif own is None:
        if run.watch is not None:
            await wait_while_held(run)
        outcome = await _outcome(run, use, reservation)
    else:
        result = await own.handle(use)
        outcome = None if result is None else Outcome(result, "rejected" if result.is_error else None)
    if outcome is not None:
        # Stored after each call and not after all: what one has done is not forgotten when the next one ends the
        # process.
        await finish(run, use, outcome, duration_s=run.clock.now() - started)
        if run.options.store_step is not None:
            await run.options.store_step()
    return Call(use, outcome)


async def recall_outcome(run: Run, use: ToolUse, reservation: Reservation) -> Outcome:
    """Return what came of a call in an earlier life of the run."""

    async def never() -> Outcome:
        raise AssertionError("A step that is known was to be done again.")

    step = _codec_of(run)
    try:
        outcome = await reservation.step(never, codec=step)
    except OutcomeUnknown as unknown:
        return await settle_outcome(run, reservation, Outcome.failure("interrupted", f"Error: {unknown}"))
    # Neither its tool nor its approver is asked again.
    asked = run.options.journal.stored(run.attempt.key(f"call/{use.id}/approval/"))
    recall_runs(run, *[facts_of_step(stored) for _, stored in asked], *([] if step.known is None else [step.known]))
    return outcome


async def settle_outcome(run: Run, reservation: Reservation, outcome: Outcome) -> Outcome:
    """Store the outcome of a call that was not made. Another life of the run could decide otherwise, and must find this
    one."""
    await reservation.settle(outcome, codec=_codec_of(run))
    return outcome


async def _outcome(run: Run, use: ToolUse, reservation: Reservation) -> Outcome:
    """Return the outcome of one call. It is refused if its tool is unknown or has failed too often, or if no call is
    left."""
    most, (tool, use) = run.agent.limits.tool_failures, _resolve_call(run, use)
    if most is not None and run.calls.failures.get(use.name, 0) >= most:
        return Outcome.failure(
            "failing", _FAILING.format(name=use.name, times=count(run.calls.failures[use.name], "time"))
        )
    if tool is None or not _is_found(run, tool):
        text = f"Error: Unknown tool {use.name}{_list_there(run)}" if tool is None else _NOT_FOUND.format(name=use.name)
        outcome = Outcome.failure("unknown", text)
        # An earlier life has shown it, and another may have it again: that one must find this outcome.
        return await settle_outcome(run, reservation, outcome) if use.name in run.calls.effects else outcome
    if run.calls.n_taken is not None:
        is_left, run.calls.n_taken = True, run.calls.n_taken - 1
    else:
        is_left = not run.attempt.budget.limits_calls or run.attempt.budget.take_calls()
    if not is_left:
        outcome = Outcome.failure("over_budget", "Error: not run: this run may make no more tool calls.")
    else:
        if run.calls.tally is not None:
            run.calls.tally.count_call()
        outcome = await call_through_gates(run, tool, use, NO_JOURNAL if tool.journals_itself else reservation)
    is_decided = outcome.error in DECIDED or (tool.journals_itself and outcome.error == "timeout")
    if is_decided:
        return await settle_outcome(run, reservation, outcome)
    run.calls.n_unstored += tool.journals_itself
    return outcome


def _list_there(run: Run) -> str:
    """Say what tools there are now, where these are not the same all the time."""
    if not run.agent.plan.sources:
        return ""
    there = [tool.name for tool in run.calls.tools.values() if not tool.deferred]
    return f". Now there {'are' if len(there) > 1 else 'is'}: {', '.join(there) or 'no tool'}"


def _codec_of(run: Run) -> StepCodec[Outcome]:
    """Return the codec for the outcome of the call that goes on here, with the runs that its tool, or who judged it,
    has begun."""
    tally, uncounted = current_tally.get(), ("over_budget", "skipped")
    hands_in = tally is not None and tally.hands_in
    return StepCodec(
        "call", OutcomeCodec(run), tally, counts=lambda outcome: int(not hands_in and outcome.error not in uncounted)
    )


DECIDED: Final = frozenset(("denied", "over_budget"))
"""What others decided, who might decide differently another time."""


def effect_of(run: Run, tool: AnyTool) -> Effect:
    """Return the effect of a tool on the world: the one that it declares, or else the agent's."""
    return tool.effect or run.agent.default_effect


async def call_through_gates(
    run: Run, tool: AnyTool, use: ToolUse, reservation: Reservation, *, execute: Execute | None = None
) -> Outcome:
    """Validate the arguments, ask the gates, and run the tool with what they let through."""
    work = execute or execute_call
    try:
        arguments = await do_aside(use.malformed if use.malformed is not None else use.input_json, tool.parse)
    except InvalidArguments as invalid:
        refused = error_result(invalid)
        told = quoting(refused.text, use.malformed, may_be_quoted=tool.may_be_quoted)
        return Outcome(replace(refused, content=told), "invalid_input")
    guard = run.prepared.guard
    if not (guard.gates or tool.call_path.gates):
        return await _do_as_step(run, reservation, lambda: work(run, tool, use, arguments))
    box = None if tool.find_box is None else await guard.find_box(tool.find_box, own=tool.call_path.gates)
    asked = replace(_request_of(run, tool, use), box=box)
    allowed = await guard.consult(asked, find_approver(run), own=tool.call_path.gates)
    run.record(lambda: _decided_event(run, asked, allowed))
    if isinstance(allowed, Deny | Stop):
        return Outcome.failure("denied", f"Error: denied: {allowed.reason}")
    # The very object: a gate that changes nothing hands on what it was given, and then nothing has to be parsed again.
    if allowed is asked:
        return await _do_as_step(run, reservation, lambda: work(run, tool, use, arguments))
    try:
        arguments = await do_aside(allowed.input_json, tool.parse)
    except InvalidArguments as invalid:
        return Outcome.failure("invalid_input", f"Error: denied: the gate's own arguments do not fit. {invalid}")

    async def execute_rewritten() -> Outcome:
        outcome = await work(run, tool, use, arguments)
        # The model goes on from what it asked for, and would misread the result of a call with other arguments.
        return outcome.noting(f"The call was made with other arguments: {allowed.input_json}")

    return await _do_as_step(run, reservation, execute_rewritten)


def _request_of(run: Run, tool: AnyTool, use: ToolUse) -> GateRequest:
    return GateRequest(
        path=run.path,
        tool_use_id=use.id,
        tool_name=use.name,
        arguments=use.input,
        effect=effect_of(run, tool),
        untrusted=bool(tool.untrusted),
        n_model_calls=run.ledger.n_model_calls,
        permission_kind=tool.permission_kind,
        proxied=tool.proxied,
        external=tool.external,
        server_names=tool.server_names,
    )


async def _may_keep(run: Run, tool: AnyTool, use: ToolUse, startup_files: Sequence[str]) -> bool:
    """Ask the gates of a call that goes on whether startup files that its command has made get their names back."""
    asked = replace(_request_of(run, tool, use), startup_files=tuple(startup_files))
    # The step of the call holds what comes of the answer. To wait there for one from elsewhere would lose the output of
    # the command with this process.
    approve = find_approver(run, is_in_step=True)
    allowed = await run.prepared.guard.consult(asked, approve, own=tool.call_path.gates)
    return not isinstance(allowed, Deny | Stop) and allowed.digest == asked.digest


async def _do_as_step(run: Run, reservation: Reservation, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Do the work of a call as a step of the journal. It begins here, when nobody has to be asked any more."""
    if reservation is NO_JOURNAL:
        return await work()
    stop: str | None = None

    async def do_work() -> Outcome:
        nonlocal stop
        outcome = await work()
        stop = outcome.stop
        return outcome

    try:
        return await reservation.step(do_work, codec=_codec_of(run))
    except StepTooLarge as error:  # what it did, it has done
        outcome = Outcome.failure("raised", f"Error: the call was made, but {error}")
        return await settle_outcome(run, reservation, replace(outcome, stop=stop))


def _decided_event(run: Run, asked: GateRequest, allowed: GateRequest | Deny | Stop) -> GateDecided:
    """Return the event that tells what the gates say of a call."""
    told = GateDecided(
        **iteration_place(run), tool_use_id=asked.tool_use_id, tool_name=asked.tool_name, decision="allow"
    )
    if isinstance(allowed, Deny | Stop):
        return replace(told, decision=DECISION_WORDS[type(allowed)], reason=allowed.reason)
    if allowed is asked:
        return told
    return replace(told, decision="rewrite", arguments=read_object(allowed.input_json))  # the gate may change its own


def execute_call(run: Run, tool: AnyTool, use: ToolUse, arguments: Arguments) -> Coroutine[object, object, Outcome]:
    """Run the handler, or take its result from the cache."""
    return _execute_cached(run, tool, use, arguments) if tool.cache else execute_handler(run, tool, use, arguments)


async def _execute_cached(run: Run, tool: AnyTool, use: ToolUse, arguments: Arguments) -> Outcome:
    """Take the result from the cache; who comes first runs the handler, and shares its result if it succeeds."""
    cache = run.calls.cache if tool.cache == "run" else run.attempt.cache
    key = tool.cache_key(arguments)
    known = cache.get(key)
    if known is not None:
        # Shielded: whoever waits may be cancelled alone, and the result is everybody's.
        return replace(await asyncio.shield(known), cached=True)
    # Before the handler is called, so that an equal call at the same time waits for this one.
    cache[key] = shared = asyncio.get_running_loop().create_future()
    try:
        outcome = await execute_handler(run, tool, use, arguments)
    except BaseException:
        # Only a stop of the run raises here, and it stops those who wait for this result as well.
        del cache[key]
        shared.cancel()
        raise
    # A failure is not kept, since it may pass; those who wait already share it, as they share a success.
    if outcome.error is not None:
        del cache[key]
    shared.set_result(outcome)
    return outcome


async def execute_handler(run: Run, tool: AnyTool, use: ToolUse, arguments: Arguments) -> Outcome:
    """Run the handler, which may end the run, however its own call ends."""
    needs_context = tool.wants_context or run.agent.tool_middleware or tool.call_path.middleware
    # Of a large input, a tool that says that it reads it gets a copy that is made beside the loop.
    is_aside = needs_context and tool.asked_input is not object and is_large(run.input)
    copied = [await do_aside(run.input, own_copy)] if is_aside else ()
    context = _context(run, tool, use, copied) if needs_context else None
    try:
        outcome = await _run_handler(run, tool, use, arguments=arguments, context=context)
    finally:
        stop = None if context is None else context.close()
    if tool.untrusted and outcome.error not in _NOT_RUN:  # before it is stored: the tool may be another one later
        outcome = replace(outcome, result=replace(outcome.result, untrusted=True))
    return outcome if stop is None else replace(outcome, stop=stop)


async def _run_handler(
    run: Run, tool: AnyTool, use: ToolUse, *, arguments: Arguments, context: ToolContext[Any] | None
) -> Outcome:
    """Run the handler within its time, and adopt the states it set if it succeeded."""
    try:
        if context is not None and (run.agent.tool_middleware or tool.call_path.middleware):
            work = _through_middlewares(run, tool, use, context=context, arguments=arguments)
        else:
            work = _invoke(run, tool, use, context=context, arguments=arguments)
        with ANYWHERE if run.watch is None else run.watch.active(use):
            result = await (work if tool.timeout_s is None else _within(run, use, tool.timeout_s, work))
    except _TimedOut:
        return Outcome.failure("timeout", f"Error: {tool.name} timed out after {tool.timeout_s:g}s")
    except BaseException as error:
        # Parsers of arguments raise SystemExit for wrong ones: that is no wish of the program to end.
        if not is_failure(error) and not isinstance(error, SystemExit):
            raise
        if not isinstance(error, Rejected):  # else the tool means it; in any case the model reads it
            log_caught(f"The tool {tool.name}", error, level=logging.DEBUG)
        return Outcome(error_result(error), "raised")
    if result.is_error:
        return Outcome(result, "rejected")
    if context is not None:
        # After the result was made: a value that cannot be sent is a failure, and a failing call changes no state.
        run.prepared.states.adopt(context)
    return Outcome(result)


class _TimedOut(Exception):
    """Our limit passed; a `TimeoutError` of the tool's own is an ordinary error."""


async def _within(run: Run, use: ToolUse, seconds: float, work: Coroutine[object, object, ToolResult]) -> ToolResult:
    # The same machine as for a run: a tool that swallows its cancellation is left behind, too.
    scope = Scope(None, run.scope.loop.time() + seconds, grace_s=run.options.runtime.grace_s)
    leave = enter(call=scope)
    try:
        result = await scope.carry(work)
    finally:
        leave()
        if scope.state == "abandoned":
            _show_abandoned(run, use)
    if result is None:
        raise _TimedOut
    return result


def _context(run: Run, tool: AnyTool, use: ToolUse, copied: Iterable[object]) -> ToolContext[Any]:
    step = run.attempt.step("call", f"call/{use.id}", call=use.id)
    return ToolContext(
        tool=tool,
        tool_use_id=use.id,
        input=run.input,
        deps=run.deps,
        agent=run.agent.name,
        path=run.path,
        attempt=run.attempt.number,
        iteration=run.attempt.iteration,
        abort=run.abort,
        states=run.prepared.states,
        progress=lambda message, part: call_in(run.scope.loop, partial(_show_progress, run, use, message, part)),
        refuse=lambda sandbox, refused: call_in(run.scope.loop, partial(_show_refusal, run, use, sandbox, refused)),
        judge=partial(_may_keep, run, tool, use),
        tasks=run.options.runtime.tasks,
        name=lambda: run.options.journal.name(step),
        step=run.options.journal.whole(step),
        copied=copied,
    )


def _show_progress(run: Run, use: ToolUse, message: str, fraction: float | None) -> None:
    """Show the progress, in the loop's thread."""
    name = _name_of_open_call(run, use)
    if name is not None:
        run.show(
            lambda: ToolProgress(path=run.path, tool_use_id=use.id, tool_name=name, message=message, fraction=fraction)
        )


def _show_refusal(run: Run, use: ToolUse, sandbox: str, refused: RefusedThing) -> None:
    """Show what was refused, in the loop's thread; also to a command that goes on after its call."""
    name = _name_of_open_call(run, use)
    if name is not None:
        run.show(
            lambda: SandboxRefused(
                path=run.path,
                tool_use_id=use.id,
                tool_name=name,
                sandbox=sandbox,
                cause=refused.cause,
                what=refused.what,
                need=refused.need,
            )
        )


def _name_of_open_call(run: Run, use: ToolUse) -> str | None:
    """Return the name of a call that goes on; None: its tool was left behind, and still reports."""
    return None if run.scope.is_over or use.id not in run.calls.announced else run.calls.announced[use.id].name


def _show_abandoned(run: Run, use: ToolUse) -> None:
    name = run.calls.announced.get(use.id, use).name
    run.show(lambda: CallAbandoned(path=run.path, tool_use_id=use.id, tool_name=name))


async def _through_middlewares(
    run: Run, tool: AnyTool, use: ToolUse, *, context: ToolContext[Any], arguments: Arguments
) -> ToolResult:
    async def innermost(call: MiddlewareCall) -> ToolResult:
        return await _invoke(run, tool, use, context=call.context, arguments=call.arguments)

    step = innermost
    for middleware in reversed((*run.agent.tool_middleware, *tool.call_path.middleware)):
        step = _wrap_middleware(middleware, step)
    returned = cast("object", await step(MiddlewareCall(tool_name=tool.name, arguments=arguments, context=context)))
    if not isinstance(returned, ToolResult):
        raise TypeError(f"a middleware returned {type(returned).__name__}, not a ToolResult")
    # Also what a middleware made: no provider takes an empty result.
    return to_result(returned)


def _wrap_middleware(
    middleware: Middleware, inner: Callable[[MiddlewareCall], Awaitable[ToolResult]]
) -> Callable[[MiddlewareCall], Awaitable[ToolResult]]:
    async def step(call: MiddlewareCall) -> ToolResult:
        given = middleware(call, inner)
        return await given if is_awaited(given) else given

    return step


async def _invoke(
    run: Run, tool: AnyTool, use: ToolUse, *, context: ToolContext[Any] | None, arguments: Arguments
) -> ToolResult:
    """Call the handler, and make the model's answer of what it returns."""
    if tool.in_thread:
        value = await _in_thread(run, use, lambda: tool.invoke(arguments, context))
    else:
        value = tool.invoke(arguments, context)
    if tool.is_async or is_awaited(value):
        value = await cast("Awaitable[object]", value)
    cap = tool.max_chars if tool.max_chars is not None else run.agent.limits.result_chars
    return to_result(value, max_chars=cap, tool_use_id=use.id)


async def _in_thread(run: Run, use: ToolUse, work: Callable[[], object]) -> object:
    """Run `work` in a daemon thread of its own, with a copy of the context. Abandon it when cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def deliver(value: object, error: BaseException | None) -> None:
        # The call may have been cancelled while its thread went on.
        if not ended.done():
            ended.set_result((value, error))

    def work_here() -> None:
        value, error = _catch_error(work)
        with suppress(RuntimeError):  # the loop may be closed by now: then nobody waits for the result
            loop.call_soon_threadsafe(deliver, value, error)

    copied = contextvars.copy_context()
    # Not the event loop's pool: the interpreter waits for the threads of a pool before it ends, so that one tool that
    # hangs would hold the program; and a pool has few threads.
    threading.Thread(target=copied.run, args=(work_here,), name=f"tool {use.name}", daemon=True).start()
    try:
        value, error = await ended
    except asyncio.CancelledError:
        _show_abandoned(run, use)
        raise
    if error is not None:
        raise error
    return value


def _catch_error(work: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread and raised there
        return None, error


async def finish(run: Run, use: ToolUse, outcome: Outcome, *, duration_s: float = 0.0) -> None:
    """Stage the result of a call, count it, and tell the listeners."""
    kind, result = _kind_of_call(run, use), outcome.result
    if result.tool_use_id != use.id:
        result = replace(result, tool_use_id=use.id)
    # A reference to a tool that this agent does not load is refused by the provider: its words are sent instead.
    if isinstance(result.content, tuple) and not any(tool.deferred for tool in run.calls.tools.values()):
        result = replace(result, content=result.parts)
    if kind == "tool" and not result.untrusted and _is_of_strangers(run, use, outcome):
        result = replace(result, untrusted=True)
    # As it will be sent, not as it was made: gates and listeners have to see the model's words.
    result = run.history.answer(result)
    if run.prepared.guard.memories and kind == "tool":
        seen = make_seen_result(
            _resolve_call(run, use)[1],
            result,
            untrusted=bool(result.untrusted),
            n_model_calls=run.ledger.n_model_calls,
            may_have_run=outcome.error not in _NOT_RUN or outcome.error == "timeout",
        )
        run.prepared.guard.see(seen)
    if run.agent.limits.tool_failures is not None and kind in ("tool", "unknown"):
        _count_failure(run, _resolve_call(run, use)[1].name, outcome)
    run.calls.announced.pop(use.id, None)
    run.calls.passed_on.pop(use.id, None)
    run.ledger.count(kind, use.name, error=outcome.error, cached=outcome.cached, duration_s=duration_s)
    if run.watch is not None:
        note_outcome(run, use, outcome)
    await run.tell(
        lambda: ToolFinished(
            **iteration_place(run),
            tool_use_id=use.id,
            tool_name=use.name,
            kind=kind,
            tool_result=result.text,
            is_error=result.is_error,
            cached=outcome.cached,
            duration_s=duration_s,
        )
    )


def _is_of_strangers(run: Run, use: ToolUse, outcome: Outcome) -> bool:
    """Tell whether a result may be a stranger's words, as the tool that was called declares now."""
    named = run.calls.tools[use.name]
    if not named.untrusted:  # what passes calls on declares it of those behind it, too
        return False
    tool = _resolve_call(run, use)[0] or named
    quotes_schema = tool.untrusted == "throughout" and outcome.error == "invalid_input"
    return (bool(tool.untrusted) and outcome.error not in _NOT_RUN) or quotes_schema


def _count_failure(run: Run, name: str, outcome: Outcome) -> None:
    """Count how often a tool has failed in a row. What was not tried says nothing about the tool."""
    if outcome.error is None:
        run.calls.failures.pop(name, None)
    elif outcome.error not in _SAYS_NOTHING:
        run.calls.failures[name] = run.calls.failures.get(name, 0) + 1

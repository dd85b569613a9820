"""Running the calls of one response: in order where order matters, side by side where it does not.

Every call is answered exactly once, whatever its tool does. Consecutive calls of parallel tools run together; every
other call waits for those before it and is waited for by those behind it.

Asking the gates about one call, and running its tool with what they let through.

Running one tool's handler: inline, in a thread, from the cache, within its time, through the middlewares.

Whatever the handler does becomes an `Outcome`; only a cancellation that is meant for the run leaves here as one.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from journeyman.cancel import is_failure
from journeyman.errors import InvalidArguments, OutcomeUnknown
from journeyman.events import CallAbandoned, ToolCalled, ToolFinished, ToolProgress
from journeyman.gate import Approval, Approver, Decision, Deny, GateRequest, Guard, Stop, seen_of
from journeyman.journal import Reservation
from journeyman.loop.record import Call, Conversation, HandInTool, Outcome, OutcomeCodec
from journeyman.loop.watch import Watch
from journeyman.result import ToolKind
from journeyman.tools.tools import Middleware, MiddlewareCall, Tool, ToolContext, error_result, to_result
from journeyman.types import ToolResult, ToolUse

Arguments = dict[str, object]


def execute(
    talk: Conversation, tool: Tool[..., Any], use: ToolUse, arguments: Arguments
) -> Coroutine[object, object, Outcome]:
    """Run the handler, or take its result from the cache."""
    return _cached(talk, tool, use, arguments) if tool.cache else _run(talk, tool, use, arguments)


async def _cached(talk: Conversation, tool: Tool[..., Any], use: ToolUse, arguments: Arguments) -> Outcome:
    cache = talk.run_cache if tool.cache == "run" else talk.attempt_cache
    key = tool.cache_key(arguments)
    shared = cache.get(key)
    if shared is not None:
        return replace(await asyncio.shield(shared), cached=True)
    return await _run_and_share(talk, tool, use, arguments, cache=cache, key=key)


async def _run_and_share(
    talk: Conversation,
    tool: Tool[..., Any],
    use: ToolUse,
    arguments: Arguments,
    *,
    cache: dict[str, asyncio.Future[Outcome]],
    key: str,
) -> Outcome:
    cache[key] = shared = asyncio.get_running_loop().create_future()
    try:
        outcome = await _run(talk, tool, use, arguments)
    except BaseException:
        del cache[key]
        shared.cancel()
        raise
    if outcome.error is not None:
        del cache[key]
    shared.set_result(outcome)
    return outcome


async def _run(talk: Conversation, tool: Tool[..., Any], use: ToolUse, arguments: Arguments) -> Outcome:
    """Run the handler within its time, and adopt the states it set if it succeeded."""
    context = _context(talk, tool, use) if tool.wants_context or talk.middlewares else None
    try:
        if talk.middlewares and context is not None:
            work = _through_middlewares(talk, tool, use, context=context, arguments=arguments)
        else:
            work = _invoke(talk, tool, use, context=context, arguments=arguments)
        result = await (work if tool.timeout_s is None else _within(tool.timeout_s, work))
    except _TimedOut:
        return Outcome.failed("timeout", f"Error: {tool.name} timed out after {tool.timeout_s:g}s")
    except BaseException as error:
        if not is_failure(error):
            raise
        return Outcome(error_result(error), "raised")
    if result.is_error:
        return Outcome(result, "rejected")
    if context is not None:
        talk.states.adopt(context)
    return Outcome(result)


class _TimedOut(Exception):
    """Our limit passed; a `TimeoutError` of the tool's own is an ordinary error."""


async def _within(seconds: float, work: Awaitable[ToolResult]) -> ToolResult:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise _TimedOut from None
        raise


def _context(talk: Conversation, tool: Tool[..., Any], use: ToolUse) -> ToolContext:
    return ToolContext(
        tool=tool,
        tool_use_id=use.id,
        input=talk.input,
        agent=talk.agent,
        path=talk.path,
        attempt=talk.attempt,
        iteration=talk.iteration,
        abort=talk.abort,
        states=talk.states,
        progress=lambda message, fraction: _report_progress(talk, use, message, fraction),
        tasks=talk.tasks,
    )


def _report_progress(talk: Conversation, use: ToolUse, message: str, fraction: float | None) -> None:
    """Show the progress from the loop's thread, whichever thread the tool runs in."""
    if talk.watch is None:
        return
    if talk.scope.is_own_thread():
        _show_progress(talk, use, message, fraction)
    else:
        with suppress(RuntimeError):  # the loop may be closed by now: then nobody looks
            talk.scope.loop.call_soon_threadsafe(_show_progress, talk, use, message, fraction)


def _show_progress(talk: Conversation, use: ToolUse, message: str, fraction: float | None) -> None:
    if talk.watch is not None and use.id in talk.announced and not talk.scope.is_over:
        talk.watch.show(
            ToolProgress(path=talk.path, tool_use_id=use.id, tool_name=use.name, message=message, fraction=fraction)
        )


async def _invoke(
    talk: Conversation, tool: Tool[..., Any], use: ToolUse, *, context: ToolContext | None, arguments: Arguments
) -> ToolResult:
    """Call the handler, and make the model's answer of what it returns."""
    if tool.in_thread:
        value = await _in_thread(talk, use, lambda: tool.invoke(arguments, context))
    else:
        value = tool.invoke(arguments, context)
    if tool.is_async or isinstance(value, Awaitable):
        value = await cast("Awaitable[object]", value)
    cap = tool.max_chars if tool.max_chars is not None else talk.max_result_chars
    return to_result(value, max_chars=cap, tool_use_id=use.id)


async def _through_middlewares(
    talk: Conversation, tool: Tool[..., Any], use: ToolUse, *, context: ToolContext, arguments: Arguments
) -> ToolResult:
    async def innermost(call: MiddlewareCall) -> ToolResult:
        return await _invoke(talk, tool, use, context=call.context, arguments=call.arguments)

    step = innermost
    for middleware in reversed(talk.middlewares):
        step = _wrapped(middleware, step)
    returned = cast("object", await step(MiddlewareCall(tool_name=tool.name, arguments=arguments, context=context)))
    if not isinstance(returned, ToolResult):
        raise TypeError(f"a middleware returned {type(returned).__name__}, not a ToolResult")
    return to_result(returned)


def _wrapped(
    middleware: Middleware, inner: Callable[[MiddlewareCall], Awaitable[ToolResult]]
) -> Callable[[MiddlewareCall], Awaitable[ToolResult]]:
    async def step(call: MiddlewareCall) -> ToolResult:
        return await middleware(call, inner)

    return step


async def _in_thread(talk: Conversation, use: ToolUse, work: Callable[[], object]) -> object:
    """Run `work` in a daemon thread of its own, with a copy of the context. Abandon it when cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def deliver(value: object, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, error = _caught(work)
        with suppress(RuntimeError):  # the loop may be closed by now: then nobody waits for the result
            loop.call_soon_threadsafe(deliver, value, error)

    copied = contextvars.copy_context()
    threading.Thread(target=copied.run, args=(run,), name=f"tool {use.name}", daemon=True).start()
    try:
        value, error = await ended
    except asyncio.CancelledError:
        if talk.watch is not None:
            talk.watch.show(CallAbandoned(path=talk.path, tool_use_id=use.id, tool_name=use.name))
        raise
    if error is not None:
        raise error
    return value


def _caught(work: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread and raised there
        return None, error


async def permitted(talk: Conversation, tool: Tool[..., Any], use: ToolUse) -> Outcome:
    """Validate the arguments, ask the gates, and run the tool with what they let through."""
    try:
        arguments = tool.parse(use.malformed if use.malformed is not None else use.input_json)
    except InvalidArguments as invalid:
        return Outcome(error_result(invalid), "invalid_input")
    guard = talk.guard
    if guard is None or not guard.gates:
        return await execute(talk, tool, use, arguments)
    asked = _request(talk, tool, use)
    allowed = await guard.consult(asked, _approver(talk, guard))
    if isinstance(allowed, Deny | Stop):
        return Outcome.failed("denied", f"Error: denied: {allowed.reason}")
    if allowed is asked:
        return await execute(talk, tool, use, arguments)
    try:
        arguments = tool.parse(allowed.input_json)
    except InvalidArguments as invalid:
        return Outcome.failed("invalid_input", f"Error: denied: the gate's own arguments do not fit. {invalid}")
    outcome = await execute(talk, tool, use, arguments)
    return outcome.noting(f"The call was made with other arguments: {allowed.input_json}")


def _request(talk: Conversation, tool: Tool[..., Any], use: ToolUse) -> GateRequest:
    return GateRequest(
        path=talk.path,
        tool_use_id=use.id,
        tool_name=use.name,
        arguments=use.input,
        effect=tool.effect or talk.default_effect,
        untrusted=tool.untrusted,
        n_model_calls=talk.iterations,
    )


def _approver(talk: Conversation, guard: Guard) -> Approver | None:
    """Return who answers what a gate asks, with the time that the limits give for it."""
    approve, seconds = guard.approve, talk.limits.approval_seconds
    if approve is None or seconds is None:
        return approve

    async def approve_in_time(approval: Approval) -> Decision:
        try:
            async with talk.scope.unhurried(), asyncio.timeout(seconds):
                return await approve(approval)
        except TimeoutError:
            return Deny(f"nobody answered within {seconds:g}s: {approval.question}")

    return approve_in_time


SKIPPED = "Error: not run, because the user wrote something new. Read it first; call again if that is still right."
"""The result of a call that had not begun when steering came."""

_FAILING = "Error: not run: {name} failed {n} times in a row. Do not call it again; go on without it, or say so."

_SAYS_NOTHING = frozenset(("denied", "over_budget", "interrupted", "skipped", "failing"))
"""The kinds of failure for which the tool is not to blame."""

_NOT_RUN = _SAYS_NOTHING | {"unknown", "invalid_input", "timeout"}
"""The kinds of failure whose text is the loop's own."""


async def run_calls(talk: Conversation, uses: Sequence[ToolUse]) -> tuple[Call, ...]:
    """Run the calls and stage their results. Return them in call order."""
    done: list[Call] = []
    for group in _groups(talk, uses) if len(uses) > 1 else (uses,):
        if talk.scope.is_due():
            await talk.scope.checkpoint()
        for use in group:
            talk.announced[use.id] = use
            if talk.watch is not None:
                await _announce(talk, talk.watch, use)
        if len(group) == 1:
            done.append(await _run_call(talk, group[0], _reserve(talk, group[0])))
        else:
            done += await _run_together(talk, group)
    return tuple(done)


def _groups(talk: Conversation, uses: Sequence[ToolUse]) -> Iterator[list[ToolUse]]:
    """Cut the calls into runs of parallel ones and single others."""
    group: list[ToolUse] = []
    for use in uses:
        tool = None if use.name in talk.hand_in else talk.tools.get(use.name)
        if tool is not None and tool.parallel:
            group.append(use)
            continue
        if group:
            yield group
            group = []
        yield [use]
    if group:
        yield group


async def _run_together(talk: Conversation, group: Sequence[ToolUse]) -> list[Call]:
    places = asyncio.Semaphore(talk.limits.parallel_calls)

    async def in_place(use: ToolUse, reservation: Reservation | None) -> Call:
        async with places:
            return await _run_call(talk, use, reservation)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(in_place(use, _reserve(talk, use))) for use in group]
    return [task.result() for task in running]


def _reserve(talk: Conversation, use: ToolUse) -> Reservation | None:
    if talk.journal is None or use.name in talk.hand_in:
        return None
    tool = talk.tools.get(use.name)
    if tool is not None and tool.resumes:
        return None
    return talk.journal.reserve(f"attempt/{talk.attempt}/iteration/{talk.iteration}/call/{use.id}")


def _kind(talk: Conversation, use: ToolUse) -> ToolKind:
    """Say whose call it is."""
    own = talk.hand_in.get(use.name)
    if own is not None:
        return own.kind
    return "tool" if use.name in talk.tools else "unknown"


async def _announce(talk: Conversation, watch: Watch, use: ToolUse) -> None:
    await watch.tell(
        ToolCalled(
            path=talk.path,
            attempt=talk.attempt,
            iteration=talk.iteration,
            tool_use_id=use.id,
            tool_name=use.name,
            kind=_kind(talk, use),
            tool_input=use.input,
        )
    )


async def _run_call(talk: Conversation, use: ToolUse, reservation: Reservation | None) -> Call:
    started = talk.now()
    if talk.inbox is not None and talk.inbox.has_steering:
        skipped = Outcome.failed("skipped", SKIPPED)
        await finish(talk, use, skipped)
        _keep(talk)
        return Call(use, skipped)
    own = talk.hand_in.get(use.name)
    outcome = await (_outcome(talk, use, reservation) if own is None else _hand_in(own, use))
    if outcome is not None:
        await finish(talk, use, outcome, duration_s=talk.now() - started)
        _keep(talk)
    return Call(use, outcome)


def _keep(talk: Conversation) -> None:
    """Store the result, before the next call can begin."""
    if talk.keep is not None:
        talk.keep()


async def _hand_in(own: HandInTool, use: ToolUse) -> Outcome | None:
    result = await own.handle(use)
    return None if result is None else Outcome(result, "rejected" if result.is_error else None)


async def finish(talk: Conversation, use: ToolUse, outcome: Outcome, *, duration_s: float = 0.0) -> None:
    """Stage the result of a call, count it, and tell."""
    kind, result = _kind(talk, use), outcome.result
    if result.tool_use_id != use.id:
        result = ToolResult(result.content, result.is_error, use.id)
    if isinstance(result.content, tuple) and not talk.prefix.deferred:
        result = ToolResult(result.parts, result.is_error, use.id)
    result = talk.history.answer(result)
    if talk.guard is not None and talk.guard.memories and kind == "tool":
        untrusted = talk.tools[use.name].untrusted and outcome.error not in _NOT_RUN
        talk.guard.see(seen_of(use, result, untrusted=untrusted, n_model_calls=talk.iterations))
    if talk.limits.tool_failures is not None and kind in ("tool", "unknown"):
        _count_failure(talk, use.name, outcome)
    talk.announced.pop(use.id, None)
    talk.ledger.count(kind, use.name, error=outcome.error, cached=outcome.cached, duration_s=duration_s)
    if talk.watch is not None:
        await talk.watch.tell(
            ToolFinished(
                path=talk.path,
                attempt=talk.attempt,
                iteration=talk.iteration,
                tool_use_id=use.id,
                tool_name=use.name,
                kind=kind,
                tool_result=result.text,
                is_error=result.is_error,
                cached=outcome.cached,
                duration_s=duration_s,
            )
        )


def _count_failure(talk: Conversation, name: str, outcome: Outcome) -> None:
    """Count how often a tool has failed in a row. What was not tried says nothing about the tool."""
    if outcome.error is None:
        talk.failures.pop(name, None)
    elif outcome.error not in _SAYS_NOTHING:
        talk.failures[name] = talk.failures.get(name, 0) + 1


async def _outcome(talk: Conversation, use: ToolUse, reservation: Reservation | None) -> Outcome:
    """Say what comes of one call of a tool."""
    most = talk.limits.tool_failures
    if most is not None and talk.failures.get(use.name, 0) >= most:
        return Outcome.failed("failing", _FAILING.format(name=use.name, n=talk.failures[use.name]))
    tool = talk.tools.get(use.name)
    if tool is None:
        return Outcome.failed("unknown", f"Error: Unknown tool {use.name}")
    if not talk.budget.take_call():
        return Outcome.failed("over_budget", "Error: not run: this run may make no more tool calls.")
    if reservation is None:
        return await permitted(talk, tool, use)
    effect = tool.effect or talk.default_effect
    try:
        return await reservation.step(
            lambda: permitted(talk, tool, use), codec=OutcomeCodec(talk.states), effect=effect
        )
    except OutcomeUnknown as unknown:
        return Outcome.failed("interrupted", f"Error: {unknown}")

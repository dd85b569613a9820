"""Running one tool's handler: inline, in a thread, from the cache, within its time, through the middlewares.

Whatever the handler does becomes an `Outcome`; only a cancellation that is meant for the run leaves here as one.
Imports `conversation`, `outcome` and the parts.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from journeyman.cancel import is_failure
from journeyman.events.run import CallAbandoned, ToolProgress
from journeyman.loop.outcome import Outcome
from journeyman.loop.record import Conversation
from journeyman.tools.tool import Middleware, MiddlewareCall, Tool, ToolContext, error_result, to_result
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

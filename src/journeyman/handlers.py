"""Running one tool's handler: inline, in a thread, from the cache, within its time, through the middlewares.

Whatever the handler does becomes an `Outcome`; only a cancellation that is meant for the run leaves here as one.
Imports `conversation`, `outcome` and the parts.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from journeyman.cancel import cancellations
from journeyman.conversation import Conversation
from journeyman.events import CallAbandoned, ToolProgress
from journeyman.outcome import Outcome
from journeyman.tools import Middleware, MiddlewareCall, Tool, ToolContext, error_result, to_result
from journeyman.types import ToolResult, ToolUse

Arguments = dict[str, object]


async def execute(talk: Conversation, tool: Tool[..., Any], use: ToolUse, arguments: Arguments) -> Outcome:
    """Run the handler, or take its result from the cache."""
    if not tool.cache:
        return await _run(talk, tool, use, arguments)
    cache = talk.run_cache if tool.cache == "run" else talk.attempt_cache
    key = tool.cache_key(arguments)
    shared = cache.get(key)
    if shared is not None:
        result = await asyncio.shield(shared)
        return Outcome(result, "raised" if result.is_error else None, cached=True)
    return await _run_and_share(talk, tool, use, arguments, cache=cache, key=key)


async def _run_and_share(
    talk: Conversation,
    tool: Tool[..., Any],
    use: ToolUse,
    arguments: Arguments,
    *,
    cache: dict[str, asyncio.Future[ToolResult]],
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
    shared.set_result(outcome.result)
    return outcome


async def _run(talk: Conversation, tool: Tool[..., Any], use: ToolUse, arguments: Arguments) -> Outcome:
    context = _context(talk, tool, use)
    before = cancellations()
    limit = asyncio.timeout(tool.timeout_s)
    try:
        if tool.timeout_s is None:
            result = await _through_middlewares(talk, tool, context, arguments)
        else:
            async with limit:
                result = await _through_middlewares(talk, tool, context, arguments)
    except TimeoutError as error:
        if tool.timeout_s is None or not limit.expired():
            return Outcome(error_result(error), "raised")
        return Outcome.failed("timeout", f"Error: {tool.name} timed out after {tool.timeout_s:g}s")
    except asyncio.CancelledError:
        if cancellations() > before:
            raise
        return Outcome.failed("raised", f"Error: {tool.name} cancelled itself")
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is data for the model
        return Outcome(error_result(error), "raised")
    if result.is_error:
        return Outcome(result, "rejected")
    talk.states.adopt(context)
    return Outcome(result)


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
        progress=lambda message, fraction: _show_progress(talk, use, message, fraction),
        tasks=talk.tasks,
    )


def _show_progress(talk: Conversation, use: ToolUse, message: str, fraction: float | None) -> None:
    if talk.watch is not None:
        talk.watch.show(
            ToolProgress(path=talk.path, tool_use_id=use.id, tool_name=use.name, message=message, fraction=fraction)
        )


async def _through_middlewares(
    talk: Conversation, tool: Tool[..., Any], context: ToolContext, arguments: Arguments
) -> ToolResult:
    cap = tool.max_chars if tool.max_chars is not None else talk.max_result_chars

    async def innermost(call: MiddlewareCall) -> ToolResult:
        return to_result(await _invoke(talk, tool, context, call.arguments), max_chars=cap)

    if not talk.middlewares:
        return to_result(await _invoke(talk, tool, context, arguments), max_chars=cap)
    step = innermost
    for middleware in reversed(talk.middlewares):
        step = _wrapped(middleware, step)
    return await step(MiddlewareCall(tool_name=tool.name, arguments=arguments, context=context))


def _wrapped(
    middleware: Middleware, inner: Callable[[MiddlewareCall], Awaitable[ToolResult]]
) -> Callable[[MiddlewareCall], Awaitable[ToolResult]]:
    async def step(call: MiddlewareCall) -> ToolResult:
        return await middleware(call, inner)

    return step


async def _invoke(talk: Conversation, tool: Tool[..., Any], context: ToolContext, arguments: Arguments) -> object:
    if tool.in_thread:
        value = await _in_thread(talk, context, lambda: tool.invoke(arguments, context))
    else:
        value = tool.invoke(arguments, context)
    return await value if inspect.isawaitable(value) else value


async def _in_thread(talk: Conversation, context: ToolContext, work: Callable[[], object]) -> object:
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
    threading.Thread(target=copied.run, args=(run,), name=f"tool {context.tool_name}", daemon=True).start()
    try:
        value, error = await ended
    except asyncio.CancelledError:
        if talk.watch is not None:
            talk.watch.show(CallAbandoned(path=talk.path, tool_use_id=context.tool_use_id, tool_name=context.tool_name))
        raise
    if error is not None:
        raise error
    return value


def _caught(work: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread and raised there
        return None, error

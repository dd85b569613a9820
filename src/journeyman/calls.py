"""Running the calls of one response: in order where order matters, side by side where it does not.

Every call is answered exactly once, whatever its tool does. Consecutive calls of parallel tools run together; every
other call waits for those before it and is waited for by those behind it. Imports `conversation` and the parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.conversation import Conversation, HandInTool
from journeyman.errors import InvalidArguments, OutcomeUnknown
from journeyman.events import ToolCalled, ToolFinished
from journeyman.gate import Approval, Approver, Decision, Deny, GateRequest, consult
from journeyman.handlers import execute
from journeyman.journal import Reservation
from journeyman.outcome import Outcome, OutcomeCodec
from journeyman.result import ToolKind
from journeyman.tools import Tool, error_result
from journeyman.types import ToolResult, ToolUse
from journeyman.watch import Watch


@dataclass(slots=True)
class Call:
    """One call of a response, after it ended."""

    use: ToolUse
    outcome: Outcome | None
    """None: withheld until the output was validated."""


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
    own = talk.hand_in.get(use.name)
    outcome = await (_outcome(talk, use, reservation) if own is None else _hand_in(own, use))
    if outcome is not None:
        await finish(talk, use, outcome, duration_s=talk.now() - started)
    return Call(use, outcome)


async def _hand_in(own: HandInTool, use: ToolUse) -> Outcome | None:
    result = await own.handle(use)
    return None if result is None else Outcome(result, "rejected" if result.is_error else None)


async def finish(talk: Conversation, use: ToolUse, outcome: Outcome, *, duration_s: float = 0.0) -> None:
    """Stage the result of a call, count it, and tell."""
    kind, result = _kind(talk, use), outcome.result
    if result.tool_use_id != use.id:
        result = ToolResult(result.content, result.is_error, use.id)
    result = talk.history.answer(result)
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


async def _outcome(talk: Conversation, use: ToolUse, reservation: Reservation | None) -> Outcome:
    """Say what comes of one call of a tool."""
    tool = talk.tools.get(use.name)
    if tool is None:
        return Outcome.failed("unknown", f"Error: Unknown tool {use.name}")
    if not talk.budget.take_call():
        return Outcome.failed("over_budget", "Error: not run: this run may make no more tool calls.")
    if reservation is None:
        return await _permitted(talk, tool, use)
    effect = tool.effect or talk.default_effect
    try:
        return await reservation.step(
            lambda: _permitted(talk, tool, use), codec=OutcomeCodec(talk.states), effect=effect
        )
    except OutcomeUnknown as unknown:
        return Outcome.failed("interrupted", f"Error: {unknown}")


def _approver(talk: Conversation) -> Approver | None:
    """Return who answers what a gate asks, with the time that the limits give for it."""
    approve, seconds = talk.approve, talk.limits.approval_seconds
    if approve is None or seconds is None:
        return approve

    async def approve_in_time(approval: Approval) -> Decision:
        try:
            async with talk.scope.unhurried(), asyncio.timeout(seconds):
                return await approve(approval)
        except TimeoutError:
            return Deny(f"nobody answered within {seconds:g}s: {approval.question}")

    return approve_in_time


async def _permitted(talk: Conversation, tool: Tool[..., Any], use: ToolUse) -> Outcome:
    """Validate the arguments, ask the gates, and run the tool with what they let through."""
    try:
        arguments = tool.parse(use.malformed if use.malformed is not None else use.input_json)
    except InvalidArguments as invalid:
        return Outcome(error_result(invalid), "invalid_input")
    if not talk.gates:
        return await execute(talk, tool, use, arguments)
    effect = tool.effect or talk.default_effect
    asked = GateRequest(
        path=talk.path,
        tool_use_id=use.id,
        tool_name=use.name,
        arguments=use.input,
        effect=effect,
        untrusted=tool.untrusted,
    )
    allowed = await consult(talk.gates, asked, _approver(talk))
    if isinstance(allowed, Deny):
        return Outcome.failed("denied", f"Error: denied: {allowed.reason}")
    if allowed.arguments == asked.arguments:
        return await execute(talk, tool, use, arguments)
    try:
        arguments = tool.parse(allowed.input_json)
    except InvalidArguments as invalid:
        return Outcome.failed("invalid_input", f"Error: denied: the gate's own arguments do not fit. {invalid}")
    outcome = await execute(talk, tool, use, arguments)
    return outcome.noting(f"The call was made with other arguments: {allowed.input_json}")

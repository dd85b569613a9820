"""Asking the gates about one call, and running its tool with what they let through.

Imports `conversation`, `invoking`, `outcome` and the parts. Read `gate.py` for what a gate may say.
"""

from __future__ import annotations

import asyncio
from typing import Any

from journeyman.errors import InvalidArguments
from journeyman.gate import Approval, Approver, Decision, Deny, GateRequest, Stop
from journeyman.guard import Guard
from journeyman.loop.invoking import execute
from journeyman.loop.outcome import Outcome
from journeyman.loop.record import Conversation
from journeyman.tools.tool import Tool, error_result
from journeyman.types import ToolUse


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

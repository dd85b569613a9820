"""Running the calls of one response: in order where order matters, side by side where it does not.

Every call is answered exactly once, whatever its tool does. Consecutive calls of parallel tools run together; every
other call waits for those before it and is waited for by those behind it. Imports `conversation` and the parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from journeyman.errors import OutcomeUnknown
from journeyman.events.run import ToolCalled, ToolFinished
from journeyman.guard import seen_of
from journeyman.journal import Reservation
from journeyman.loop.outcome import Outcome, OutcomeCodec
from journeyman.loop.permitting import permitted
from journeyman.loop.record import Conversation, HandInTool
from journeyman.loop.watch import Watch
from journeyman.result import ToolKind
from journeyman.types import ToolResult, ToolUse

SKIPPED = "Error: not run, because the user wrote something new. Read it first; call again if that is still right."
"""The result of a call that had not begun when steering came."""

_FAILING = "Error: not run: {name} failed {n} times in a row. Do not call it again; go on without it, or say so."

_SAYS_NOTHING = frozenset(("denied", "over_budget", "interrupted", "skipped", "failing"))
"""The kinds of failure for which the tool is not to blame."""

_NOT_RUN = _SAYS_NOTHING | {"unknown", "invalid_input", "timeout"}
"""The kinds of failure whose text is the loop's own."""


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

"""Single, parallel and chain: three ways to let sub-agents work while the call waits.

Only a cancellation leaves here: what fails is part of a result, but for the one task of a single call. Imports
`subagent_calls`, `subagent_results` and `subagent_runs`. Read `subagent_background.py` for the other two ways.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import from_json, to_json

from journeyman.errors import SubagentMisused
from journeyman.result import Success
from journeyman.subagents.calls import ChainCall, ParallelCall, SingleCall
from journeyman.subagents.delegation import Delegation, Errand
from journeyman.subagents.results import (
    ChainResult,
    ItemResult,
    ParallelResult,
    Ran,
    SingleResult,
    item_result,
    output_of,
    single_result,
)

_CANCELLED: Final = "Sub-agent {name!r} was cancelled from outside."

_PREVIOUS: Final = re.compile(r"\{previous((?:\.\w+)*)\}")


async def single(delegation: Delegation, call: SingleCall) -> SingleResult:
    """Let one sub-agent do one task.

    Raises:
        SubagentMisused: it cannot begin.
        SubagentFailed: its run failed.
    """
    return single_result(await delegation.do(delegation.errand(call.agent, call.task, "single")))


# -- parallel ---------------------------------------------------------------------------------------------------------


async def parallel(delegation: Delegation, call: ParallelCall, max_concurrency: int | None) -> ParallelResult:
    """Let several work at the same time. One that fails leaves the others alone."""
    errands = [
        delegation.errand(item.agent, item.task, "parallel", place=place) for place, item in enumerate(call.tasks)
    ]
    places = asyncio.Semaphore(max_concurrency or len(errands))

    async def in_place(errand: Errand) -> Ran:
        async with places:
            return await delegation.do(errand)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(in_place(errand)) for errand in errands]
    ran = [_ended(task, errand) for task, errand in zip(running, errands, strict=True)]
    summary = f"{sum(each.succeeded for each in ran)}/{len(ran)} succeeded"
    return ParallelResult(summary=summary, results=tuple([item_result(each) for each in ran]))


def _ended(task: asyncio.Task[Ran], errand: Errand) -> Ran:
    if not task.cancelled():
        return task.result()
    # Somebody cancelled this one task: had it been the run above, the group would have raised.
    cancelled = SubagentMisused(_CANCELLED.format(name=errand.agent))
    return Ran(agent=errand.agent, task=errand.task, definition=None, result=cancelled)


# -- chain ------------------------------------------------------------------------------------------------------------


async def chain(delegation: Delegation, call: ChainCall) -> ChainResult:
    """Let one work after the other, up to the first that fails."""
    done: list[ItemResult] = []
    previous, value = _given(call)
    for number, item in enumerate(call.steps[call.start_at - 1 :], start=call.start_at):
        ran = await _step(delegation, item.agent, item.task, place=number - 1, previous=(previous, value))
        done.append(item_result(ran, step=number))
        if not isinstance(ran.result, Success) or ran.definition is None:
            return ChainResult(error=_stopped(number, ran.error_text()), results=tuple(done))
        value = output_of(ran.definition, ran.result)
        previous = value if isinstance(value, str) else _as_text(value)
    return ChainResult(output=done[-1].output, results=tuple(done), value=done[-1].value)


def _stopped(number: int, why: str) -> str:
    again = f"To go on from there, call again with start_at={number}"
    return f"Step {number} failed. {why} {again}{' and previous' if number > 1 else ''}."


def _given(call: ChainCall) -> tuple[str, object]:
    """Return what the first step gets of the one before: the text, and the object that it is, if it is one."""
    try:
        value: object = from_json(call.previous) if call.previous.lstrip().startswith(("{", "[")) else call.previous
    except ValueError:
        value = call.previous
    return call.previous, value


async def _step(delegation: Delegation, agent: str, task: str, *, place: int, previous: tuple[str, object]) -> Ran:
    try:
        task = filled(task, *previous)
    except SubagentMisused as misused:
        return Ran(agent=agent, task=task, definition=None, result=misused)
    return await delegation.do(delegation.errand(agent, task, "chain", place=place))


def filled(task: str, previous: str, value: object) -> str:
    """Put the output of the step before into a task: the text for `{previous}`, a field of it for `{previous.field}`.

    What is put in is not looked at again. Of a text, `{previous.field}` means nothing, and stays as it is.

    Raises:
        SubagentMisused: the output has no such field.
    """

    def put(found: re.Match[str]) -> str:
        names = found[1].split(".")[1:]
        if not names:
            return previous
        return found[0] if isinstance(value, str) else _as_text(_field(value, names, found[0]))

    return _PREVIOUS.sub(put, task)


def _field(value: object, names: Sequence[str], written: str) -> object:
    for name in names:
        if isinstance(value, Mapping) and name in value:
            value = cast("Mapping[str, object]", value)[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value)):
            value = cast("list[object]", value)[int(name)]
        else:
            raise SubagentMisused(f"{written} means nothing: {_has(cast('object', value))}.")
    return value


def _has(value: object) -> str:
    if isinstance(value, Mapping):
        return f"there are the fields {', '.join(map(str, cast('Mapping[str, object]', value)))}"
    if isinstance(value, list):
        return f"there is a list of {len(cast('list[Any]', value))}"
    return "what comes before it has no fields"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value).decode()

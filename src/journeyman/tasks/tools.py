"""What a model may do with background work: look at it, read what it wrote, write to it, stop it.

Imports `task_events` and `tools`. `tasks.py` makes these tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Protocol

from pydantic import Field

from journeyman.errors import Rejected
from journeyman.events.task import Delivery, TaskInfo
from journeyman.tools.tool import AnyTool, tool

_LONGEST_S = 600

Id = Annotated[str, Field(description="The id of the task, for example bg-1.")]
Wait = Annotated[
    float, Field(ge=0, le=_LONGEST_S, description="Wait so many seconds for the end of the task, if it still runs.")
]


class _Registry(Protocol):
    """What the tools need of `Tasks`."""

    def list(self) -> tuple[TaskInfo, ...]: ...
    def get(self, id: str) -> TaskInfo: ...
    def output(self, id: str) -> str: ...
    def message(self, id: str, text: str) -> Delivery: ...
    def stop(self, id: str, reason: str = ...) -> bool: ...
    async def wait(self, *ids: str) -> None: ...


def tools_for(tasks: _Registry) -> Sequence[AnyTool]:
    """Return the tools with which a model looks after these tasks."""

    @tool(effect="pure", parallel=True, thread=False)
    def task_list() -> str:
        """List all background tasks, also those that have ended: id, kind, status, time, description."""
        return "\n".join(_line(info) for info in tasks.list()) or "There are no background tasks."

    @tool(effect="pure", parallel=True, untrusted=True)
    async def task_output(id: Id, wait_s: Wait = 0) -> str:
        """Read what a background task has written, also while it runs, and what came out when it ended."""
        info = _known(tasks, id)
        if wait_s and info.is_running:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await tasks.wait(id)
        info = tasks.get(id)
        return f"[{_line(info)}]\n{_body(info, tasks.output(id))}"

    @tool(effect="once", thread=False)
    def task_message(id: Id, text: str) -> str:
        """Say something to a background agent while it works. It reads that before its next step.

        Args:
            text: What to say to it.
        """
        info = _known(tasks, id)
        if not text.strip():
            raise Rejected("The text is blank: there is nothing to say.")
        if tasks.message(id, text) == "queued":
            return f"Task {id} reads it before its next step."
        raise Rejected(_refusal(tasks.get(id), was_running=info.is_running))

    @tool(effect="idempotent", thread=False)
    def task_stop(id: Id) -> str:
        """Stop a background task. What it did by then stays done."""
        _known(tasks, id)
        if tasks.stop(id, "stopped by the model"):
            return f"Task {id} is being stopped."
        return f"Task {id} has ended already: {tasks.get(id).status}."

    return (task_list, task_output, task_message, task_stop)


def _known(tasks: _Registry, id: str) -> TaskInfo:
    try:
        return tasks.get(id)
    except KeyError:
        known = ", ".join(info.id for info in tasks.list())
        there_are = f"The tasks are: {known}." if known else "There are no background tasks."
        raise Rejected(f"There is no task {id!r}. {there_are}") from None


def _line(info: TaskInfo) -> str:
    who = info.identity.id if info.identity is not None else info.agent
    what = f"{info.liveness}, " if info.is_running and info.liveness is not None else ""
    subject = f"{who}: {info.description}" if who else info.description
    return f"{info.id} {info.kind} {info.status} ({what}{info.duration_s:.0f} s) {' '.join(subject.split())}"


def _body(info: TaskInfo, written: str) -> str:
    parts = [written] if info.result is None else [info.result]
    if info.error is not None:
        parts.append(f"[{info.status}: {info.error}]")
    if info.output_path is not None:
        parts.append(f"[All of its output is in {info.output_path}.]")
    return "\n".join(part for part in parts if part) or "(no output)"


def _refusal(info: TaskInfo, *, was_running: bool) -> str:
    if was_running and info.kind == "shell":
        return f"Task {info.id} is a command, and reads no messages. Use task_stop to end it."
    if info.is_running:
        return f"Task {info.id} is about to end, and reads no more. You will be told when it has."
    return f"Task {info.id} has ended ({info.status}), so nobody reads it. Start another one if there is more to do."

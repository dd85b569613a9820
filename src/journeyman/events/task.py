"""The events of background work, and a snapshot of one task."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.types import NOTHING_USED, RunPath, Usage

TaskKind: TypeAlias = Literal["tool", "agent", "shell", "member"]
"""What a task is: work of a tool, a run of an agent, a shell command, or a member of a team."""

TaskStatus: TypeAlias = Literal["running", "completed", "failed", "killed"]
"""How far a task is. All but `running` are final. `killed`: it was stopped, whatever its kind."""

MemberStatus: TypeAlias = Literal["working", "idle", "stopping", "gone"]
"""What a member of a team does."""

Delivery: TypeAlias = Literal["queued", "gone", "unknown"]
"""What came of a message. `gone`: the task has ended, or reads no more. `unknown`: there is no such task."""


PREFIXES: Final[dict[TaskKind, str]] = {"tool": "bg", "agent": "bg", "shell": "sh", "member": "tm"}
"""How the ids of each kind begin. They share one counter."""


@lazy_dataclass(frozen=True)
class Identity:
    """The name of a team's member together with that of its team, which make up its id."""

    name: str
    """The member's name, of which the team has one at a time."""
    team: str
    """The name of the team."""

    @property
    def id(self) -> str:
        """`name@team`."""
        return f"{self.name}@{self.team}"


@lazy_dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """One task, as it was at one moment."""

    id: str
    """The task's id: `bg1`, `sh2`, `tm3`."""
    kind: TaskKind
    """What it is: work of a tool, a run of an agent, a shell command, or a member of a team."""
    description: str
    """What it does, in words."""
    started: datetime
    """When it was started."""
    ended: datetime | None = None
    """None while it runs."""
    duration_s: float = 0.0
    """From start to end, or until now."""
    status: TaskStatus = "running"
    """How far it is."""
    path: RunPath = ()
    """The run that started it, from the root down; empty for a program."""
    agent: str = ""
    """The agent that does the work, if one does."""
    command: str = ""
    """The command of a shell."""
    identity: Identity | None = None
    """Who it is, for a member of a team."""
    liveness: MemberStatus | None = None
    """What it does, for a member of a team."""
    last_sign: datetime | None = None
    """When it last gave a sign, for a member of a team."""
    n_calls: int = 0
    """Calls of tools so far that an agent made itself, refused ones included; output and submit are not counted."""
    usage: Usage = NOTHING_USED
    """What its model calls have used so far."""
    output_path: str | None = None
    """Where its output is written to."""
    result: str | None = None
    """What came out, as a text. Only when it completed."""
    value: object = None
    """What the work returned, as it is. Only when it completed."""
    error: str | None = None
    """Why it failed, or what went wrong while it was stopped."""
    exit_code: int | None = None
    """Of a shell that has ended by itself; below 0, the number of the signal that ended it."""
    undelivered: tuple[str, ...] = ()
    """Messages that were queued and that it ended without reading."""

    @property
    def depth(self) -> int:
        """The number of runs above the work."""
        return len(self.path)

    @property
    def is_running(self) -> bool:
        return self.status == "running"


@lazy_dataclass(frozen=True, kw_only=True)
class TaskStarted:
    """A task was registered; before anything of its work. One `TaskEnded` follows."""

    path: RunPath
    info: TaskInfo
    """The task as it begins."""


@lazy_dataclass(frozen=True, kw_only=True)
class TaskMessaged:
    """Somebody wrote to a task. Between its `TaskStarted` and `TaskEnded` if it was queued."""

    path: RunPath
    id: str
    """The id of the task."""
    text: str
    """What was written."""
    delivery: Delivery
    """What came of it."""


@lazy_dataclass(frozen=True, kw_only=True)
class TaskEnded:
    """A task has its final status; before its notification is handed over."""

    path: RunPath
    info: TaskInfo
    """The task as it ended."""


TaskEvent: TypeAlias = TaskStarted | TaskMessaged | TaskEnded
"""Anything that may happen to background work."""

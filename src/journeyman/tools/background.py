"""What the work of a background task may know and tell of its own task, and what may be said when one is started.

Work takes its `TaskContext` as its one argument; `current_background` finds it from further inside. `tasks.py` makes
it. Imports `cancel`, `inbox`, `task_events` and `task_output`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypedDict

from journeyman.cancel import Abort
from journeyman.events.task import Identity, Liveness, TaskInfo, TaskKind
from journeyman.inbox import Inbox
from journeyman.tools.task_output import OutputFactory, Record, TaskOutput
from journeyman.types import Usage

Notify: TypeAlias = Callable[[str, TaskInfo], object]
"""Takes the notification of a task that has ended: its text, as a model shall read it, and the task. May be async."""

Receive: TypeAlias = Callable[[str], bool]
"""Takes a message to a task. False: it reads no more."""


class TaskOptions(TypedDict, total=False):
    """What may be said when a task is started."""

    kind: TaskKind
    """What it is; `tool` if it is not said. A `shell` takes no messages."""
    agent: str
    """The agent that does the work."""
    command: str
    """The command of a shell."""
    identity: Identity
    """Who it is, for a member of a team."""
    receive: Receive
    """Takes the messages to the task, instead of its inbox."""
    notify: Notify | None
    """Takes the notification of this task, instead of what all others have."""
    output: OutputFactory | None
    """Opens the output of this task, instead of what all others have."""


class TaskContext:
    """A task, for the work that is done in it."""

    __slots__ = ("_info", "_output", "abort", "inbox")

    def __init__(self, info: TaskInfo) -> None:
        self.abort: Final = Abort()
        """Fired when the task is stopped. Work that gives it to its runs, or subscribes to it, has time to end by
        itself; other work is cancelled at once."""
        self.inbox: Final = Inbox()
        """The messages to the task, as steering. Lend it to a run, or `take_steering()`. `pick_up()` closes it if
        nothing waits: from then on messages are refused."""
        self.inbox.open()
        self._info = info
        self._output = TaskOutput()

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def info(self) -> TaskInfo:
        """The task as it is now, but for its duration."""
        return self._info

    @property
    def output(self) -> TaskOutput:
        """What the task has written. It is opened and closed by `Tasks`."""
        return self._output

    def write(self, record: Record) -> None:
        """Add a line to the output of the task."""
        self._output.write(record)

    def count(self, *, n_calls: int | None = None, usage: Usage | None = None) -> None:
        """Set how many calls were made and what was used so far. What is not given stays."""
        calls = self._info.n_calls if n_calls is None else n_calls
        self.change(replace(self._info, n_calls=calls, usage=self._info.usage if usage is None else usage))

    def sign(self, liveness: Liveness) -> None:
        """Say what the member of a team does now: it is alive."""
        self.change(replace(self._info, liveness=liveness, last_sign=datetime.now(UTC)))

    def exited(self, code: int) -> None:
        """Say how the shell has ended."""
        self.change(replace(self._info, exit_code=code))

    def change(self, info: TaskInfo) -> None:
        """Take a newer state of the task. What has ended stays as it is."""
        if self._info.is_running:
            self._info = info

    def __repr__(self) -> str:
        return f"<TaskContext {self.id} {self._info.status}>"


Work: TypeAlias = Callable[[TaskContext], Awaitable[object]]
"""What a task does. What it returns is the result; what it raises, the reason why the task failed."""

current_background: ContextVar[TaskContext | None] = ContextVar("journeyman_background", default=None)
"""The background task that goes on here, if any."""

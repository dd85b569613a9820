"""The side of a background task that its own work sees: a `TaskContext`, and the options with which a task is started.

Work takes its `TaskContext` as its one argument; `current_background` finds it from further inside. What a task writes
down goes into a file as JSON lines, if there is one, and the last of it stays in memory. Nothing that goes wrong with
the file is raised: it is kept, and makes the task fail when it ends.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Final, Protocol, TypeAlias, TypedDict

from journeyman.cancellation import Abort, is_awaited, log_caught
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import count, name_and_words
from journeyman.events import Identity, MemberStatus, TaskInfo, TaskKind
from journeyman.inbox.inbox import Inbox
from journeyman.machine.files import make_private_folder, private
from journeyman.types import Usage

Record: TypeAlias = str | Mapping[str, object]
"""One line of output: a text, or anything that can be written as JSON."""


class Writer(Protocol):
    """A text file, or anything like it, to which a task's lines are written."""

    def write(self, text: str, /) -> object:
        """Add a text at the end."""
        ...

    def close(self) -> object:
        """Close it; nothing is written afterwards."""
        ...


OutputFactory: TypeAlias = Callable[[str, str], tuple[Writer, str] | Awaitable[tuple[Writer, str]]]
"""Opens the output of one task, given its id and what it is: the agent's name, or else the description. Returns the
writer, and the path that is shown."""

Notify: TypeAlias = Callable[[str, TaskInfo], object]
"""Takes the notification of a task that has ended: its text, as a model shall read it, and the task. May be async."""

Receive: TypeAlias = Callable[[str], bool]
"""Takes a message to a task. False: it reads no more."""


class TaskOptions(TypedDict, total=False):
    """The keyword arguments with which a task may be started."""

    kind: TaskKind
    """The kind of work; `tool` if it is not given. A `shell` takes no messages."""
    agent: str
    """The agent that does the work."""
    command: str
    """The command of a shell."""
    identity: Identity
    """The name and the team of the member that lives in the task."""
    receive: Receive
    """Takes the messages to the task, instead of its inbox."""
    notify: Notify | None
    """Takes the notification of this task, instead of the one that takes those of all others."""
    output: OutputFactory | None
    """Opens the output of this task, instead of the one that opens those of all others."""


class TaskContext:
    """A task, for the work that is done in it."""

    __slots__ = ("_info", "_lock", "_output", "abort", "inbox", "last_sign")

    def __init__(self, info: TaskInfo) -> None:
        self.abort: Final = Abort()
        """Fired when the task is stopped. Work that gives it to its runs, or subscribes to it, has time to end by
        itself; other work is cancelled at once."""
        self.inbox: Final = Inbox()
        """The messages to the task, as steering. Lend it to a run, or call `take_steering()`. `pick_up()` closes it if
        nothing waits: from then on messages are refused."""
        self.inbox.open()
        self.last_sign: datetime | None = info.last_sign
        """When the member that lives in it last gave a sign of life."""
        self._info = info
        self._lock = RLock()
        self._output = TaskOutput()

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def info(self) -> TaskInfo:
        """The task as it is now, except for its duration and its last sign of life."""
        return self._info

    @property
    def output(self) -> TaskOutput:
        """The lines that the task has written. `Tasks` opens and closes it."""
        return self._output

    def write(self, record: Record) -> None:
        """Add a line to the output of the task. Any thread may."""
        self._output.write(record)

    def count(self, *, n_calls: int | None = None, usage: Usage | None = None) -> None:
        """Set how many calls were made and what was used so far. What is not given stays. Any thread may."""
        counts = {"n_calls": n_calls, "usage": usage}
        self.change(**{name: count for name, count in counts.items() if count is not None})

    def sign(self, liveness: MemberStatus | None = None) -> None:
        """Note that the member of a team is alive, and what it does now, if that has changed."""
        # Not a change of the task: it is noted for each mail, and seldom looked at.
        self.last_sign = datetime.now(UTC)
        if liveness is not None:
            self.change(liveness=liveness)

    def exited(self, code: int) -> None:
        """Note the exit code with which the shell has ended."""
        self.change(exit_code=code)

    def change(self, **facts: Any) -> TaskInfo:
        """Change facts of the task, and return it. What has ended stays as it is."""
        with self._lock:  # a thread that counts must not undo the end
            if self._info.is_running:
                self._info = replace(self._info, **facts)
            return self._info

    def __repr__(self) -> str:
        return f"<TaskContext {self.id} {self._info.status}>"


@lazy_dataclass(frozen=True)
class TaskResult:
    """A task's value together with the text that a model reads of it, where that is not the usual one."""

    text: str
    value: object


Work: TypeAlias = Callable[[TaskContext], Awaitable[object]]
"""What a task does. What it returns is the result; what it raises, the reason why the task failed."""


KEPT_CHARS: Final = 50_000
"""How many characters of a task's output stay in memory: the last ones."""


class TaskOutput:
    """The output of one task."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.errors: list[str] = []
        """What went wrong with the file, in order."""
        self._writer: Writer | None = None
        self._lock = RLock()
        """Held while a line is added, and while the file is closed."""
        self._kept: deque[str] = deque()
        self._n_kept = 0
        self._n_dropped = 0

    async def open(self, factory: OutputFactory | None, id: str, subject: str) -> None:
        """Open the file. If that fails, `errors` says so."""
        if factory is None:
            return
        try:
            made = factory(id, subject)
            self._writer, self.path = await made if is_awaited(made) else made
        except Exception as error:  # noqa: BLE001 - whatever the host's factory raises
            log_caught("What opens the output of background work", error)
            self.errors.append(f"cannot open the output: {name_and_words(error)}")

    def write(self, record: Record) -> None:
        """Add one line."""
        with self._lock:
            self._keep(record if isinstance(record, str) else _record_json(record))
            if self._writer is not None:
                line = _record_json({"text": record} if isinstance(record, str) else record)
                try:
                    self._writer.write(f"{line}\n")
                except Exception as error:  # noqa: BLE001 - whatever the host's writer raises
                    log_caught("What writes the output of background work", error)
                    self.errors.append(f"cannot write the output: {name_and_words(error)}")
                    self.close()

    def _keep(self, line: str) -> None:
        self._kept.append(line[-KEPT_CHARS:])
        self._n_kept += len(self._kept[-1]) + 1
        while self._n_kept > KEPT_CHARS + 1:
            self._n_kept -= len(self._kept.popleft()) + 1
            self._n_dropped += 1

    def close(self) -> None:
        """Close the file. A second call changes nothing."""
        with self._lock:
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    writer.close()
            except Exception as error:  # noqa: BLE001 - whatever the host's writer raises
                log_caught("What closes the output of background work", error)
                self.errors.append(f"cannot close the output: {name_and_words(error)}")

    def tail(self) -> str:
        """Return the last of the output, with a note if there was more."""
        with self._lock:
            more = f"[{count(self._n_dropped, 'line')} before this.]\n" if self._n_dropped else ""
            return more + "\n".join(self._kept)


def _record_json(record: Mapping[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False, default=str)


def output_factory(given: str | os.PathLike[str] | OutputFactory | None) -> OutputFactory | None:
    """Return what opens the output of each task: a factory that is given as it is, or one for the folder."""
    return given if given is None or callable(given) else in_folder(given)


def in_folder(folder: str | os.PathLike[str]) -> OutputFactory:
    """Return what writes the output of each task to a file of its own in `folder`: `bg-1.jsonl`, or `bg-1-2.jsonl` if
    that one is there already."""

    def open_output(id: str, subject: str) -> tuple[Writer, str]:
        make_private_folder(Path(folder))
        names = (f"{id}{f'-{n}' if n > 1 else ''}.jsonl" for n in range(1, 1_000_000))
        for path in (Path(folder) / name for name in names):
            try:
                file = open(path, "x", 1, "utf-8", "backslashreplace", opener=private)  # noqa: SIM115 - the writer
                return file, str(path)
            except FileExistsError:
                continue
        raise FileExistsError(f"{folder} is full of files of earlier tasks {id}. Use another folder.")

    return open_output

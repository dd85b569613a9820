"""Programs that are children of this process, with all that they have started, as far as the system shows that.

A program is started in a session of its own, so that its process id is the id of its group. Who starts a session of its
own in turn (`setsid`, a daemon) is found on Linux by a mark in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from journeyman.definition.data import lazy_dataclass

MARK: Final = "JOURNEYMAN_COMMAND"
"""The environment variable by which the processes of a command are found. It holds ids, the outermost command first."""
_PROC = Path("/proc")
# The fields 3, 4 and 23, counted from behind the name.
_STATE, _PARENT, _VSIZE = 0, 1, 20
# Ten milliseconds in all: it is empty only while the system puts the new program in its place.
_EXEC_LOOKS = 20
_EXEC_S = 0.000_5


@lazy_dataclass(frozen=True)
class Processes:
    """The processes of one command."""

    group: int
    mark: str

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the group, and to those outside of it that are known by the mark."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)
        for process in self.living():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def living(self) -> list[int]:
        """Return those that still run; none where this system does not tell."""
        return [process for process in _all() if self._is_ours(process) and not _is_dead(process)]

    def are_left(self) -> bool:
        """Tell whether any still runs."""
        # Only Linux shows whose a process is: elsewhere, the group is asked.
        if _PROC.joinpath("self", "stat").exists():
            return bool(self.living())
        try:
            os.killpg(self.group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _is_ours(self, process: int) -> bool:
        try:
            if os.getpgid(process) == self.group:
                return True
            return self.mark.encode() in _environment(process)
        except (OSError, IndexError):  # it has ended by now, or is somebody else's
            return False


def kill_marked(mark: str) -> None:
    """Kill the processes that a mark in their environment shows, where the system shows it."""
    for process in Processes(-1, mark).living():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def kill_children() -> None:
    """Kill the processes that this one has started, and those that they have started, as far as the system shows them:
    what this process would wait for if it could."""
    parents: dict[int, int] = {}
    for process in _all():
        with suppress(OSError, IndexError):  # it has ended by now
            parents[process] = int(_stat(process)[_PARENT])
    ours, found = {os.getpid()}, set[int]()
    # Generation by generation: a child of a child is nobody's but its parent's.
    while ours:
        ours = {each for each, parent in parents.items() if parent in ours}
        found |= ours
    for process in found:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _all() -> Iterator[int]:
    with suppress(OSError):
        own = os.getpid()
        for name in os.listdir(_PROC):  # noqa: PTH208  names are all it takes
            if name.isdecimal() and int(name) != own:
                yield int(name)


def _environment(process: int) -> bytes:
    """Read the environment of a process; while it starts another program in its place, that is empty for a moment."""
    for _ in range(_EXEC_LOOKS):
        environment = _PROC.joinpath(str(process), "environ").read_bytes()
        # Neither the threads of the kernel nor those that have ended have memory of their own.
        if environment or int(_stat(process)[_VSIZE]) <= 0:
            return environment
        time.sleep(_EXEC_S)
    return b""


def _is_dead(process: int) -> bool:
    """Tell whether it has ended and only waits for its parent to take notice."""
    try:
        return _stat(process)[_STATE] in "ZX"
    except (OSError, IndexError):
        return True


def _stat(process: int) -> list[str]:
    """Return the fields of proc_pid_stat(5), without the first two: the id and the name."""
    # Behind the last bracket: a program's name may hold blanks and brackets itself.
    return _PROC.joinpath(str(process), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def mark_environment(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return an environment with a mark in it, after the marks of the commands that this process belongs to."""
    outer = os.environ.get(MARK)
    return {**environment, MARK: f"{outer}:{mark}" if outer else mark}

"""All processes of one command, and ending them: the group, and on Linux whoever left it.

A command runs in a session of its own, so that its process id is the id of its group. Who starts a session of its own
in turn (`setsid`, a daemon) is found by a mark in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "JOURNEYMAN_COMMAND"
"""The environment variable by which the processes of a command are found: ids, from the outermost command inwards."""

_PROC = Path("/proc")
_STATE, _VSIZE = 0, 20
_EXEC_LOOKS = 20
_EXEC_S = 0.000_5


@dataclass(frozen=True, slots=True)
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
        if environment or not _has_memory(process):
            return environment
        time.sleep(_EXEC_S)
    return b""


def _has_memory(process: int) -> bool:
    """Tell whether it has memory of its own, as neither the kernel's threads nor those that have ended do."""
    return int(_stat(process)[_VSIZE]) > 0


def _is_dead(process: int) -> bool:
    """Tell whether it has ended and only waits for its parent to take notice."""
    try:
        return _stat(process)[_STATE] in "ZX"
    except (OSError, IndexError):
        return True


def _stat(process: int) -> list[str]:
    """Return the fields of proc_pid_stat(5), without the first two: the id and the name."""
    return _PROC.joinpath(str(process), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()

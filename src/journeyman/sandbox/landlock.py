"""Boxes of Landlock: a command gives up what it may do, where no namespaces can be had, as in most containers.

Landlock can only allow. So it hides nothing and protects nothing inside a folder that may be changed, and what it holds
is less than what bubblewrap does. The keeper gives it up for all that it starts.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from journeyman.definition.problems import explain_arguments
from journeyman.processes.process import SandboxUnavailable
from journeyman.sandbox.adapter import KeptSandbox, SandboxAdapter
from journeyman.sandbox.box import Box
from journeyman.sandbox.filter import build_filter
from journeyman.sandbox.programs import needed_for_programs
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_CREATE_RULESET, _VERSION = 444, 1
_READ: Final = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_DEVICES: Final = _READ | 1 << 1 | 1 << 14 | 1 << 15  # write, truncate, ioctl
_OF_A_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights over files each version knows."""
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store", "/sys", "/proc")


@explain_arguments
class Landlock(SandboxAdapter):
    """Sandboxes of the kernel's Landlock, which needs no privileges and no program. It does not hold what a box hides,
    protects or denies."""

    def __init__(self) -> None:
        super().__init__("landlock")

    def open_box(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox.open`."""
        version = 0
        if sys.platform == "linux":
            syscall = ctypes.CDLL(None, use_errno=True).syscall
            version = syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
        filter = build_filter(has_own_network=False)
        if version < 1 or filter is None:
            raise SandboxUnavailable("This system has no Landlock: Linux has it from 5.13 on, if it is switched on.")

        def describe(folder: str) -> dict[str, object]:
            return {"borders": {**rules_of(box, folder, version), "filter": filter}}

        return KeptSandbox(box, None, describe, has_temporary=True)


def rules_of(box: Box, temporary: str, version: int) -> dict[str, object]:
    """Return the rights that a version of Landlock handles, and the paths with the rights that are left."""
    every = (1 << _BITS.get(version, _BITS[max(_BITS)])) - 1
    handled = [every, *([3] if version >= _TCP_SINCE else []), *([3] if version >= _SCOPES_SINCE else [])]
    readable = (
        ("/",) if box.reads == "all" else (*_SYSTEM, *needed_for_programs(box.path, ("/",)), *box.readable, box.work)
    )
    writable = [*box.roots, temporary]
    rights = dict.fromkeys(readable, _READ) | {"/dev": _DEVICES & every}
    rights |= {path: every if Path(path).is_dir() else every & _OF_A_FILE for path in writable}
    return {"handled": handled, "rules": [(path, right) for path, right in rights.items() if Path(path).exists()]}


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = Landlock

"""Boxes of macOS: a profile of Seatbelt, which `sandbox-exec` gives to a process and all that it starts.

The last rule of a profile that fits decides, so what is allowed in general stands before what is refused inside of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from journeyman.definition.problems import explain_arguments
from journeyman.processes.process import SandboxUnavailable
from journeyman.sandbox.adapter import KeptSandbox, SandboxAdapter
from journeyman.sandbox.box import Box, plan_mounts
from journeyman.sandbox.programs import files_of_programs, folders_of_programs, needed_for_programs
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_PROGRAM: Final = "/usr/bin/sandbox-exec"
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/random")
_SERVICES: Final = (
    *("com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.coreservices.appleevents"),
    *("com.apple.coreservices.launchservicesd", "com.apple.lsd.open", "com.apple.pasteboard.1"),
)
"""The services for the keychain, for other programs, for `open` and for what was copied."""
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/System", "/Library", "/opt", "/etc", "/private/etc", "/dev", "/private/var"),
)


@explain_arguments
class Seatbelt(SandboxAdapter):
    """Sandboxes of macOS, by `sandbox-exec`."""

    def __init__(self) -> None:
        super().__init__("seatbelt")

    def open_box(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox.open`."""
        if sys.platform != "darwin" or not os.access(_PROGRAM, os.X_OK):
            raise SandboxUnavailable(f"{_PROGRAM} is not there: only macOS has it.")

        def launch(line: Sequence[str], folder: str) -> tuple[list[str], list[int]]:
            denied, _ = files_of_programs(box.denied, folders_of_programs(box.path))
            profile = write_profile(box, folder, denied, [*needed_for_programs(box.path, ("/",))])
            return [_PROGRAM, "-p", profile, *line], []

        return KeptSandbox(box, launch, has_temporary=True)


def write_profile(box: Box, temporary: str, denied: Sequence[str], readable: Sequence[str]) -> str:
    """Return the profile of a box with a folder for temporary files, files of programs that it denies, and folders that
    programs need.

    Raises:
        SandboxUnavailable: a path has characters that no profile can hold.
    """
    return "\n".join(["(version 1)", "(allow default)", *_rules(box, temporary, denied, readable), ""])


def _rules(box: Box, temporary: str, denied: Sequence[str], readable: Sequence[str]) -> Iterator[str]:
    writable = [*box.roots, temporary]
    yield "(deny file-write*)"
    yield f"(allow file-write*{_each('subpath', writable)})"
    yield f"(allow file-write-data file-ioctl{_each('literal', _DEVICES)})"
    yield "(deny file-write-setugid)"
    if box.reads == "system":
        shown = [*_SYSTEM, *readable, *box.readable, box.work, *box.writes, temporary]
        yield '(deny file-read-data (subpath "/"))'
        yield f'(allow file-read-data (literal "/"){_each("subpath", shown)})'
    if box.protected:
        yield f"(deny file-write*{_each('subpath', box.protected)})"
    around = [path for path, kind in plan_mounts(box) if kind == "change" and path not in box.roots]
    if around:
        yield f"(deny file-write-unlink{_each('literal', around)})"
    if box.hidden:
        yield f"(deny file-read* file-write*{_each('subpath', box.hidden)})"
    if denied:
        yield f"(deny file-read-data process-exec*{_each('literal', denied)})"
    yield "(deny network*)"
    yield "(deny signal (target others))"
    yield "(deny process-info* (target others))"
    yield "(deny appleevent-send)"
    yield "(deny lsopen)"
    yield f"(deny mach-lookup{_each('global-name', _SERVICES)})"


def _each(filter: str, words: Sequence[str]) -> str:
    """Return a filter of a profile for each word, quoted."""
    strange = next((each for each in words if not each.isprintable()), None)
    if strange is not None:
        raise SandboxUnavailable(f"{strange!r} has characters that a profile of Seatbelt cannot hold. Rename it.")
    escaped = [each.replace("\\", "\\\\").replace('"', '\\"') for each in words]
    return "".join(f'\n  ({filter} "{each}")' for each in escaped)


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = Seatbelt

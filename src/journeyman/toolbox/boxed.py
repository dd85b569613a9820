"""The box of a workspace: opened with its first command, kept open for the next ones, and closed with it.

A command that belongs into the box runs in it, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from journeyman import sandbox as sandboxes  # whose modules are loaded when somebody asks for a box
from journeyman.errors import DefinitionError, Problem
from journeyman.startup_files import StartupFiles
from journeyman.toolbox.files import ToolRefused

if TYPE_CHECKING:
    from journeyman.sandbox import Box, OpenSandbox, Sandbox, SandboxProcess

SandboxChoice: TypeAlias = "Literal['auto', 'required'] | Box | Sandbox"
"""`auto`: the sandbox that holds enough here, if one does; `required`: that, or none of the workspace's commands run; a
box: these borders, in the sandbox that holds; a sandbox: the usual borders, in this one."""

_LOG: Final = logging.getLogger("journeyman")


class WorkspaceBox:
    """The box of one workspace. It is used from one event loop at a time."""

    def __init__(
        self,
        choice: SandboxChoice,
        root: str,
        *,
        also: Sequence[str | os.PathLike[str]] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Choose the sandbox now, unless it is `auto`, which is looked at with the first command. `also` may be changed
        besides the root; in `environment` is the `PATH` of commands, in this process's if None.

        Raises:
            DefinitionError: no sandbox holds enough here for what was asked.
        """
        if isinstance(choice, str) and choice not in ("auto", "required"):
            told = f"sandbox is {choice!r}."
            hint = "Write 'auto', 'required' or None, or give a Box or a sandbox."
            raise DefinitionError("A workspace", [Problem("INVALID_SANDBOX", told, hint)])
        if isinstance(choice, sandboxes.Box) and choice.work != root:
            told = f"The box is one for {choice.work}, and the folder of the workspace is {root}."
            raise DefinitionError("A workspace", [Problem("INVALID_SANDBOX", told, "Give both the same folder.")])
        writes = tuple([os.path.realpath(Path(each).expanduser()) for each in also])
        path = (os.environ if environment is None else environment).get("PATH")
        self._is_optional: Final = choice == "auto"
        self._box: Final = (
            choice
            if isinstance(choice, sandboxes.Box)
            else sandboxes.Box(work=root, writes=writes, hidden=sandboxes.secrets_of_home(), path=path)
        )
        self._sandbox: Sandbox | None = None if isinstance(choice, str | sandboxes.Box) else choice
        self._opened: OpenSandbox | None = None
        self._startup: StartupFiles | None = None
        self._processes: Final[list[SandboxProcess]] = []
        self._opening: Final = Lock()
        if choice != "auto" and self._sandbox is None:
            self._sandbox = sandboxes.choose_sandbox()
            guarantees = self._sandbox.holds()
            if not guarantees.is_enough:
                told = f"A sandbox is required, and none holds enough here: {guarantees}."
                hint = "Do what is said there, or give sandbox='auto' or a sandbox of your own."
                raise DefinitionError("A workspace", [Problem("NO_SANDBOX", told, hint)])

    async def spawn(
        self, program: str, command: str, *, folder: str, environment: Mapping[str, str], output: int
    ) -> SandboxProcess | None:
        """Start a command in the box. None: there is no sandbox, and none is required.

        Raises:
            ToolRefused: the box cannot be opened, or has broken.
        """
        try:
            opened = await asyncio.to_thread(self._open)
            if opened is None:
                return None
            process = await opened.spawn(
                program, ["-c", command], folder=folder, environment=environment, stdout=output, stderr=output
            )
        except sandboxes.SandboxUnavailable as error:
            raise ToolRefused("not_available", f"{error} Nothing was run.") from error
        self._processes[:] = [*[each for each in self._processes if each.are_left()], process]
        return process

    async def explain(self, output: str, folder: str) -> list[str]:
        """Return what the box has refused to a command, and what was put aside after it, each as a line to read."""
        if self._opened is None or self._startup is None:
            return []
        refusals = sandboxes.find_refusals(self._opened.box, output, folder)
        held = await asyncio.to_thread(self._startup.hold_changes)
        return [
            *[_REFUSED[each.cause].format(each.what) for each in refusals],
            *[f"{each} was put aside as {each}.held: programs would run it by themselves." for each in held],
        ]

    def _open(self) -> OpenSandbox | None:
        with self._opening:
            sandbox = self._sandbox
            if sandbox is None:
                sandbox = self._sandbox = sandboxes.choose_sandbox()
                if not sandbox.holds().is_enough:
                    _LOG.warning("Commands run without a sandbox: %s", sandbox.holds())
            if self._is_optional and not sandbox.holds().is_enough:
                return None
            if self._startup is None:
                self._startup = StartupFiles(self._box.work)
            # No adapter lets hosts through yet: without them the box is narrower than what was asked for.
            protected = tuple(dict.fromkeys([*self._box.protected, *self._startup.paths]))
            wanted = replace(self._box, protected=protected, hosts=())
            opened = self._opened
            if opened is not None and opened.is_open:
                if opened.box == wanted or any(each.are_left() for each in self._processes):
                    return opened
                opened.close()
            self._opened = sandbox.open(wanted)
            return self._opened

    def close(self) -> None:
        """End all that runs in the box. With the next command another one is opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_REFUSED: Final = {
    "write": "The sandbox refused to change {}: it is outside of the workspace.",
    "read": "The sandbox refused to read {}: it is hidden from commands.",
    "protected": "The sandbox refused to change {}: it is protected.",
    "program": "The sandbox refused to run {}: a rule forbids it.",
    "network": "The sandbox refused to connect to {}.",
}

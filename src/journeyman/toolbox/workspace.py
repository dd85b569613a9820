"""The folder that an agent works in, and the tools that work on its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, get_args

from journeyman.definition.problems import explain_arguments, raise_problems
from journeyman.errors import DefinitionError, Problem
from journeyman.toolbox.boxed import AskedSandbox, SandboxChoice, WorkspaceBox, asked_sandbox
from journeyman.toolbox.command import bash_tool
from journeyman.toolbox.edit import edit_tool
from journeyman.toolbox.files import FileSystem, LocalFiles, Reach, Spill
from journeyman.toolbox.read_write import ls_tool, read_tool, write_tool
from journeyman.toolbox.search import glob_tool, grep_tool
from journeyman.toolbox.workspace_state import Bench, Shell, Stamps
from journeyman.tools.tools import AnyTool
from journeyman.tools.toolsets import Toolset

ToolName: TypeAlias = Literal["read", "write", "edit", "bash", "glob", "grep", "ls"]
"""The tools of a workspace."""

_MAKERS: Final[dict[ToolName, Callable[[Bench], AnyTool]]] = {
    "read": read_tool,
    "write": write_tool,
    "edit": edit_tool,
    "bash": bash_tool,
    "glob": glob_tool,
    "grep": grep_tool,
    "ls": ls_tool,
}


@explain_arguments
class Workspace(Toolset):
    """A folder that an agent works in. Its file tools refuse to leave it; `bash` can do what this process can, unless
    `sandbox` puts it into a box.

    A file that was read through one workspace counts as read for all agents that share it. Give each agent a workspace
    of its own if each must read for itself. Texts that are too long to show are kept in a temporary folder until
    `close`, the end of a `with` block, or the end of the object.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        files: FileSystem | None = None,
        shell: Shell = Shell(),  # noqa: B008  frozen
        also: Sequence[str | os.PathLike[str]] = (),
        confined: bool = True,
        untrusted: bool = False,
        ripgrep: str | None = "rg",
        sandbox: SandboxChoice | None = None,
    ) -> None:
        """Open a workspace.

        Args:
            root: The folder to which the paths that a model gives are relative.
            files: Where the files are; those of this machine if not given.
            shell: How `bash` runs commands.
            also: Further folders that may be read and changed.
            confined: False to allow any path, and to let a command ask for more than its box. Use it with a gate that
                decides.
            untrusted: Whether what is in the files may hold instructions that are not the user's.
            ripgrep: The program that searches where it is installed; None to search without it.
            sandbox: The box that commands run in: `auto`, `required`, a `Box`, a function that returns the one for the
                files that are there now, or a sandbox with the usual borders. With `auto` they run without one where
                none holds, which is logged once. None: as `--sandbox` says; else as this process runs.

        Raises:
            DefinitionError: the root is not a folder, or a sandbox is required and none holds enough here.
        """
        self._files: Final = LocalFiles() if files is None else files
        given = os.fspath(root)
        if isinstance(self._files, LocalFiles):
            given = os.path.abspath(os.path.expanduser(given))
        reach = Reach(given, self._files, also=[os.fspath(each) for each in also], confined=confined)
        self._refuse_unless_folder(reach)
        asked = asked_sandbox.get()
        if asked is not None:
            shell = replace(shell, keep=(*shell.keep, *asked.keep))
        self.bench: Final = Bench(
            reach=reach,
            stamps=Stamps(),
            spill=Spill(reach.open_for_reading),
            shell=shell,
            ripgrep=None if ripgrep is None else shutil.which(ripgrep),
            untrusted=untrusted,
            box=self._make_box(sandbox, asked, reach, also=also, environment=shell.environment, confined=confined),
        )

    def _make_box(
        self,
        sandbox: SandboxChoice | None,
        asked: AskedSandbox | None,
        reach: Reach,
        *,
        also: Sequence[str | os.PathLike[str]],
        environment: Mapping[str, str] | None,
        confined: bool,
    ) -> WorkspaceBox | None:
        """Return the box of commands: the one that is given, else the one that whoever started the program asks for."""
        given = partial(WorkspaceBox, root=reach.root, environment=environment)
        if sandbox is not None:
            box = given(sandbox, also=also, may_widen=not confined)
        elif asked is None or asked.choice is None or not self._has_commands:
            return None
        else:
            widens = asked.is_usual or not confined  # a gate decides, which a command line always has
            try:
                box = given(asked.choice, also=also, may_widen=widens, needs=asked.needs)
            except DefinitionError as error:
                if not asked.is_usual:
                    raise
                asked.problem = error.problems[0].message
                return None
        if asked is not None:
            asked.boxes.append(box)
        return box

    @property
    def root(self) -> str:
        """The folder, absolute, with links followed."""
        return self.bench.reach.root

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """All its tools, as a toolset."""
        return self.tools()

    def tools(self, *names: ToolName) -> tuple[AnyTool, ...]:
        """Return the tools with these names, in this order. Without names, return all tools of this workspace.

        Raises:
            DefinitionError: there is no such tool, or it cannot work with such files.
        """
        wanted = names or tuple(name for name in _MAKERS if name != "bash" or self._has_commands)
        raise_problems("A workspace", [problem for name in wanted if (problem := self._problem(name)) is not None])
        return tuple([_MAKERS[name](self.bench) for name in wanted])

    def locate(self, path: str, *, writing: bool = False) -> str:
        """Return where a path that a model gives leads: absolute, with links followed.

        Raises:
            Refusal: the path leads out of the workspace.
        """
        return self.bench.reach.locate(path, writing=writing).path

    def close(self) -> None:
        """Remove the texts that were too long to show, and end all commands that still run. It can go on being used."""
        self.bench.spill.close()
        self.bench.unboxed.close()
        if self.bench.box is not None:
            self.bench.box.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _has_commands(self) -> bool:
        return isinstance(self._files, LocalFiles)

    def _problem(self, name: ToolName) -> Problem | None:
        if name not in _MAKERS:
            hint = f"There are {', '.join(get_args(ToolName))}."
            return Problem("UNKNOWN_TOOL", f"A workspace has no tool {name!r}.", hint)
        if name == "bash" and not self._has_commands:
            return Problem(
                "NO_COMMANDS",
                f"Commands run on this machine, and cannot see the files of {type(self._files).__name__}.",
                "Leave bash out, or use LocalFiles.",
            )
        return None

    def _refuse_unless_folder(self, reach: Reach) -> None:
        facts = self._files.facts(reach.root)
        is_new = facts is None and not isinstance(self._files, LocalFiles)  # others may have folders only with files
        if not is_new and (facts is None or facts.kind != "folder"):
            problem = Problem("NO_WORKSPACE", f"{reach.root} is not a folder.", "Make it first, or give another.")
            raise DefinitionError("A workspace", [problem])

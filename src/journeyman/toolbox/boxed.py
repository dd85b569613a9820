"""The box of a workspace: opened with its first command, kept open for the next ones, and closed with it.

A command that belongs into the box runs in it, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from journeyman import sandbox as sandboxes  # whose modules are loaded when somebody asks for a box
from journeyman.errors import DefinitionError, Problem, printable
from journeyman.gate import may_change_files
from journeyman.machine.startup_files import HeldFile, StartupFiles
from journeyman.toolbox.files import ToolRefused, open_folder
from journeyman.tools.known_secrets import known_secrets

if TYPE_CHECKING:
    from journeyman.sandbox import Box, OpenSandbox, Sandbox, SandboxProcess, SandboxRefusal

SandboxChoice: TypeAlias = "Literal['auto', 'required'] | Box | Callable[[], Box] | Sandbox"
"""`auto`: the sandbox that holds enough here, if one does; `required`: that, or none of the workspace's commands run; a
box, or a function that returns the one for the files that are there now: these borders, in the sandbox that holds; a
sandbox: the usual borders, in this one."""

_LOG: Final = logging.getLogger("journeyman")


@dataclass(slots=True)
class _OpenBox:
    """A box that was opened, and what was started in it."""

    opened: OpenSandbox
    processes: list[SandboxProcess] = field(default_factory=list["SandboxProcess"])

    @property
    def is_busy(self) -> bool:
        return any(each.are_left() for each in self.processes)


class _Wish(NamedTuple):
    """The wish of a command for a box: by what it is wider than the workspace's, and whether files may be changed."""

    needs: tuple[str, ...] = ()
    changes: bool = True


_USUAL: Final = _Wish()


@dataclass(slots=True)
class AskedSandbox:
    """The wish of whoever starts a program for those of its workspaces that name no sandbox, and the boxes of all."""

    choice: SandboxChoice | None = None
    keep: tuple[str, ...] = ()
    """Names of variables that commands get besides."""
    needs: tuple[str, ...] = ()
    """The needs that commands are given beyond the usual borders: hosts, and absolute paths."""
    is_usual: bool = False
    """True: nobody has said so, and a workspace that no box can hold goes without one."""
    problem: str = ""
    """The reason why a workspace goes without one."""
    boxes: list[WorkspaceBox] = field(default_factory=list["WorkspaceBox"])


asked_sandbox: Final[ContextVar[AskedSandbox | None]] = ContextVar("journeyman_asked_sandbox", default=None)


class WorkspaceBox:
    """The box of one workspace, and those that are wider, of commands that need more. It is used from one event loop at
    a time."""

    def __init__(
        self,
        choice: SandboxChoice,
        root: str,
        *,
        also: Sequence[str | os.PathLike[str]] = (),
        environment: Mapping[str, str] | None = None,
        may_widen: bool = False,
        needs: Sequence[str] = (),
    ) -> None:
        """Choose the sandbox now, unless it is `auto`, which is looked at with the first command. `also` may be changed
        besides the root; in `environment` is the `PATH` of commands, in this process's if None. `needs` widen the usual
        borders.

        Raises:
            DefinitionError: no sandbox holds enough here for what was asked.
        """
        self.may_widen: Final = may_widen
        """Whether a command may be given more than the box."""
        is_sandbox = isinstance(choice, sandboxes.Sandbox)
        if isinstance(choice, str) and choice not in ("auto", "required"):
            told = f"sandbox is {choice!r}."
            hint = "Write 'auto', 'required' or None, or give a Box, a function that returns one, or a sandbox."
            raise DefinitionError("A workspace", [Problem("INVALID_SANDBOX", told, hint)])
        self.refused: Final[dict[SandboxRefusal, None]] = {}
        """All that it has refused to commands."""
        self.given: Final[dict[str, None]] = {}
        """All needs that commands were given beyond it."""
        self.root: Final = root
        self._also: Final = tuple([os.path.realpath(Path(each).expanduser()) for each in also])
        path = (os.environ if environment is None else environment).get("PATH")
        hidden = sandboxes.secrets_of_home()
        usual = sandboxes.Box(work=root, writes=self._also, hidden=hidden, path=path).wider(needs)
        self._is_optional: Final = choice == "auto"
        self._box: Final = usual if isinstance(choice, str) or is_sandbox else choice
        self._sandbox: Sandbox | None = choice if is_sandbox else None
        self._startup: StartupFiles | None = None
        self._open_boxes: Final[dict[_Wish, _OpenBox]] = {}
        """The box of the workspace, and those that differ from it."""
        self._left: Final[list[_OpenBox]] = []
        """Those that no other command is started in, and in which something still runs."""
        self._searching: OpenSandbox | None = None
        """The box of the program that searches."""
        self._opening: Final = Lock()
        if isinstance(self._box, sandboxes.Box):
            self._refuse_other_folder(self._box)
        if choice != "auto" and self._sandbox is None:
            self._sandbox = sandboxes.choose_sandbox()
            if not self._sandbox.holds().is_enough:
                told = f"A sandbox is required, and none holds enough here: {sandboxes.explain_sandboxes()}."
                hint = "Do what is said there, or give sandbox='auto' or a sandbox of your own."
                raise DefinitionError("A workspace", [Problem("NO_SANDBOX", told, hint)])

    def _refuse_other_folder(self, box: Box) -> None:
        if box.work != self.root:
            told = f"The box is one for {box.work}, and the folder of the workspace is {self.root}."
            raise DefinitionError("A workspace", [Problem("INVALID_SANDBOX", told, "Give both the same folder.")])

    async def find(self) -> Box | None:
        """Return the borders of the next command, for a gate to judge by: those of the box that is open, while
        something runs in it. None: no sandbox holds enough here, or no box can be opened."""
        try:
            return await asyncio.to_thread(self._find)
        except (sandboxes.SandboxUnavailable, DefinitionError):  # the command itself will say so
            return None

    def _find(self) -> Box | None:
        with self._opening:
            wish = _Wish(changes=may_change_files())
            used = self._open_boxes.get(wish)
            if used is not None and used.is_busy and used.opened.is_open:
                return used.opened.box if self._chosen().holds().is_enough else None
            return self._borders(wish) if self._chosen().holds().is_enough else None

    @property
    def name(self) -> str:
        """The name of its sandbox."""
        return self._chosen().name

    def _chosen(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = sandboxes.choose_sandbox()
            if not self._sandbox.holds().is_enough:
                _LOG.warning("Commands run without a sandbox: %s", sandboxes.explain_sandboxes())
        return self._sandbox

    def _borders(self, wish: _Wish) -> Box:
        """Return the box, in which what runs by itself is protected, too, without hosts where none are let through.

        Raises:
            DefinitionError: something is no need, or cannot be had.
        """
        box = self._box if isinstance(self._box, sandboxes.Box) else self._box()
        self._refuse_other_folder(box)
        if self._startup is None:
            self._startup = StartupFiles(self.root)
        # What a command cannot read nobody else shall: not in a log, not on a page.
        known_secrets.hide_files(box.hidden)
        protected = tuple(dict.fromkeys([*box.protected, *self._startup.paths]))
        if not wish.changes:
            box = replace(box, changes=False, writes=(), hosts=(), readable=(*box.readable, *box.writes))
        hosts = box.hosts if self._chosen().holds().has_proxy else ()
        return replace(box, protected=protected, hosts=hosts, sandbox=self._chosen().name).wider(wish.needs)

    async def spawn(
        self,
        program: str,
        command: str,
        *,
        folder: str,
        environment: Mapping[str, str],
        output: int,
        needs: Sequence[str] = (),
    ) -> tuple[SandboxProcess, OpenSandbox] | None:
        """Start a command in the box, or in one that is as much wider as it needs, and return that, too. None: it needs
        to be outside; or there is no sandbox, and none is required.

        Raises:
            ToolRefused: the box cannot be opened, or has broken, or what is needed cannot be given.
        """
        if needs and not self.may_widen:
            raise ToolRefused("not_available", "No command of this workspace can be given more than its box.")
        wish = _Wish(tuple(sorted({*needs})), may_change_files())
        try:
            found = None if wish.needs == ("outside",) else await asyncio.to_thread(self._open, wish)
            self.given.update(dict.fromkeys(needs))
            if found is None:
                return None
            process = await found.opened.spawn(
                program, ["-c", command], folder=folder, environment=environment, stdout=output, stderr=output
            )
        except DefinitionError as error:
            raise ToolRefused("invalid", str(error)) from error
        except sandboxes.SandboxUnavailable as error:
            raise ToolRefused("not_available", f"{error} Nothing was run.") from error
        found.processes[:] = [*[each for each in found.processes if each.are_left()], process]
        return process, found.opened

    async def find_refusals(self, opened: OpenSandbox | None, output: str, folder: str) -> list[SandboxRefusal]:
        """Return what the box has refused to a command, and what was put aside after it."""
        if self._startup is None:
            return []
        refusals = [] if opened is None else [*sandboxes.find_refusals(opened.box, output, folder)]
        if isinstance(opened, sandboxes.TellsRefusals):
            refusals = [*dict.fromkeys([*opened.take_refusals(), *refusals])]
        held = await asyncio.to_thread(self._startup.hold_changes)
        refusals += [
            sandboxes.SandboxRefusal(
                cause="held" if each.aside else "not_held", what=each.path, detail=each.aside or each.problem
            )
            for each in held
        ]
        self.refused.update(dict.fromkeys(refusals))
        return refusals

    async def return_held(
        self, refusals: Sequence[SandboxRefusal], may_keep: Callable[[Sequence[str]], Awaitable[bool]]
    ) -> list[str]:
        """Ask once about all files that were put aside after a command, and give them their names back if that is
        allowed. Return lines that say what came of it."""
        # A name that is no text stands in no question, and in no approval.
        held = [each for each in refusals if each.cause == "held" and each.what.isprintable()]
        if not held or not await may_keep([each.what for each in held]):
            return []
        problems = await asyncio.to_thread(lambda: {each: self._return_file(each) for each in held})
        back = ", ".join([each.what for each, problem in problems.items() if not problem])
        stays = [f"{each.what} stays put aside: {problem}." for each, problem in problems.items() if problem]
        return [*([f"That was allowed, so it has its name back: {back}."] if back else []), *stays]

    def _return_file(self, refusal: SandboxRefusal) -> str:
        assert self._startup is not None  # it has put the file aside
        try:
            with open_folder(os.path.dirname(refusal.what)) as folder:
                return self._startup.return_held(HeldFile(refusal.what, refusal.detail), folder)
        except OSError as error:
            return error.strerror or "nobody says why"

    def explain(self, refusal: SandboxRefusal) -> str:
        """Return what was refused as a line to read, with what to ask for where that can be had."""
        if refusal.cause == "held":
            return HeldFile(refusal.what, refusal.detail).describe()
        if refusal.cause == "not_held":
            return HeldFile(refusal.what, "", refusal.detail).describe()
        is_read_only = refusal.cause == "write" and Path(refusal.what).is_relative_to(self.root)
        told = _READ_ONLY if is_read_only else _REFUSED[refusal.cause]
        can_be_asked = self.may_widen and may_change_files() and refusal.need is not None
        asked = f' Ask with needs=["{printable(refusal.need or "")}"].' if can_be_asked else ""
        return told.format(printable(refusal.what)) + asked

    def _open(self, wish: _Wish) -> _OpenBox | None:
        with self._opening:
            sandbox = self._chosen()
            if self._is_optional and not sandbox.holds().is_enough:
                return None
            wanted = self._borders(wish)
            found = self._open_boxes.get(wish)
            # A server in the background and the next command see each other in the box of the workspace. Gates know of
            # that one only, so one that is wider is never an older one.
            if found is not None and found.opened.is_open:
                if found.opened.box == wanted or (not wish.needs and found.is_busy):
                    return found
                self._left.append(found)
            others = [each for each in self._open_boxes if each not in (_USUAL, wish)]
            self._left.extend(self._open_boxes.pop(each) for each in others)
            self._left[:] = [each for each in self._left if each.is_busy or each.opened.close()]
            self._open_boxes[wish] = _OpenBox(sandbox.open(wanted))
            return self._open_boxes[wish]

    def open_for_search(self, program: str, folder: str) -> OpenSandbox | None:
        """Return a box in which a program reads the files of the workspace, and does nothing else. None: no sandbox
        holds enough here, or the folder is none of the workspace.

        Raises:
            SandboxUnavailable: it cannot be opened.
        """
        with self._opening:
            if not sandboxes.Box(work=self.root, writes=self._also).may_change(folder):
                return None
            if not self._chosen().holds().is_enough:
                return None
            if self._searching is None or not self._searching.is_open:
                path = os.path.dirname(program)
                box = sandboxes.Box(work=self.root, changes=False, reads="system", readable=self._also, path=path)
                self._searching = self._chosen().open(box)
            return self._searching

    def close(self) -> None:
        """End all that runs in its boxes. With the next command another one is opened."""
        if self._searching is not None:
            self._searching.close()
        for each in [*self._open_boxes.values(), *self._left]:
            each.opened.close()
        self._open_boxes.clear()
        self._left.clear()


_READ_ONLY: Final = "The sandbox refused to change {}: nothing may be changed now."
_REFUSED: Final = {
    "write": "The sandbox refused to change {}: it is outside of the workspace.",
    "read": "The sandbox refused to read {}: it is hidden from commands.",
    "protected": "The sandbox refused to change {}: it is protected.",
    "program": "The sandbox refused to run {}: a rule forbids it.",
    "network": "The sandbox refused to connect to {}: it is not among the hosts that are allowed.",
    "socket": "The sandbox refused {}: unix sockets lead to other programs, except for those made in /tmp.",
    "privilege": "The sandbox refused {}: no command in it becomes another user.",
}

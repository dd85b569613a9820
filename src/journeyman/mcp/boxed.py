"""The box of a server that is a program: what it gets by itself, and the needs that it shows when that is not enough.

By itself it reads the system, its own package and what its command line names, changes the folders that are named
there, and reaches no host. What it was refused is told as the needs that would give it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from journeyman import sandbox as sandboxes  # whose modules are loaded when somebody asks for a box
from journeyman.hosts.proxies import VARIABLES
from journeyman.machine.environment import is_secret, select_environment
from journeyman.machine.files import is_inside
from journeyman.machine.startup_files import HeldFile, StartupFiles
from journeyman.mcp.servers import Stdio
from journeyman.processes.unboxed import Unboxed

if TYPE_CHECKING:
    from journeyman.sandbox import Box, OpenSandbox, Sandbox, SandboxProcess

_log = logging.getLogger("journeyman")
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store"),
    *("/snap", "/sys", "/proc", "/dev", "/System", "/Library"),
)
"""Folders that every server sees, and none changes."""
_NO_HOST: Final = "nobody.invalid"
"""A host that there is not: with one, a box has a proxy, which knows what it has refused."""
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_CODE: Final = (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".rb", ".jar", ".wasm")
_PROJECTS: Final = ("pyproject.toml", "package.json", "setup.py", "go.mod", "Cargo.toml")
_REFUSED: Final = re.compile(
    r"\b(ENOENT|EACCES|EROFS|EPERM)\b|no such file|read-only file system|permission denied|operation not permitted"
    r"|unable to open database|(does not|doesn't) exist|not found",
    re.IGNORECASE,
)
_PATHS: Final = re.compile("""(?:^|[\\s'"`(=:])((?:/[^\\s'"`():,;]+)+)""", re.MULTILINE)
_LONGEST: Final = 100_000
_MOST: Final = 5


def environment_of(server: Stdio) -> dict[str, str]:
    """Return the environment of a server: variables that are known by their names to be harmless, those that lead to a
    proxy, and what it was given."""
    proxies = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    passed = {name: text for name, text in proxies.items() if not is_secret(name, text)}
    return {**passed, **select_environment(server.keep), **server.env}


class ServerBox:
    """The box of one server: opened as it starts, closed as it ends."""

    def __init__(self, server: Stdio, environment: Mapping[str, str]) -> None:
        self._server: Final = server
        self._environment: Final = environment
        self._own: str | None = None
        """The folder that it starts in, where it is given none."""
        self._opened: OpenSandbox | None = None
        self._startup: Final[list[StartupFiles]] = []
        self._unboxed: Final = Unboxed()

    async def spawn(self, stdin: int, stdout: int, stderr: int) -> SandboxProcess:
        """Start the server: in its box, or as this process runs, where there is none, and none is required.

        Raises:
            OSError: it cannot be started.
            SandboxUnavailable: no sandbox holds enough here, or not this box.
            DefinitionError: what it needs by its command line, or is given, cannot be given in a box.
        """
        server = self._server
        program = shutil.which(server.command, path=self._environment.get("PATH"))
        if program is None and "/" not in server.command:
            raise FileNotFoundError(2, "No such file or directory")
        opened = await asyncio.to_thread(self._open)
        start = self._unboxed.spawn if opened is None else opened.spawn
        environment = dict(self._environment)
        for name in ("TMPDIR", "TMP", "TEMP") if opened is not None else ():
            if name not in server.env:  # a box has a temporary folder of its own
                environment.pop(name, None)
        return await start(
            server.command,
            server.args,
            folder=self._folder() if opened is None else opened.box.work,
            environment=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def _folder(self) -> str:
        return str(Path(self._server.cwd or os.curdir).expanduser().absolute())

    def _open(self) -> OpenSandbox | None:
        choice = self._server.sandbox
        if choice is None:
            return None
        given = isinstance(choice, sandboxes.Sandbox)
        sandbox: Sandbox = choice if isinstance(choice, sandboxes.Sandbox) else sandboxes.choose_sandbox()
        if not given and not sandbox.holds().is_enough:
            if choice != "auto":
                raise sandboxes.SandboxUnavailable(
                    f"a sandbox is required, and none holds enough here: {sandbox.holds()}"
                )
            _log.warning("The MCP server %r runs without a sandbox: %s", self._server.command, sandbox.holds())
            return None
        box = choice if isinstance(choice, sandboxes.Box) else self._borders()
        for folder in [*([box.work] if box.changes and box.work != self._own else []), *box.writes]:
            if Path(folder).is_dir():
                self._startup.append(StartupFiles(folder))
        protected = [path for each in self._startup for path in each.paths if path not in box.writes]
        box = replace(box, protected=tuple(dict.fromkeys([*box.protected, *protected])))
        if not box.hosts and sandbox.holds().has_proxy:
            box = replace(box, hosts=(_NO_HOST,))
        # What a server is given counts before what a box adds, such as folders for caches.
        given = {"NODE_USE_ENV_PROXY": "1", **self._server.env, **box.environment}
        box = replace(box, environment=given)
        self._opened = sandbox.open(box)
        return self._opened

    def _borders(self) -> Box:
        server, named = self._server, NamedPaths()
        named.add(server, self._environment)
        work = os.path.realpath(self._folder())
        starts_here = server.cwd is not None or named.is_relative
        if not starts_here:
            self._own = os.path.realpath(tempfile.mkdtemp(prefix="journeyman-server-"))
        box = sandboxes.Box(
            work=work if starts_here else str(self._own),
            changes=server.cwd is not None or not starts_here,
            writes=tuple([each for each in named.writes if each != work or not starts_here]),
            reads="system",
            readable=tuple(named.reads),
            hidden=sandboxes.secrets_of_home(),
            path=os.pathsep.join(named.path),
        )
        changes = work in named.writes and starts_here
        needs: list[str] = []
        for need in server.needs:
            kind, _, value = need.partition(":")
            needs.append(need if kind == "host" else f"{kind}:{Path(work, Path(value).expanduser())}")
        return replace(box, changes=box.changes or changes).wider(needs)

    def find_needs(self, text: str) -> list[str]:
        """Return the needs that would give what a box has refused, by what the server writes, and by what was asked of
        its proxy: five at most."""
        opened = self._opened
        if opened is None:
            return []
        box = opened.box
        refusals = [*opened.take_refusals()] if isinstance(opened, sandboxes.TellsRefusals) else []
        refusals += sandboxes.find_refusals(box, text)
        needs = dict.fromkeys([each.need for each in refusals if each.need is not None])
        for line in text[-_LONGEST:].splitlines():
            for path in _PATHS.findall(line) if _REFUSED.search(line) else ():
                needs |= dict.fromkeys(_needs_of_path(box, path))
        # Sockets and all the rest are given by a box of its own, or by none: not by a need.
        return [each for each in needs if each != "outside" and not each.startswith("socket:")][:_MOST]

    @property
    def borders(self) -> str:
        """The borders of the box in words; empty where there is none."""
        if self._opened is None:
            return ""
        box = self._opened.box
        changed = [each for each in box.roots if each != self._own]
        hosts = ", ".join([each for each in box.hosts if each != _NO_HOST]) or "no host"
        return f"it changes {', '.join(changed) or 'no folder'} and reaches {hosts}"

    def close(self) -> list[HeldFile]:
        """End what still runs. Put aside what others would run by themselves of what the server has written, and return
        these files."""
        if self._opened is not None:
            self._opened.close()
        self._unboxed.close()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
        return [file for each in self._startup for file in each.hold_changes()]


@dataclass
class NamedPaths:
    """The files and folders that the command line and the environment of a server name."""

    reads: dict[str, None] = field(default_factory=dict[str, None])
    writes: dict[str, None] = field(default_factory=dict[str, None])
    path: list[str] = field(default_factory=list[str])
    """The folders of programs."""
    is_relative: bool = False
    """True: something is named as below the folder that it starts in."""

    def add(self, server: Stdio, environment: Mapping[str, str]) -> None:
        """Take note of what a server is given."""
        folder = Path(server.cwd or os.curdir).expanduser()
        program = shutil.which(server.command, path=environment.get("PATH"))
        self.path += [os.path.dirname(each) for each in (program, program and os.path.realpath(program)) if each]
        self.path += environment.get("PATH", os.defpath).split(os.pathsep)
        self.is_relative = "/" in server.command and not server.command.startswith("/")
        if program is not None:
            self._add_package(program)
        for word in server.args:
            for text in (word, word.partition("=")[2]):
                self._add_word(text, folder)
        for text in (*server.env.values(), *[environment.get(name, "") for name in _CERTIFICATES]):
            for part in text.split(os.pathsep):
                if part.startswith(("/", "~")) and Path(part).expanduser().exists():
                    self.reads[os.path.realpath(Path(part).expanduser())] = None

    def _add_word(self, text: str, folder: Path) -> None:
        with suppress(OSError, ValueError):  # no path, or one that is too long
            path = Path(folder, Path(text).expanduser())
            real = os.path.realpath(path)
            if not text or not path.exists() or any(is_inside(real, each) for each in _SYSTEM):
                return
            self.is_relative = self.is_relative or not text.startswith(("/", "~"))
            if path.suffix in _CODE and path.is_file():
                self._add_package(real)
            else:
                self.writes[real] = None

    def _add_package(self, file: str) -> None:
        """Let a server read the package that a file of code belongs to: what it imports lies beside it, or above."""
        for path in dict.fromkeys((file, os.path.realpath(file))):
            if any(is_inside(path, each) for each in _SYSTEM):
                continue
            inside = path.partition("/node_modules/")
            if inside[1]:
                self.reads[f"{inside[0]}/node_modules"] = None
                continue
            parents = Path(path).parents
            home = Path("~").expanduser()
            own = [each for each in parents[:6] if each != Path("/") and each not in (home, *home.parents)]
            project = next((each for each in own if any(Path(each, name).exists() for name in _PROJECTS)), None)
            environment = next((each for each in own if Path(each, "pyvenv.cfg").exists()), None)
            self.reads |= dict.fromkeys([str(each) for each in (project or environment, *own[:1]) if each is not None])
            if environment is not None:
                self.reads |= dict.fromkeys(_folders_of_pth_files(environment))


def _folders_of_pth_files(environment: Path) -> Iterator[str]:
    """Give the folders that packages of a virtual environment are read from which were installed to be edited."""
    for file in environment.glob("lib/python*/site-packages/*.pth"):
        with suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("/") and Path(line).is_dir():
                    yield os.path.realpath(line)


def _needs_of_path(box: Box, path: str) -> Iterator[str]:
    """Give the need for a path that is there, or could be, and that a box does not show, or lets nobody change."""
    real = os.path.realpath(path)
    if any(is_inside(real, each) for each in _SYSTEM) or "\0" in path:
        return
    shown = (box.work, *box.writes, *box.readable)
    is_shown = any(is_inside(real, each) for each in shown)
    if Path(real).exists():
        if not is_shown:
            yield f"read:{real}"
    elif not box.may_change(real):
        home = Path("~").expanduser().resolve()
        there = next(each for each in Path(real).parents if each.exists())
        # A box gives what is there; not all of home, so that this has to be made first.
        yield f"write:{real if there in (home, *home.parents) else there}"

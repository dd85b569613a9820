"""Boxes of containers: docker or podman runs each command in a container of its own, from an image of the caller's.

The folder is all that a command shares with the machine, besides the kernel. Commands in containers do not see each
other's processes and servers. With each container ends all that was started in it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from journeyman.definition.problems import explain_arguments
from journeyman.processes.process import SandboxProcess, SandboxUnavailable
from journeyman.sandbox.adapter import SandboxAdapter
from journeyman.sandbox.box import Box, plan_mounts
from journeyman.sandbox.bubblewrap import unreadable_like
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_PROGRAMS: Final = ("docker", "podman")
_END_S: Final = 10.0


@explain_arguments
class Container(SandboxAdapter):
    """Sandboxes that are containers. Programs are those of the image, which must have `sleep` and `sh`; and `python3`,
    for what it holds to be found out."""

    def __init__(self, image: str, *, program: str | None = None) -> None:
        """Use an image that is on this machine: nothing is fetched. `program` is docker or podman, the first that is
        installed if not given."""
        super().__init__("container")
        self._image: Final = image
        self._given: Final = program

    def open_box(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox.open`. A command that it denies must not be in the image."""
        named = _PROGRAMS if self._given is None else (self._given,)
        program = next(filter(None, map(shutil.which, named)), None)
        if program is None:
            raise SandboxUnavailable(f"Neither {' nor '.join(named)} is installed, so there are no containers.")
        found = subprocess.run([program, "image", "inspect", self._image], capture_output=True, check=False)
        if found.returncode:
            told = found.stderr.decode("utf-8", "replace").strip()[-200:]
            raise SandboxUnavailable(f"There is no image {self._image!r} here ({told}). Fetch it: {program} pull.")
        return _OpenContainer(box, program, self._image)


def container_arguments(box: Box, name: str, temporary: str) -> Iterator[str]:
    """Give the options of a container that is a box, with a folder for its temporary files."""
    yield from ("run", "--rm", "--interactive", "--init", "--name", name, "--pull", "never")
    yield from ("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only")
    yield from ("--user", f"{os.getuid()}:{os.getgid()}", "--ipc", "none")
    for target, kind in {"/tmp": "change", **dict(plan_mounts(box))}.items():
        source = temporary if target == "/tmp" else unreadable_like(target) if kind == "mask" else target
        if "," in source + target or '"' in source + target:
            raise SandboxUnavailable(f"{target!r} has characters that no mount of a container can hold. Rename it.")
        if target in ("/tmp", box.work, *box.writes, *box.readable) or Path(target).exists():
            ending = "" if kind == "change" else ",readonly"
            yield from ("--mount", f"type=bind,source={source},target={target}{ending}")


class _OpenContainer:
    def __init__(self, box: Box, program: str, image: str) -> None:
        self.box: Final = box
        self._program: Final = program
        self._image: Final = image
        self._temporary: Final = tempfile.mkdtemp(prefix="journeyman-box-")
        self._commands: Final[list[_ContainerProcess]] = []
        self.is_open: bool = True

    async def spawn(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        folder: str | None = None,
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> SandboxProcess:
        if not self.is_open:
            raise SandboxUnavailable("The box is closed, and nothing was run outside of it.")
        name = f"journeyman-{secrets.token_hex(8)}"
        every = {**self.box.environment, **environment}
        named = [part for variable in every for part in ("--env", variable)]
        where = ("--workdir", self.box.work if folder is None else folder)
        options = [*container_arguments(self.box, name, self._temporary), *named, *where]
        nothing = asyncio.subprocess.DEVNULL
        started = await asyncio.create_subprocess_exec(
            self._program,
            *options,
            self._image,
            program,
            *arguments,
            env={**os.environ, **every},
            stdin=nothing if stdin is None else stdin,
            stdout=nothing if stdout is None else stdout,
            stderr=nothing if stderr is None else stderr,
            start_new_session=True,
        )
        process = _ContainerProcess(started, self._program, name)
        self._commands[:] = [*[each for each in self._commands if each.are_left()], process]
        return process

    def close(self) -> None:
        self.is_open = False
        for each in self._commands:
            each.close()
        shutil.rmtree(self._temporary, ignore_errors=True)


class _ContainerProcess:
    def __init__(self, client: asyncio.subprocess.Process, program: str, name: str) -> None:
        self._client: Final = client
        self._program: Final = program
        self._name: Final = name

    @property
    def exit_code(self) -> int | None:
        return None if self._client.returncode is None else _code_of(self._client.returncode)

    async def wait(self) -> int:
        return _code_of(await self._client.wait())

    def are_left(self) -> bool:
        return self._client.returncode is None  # with its first process a container ends

    def send(self, number: signal.Signals) -> None:
        with suppress(OSError, subprocess.SubprocessError):
            told = [self._program, "kill", "--signal", str(int(number)), self._name]
            subprocess.run(told, capture_output=True, check=False, timeout=_END_S)

    async def wait_for_all(self) -> None:
        await self._client.wait()

    def close(self) -> None:
        if self.are_left():
            self.send(signal.SIGKILL)


def _code_of(returned: int) -> int:
    """Return the exit code of a program from what its container's client returns: 128 and the number of a signal."""
    is_signal = 128 < returned < 128 + signal.NSIG
    return 128 - returned if is_signal else returned


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = Container
    _opened: type[OpenSandbox] = _OpenContainer
    _process: type[SandboxProcess] = _ContainerProcess

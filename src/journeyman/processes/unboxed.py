"""Programs that run as this process does: each below a keeper, which finds and ends what it leaves behind.

Where no keeper can be, a program is a child of this process, and its group is ended, with what a mark in its
environment shows.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from journeyman.processes.kept import Keeper
from journeyman.processes.marked import Processes, mark_environment
from journeyman.processes.process import SandboxProcess, SandboxUnavailable


class Unboxed:
    """The keeper of programs that are in no box. It is started with the first of them."""

    def __init__(self) -> None:
        self._opened: Keeper | None = None
        self._opening: Final = Lock()

    async def spawn(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        folder: str,
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> SandboxProcess:
        """Start a program: see `OpenSandbox.spawn`.

        Raises:
            OSError: it cannot be started. Below a keeper, that is told by `SandboxProcess.wait`.
        """
        mark = secrets.token_hex(8)
        marked = mark_environment(environment, mark)
        if sys.platform == "linux" and Path(sys.executable or "").name.startswith(("python", "pypy")):
            with suppress(SandboxUnavailable):
                opened = self._opened
                if opened is None or not opened.is_open:
                    opened = await asyncio.to_thread(self._open)
                kept = await opened.spawn(
                    program, arguments, folder=folder, environment=marked, stdin=stdin, stdout=stdout, stderr=stderr
                )
                kept.mark = mark
                return kept
        streams = [asyncio.subprocess.DEVNULL if each is None else each for each in (stdin, stdout, stderr)]
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            cwd=folder,
            env=marked,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
        )
        return _ChildProcess(process, Processes(process.pid, mark))

    def _open(self) -> Keeper:
        with self._opening:
            if self._opened is None or not self._opened.is_open:
                self._opened = Keeper()
            return self._opened

    def close(self) -> None:
        """End all programs that still run. With the next one another keeper is started."""
        if self._opened is not None:
            self._opened.close()


class _ChildProcess:
    """A program that is a child of this process, and all that is below it as far as the system shows it."""

    def __init__(self, process: asyncio.subprocess.Process, processes: Processes) -> None:
        self.wait: Final = process.wait
        self.are_left: Final = processes.are_left
        self.send: Final = processes.send
        self._process: Final = process

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait_for_all(self) -> None:
        """Wait until the program has ended: nobody tells when what it has left does."""
        await self._process.wait()

    def close(self) -> None:
        """End what still runs."""
        if self._process.returncode is None or self.are_left():
            self.send(signal.SIGKILL)


if TYPE_CHECKING:
    _process: type[SandboxProcess] = _ChildProcess

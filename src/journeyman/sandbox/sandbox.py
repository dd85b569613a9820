"""The port of sandboxes: a `Sandbox` opens boxes, an `OpenSandbox` starts programs in one, through one launcher.

Whoever implements it keeps one rule: where a border cannot be drawn, nothing is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from journeyman.processes.process import SandboxProcess as SandboxProcess
from journeyman.processes.process import SandboxUnavailable as SandboxUnavailable
from journeyman.sandbox.box import Box, SandboxGuarantees, SandboxRefusal


@runtime_checkable
class Sandbox(Protocol):
    """A way in which this system keeps commands in a box."""

    @property
    def name(self) -> str:
        """The name that is shown, such as `bubblewrap`."""
        ...

    def holds(self) -> SandboxGuarantees:
        """Return what it holds here. That is found out by trying, once in a process, in some tenths of a second."""
        ...

    def open(self, box: Box) -> OpenSandbox:
        """Open a box. It stays open until it is closed, or this process ends in whatever way.

        Raises:
            SandboxUnavailable: it cannot hold this box.
        """
        ...

    def close(self) -> None:
        """Close all boxes that it has opened."""
        ...


@runtime_checkable
class OpenSandbox(Protocol):
    """A box that is open. What runs in it shares its processes, its temporary folder and its own network."""

    @property
    def box(self) -> Box:
        """The borders."""
        ...

    @property
    def is_open(self) -> bool:
        """False once it was closed, or has broken: open another one then."""
        ...

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
        """Start a program in the box.

        Args:
            program: Its name, which is looked for in the `PATH` of the environment, or its path.
            arguments: What it is given.
            folder: The folder that it starts in; that of the box if not given.
            environment: Its environment, to which the box adds its own.
            stdin: The descriptor that it reads from. As the others, it stays the caller's to close; None is nothing.
            stdout: The descriptor that it writes to.
            stderr: The descriptor that it writes errors to.

        Raises:
            SandboxUnavailable: the box is closed or broken, so nothing was started.
        """
        ...

    def close(self) -> None:
        """End all that runs in it."""
        ...


@runtime_checkable
class TellsRefusals(Protocol):
    """An optional ability of an open box: it knows which hosts it has refused, whatever a command writes of that."""

    def take_refusals(self) -> list[SandboxRefusal]:
        """Return what was refused since this was asked last."""
        ...

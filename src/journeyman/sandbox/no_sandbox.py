"""No box at all: commands run as this process does. It holds nothing, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from journeyman.definition import explain_arguments
from journeyman.sandbox.box import GUARANTEES, Box, SandboxGuarantees
from journeyman.sandbox.kept import KeptSandbox, OpenBoxes
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox


@explain_arguments
class NoSandbox:
    """The sandbox of systems that have none. Commands are started and ended as in a box, and nothing is refused."""

    def __init__(self, reason: str = "there is no sandbox") -> None:
        """`reason` says why there is none, and what would help."""
        self.name: Final = "none"
        """The name that is shown."""
        self._reason: Final = reason
        self._opened: Final = OpenBoxes()

    def holds(self) -> SandboxGuarantees:
        """Return that nothing is held, and why."""
        return SandboxGuarantees(reasons=dict.fromkeys(GUARANTEES, self._reason))

    def open(self, box: Box) -> OpenSandbox:
        """Open what draws no borders: see `Sandbox`."""
        return self._opened.add(KeptSandbox(box, None))

    def close(self) -> None:
        """End all commands that still run."""
        self._opened.close()


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = NoSandbox

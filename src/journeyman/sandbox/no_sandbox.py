"""No box at all: commands run as this process does. It holds nothing, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from journeyman.definition import explain_arguments
from journeyman.sandbox.box import GUARANTEES, Box, SandboxGuarantees
from journeyman.sandbox.kept import KeptSandbox, SandboxAdapter
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox


@explain_arguments
class NoSandbox(SandboxAdapter):
    """The sandbox of systems that have none. Commands are started and ended as in a box, and nothing is refused."""

    def __init__(self, reason: str = "there is no sandbox") -> None:
        """`reason` says why there is none, and what would help."""
        self.name = "none"
        self.lets_through = ("hosts", "sockets")
        self._reason: Final = reason

    def holds(self) -> SandboxGuarantees:
        """Return that nothing is held, and why."""
        return SandboxGuarantees(reasons=dict.fromkeys(GUARANTEES, self._reason))

    def open_box(self, box: Box) -> OpenSandbox:
        """Open what draws no borders: see `Sandbox.open`."""
        return KeptSandbox(box)


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = NoSandbox

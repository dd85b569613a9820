"""The port of programs that were started, in a box or in none."""

from __future__ import annotations

import signal
from typing import Protocol

from journeyman.errors import JourneymanError


class SandboxUnavailable(JourneymanError):
    """A box cannot be opened, or has broken. Nothing was run outside of it instead. The text says what helps."""


class SandboxProcess(Protocol):
    """A program that was started in a box, with all that it starts."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs. Below 0: a signal of this number ended it."""
        ...

    async def wait(self) -> int:
        """Wait until the program ends, and return its exit code. What it has started may still run.

        Raises:
            OSError: it could not be started: no such program, or it may not be run.
        """
        ...

    def are_left(self) -> bool:
        """Tell whether the program, or anything that it has started, may still run."""
        ...

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program, and to all that it has started."""
        ...

    async def wait_for_all(self) -> None:
        """Wait until nothing of it runs."""
        ...

    def close(self) -> None:
        """End what still runs."""
        ...

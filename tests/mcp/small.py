"""The servers of the folder `servers`, as processes of their own, and what the tests of the client share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from journeyman.mcp import Stdio
from journeyman.tools.tools import AnyTool

SERVERS = Path(__file__).parent / "servers"
MODERN = (sys.executable, str(SERVERS / "modern.py"))


@dataclass(frozen=True, slots=True)
class Small:
    """A small server of one kind, and the log of what it was sent."""

    log: Path

    def at(self, kind: str, *, only: list[str] | None = None, env: Mapping[str, str] | None = None) -> Stdio:
        """Return how to start it."""
        words = (str(SERVERS / "misbehaving.py"), kind, str(self.log))
        return Stdio(sys.executable, words, only=only, env=env or {}, grace_s=0.2)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    @property
    def n_starts(self) -> int:
        return sum('"initialize"' in line for line in self.lines)


def by_name(tools: list[AnyTool]) -> dict[str, AnyTool]:
    return {each.name: each for each in tools}

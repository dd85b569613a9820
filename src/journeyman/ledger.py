"""What a run has used so far: tokens by attempt, calls by tool. Adding is cheap; reading makes the values of a result.

Imports `result` and `types`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from journeyman.result import ToolKind, ToolStats
from journeyman.types import NOTHING_USED, Usage

UNKNOWN_TOOLS: Final = "(unknown)"
"""Under this name all calls of tools that do not exist are counted: the names are the model's, and endless."""


@dataclass(slots=True)
class _Tally:
    """The calls of one tool."""

    kind: ToolKind
    calls: int = 0
    cache_hits: int = 0
    errors: dict[str, int] = field(default_factory=lambda: {})
    duration_s: float = 0.0

    def stats(self) -> ToolStats:
        return ToolStats(
            kind=self.kind,
            calls=self.calls,
            succeeded=self.calls - sum(self.errors.values()),
            cache_hits=self.cache_hits,
            errors=dict(self.errors),
            duration_s=self.duration_s,
        )


class Ledger:
    """Adds up one run, and in it the runs that it started: what they use is counted in both at once."""

    __slots__ = ("_above", "_attempt", "_calls_below", "_earlier", "_tallies")

    def __init__(self, above: Ledger | None = None) -> None:
        """`above` is the ledger of the run that started this one."""
        self._above = above
        self._calls_below = 0
        """Finished calls of the runs that this one started."""
        self._earlier = NOTHING_USED
        """Of the attempts before this one."""
        self._attempt: list[Usage] = []
        """Of the requests of this attempt; added up when somebody asks."""
        self._tallies: dict[str, _Tally] = {}

    def begin_attempt(self) -> None:
        """Count what follows as another attempt's."""
        self._earlier = self.usage
        self._attempt = []

    def add(self, usage: Usage) -> None:
        """Count what a request used, here and above."""
        level: Ledger | None = self
        while level is not None:
            level._attempt.append(usage)
            level = level._above

    def count(self, kind: ToolKind, name: str, *, error: str | None, cached: bool, duration_s: float) -> None:
        """Count one finished call; `error` is the kind of its failure."""
        name = UNKNOWN_TOOLS if kind == "unknown" else name
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = _Tally(kind)
        tally.calls += 1
        tally.cache_hits += cached
        tally.duration_s += duration_s
        if error is not None:
            tally.errors[error] = tally.errors.get(error, 0) + 1
        above = self._above
        while above is not None:
            above._calls_below += 1
            above = above._above

    @property
    def attempt_usage(self) -> Usage:
        """Of this attempt."""
        if len(self._attempt) > 1:
            self._attempt = [Usage.total(self._attempt)]
        return self._attempt[0] if self._attempt else NOTHING_USED

    @property
    def usage(self) -> Usage:
        """Of all attempts."""
        return self._earlier + self.attempt_usage

    @property
    def calls(self) -> int:
        """Finished calls of all tools, here and in the runs below."""
        return self.own_calls + self._calls_below

    @property
    def own_calls(self) -> int:
        """Finished calls of all tools, here."""
        return sum([tally.calls for tally in self._tallies.values()])

    def stats(self) -> dict[str, ToolStats]:
        """Return the calls by tool."""
        return {name: tally.stats() for name, tally in self._tallies.items()}

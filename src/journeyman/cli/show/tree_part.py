"""From events to the lines of the tree that stay: the runs, one inside the other, in an order that can be read.

Sub-agents are indented below the run that started them. What works at the same time is told step by step: the lines
of an iteration are kept until it is over, so that those of one sub-agent stand together. `Tree` says what the lines
are; where they go is not its concern. Read `telling.py` for the lines of one run, `aside.py` for background work and
mail, and `tail.py` next: it says what is going on now. Imports `events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from journeyman.cli.show.aside import ASIDES, Aside, lines_aside
from journeyman.cli.show.lines import Line
from journeyman.cli.show.tree import Told, lines_of
from journeyman.events.run import Event, IterationStarted, Path, RunFailed, RunStarted, RunSucceeded

DEEPER: Final = 4
"""How much further a sub-agent's lines are indented than those of the agent that called it."""

_TOGETHER: Final = ("parallel", "background")
"""How runs are started that work at the same time as others."""
_STOPPED: Final = Line(indent=2, mark="stopped", name="stopped")
"""The end of a run that was cancelled by the one above, and so has told of none."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line, and whose it is."""

    path: Path
    line: Line
    names_itself: bool = False
    """True when the line says whose it is."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """What is remembered of one run."""

    told: Told
    keeps: bool = False
    """True when its lines are kept until the iteration is over."""
    kept: list[_Entry] = field(default_factory=list[_Entry])
    outlives: bool = False
    """True when it goes on after the run that started it."""
    n_open: int = 0
    """How many of the runs that it started have not ended."""

    @property
    def is_shared(self) -> bool:
        """True when a run that it starts now may not be the only one."""
        return self.n_open > 0 or len(self.told.calls) > 1


class Tree:
    """Makes lines of events."""

    __slots__ = ("_last", "_runs")

    def __init__(self) -> None:
        self._runs: dict[Path, _Run] = {}
        """Those that have not ended."""
        self._last: Path = ()
        """Whose line came last."""

    def lines(self, event: Event) -> list[Line]:
        """Return the lines that are complete with `event`."""
        if isinstance(event, ASIDES):
            return self._aside(event)
        run = self._run(event)
        starts = isinstance(event, RunStarted)
        entries = [_Entry(event.path, _indented(line, event.path), starts) for line in lines_of(run.told, event)]
        if isinstance(event, RunSucceeded | RunFailed):
            return self._passed_on(event.path, [*self._closed(event.path), *entries])
        if not run.keeps:
            return self._passed_on(event.path, entries)
        complete: list[_Entry] = []
        if isinstance(event, IterationStarted) and (event.attempt, event.iteration) != (1, 1):
            complete, run.kept = run.kept, []
        run.kept += entries
        return self._passed_on(event.path, complete)

    def rest(self) -> list[Line]:
        """Return the lines that were kept, of runs of which no end was told."""
        kept = [entry for run in self._runs.values() for entry in run.kept]
        self._runs.clear()
        return self._in_order(kept)

    def _run(self, event: Event) -> _Run:
        path = event.path
        run = self._runs.get(path)
        if run is None or isinstance(event, RunStarted):
            run = self._runs[path] = _Run(told=Told(is_child=len(path) > 1))
            above = self._runs.get(path[:-1])
            if isinstance(event, RunStarted) and len(path) > 1:
                run.outlives = event.mode == "background"
                run.keeps = event.mode in _TOGETHER or (above is not None and above.is_shared)
            if above is not None:
                above.n_open += 1
        return run

    def _closed(self, path: Path) -> list[_Entry]:
        """Forget a run that has ended, and return the lines that were kept of it and of those that it took along."""
        run = self._runs.pop(path)
        above = self._runs.get(path[:-1])
        if above is not None:
            above.n_open -= 1
        entries = run.kept
        if run.n_open:
            for below in [each for each, other in self._runs.items() if each[:-1] == path and not other.outlives]:
                entries += [*self._closed(below), _Entry(below, _indented(_STOPPED, below))]
        return entries

    def _passed_on(self, path: Path, entries: list[_Entry]) -> list[Line]:
        """Return the lines, or keep them among those of a run above whose lines are kept."""
        for length in range(len(path) - 1, 0, -1):
            above = self._runs.get(path[:length])
            if above is not None and above.keeps:
                above.kept += entries
                return []
        return self._in_order(entries)

    def _in_order(self, entries: Iterable[_Entry]) -> list[Line]:
        """Return the lines; where they change hands, with the name of whose they are. The indent tells who is above."""
        lines: list[Line] = []
        for entry in entries:
            if self._last and not entry.names_itself and self._last[: len(entry.path)] != entry.path:
                lines.append(_indented(Line(text=entry.path[-1], style="dim"), entry.path))
            lines.append(entry.line)
            self._last = entry.path
        return lines

    def _aside(self, event: Aside) -> list[Line]:
        lines = [_indented(line, event.path) for line in lines_aside(event)]
        if lines and self._last:
            self._last = self._last[:1]  # what goes on further down says again whose it is
        return lines


def _indented(line: Line, path: Path) -> Line:
    return replace(line, indent=line.indent + DEEPER * (len(path) - 1)) if len(path) > 1 else line

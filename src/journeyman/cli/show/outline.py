"""The whole tree of a run, at its end: runs, attempts, iterations and calls, and what each used with all below it.

`Outline` follows the events, and keeps of them only what it shows. What it says of a run that has ended is what its
result says. Imports `events`. Read `running.py` next: it prints this for `--tree`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from journeyman.cli.show.lines import EMPTY, Line, Mark, count, short_usage, usage_sentence
from journeyman.cli.show.tree import counted, mark_of
from journeyman.events import (
    Event,
    IterationStarted,
    ModelResponded,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
    ToolFinished,
)
from journeyman.result import Metadata
from journeyman.types import NOTHING_USED, RunPath, Usage

_BACKGROUND: Final = "background"
_CALL_MARKS: Final = {None: "…", False: "✓", True: "✗"}
"""By whether the call failed; None: it never ended."""
_CALLS_ROWS: Final = 4


@dataclass(slots=True)
class _Call:
    name: str
    is_error: bool | None = None
    """None until it has ended."""
    runs: list[_Run] = field(default_factory=list["_Run"])
    """The runs that it started."""


@dataclass(slots=True)
class _Iteration:
    attempt: int
    number: int
    usage: Usage | None = None
    """None when the model never answered."""
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])


@dataclass(slots=True)
class _Run:
    name: str
    mode: str = ""
    model: str = ""
    iterations: list[_Iteration] = field(default_factory=list[_Iteration])
    others: list[_Run] = field(default_factory=list["_Run"])
    """Runs that it started in no call that is known."""
    mark: Mark = "stopped"
    """How it ended; a run of which no end was told was stopped."""
    why: str = ""
    """Why it failed."""
    metadata: Metadata | None = None

    @property
    def calls(self) -> Iterator[tuple[str, _Call]]:
        for iteration in self.iterations:
            yield from iteration.calls.items()

    @property
    def below(self) -> Sequence[_Run]:
        """The runs that it started."""
        return [run for _, call in self.calls for run in call.runs] + self.others

    def call(self, id: str | None) -> _Call | None:
        """Return one of its calls; the latest are looked at first."""
        found = (iteration.calls[id] for iteration in reversed(self.iterations) if id in iteration.calls)
        return None if id is None else next(found, None)


@dataclass(slots=True)
class _Sum:
    """What several runs did together."""

    runs: int = 0
    attempts: int = 0
    iterations: int = 0
    calls: int = 0

    def add(self, run: _Run) -> None:
        self.runs += 1
        if run.metadata is not None:
            self.attempts += len(run.metadata.attempts)
            self.iterations += sum(record.iterations for record in run.metadata.attempts)
            self.calls += sum(stats.calls for stats in run.metadata.tools.values())
        else:
            self.attempts += len({iteration.attempt for iteration in run.iterations})
            self.iterations += len(run.iterations)
            self.calls += sum(1 for _ in run.calls)

    def sentence(self) -> str:
        counts = (self.runs, "run"), (self.attempts, "attempt"), (self.iterations, "iteration"), (self.calls, "call")
        return ", ".join(count(number, noun) for number, noun in counts)


class Outline:
    """Follows a run, and can say at any time what all of it was."""

    def __init__(self) -> None:
        self._roots: list[_Run] = []
        self._open: dict[RunPath, _Run] = {}

    def follow(self, event: Event) -> None:
        """Take note of what happened."""
        match event:
            case RunStarted():
                self._begin(event)
            case RunSucceeded(metadata=metadata):
                self._end(event.path, metadata, "done")
            case RunFailed(error=error, metadata=metadata):
                self._end(event.path, metadata, mark_of(error.code), f"{error.code}: {error.message}")
            case IterationStarted() | ModelResponded() | ToolCalled() | ToolFinished():
                run = self._open.get(event.path)
                if run is not None:
                    _note(run, event)
            case _:
                pass

    def _begin(self, event: RunStarted) -> None:
        run = _Run(name=event.path[-1], mode=event.mode or "", model=event.model)
        above = self._open.get(event.path[:-1])
        if above is None:
            self._roots.append(run)
        else:
            call = above.call(event.tool_use_id)
            (above.others if call is None else call.runs).append(run)
        self._open[event.path] = run

    def _end(self, path: RunPath, metadata: Metadata, mark: Mark, why: str = "") -> None:
        run = self._open.pop(path, None)
        if run is not None:
            run.metadata, run.mark, run.why = metadata, mark, why

    # -- the lines

    def lines(self) -> Iterator[Line]:
        """Give the tree, and the sums below it."""
        if not self._roots:
            return
        yield EMPTY
        yield Line(name="The whole tree", note="tokens, of runs with all below")
        for run in self._roots:
            yield from _lines(run, 0)
        together, apart, apart_usage = _sums(self._roots)
        yield EMPTY
        yield Line(name="in all", text=f"· {together.sentence()}")
        yield Line(indent=2, text=usage_sentence(_used_by(self._roots)), style="dim")
        if apart.runs:
            yield Line(name="in the background", text=f"· {apart.sentence()}")
            yield Line(indent=2, text=usage_sentence(apart_usage), style="dim")


def _note(run: _Run, event: IterationStarted | ModelResponded | ToolCalled | ToolFinished) -> None:
    match event:
        case IterationStarted():
            run.iterations.append(_Iteration(event.attempt, event.iteration))
        case ModelResponded(usage=usage):
            if run.iterations:
                run.iterations[-1].usage = usage
        case ToolCalled():
            if run.iterations:
                run.iterations[-1].calls[event.tool_use_id] = _Call(event.tool_name)
        case ToolFinished():
            call = run.call(event.tool_use_id)
            if call is not None:
                call.is_error = event.is_error


def _lines(run: _Run, indent: int) -> Iterator[Line]:
    yield _head(run, indent)
    if run.why:
        yield Line(indent=indent + 2, mark="bar", text=run.why, style="red", rows=_CALLS_ROWS)
    several = len({iteration.attempt for iteration in run.iterations}) > 1
    inner, attempt = indent + (4 if several else 2), 0
    for iteration in run.iterations:
        if several and iteration.attempt != attempt:
            attempt = iteration.attempt
            yield _attempt(run, attempt, indent + 2)
        yield _step(iteration, inner)
        for call in iteration.calls.values():
            for below in call.runs:
                yield from _lines(below, inner + 2)
    for below in run.others:
        yield from _lines(below, inner + 2)


def _head(run: _Run, indent: int) -> Line:
    mode = f"{run.mode} · " if run.mode else ""
    took = "did not end by itself" if run.metadata is None else counted(run.metadata).removeprefix("1 attempt, ")
    usage = None if run.metadata is None else run.metadata.usage
    note = "" if usage is None else short_usage(usage)
    return Line(indent=indent, mark=run.mark, name=run.name, text=f"· {mode}{took}", note=note)


def _attempt(run: _Run, number: int, indent: int) -> Line:
    """Say how an attempt went: how its validation ended, if it came so far."""
    records = [] if run.metadata is None else [each for each in run.metadata.attempts if each.number == number]
    reports = [record.report for record in records if record.report is not None]
    verdict = "" if not reports else "· passed" if reports[0].passed else "· rejected"
    usage = short_usage(records[0].usage) if records else ""
    return Line(indent=indent, name=f"attempt {number}", text=verdict, note=usage)


def _step(iteration: _Iteration, indent: int) -> Line:
    shown_calls = [f"{_CALL_MARKS[call.is_error]} {call.name}" for call in iteration.calls.values()]
    groups = [(shown, len(list(alike))) for shown, alike in groupby(shown_calls)]
    calls = "  ".join(shown if number == 1 else f"{shown} ({number})" for shown, number in groups)
    if iteration.usage is None:
        return Line(indent=indent, name=f"{iteration.number}", text=calls or "was not answered", rows=_CALLS_ROWS)
    usage, calls = short_usage(iteration.usage), calls or "answers"
    return Line(indent=indent, name=f"{iteration.number}", text=calls, note=usage, rows=_CALLS_ROWS)


# -- the sums ---------------------------------------------------------------------------------------------------------


def _sums(roots: Sequence[_Run]) -> tuple[_Sum, _Sum, Usage | None]:
    """Return what the runs did with all below them, and what was done in the background: that is nobody's part."""
    together, apart = _Sum(), _Sum()
    background: list[_Run] = []
    stack = [(run, False) for run in roots]
    while stack:
        run, is_apart = stack.pop()
        if run.mode == _BACKGROUND:
            background.append(run)
            is_apart = True
        (apart if is_apart else together).add(run)
        stack += [(below, is_apart) for below in run.below]
    return together, apart, _used_by(background)


def _used_by(runs: Sequence[_Run]) -> Usage | None:
    """Return what the runs used with all below them; None when one of them does not say."""
    total = NOTHING_USED
    for run in runs:
        if run.mode == _BACKGROUND and run.metadata is None:
            total += Usage.total([each.usage for each in run.iterations if each.usage is not None])
            continue
        if run.metadata is None or run.metadata.usage is None:
            return None
        total += run.metadata.usage
    return total

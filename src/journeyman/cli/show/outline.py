"""The whole tree of a run, at its end: runs, attempts, iterations and calls, and what each used with all below it.

What it says of a run that has ended is what its result says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from journeyman.cli.show.lines import EMPTY, Line, Mark, short_usage, usage_sentence
from journeyman.cli.show.seen import BACKGROUND, SeenIteration, SeenRun, SeenRuns
from journeyman.cli.show.tree import count_work, mark_of
from journeyman.errors import count
from journeyman.events import Event, RunFailed, RunResumed, RunStarted
from journeyman.types import NOTHING_USED, Usage

_CALL_MARKS: Final = {None: "…", False: "✓", True: "✗"}
"""The marks of calls, by whether the call failed; None stands for a call that never ended."""
_CALLS_ROWS: Final = 4


class Outline:
    """Follows a run, and can say at any time what all of it was."""

    def __init__(self) -> None:
        self._seen = SeenRuns()
        self._roots: list[SeenRun] = []

    def follow(self, event: Event) -> None:
        """Take note of what happened."""
        run = self._seen.follow(event)
        if run is None or not isinstance(event, RunStarted | RunResumed):
            return
        if isinstance(event, RunResumed):  # the runs below it may be told of first
            run.others += [each for each in self._roots if each.path[:-1] == event.path]
            self._roots = [each for each in self._roots if each.path[:-1] != event.path]
        if event.path[:-1] not in self._seen.open:
            self._roots.append(run)

    def lines(self) -> Iterator[Line]:
        """Give the tree, and the sums below it."""
        if not self._roots:
            return
        yield EMPTY
        yield Line(name="The whole tree", note="tokens, of runs with all below")
        for run in self._roots:
            yield from _run_lines(run, 0)
        together, apart, apart_usage = _sums(self._roots)
        yield EMPTY
        yield Line(name="in all", text=f"· {together.sentence()}")
        yield Line(
            indent=2,
            text=usage_sentence(_usage_of([run for run in self._roots if run.mode != BACKGROUND])),
            style="dim",
        )
        if apart.runs:
            yield Line(name="in the background", text=f"· {apart.sentence()}")
            yield Line(indent=2, text=usage_sentence(apart_usage), style="dim")


def _run_lines(run: SeenRun, indent: int) -> Iterator[Line]:
    yield _head(run, indent)
    if isinstance(run.ending, RunFailed):
        why = f"{run.ending.error.code}: {run.ending.error.message}"
        yield Line(indent=indent + 2, mark="bar", text=why, style="red", rows=_CALLS_ROWS)
    several = len({iteration.attempt for iteration in run.iterations}) > 1
    inner, attempt = indent + (4 if several else 2), 0
    for iteration in run.iterations:
        if several and iteration.attempt != attempt:
            attempt = iteration.attempt
            yield _attempt(run, attempt, indent + 2)
        yield _step(iteration, inner)
        for call in iteration.calls.values():
            for below in call.runs:
                yield from _run_lines(below, inner + 2)
    for below in run.others:
        yield from _run_lines(below, inner + 2)


def _head(run: SeenRun, indent: int) -> Line:
    mark: Mark = "stopped" if run.ending is None else "done"
    if isinstance(run.ending, RunFailed):
        mark = mark_of(run.ending.error.code)
    mode = f"{run.mode} · " if run.mode else ""
    took = "did not end by itself" if run.metadata is None else count_work(run.metadata).removeprefix("1 attempt, ")
    usage = None if run.metadata is None else run.metadata.usage
    note = "" if usage is None else short_usage(usage)
    return Line(indent=indent, mark=mark, name=run.path[-1], text=f"· {mode}{took}", note=note)


def _attempt(run: SeenRun, number: int, indent: int) -> Line:
    """Say how an attempt went: how its validation ended, if it came so far."""
    records = [] if run.metadata is None else [each for each in run.metadata.attempts if each.number == number]
    reports = [record.report for record in records if record.report is not None]
    verdict = "" if not reports else "· passed" if reports[0].passed else "· rejected"
    usage = short_usage(records[0].usage) if records else ""
    return Line(indent=indent, name=f"attempt {number}", text=verdict, note=usage)


def _step(iteration: SeenIteration, indent: int) -> Line:
    shown_calls = [f"{_CALL_MARKS[call.is_error]} {call.name}" for call in iteration.calls.values()]
    groups = [(shown, len(list(alike))) for shown, alike in groupby(shown_calls)]
    calls = "  ".join(shown if number == 1 else f"{shown} ({number})" for shown, number in groups)
    if iteration.usage is None:
        return Line(indent=indent, name=f"{iteration.number}", text=calls or "was not answered", rows=_CALLS_ROWS)
    usage, calls = short_usage(iteration.usage), calls or "answers"
    return Line(indent=indent, name=f"{iteration.number}", text=calls, note=usage, rows=_CALLS_ROWS)


# -- the sums ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _SumOfRuns:
    """The sum of what several runs did: attempts, iterations, and calls."""

    runs: int = 0
    attempts: int = 0
    iterations: int = 0
    calls: int = 0

    def add(self, run: SeenRun) -> None:
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


def _sums(roots: Sequence[SeenRun]) -> tuple[_SumOfRuns, _SumOfRuns, Usage | None]:
    """Return what the runs did with all below them, and what was done in the background: that is nobody's part."""
    together, apart = _SumOfRuns(), _SumOfRuns()
    background: list[SeenRun] = []
    stack = [(run, False) for run in roots]
    while stack:
        run, is_apart = stack.pop()
        if run.mode == BACKGROUND:
            background.append(run)
            is_apart = True
        (apart if is_apart else together).add(run)
        stack += [(below, is_apart) for below in run.below]
    return together, apart, _usage_of(background)


def _usage_of(runs: Sequence[SeenRun]) -> Usage | None:
    """Return what the runs used with all below them; None when one of them does not say."""
    total = NOTHING_USED
    for run in runs:
        if run.mode == BACKGROUND and run.metadata is None:
            total += _usage_so_far(run)
        elif run.metadata is None or run.metadata.usage is None:
            return None
        else:
            total += run.metadata.usage
    return total


def _usage_so_far(run: SeenRun) -> Usage:
    """Return what a run that has not ended used, with those below that it waits for."""
    if run.metadata is not None and run.metadata.usage is not None:
        return run.metadata.usage
    below = [_usage_so_far(each) for each in run.below if each.mode != BACKGROUND]
    return Usage.total([*below, *[each.usage for each in run.iterations if each.usage is not None]])

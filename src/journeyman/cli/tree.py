"""From events to the lines of the tree that stay: attempts, iterations, calls, previews, verdicts, the end.

`Tree` remembers what a line needs of earlier events and nothing else; where the lines go is not its concern. Read
`tail.py` next: it says what is going on now. Imports `events` and the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from journeyman.cli.lines import EMPTY, Line, Mark
from journeyman.cli.words import arguments, count, duration, one_line, short_usage, usage_sentence
from journeyman.contexts import ErrorCode
from journeyman.events import (
    CallAbandoned,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    MessageCommitted,
    ModelAnswered,
    ModelResponded,
    ModelRetried,
    Path,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
    ToolFinished,
)
from journeyman.result import LayerOutcome, Metadata

_ITERATION: Final = 2
_CALL: Final = 4
_BELOW_CALL: Final = 6
_DEEPER: Final = 4
"""How much further a sub-agent's lines are indented than those of the agent that called it."""
_NOTABLE_S: Final = 0.0005
"""A duration below this would read as 0 ms."""

_PROMPT_ROWS: Final = 3
_WORDS_ROWS: Final = 3
_FAULT_ROWS: Final = 4
_FEEDBACK_ROWS: Final = 8
_PREVIEW_ROWS: Final = 30
_PREVIEW_CHARS: Final = 20_000
_CALLBACK_ERRORS: Final = 3


@dataclass(slots=True, kw_only=True)
class _Run:
    """What is remembered of one run."""

    max_attempts: int = 1
    has_prompt: bool = False
    is_judged: bool = False
    """True from the first validation layer of an attempt to its end: the last call was handed in."""
    preview: frozenset[str] = frozenset()
    """The lines of the last preview."""
    calls: dict[str, ToolCalled] = field(default_factory=dict[str, ToolCalled])
    """The calls under way, by id."""


class Tree:
    """Makes lines of events."""

    __slots__ = ("_last", "_runs")

    def __init__(self) -> None:
        self._runs: dict[Path, _Run] = {}
        self._last: Path = ()

    def lines(self, event: Event) -> list[Line]:
        """Return the lines that `event` adds."""
        run = self._runs.setdefault(event.path, _Run())
        deeper = _DEEPER * (len(event.path) - 1)
        lines = [replace(line, indent=line.indent + deeper) for line in _lines(run, event)]
        if not lines:
            return lines
        if event.path != self._last and self._last and not isinstance(event, RunStarted):
            lines.insert(0, Line(text=event.path[-1], style="dim", indent=deeper))
        self._last = event.path
        return lines


def _lines(run: _Run, event: Event) -> Iterator[Line]:  # noqa: C901, PLR0912 - a table
    match event:
        case RunStarted():
            run.max_attempts = event.max_attempts
            yield Line(
                mark="child" if len(event.path) > 1 else "", name="/".join(event.path[-1:]), text=f"· {event.model}"
            )
        case MessageCommitted(message=message):
            if message.role == "user" and not run.has_prompt:
                run.has_prompt = True
                yield Line(text=message.text.strip(), style="dim", rows=_PROMPT_ROWS)
        case IterationStarted(iteration=1):
            run.is_judged = False
            yield EMPTY
            yield Line(name=f"attempt {event.attempt} of {run.max_attempts}")
        case ModelRetried():
            yield _retried(event)
        case ModelAnswered():
            yield Line(indent=_CALL, text=f"{event.provider}:{event.model} answers", style="dim")
        case ModelResponded():
            yield _responded(event)
        case ToolCalled():
            run.calls[event.tool_use_id] = event
        case ToolFinished():
            yield from _finished(run, event)
        case CallAbandoned():
            text = "goes on in its thread; what it returns is dropped"
            yield Line(indent=_CALL, mark="warning", name=event.tool_name, text=text)
        case LayerStarted():
            if not run.is_judged:
                run.is_judged = True
                yield _handed_in(run)
        case LayerCompleted(outcome=outcome):
            yield from _judged(outcome)
        case RunSucceeded(metadata=metadata):
            yield from _end("done", "done", metadata, is_child=len(event.path) > 1)
        case RunFailed(error=error, metadata=metadata):
            mark: Mark = "stopped" if error.code is ErrorCode.EXECUTION_CANCELLED else "failed"
            yield from _end(mark, mark, metadata, is_child=len(event.path) > 1)
        case _:
            pass


def _retried(event: ModelRetried) -> Line:
    again = f"request {event.request + 1} of {event.max_requests} in {duration(event.delay_s)}"
    text = f"{event.kind}: {one_line(event.message)} ({again})"
    return Line(indent=_CALL, mark="waiting", text=text, rows=_FAULT_ROWS)


def _responded(event: ModelResponded) -> Line:
    return Line(
        indent=_ITERATION,
        name=f"{event.iteration}",
        text=one_line(event.text),
        note=short_usage(event.usage),
        rows=_WORDS_ROWS,
    )


def _finished(run: _Run, event: ToolFinished) -> Iterator[Line]:
    called = run.calls.pop(event.tool_use_id, None)
    if run.is_judged and event.kind in ("output", "submit"):
        return  # its layers were shown
    is_draft = event.kind == "output" and not event.is_error
    yield Line(
        indent=_CALL,
        mark="failed" if event.is_error else "done",
        name=event.tool_name,
        text=_about(run, called, is_draft=is_draft),
        style="dim",
        note="cached" if event.cached else duration(event.duration_s) if event.duration_s >= _NOTABLE_S else "",
    )
    if event.is_error:
        yield _barred(event.tool_result, "red", rows=_FAULT_ROWS)
    elif is_draft:
        yield _barred(_preview(run, event.tool_result), "", rows=_PREVIEW_ROWS)


def _about(run: _Run, called: ToolCalled | None, *, is_draft: bool) -> str:
    if is_draft:
        return "what the preview shows anew:" if run.preview else ""
    return "" if called is None else arguments(called.tool_input)


def _preview(run: _Run, text: str) -> str:
    """Return what is new in a preview: the lines that the one before it did not have."""
    text = text[:_PREVIEW_CHARS]
    before, run.preview = run.preview, frozenset(text.splitlines())
    if not before:
        return text
    new = [line for line in text.splitlines() if line.strip() and line not in before]
    return "\n".join(new) if new else "nothing"


def _judged(outcome: LayerOutcome) -> Iterator[Line]:
    yield Line(indent=_BELOW_CALL, mark="done" if outcome.passed else "failed", text=outcome.name)
    if not outcome.passed:
        yield replace(_barred(outcome.feedback, "yellow", rows=_FEEDBACK_ROWS), indent=_BELOW_CALL + 2)


def _barred(text: str, style: str, *, rows: int) -> Line:
    return Line(indent=_BELOW_CALL, mark="bar", text=text.strip("\n"), style=style, rows=rows)


def _handed_in(run: _Run) -> Line:
    """Say what is about to be validated."""
    own = [called for called in run.calls.values() if called.kind in ("output", "submit")]
    name, given = (own[-1].tool_name, arguments(own[-1].tool_input)) if own else ("the answer", "")
    return Line(indent=_CALL, mark="step", name=name, text=given, style="dim")


def _end(mark: Mark, name: str, metadata: Metadata, *, is_child: bool) -> Iterator[Line]:
    took = duration(metadata.latency_s)
    if metadata.attempts:
        iterations = sum(record.iterations for record in metadata.attempts)
        calls = sum(stats.calls for stats in metadata.tools.values())
        counts = [count(len(metadata.attempts), "attempt"), count(iterations, "iteration"), count(calls, "call")]
        took = f"{', '.join(counts)} · {took}"
    if not is_child:
        yield EMPTY
    yield Line(mark=mark, name=name, text=f"· {took}")
    if not is_child:
        yield Line(indent=2, text=usage_sentence(metadata.usage), style="dim")
    for found in metadata.callback_errors[:_CALLBACK_ERRORS]:
        text = one_line(f"raised {type(found.error).__name__}: {found.error}")
        yield Line(indent=2, mark="warning", name=found.callback, text=text)

"""From one event to the lines that it adds: attempts, iterations, calls, previews, verdicts, the end of a run.

`Told` remembers what a line needs of earlier events and nothing else. Read `tree.py` next: it puts the lines of many
runs in order. Imports `events`, `subagent_calls` and the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from journeyman.cli.show.lines import EMPTY, Line, Mark
from journeyman.cli.show.words import arguments, count, delegated, duration, one_line, short_usage, usage_sentence
from journeyman.contexts import ErrorCode
from journeyman.events.run import (
    CallAbandoned,
    ContextCompacted,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    MessageCommitted,
    ModelAnswered,
    ModelResponded,
    ModelRetried,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
    ToolFinished,
)
from journeyman.result import LayerOutcome, Metadata
from journeyman.subagents.calls import NAME as SUBAGENT

_ITERATION: Final = 2
_CALL: Final = 4
_BELOW_CALL: Final = 6
_OF_CHILD: Final = 2
"""How much further a sub-agent's prompt and end are indented than its name."""
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
class Told:
    """What is remembered of one run."""

    is_child: bool = False
    """A sub-agent's run is told more briefly."""
    max_attempts: int = 1
    has_prompt: bool = False
    is_judged: bool = False
    """True from the first validation layer of an attempt to its end: the last call was handed in."""
    preview: frozenset[str] = frozenset()
    """The lines of the last preview."""
    calls: dict[str, ToolCalled] = field(default_factory=dict[str, ToolCalled])
    """The calls under way, by id."""


def lines_of(run: Told, event: Event) -> Iterator[Line]:  # noqa: C901, PLR0912 - a table
    """Give the lines that `event` adds to what was told of its run; the first column is the run's own."""
    match event:
        case RunStarted():
            run.max_attempts = event.max_attempts
            yield _begun(run, event)
        case MessageCommitted(message=message):
            if message.role == "user" and not run.has_prompt:
                run.has_prompt = True
                indent = _OF_CHILD if run.is_child else 0
                yield Line(indent=indent, text=message.text.strip(), style="dim", rows=_PROMPT_ROWS)
        case IterationStarted(iteration=1):
            run.is_judged = False
            yield from _attempt(run, event.attempt)
        case ModelRetried():
            yield _retried(event)
        case ModelAnswered():
            yield Line(indent=_CALL, text=f"{event.provider}:{event.model} answers", style="dim")
        case ContextCompacted(before_tokens=before, after_tokens=after):
            yield Line(indent=_CALL, text=f"conversation shortened: {before:,} to {after:,} tokens", style="dim")
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
            yield from _end("done", "done", metadata, run)
        case RunFailed():
            yield from _failed(run, event)
        case _:
            pass


def _begun(run: Told, event: RunStarted) -> Line:
    how = f"· {event.mode} " if event.mode else ""
    return Line(mark="child" if run.is_child else "", name="/".join(event.path[-1:]), text=f"{how}· {event.model}")


def _attempt(run: Told, number: int) -> Iterator[Line]:
    if not run.is_child:
        yield EMPTY
    if not run.is_child or number > 1:
        yield Line(indent=_OF_CHILD if run.is_child else 0, name=f"attempt {number} of {run.max_attempts}")


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


def _finished(run: Told, event: ToolFinished) -> Iterator[Line]:
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


def _about(run: Told, called: ToolCalled | None, *, is_draft: bool) -> str:
    if is_draft:
        return "what the preview shows anew:" if run.preview else ""
    return "" if called is None else given_to(called)


def given_to(called: ToolCalled) -> str:
    """Say what a call was given; of a delegation, how it delegates."""
    return delegated(called.tool_input) if called.tool_name == SUBAGENT else arguments(called.tool_input)


def _preview(run: Told, text: str) -> str:
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


def _handed_in(run: Told) -> Line:
    """Say what is about to be validated."""
    own = [called for called in run.calls.values() if called.kind in ("output", "submit")]
    name, given = (own[-1].tool_name, arguments(own[-1].tool_input)) if own else ("the answer", "")
    return Line(indent=_CALL, mark="step", name=name, text=given, style="dim")


# -- the end of a run -------------------------------------------------------------------------------------------------


def _failed(run: Told, event: RunFailed) -> Iterator[Line]:
    mark = mark_of(event.error.code)
    yield from _end(mark, mark, event.metadata, run)
    if run.is_child:  # of the others, it is said below the tree
        text = f"{event.error.code}: {event.error.message}"
        yield replace(_barred(text, "red", rows=_FAULT_ROWS), indent=2 * _OF_CHILD)


def mark_of(code: ErrorCode | None) -> Mark:
    """Return how a run ended: with an error, or well."""
    if code is None:
        return "done"
    return "stopped" if code is ErrorCode.EXECUTION_CANCELLED else "failed"


def _end(mark: Mark, name: str, metadata: Metadata, run: Told) -> Iterator[Line]:
    if run.is_child:
        usage = "" if metadata.usage is None else short_usage(metadata.usage)
        yield Line(indent=_OF_CHILD, mark=mark, name=name, text=f"· {counted(metadata)}", note=usage)
    else:
        yield EMPTY
        yield Line(mark=mark, name=name, text=f"· {counted(metadata)}")
        yield Line(indent=2, text=usage_sentence(metadata.usage), style="dim")
    for found in metadata.callback_errors[:_CALLBACK_ERRORS]:
        text = one_line(f"raised {type(found.error).__name__}: {found.error}")
        yield Line(indent=2, mark="warning", name=found.callback, text=text)


def counted(metadata: Metadata) -> str:
    """Say how many attempts, iterations and calls a run of its own took, and how long."""
    took = duration(metadata.latency_s)
    if not metadata.attempts:
        return took
    iterations = sum(record.iterations for record in metadata.attempts)
    calls = sum(stats.calls for stats in metadata.tools.values())
    counts = [count(len(metadata.attempts), "attempt"), count(iterations, "iteration"), count(calls, "call")]
    return f"{', '.join(counts)} · {took}"

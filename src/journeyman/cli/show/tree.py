"""From one event to the lines that it adds: attempts, iterations, calls, previews, verdicts, the end of a run.

`Told` remembers what a line needs of earlier events and nothing else.

From events to the lines of the tree that stay: the runs, one inside the other, in an order that can be read.

Sub-agents are indented below the run that started them. What works at the same time is told step by step: the lines
of an iteration are kept until it is over, so that those of one sub-agent stand together. `Tree` says what the lines
are; where they go is not its concern.

From the events of background work and of teams to lines: what began and ended, who wrote what to whom.

They belong to no iteration: what they are about goes on beside the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from journeyman.cli.show.lines import (
    EMPTY,
    Line,
    Mark,
    arguments,
    count,
    delegated,
    duration,
    one_line,
    short_usage,
    usage_sentence,
)
from journeyman.endings import ErrorCode
from journeyman.events import (
    CallAbandoned,
    ContextCompacted,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    MailDelivered,
    MailReturned,
    MailSent,
    MemberChanged,
    MessageCommitted,
    ModelAnswered,
    ModelResponded,
    ModelRetried,
    RunFailed,
    RunStarted,
    RunSucceeded,
    TaskEnded,
    TaskInfo,
    TaskMessaged,
    TaskStarted,
    TaskStatus,
    ToolCalled,
    ToolFinished,
)
from journeyman.result import LayerOutcome, Metadata
from journeyman.subagents.calls import NAME as SUBAGENT
from journeyman.types import RunPath

Aside: TypeAlias = TaskStarted | TaskMessaged | TaskEnded | MailSent | MailDelivered | MailReturned | MemberChanged

ASIDES: Final = (TaskStarted, TaskMessaged, TaskEnded, MailSent, MailDelivered, MailReturned, MemberChanged)

_MARKS: Final[dict[TaskStatus, Mark]] = {
    "running": "background",
    "completed": "done",
    "failed": "failed",
    "killed": "stopped",
}
_ENDS: Final[dict[TaskStatus, str]] = {
    "running": "goes on",
    "completed": "has ended",
    "failed": "failed",
    "killed": "was stopped",
}
_MAIL_ROWS: Final = 3
_RESULT_ROWS: Final = 2


def lines_aside(event: Aside) -> Iterator[Line]:  # noqa: C901, PLR0912 - a table
    """Give the lines that `event` adds. What a reader of the others knows already adds none."""
    match event:
        case TaskStarted(info=info):
            if info.identity is None:  # a member is told of by its team
                yield Line(mark="background", name=info.id, text=f"{_subject(info)} · in the background")
        case TaskMessaged(id=id, text=text, delivery=delivery):
            lost = "" if delivery == "queued" else f" (not read: {delivery})"
            yield Line(mark="mail" if not lost else "warning", name=f"to {id}", text=one_line(text) + lost)
        case TaskEnded(info=info):
            if info.identity is None:
                yield from _ended(info)
        case MailSent(mail=mail):
            if mail.kind == "message":
                text = one_line(mail.text)
                yield Line(mark="mail", name=f"{mail.sender} to {mail.to}", text=text, rows=_MAIL_ROWS)
        case MailReturned(letter=letter):
            if letter.mail.kind == "message":
                name = f"{letter.mail.sender} to {letter.mail.to}"
                text = f"not delivered ({letter.reason}): {one_line(letter.mail.text)}"
                yield Line(mark="warning", name=name, text=text, rows=_MAIL_ROWS)
        case MemberChanged():
            yield from _changed(event)
        case MailDelivered():
            pass


def _subject(info: TaskInfo) -> str:
    what = one_line(info.description or info.command)
    return f"{info.agent}: {what}" if info.agent else what


def _ended(info: TaskInfo) -> Iterator[Line]:
    yield Line(
        mark=_MARKS[info.status],
        name=info.id,
        text=f"{_subject(info)} · {_ENDS[info.status]}",
        note=duration(info.duration_s),
    )
    if info.error:
        yield Line(indent=2, mark="bar", text=one_line(info.error), style="red", rows=_RESULT_ROWS)


def _changed(event: MemberChanged) -> Iterator[Line]:
    if event.liveness != "gone":
        return
    if event.error:
        yield Line(mark="failed", name=event.name, text=f"is gone: {one_line(event.error)}", rows=_RESULT_ROWS)
    else:
        yield Line(mark="stopped", name=event.name, text="is gone")


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


DEEPER: Final = 4
"""How much further a sub-agent's lines are indented than those of the agent that called it."""

_TOGETHER: Final = ("parallel", "background")
"""How runs are started that work at the same time as others."""
_STOPPED: Final = Line(indent=2, mark="stopped", name="stopped")
"""The end of a run that was cancelled by the one above, and so has told of none."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line, and whose it is."""

    path: RunPath
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
        self._runs: dict[RunPath, _Run] = {}
        """Those that have not ended."""
        self._last: RunPath = ()
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

    def _closed(self, path: RunPath) -> list[_Entry]:
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

    def _passed_on(self, path: RunPath, entries: list[_Entry]) -> list[Line]:
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


def _indented(line: Line, path: RunPath) -> Line:
    return replace(line, indent=line.indent + DEEPER * (len(path) - 1)) if len(path) > 1 else line

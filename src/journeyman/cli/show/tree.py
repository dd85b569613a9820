"""From the events to the lines of the tree that stay: the runs, one inside the other, in an order that can be read.

Sub-agents are indented below the run that started them. What works at the same time is told step by step: the lines of
an iteration are kept until it has ended, so that those of one sub-agent stand together. Background work and teams have
lines of their own between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from journeyman import events
from journeyman.cli.show.lines import (
    EMPTY,
    Line,
    Mark,
    duration,
    given_to,
    one_line,
    ran,
    refusal_words,
    short_usage,
    usage_sentence,
)
from journeyman.definition.narrowing import as_list, as_number, as_object
from journeyman.endings import ErrorCode
from journeyman.errors import count
from journeyman.events.run_view import IterationView, RunView, usage_in, work_in
from journeyman.result import LayerOutcome, Metadata
from journeyman.toolbox.todo import NAME as TODO
from journeyman.types import NOTHING_USED, JsonObject, RunPath

_DEEPER: Final = 4
"""How much further a sub-agent's lines are indented than those of the agent that called it."""
_CHILD: Final = 2
"""How much further a sub-agent's prompt and end are indented than its name."""
_ITERATION: Final = 2
_CALL: Final = 4
_BELOW_CALL: Final = 6
_NOTABLE_S: Final = 0.0005
"""A duration below this would read as 0 ms."""
_PROMPT_ROWS: Final = 3
_WORDS_ROWS: Final = 3
_FAULT_ROWS: Final = 4
_FEEDBACK_ROWS: Final = 8
_PREVIEW_ROWS: Final = 30
_PREVIEW_CHARS: Final = 20_000
_CALLBACK_ERRORS: Final = 3
_MAIL_ROWS: Final = 3
_RESULT_ROWS: Final = 2
_STOPPED: Final = Line(indent=2, mark="stopped", name="stopped")
"""The end of a run that was cancelled by the one above, so that no event said how it ended."""
_TASK_ENDS: Final[dict[events.TaskStatus, tuple[Mark, str]]] = {
    "running": ("background", "goes on"),
    "completed": ("done", "has ended"),
    "failed": ("failed", "failed"),
    "killed": ("stopped", "was stopped"),
}


@dataclass(frozen=True, slots=True)
class _LineOfRun:
    """A line, and the run that it is about."""

    path: RunPath
    line: Line
    names_itself: bool = False
    """True when the line says which run it is about."""


class Tree:
    """Makes lines of events."""

    __slots__ = ("_kept", "_last")

    def __init__(self) -> None:
        self._kept: dict[RunPath, list[_LineOfRun]] = {}
        """The lines of the runs whose lines are kept until the iteration has ended."""
        self._last: RunPath = ()
        """The run that the last line was about."""

    def lines(self, event: events.Event, run: RunView | None) -> list[Line]:
        """Return the lines that are complete with `event`. `run` is the view of its run, with the event in it."""
        path = event.path
        if run is None:
            lines = [_indent(line, path) for line in lines_beside(event)]
            self._last = self._last[:1] if lines else self._last  # what goes on says again which run it is about
            return lines
        begins = isinstance(event, events.RunStarted | events.RunResumed)
        if begins:
            self._kept.pop(path, None)
            if run.is_child and run.is_beside_others:
                self._kept[path] = []
        entries = [] if run.ending is None else self._close_run(run)
        new = [_LineOfRun(path, _indent(line, path), begins) for line in lines_for_event(run, event)]
        kept = self._kept.get(path)
        if kept is None:
            return self._pass_on(path, [*entries, *new])
        if isinstance(event, events.IterationStarted) and (event.attempt, event.iteration) != (1, 1):
            entries = kept.copy()
            kept.clear()
        kept += new
        return self._pass_on(path, entries)

    def rest(self) -> list[Line]:
        """Return the lines that were kept of runs that have not ended."""
        kept = [entry for entries in self._kept.values() for entry in entries]
        self._kept.clear()
        return self._in_order(kept)

    def _close_run(self, run: RunView) -> list[_LineOfRun]:
        """Return the lines that were kept of a run that has ended, and of those that it took along."""
        entries = self._kept.pop(run.path, [])
        for below in run.stopped:
            entries += [*self._close_run(below), _LineOfRun(below.path, _indent(_STOPPED, below.path))]
        return entries

    def _pass_on(self, path: RunPath, entries: list[_LineOfRun]) -> list[Line]:
        """Return the lines, or keep them among those of a run above whose lines are kept."""
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in self._kept:
                self._kept[path[:length]] += entries
                return []
        return self._in_order(entries)

    def _in_order(self, entries: Iterable[_LineOfRun]) -> list[Line]:
        """Return the lines; where another run begins to speak, with its name. The indent tells who is above."""
        lines: list[Line] = []
        for entry in entries:
            if self._last and not entry.names_itself and self._last[: len(entry.path)] != entry.path:
                lines.append(_indent(Line(text=entry.path[-1], style="dim"), entry.path))
            lines.append(entry.line)
            self._last = entry.path
        return lines


def _indent(line: Line, path: RunPath) -> Line:
    return replace(line, indent=line.indent + _DEEPER * (len(path) - 1)) if len(path) > 1 else line


def lines_for_event(run: RunView, event: events.Event) -> Iterator[Line]:  # noqa: C901, PLR0912 - a table
    """Give the lines that `event` adds to those of its run; the first column is the run's own."""
    match event:
        case events.RunStarted() | events.RunResumed():
            yield _begin_line(run, event)
        case events.MessageCommitted(message=message):
            if message.role == "user" and run.n_prompts == 1:
                indent = _CHILD if run.is_child else 0
                yield Line(indent=indent, text=message.text.strip(), style="dim", rows=_PROMPT_ROWS)
        case events.IterationStarted(iteration=1):
            yield from _attempt(run, event.attempt)
        case events.ModelRetried():
            again = f"request {event.request + 1} of {event.max_requests} in {duration(event.delay_s)}"
            text = f"{event.kind}: {one_line(event.message)} ({again})"
            yield Line(indent=_CALL, mark="waiting", text=text, rows=_FAULT_ROWS)
        case events.ModelAnswered():
            yield Line(indent=_CALL, text=f"{event.provider}:{event.model} answers", style="dim")
        case events.ContextCompacted(before_tokens=before, after_tokens=after):
            yield Line(indent=_CALL, text=f"conversation shortened: {before:,} to {count(after, 'token')}", style="dim")
        case events.ModelResponded(iteration=number, text=text, usage=usage):
            note = short_usage(usage)
            yield Line(indent=_ITERATION, name=f"{number}", text=one_line(text), note=note, rows=_WORDS_ROWS)
        case events.HostedToolRan():
            yield from _hosted_lines(event)
        case events.ToolFinished():
            yield from _finish_lines(run, event)
        case events.SandboxRefused(tool_name=name, cause=cause, sandbox=sandbox, what=what):
            yield _line_with_warning(name, f"{refusal_words(cause, sandbox)}: {one_line(what)}")
        case events.CallAbandoned(tool_name=name):
            yield _line_with_warning(name or "model", "was stopped and goes on; what it returns is dropped")
        case events.LayerStarted():
            if run.n_layers == 1:
                yield _submission_line(run)
        case events.LayerCompleted(outcome=outcome):
            yield from _layer_lines(outcome)
        case events.RunSucceeded(metadata=metadata):
            yield from _end("done", metadata, run)
        case events.RunFailed():
            yield from _failure_lines(run, event)
        case _:
            pass


def _line_with_warning(name: str, text: str) -> Line:
    return Line(indent=_CALL, mark="warning", name=name, text=text)


def _begin_line(run: RunView, event: events.RunStarted | events.RunResumed) -> Line:
    if isinstance(event, events.RunStarted):
        how = f"· {event.mode} " if event.mode else ""
        text = f"{how}· {event.model}"
    else:
        where = f" at attempt {event.attempt}, iteration {max(event.iteration, 1)}" if event.attempt else ""
        text = f"· goes on{where}"
    return Line(mark="child" if run.is_child else "", name="/".join(event.path[-1:]), text=text)


def _attempt(run: RunView, number: int) -> Iterator[Line]:
    of = f" of {run.max_attempts}" if run.max_attempts else ""
    if not run.is_child:
        yield EMPTY
    if not run.is_child or number > 1:
        yield Line(indent=_CHILD if run.is_child else 0, name=f"attempt {number}{of}")


def _hosted_lines(event: events.HostedToolRan) -> Iterator[Line]:
    call = event.call
    asked, mark = one_line(call.asked), "failed" if call.error else "done"
    yield Line(indent=_CALL, mark=mark, name=call.tool, text=asked, style="dim", rows=_WORDS_ROWS, note="hosted")
    if call.error:
        yield _bar(call.error, "red", rows=_FAULT_ROWS)


def _finish_lines(run: RunView, event: events.ToolFinished) -> Iterator[Line]:
    if run.n_layers and event.kind in ("output", "submit"):
        return  # its layers were shown
    is_draft = event.kind == "output" and not event.is_error
    call = run.call(event.tool_use_id)
    text = "" if call is None else ran(given_to(call), event.tool_result)
    if is_draft:
        text = "what the preview shows again:" if run.drafts[0] else ""
    yield Line(
        indent=_CALL,
        mark="failed" if event.is_error else "done",
        name=event.tool_name,
        text=text,
        style="dim",
        note="cached" if event.cached else duration(event.duration_s) if event.duration_s >= _NOTABLE_S else "",
    )
    if event.is_error:
        yield _bar(event.tool_result, "red", rows=_FAULT_ROWS)
    elif is_draft:
        yield _bar(_preview(*run.drafts), "", rows=_PREVIEW_ROWS)
    elif event.tool_name == TODO:
        yield _bar(event.tool_result.partition("\n")[2], "", rows=_PREVIEW_ROWS)


def _preview(before: str, text: str) -> str:
    """Return what is new in a preview: the lines that the one before it did not have."""
    text = text[:_PREVIEW_CHARS]
    if not before:
        return text
    known = frozenset(before[:_PREVIEW_CHARS].splitlines())
    new = [line for line in text.splitlines() if line.strip() and line not in known]
    return "\n".join(new) if new else "nothing"


def _submission_line(run: RunView) -> Line:
    """Say what is about to be validated."""
    own = [call for call in run.open_calls if call.kind in ("output", "submit")]
    name, given = (own[-1].name, given_to(own[-1])) if own else ("the answer", "")
    return Line(indent=_CALL, mark="step", name=name, text=given, style="dim")


def _layer_lines(outcome: LayerOutcome) -> Iterator[Line]:
    yield Line(indent=_BELOW_CALL, mark="done" if outcome.passed else "failed", text=outcome.name)
    if not outcome.passed:
        yield replace(_bar(outcome.feedback, "yellow", rows=_FEEDBACK_ROWS), indent=_BELOW_CALL + 2)


def _bar(text: str, style: str, *, rows: int) -> Line:
    return Line(indent=_BELOW_CALL, mark="bar", text=text.strip("\n"), style=style, rows=rows)


def _failure_lines(run: RunView, event: events.RunFailed) -> Iterator[Line]:
    yield from _end(mark_of(event.error.code), event.metadata, run)
    if run.is_child:  # of the others, it is said below the tree
        text = f"{event.error.code}: {event.error.message}"
        yield replace(_bar(text, "red", rows=_FAULT_ROWS), indent=2 * _CHILD)


def mark_of(code: object) -> Mark:
    """Return the mark of a run that failed: it was stopped, or it ended with an error."""
    return "stopped" if code == ErrorCode.EXECUTION_CANCELLED else "failed"


def _end(mark: Mark, metadata: Metadata, run: RunView) -> Iterator[Line]:
    if run.is_child:
        usage = "" if metadata.usage is None else short_usage(metadata.usage)
        yield Line(indent=_CHILD, mark=mark, name=mark, text=f"· {_count_work(run)}", note=usage)
    else:
        yield EMPTY
        yield Line(mark=mark, name=mark, text=f"· {_count_work(run)}")
        yield Line(indent=2, text=usage_sentence(metadata.usage), style="dim")
    for found in metadata.callback_errors[:_CALLBACK_ERRORS]:
        text = one_line(f"raised {type(found.error).__name__}: {found.error}")
        yield Line(indent=2, mark="warning", name=found.callback, text=text)


def _count_work(run: RunView) -> str:
    """Say how many attempts, iterations and calls a run of its own took, and how long."""
    took, work = duration(as_number((run.metadata or {}).get("latency_s"))), work_in(run)
    if not work[0]:
        return took
    counts = [count(number, noun) for number, noun in zip(work, _WORK, strict=True)]
    return f"{', '.join(counts)} · {took}"


_WORK: Final = ("attempt", "iteration", "call")


def lines_beside(event: events.Event) -> Iterator[Line]:
    """Give the lines of background work and of a team. What a reader of the others knows already has none."""
    match event:
        case events.TaskStarted(info=info):
            if info.identity is None:  # a member is told of by its team
                yield Line(mark="background", name=info.id, text=f"{_subject(info)} · in the background")
        case events.TaskMessaged(id=id, text=text, delivery=delivery):
            lost = "" if delivery == "queued" else f" (not read: {delivery})"
            yield Line(mark="mail" if not lost else "warning", name=f"to {id}", text=one_line(text) + lost)
        case events.TaskEnded(info=info):
            if info.identity is None:
                mark, end = _TASK_ENDS[info.status]
                text = f"{_subject(info)} · {end}"
                yield Line(mark=mark, name=info.id, text=text, note=duration(info.duration_s))
                if info.error:
                    yield Line(indent=2, mark="bar", text=one_line(info.error), style="red", rows=_RESULT_ROWS)
        case events.MailSent(mail=mail) if mail.kind == "message":
            text = one_line(mail.text)
            yield Line(mark="mail", name=f"{mail.sender} to {mail.to}", text=text, rows=_MAIL_ROWS)
        case events.MailReturned(letter=letter) if letter.mail.kind == "message":
            name = f"{letter.mail.sender} to {letter.mail.to}"
            text = f"not delivered ({letter.reason}): {one_line(letter.mail.text)}"
            yield Line(mark="warning", name=name, text=text, rows=_MAIL_ROWS)
        case events.MemberChanged(liveness="gone", name=name, error=error):
            text = f"is gone: {one_line(error)}" if error else "is gone"
            yield Line(mark="failed" if error else "stopped", name=name, text=text, rows=_RESULT_ROWS)
        case _:
            pass


def _subject(info: events.TaskInfo) -> str:
    what = one_line(info.description or info.command)
    return f"{info.agent}: {what}" if info.agent else what


_CALL_MARKS: Final = {None: "…", False: "✓", True: "✗"}
"""The marks of calls, by whether the call failed; None stands for a call that never ended."""
_CALLS_ROWS: Final = 4


def outline_lines(roots: Sequence[RunView]) -> Iterator[Line]:
    """Give the tree of all that these runs were, and the sums below it."""
    if not roots:
        return
    yield EMPTY
    yield Line(name="The whole tree", note="tokens, of runs with all below")
    for run in roots:
        yield from _run_lines(run, 0)
    work = [work_in(run) for root in roots for run in root.every()]
    sums = len(work), *(sum(column) for column in zip(*work, strict=True))
    counts = [count(number, noun) for number, noun in zip(sums, ("run", *_WORK), strict=True)]
    yield EMPTY
    yield Line(name="in all", text=f"· {', '.join(counts)}")
    told = [usage for run in roots if (usage := run.usage) is not None]
    beside = [usage_in(run.metadata or {}, "background_usage") or NOTHING_USED for run in roots]
    used = [*told, *beside] if len(told) == len(roots) else None  # else one of them does not say what it used
    usage = None if used is None else sum(used, NOTHING_USED)
    yield Line(indent=2, text=usage_sentence(usage), style="dim")


def _run_lines(run: RunView, indent: int) -> Iterator[Line]:
    yield _head(run, indent)
    if error := _error_of(run):
        why = f"{error.get('code')}: {error.get('message')}"
        yield Line(indent=indent + 2, mark="bar", text=why, style="red", rows=_CALLS_ROWS)
    several = len({iteration.attempt for iteration in run.iterations}) > 1
    inner, attempt = indent + (4 if several else 2), 0
    for iteration in run.iterations:
        if several and iteration.attempt != attempt:
            attempt = iteration.attempt
            yield _sum_up_attempt(run, attempt, indent + 2)
        yield _step(iteration, inner)
        for call in iteration.calls.values():
            for below in call.runs:
                yield from _run_lines(below, inner + 2)
    for below in run.others:
        yield from _run_lines(below, inner + 2)


def _error_of(run: RunView) -> JsonObject:
    return as_object(run.ending.facts.get("error")) if run.ending is not None else {}


def _head(run: RunView, indent: int) -> Line:
    mark: Mark = "stopped" if run.ending is None else "done"
    if error := _error_of(run):
        mark = mark_of(error.get("code"))
    mode = f"{run.mode} · " if run.mode else ""
    took = "did not end by itself" if run.ending is None else _count_work(run).removeprefix("1 attempt, ")
    note = "" if run.usage is None else short_usage(run.usage)
    return Line(indent=indent, mark=mark, name=run.path[-1], text=f"· {mode}{took}", note=note)


def _sum_up_attempt(run: RunView, number: int, indent: int) -> Line:
    """Say how an attempt went: how its validation ended, if it came so far."""
    attempts = map(as_object, as_list((run.metadata or {}).get("attempts")))
    records = [each for each in attempts if each.get("number") == number]
    record: JsonObject = records[0] if records else {}
    layers, usage = as_list(as_object(record.get("report")).get("layers")), usage_in(record, "usage")
    is_passed = all(as_object(layer).get("passed") is True for layer in layers)
    verdict = "" if record.get("report") is None else "· passed" if is_passed else "· rejected"
    note = "" if usage is None else short_usage(usage)
    return Line(indent=indent, name=f"attempt {number}", text=verdict, note=note)


def _step(iteration: IterationView, indent: int) -> Line:
    shown_calls = [f"{_CALL_MARKS[call.is_error]} {call.name}" for call in iteration.calls.values()]
    groups = [(shown, len(list(alike))) for shown, alike in groupby(shown_calls)]
    calls = "  ".join(shown if number == 1 else f"{shown} ({number})" for shown, number in groups)
    if iteration.usage is None:
        return Line(indent=indent, name=f"{iteration.number}", text=calls or "was not answered", rows=_CALLS_ROWS)
    usage, calls = short_usage(iteration.usage), calls or "answers"
    return Line(indent=indent, name=f"{iteration.number}", text=calls, note=usage, rows=_CALLS_ROWS)

"""The view of runs: one record for each run, folded from what its events tell, live or stored.

Whoever shows a run reads these records. What an event changes in them is said here and nowhere else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from journeyman import events
from journeyman.definition.data import copy_with
from journeyman.definition.narrowing import as_list, as_object, as_text, is_json_object
from journeyman.events.json_form import RecordedEvent
from journeyman.result import COUNTED
from journeyman.types import JsonObject, RunPath, Usage, adapter_of

BACKGROUND: Final = "background"
"""The mode of a run that goes on after the run that started it."""
_TOGETHER: Final = ("parallel", BACKGROUND)
"""The modes of runs that work at the same time as others."""


def _kinds(*classes: type[events.Event]) -> frozenset[str]:
    return frozenset(each.__name__ for each in classes)


_BESIDE_RUNS: Final = _kinds(
    *(events.TaskStarted, events.TaskMessaged, events.TaskEnded),
    *(events.MailSent, events.MailDelivered, events.MailReturned, events.MemberChanged),
)
"""Events of background work and of teams. Their paths say whom they concern, not in which run they happened."""
_BEGINS: Final = _kinds(events.RunStarted, events.RunResumed)
_ENDS: Final = _kinds(events.RunSucceeded, events.RunFailed)
ASKS: Final = _kinds(events.ApprovalRequested, events.QuestionAsked)
ANSWERS: Final = _kinds(events.ApprovalAnswered, events.QuestionAnswered)
_DOES: Final = _kinds(
    *(events.RunStarted, events.RunResumed, events.IterationStarted, events.ModelRetried, events.LayerStarted),
    *(events.ThinkingDelta, events.TextDelta, events.ToolInputDelta, events.OutputDelta, events.ToolCalled),
    *(events.ApprovalRequested, events.QuestionAsked),
)
"""Events from which on a run does something else."""
_WORDS_KEPT: Final = 4_000
_WRITTEN_KEPT: Final = 5


@dataclass(slots=True, kw_only=True)
class CallView:
    """A tool call."""

    id: str
    name: str
    kind: str
    input: JsonObject
    since: float
    """The moment at which it began, in seconds of the clock."""
    progress: str = ""
    """The last message of its progress."""
    written: deque[str] = field(default_factory=lambda: deque[str](maxlen=_WRITTEN_KEPT))
    """The last lines of its progress; of a command, those that it writes."""
    asked: str = ""
    """The id of the question about it that waits for an answer; empty when none does."""
    is_error: bool | None = None
    """True when it failed; None until it has ended."""
    runs: list[RunView] = field(default_factory=list["RunView"])
    """The runs that it started."""

    def say(self, message: str, fraction: object) -> None:
        """Take note of what it says of its progress."""
        is_counted = isinstance(fraction, float | int)
        self.progress = f"{fraction:.0%} {message}" if is_counted else message
        if not is_counted:
            self.written.append(message)


@dataclass(slots=True)
class IterationView:
    """A model call and the tool calls that it asked for."""

    attempt: int
    number: int
    usage: Usage | None = None
    """The use of the model call; None when the model never answered."""
    calls: dict[str, CallView] = field(default_factory=dict[str, CallView])
    """The calls by id."""


@dataclass(slots=True, kw_only=True)
class RunView:
    """A run, of an agent or of a sub-agent."""

    path: RunPath
    since: float
    """The moment at which it began, in seconds of the clock."""
    mode: str = ""
    """The mode in which another run started it; empty if none did."""
    is_beside_others: bool = False
    """True when others may have been at work when it began."""
    max_attempts: int = 1
    """0: not known, of a run that goes on from a journal."""
    latest: RecordedEvent | None = None
    """The latest event that says what it does; that of an answer names the tool of the call that waited for it."""
    words: str = ""
    """The last words of the response that the model is writing."""
    n_prompts: int = 0
    """The number of messages of the user that were committed."""
    n_layers: int = 0
    """The number of validation layers begun in this attempt; from the first on, the last call was handed in."""
    drafts: tuple[str, str] = ("", "")
    """The last preview but one, and the last."""
    iterations: list[IterationView] = field(default_factory=list[IterationView])
    questions: dict[str, RecordedEvent] = field(default_factory=dict[str, RecordedEvent])
    """The questions that nobody has answered yet, by id."""
    others: list[RunView] = field(default_factory=list["RunView"])
    """The runs that it started in no call that is known."""
    n_open: int = 0
    """The number of runs that it started and that have not ended."""
    stopped: list[RunView] = field(default_factory=list["RunView"])
    """The runs that its end has stopped."""
    ending: RecordedEvent | None = None
    """The event of its end; None for a run that goes on, or that was stopped and has told of no end."""

    @property
    def is_child(self) -> bool:
        return len(self.path) > 1

    @property
    def metadata(self) -> JsonObject | None:
        """The run's metadata, as JSON; None until it has ended."""
        return None if self.ending is None else as_object(self.ending.facts.get("metadata"))

    @property
    def calls(self) -> Iterator[CallView]:
        """All its calls."""
        for iteration in self.iterations:
            yield from iteration.calls.values()

    @property
    def open_calls(self) -> list[CallView]:
        """The calls under way."""
        return [call for call in self.calls if call.is_error is None]

    @property
    def below(self) -> Sequence[RunView]:
        """The runs that it started."""
        return [view for call in self.calls for view in call.runs] + self.others

    def every(self) -> Iterator[RunView]:
        """Give the run itself, and all runs below it."""
        yield self
        for view in self.below:
            yield from view.every()

    @property
    def work(self) -> tuple[int, int, int]:
        """The numbers of attempts, iterations and calls of tools that it has begun, as far as was heard."""
        n_calls = sum(call.kind in COUNTED for call in self.calls)
        return len({each.attempt for each in self.iterations}), len(self.iterations), n_calls

    @property
    def usage(self) -> Usage | None:
        """The use of the run and of those that it waited for; None until it has ended, or if it does not count."""
        return usage_in(self.metadata or {}, "usage")

    def call(self, id: str | None) -> CallView | None:
        """Return one of its calls; the latest are looked at first."""
        found = (iteration.calls[id] for iteration in reversed(self.iterations) if id in iteration.calls)
        return None if id is None else next(found, None)


def usage_in(facts: Mapping[str, object], name: str) -> Usage | None:
    """Return the usage that stands in facts; None where it was not counted."""
    told = facts.get(name)
    return adapter_of(Usage).validate_python(told) if is_json_object(told) else None


class RunViews:
    """Follows the events, and keeps the views of the runs that have not ended."""

    def __init__(self, now: Callable[[], float] = time.monotonic, *, keeps_roots: bool = False) -> None:
        """`keeps_roots`: those that have ended stay, too."""
        self.now: Final = now
        self._keeps_roots = keeps_roots
        self.open: Final[dict[RunPath, RunView]] = {}
        """The runs that have not ended, in the order in which they began."""
        self.roots: list[RunView] = []
        """All that began below no other that is known, if they are kept."""
        self.newest_root: RunView | None = None
        """The run that began last and is no sub-agent's."""
        self.tasks: Final[set[str]] = set()
        """The ids of the background work that goes on and is no run."""
        self.n_tokens = 0
        """The tokens that all model calls have used."""

    def take(self, told: RecordedEvent) -> RunView | None:
        """Take note of what happened. Return the view of its run; None when it happened beside the runs."""
        if told.kind in _BESIDE_RUNS:
            self._note_task(told)
            return None
        view = self.open.get(told.path)
        if view is None or told.kind in _BEGINS:
            view = self._begin(told)
        if told.kind in _DOES:
            view.latest = told
        if told.kind in _CALLS:
            self._note_call(view, told)
        else:
            self._note(view, told)
        if told.kind in _ENDS:
            view.ending = told
            self._close(told.path)
        return view

    def _note_task(self, told: RecordedEvent) -> None:
        info = as_object(told.facts.get("info"))
        if told.kind == events.TaskStarted.__name__ and info.get("kind") in ("tool", "shell"):
            self.tasks.add(as_text(info.get("id")))
        elif told.kind == events.TaskEnded.__name__:
            self.tasks.discard(as_text(info.get("id")))

    def _begin(self, told: RecordedEvent) -> RunView:
        path = told.path
        above = self.open.get(path[:-1])
        is_beside_others = above is not None and (above.n_open > 0 or len(above.open_calls) > 1)
        if above is not None and path not in self.open:
            above.n_open += 1
        view = self.open[path] = RunView(path=path, since=self.now(), is_beside_others=is_beside_others)
        if not view.is_child:
            self.newest_root = view
        if told.kind == events.RunResumed.__name__:  # the runs below it may be told of first
            view.n_open = sum(each[:-1] == path for each in self.open)
            view.others += [each for each in self.roots if each.path[:-1] == path]
            self.roots = [each for each in self.roots if each.path[:-1] != path]
        if told.kind in _BEGINS:
            is_new = told.kind == events.RunStarted.__name__
            call = above.call(told.tool_use_id) if above is not None and is_new else None
            siblings = self.roots if above is None else above.others if call is None else call.runs
            if above is not None or self._keeps_roots:
                siblings.append(view)
        return view

    def _close(self, path: RunPath) -> None:
        ended = self.open[path]
        if ended.n_open:  # what works in the background goes on
            below = [each for each, view in self.open.items() if each[:-1] == path and view.mode != BACKGROUND]
            ended.stopped = [self.open[each] for each in below]
            for each in below:
                self._close(each)
        del self.open[path]
        above = self.open.get(path[:-1])
        if above is not None:
            above.n_open -= 1

    def _note(self, view: RunView, told: RecordedEvent) -> None:  # noqa: C901, PLR0912 - a table
        facts = told.facts
        match told.kind:
            case events.RunStarted.__name__:
                view.mode = as_text(facts.get("mode"))
                view.is_beside_others |= view.mode in _TOGETHER
                view.max_attempts = _whole_number(facts.get("max_attempts"))
            case events.RunResumed.__name__:
                view.max_attempts, view.n_prompts = 0, 1
            case events.MessageCommitted.__name__:
                view.n_prompts += as_object(facts.get("message")).get("role") == "user"
            case events.AttemptStarted.__name__ | events.ModelRestarted.__name__:
                view.words = ""
            case events.IterationStarted.__name__:
                view.iterations.append(IterationView(told.attempt or 0, told.iteration or 0))
                view.n_layers = 0 if told.iteration == 1 else view.n_layers
                view.words = ""
            case events.ThinkingDelta.__name__ | events.TextDelta.__name__:
                view.words = (view.words + as_text(facts.get("text")))[-_WORDS_KEPT:]
            case events.ModelResponded.__name__:
                view.words, used = "", usage_in(facts, "usage")
                self.n_tokens += 0 if used is None else used.total_tokens
                if view.iterations:
                    view.iterations[-1].usage = used
            case events.LayerStarted.__name__:
                view.n_layers += 1
            case _ if told.kind in ASKS or told.kind in ANSWERS:
                self._note_question(view, told, as_text(facts.get("id")))
            case _:
                pass

    def _note_question(self, view: RunView, told: RecordedEvent, id: str) -> None:
        if told.kind in ASKS:
            view.questions[id] = told
            if (call := view.call(told.tool_use_id)) is not None and told.kind == events.ApprovalRequested.__name__:
                call.asked = id
            return
        view.questions.pop(id, None)
        waited = next((call for call in view.open_calls if call.asked == id), None)
        view.latest = copy_with(told, tool_name=None if waited is None else waited.name)
        if waited is not None:
            waited.asked = ""

    def _note_call(self, view: RunView, told: RecordedEvent) -> None:
        facts, call = told.facts, view.call(told.tool_use_id)
        match told.kind:
            case events.ToolCalled.__name__:
                if not view.iterations:
                    view.iterations.append(IterationView(told.attempt or 0, told.iteration or 0))
                id = told.tool_use_id or ""
                view.iterations[-1].calls[id] = CallView(
                    id=id,
                    name=told.tool_name or "",
                    kind=as_text(facts.get("kind")),
                    input=as_object(facts.get("tool_input")),
                    since=self.now(),
                )
            case events.ToolProgress.__name__ if call is not None:
                call.say(as_text(facts.get("message")), facts.get("fraction"))
            case events.ToolFinished.__name__:
                is_error = facts.get("is_error") is True
                if call is not None:
                    call.is_error = is_error
                if facts.get("kind") == "output" and not is_error and not view.n_layers:
                    view.drafts = view.drafts[1], as_text(facts.get("tool_result"))
            case _:
                pass


_CALLS: Final = _kinds(events.ToolCalled, events.ToolProgress, events.ToolFinished)


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) else 0


def work_in(view: RunView) -> tuple[int, int, int]:
    """Return how many attempts, iterations and calls a run took by its end, or those that were heard of."""
    metadata = view.metadata
    if metadata is None:
        return view.work
    attempts, tools = [*map(as_object, as_list(metadata.get("attempts")))], as_object(metadata.get("tools"))
    stats = [each for each in map(as_object, tools.values()) if each.get("kind") in COUNTED]
    iterations = sum(_whole_number(each.get("iterations")) for each in attempts)
    return len(attempts), iterations, sum(_whole_number(each.get("calls")) for each in stats)

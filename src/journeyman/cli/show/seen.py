"""Records of the runs that are shown, one for each, made of its events.

Everything that shows a run reads these records. What an event changes in them is said here and nowhere else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from journeyman import events
from journeyman.cli.show.lines import arguments, describe_delegation, describe_list, duration
from journeyman.errors import count
from journeyman.result import Metadata, ToolKind
from journeyman.subagents.calls import NAME as SUBAGENT
from journeyman.toolbox.todo import NAME as TODO
from journeyman.types import JsonObject, RunPath, Usage

BACKGROUND: Final = "background"
"""The mode of a run that goes on after the run that started it."""

_BESIDE_RUNS: Final = (
    *(events.TaskStarted, events.TaskMessaged, events.TaskEnded),
    *(events.MailSent, events.MailDelivered, events.MailReturned, events.MemberChanged),
)
"""Events of background work and of teams. Their paths say whom they concern, not in which run they happened."""
_DESCRIBE: Final = {SUBAGENT: describe_delegation, TODO: describe_list}
"""By tool: how a call is told, if not by its arguments."""
_WORDS_KEPT: Final = 4_000
_WRITTEN_KEPT: Final = 5


@dataclass(slots=True, kw_only=True)
class SeenCall:
    """A tool call."""

    id: str
    name: str
    kind: ToolKind
    input: JsonObject
    given: str
    """What it was given, in short."""
    since: float
    """When it began, in seconds of the clock."""
    progress: str = ""
    """What it has said of its progress last."""
    written: deque[str] = field(default_factory=lambda: deque[str](maxlen=_WRITTEN_KEPT))
    """The last lines that it has said of its progress; of a command, what it writes."""
    asked: str = ""
    """The id of the question about it that waits for an answer; empty when none does."""
    is_error: bool | None = None
    """Whether it failed; None until it has ended."""
    runs: list[SeenRun] = field(default_factory=list["SeenRun"])
    """The runs that it started."""

    def say(self, message: str, fraction: float | None) -> None:
        """Take note of what it says of its progress."""
        self.progress = message if fraction is None else f"{fraction:.0%} {message}"
        if fraction is None:
            self.written.append(message)


@dataclass(slots=True)
class SeenIteration:
    """A model call and the tool calls that it asked for."""

    attempt: int
    number: int
    usage: Usage | None = None
    """What the model call used; None when the model never answered."""
    calls: dict[str, SeenCall] = field(default_factory=dict[str, SeenCall])
    """The calls by id."""


@dataclass(slots=True, kw_only=True)
class SeenRun:
    """A run, of an agent or of a sub-agent."""

    path: RunPath
    since: float
    """When it began, in seconds of the clock."""
    mode: str = ""
    """How it was started, if another run started it."""
    max_attempts: int = 1
    """0: not known, of a run that goes on from a journal."""
    doing: str = "getting ready"
    """What it is doing now."""
    words: str = ""
    """The last words of the response that the model is writing."""
    said: str = ""
    """The text of the last response."""
    n_prompts: int = 0
    """How many messages of the user were committed."""
    n_layers: int = 0
    """How many validation layers were started in this attempt; from the first on, the last call was handed in."""
    drafts: tuple[str, str] = ("", "")
    """The last preview but one, and the last."""
    iterations: list[SeenIteration] = field(default_factory=list[SeenIteration])
    others: list[SeenRun] = field(default_factory=list["SeenRun"])
    """The runs that it started in no call that is known."""
    n_open: int = 0
    """How many of the runs that it started have not ended."""
    ending: events.RunSucceeded | events.RunFailed | None = None
    """How it ended; None for a run that goes on, or that was stopped and has told of no end."""

    @property
    def is_child(self) -> bool:
        return len(self.path) > 1

    @property
    def metadata(self) -> Metadata | None:
        """The run's metadata; None until it has ended."""
        return None if self.ending is None else self.ending.metadata

    @property
    def calls(self) -> Iterator[SeenCall]:
        """All its calls."""
        for iteration in self.iterations:
            yield from iteration.calls.values()

    @property
    def open_calls(self) -> list[SeenCall]:
        """The calls under way."""
        return [call for call in self.calls if call.is_error is None]

    @property
    def below(self) -> Sequence[SeenRun]:
        """The runs that it started."""
        return [run for call in self.calls for run in call.runs] + self.others

    @property
    def work(self) -> tuple[int, int, int]:
        """The numbers of attempts, iterations and calls that it has begun, as far as was heard."""
        return len({each.attempt for each in self.iterations}), len(self.iterations), sum(1 for _ in self.calls)

    def call(self, id: str | None) -> SeenCall | None:
        """Return one of its calls; the latest are looked at first."""
        found = (iteration.calls[id] for iteration in reversed(self.iterations) if id in iteration.calls)
        return None if id is None else next(found, None)


class SeenRuns:
    """Follows the events, and keeps the records of the runs that have not ended."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.open: Final[dict[RunPath, SeenRun]] = {}
        """The runs that have not ended, in the order in which they began."""

    def follow(self, event: events.Event) -> SeenRun | None:
        """Take note of what happened. Return the record of its run; None when it happened beside the runs."""
        if isinstance(event, _BESIDE_RUNS):
            return None
        run = self.open.get(event.path)
        if run is None or isinstance(event, events.RunStarted | events.RunResumed):
            run = self._begin(event)
        self._note(run, event)
        if isinstance(event, events.RunSucceeded | events.RunFailed):
            run.ending = event
            self._close(event.path)
        return run

    def stopped_with(self, path: RunPath) -> list[RunPath]:
        """Name the runs that end when this run ends: those that it started, except for those in the background."""
        if not self.open[path].n_open:
            return []
        return [each for each, run in self.open.items() if each[:-1] == path and run.mode != BACKGROUND]

    def _begin(self, event: events.Event) -> SeenRun:
        path = event.path
        above = self.open.get(path[:-1])
        if above is not None and path not in self.open:
            above.n_open += 1
        run = self.open[path] = SeenRun(path=path, since=self._now())
        if isinstance(event, events.RunResumed):  # the runs below it may be told of first
            run.n_open = sum(each[:-1] == path for each in self.open)
        if above is not None and isinstance(event, events.RunStarted | events.RunResumed):
            call = above.call(event.tool_use_id) if isinstance(event, events.RunStarted) else None
            (above.others if call is None else call.runs).append(run)
        return run

    def _close(self, path: RunPath) -> None:
        for below in self.stopped_with(path):
            self._close(below)
        del self.open[path]
        above = self.open.get(path[:-1])
        if above is not None:
            above.n_open -= 1

    def _note(self, run: SeenRun, event: events.Event) -> None:  # noqa: C901, PLR0912 - a table
        match event:
            case events.RunStarted(mode=mode, max_attempts=max_attempts):
                run.mode, run.max_attempts = mode or "", max_attempts
                run.doing = "getting ready" if run.is_child else f"{event.agent} gets ready"
            case events.RunResumed():
                run.max_attempts, run.n_prompts, run.doing = 0, 1, "going on"
            case events.MessageCommitted(message=message):
                run.n_prompts += message.role == "user"
            case events.AttemptStarted() | events.ModelRestarted():
                run.words = ""
            case events.IterationStarted(attempt=attempt, iteration=number):
                run.iterations.append(SeenIteration(attempt, number))
                run.n_layers = 0 if number == 1 else run.n_layers
                run.words, run.doing = "", "the model is asked"
            case events.ThinkingDelta(text=text):
                run.words, run.doing = (run.words + text)[-_WORDS_KEPT:], "the model is thinking"
            case events.TextDelta(text=text):
                run.words, run.doing = (run.words + text)[-_WORDS_KEPT:], "the model is writing"
            case events.ToolInputDelta(tool_name=name):
                run.doing = f"the model is calling {name}"
            case events.OutputDelta(json=json):
                run.doing = f"the model is writing its output, {count(len(json), 'character')} so far"
            case events.ModelRetried(delay_s=delay_s):
                run.doing = f"waiting {duration(delay_s)} before the next request"
            case events.ModelResponded() | events.ToolCalled() | events.ToolProgress() | events.ToolFinished():
                self._note_calls(run, event)
            case events.LayerStarted(name=name):
                run.n_layers += 1
                run.doing = f"checking: {name}"
            case events.ApprovalRequested() | events.QuestionAsked():
                run.doing = "waiting for your answer"
                call = run.call(event.tool_use_id) if isinstance(event, events.ApprovalRequested) else None
                if call is not None:
                    call.asked = event.id
            case events.ApprovalAnswered(id=id) | events.QuestionAnswered(id=id):
                allowed = [call for call in run.open_calls if call.asked == id]
                run.doing = f"running {allowed[0].name}" if allowed else "going on"
                for call in allowed:
                    call.asked = ""
            case _:
                pass

    def _note_calls(
        self, run: SeenRun, event: events.ModelResponded | events.ToolCalled | events.ToolProgress | events.ToolFinished
    ) -> None:
        match event:
            case events.ModelResponded(text=text, usage=usage):
                run.words, run.said = "", text
                if run.iterations:
                    run.iterations[-1].usage = usage
            case events.ToolCalled():
                if not run.iterations:
                    run.iterations.append(SeenIteration(event.attempt, event.iteration))
                given = event.tool_input
                run.iterations[-1].calls[event.tool_use_id] = SeenCall(
                    id=event.tool_use_id,
                    name=event.tool_name,
                    kind=event.kind,
                    input=given,
                    given=_DESCRIBE.get(event.tool_name, arguments)(given),
                    since=self._now(),
                )
                run.doing = f"running {event.tool_name}"
            case events.ToolProgress(fraction=fraction, message=message):
                if (call := run.call(event.tool_use_id)) is not None:
                    call.say(message, fraction)
            case events.ToolFinished(tool_result=text, is_error=is_error):
                if (call := run.call(event.tool_use_id)) is not None:
                    call.is_error = is_error
                if event.kind == "output" and not is_error and not run.n_layers:
                    run.drafts = run.drafts[1], text

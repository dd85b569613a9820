"""What is going on right now, for the last rows of a terminal: the words as they come, the calls under way, the time.

Of a run's sub-agents each has a row. `Tail` follows the events and draws nothing. Its lines are asked for from another
thread; `screen.py` sees to it that the two do not meet. Imports `events`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from journeyman.cli.show.lines import Line, clock, count, duration, one_line, tokens_in
from journeyman.cli.show.tree import ASIDES, given_to
from journeyman.events import (
    ApprovalAnswered,
    ApprovalRequested,
    AttemptStarted,
    Event,
    IterationStarted,
    LayerStarted,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    QuestionAnswered,
    QuestionAsked,
    RunFailed,
    RunStarted,
    RunSucceeded,
    TaskEnded,
    TaskStarted,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    ToolInputDelta,
    ToolProgress,
)
from journeyman.types import RunPath

_WORDS_KEPT: Final = 4_000
_WORDS_SHOWN: Final = 200
"""How many of the last characters are shown: they fill three rows of a narrow terminal."""
_WORDS_OF_CHILD: Final = 60
_CALLS_SHOWN: Final = 5
_CHILDREN_SHOWN: Final = 6
_CALL: Final = 4
_DEEPER: Final = 2
_DEEPEST: Final = 12
"""Rows are not indented further than this, so that there is room for what they say."""
_ECHO: Final = 3
"""Columns that the last row leaves free: a terminal echoes ^C there, and a row that is full would break."""
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES: Final = "|/-\\"
_FRAMES_PER_SECOND: Final = 10


@dataclass(slots=True, kw_only=True)
class _Call:
    name: str
    given: str
    since: float
    progress: str = ""


@dataclass(slots=True, kw_only=True)
class _Run:
    """What one run is doing."""

    since: float
    doing: str = "getting ready"
    words: str = ""
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    """The calls under way, by id."""

    def hear(self, text: str, doing: str) -> None:
        self.words = (self.words + text)[-_WORDS_KEPT:]
        self.doing = doing

    def call(self, event: ToolCalled, now: float) -> None:
        if event.kind in ("tool", "unknown"):
            self.calls[event.tool_use_id] = _Call(name=event.tool_name, given=given_to(event), since=now)
        self.doing = f"running {event.tool_name}"

    def progress(self, event: ToolProgress) -> None:
        call = self.calls.get(event.tool_use_id)
        if call is not None:
            part = "" if event.fraction is None else f"{event.fraction:.0%} "
            call.progress = f"{part}{event.message}"

    def in_short(self) -> str:
        """Say in one row what it is doing: the call that it waits for, its last words, or the step that it is at."""
        for call in self.calls.values():
            more = f" (and {len(self.calls) - 1} more)" if len(self.calls) > 1 else ""
            return f"{call.name}{more} {call.progress or call.given}"
        words = one_line(self.words)
        if not words:
            return self.doing
        return words if len(words) <= _WORDS_OF_CHILD else f"… {words[-_WORDS_OF_CHILD:].partition(' ')[2]}"


class Tail:
    """Follows a run with all that it starts, and says what they are doing."""

    def __init__(self, now: Callable[[], float] = time.monotonic, *, shows_words: bool = True) -> None:
        self._now = now
        self._shows_words = shows_words
        """Whether the words of the run at the root are shown."""
        self._started = now()
        self._root = _Run(since=self._started)
        self._children: dict[RunPath, _Run] = {}
        """The sub-agents at work, in the order in which they began."""
        self._tasks: set[str] = set()
        """Background work that is not a sub-agent's."""
        self._tokens = 0
        self.is_stopping = False
        """Set when the user has asked to stop."""

    def follow(self, event: Event) -> None:
        """Take note of what happened."""
        match event:
            case TaskStarted(info=info):
                if info.kind in ("tool", "shell"):
                    self._tasks.add(info.id)
            case TaskEnded(info=info):
                self._tasks.discard(info.id)
            case RunSucceeded() | RunFailed():
                for path in [each for each in self._children if each[: len(event.path)] == event.path]:
                    del self._children[path]
            case _:
                if not isinstance(event, ASIDES):
                    self._note(self._run(event.path), event)

    def _run(self, path: RunPath) -> _Run:
        if len(path) < 2:
            return self._root
        run = self._children.get(path)
        if run is None:
            run = self._children[path] = _Run(since=self._now())
        return run

    def _note(self, run: _Run, event: Event) -> None:  # noqa: C901, PLR0912 - a table
        match event:
            case RunStarted():
                run.doing = f"{event.agent} gets ready" if run is self._root else "getting ready"
            case AttemptStarted() | ModelRestarted():
                run.words = ""
            case IterationStarted():
                run.words = ""
                run.doing = "the model is asked"
            case ThinkingDelta(text=text):
                run.hear(text, "the model is thinking")
            case TextDelta(text=text):
                run.hear(text, "the model is writing")
            case ToolInputDelta(tool_name=name):
                run.doing = f"the model is calling {name}"
            case OutputDelta(json=json):
                run.doing = f"the model is writing its output, {len(json):,} characters so far"
            case ModelRetried(delay_s=delay_s):
                run.doing = f"waiting {duration(delay_s)} before the next request"
            case ModelResponded(usage=usage):
                run.words = ""
                self._tokens += tokens_in(usage) + usage.output_tokens
            case ToolCalled():
                run.call(event, self._now())
            case ToolProgress():
                run.progress(event)
            case ToolFinished():
                run.calls.pop(event.tool_use_id, None)
            case LayerStarted(name=name):
                run.doing = f"checking: {name}"
            case ApprovalRequested() | QuestionAsked():
                run.doing = self._root.doing = "waiting for your answer"
            case ApprovalAnswered() | QuestionAnswered():
                run.doing = self._root.doing = "going on"
            case _:
                pass

    # -- the rows

    def lines(self, *, unicode: bool) -> Iterator[Line]:
        """Give the rows to show now."""
        frames = _FRAMES if unicode else _PLAIN_FRAMES
        frame = frames[int((self._now() - self._started) * _FRAMES_PER_SECOND) % len(frames)]
        words = one_line(self._root.words) if self._shows_words else ""
        if words:
            shown = words if len(words) <= _WORDS_SHOWN else f"… {words[-_WORDS_SHOWN:].partition(' ')[2]}"
            yield Line(indent=_CALL, text=shown, style="italic dim", rows=4)
        calls = list(self._root.calls.values())
        for call in calls[:_CALLS_SHOWN]:
            text = call.progress or call.given
            yield Line(indent=_CALL, text=f"{frame} {call.name} {text}", note=clock(self._now() - call.since))
        if len(calls) > _CALLS_SHOWN:
            yield Line(indent=_CALL + 2, text=f"and {len(calls) - _CALLS_SHOWN} more", style="dim")
        yield from self._rows_of_children(frame)
        yield self._status(frame)

    def _rows_of_children(self, frame: str) -> Iterator[Line]:
        for path in sorted(islice(self._children, _CHILDREN_SHOWN), key=self._place):
            child = self._children[path]
            indent = min(_CALL + _DEEPER * (len(path) - 1), _DEEPEST)
            took = clock(self._now() - child.since)
            yield Line(indent=indent, text=f"{frame} {path[-1]} · {child.in_short()}", style="cyan", note=took)
        if len(self._children) > _CHILDREN_SHOWN:
            more = len(self._children) - _CHILDREN_SHOWN
            yield Line(indent=_CALL + _DEEPER, text=f"and {more} more", style="dim")

    def _place(self, path: RunPath) -> tuple[tuple[float, str], ...]:
        """Return what to sort by, so that a run stands below the one that started it."""
        above = [path[:length] for length in range(2, len(path) + 1)]
        return tuple([(self._children[each].since if each in self._children else 0.0, each[-1]) for each in above])

    def _status(self, frame: str) -> Line:
        if self.is_stopping:
            return Line(text=f"{frame} stopping; press Ctrl-C again to quit at once", style="yellow", margin=_ECHO)
        doing = f"{count(len(self._children), 'sub-agent')} at work" if self._children else self._root.doing
        tasks = f" · {len(self._tasks)} in the background" if self._tasks else ""
        tokens = f" · {self._tokens:,} tokens" if self._tokens else ""
        text = f"{frame} {doing}{tasks}{tokens} · {clock(self._now() - self._started)}"
        return Line(text=text, style="cyan", margin=_ECHO)

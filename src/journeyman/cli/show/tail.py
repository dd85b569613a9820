"""Makes the last rows of a terminal, which show what goes on now: the words as they come, the open calls, the time.

Each sub-agent at work has a row. `Tail` draws nothing, and is not safe to use from two threads at once: those who ask
for its lines in another thread than that of the events use a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from journeyman import events
from journeyman.chat.questions import ask_user
from journeyman.cli.show.lines import Line, clock, duration, given_to, one_line, tokens_in
from journeyman.errors import count
from journeyman.events.json_form import told_of
from journeyman.run_view import CallView, RunView, RunViews
from journeyman.types import RunPath

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


_GETTING_READY: Final = "getting ready"


class Tail:
    """Follows a run with all that it starts, and says what they are doing."""

    def __init__(self, now: Callable[[], float] = time.monotonic, *, shows_words: bool = True, doing: str = "") -> None:
        """`doing` is what is done until the first event says it."""
        self._now = now
        self._shows_words = shows_words
        """Whether the words of the run at the root are shown."""
        self._started = now()
        self._seen = RunViews(now)
        self._root = RunView(path=(), since=self._started)
        self._doing: dict[RunPath, str] = {(): doing or _GETTING_READY}
        """The present work of each run, in words."""
        self._tasks: set[str] = set()
        """Background work that is not a sub-agent's."""
        self._tokens = 0
        self.is_stopping = False
        """True when the user has asked to stop."""

    def follow(self, event: events.Event) -> None:
        """Take note of what happened."""
        doing = _doing_of(event, self._seen.open.get(event.path))
        run = self._seen.take(told_of(event))
        if run is not None and not run.is_child:
            self._root = run
        if run is not None:
            known = self._doing.get(event.path, _GETTING_READY)
            self._doing[event.path] = known if doing is None else doing
            if run.ending is not None and run.is_child:
                del self._doing[event.path]
        match event:
            case events.TaskStarted(info=info) if info.kind in ("tool", "shell"):
                self._tasks.add(info.id)
            case events.TaskEnded(info=info):
                self._tasks.discard(info.id)
            case events.ModelResponded(usage=usage):
                self._tokens += tokens_in(usage) + usage.output_tokens
            case (
                events.ApprovalRequested()
                | events.QuestionAsked()
                | events.ApprovalAnswered()
                | events.QuestionAnswered()
            ) if run is not None:
                self._doing[self._root.path] = self._doing[run.path]  # whoever asks, it is the user who has to answer
            case _:
                pass

    def lines(self, *, unicode: bool) -> Iterator[Line]:
        """Give the rows to show now."""
        frames = _FRAMES if unicode else _PLAIN_FRAMES
        frame = frames[int((self._now() - self._started) * _FRAMES_PER_SECOND) % len(frames)]
        words = one_line(self._root.words) if self._shows_words else ""
        if words:
            yield Line(indent=_CALL, text=_last_words(words, _WORDS_SHOWN), style="italic dim", rows=4)
        calls = _shown_calls(self._root)
        for call in calls[:_CALLS_SHOWN]:
            text = given_to(call) if call.written else call.progress or given_to(call)
            yield Line(indent=_CALL, text=f"{frame} {call.name} {text}", note=clock(self._now() - call.since))
            for written in call.written:
                yield Line(indent=_CALL + _DEEPER, mark="bar", text=one_line(written), style="dim")
        if len(calls) > _CALLS_SHOWN:
            yield Line(indent=_CALL + 2, text=f"and {len(calls) - _CALLS_SHOWN} more", style="dim")
        children = {path: run for path, run in self._seen.open.items() if run.is_child}
        yield from self._rows_of_children(children, frame)
        yield self._status(len(children), frame)

    def _rows_of_children(self, children: dict[RunPath, RunView], frame: str) -> Iterator[Line]:
        def place(path: RunPath) -> list[tuple[float, str]]:
            """Return what to sort by, so that a run stands below the one that started it."""
            above = [path[:length] for length in range(2, len(path) + 1)]
            return [(children[each].since if each in children else 0.0, each[-1]) for each in above]

        for path in sorted(islice(children, _CHILDREN_SHOWN), key=place):
            indent = min(_CALL + _DEEPER * (len(path) - 1), _DEEPEST)
            took = clock(self._now() - children[path].since)
            text = f"{frame} {path[-1]} · {_in_short(children[path], self._doing.get(path, _GETTING_READY))}"
            yield Line(indent=indent, text=text, style="cyan", note=took)
        if len(children) > _CHILDREN_SHOWN:
            more = len(children) - _CHILDREN_SHOWN
            yield Line(indent=_CALL + _DEEPER, text=f"and {more} more", style="dim")

    def _status(self, n_children: int, frame: str) -> Line:
        if self.is_stopping:
            return Line(text=f"{frame} stopping; press Ctrl-C again to quit at once", style="yellow", margin=_ECHO)
        doing = f"{count(n_children, 'sub-agent')} at work" if n_children else self._doing[self._root.path]
        tasks = f" · {len(self._tasks)} in the background" if self._tasks else ""
        tokens = f" · {count(self._tokens, 'token')}" if self._tokens else ""
        text = f"{frame} {doing}{tasks}{tokens} · {clock(self._now() - self._started)}"
        return Line(text=text, style="cyan", margin=_ECHO)


_DOING: Final[dict[type[events.Event], str]] = {
    events.RunResumed: "going on",
    events.IterationStarted: "the model is asked",
    events.ThinkingDelta: "the model is thinking",
    events.TextDelta: "the model is writing",
    events.ApprovalRequested: "waiting for your answer",
    events.QuestionAsked: "waiting for your answer",
}


def _doing_of(event: events.Event, run: RunView | None) -> str | None:
    """Say what a run does from an event on; None: what it did before. `run` is as it was before the event."""
    doing = _DOING.get(type(event))
    match event:
        case events.RunStarted(agent=agent):
            doing = _GETTING_READY if len(event.path) > 1 else f"{agent} gets ready"
        case events.ToolInputDelta(tool_name=name):
            doing = f"the model is calling {name}"
        case events.OutputDelta(json=json):
            doing = f"the model is writing its output, {count(len(json), 'character')} so far"
        case events.ModelRetried(delay_s=delay_s):
            doing = f"waiting {duration(delay_s)} before the next request"
        case events.ToolCalled(tool_name=name):
            doing = f"running {name}"
        case events.LayerStarted(name=name):
            doing = f"checking: {name}"
        case events.ApprovalAnswered(id=id) | events.QuestionAnswered(id=id):
            allowed = [] if run is None else [call for call in run.open_calls if call.asked == id]
            doing = f"running {allowed[0].name}" if allowed else "going on"
        case _:
            pass
    return doing


def _shown_calls(run: RunView) -> list[CallView]:
    """Return the calls of tools that are under way; neither handing in is one, nor what waits for an answer."""
    calls = [call for call in run.open_calls if call.kind in ("tool", "unknown") and not call.asked]
    return [call for call in calls if call.name != ask_user.name]  # the question is shown


def _in_short(run: RunView, doing: str) -> str:
    """Say in one row what a run is doing: the call that it waits for, its last words, or the step that it is at."""
    calls = _shown_calls(run)
    if calls:
        more = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        return f"{calls[0].name}{more} {calls[0].progress or given_to(calls[0])}"
    words = one_line(run.words)
    return _last_words(words, _WORDS_OF_CHILD) if words else doing


def _last_words(words: str, longest: int) -> str:
    return words if len(words) <= longest else f"… {words[-longest:].partition(' ')[2]}"

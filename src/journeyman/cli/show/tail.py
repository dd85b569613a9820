"""Makes the last rows of a terminal, which show what goes on now: the words as they come, the open calls, the time.

Each sub-agent at work has a row. `Tail` draws nothing, and reads views that change: those who ask for its lines in
another thread than that of the events use a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from journeyman.chat.questions import ask_user
from journeyman.cli.show.lines import Line, clock, duration, given_to, one_line
from journeyman.definition.narrowing import as_number, as_text
from journeyman.errors import count
from journeyman.events.run_view import CallView, RunView, RunViews
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
    """Says what a run does, with all that it starts, from the time on at which this is made."""

    def __init__(self, views: RunViews, *, shows_words: bool = True, doing: str = "") -> None:
        """`doing` is what is done until the first run begins."""
        self._views = views
        self._shows_words = shows_words
        """Whether the words of the run at the root are shown."""
        self._doing = doing or _GETTING_READY
        self._started = views.now()
        self._root_before = views.newest_root
        self._n_tokens_before = views.n_tokens
        self.is_stopping = False
        """True when the user has asked to stop."""

    @property
    def _root(self) -> RunView | None:
        return None if self._views.newest_root is self._root_before else self._views.newest_root

    def lines(self, *, unicode: bool) -> Iterator[Line]:
        """Give the rows to show now."""
        frames, now, root = _FRAMES if unicode else _PLAIN_FRAMES, self._views.now(), self._root
        frame = frames[int((now - self._started) * _FRAMES_PER_SECOND) % len(frames)]
        words = one_line(root.words) if root is not None and self._shows_words else ""
        if words:
            yield Line(indent=_CALL, text=_last_words(words, _WORDS_SHOWN), style="italic dim", rows=4)
        calls = [] if root is None else _shown_calls(root)
        for call in calls[:_CALLS_SHOWN]:
            text = given_to(call) if call.written else call.progress or given_to(call)
            yield Line(indent=_CALL, text=f"{frame} {call.name} {text}", note=clock(now - call.since))
            for written in call.written:
                yield Line(indent=_CALL + _DEEPER, mark="bar", text=one_line(written), style="dim")
        if len(calls) > _CALLS_SHOWN:
            yield Line(indent=_CALL + 2, text=f"and {len(calls) - _CALLS_SHOWN} more", style="dim")
        children = {path: run for path, run in self._views.open.items() if run.is_child and run.since >= self._started}
        yield from self._rows_of_children(children, frame)
        yield self._status(len(children), frame)

    def _rows_of_children(self, children: dict[RunPath, RunView], frame: str) -> Iterator[Line]:
        def place(path: RunPath) -> list[tuple[float, str]]:
            """Return what to sort by, so that a run stands below the one that started it."""
            above = [path[:length] for length in range(2, len(path) + 1)]
            return [(children[each].since if each in children else 0.0, each[-1]) for each in above]

        for path in sorted(islice(children, _CHILDREN_SHOWN), key=place):
            indent = min(_CALL + _DEEPER * (len(path) - 1), _DEEPEST)
            took = clock(self._views.now() - children[path].since)
            text = f"{frame} {path[-1]} · {_in_short(children[path])}"
            yield Line(indent=indent, text=text, style="cyan", note=took)
        if len(children) > _CHILDREN_SHOWN:
            more = len(children) - _CHILDREN_SHOWN
            yield Line(indent=_CALL + _DEEPER, text=f"and {more} more", style="dim")

    def _status(self, n_children: int, frame: str) -> Line:
        if self.is_stopping:
            return Line(text=f"{frame} stopping; press Ctrl-C again to quit at once", style="yellow", margin=_ECHO)
        doing = self._doing if self._root is None else _doing_of(self._root)
        doing = f"{count(n_children, 'sub-agent')} at work" if n_children else doing
        tasks = f" · {len(self._views.tasks)} in the background" if self._views.tasks else ""
        n_tokens = self._views.n_tokens - self._n_tokens_before
        tokens = f" · {count(n_tokens, 'token')}" if n_tokens else ""
        text = f"{frame} {doing}{tasks}{tokens} · {clock(self._views.now() - self._started)}"
        return Line(text=text, style="cyan", margin=_ECHO)


_DOING: Final = {
    "RunStarted": "{agent} gets ready",
    "IterationStarted": "the model is asked",
    "ThinkingDelta": "the model is thinking",
    "TextDelta": "the model is writing",
    "ToolInputDelta": "the model is calling {tool}",
    "LayerStarted": "checking: {name}",
    "ApprovalRequested": "waiting for your answer",
    "QuestionAsked": "waiting for your answer",
}
"""By kind of the latest event: the work of its run, in words."""


def _doing_of(run: RunView) -> str:
    """Say what a run does."""
    latest = run.latest
    if latest is None or (latest.kind == "RunStarted" and run.is_child):
        return _GETTING_READY
    facts, tool = latest.facts, latest.tool_name
    match latest.kind:
        case "OutputDelta":
            return f"the model is writing its output, {count(len(as_text(facts.get('json'))), 'character')} so far"
        case "ModelRetried":
            return f"waiting {duration(as_number(facts.get('delay_s')))} before the next request"
        case kind if kind in _DOING:
            return _DOING[kind].format_map({**facts, "tool": tool})
        case _:  # a call, an answer, or a run that goes on
            return f"running {tool}" if tool else "going on"


def _shown_calls(run: RunView) -> list[CallView]:
    """Return the calls of tools that are under way; neither handing in is one, nor what waits for an answer."""
    calls = [call for call in run.open_calls if call.kind in ("tool", "unknown") and not call.asked]
    return [call for call in calls if call.name != ask_user.name]  # the question is shown


def _in_short(run: RunView) -> str:
    """Say in one row what a run is doing: the call that it waits for, its last words, or the step that it is at."""
    calls = _shown_calls(run)
    if calls:
        more = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        return f"{calls[0].name}{more} {calls[0].progress or given_to(calls[0])}"
    words = one_line(run.words)
    return _last_words(words, _WORDS_OF_CHILD) if words else _doing_of(run)


def _last_words(words: str, longest: int) -> str:
    return words if len(words) <= longest else f"… {words[-longest:].partition(' ')[2]}"

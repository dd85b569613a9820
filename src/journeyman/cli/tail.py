"""What is going on right now, for the last rows of a terminal: the words as they come, the calls under way, the time.

`Tail` follows the events and draws nothing. Its lines are asked for from another thread; `screen.py` sees to it that
the two do not meet. Imports `events`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from journeyman.cli.lines import Line
from journeyman.cli.words import arguments, clock, duration, one_line, tokens_in
from journeyman.events import (
    AttemptStarted,
    Event,
    IterationStarted,
    LayerStarted,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    Path,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    ToolInputDelta,
    ToolProgress,
)

_WORDS_KEPT: Final = 4_000
_WORDS_SHOWN: Final = 200
"""How many of the last characters are shown: they fill three rows of a narrow terminal."""
_CALLS_SHOWN: Final = 5
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


class Tail:
    """Follows a run, and says what it is doing."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._doing = "getting ready"
        self._words = ""
        self._calls: dict[tuple[Path, str], _Call] = {}
        self._tokens = 0
        self.is_stopping = False
        """Set when the user has asked to stop."""

    def follow(self, event: Event) -> None:  # noqa: C901, PLR0912 - a table
        """Take note of what happened."""
        match event:
            case RunStarted():
                self._doing = f"{event.agent} gets ready"
            case AttemptStarted() | ModelRestarted():
                self._words = ""
            case IterationStarted():
                self._words = ""
                self._doing = "the model is asked"
            case ThinkingDelta(text=text):
                self._hear(text, "the model is thinking")
            case TextDelta(text=text):
                self._hear(text, "the model is writing")
            case ToolInputDelta(tool_name=name):
                self._doing = f"the model is calling {name}"
            case OutputDelta(json=json):
                self._doing = f"the model is writing its output, {len(json):,} characters so far"
            case ModelRetried(delay_s=delay_s):
                self._doing = f"waiting {duration(delay_s)} before the next request"
            case ModelResponded(usage=usage):
                self._words = ""
                self._tokens += tokens_in(usage) + usage.output_tokens
            case ToolCalled():
                self._call(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                self._calls.pop((event.path, event.tool_use_id), None)
            case LayerStarted(name=name):
                self._doing = f"checking: {name}"
            case _:
                pass

    def _hear(self, text: str, doing: str) -> None:
        self._words = (self._words + text)[-_WORDS_KEPT:]
        self._doing = doing

    def _call(self, event: ToolCalled) -> None:
        if event.kind in ("tool", "unknown"):
            call = _Call(name=event.tool_name, given=arguments(event.tool_input), since=self._now())
            self._calls[event.path, event.tool_use_id] = call
        self._doing = f"running {event.tool_name}"

    def _progress(self, event: ToolProgress) -> None:
        call = self._calls.get((event.path, event.tool_use_id))
        if call is not None:
            part = "" if event.fraction is None else f"{event.fraction:.0%} "
            call.progress = f"{part}{event.message}"

    def lines(self, *, unicode: bool) -> Iterator[Line]:
        """Give the rows to show now."""
        frames = _FRAMES if unicode else _PLAIN_FRAMES
        frame = frames[int((self._now() - self._started) * _FRAMES_PER_SECOND) % len(frames)]
        words = one_line(self._words)
        if words:
            shown = words if len(words) <= _WORDS_SHOWN else f"… {words[-_WORDS_SHOWN:].partition(' ')[2]}"
            yield Line(indent=4, text=shown, style="italic dim", rows=4)
        calls = list(self._calls.values())
        for call in calls[:_CALLS_SHOWN]:
            text = call.progress or call.given
            yield Line(indent=4, text=f"{frame} {call.name} {text}", note=clock(self._now() - call.since))
        if len(calls) > _CALLS_SHOWN:
            yield Line(indent=6, text=f"and {len(calls) - _CALLS_SHOWN} more", style="dim")
        yield self._status(frame)

    def _status(self, frame: str) -> Line:
        if self.is_stopping:
            return Line(text=f"{frame} stopping; press Ctrl-C again to quit at once", style="yellow", margin=_ECHO)
        tokens = f" · {self._tokens:,} tokens" if self._tokens else ""
        text = f"{frame} {self._doing}{tokens} · {clock(self._now() - self._started)}"
        return Line(text=text, style="cyan", margin=_ECHO)

"""From the events of a chat to the lines that stay: what was said, calls and their ends, what each turn used.

The model's words come as it writes them, line by line. Calls, drafts, verdicts and sub-agents are told as in the tree
of a single run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from journeyman import events
from journeyman.agent import Agent
from journeyman.cli.run import output_text
from journeyman.cli.show.lines import EMPTY, Line, arguments, duration, usage_sentence
from journeyman.cli.show.tree import Tree
from journeyman.endings import ErrorCode
from journeyman.errors import count
from journeyman.output import TEXT
from journeyman.result import Failure, Metadata
from journeyman.types import NOTHING_USED, Message, ToolResult, ToolUse, Usage

_SHOWN_HERE: Final = (
    *(events.RunStarted, events.MessageCommitted, events.IterationStarted, events.TextDelta, events.ModelResponded),
    *(events.ModelRestarted, events.RunSucceeded, events.RunFailed, events.TurnEnded),
)
"""Events of the chat's own runs that are not shown as in the tree of a single run."""

_OUTDENTED: Final = 2
_LONGEST_PIECE: Final = 4_000
_MANY_ROWS: Final = 1_000
_ERROR_ROWS: Final = 20
_PROMPT_ROWS: Final = 100
_MESSAGES_RECALLED: Final = 12


class ChatTree:
    """Makes lines of events, and knows the line that the model is writing."""

    def __init__(self, agent: Agent[Any, Any, Any], *, shows_answers: bool = True) -> None:
        """Without `shows_answers`, the model's words are shown where calls follow, and when they are complete."""
        self._agent = agent
        self._shows_answers = shows_answers
        self._tree = Tree()
        self._has_words = False
        """True when words of this response were shown as they came."""
        self.words = ""
        """What the model has written of a line so far."""
        self._usage: Usage | None = NOTHING_USED
        """What this turn's runs have used so far; None when they do not count."""
        self._seconds = 0.0

    def lines(self, event: events.Event) -> list[Line]:
        """Return the lines that `event` adds."""
        lines = self._tree.lines(event)
        if len(event.path) > 1:
            return lines
        if isinstance(event, _SHOWN_HERE):
            return list(self._own(event))
        return [replace(line, indent=max(0, line.indent - _OUTDENTED)) for line in lines]

    def _own(self, event: events.Event) -> Iterator[Line]:
        match event:
            case events.IterationStarted():
                self._has_words, self.words = False, ""
            case events.TextDelta(text=text) if self._shows_answers:
                yield from self._written(text)
            case events.ModelRestarted():
                yield from self._broken_off()
            case events.ModelResponded(text=text, stop_reason=reason):
                if self._shows_answers or reason == "tool_use":
                    yield from spoken(self.words if self._has_words else text)
                self._has_words, self.words = False, ""
            case events.RunSucceeded(output=output, metadata=metadata):
                self._count(metadata)
                if self._shows_answers and self._agent.output is not TEXT:
                    yield from spoken(output_text(self._agent, output))
            case events.RunFailed(metadata=metadata):
                self._count(metadata)
                yield from self._broken_off()
            case events.TurnEnded(result=result):
                yield from self._ended(result)
            case _:
                pass

    def _written(self, text: str) -> Iterator[Line]:
        """Show the lines that have become whole; keep the rest."""
        self._has_words = True
        *whole, self.words = (self.words + text).split("\n")
        for each in whole:
            yield from spoken(each, keeps_blank=True)
        if len(self.words) > _LONGEST_PIECE:
            piece, self.words = _cut(self.words)
            yield from spoken(piece)

    def _broken_off(self) -> Iterator[Line]:
        if self._has_words:
            yield from spoken(self.words)
            yield Line(text="(broken off)", style="dim")
        self._has_words, self.words = False, ""

    def _count(self, metadata: Metadata) -> None:
        if self._usage is not None:
            self._usage = None if metadata.usage is None else self._usage + metadata.usage
        self._seconds += metadata.latency_s

    def _ended(self, result: object) -> Iterator[Line]:
        if isinstance(result, Failure):
            if result.code is ErrorCode.EXECUTION_CANCELLED:
                yield Line(mark="stopped", name="stopped")
            else:
                text = f"{result.error.message} {result.error.hint}".strip()
                yield Line(mark="failed", name=str(result.code), text=text, rows=_ERROR_ROWS)
        elif result is None:
            yield Line(mark="stopped", name="cancelled")
        text = f"{usage_sentence(self._usage)} · {duration(self._seconds)}"
        yield Line(indent=2, text=text, style="dim", rows=2)
        yield EMPTY
        self._usage, self._seconds = NOTHING_USED, 0.0


def spoken(text: str, *, keeps_blank: bool = False) -> Iterator[Line]:
    """Give the lines of what the model says."""
    if not text.strip() and not keeps_blank:
        return
    for line in text.split("\n"):
        while len(line) > _LONGEST_PIECE:
            piece, line = _cut(line)
            yield Line(text=piece, rows=_MANY_ROWS)
        yield Line(text=line.rstrip(), rows=_MANY_ROWS)


def _cut(line: str) -> tuple[str, str]:
    """Cut a long line in two, between words where there are any."""
    at = line.rfind(" ", 0, _LONGEST_PIECE) + 1 or _LONGEST_PIECE
    return line[:at], line[at:]


def said(text: str, *, note: str = "") -> Line:
    """Return the line of what the user says."""
    return Line(name=">", text=text.strip(), note=note, rows=_PROMPT_ROWS)


# -- a conversation that goes on --------------------------------------------------------------------------------------


def recalled(messages: Sequence[Message]) -> Iterator[Line]:
    """Give the lines of a conversation's end."""
    earlier = len(messages) - _MESSAGES_RECALLED
    if earlier > 0:
        yield Line(text=f"… {count(earlier, 'earlier message')}", style="dim")
    results = {
        block.tool_use_id: block for message in messages for block in message.content if isinstance(block, ToolResult)
    }
    for message in messages[-_MESSAGES_RECALLED:]:
        if message.role == "user":
            if message.text.strip():
                yield said(message.text)
            continue
        yield from spoken(message.text)
        for block in message.content:
            if isinstance(block, ToolUse):
                result = results.get(block.id)
                is_error = result is not None and result.is_error
                text = arguments(block.input)
                yield Line(indent=2, mark="failed" if is_error else "done", name=block.name, text=text, style="dim")
    yield EMPTY

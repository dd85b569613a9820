"""From the events of a chat to the lines that stay: what was said, calls and their ends, what each turn used.

The model's words come as it writes them, block by block of Markdown. Calls, drafts, verdicts and sub-agents are told as
in the tree of a single run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from journeyman import events
from journeyman.chat.turn import ABORTED
from journeyman.cli.options import AnyAgent
from journeyman.cli.run import output_text
from journeyman.cli.show.lines import EMPTY, Line, arguments, duration, ran, row_pieces, usage_sentence
from journeyman.cli.show.markdown import Block, Blocks, blocks
from journeyman.cli.show.tree import Tree
from journeyman.definition.problems import join_sentences
from journeyman.endings import ErrorCode
from journeyman.errors import count
from journeyman.events.run_view import RunView
from journeyman.loop.finish import CUT
from journeyman.result import Failure
from journeyman.types import Message, Text, ToolResult, Usage

_SHOWN_HERE: Final = (
    *(events.RunStarted, events.MessageCommitted, events.IterationStarted, events.TextDelta, events.ModelResponded),
    *(events.ModelRestarted, events.RunSucceeded, events.RunFailed, events.TurnEnded),
)
"""Events of the chat's own runs that are not shown as in the tree of a single run."""

_OUTDENTED: Final = 2
_MANY_ROWS: Final = 1_000
_ERROR_ROWS: Final = 20
_FOLDED_ROWS: Final = 4
_PROMPT_ROWS: Final = 12
_LAST_ROWS: Final = 4
"""How many of them are the last ones: before and after a paste stand the user's own words."""
_MESSAGES_RECALLED: Final = 12


class ChatTree:
    """Makes lines of events, and knows the line that the model is writing."""

    def __init__(self, agent: AnyAgent, *, shows_answers: bool = True) -> None:
        """Without `shows_answers`, the model's words are shown where calls follow, and when they are complete."""
        self._agent = agent
        self._takes_text = agent.plan.output is None or agent.plan.outputs.takes_text
        self._shows_answers = shows_answers
        self._tree = Tree()
        self._blocks = Blocks()
        """What the model is writing, when words of this response were shown as they came."""
        self._has_words = False
        self._seconds = 0.0
        """The seconds that this turn's runs took so far."""

    @property
    def growing(self) -> list[Line]:
        """The lines of the block that the model is writing."""
        rest = self._blocks.rest()
        return [] if rest is None else [*model_lines([rest], is_first=not self._has_words)]

    def lines(self, event: events.Event, run: RunView | None) -> list[Line]:
        """Return the lines that `event` adds. `run` is the view of its run, with the event in it."""
        lines = self._tree.lines(event, run)
        if len(event.path) > 1:
            return lines
        if isinstance(event, _SHOWN_HERE):
            return list(self._own(event))
        return [replace(line, indent=max(0, line.indent - _OUTDENTED)) for line in lines]

    def _own(self, event: events.Event) -> Iterator[Line]:
        match event:
            case events.IterationStarted() | events.TextDelta() | events.ModelRestarted() | events.ModelResponded():
                yield from self._words(event)
            case events.RunSucceeded(output=output, metadata=metadata):
                self._seconds += metadata.latency_s
                if self._shows_answers and not (self._takes_text and isinstance(output, str)):
                    rows = output_text(self._agent, output).split("\n")  # it is no text of the model's
                    yield from (Line(text=piece, rows=_MANY_ROWS) for piece in row_pieces(rows))
            case events.RunFailed(metadata=metadata):
                self._seconds += metadata.latency_s
                yield from self._break_off()
            case events.TurnEnded(result=result, usage=usage):
                yield from self._end_lines(result, usage if self._agent.track_tokens else None)
            case _:
                pass

    def _words(self, event: events.Event) -> Iterator[Line]:
        match event:
            case events.TextDelta(text=text):
                for block in self._blocks.add(text) if self._shows_answers else ():
                    yield from model_lines([block], is_first=not self._has_words)
                    self._has_words = True
                return
            case events.ModelRestarted():
                yield from self._break_off()
            case events.ModelResponded(text=text, stop_reason=reason) if self._shows_answers or reason == "tool_use":
                is_here = self._has_words or self._blocks.rest() is not None
                said = self._blocks.finish() if is_here else blocks(text)
                yield from model_lines(said, is_first=not self._has_words)
            case _:
                pass
        self._blocks, self._has_words = Blocks(), False

    def _break_off(self) -> Iterator[Line]:
        if self._has_words or self._blocks.rest() is not None:
            yield from model_lines(self._blocks.finish(), is_first=not self._has_words)
            yield Line(text="(broken off)", style="dim")
        self._blocks, self._has_words = Blocks(), False

    def _end_lines(self, result: object, usage: Usage | None) -> Iterator[Line]:
        if isinstance(result, Failure):
            if result.code is ErrorCode.EXECUTION_CANCELLED:
                yield Line(mark="stopped", name="stopped")
            else:
                text = join_sentences(result.error.message, result.error.hint)
                yield Line(mark="failed", name=str(result.code), text=text, rows=_ERROR_ROWS)
        elif result is None:
            yield Line(mark="stopped", name="cancelled")
        text = f"{usage_sentence(usage)} · {duration(self._seconds)}"
        yield Line(indent=2, text=text, style="dim", rows=2)
        yield EMPTY
        self._seconds = 0.0


def model_lines(blocks: Iterable[Block], *, is_first: bool = True) -> Iterator[Line]:
    """Give the lines of what the model says, with an empty one before each block but the first."""
    for block in blocks:
        if not is_first and not block.goes_on:
            yield EMPTY
        is_first = False
        yield Line(text=block.text, rows=_MANY_ROWS, is_markdown=True)


def fold_rows(rows: Sequence[str]) -> Iterator[Line]:
    """Give the last of the rows that a command has written, and say how many are above."""
    if len(rows) > _FOLDED_ROWS:
        yield Line(indent=4, mark="bar", text=f"… {count(len(rows) - _FOLDED_ROWS, 'more line')}: /output", style="dim")
    for row in rows[-_FOLDED_ROWS:]:
        yield Line(indent=4, mark="bar", text=row, style="dim", rows=2)


def user_line(text: str, *, note: str = "") -> Line:
    """Return the line of what the user says; of what is long, as a paste is, the beginning and the end."""
    rows = text.strip().split("\n")
    if len(rows) > _PROMPT_ROWS:
        hidden = len(rows) - _PROMPT_ROWS + 2
        rows = [*rows[: -hidden - _LAST_ROWS], f"… {count(hidden, 'more line')} …", *rows[-_LAST_ROWS:]]
    return Line(name=">", text="\n".join(rows), note=note, rows=_MANY_ROWS)


def recall_lines(messages: Sequence[Message]) -> Iterator[Line]:
    """Give the lines of a conversation's end."""
    earlier = len(messages) - _MESSAGES_RECALLED
    if earlier > 0:
        yield Line(text=f"… {count(earlier, 'earlier message')}", style="dim")
    blocks_of_all = [block for message in messages for block in message.content]
    results = {block.tool_use_id: block for block in blocks_of_all if isinstance(block, ToolResult)}
    for number, message in enumerate(messages[-_MESSAGES_RECALLED:]):
        if message.role == "user":
            if number and message.text.strip():
                yield EMPTY
            for block in message.content:
                yield from _recall_text(block.text) if isinstance(block, Text) else ()
            continue
        yield from model_lines(blocks(message.text))
        for use in message.tool_uses:
            result = results.get(use.id, ToolResult(""))
            text, mark = ran(arguments(use.input), result.text), "failed" if result.is_error else "done"
            yield Line(indent=2, mark=mark, name=use.name, text=text, style="dim")
            if result.is_error:
                yield Line(indent=4, mark="bar", text=result.text, style="dim", rows=_FOLDED_ROWS)
    yield EMPTY


def _recall_text(text: str) -> Iterator[Line]:
    """Give the lines of what the user said; or of what the model was told after the user had stopped it."""
    note = text.removeprefix(ABORTED).strip()
    if note.startswith(CUT):
        yield from model_lines(blocks(note.removeprefix(CUT).strip()))
        yield Line(text="(broken off)", style="dim")
        note = ""
    if text.startswith(ABORTED):
        yield Line(mark="stopped", name="stopped")
        yield EMPTY
    if note:
        yield user_line(note)

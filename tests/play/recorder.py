"""What a run told, in few words; and whether its events are balanced.

`Recorder` is a listener that keeps what it got. `names`, `calls` and `transcript` say it so that an expectation is one
literal. `check_balance` is the strict check that every test of events should make.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, TypeVar

import pytest

from journeyman import events as kinds
from journeyman.types import Block, Message, Text, ToolResult, ToolUse
from tests.support.invariants_events import has_ended, order_faults
from tests.support.stage_wire import neutral

E = TypeVar("E")

Delta: TypeAlias = kinds.TextDelta | kinds.ThinkingDelta | kinds.ToolInputDelta | kinds.OutputDelta


@dataclass(slots=True, eq=False)
class Recorder:
    """A listener that keeps every event."""

    events: list[kinds.Event] = field(default_factory=list[kinds.Event])

    def __call__(self, event: kinds.Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def recorder() -> Recorder:
    """Give a listener that keeps every event."""
    return Recorder()


def names(events: Iterable[kinds.Event], *, deltas: bool = False) -> list[str]:
    """Return the names of the events' classes. Deltas, cut anywhere, only if asked for, and then neighbours once."""
    found: list[str] = []
    for event in events:
        is_delta = isinstance(event, Delta)
        name = type(event).__name__
        if not is_delta or (deltas and found[-1:] != [name]):
            found.append(name)
    return found


def calls(events: Iterable[kinds.Event]) -> list[str]:
    """Return begin and end of every call: `look#a?`, then `look#a: found`, or `look#a! Error: …`."""
    return [_call_line(event) for event in events if isinstance(event, kinds.ToolCalled | kinds.ToolFinished)]


def _call_line(event: kinds.ToolCalled | kinds.ToolFinished) -> str:
    who = f"{event.tool_name}#{event.tool_use_id}"
    if isinstance(event, kinds.ToolCalled):
        return f"{who}?"
    cached = " (cached)" if event.cached else ""
    return f"{who}{'!' if event.is_error else ':'} {event.tool_result}{cached}"


def transcript(messages: Iterable[Message]) -> list[tuple[str, ...]]:
    """Return every message as its role and its blocks, neutral: a text as it is, a call as `look({"n":1})#a`, a result
    as `#a: found` or `#a! Error: …`, anything else as the name of its class."""
    return [(message.role, *(_block_line(block) for block in message.content)) for message in neutral(messages)]


def _block_line(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case ToolUse():
            return f"{block.name}({block.input_json})#{block.id}"
        case ToolResult():
            return f"#{block.tool_use_id}{'!' if block.is_error else ':'} {block.text}"
        case _:
            return type(block).__name__


def check_balance(events: Sequence[kinds.Event]) -> None:
    """Fail if the events of a run that returned break a promise of order: see `invariants_events.order_faults`.

    One `RunStarted` first, one final event last, all on one path; attempts and layers open and close in turn; deltas
    only while the model answers; every announced call finishes once, and no other does; messages alternate.
    """
    faults = [*order_faults(events)]
    if not has_ended(events) or {event.path for event in events} != {events[0].path}:
        faults.append("there is no final event, or another path")
    # The user's last message may grow: the one that was told last under its index is the whole.
    said = {event.index: event.message for event in events if isinstance(event, kinds.MessageCommitted)}
    faults += [
        f"two messages of the {after.role} in a row"
        for before, after in pairwise(said.values())
        if before.role == after.role and not after.continues
    ]
    assert not faults, "\n".join(faults)

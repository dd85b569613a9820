"""The records of a session: what they hold, and how they add up to a conversation.

A session's records are numbered from 1, and each carries a checksum over all that it says: so one that is damaged,
missing or out of place is found. The conversation ends before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from journeyman.errors import StoreError
from journeyman.inbox.inbox import Queue
from journeyman.session import Snapshot, Step, TurnStart, Waiting
from journeyman.store.codec import FORMAT, checksum, pack, unpack
from journeyman.tools.results import encodable
from journeyman.types import NOTHING_USED, Message, Text, ToolResult, Usage, UserContent, adapter_of
from journeyman.window import SentView

Kind: TypeAlias = Literal["message", "cut", "staged", "waiting", "gone", "used", "title", "turns", "view"]
"""`message`: the message at `position`, which is now the last of the conversation. `cut`: the conversation ends before
`position`. `staged`: what the next message will hold. `waiting`, `gone`: texts in the queues. `used`: the usage and the
number of runs so far. `title`: the name of the session in lists. `turns`: where the turns from number `position` on
begin; those that were known from there on are undone. `view`: a list of what is sent in place of the first `position`
messages; an empty one: they are sent themselves."""

_TITLE_CHARS: Final = 80


class SessionRecord(NamedTuple):
    """One line of a session's log."""

    session: str
    n: int
    """Its number in the session, from 1."""
    kind: str
    position: int
    at: float
    """Seconds since 1970."""
    f: int
    """The format of the record."""
    body: bytes
    """The JSON of its line, packed."""
    crc: int
    """The checksum of all others."""


RECORD: Final = ", ".join(SessionRecord._fields)
"""The columns of a record in every table."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record that is yet to be written."""

    kind: Kind
    position: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Queued:
    """A text that waits in a queue, as it is stored."""

    queue: Queue
    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """The use of all turns of a session."""

    usage: Usage
    runs: int


def seal_records(session: str, lines: Sequence[NewRecord], *, after: int, at: float) -> list[SessionRecord]:
    """Return the records that are to be written behind the one with the number `after`."""
    sealed = list[SessionRecord]()
    for n, line in enumerate(lines, after + 1):
        body = pack(line.body)
        facts = (session, n, line.kind, line.position, at, FORMAT)
        sealed.append(SessionRecord(*facts, body, checksum(facts, body)))
    return sealed


def sound_records(records: Iterable[SessionRecord]) -> Iterator[SessionRecord]:
    """Give the records of a session up to the first that is missing, or not as it was written."""
    for n, record in enumerate(records, 1):
        is_next = record.n == n and type(record.body) is bytes  # SQLite keeps any type in any column
        if not is_next or record.crc != checksum(record[:-2], record.body):
            return
        yield record


def lines_of_step(step: Step) -> Iterator[NewRecord]:
    """Give what is to be written for a step."""
    if step.messages is not None:
        if not step.messages:
            yield NewRecord("cut", step.position, b"")
        if step.position == 0 and step.messages:
            yield NewRecord("title", 0, adapter_of(str).dump_json(title_of(step.messages[0])))
        yield from lines_of_messages(step.messages, step.position)
    if step.staged:
        staged = Message("user", tuple(step.staged))
        yield NewRecord("staged", step.position, adapter_of(Message).dump_json(staged, exclude_none=True))
    if step.gone:
        yield NewRecord("gone", step.position, adapter_of(list[int]).dump_json(list(step.gone)))
    if step.usage is not None:
        used = Used(step.usage, step.n_runs)
        yield NewRecord(
            "used", step.position, adapter_of(Used).dump_json(used, exclude_none=True, exclude_defaults=True)
        )
    if step.turns is not None:
        yield NewRecord("turns", step.n_turns, adapter_of(list[TurnStart]).dump_json([*step.turns]))
    if step.has_view:
        views = [] if step.view is None else [step.view]
        position = 0 if step.view is None else step.view.position
        yield NewRecord("view", position, adapter_of(list[SentView]).dump_json(views, exclude_none=True))


def lines_of_messages(messages: Sequence[Message], position: int = 0) -> Iterator[NewRecord]:
    """Give what is to be written for messages, of which the first stands at a position."""
    for at, message in enumerate(messages, position):
        yield NewRecord("message", at, adapter_of(Message).dump_json(message, exclude_none=True))


def queued(text: str, queue: Queue) -> NewRecord:
    """Return what is to be written for a text that waits."""
    return NewRecord("waiting", 0, adapter_of(Queued).dump_json(Queued(queue, encodable(text))))


def title_of(message: Message) -> str:
    """Return the beginning of what a message says, in one line."""
    words = " ".join(" ".join(block.text for block in message.content if isinstance(block, Text)).split())
    return words if len(words) <= _TITLE_CHARS else f"{words[: _TITLE_CHARS - 1].rstrip()}…"


class Unreadable(Exception):
    """A record is as it was written, but its content is no record. `n` is its number."""

    def __init__(self, n: int) -> None:
        super().__init__(f"record {n} cannot be read")
        self.n = n


@dataclass(slots=True)
class _Sum:
    """The state of a session after its records so far: the conversation, and what waits to be said in it."""

    bodies: list[bytes] = field(default_factory=list[bytes])
    numbers: list[int] = field(default_factory=list[int])
    """The number of the record of each body."""
    staged: list[UserContent | ToolResult] = field(default_factory=list[UserContent | ToolResult])
    waiting: dict[int, Queued] = field(default_factory=dict[int, Queued])
    used: Used = field(default_factory=lambda: Used(NOTHING_USED, 0))
    turns: list[TurnStart] = field(default_factory=list[TurnStart])
    view: list[SentView] = field(default_factory=list[SentView])

    def add(self, record: SessionRecord) -> None:
        body = unpack(record.body)
        match record.kind:
            case "message":
                self._cut(record.position)
                self.bodies.append(body)
                self.numbers.append(record.n)
            case "cut":
                self._cut(record.position)
            case "staged":
                content = adapter_of(Message).validate_json(body).content
                self.staged += [block for block in content if isinstance(block, UserContent | ToolResult)]
            case "waiting":
                self.waiting[record.n] = adapter_of(Queued).validate_json(body)
            case "gone":
                for number in adapter_of(list[int]).validate_json(body):
                    self.waiting.pop(number, None)
            case "used":
                self.used = adapter_of(Used).validate_json(body)
            case "turns":
                self.turns[record.position :] = adapter_of(list[TurnStart]).validate_json(body)
            case "view":
                self.view = adapter_of(list[SentView]).validate_json(body)
            case _:
                adapter_of(str).validate_json(body)

    def _cut(self, position: int) -> None:
        if not 0 <= position <= len(self.bodies):
            raise ValueError(f"there is no message {position}")
        del self.bodies[position:], self.numbers[position:], self.staged[:]


def added_up(records: Sequence[SessionRecord], n_runs: int | None = None) -> Snapshot:
    """Return the conversation that the records make: all of them, or those of so many runs.

    Raises:
        Unreadable: one of them is no record.
    """
    total = _Sum()
    for record in records:
        try:
            total.add(record)
        except ValueError as error:
            raise Unreadable(record.n) from error
        if n_runs is not None and total.used.runs >= n_runs:
            break
    return Snapshot(
        messages=_messages(total),
        staged=tuple(total.staged),
        waiting=tuple([Waiting(n, text.queue, text.text) for n, text in total.waiting.items()]),
        usage=total.used.usage,
        n_runs=total.used.runs,
        turns=tuple(total.turns),
        view=next(iter(total.view), None),
    )


def readable_records(
    records: Sequence[SessionRecord], session: str, n_runs: int | None = None
) -> tuple[list[SessionRecord], Snapshot]:
    """Return the records up to the first that is damaged or no record, and the conversation that they make, or that
    those of so many runs make.

    Raises:
        StoreError: another version has written one, in a format that this one does not know.
    """
    good = list(sound_records(records))
    if unknown := [record.f for record in good if record.f != FORMAT]:
        what = f"Session {session} has a record of format {unknown[0]}, which this version does not know."
        raise StoreError(what, hint="Update journeyman.")
    # A shorter log may have another record that does not fit: until there is none.
    while True:
        try:
            return good, added_up(good, n_runs)
        except Unreadable as unreadable:
            good = [record for record in good if record.n < unreadable.n]


def _messages(total: _Sum) -> list[Message]:
    try:
        # All in one call; one by one only to find the one that is wrong.
        return adapter_of(list[Message]).validate_json(b"[" + b",".join(total.bodies) + b"]")
    except ValidationError:
        for n, body in zip(total.numbers, total.bodies, strict=True):
            try:
                adapter_of(Message).validate_json(body)
            except ValidationError as error:
                raise Unreadable(n) from error
        raise

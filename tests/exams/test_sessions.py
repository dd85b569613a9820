"""The exam of sessions: one conversation, one writer, written whole or not at all, and found again as it was."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from journeyman import Usage
from journeyman.durable import Durable, InMemoryEngine, Memory, PostgresEngine
from journeyman.durable.sqlite import SqliteEngine
from journeyman.errors import SessionInUse, StoreError
from journeyman.session import Session, Step, TurnStart
from journeyman.store import PostgresSessions, Store
from journeyman.types import Message, Text, ToolResult, ToolUse
from tests.exams.ports import SESSIONS

Opener: TypeAlias = Callable[..., Session]
"""Opens a session, as `Sessions.session` does."""


def said(text: str) -> Message:
    return Message("user", (Text(text),))


def answered(text: str) -> Message:
    return Message("assistant", (Text(text),))


@dataclass
class Place:
    """Where sessions are kept."""

    open: Opener

    def again(self, id: str, *steps: Step, agent: str = "clerk") -> Session:
        """Open a session, do some steps, close it, and return it as it is when it is opened again."""
        session = self.open(id, agent=agent, create=True)
        for step in steps:
            session.write(step)
        session.close()
        found = self.open(id, agent=agent)
        found.close()
        return found


@asynccontextmanager
async def places(kind: str, folder: Path, url: Callable[[], str]) -> AsyncGenerator[Place]:
    """Open a place of this kind."""
    async with AsyncExitStack() as stack:
        if kind.startswith("durable"):
            made = {
                "durable in memory": lambda: InMemoryEngine(Memory()),
                "durable in a file": lambda: SqliteEngine(folder / "runs.db"),
                "durable in postgres": lambda: PostgresEngine(url()),
            }[kind]()
            yield Place((await stack.enter_async_context(Durable(made))).session)
            return
        if kind == "postgres":
            yield Place(PostgresSessions(url()).session)
            return
        redact = None if kind == "file" else ()
        yield Place(stack.enter_context(Store(folder / "chats.db", redact=redact)).session)


@pytest.fixture(params=SESSIONS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Place]:
    async with places(request.param, tmp_path, lambda: str(request.getfixturevalue("emptied"))) as made:
        yield made


async def test_what_was_written_is_found_again(place: Place) -> None:
    one = Step(position=0, messages=[said("One.")], usage=Usage(requests=1), n_runs=1, turns=[TurnStart(0, 0)])
    two = Step(position=1, messages=[answered("Two.")], usage=Usage(requests=2), n_runs=1, n_turns=1)
    snapshot = place.again("a", one, two).snapshot
    assert snapshot.messages == [said("One."), answered("Two.")]
    assert (snapshot.usage, snapshot.n_runs, snapshot.turns) == (Usage(requests=2), 1, (TurnStart(0, 0),))
    assert (snapshot.staged, snapshot.waiting, snapshot.view) == ((), (), None)


async def test_messages_from_a_position_on_are_replaced(place: Place) -> None:
    all = Step(position=0, messages=[said("One."), answered("Two."), said("Three.")], n_runs=1)
    snapshot = place.again("a", all, Step(position=1, messages=[answered("Other.")], n_runs=1)).snapshot
    assert snapshot.messages == [said("One."), answered("Other.")]
    assert place.again("a", Step(position=0, messages=[], n_runs=1)).snapshot.messages == []


async def test_what_is_staged_is_added_to_until_a_message_changes(place: Place) -> None:
    calls = Message("assistant", (ToolUse("a", "look"), ToolUse("b", "look")))
    first = Step(position=0, messages=[said("One."), calls], n_runs=1)
    results = [Step(position=2, staged=[ToolResult(f"found {id}", tool_use_id=id)], n_runs=1) for id in "ab"]
    snapshot = place.again("a", first, *results).snapshot
    assert [block.text for block in snapshot.staged if block.type == "tool_result"] == ["found a", "found b"]
    whole = Message("user", snapshot.staged)
    assert place.again("a", Step(position=2, messages=[whole], n_runs=1)).snapshot.staged == ()


async def test_texts_wait_in_their_order_until_they_are_said(place: Place) -> None:
    session = place.open("a", agent="clerk", create=True)
    numbers = [session.add("One.", "steering"), session.add("Two.", "follow_ups"), session.add("Three.", "steering")]
    assert numbers == sorted({*numbers})
    session.write(Step(position=0, messages=[said("One.")], gone=[numbers[0]], n_runs=1))
    session.close()
    waiting = place.again("a").snapshot.waiting
    assert [(each.number, each.queue, each.text) for each in waiting] == [
        (numbers[1], "follow_ups", "Two."),
        (numbers[2], "steering", "Three."),
    ]


async def test_turns_are_counted_and_undone(place: Place) -> None:
    starts = [TurnStart(0, 0), TurnStart(2, 0), TurnStart(4, 1)]
    steps = [Step(position=0, turns=[each], n_turns=n, n_runs=n + 1, usage=Usage()) for n, each in enumerate(starts)]
    assert place.again("a", *steps).snapshot.turns == tuple(starts)
    undone = place.again("a", Step(position=0, turns=[], n_turns=1, n_runs=3, usage=Usage())).snapshot
    assert (undone.turns, undone.n_runs) == (tuple(starts[:1]), 3)


async def test_a_session_has_one_writer(place: Place) -> None:
    place.again("a", Step(position=0, messages=[said("One.")], n_runs=1))
    session = place.open("a", agent="clerk")
    with pytest.raises(SessionInUse):
        place.open("a", agent="clerk")
    other = place.open("b", agent="clerk", create=True)
    session.close()
    again = place.open("a", agent="clerk")
    session.close()  # the lock is another's by now
    with pytest.raises(SessionInUse):
        place.open("a", agent="clerk")
    with pytest.raises(StoreError):
        session.write(Step(position=0, messages=[said("Late.")], n_runs=1))
    again.close()
    other.close()
    assert place.again("a").snapshot.messages == [said("One.")]


async def test_a_session_that_is_not_there_or_of_another_agent_is_refused(place: Place) -> None:
    with pytest.raises(StoreError, match="no session 'nobody'"):
        place.open("nobody", agent="clerk")
    place.again("a", Step(position=0, messages=[said("One.")], n_runs=1))
    with pytest.raises(StoreError, match="'clerk', not of 'other'"):
        place.open("a", agent="other")
    session = place.open("a", agent="other", any_agent=True)
    assert (session.id, session.notice, session.snapshot.messages) == ("a", None, [said("One.")])
    session.close()
    for wrong in ("", " a", "a/b", "..", "x" * 201):
        with pytest.raises(StoreError, match="session id"):
            place.open(wrong, agent="clerk", create=True)


async def test_every_text_comes_back_as_it_was(place: Place) -> None:
    odd = "a\0b␛0c'\"%s {} \\ é🎉\n\t\u202e"
    session = place.open("a", agent="clerk", create=True)
    session.add(odd, "steering")
    session.write(Step(position=0, messages=[said(odd)], n_runs=1))
    session.close()
    snapshot = place.again("a").snapshot
    assert ([each.text for each in snapshot.messages], [each.text for each in snapshot.waiting]) == ([odd], [odd])

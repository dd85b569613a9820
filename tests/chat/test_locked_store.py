"""A chat whose file another program holds: its turn waits, and the event loop goes on."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from journeyman import Agent, Chat, Success
from journeyman.store import Store
from journeyman.testing.scripted import FunctionModel
from tests.play import Door


@asynccontextmanager
async def _held(path: Path) -> AsyncGenerator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


async def _turns_of_the_loop(task: asyncio.Task[object]) -> float:
    """Return for how long the loop stood at most while the task waited."""
    loop = asyncio.get_running_loop()
    longest = 0.0
    for _ in range(5):
        began_s = loop.time()
        await asyncio.wait({task}, timeout=0.01)
        longest = max(longest, loop.time() - began_s)
    return longest


@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
async def test_a_turn_waits_for_a_file_that_another_program_holds(tmp_path: Path, when: str) -> None:
    path = tmp_path / "chats.db"
    door = Door()
    bot = Agent(name="bot", model=FunctionModel(door.before("ok")))
    with Store(path, redact=()) as store:
        async with Chat.open(bot, store, id="c", create=True) as chat:
            async with _held(path) as other:
                if when == "after the answer":
                    other.execute("ROLLBACK")
                turn = asyncio.create_task(chat.prompt("hello"))
                if when == "after the answer":
                    await door.reached.wait()
                    other.execute("BEGIN EXCLUSIVE")
                door.opened.set()
                assert await _turns_of_the_loop(turn) < 1.0
                assert not turn.done()
                other.execute("ROLLBACK")
            assert isinstance(await turn, Success)
        assert [info.messages for info in store.sessions()] == [2]

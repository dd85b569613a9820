"""Durable runs and chats whose file is taken away while it is open: they fail loudly, and nothing is paid twice."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from journeyman import Agent, Chat, tool
from journeyman.durable import Durable
from journeyman.errors import StoreError
from journeyman.model import Request
from journeyman.record import Recorder
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.view.queries import StoreReader
from tests.play import n_answers

pytestmark = pytest.mark.skipif(os.name != "posix", reason="an open file cannot be moved")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def _clerk(paid: list[int], when_paid: Callable[[int], object], last: int = 3) -> Agent:
    @tool(effect="once")
    async def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        when_paid(invoice)
        return "paid"

    def answers(request: Request) -> Answer:
        n = n_answers(request)
        return call("pay", invoice=n, id=str(n)) if n <= last else say("All are paid.")

    return Agent(name="clerk", model=FunctionModel(answers), tools=[pay])


@pytest.mark.parametrize("taken", ["moved", "removed"])
@pytest.mark.parametrize("at", [1, 3])
async def test_no_call_begins_whose_start_the_next_process_would_not_find(path: Path, taken: str, at: int) -> None:
    paid: list[int] = []

    def take_away(invoice: int) -> None:
        if invoice == at:
            path.rename(path.with_name("aside.db")) if taken == "moved" else path.unlink()

    clerk = _clerk(paid, take_away)
    async with Durable(path) as durable:
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            await durable.run(clerk, "Pay all.", id="friday")
    with pytest.raises(StoreError, match="is not there, but its log is"):
        async with Durable(path):
            pass
    assert paid == [*range(at + 1)]
    if taken == "removed":
        return
    path.with_name("aside.db").rename(path)
    async with Durable(path) as durable:  # the last payment began, and nobody knows how it ended
        await durable.run(clerk, "Pay all.", id="friday")
    assert paid == [0, 1, 2, 3]


async def test_a_chat_whose_file_was_moved_says_so_with_its_next_turn(path: Path) -> None:
    bot = Agent(name="bot", model=FunctionModel(lambda _: "ok"))
    async with Chat.open(bot, path, id="c", create=True) as chat:
        await chat.prompt("hello")
        path.rename(path.with_name("aside.db"))
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            await chat.prompt("on")


def test_who_looks_at_a_file_is_told_that_another_one_has_replaced_it(path: Path) -> None:
    Recorder(path).close()
    with closing(StoreReader(path)) as reader:
        assert reader.version(surely=False) == reader.version(surely=False)
        path.rename(path.with_name("old.db"))
        Recorder(path).close()
        with pytest.raises(StoreError, match="replaced"):
            reader.version(surely=False)

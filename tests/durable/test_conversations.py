"""The turns of a chat go on from a journal as runs do (K25, as far as chats keep their turns in a journal)."""

import asyncio
from pathlib import Path

from journeyman import Chat, Runtime, Success
from tests.durable.worlds import World, payer
from tests.play import cancelled, existing, succeeded, texts
from tests.support.lines_journal import LinesJournal


async def turn(path: Path, world: World) -> Success[str] | None:
    """Let one process have the first turn of a chat. None: it died in mid-payment."""
    world.reached.clear()
    async with Chat(payer(world), runtime=Runtime(journal=LinesJournal(path))) as chat:
        living = asyncio.ensure_future(chat.prompt("Pay."))
        dying = asyncio.ensure_future(world.reached.wait())
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not living.done():
            await cancelled(living)
            return None
        return succeeded(living.result())


async def test_a_call_in_a_turn_that_was_under_way_is_unknown_in_every_later_life(tmp_path: Path) -> None:
    # K25 of K4 and K14
    whole, world = existing(await turn(tmp_path / "whole.jsonl", World())), World(dies_after="B")
    assert await turn(tmp_path / "chats.jsonl", world) is None
    second, third = [existing(await turn(tmp_path / "chats.jsonl", world)) for _ in range(2)]
    assert world.done == ["A", "B"]
    assert "whether it took effect is unknown" in texts(second)[1]
    assert third.history == second.history
    assert existing(second.metadata.usage).requests == existing(whole.metadata.usage).requests == 3

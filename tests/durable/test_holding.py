"""A run that is held, and what is said to it in just that moment."""

import asyncio
from typing import Any

import pytest

from journeyman import Agent, Success
from journeyman.durable.durable import Durable
from journeyman.inbox.signals import Signal
from tests.durable.processes import Stage, a_signal
from tests.durable.worlds import World, do, is_cancelled
from tests.play import following, virtual_clock


@pytest.mark.parametrize("kind", ["release", "stop"])
@virtual_clock
async def test_a_word_that_comes_while_a_run_is_being_held_is_not_lost(stage: Stage, kind: Any) -> None:  # noqa: ANN401 - a kind
    """It comes after the run has decided to leave, and before it is stored that it is held."""
    world, process = World(slowest_s=5.0), stage.process()  # the hold is heard long before the call has ended
    agent = Agent(name="clerk", model=following(do("idempotent", "A"), "Done."), tools=world.tools())
    sent: list[Signal] = []

    async def hold(_: str) -> None:
        row = await process.engine.get("run")
        if row is not None and row.status == "running" and not sent:
            sent.append(a_signal(row.id, "hold"))
            assert await process.engine.signal(sent[0]) == "taken"

    async def send(name: str) -> None:
        if name == "settle" and len(sent) == 1:
            sent.append(a_signal(sent[0].run, kind, reason="not today"))
            assert await process.engine.signal(sent[1]) == "taken"

    process.after, process.before = hold, send
    async with Durable(process, now=stage.now) as durable:
        async with asyncio.timeout(60):
            result = await durable.run(agent, "Go.", id="run")
    assert len(sent) == 2
    assert is_cancelled(result) if kind == "stop" else isinstance(result, Success)

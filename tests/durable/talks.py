"""Chats whose process dies, or is said to."""

import asyncio
from collections.abc import Callable
from typing import Any

from journeyman import Agent, Chat, Result
from journeyman.durable import Durable
from tests.durable.processes import Process, Stage

ID = "user-42"


async def talked(
    stage: Stage,
    agent: Agent[Any, Any],
    *,
    until: asyncio.Event | None = None,
    told: Callable[[Chat], object] = lambda chat: None,
    prompt: str = "Go.",
    process: Process | None = None,
) -> tuple[Result[Any], Chat] | None:
    """Let a process open the chat and go on with its turn, or begin one. None: the process died."""
    process, until = process or stage.process(), until or asyncio.Event()

    async def talk(durable: Durable) -> tuple[Result[Any], Chat]:
        async with Chat.open(agent, durable, id=ID, create=True) as chat:
            turn = chat.turn or chat.start(prompt)
            told(chat)
            return await turn, chat

    async with Durable(process, now=stage.now) as durable:
        living = asyncio.create_task(talk(durable))
        dying = asyncio.create_task(until.wait())
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not living.done():
            process.kill()
            living.cancel()
            await asyncio.wait({living})
    if process.is_dead and not living.cancelled():
        living.exception()
    return None if process.is_dead else living.result()

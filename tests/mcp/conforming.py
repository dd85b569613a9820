"""The client that the official conformance suite starts, with an address as the last argument: it calls every tool.

A chat is the client's user: it leaves every question blank, so that defaults hold.
"""

import asyncio
import sys
from typing import Any

from journeyman import Agent, Chat
from journeyman.events import Event, QuestionAsked
from journeyman.mcp import mcp
from journeyman.testing.scripted import ScriptedModel, call

NUMBERS = {"a": 5, "b": 3}


async def main(address: str) -> None:
    async with mcp({"suite": address}) as tools:
        calls = [call(each.name, NUMBERS if each.name == "add_numbers" else {}) for each in tools]
        agent = Agent(name="tester", model=ScriptedModel([*calls, "Done."]), tools=tools)
        async with Chat(agent) as chat:

            def answer(event: Event, chat: Chat[Any, Any] = chat) -> None:
                if isinstance(event, QuestionAsked):
                    chat.answer(event.id, "")

            chat.subscribe(answer)
            (await chat.prompt("Call all.")).unwrap()


asyncio.run(main(sys.argv[-1]))

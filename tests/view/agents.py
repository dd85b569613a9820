"""The agents of runs that go on in a process of their own, while a test looks at them and says something to them.

Their model reads the conversation, so that any process may go on with it. As long as there is a file `stop-2` in the
current folder, the answer after two others is not given; with a `words-2`, its first words are.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from journeyman import Agent, Text, ToolResult, ask_user, tool
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.model import Part, Request, TextPart
from journeyman.testing.scripted import Answer, FunctionModel, call, say

FIRST_WORDS = "The tide rises, "


@tool(effect="pure")
async def look(topic: str = "") -> str:
    """Look something up."""
    return f"about {topic}"


class AsksAlways:
    """A gate that asks about every look."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask("May it look?") if request.tool_name == "look" else Allow()


class Stopped(FunctionModel):
    """A model that a test stops before its answers, or in the middle of them."""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncGenerator[Part]]:
        n = sum(message.role == "assistant" for message in request.messages)
        await _gone(Path(f"stop-{n}"))

        async def parts(real: AsyncIterator[Part]) -> AsyncGenerator[Part]:
            words = Path(f"words-{n}")
            if words.exists() and request.deltas:
                yield TextPart(FIRST_WORDS)
                await _gone(words)
            async for part in real:
                yield part

        async with super().stream(request) as real:
            yield parts(real)


async def _gone(file: Path) -> None:
    while file.exists():  # noqa: ASYNC110 - another process takes it away
        await asyncio.sleep(0.01)


def _answer(request: Request) -> Answer:
    n = sum(message.role == "assistant" for message in request.messages)
    if n == 0:
        return say("I look it up.", call("look", topic="tides", id="c1"))
    if n == 1:
        return call("ask_user", question="Which sea?", options=["north", "south"], id="q1")
    return f"{FIRST_WORDS}I think. I heard: {'; '.join(_heard(request))}."


def _looks(request: Request) -> Answer:
    n = sum(message.role == "assistant" for message in request.messages)
    return call("look", topic=f"page {n}", id=f"c{n}") if n < 3 else f"I heard: {'; '.join(_heard(request))}."


def _heard(request: Request) -> list[str]:
    """Return all that was said and given back, but for the first prompt."""
    blocks = [block for message in request.messages if message.role == "user" for block in message.content]
    return [block.text for block in blocks[1:] if isinstance(block, Text | ToolResult)]


asker = Agent(name="asker", model=Stopped(_answer), tools=[look, ask_user], gate=AsksAlways())
reader = Agent(name="reader", model=Stopped(_looks), tools=[look])

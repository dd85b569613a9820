"""Streaming: the same run, seen from inside: the words as the model writes them, the steps as they happen.

With ANTHROPIC_API_KEY set, Claude writes; without, a model that takes a breath between its words.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from journeyman import Agent, Text, Usage, stream
from journeyman.events import ModelResponded, RunSucceeded, TextDelta
from journeyman.model import BlockFinished, Part, Request, ResponseFinished, ResponseStarted, TextPart

HAIKU = "Green leaves on the bough\nthe loop goes round once again\nand returns with fruit"


class SlowPoet:
    """A model of our own: anything that streams parts is one."""

    provider, name = "example", "slow-poet"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        yield self._parts()

    async def _parts(self) -> AsyncIterator[Part]:
        yield ResponseStarted(self.name, "haiku-1", Usage(requests=1, input_tokens=12, output_tokens=20))
        for word in HAIKU.split(" "):
            await asyncio.sleep(0.02)
            yield TextPart(word + " ")
        yield BlockFinished(Text(HAIKU))
        yield ResponseFinished("end_turn")


poet = Agent(name="poet", model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else SlowPoet())


async def main() -> None:
    async with stream(poet, "A haiku about loops.") as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ModelResponded(usage=usage, stop_reason=reason):
                    print(f"\n-- {reason}, {usage.output_tokens} tokens")
                case RunSucceeded(metadata=metadata):
                    print(f"-- the run succeeded after {metadata.attempts[0].iterations} iteration")
                case _:
                    pass
    print(len(events.result.unwrap().splitlines()), "lines")


if __name__ == "__main__":
    asyncio.run(main())

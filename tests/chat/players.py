"""Who plays in the tests of chats: a model that can be stopped in mid-answer, and shorthands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import BaseModel

from journeyman import Chat, Failure, Result, tool
from journeyman.events import Event
from journeyman.model import Request
from journeyman.models.scripted import Answer, Policy, Scripted
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect
from tests.support.recorder import transcript


class Report(BaseModel):
    total: int


@dataclass(slots=True)
class Door:
    """A place where something waits until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        """Stand at the door."""
        self.reached.set()
        await self.opened.wait()

    def before(self, answer: Answer) -> Policy:
        """Return a step of a script that waits at the door, and then answers."""

        async def policy(request: Request) -> Answer:
            await self.wait()
            return answer

        return policy

    def tool(self, name: str = "wait", *, parallel: bool = False, effect: Effect | None = None) -> AnyTool:
        """Return a tool that waits at the door."""

        @tool(name=name, parallel=parallel, effect=effect)
        async def wait() -> str:
            """Wait."""
            await self.wait()
            return "waited"

        return wait


class Opening(Scripted):
    """A model that holds something open, and always answers."""

    def __init__(self) -> None:
        super().__init__(["Hello."], repeat=True)
        self.events: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        self.events.append("open")
        yield
        self.events.append("close")

    @property
    def n_open(self) -> int:
        """How often it was opened and not closed yet."""
        return self.events.count("open") - self.events.count("close")


async def hang(request: Request) -> Answer:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


def script_of(chat: Chat[object]) -> list[tuple[str, ...]]:
    """Return the conversation in few words."""
    return transcript(chat.messages)


def code(result: Result[object]) -> str:
    """Return why a run failed; empty when it did not."""
    return result.code if isinstance(result, Failure) else ""


def once(kind: type[object], act: Callable[[], object]) -> Callable[[Event], None]:
    """Return a listener that acts at the first event of one class."""
    done: list[bool] = []

    def listener(event: Event) -> None:
        if isinstance(event, kind) and not done:
            done.append(True)
            act()

    return listener

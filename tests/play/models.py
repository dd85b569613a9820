"""Models beside `ScriptedModel` and those of a `Stage`; and the door at which whoever plays waits for the test."""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from journeyman import Result, Turn, tool
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, Policy, play_by_history
from journeyman.tools.background import TaskContext
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect

Given = TypeVar("Given")


def n_answers(request: Request) -> int:
    """Return how many answers went before this request."""
    return sum([message.role == "assistant" for message in request.messages])


def following(*answers: Answer | Policy, repeat: bool = False) -> FunctionModel:
    """Return a model that knows by the conversation how far it is, so that it answers the same in every life."""
    return FunctionModel(play_by_history(answers, repeat=repeat))


def echo() -> FunctionModel:
    """Return a model that says what it was last told."""
    return FunctionModel(lambda request: f"<{request.messages[-1].text}>")


async def hang(request: Request) -> Answer:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


@dataclass(slots=True, eq=False)
class Door:
    """A place where something waits until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        """Stand at the door."""
        self.reached.set()
        await self.opened.wait()

    async def reached_by(self, turn: Turn[Given]) -> Turn[Given]:
        """Wait until somebody stands at the door, and return the turn that leads there."""
        await self.reached.wait()
        return turn

    async def open_for(self, turn: Turn[Given]) -> Result[Given]:
        """Let the turn go on, and return its result."""
        self.opened.set()
        return await turn

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

    async def work(self, task: TaskContext) -> str:
        """Wait at the door, as the work of a background task."""
        await self.wait()
        return "let go"


@pytest.fixture
def door() -> Door:
    """Give a door that is closed."""
    return Door()

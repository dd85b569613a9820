"""Who plays in the tests of chats, tasks, sub-agents and teams: models, tools, work, and whoever is told."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from journeyman import Agent, Chat, Failure, Host, Result, Success, Tasks, ToolContext, Turn, tool
from journeyman.events import Callbacks, Event, Listener, TaskInfo
from journeyman.gate import Allow, Ask, GateRequest
from journeyman.model import Model, Request
from journeyman.models.scripted import Answer, FromFunction, Policy, Scripted
from journeyman.tools.background import TaskContext, Work
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, Message
from tests.support.recorder import Recorder, transcript

Given = TypeVar("Given")
C = TypeVar("C")


class Report(BaseModel):
    total: int


@tool
async def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"found {where}"


@tool
async def stop() -> str:
    """Stop."""
    return "stopped"


async def hang(request: Request) -> Answer:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


def after(seconds: float, answer: Answer) -> Policy:
    """Return a step of a script that answers later."""

    async def policy(request: Request) -> Answer:
        await asyncio.sleep(seconds)
        return answer

    return policy


def echo() -> Model:
    """Return a model that says what it was last told."""
    return FromFunction(lambda request: f"<{request.messages[-1].text}>")


def code(result: Result[Any]) -> str:
    """Return why a run failed; empty when it did not."""
    return result.code if isinstance(result, Failure) else ""


def done(result: Result[Given]) -> Success[Given]:
    """Return the result, which must be a success."""
    assert isinstance(result, Success), result
    return result


async def cancelled(work: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended by that."""
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


def context_of(result: Result[Any], kind: type[C]) -> C:
    """Return the facts of a failure, which must be of this class."""
    assert isinstance(result, Failure), result
    assert isinstance(result.error.context, kind), result.error.context
    return result.error.context


# -- what waits -------------------------------------------------------------------------------------------------------


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


@pytest.fixture
def recorder() -> Recorder:
    """Give a listener that keeps every event."""
    return Recorder()


# -- chats ------------------------------------------------------------------------------------------------------------


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


def chatting(
    model: Model | str,
    *,
    host: Host | None = None,
    history: Sequence[Message] = (),
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    **fields: Any,  # noqa: ANN401 - of the agent
) -> Chat[Any, Any]:
    """Return a chat with an agent called `tester` that plays this model."""
    agent = Agent(name="tester", model=model, **fields)
    return Chat(agent, host=host, history=history, callbacks=callbacks, on_event=on_event)


def script_of(chat: Chat[Any, Any]) -> list[tuple[str, ...]]:
    """Return the conversation in few words."""
    return transcript(chat.messages)


def once(kind: type[object], act: Callable[[], object]) -> Callable[[Event], None]:
    """Return a listener that acts at the first event of one class."""
    acted: list[bool] = []

    def listener(event: Event) -> None:
        if isinstance(event, kind) and not acted:
            acted.append(True)
            act()

    return listener


@dataclass(frozen=True)
class Asking:
    """A gate that asks about the calls of these tools, or of all."""

    tools: tuple[str, ...] = ()

    async def decide(self, request: GateRequest) -> Ask | Allow:
        return Allow() if self.tools and request.tool_name not in self.tools else Ask(f"May it {request.tool_name}?")


# -- background work --------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Told:
    """Keeps every notification."""

    notes: list[tuple[str, TaskInfo]] = field(default_factory=list[tuple[str, TaskInfo]])

    def __call__(self, text: str, info: TaskInfo) -> None:
        self.notes.append((text, info))

    @property
    def ids(self) -> list[str]:
        return [info.id for info in self.infos]

    @property
    def infos(self) -> list[TaskInfo]:
        return [info for _, info in self.notes]

    @property
    def ended(self) -> list[tuple[str, str]]:
        return [(info.id, info.status) for info in self.infos]


@pytest.fixture
def told() -> Told:
    """Give what keeps every notification."""
    return Told()


async def ended(tasks: Tasks, work: Work, **options: Any) -> TaskInfo:  # noqa: ANN401 - of the task
    """Start work, wait for its end, and return what its task is then."""
    id = tasks.start(work, description="work", **options)
    await tasks.wait()
    return tasks.get(id)


def beginning(work: Work, **options: Any) -> AnyTool:  # noqa: ANN401 - of the task
    """Return the tool `begin`, which starts work in the background."""

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin."""
        assert ctx.tasks is not None
        return ctx.tasks.start(work, description="work", **options)

    return begin


def giving(value: object) -> Work:
    """Return work that gives a value at once."""

    async def work(task: TaskContext) -> object:
        return value

    return work


def raising(error: BaseException) -> Work:
    """Return work that fails at once."""

    async def work(task: TaskContext) -> object:
        raise error

    return work


async def sleeping(task: TaskContext) -> str:
    """Work that ends after an hour, and heeds no signal."""
    await asyncio.sleep(3_600)
    return "slept"


async def heeding(task: TaskContext) -> str:
    """Work that ends by itself, with an error, when it is told to stop."""
    told = asyncio.Event()
    task.abort.subscribe(told.set)
    await told.wait()
    task.count(n_calls=3)
    raise RuntimeError("it had to stop")


async def stubborn(task: TaskContext) -> str:
    """Work that takes a cancellation for no reason to end, twice."""
    for _ in range(2):
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue
    await asyncio.sleep(3_600)
    return "slept"

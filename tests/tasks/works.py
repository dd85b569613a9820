"""Work of background tasks, and whoever is told of its end."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from journeyman import Tasks, ToolContext, tool
from journeyman.events import TaskInfo
from journeyman.tools.background import TaskContext, Work
from journeyman.tools.tools import AnyTool


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


async def ended(tasks: Tasks, work: Work, **options: Any) -> TaskInfo:
    """Start work, wait for its end, and return what its task is then."""
    id = tasks.start(work, description="work", **options)
    await tasks.wait()
    return tasks.get(id)


def beginning(work: Work, **options: Any) -> AnyTool:
    """Return the tool `begin`, which starts work in the background."""

    @tool
    async def begin(ctx: ToolContext) -> str:
        assert ctx.tasks is not None
        return ctx.tasks.start(work, description="work", **options)

    return begin


def giving(value: object) -> Work:
    """Return work that gives a value at once, or raises an error."""

    async def work(task: TaskContext) -> object:
        if isinstance(value, BaseException):
            raise value
        return value

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

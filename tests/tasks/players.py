"""Who plays in the tests of background work: work that waits until it is let go, and whoever is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from journeyman.events import TaskInfo
from journeyman.tools.background import TaskContext, Work


@dataclass(slots=True, eq=False)
class Told:
    """Keeps every notification."""

    notes: list[tuple[str, TaskInfo]] = field(default_factory=list[tuple[str, TaskInfo]])

    def __call__(self, text: str, info: TaskInfo) -> None:
        self.notes.append((text, info))

    @property
    def ids(self) -> list[str]:
        return [info.id for _, info in self.notes]

    @property
    def ended(self) -> list[tuple[str, str]]:
        return [(info.id, info.status) for _, info in self.notes]


@dataclass(slots=True, eq=False)
class Gate:
    """Work that stands at a gate until the test lets it go on."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, task: TaskContext) -> str:
        self.reached.set()
        await self.opened.wait()
        return "let go"


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

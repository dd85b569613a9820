"""The memory of finished steps, so that a run that died can go on where it was.

A step is one model call or one tool call, under a key that says where in the run it stands. What a journal stores is
JSON. Imports `errors` and, for the declared effects, `tools`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from journeyman.errors import OutcomeUnknown
from journeyman.types import Effect

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns a step's value into JSON and back."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...


class Reservation(Protocol):
    """The place of one step among the others."""

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        """Return the stored value of this step, or do `work` and store what it returns.

        Raises:
            OutcomeUnknown: the step was started before and not finished, and its effect is `once`.
        """
        ...


class Journal(Protocol):
    """Remembers steps by key."""

    def reserve(self, key: str) -> Reservation:
        """Take the place of a step. Called in program order, also for steps that then run at the same time."""
        ...

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        """Reserve the step and do it."""
        ...


@dataclass(slots=True)
class InMemoryJournal:
    """A journal that lives as long as the process. Give the same one to the next run to go on from this one."""

    finished: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The values of finished steps, by key."""
    started: set[str] = field(default_factory=set[str])
    """The keys of steps that were started."""

    def reserve(self, key: str) -> _Place:
        return _Place(self, key)

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        return await self.reserve(key).step(work, codec=codec, effect=effect)


@dataclass(frozen=True, slots=True)
class _Place:
    journal: InMemoryJournal
    key: str

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        stored = self.journal.finished.get(self.key)
        if stored is not None:
            return codec.decode(stored)
        if self.key in self.journal.started and effect == "once":
            raise OutcomeUnknown(self.key)
        self.journal.started.add(self.key)
        value = await work()
        self.journal.finished[self.key] = codec.encode(value)
        return value


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a journal, where every key begins with `prefix`: for one of several runs that share it."""

    journal: Journal
    prefix: str

    def reserve(self, key: str) -> Reservation:
        return self.journal.reserve(f"{self.prefix}/{key}")

    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        return await self.journal.step(f"{self.prefix}/{key}", work, codec=codec, effect=effect)


if TYPE_CHECKING:
    _journal: Journal = InMemoryJournal()
    _section: Journal = Section(InMemoryJournal(), "run/1")

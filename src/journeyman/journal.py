"""The memory of finished steps, so that a run that died can go on where it was.

A step is one model call or one tool call, under a key that says where in the run it stands. What a journal stores is
JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Protocol, TypeVar

from journeyman.errors import OutcomeUnknown
from journeyman.types import Effect, record_class, value_class

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
        return await self.reserve(key).step(work, codec=codec, effect=effect)


class Steps(Protocol):
    """The steps that a journal stores."""

    def found(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether a step was begun, and its value if it was finished."""
        ...

    def put(self, key: str, value: bytes | None) -> None:
        """Store the value of a finished step; None says that it was begun."""
        ...


@value_class()
class StoredStep:
    """The place of a step in a journal that stores the steps itself.

    That a step was begun is stored only where beginning it twice would matter.
    """

    steps: Steps
    key: str

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T], effect: Effect) -> T:
        was_begun, stored = self.steps.found(self.key)
        if stored is not None:
            return codec.decode(stored)
        if effect == "once":
            if was_begun:
                raise OutcomeUnknown(self.key)
            self.steps.put(self.key, None)
        value = await work()
        self.steps.put(self.key, codec.encode(value))
        return value


@record_class()
class InMemoryJournal(Journal):
    """A journal that lives as long as the process. Give the same one to the next run to go on from this one."""

    finished: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The values of finished steps, by key."""
    started: set[str] = field(default_factory=set[str])
    """The keys of the steps that were started and must not be started again."""

    def reserve(self, key: str) -> StoredStep:
        return StoredStep(self, key)

    def found(self, key: str) -> tuple[bool, bytes | None]:
        return key in self.started, self.finished.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.started.add(key)
        else:
            self.finished[key] = value


@value_class()
class Section(Journal):
    """A part of a journal, where every key begins with `prefix`: for one of several runs that share it."""

    journal: Journal
    prefix: str

    def reserve(self, key: str) -> Reservation:
        return self.journal.reserve(f"{self.prefix}/{key}")

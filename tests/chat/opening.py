"""Who plays in the tests of chats: a model that holds something open, an agent that repeats, a listener."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from journeyman import Agent
from journeyman.events import Event
from journeyman.testing.scripted import ScriptedModel
from tests.play import Door, echo


class Opening(ScriptedModel):
    """A model that tells when it is opened and closed."""

    def __init__(self, label: str, told: list[str], door: Door | None = None, *, fails: bool = False) -> None:
        super().__init__([f"I am {label}."], repeat=True)
        self._label, self._told, self._door, self._fails = label, told, door, fails

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        if self._door is not None:
            await self._door.wait()
        if self._fails:
            raise OSError("no way")
        self._told.append(f"+{self._label}")
        try:
            yield
        finally:
            self._told.append(f"-{self._label}")


def once(kind: type[object], act: Callable[[], object]) -> Callable[[Event], None]:
    """Return a listener that acts at the first event of one class."""
    acted: list[bool] = []

    def listener(event: Event) -> None:
        if isinstance(event, kind) and not acted:
            acted.append(True)
            act()

    return listener


def talker(name: str = "tester") -> Agent:
    """Return an agent that says what it was last told."""
    return Agent(name=name, model=echo())

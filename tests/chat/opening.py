"""A model that holds something open while a chat lasts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from journeyman.models.scripted import Scripted
from tests.play import Door


class Opening(Scripted):
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

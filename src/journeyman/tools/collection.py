"""The reading of a long text: in a thread, and with the collection of garbage put off, which looks at each new object
again and again, finds none to free, and takes as long as the reading itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")
Written = TypeVar("Written", str, bytes)

LONG: Final = 50_000
"""From how many characters on a text is long: it takes some milliseconds to read."""


@contextmanager
def collecting_later() -> Generator[None]:
    """Collect no garbage in the block, which is for work of a moment that does not wait."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def read_aside(written: Written, read: Callable[[Written], T]) -> T:
    """Return what `read` makes of a text: of a long one in a thread, so that the event loop is not held."""
    return read(written) if len(written) < LONG else await asyncio.to_thread(read, written)


def holds_loop() -> bool:
    """Tell whether an event loop runs in this thread, so that all that it runs would wait for what is done here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

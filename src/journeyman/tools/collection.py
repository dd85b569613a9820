"""Work on what is large: in a thread, and with the collection of garbage put off, which looks at each new object again
and again, finds none to free, and takes as long as the work itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FunctionType, ModuleType, NoneType
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

LONG: Final = 50_000
"""From how many characters on a text is long: it takes some milliseconds to read."""
_MANY: Final = 1_000
"""From how many parts on a value is large: to copy one takes some microseconds."""
_TEXTS: Final = (str, bytes)
_ENDS: Final = (*_TEXTS, int, float, NoneType, type, FunctionType, ModuleType)
"""Parts that hold nothing, or all of the program, which no value has for itself."""


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


async def do_aside(value: T, work: Callable[[T], R]) -> R:
    """Return what `work` makes of a value: of a large one in a thread, so that the event loop is not held."""
    if not is_large(value):
        return work(value)

    def do_at_once() -> R:
        with collecting_later():
            return work(value)

    return await asyncio.to_thread(do_at_once)


def is_large(value: object) -> bool:
    """Tell whether a text is long, or a value has so many parts that the event loop should not wait for a look at each
    of them."""
    if isinstance(value, str | bytes):
        return len(value) >= LONG
    n_parts, parts = 0, [value]
    while parts:
        inside = gc.get_referents(*parts)
        n_parts += len(inside)
        if n_parts < _MANY:
            n_parts += sum([len(each) for each in inside if isinstance(each, _TEXTS)]) * _MANY // LONG
        if n_parts >= _MANY:
            return True
        parts = [each for each in inside if not isinstance(each, _ENDS)]
    return False


def holds_loop() -> bool:
    """Tell whether an event loop runs in this thread, so that all that it runs would wait for what is done here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

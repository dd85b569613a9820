"""Work on what is large: in a thread, and with the collection of garbage put off, which looks at each new object again
and again, finds none to free, and takes as long as the work itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from types import FunctionType, ModuleType, NoneType
from typing import Final, TypeVar

from journeyman.definition.json_numbers import LONG, collecting_later

T = TypeVar("T")
R = TypeVar("R")

_MANY: Final = 1_000
"""From how many parts on a value is large: to copy one takes some microseconds."""
_TEXTS: Final = (str, bytes)
_ENDS: Final = (*_TEXTS, int, float, NoneType, type, FunctionType, ModuleType)
"""Parts that hold nothing, or all of the program, which no value has for itself."""


async def do_aside(value: T, work: Callable[[T], R]) -> R:
    """Return what `work` makes of a value: of a large one in a thread, so that the event loop is not held."""
    if not is_large(value):
        return work(value)

    def do_at_once() -> R:
        with collecting_later():
            return work(value)

    await give_turns()  # a thread that reads JSON keeps the interpreter for some milliseconds
    return await asyncio.to_thread(do_at_once)


async def give_turns() -> None:
    """Let others use the event loop between two pieces of work that hold it."""
    for _ in range(3):  # what has come is noticed in the next turn, read in the one after, and answered in the third
        await asyncio.sleep(0)


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

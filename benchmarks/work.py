"""The work that every contender does: some calls of one tool, then a typed report. Written once, for all of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from pydantic import BaseModel

PROMPT: Final = "Count, and report the total."
TOTAL: Final = 3.0
MAX_ITERATIONS: Final = 5_000
MAX_TOKENS: Final = 1_024
MODEL: Final = "claude-haiku-4-5"

Function: TypeAlias = Callable[..., Awaitable[int | str]]


class Report(BaseModel):
    """The report."""

    total: float


class AddArguments(BaseModel):
    """The arguments of `add`, for a loop that is written by hand."""

    x: int


async def add(x: int) -> int | str:
    """Add one."""
    return x + 1


def noting(called_at_s: list[float], *, result: str = "") -> Function:
    """Return an `add` that notes the CPU time of each call; with a `result`, it returns that."""

    async def add(x: int) -> int | str:
        """Add one."""
        called_at_s.append(time.process_time())
        return result or x + 1

    return add


def is_right(total: float) -> None:
    """Fail if a contender did not do its work."""
    if total != TOTAL:
        raise AssertionError(f"The report says {total}, not {TOTAL}.")

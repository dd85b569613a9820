"""The work that every contender does: a few calls of one tool, then a typed report. Written once, for all of them."""

from __future__ import annotations

from pydantic import BaseModel

PROMPT = "Count, and report the total."


class Report(BaseModel):
    """The output: the arguments of the tool `output`."""

    total: float


class AddArguments(BaseModel):
    """The arguments of `add`, for a loop that is written by hand."""

    x: int


async def add(x: int) -> int:
    """Add one."""
    return x + 1


class Page:
    """A tool with results of 2 KB, or of any length, that notes when it was called."""

    def __init__(self, chars: int) -> None:
        self._text = "birdstrike " * (chars // 11) + "." * (chars % 11)
        self.called_at_s: list[float] = []

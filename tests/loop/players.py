"""Who plays in the tests of the loop: one output with its check and its reflection, two tools, and shorthands."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from journeyman import Failure, Result, Success, tool
from journeyman.models.scripted import call
from journeyman.types import ToolUse

C = TypeVar("C")
Given = TypeVar("Given")

REJECTED = "Validation failed: small\n7 is too much\n\nCorrect the output and hand it in again."
"""What the model reads when `small` rejects `report(7)`."""


class Report(BaseModel):
    total: int


def report(total: int = 3, id: str = "out") -> ToolUse:
    """Return the call that proposes a report."""
    return call("output", total=total, id=id)


def submit(id: str = "sub") -> ToolUse:
    return call("submit", id=id)


def small(report: Report) -> None:
    if report.total > 5:
        raise ValueError(f"{report.total} is too much")


def preview(report: Report) -> str:
    """Show a draft."""
    return f"Total: {report.total}"


@tool
async def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"found {where}"


@tool
async def fail(why: str = "broken") -> str:
    """Fail."""
    raise ValueError(why)


def succeeded(result: Result[Given]) -> Success[Given]:
    """Return the result, which must be a success."""
    assert isinstance(result, Success), result
    return result


def failed(result: Result[object]) -> Failure:
    """Return the result, which must be a failure."""
    assert isinstance(result, Failure), result
    return result


def context_of(result: Result[object], kind: type[C]) -> C:
    """Return the facts of a failure, which must be of this class."""
    context = failed(result).error.context
    assert isinstance(context, kind), context
    return context


def place_of(result: Result[object]) -> tuple[int, int]:
    """Return the attempt and the iteration in which a run failed."""
    ending = failed(result).error
    return ending.attempt, ending.iteration

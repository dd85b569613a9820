"""What the tests of pitfalls and decisions have in common: one output, one tool, one check, and the words for them."""

from __future__ import annotations

from pydantic import BaseModel

from journeyman import Failure, Result, tool
from journeyman.models.scripted import call
from journeyman.types import ToolUse

TOO_LARGE = "Validation failed: small\ntoo large\n\nCorrect the output and hand it in again."
"""What the model reads when `small` rejected its report."""

SUPERSEDED = "Error: superseded by a later call in the same response."
STOPPED = "Error: the run was stopped before this call finished."


class Report(BaseModel):
    total: int


def report(total: int, id: str = "") -> ToolUse:
    """Return the call that proposes a report."""
    return call("output", total=total, id=id)


def submit(id: str = "") -> ToolUse:
    return call("submit", id=id)


def small(report: Report) -> None:
    if report.total > 10:
        raise ValueError("too large")


def shown(report: Report) -> str:
    """Reflect a report."""
    return f"Total: {report.total}"


@tool
async def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"found {where}"


def failed(result: Result[object]) -> Failure:
    """Return the result, which must be a failure."""
    assert isinstance(result, Failure), result
    return result

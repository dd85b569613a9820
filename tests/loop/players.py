"""Who plays in the tests of the loop: a reporter with one tool, one output and one check; and shorthands."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from journeyman import Agent, Model, Output, tool
from journeyman.models.scripted import call
from journeyman.types import ToolUse


class Report(BaseModel):
    total: int


def report(total: int = 3, id: str = "") -> ToolUse:
    """Return the call that proposes a report."""
    return call("output", total=total, id=id)


def submit(id: str = "") -> ToolUse:
    return call("submit", id=id)


def small(report: Report) -> None:
    if report.total > 5:
        raise ValueError(f"{report.total} is too much")


def preview(report: Report) -> str:
    """Show a draft."""
    return f"Total: {report.total}"


PLAIN, REFLECTED = Output(Report), Output(Report, reflection=preview)


def hand_in(total: int, *, reflecting: bool) -> list[ToolUse]:
    """Return the calls of a response that hands in a report: the output alone, or also submit."""
    return [report(total, f"out{total}"), submit(f"sub{total}")][: 1 + reflecting]


@tool
async def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"found {where}"


@tool
async def fail(why: str = "broken") -> str:
    """Fail."""
    raise ValueError(why)


def reporter(model: Model | str, **options: Any) -> Agent[Report]:  # noqa: ANN401 - any field of an agent
    """Return an agent that may look around and hands in a small report, or one that differs from it in `options`."""
    ready: dict[str, Any] = {"tools": [look], "output": Output(Report), "validators": [small]}
    return Agent(name="reporter", model=model, **{**ready, **options})


def talker(model: Model | str, **options: Any) -> Agent[str]:  # noqa: ANN401 - any field of an agent
    """Return an agent that may look around and answers with text, or one that differs from it in `options`."""
    ready: dict[str, Any] = {"tools": [look], **options}
    return Agent(name="talker", model=model, **ready)

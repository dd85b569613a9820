"""Who plays in the tests of the loop: a reporter with one tool, one output and one check; and shorthands."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from journeyman import Agent, Message, Model, Output, Settings, Text, Tool, run, tool
from journeyman.model import Request
from journeyman.models.scripted import call
from journeyman.types import JsonObject, ToolUse
from tests.loop.results import succeeded
from tests.support.stage import Stage


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


def named(name: str) -> Tool[..., object]:
    """Return a tool of that name, which returns its name."""

    async def act() -> str:
        return name

    return tool(act, name=name)


async def long_talk(stage: Stage, settings: Settings, *system: Text) -> Sequence[Message]:
    """Return the history of a run of two attempts and several calls."""
    model = stage.model([call("look"), [call("look"), call("look")], report(99), report(1)])
    return succeeded(await run(reporter(model, system=system, settings=settings), "Go.")).history


def first_input(stage: Stage) -> JsonObject:
    """Return the arguments of the first call, as the second request sent them back."""
    use = stage.messages(1)[1].content[0]
    assert isinstance(use, ToolUse)
    return use.input


def turn(request: Request) -> int:
    """Return how many answers went before this request."""
    return sum(message.role == "assistant" for message in request.messages)


# -- functions that go wrong: each stands for a function of any type ---------------------------------------------------


def broken(*given: object) -> Any:  # noqa: ANN401
    raise LookupError("broken")


async def broken_later(*given: object) -> Any:  # noqa: ANN401
    await asyncio.sleep(0)
    raise LookupError("broken")


class Unspeakable(Exception):
    """An error that has no words."""

    def __str__(self) -> str:
        raise Unspeakable


def unspeakable(*given: object) -> Any:  # noqa: ANN401
    raise Unspeakable


def leaking(*given: object) -> Any:  # noqa: ANN401
    raise asyncio.CancelledError


async def timing_out(*given: object) -> Any:  # noqa: ANN401
    async with asyncio.timeout(0):
        await asyncio.Event().wait()


def meddle(report: Report) -> None:
    """Change what is to be judged."""
    report.total = 0


def circular() -> list[object]:
    ring: list[object] = []
    ring.append(ring)
    return ring

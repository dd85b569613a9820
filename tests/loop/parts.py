"""What only the tests of the loop need: a reflected output, answers of tools, a model, and functions that go wrong."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from journeyman import Message, ModelSettings, Output, Result, Text, run, tool
from journeyman.endings import Context
from journeyman.model import Part, Request
from journeyman.testing.scripted import call
from journeyman.types import JsonObject, ToolUse
from tests.play import Report, Stage, failed, instance_of, report, reporter, submit, succeeded

SUPERSEDED: Final = "Error: superseded by a later call in the same response."
STOPPED: Final = "Error: the run was stopped before this call finished."


class Speaking:
    """A model that says these parts to every request, and raises an error among them."""

    provider, name = "speaking", "fox-1"

    def __init__(self, *parts: Part | BaseException) -> None:
        self.parts = parts
        self.requests: list[Request] = []

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        self.requests.append(request)
        yield self._parts()

    async def _parts(self) -> AsyncIterator[Part]:
        for part in self.parts:
            if isinstance(part, BaseException):
                raise part
            yield part


def rejected(total: int) -> str:
    """Return what the model reads when `small` rejects `report(total)`."""
    return f"Validation failed: small\n{total} is too much\n\nCorrect the output and hand it in again."


def end_of(result: Result[object]) -> tuple[Context, int, int]:
    """Return the facts of a failure, and the attempt and the iteration in which the run failed."""
    ending = failed(result).error
    return ending.context, ending.attempt, ending.iteration


def preview(report: Report) -> str:
    """Show a draft."""
    return f"Total: {report.total}"


PLAIN, REFLECTED = Output(Report), Output(Report, reflection=preview)


def hand_in(total: int, *, reflecting: bool) -> list[ToolUse]:
    """Return the calls of a response that hands in a report: the output alone, or also submit."""
    return [report(total, f"out{total}"), submit(f"sub{total}")][: 1 + reflecting]


@tool
async def fail(why: str = "broken") -> str:
    raise ValueError(why)


async def long_talk(stage: Stage, settings: ModelSettings, *system: Text) -> Sequence[Message]:
    """Return the history of a run of two attempts and several calls."""
    model = stage.model([call("look"), [call("look"), call("look")], report(99), report(1)])
    return succeeded(await run(reporter(model, system=system, settings=settings), "Go.")).history


def first_input(stage: Stage) -> JsonObject:
    """Return the arguments of the first call, as the second request sent them back."""
    use = instance_of(ToolUse, stage.messages(1)[1].content[0])
    return use.input


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

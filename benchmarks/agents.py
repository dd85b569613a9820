"""The agent that is measured, and its work: one async tool call in each iteration, then a typed output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from pydantic import BaseModel

from benchmarks.by_hand import ByHandTools, Message
from journeyman import Agent, Limits, Model, Output, tool
from journeyman.model import Request, Response
from journeyman.models.scripted import FromFunction, call, say
from journeyman.types import ToolUse


class Report(BaseModel):
    total: float


class AddArguments(BaseModel):
    x: int


RESULT = "x" * 2_000


@tool
async def add(x: int) -> int:
    """Add one."""
    return x + 1


@tool
async def read(x: int) -> str:
    """Read 2 KB."""
    return RESULT


async def add_by_hand(x: int) -> int:
    """Add one."""
    return x + 1


async def read_by_hand(x: int) -> str:
    """Read 2 KB."""
    return RESULT


BY_HAND: ByHandTools = {"add": (AddArguments, add_by_hand), "read": (AddArguments, read_by_hand)}

SPECS: list[Message] = [
    {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
    for spec in (add.spec, read.spec)
] + [{"name": "output", "description": "Give the output.", "input_schema": Report.model_json_schema()}]


def agent(model: Model) -> Agent[Report]:
    """Return the agent: no listener, no limit that would be reached."""
    return Agent[Report](
        name="measured", model=model, tools=[add, read], output=Output(Report), limits=Limits(iterations=5_000)
    )


def scripted(iterations: int) -> FromFunction:
    """Return a model that calls `add` until its last answer, the output. Its answers are made beforehand."""
    calls = [say(call("add", x=1)) for _ in range(2 * iterations)]
    answers = [_with_id(answer, number) for number, answer in enumerate([*calls, say(call("output", total=3.0))])]

    def policy(request: Request) -> Response:
        number = len(request.messages)
        return answers[-1] if number >= 2 * iterations - 1 else answers[number]

    return FromFunction(policy)


def _with_id(answer: Response, number: int) -> Response:
    uses = [block for block in answer.content if isinstance(block, ToolUse)]
    return replace(answer, content=tuple(replace(use, id=f"call_{number}") for use in uses))


def by_hand_model(iterations: int) -> Callable[[list[Message]], Awaitable[Message]]:
    """Return the same model as dicts, in the provider's shape."""

    async def ask(messages: list[Message]) -> Message:
        number = len(messages)
        is_last = number >= 2 * iterations - 1
        block = {
            "type": "tool_use",
            "id": f"call_{number}",
            "name": "output" if is_last else "add",
            "input": {"total": 3.0} if is_last else {"x": 1},
        }
        return {"content": [block], "usage": {"input_tokens": 10, "output_tokens": 5}}

    return ask

"""The agents that the tests serve from a process of their own. This file and its tools print, as users' files do."""

import asyncio
import os
import sys
from decimal import Decimal

from pydantic import BaseModel, Field

from journeyman import Agent, Limits, Output, ToolContext, tool
from journeyman.gate import Ask, GateRequest, Verdict
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say

print("the file prints")  # noqa: T201 - users' files do


class Trip(BaseModel):
    city: str
    days: int = Field(ge=1)


class Bill(BaseModel):
    trip: Trip
    total: Decimal
    notes: list[str] = []


@tool
async def talk(ctx: ToolContext) -> str:
    """Print in every way there is, read what is not there, and report progress."""
    print("a tool prints")  # noqa: T201
    os.write(1, b"a tool writes\n")
    ctx.progress(f"read {len(sys.stdin.read())} characters", fraction=0.5)
    return "said"


@tool
async def wait() -> str:
    """Wait as async tools do, and say how it ended."""
    try:
        sys.stderr.write("the wait begins\n")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        sys.stderr.write("the wait was cancelled\n")
        raise
    return "awake"


@tool
async def remove(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"


class Careful:
    """Asks about every call."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask("May it be removed?")


echoing = FunctionModel(lambda request: f"<{request.messages[0].text}>")
echo = Agent(name="echo", description="Says what it is told.", model=echoing)
squaring = FunctionModel(lambda request: call("output", value=int(request.messages[0].text) ** 2))
square = Agent(name="square", model=squaring, input=int, output=Output(int))
planning = ScriptedModel([call("output", trip={"city": "Oslo", "days": 2}, total="12.50")], repeat=True)
planner = Agent(name="planner", model=planning, input=Trip, output=Output(Bill))
failing = ScriptedModel([call("output", city="Oslo", days=0)], repeat=True)
hopeless = Agent(name="hopeless", model=failing, output=Output(Trip), limits=Limits(attempts=1))
talking = FunctionModel(lambda request: "done" if len(request.messages) > 1 else say("I talk.", call("talk")))
talker = Agent(name="talker", model=talking, tools=[talk])
waiter = Agent(name="waiter", model=ScriptedModel([call("wait")], repeat=True), tools=[wait])


def last_result(text: str = "report.txt") -> FunctionModel:
    """Return a model that calls `remove`, and then says what it was told."""

    def answer(request: Request) -> Answer:
        told = [block.text for block in request.messages[-1].content if block.type == "tool_result"]
        return told[0] if told else call("remove", path=text)

    return FunctionModel(answer)


cleaner = Agent(name="cleaner", model=last_result(), tools=[remove], gate=Careful())

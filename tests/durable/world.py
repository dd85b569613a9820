"""Agents whose calls have effects, and where a life of their run may end."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from journeyman import Agent, Failure, Limits, Result, Subagents, tool
from journeyman.durable.durable import Durable
from journeyman.durable.records import RunInfo, Status
from journeyman.gate import Ask, GateRequest, Verdict
from journeyman.model import Request
from journeyman.models.scripted import Answer, FromFunction, call
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, ToolUse

UNKNOWN = "unknown"
"""A word of what a model reads of a call that was cut off and is not made again."""


@dataclass
class World:
    """What was done, and where the process that does it dies."""

    done: list[str] = field(default_factory=list[str])
    """The calls whose effect was made, in order."""
    dies_in: str = ""
    """The call before whose effect this life ends."""
    dies_after: str = ""
    """The call after whose effect this life ends, before it returns."""
    random: Random = field(default_factory=lambda: Random(0))
    slowest_s: float = 0.0
    """How long a call takes at most."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def die(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()

    def lives_on(self) -> None:
        """Let the next life not end by itself."""
        self.dies_in = self.dies_after = ""
        self.reached = asyncio.Event()

    def doing(self, effect: Effect) -> AnyTool:
        """Return a tool that is called as its effect is."""

        @tool(effect=effect, name=effect, parallel=True)
        async def do(what: str) -> str:
            """Do it."""
            await asyncio.sleep(self.random.uniform(0, self.slowest_s))
            if what in self.dies_in.split():
                await self.die()
            self.done.append(what)
            if what in self.dies_after.split():
                await self.die()
            await asyncio.sleep(self.random.uniform(0, self.slowest_s))
            return f"did {what}"

        return do

    def tools(self) -> list[AnyTool]:
        """Return a tool for each effect: `pure`, `idempotent` and `once`."""
        return [self.doing("pure"), self.doing("idempotent"), self.doing("once")]

    def twice(self) -> list[str]:
        """Return what was done more than once."""
        return [what for what, times in Counter(self.done).items() if times > 1]


def following(answers: list[Answer]) -> FromFunction:
    """Return a model that knows by the conversation how far it is."""

    def answer(request: Request) -> Answer:
        return answers[sum([message.role == "assistant" for message in request.messages])]

    return FromFunction(answer)


def do(effect: Effect, what: str) -> ToolUse:
    """Return a call of one of the tools of a `World`."""
    return call(effect, what=what, id=what)


def nested(world: World, depth: int, name: str = "top") -> Agent[str, str]:
    """Return an agent that does something, and lets two others do the same at once, so many levels down."""
    answers: list[Answer] = [do("once", f"{name}.before")]
    tools: list[Any] = world.tools()
    if depth:
        below = [nested(world, depth - 1 if side == "left" else 0, f"{name}.{side}") for side in ("left", "right")]
        tasks = [{"agent": each.name, "task": "Go."} for each in below]
        answers.append([call("subagent", tasks=tasks, id="both"), do("idempotent", f"{name}.beside")])
        tools.append(Subagents(*below))
    answers += [do("pure", f"{name}.after"), "Done."]
    return Agent(name=name.replace(".", "_"), description="Does.", model=following(answers), tools=tools)


def texts(result: Result[Any] | None) -> list[str]:
    """Return what the model of a run has read of its calls."""
    assert result is not None
    return [block.text for message in result.history for block in message.content if block.type == "tool_result"]


class Asking:
    """A gate that asks about every call."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask(f"May {request.tool_name} run?")


def asking_agent(world: World, **limits: Any) -> Agent[str, str]:  # noqa: ANN401 - of `Limits`
    """Return an agent with one call, about which its gate asks."""
    answers: list[Answer] = [do("once", "A"), "Done."]
    return Agent(name="clerk", model=following(answers), tools=world.tools(), gate=Asking(), limits=Limits(**limits))


async def seen(durable: Durable, status: Status) -> RunInfo:
    """Wait until the run has a status."""
    handle = await durable.get("run")
    while (info := await handle.info()).status != status:
        await durable.hub.changed(0.5)
    return info


async def asked(durable: Durable) -> RunInfo:
    """Wait until the run asks something."""
    handle = await durable.get("run")
    while not (info := await handle.info()).waits_for:
        await durable.hub.changed(0.5)
    return info


def is_cancelled(result: object) -> bool:
    """Tell whether a run was stopped."""
    return isinstance(result, Failure) and result.code == "EXECUTION_CANCELLED"

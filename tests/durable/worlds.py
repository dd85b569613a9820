"""Agents whose calls have effects, where a life of their run may end, and what is waited for meanwhile."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pydantic import BaseModel

from journeyman import Agent, Failure, Limits, Rejected, Subagents, tool
from journeyman.durable.durable import Durable
from journeyman.durable.records import RunInfo, Status
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.testing.scripted import Answer, call
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, ToolUse
from tests.play import following, make_gate

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

    async def act(self, what: str) -> None:
        """Make an effect, or die of it."""
        if what in self.dies_in.split():
            await self.die()
        self.done.append(what)
        if what in self.dies_after.split():
            await self.die()

    def pay(self) -> AnyTool:
        """Return a tool that pays, which must not happen twice."""

        @tool(effect="once")
        async def pay(invoice: str) -> str:
            """Pay an invoice."""
            await self.act(invoice)
            return f"paid {invoice}"

        return pay

    def doing(self, effect: Effect) -> AnyTool:
        """Return a tool that is called as its effect is."""

        @tool(effect=effect, name=effect, parallel=True)
        async def do(what: str) -> str:
            """Do it."""
            await asyncio.sleep(self.random.uniform(0, self.slowest_s))
            await self.act(what)
            await asyncio.sleep(self.random.uniform(0, self.slowest_s))
            return f"did {what}"

        return do

    def tools(self) -> list[AnyTool]:
        """Return a tool for each effect: `pure`, `idempotent` and `once`."""
        return [self.doing("pure"), self.doing("idempotent"), self.doing("once")]


def done_twice(world: World) -> list[str]:
    """Return what was done more than once."""
    return [what for what, times in Counter(world.done).items() if times > 1]


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
    return Agent(name=name.replace(".", "_"), description="Does.", model=following(*answers), tools=tools)


def payer(world: World, *invoices: str, **options: Any) -> Agent[str, str]:
    """Return an agent that pays one invoice after the other."""
    calls = [call("pay", invoice=each, id=f"pay-{each}") for each in invoices or "AB"]
    ready: dict[str, Any] = {"model": following(*calls, "All are paid."), "tools": [world.pay()], **options}
    return Agent(name="payer", **ready)


class AsksAbout:
    """A gate that asks about some invoices, and lets the others pass."""

    def __init__(self, *invoices: str) -> None:
        self._invoices = invoices

    async def decide(self, request: GateRequest) -> Verdict:
        invoice = request.arguments.get("invoice")
        return Ask(f"Pay {invoice}?") if invoice in self._invoices else Allow()


def asking_agent(world: World, **limits: Any) -> Agent[str, str]:
    """Return an agent with one call, about which its gate asks."""
    answers: list[Answer] = [do("once", "A"), "Done."]
    return Agent(
        name="clerk",
        model=following(*answers),
        tools=world.tools(),
        gate=make_gate(Ask("May it run?")),
        limits=Limits(**limits),
    )


async def until(durable: Durable, run: str, *statuses: Status) -> RunInfo:
    """Wait until a run has one of these statuses."""
    return await when(durable, run, lambda info: info.status in statuses)


async def asked(durable: Durable, run: str = "run") -> RunInfo:
    """Wait until the run asks something."""
    return await when(durable, run, lambda info: bool(info.pending))


async def when(durable: Durable, run: str, is_so: Callable[[RunInfo], bool]) -> RunInfo:
    """Wait until what is known of a run is so."""
    async with asyncio.timeout(20):
        while True:
            mark = durable.hub.mark()
            found = [each for each in await durable.list() if run in (each.name, each.id)]
            if found and is_so(found[0]):
                return found[0]
            await durable.hub.changed(0.05, since=mark)


def read_without_times(document: str) -> Any:  # noqa: ANN401 - JSON
    """Read what a result says, but for what differs from life to life."""

    def timeless(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name not in ("latency_s", "duration_s")}

    return json.loads(document, object_hook=timeless)


def is_cancelled(result: object) -> bool:
    """Tell whether a run was stopped."""
    return isinstance(result, Failure) and result.code == "EXECUTION_CANCELLED"


class Letter(BaseModel):
    text: str


def is_long(letter: Letter) -> None:
    """It must be long."""
    if len(letter.text) < 5:
        raise Rejected("too short")

"""Who plays in the tests of durable runs: a payer, a gate that asks, models that answer by the conversation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman import Agent, tool
from journeyman.durable import Durable, RunInfo, Status
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.model import Request
from journeyman.models.scripted import Answer, FromFunction, call
from journeyman.tools.tools import AnyTool


@dataclass
class World:
    """Where effects are made."""

    paid: list[str] = field(default_factory=list[str])
    hangs_in: str = ""
    """The payment that does not end."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has begun."""

    def pay(self) -> AnyTool:
        @tool(effect="once")
        async def pay(invoice: str) -> str:
            """Pay an invoice."""
            self.paid.append(invoice)
            if invoice == self.hangs_in:
                self.reached.set()
                await asyncio.Event().wait()
            return f"paid {invoice}"

        return pay


def following(*answers: Answer) -> FromFunction:
    """Return a model that knows by the conversation how far it is, so that it answers the same in every life."""

    def answer(request: Request) -> Answer:
        return answers[sum([message.role == "assistant" for message in request.messages])]

    return FromFunction(answer)


def payer(world: World, *invoices: str, **options: Any) -> Agent[str, str]:  # noqa: ANN401 - of an agent
    """Return an agent that pays one invoice after the other."""
    calls: Sequence[Answer] = [call("pay", invoice=each, id=f"pay-{each}") for each in invoices or "AB"]
    ready: dict[str, Any] = {"model": following(*calls, "All are paid."), "tools": [world.pay()], **options}
    return Agent(name="payer", **ready)


class AsksAbout:
    """A gate that asks about some invoices, and lets the others pass."""

    def __init__(self, *invoices: str) -> None:
        self._invoices = invoices

    async def decide(self, request: GateRequest) -> Verdict:
        invoice = request.arguments.get("invoice")
        return Ask(f"Pay {invoice}?") if invoice in self._invoices else Allow()


async def until(durable: Durable, run: str, *statuses: Status) -> RunInfo:
    """Wait until a run has one of these statuses."""
    return await when(durable, run, lambda info: info.status in statuses)


async def when(durable: Durable, run: str, is_so: Callable[[RunInfo], bool]) -> RunInfo:
    """Wait until what is known of a run is so."""
    async with asyncio.timeout(20):
        while True:
            mark = durable.hub.mark()
            found = [each for each in await durable.list() if run in (each.name, each.id)]
            if found and is_so(found[0]):
                return found[0]
            await durable.hub.changed(0.05, since=mark)

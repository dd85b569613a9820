"""Where the tools of an agent have effects, and where a life of its run ends."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from journeyman import tool
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect


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
        await asyncio.sleep(self.random.uniform(0, self.slowest_s))
        if what in self.dies_in.split():
            await self.die()
        self.done.append(what)
        if what in self.dies_after.split():
            await self.die()
        await asyncio.sleep(self.random.uniform(0, self.slowest_s))

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
            await self.act(what)
            return f"did {what}"

        return do

    def tools(self) -> list[AnyTool]:
        """Return a tool for each effect: `pure`, `idempotent` and `once`."""
        return [self.doing("pure"), self.doing("idempotent"), self.doing("once")]

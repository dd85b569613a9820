"""A program that serves durable runs, as its page shows it: nothing in it handles signals.

Its words are the store, how many workers it has, and how many seconds what is driven has to end. A payment ends as soon
as `go` is there.
"""

import asyncio
import sys
from pathlib import Path

from journeyman import Agent, tool
from journeyman.durable import Durable, Worker
from journeyman.testing.scripted import ScriptedModel, call


@tool(effect="once")
async def pay() -> str:
    """Pay."""
    print("paying", file=sys.stderr, flush=True)  # noqa: T201 - the test waits for it
    while not Path("go").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    return "paid"


async def serve(store: str, n_workers: int, grace_s: float) -> None:
    agents = [Agent(name=f"payer{n}", model=ScriptedModel([call("pay", id="A"), "Paid."]), tools=[pay]) for n in (0, 1)]
    async with Durable(store) as durable:
        for agent in agents[:n_workers]:
            await durable.start(agent, "Pay.", id=agent.name)
        workers = [Worker(durable, agents=[agent]).run(grace_s=grace_s) for agent in agents[:n_workers]]
        await asyncio.gather(*workers)
        print(*[each.status for each in await durable.list()])  # noqa: T201 - the test reads it


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

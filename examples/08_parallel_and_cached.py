"""Parallel and cached tools: calls of one response that run at the same time, and calls that need not run again.

With ANTHROPIC_API_KEY set, Claude compares; without, a script.
"""

import asyncio
import os

from journeyman import Agent, Limits, ToolContext, ToolResult, run_sync, tool
from journeyman.events import Event, ToolCalled, ToolFinished, ToolProgress
from journeyman.testing import Answer, ScriptedModel, call

DEGREES = {"Bern": 21, "Oslo": 14, "Rome": 29}


@tool(parallel=True, effect="pure", cache="run", timeout_s=5)
async def forecast(city: str, ctx: ToolContext) -> str:
    """Look up tomorrow's temperature in a city."""
    ctx.progress("asking the weather service", 0.5)
    await asyncio.sleep(0.06 if city == "Bern" else 0.02)  # the first one asked is the slowest
    return f"{city}: {DEGREES[city]} degrees"


answers: list[Answer] = [
    [call("forecast", city="Bern"), call("forecast", city="Oslo"), call("forecast", city="Paris")],
    [call("forecast", city="Rome"), call("forecast", city="Bern")],
    "Rome is the warmest.",
]

traveller = Agent(
    name="traveller",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
    system="You compare the weather. Ask for several cities at once.",
    tools=[forecast],
    limits=Limits(max_concurrency=4),
)


def show(event: Event) -> None:
    match event:
        case ToolCalled():
            print(f"> {event.tool_input['city']}")
        case ToolProgress(message=message):
            print(f"  {message}")
        case ToolFinished():
            print(f"< {event.tool_result}{' (from the cache)' if event.cached else ''}")
        case _:
            pass


if __name__ == "__main__":
    result = run_sync(traveller, "Where is it warmest: Bern, Oslo, Paris or Rome?", on_event=show)
    print(
        "In the order of the calls:",
        *(block.text for block in result.history[2].content if isinstance(block, ToolResult)),
    )
    print(result.unwrap())

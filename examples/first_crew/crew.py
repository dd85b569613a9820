"""A first crew: a lead sends scouts into a folder of notes, several at a time, and a writer tells what they found.

Run it in docs, for example: `python ../examples/first_crew/crew.py "How does a run end?"`, with ANTHROPIC_API_KEY (or
another MODEL).
"""

import asyncio
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from journeyman import Agent, Event, Failure, Limits, Output, Subagents, ToolContext, stream, tool
from journeyman.events import RunFailed, RunStarted, RunSucceeded, TextDelta

MODEL = os.environ.get("MODEL", "anthropic:claude-sonnet-5-5")


@tool(parallel=True, effect="pure")
def search(context: ToolContext[Path], words: str) -> list[str]:
    """List the lines that hold these words, in any order and case, with their file and number."""
    return [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(context.deps.glob("*.md"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if all(word in line.lower() for word in words.lower().split())
    ][:50]


class Finding(BaseModel):
    answer: str
    source: str


scout = Agent(
    name="scout",
    description="Answers one question from the notes, and says where it stands.",
    model=MODEL,
    system="Search the notes. Answer with what they say, and with its source as FILE:LINE.",
    deps=Path,  # the folder of notes, which the tools of every scout need
    tools=[search],
    output=Output(Finding),
)
writer = Agent(name="writer", description="Writes a short text of given facts.", model=MODEL, system="Write plainly.")
lead = Agent(
    name="lead",
    model=MODEL,
    system="Divide the question among scouts in one parallel call, let the writer write, then say what came of it.",
    deps=Path,
    tools=[Subagents(scout, writer)],
    limits=Limits(tokens=500_000, seconds=600),  # of the whole crew
)


def show(event: Event) -> None:
    match event:
        case TextDelta(path=("lead",), text=text):
            print(text, end="", flush=True)
        case RunStarted(path=(_, name)):
            print(f"  {name} begins", flush=True)
        case RunSucceeded(path=(_, name), output=output):
            print(f"  {name} ends: {output}")
        case RunFailed(path=(_, name), error=error):
            print(f"  {name} fails: {error}")
        case _:
            pass


async def main(question: str) -> None:
    async with stream(lead, question, deps=Path.cwd()) as events:
        async for event in events:
            show(event)
    print(f"\n{events.result.metadata}")
    sys.exit(str(events.result.error) if isinstance(events.result, Failure) else 0)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "What is in these notes?"))

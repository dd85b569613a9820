"""A program of its own: several event loops, one after the other, each with runs that end in every way there is.

    python -W error -m tests.properties.loops_in_a_row [URL of a Messages API]

Without a URL the runs are in process. It prints how they ended; whatever is left open makes it fail.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from journeyman import Abort, Agent, Event, Failure, Limits, Model, Success, Text, run, stream, tool
from journeyman.events import ModelResponded, TextDelta
from journeyman.model import Part, Request
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.types import ToolUse
from tests.properties.played_model import Fault, PlayedModel, Turn

LOOPS = 3
ENDINGS = (
    *("finished: Success", "aborted: EXECUTION_CANCELLED", "cancelled: CancelledError", "late: BUDGET_EXCEEDED"),
    *("left early: CancelledError", "streamed: Success", "side by side: Success", "failed: API_ERROR"),
)


@tool(parallel=True)
async def look(value: int = 0) -> str:
    """Look."""
    await asyncio.sleep(0)
    return f"seen {value}"


@tool
def count(value: int = 0) -> str:
    """Count, in a thread."""
    return "three"


_CALLS = (ToolUse("", "look", '{"value": 1}'), ToolUse("", "look", '{"value": 2}'), ToolUse("", "count"))
_SCRIPTS = {
    "go": (Turn(content=_CALLS, stop_reason="tool_use"), Turn(content=(Text("Done."),), stop_reason="end_turn")),
    "stall": (Turn(content=(Text("Let me"),), stop_reason="end_turn", fault=Fault(kind="hangs", after=2)),),
    "fail": (Turn(content=(), stop_reason="end_turn", fault=Fault(kind="raises", after=0)),),
}


class InProcess:
    """A model that says what the server of the tests says: what the prompt asks for."""

    provider = "played"
    name = "by prompt"

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        script = _SCRIPTS[request.messages[0].text]
        return PlayedModel(script[len(request.messages) // 2 :]).stream(request)


def agent_of(url: str | None) -> Agent:
    model: Model = InProcess()
    if url is not None:
        model = AnthropicModel("claude-sonnet-4-6", api_key="key-of-the-tests", base_url=url)
    return Agent(name="hero", model=model, tools=[look, count], limits=Limits(request_retries=0))


async def ended(name: str, running: Awaitable[Success[str] | Failure]) -> str:
    try:
        result = await running
    except asyncio.CancelledError:
        return f"{name}: CancelledError"
    return f"{name}: {'Success' if isinstance(result, Success) else result.code}"


async def stopped(agent: Agent, stop: Callable[[asyncio.Task[Success[str] | Failure], Abort], object]) -> str:
    """Stop a run in the middle of an answer."""
    abort, saying = Abort(), asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            saying.set()

    task = asyncio.create_task(run(agent, "stall", abort=abort, on_event=listen))
    await saying.wait()
    stop(task, abort)
    return await ended("cancelled" if not abort.aborted else "aborted", task)


async def left_early(agent: Agent) -> str:
    async with stream(agent, "go") as events:
        async for event in events:
            if isinstance(event, ModelResponded):
                break
    try:
        return f"left early: {type(events.result).__name__}"
    except asyncio.CancelledError:
        return "left early: CancelledError"


async def streamed(agent: Agent) -> str:
    async with stream(agent, "go") as events:
        texts = [event.text async for event in events if isinstance(event, TextDelta)]
        return f"streamed: {type(events.result).__name__}" if "".join(texts) == "Done." else f"streamed: {texts}"


async def side_by_side(agent: Agent) -> str:
    results = await asyncio.gather(*(run(agent, "go") for _ in range(5)))
    return f"side by side: {' '.join({type(result).__name__ for result in results})}"


async def every_ending(url: str | None) -> list[str]:
    agent = agent_of(url)
    hurried = Agent(name="hero", model=agent.model, limits=Limits(seconds=0.05))
    return [
        await ended("finished", run(agent, "go")),
        await stopped(agent, lambda task, abort: abort.abort()),
        await stopped(agent, lambda task, abort: task.cancel()),
        await ended("late", run(hurried, "stall")),
        await left_early(agent),
        await streamed(agent),
        await side_by_side(agent),
        await ended("failed", run(agent, "fail")),
    ]


def open_things() -> tuple[int, int]:
    """Return how many files and sockets are open, and how many threads live, when nobody holds what is garbage."""
    for thread in threading.enumerate():
        if thread.name.startswith("tool "):
            thread.join()
    gc.collect()
    return sum(1 for _ in Path("/dev/fd").iterdir()), threading.active_count()


def main(url: str | None) -> int:
    """Run the loops; return the exit code."""
    asyncio.run(every_ending(url))
    before = open_things()
    for _ in range(LOOPS):
        found = asyncio.run(every_ending(url))
        sys.stdout.write("\n".join(found) + "\n")
        if found != list(ENDINGS):
            return 1
        if (now := open_things()) != before:
            sys.stdout.write(f"open before: {before}, now: {now}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))

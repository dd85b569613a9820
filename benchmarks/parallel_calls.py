"""Fifty calls in one response, of a tool that waits 20 ms; and a tool that blocks, which must not stop the others."""

from __future__ import annotations

import asyncio
import time

from benchmarks.measuring import Contender, Effort, Row, alone, compared, taking_turns
from benchmarks.work import PROMPT
from journeyman import Agent, Limits, ToolResult, run, tool
from journeyman.model import Request, Response
from journeyman.testing.scripted import FunctionModel, call, say

_WAIT_S = 0.02
_BLOCK_S = 0.2
_TICK_S = 0.001


def measure(effort: Effort) -> list[Row]:
    """Measure the wall time of parallel calls, and how long a blocking tool stalls the event loop."""
    calls = effort.size(50)
    costs = asyncio.run(
        taking_turns(
            {"journeyman": _parallel(calls), "gather": _gathered(calls)},
            rounds=effort.rounds(100),
            clock=time.perf_counter,
        )
    )
    rounds = effort.rounds(20)
    stalls = {name: asyncio.run(_stalls(work, rounds)) for name, work in _blocking().items()}
    return [
        compared(
            f"{calls} parallel calls of 20 ms",
            costs,
            ours="journeyman",
            reference="gather",
            unit="ms wall",
            scale=1e3,
            target="≤ 1.4",
        ),
        *(
            alone(f"longest stall of the event loop, tool blocks 200 ms: {name}", figures, unit="ms", target=target)
            for (name, figures), target in zip(stalls.items(), ("< 20", ""), strict=True)
        ),
    ]


@tool(parallel=True)
async def wait(number: int) -> int:
    """Wait."""
    await asyncio.sleep(_WAIT_S)
    return number


def _parallel(calls: int) -> Contender:
    asked, done = say(*(call("wait", number=number) for number in range(calls))), say("Done.")

    def answer(request: Request) -> Response:
        return asked if len(request.messages) == 1 else done

    agent = Agent(name="waiter", model=FunctionModel(answer), tools=[wait], limits=Limits(max_concurrency=calls))

    async def work() -> None:
        result = await run(agent, PROMPT)
        result.unwrap()
        found = [block.text for block in result.history[2].content if isinstance(block, ToolResult)]
        if found != [str(number) for number in range(calls)]:
            raise AssertionError(f"The results are out of order: {found}.")

    return work


def _gathered(calls: int) -> Contender:
    async def work() -> None:
        await asyncio.gather(*(asyncio.sleep(_WAIT_S) for _ in range(calls)))

    return work


@tool
def block() -> str:
    """Block the thread it runs in."""
    time.sleep(_BLOCK_S)
    return "done"


def _blocking() -> dict[str, Contender]:
    asked, done = say(call("block")), say("Done.")

    def answer(request: Request) -> Response:
        return asked if len(request.messages) == 1 else done

    agent = Agent(name="blocker", model=FunctionModel(answer), tools=[block])

    async def ours() -> None:
        (await run(agent, PROMPT)).unwrap()

    async def by_hand() -> None:
        await asyncio.to_thread(time.sleep, _BLOCK_S)

    return {"journeyman": ours, "to_thread": by_hand}


async def _stalls(work: Contender, rounds: int) -> list[float]:
    return [await _longest_stall_ms(work) for _ in range(rounds)]


async def _longest_stall_ms(work: Contender) -> float:
    """Return by how much a tick of 1 ms came late, at most, while `work` worked."""
    working = asyncio.ensure_future(work())
    longest = 0.0
    while not working.done():
        slept = time.perf_counter()
        await asyncio.wait([working], timeout=_TICK_S)
        longest = max(longest, time.perf_counter() - slept - _TICK_S)
    await working
    return longest * 1e3

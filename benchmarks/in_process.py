"""Without HTTP: the cost of an iteration, its growth, parallel calls, and what a blocking tool does to the loop."""

from __future__ import annotations

import asyncio
import time

from benchmarks import by_hand
from benchmarks.agents import BY_HAND, Report, agent, by_hand_model, scripted
from benchmarks.measuring import Pairs, Row, in_turns
from journeyman import Agent, Limits, Output, run, tool
from journeyman.model import Request, Response
from journeyman.models.scripted import FromFunction, Scripted, call, say


async def iteration(rounds: int) -> list[Row]:
    """CPU for an iteration, in runs of 20 and of 200."""
    rows: list[Row] = []
    for iterations in (20, 200):
        ours, fake = agent(scripted(iterations)), by_hand_model(iterations)
        pairs = await in_turns(
            lambda ours=ours: run(ours, "Go."),
            lambda fake=fake: by_hand.loop(fake, BY_HAND, Report, task="Go."),
            rounds=rounds * 400 // iterations,
        )
        name = f"in process, {iterations} iterations, against by hand"
        rows.append(pairs.row(name, per=iterations, unit="us/iter", target="<= 5"))
    return rows


async def growth(rounds: int) -> list[Row]:
    """CPU of iterations 900 to 1,000 against iterations 10 to 110 of the same run."""
    marks: list[float] = []
    model = scripted(1_000)

    def policy(request: Request) -> Response:
        if len(request.messages) in (21, 221, 1_801, 1_999):
            marks.append(time.process_time())
        answer = model.function(request)
        assert isinstance(answer, Response)
        return answer

    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        marks.clear()
        await run(agent(FromFunction(policy)), "Go.")
        early, late = (marks[1] - marks[0]) / 100, (marks[3] - marks[2]) / 99
        pairs.append((late, early))
    return [Pairs(pairs).row("in process, iteration 1,000 against 10", per=1, unit="us/iter", target="about 1")]


@tool(parallel=True)
async def wait(x: int) -> int:
    """Wait 20 ms."""
    await asyncio.sleep(0.02)
    return x


@tool
def block(x: int) -> int:
    """Block for 200 ms."""
    time.sleep(0.2)
    return x


async def parallel_calls(rounds: int) -> list[Row]:
    """Wall time of one response with 50 calls of 20 ms, against gathering the same sleeps."""
    numbers = range(50)

    async def ours() -> None:
        answers = [say(*(call("wait", x=number) for number in numbers)), say(call("output", total=1.0))]
        limits = Limits(parallel_calls=50)
        await run(
            Agent[Report](name="a", model=Scripted(answers), tools=[wait], output=Output(Report), limits=limits), "Go."
        )

    async def gathered() -> None:
        await asyncio.gather(*(asyncio.sleep(0.02) for _ in numbers))

    pairs = await in_turns(ours, gathered, rounds=rounds * 4, clock=time.perf_counter)
    return [pairs.row("50 parallel calls of 20 ms, against gather", per=1, unit="ms", target="<= 1.4"), await _stall()]


async def _stall() -> Row:
    longest, running = 0.0, True

    async def tick() -> None:
        nonlocal longest
        while running:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)

    ticking = asyncio.create_task(tick())
    answers = [say(call("block", x=1)), say(call("output", total=1.0))]
    await run(Agent[Report](name="a", model=Scripted(answers), tools=[block], output=Output(Report)), "Go.")
    running = False
    await ticking
    return Row(
        name="event loop held up by a tool that blocks 200 ms",
        ours=longest * 1e3,
        other=200.0,
        ratio=longest / 0.2,
        unit="ms",
        target="< 20 ms",
    )

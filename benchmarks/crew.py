"""Sub-agents in parallel, against as many runs that nobody started: 5 iterations each, on a model that takes 50 ms.

Each crowd works in a process of its own, as in `crowd.py`: `python -m benchmarks.crew NAME RUNS` prints what it took.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from benchmarks.crowd import Taken, memory
from benchmarks.measuring import Effort, Row, alone, compared
from benchmarks.ours import agent
from benchmarks.server import ROOT
from benchmarks.work import PROMPT, Report, add, is_right
from journeyman import Agent, Subagents, run
from journeyman.model import Request, Response
from journeyman.testing.scripted import FunctionModel, call, say
from journeyman.types import ToolResult

_ITERATIONS: Final = 5
_DELAY_S: Final = 0.05
_ROUNDS: Final = 7


def measure(effort: Effort) -> list[Row]:
    """Measure CPU and memory of 1,000 sub-agents, against 1,000 runs."""
    runs = effort.size(1_000)
    taken: dict[str, list[Taken]] = {name: [] for name in _CROWDS}
    for _ in range(effort.rounds(_ROUNDS)):
        for name in _CROWDS:
            taken[name].append(_taken(name, runs))
    costs = {name: [each.cpu_s / runs for each in all_taken] for name, all_taken in taken.items()}
    what = f"{runs:,} sub-agents in parallel, {_ITERATIONS} iterations each"
    kilobytes = {name: [each.bytes / runs / 1_000 for each in all_taken] for name, all_taken in taken.items()}
    return [
        compared(what, costs, ours="sub-agents", reference="runs", unit="us CPU / child", scale=1e6, target="≤ 1.5"),
        alone(f"memory of {runs:,} sub-agents", kilobytes["sub-agents"], unit="KB / child", target="< 80"),
        alone(f"memory of {runs:,} runs", kilobytes["runs"], unit="KB / run"),
    ]


def _taken(name: str, runs: int) -> Taken:
    command = [sys.executable, "-m", "benchmarks.crew", name, str(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    return Taken.model_validate_json(done.stdout)


def _child() -> Agent[Report]:
    answers = [say(call("add", {"x": 1}, id=f"call_{turn}")) for turn in range(_ITERATIONS - 1)]
    answers.append(say(call("output", {"total": 3.0}, id="last")))

    async def answer(request: Request) -> Response:
        await asyncio.sleep(_DELAY_S)
        return answers[len(request.messages) // 2]

    return agent(FunctionModel(answer), add)


async def _as_sub_agents(child: Agent[Report], runs: int) -> None:
    crew = Subagents(child, max_tasks=None, max_concurrency=None)
    tasks = [{"agent": child.name, "task": PROMPT}] * runs
    answers = [say(call("subagent", tasks=tasks, id="all")), say("done")]
    model = FunctionModel(lambda request: answers[len(request.messages) // 2])
    lead = Agent(name="lead", model=model, tools=[crew])
    result = await run(lead, "Go.")
    [answer] = [block for block in result.history[2].content if isinstance(block, ToolResult)]
    if f'"summary":"{runs}/{runs} succeeded"' not in answer.text:
        raise AssertionError("Not all sub-agents succeeded.")


async def _as_runs(child: Agent[Report], runs: int) -> None:
    for result in await asyncio.gather(*(run(child, PROMPT) for _ in range(runs))):
        is_right(result.unwrap().total)


_CROWDS: Final[dict[str, Callable[[Agent[Report], int], Awaitable[None]]]] = {
    "sub-agents": _as_sub_agents,
    "runs": _as_runs,
}


async def _crowd(name: str, runs: int) -> Taken:
    child = _child()
    await _CROWDS[name](child, 2)
    before = memory("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    await _CROWDS[name](child, runs)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Taken(wall_s=wall, cpu_s=cpu, bytes=memory("VmHWM") - before)


def main() -> None:
    """Print what a crowd took, as JSON."""
    name, runs = sys.argv[1:]
    print(orjson.dumps(asyncio.run(_crowd(name, int(runs))).model_dump()).decode())


if __name__ == "__main__":
    main()

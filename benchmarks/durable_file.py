"""Durable runs in a file: what an iteration costs more than without, in time and on the disk; replay, queue, takeover.

One iteration is two steps: the model's answer, and a call whose result is a page of 2 KB that cannot be packed. What
takes two processes starts the other one itself: `python -m benchmarks.durable_file FILE asks`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from benchmarks.measuring import Contender, Costs, Effort, Row, alone, compared, only_new_garbage, taking_turns
from benchmarks.server import ROOT
from benchmarks.work import MAX_ITERATIONS, PROMPT
from journeyman import Agent, Limits, Runtime, run, tool
from journeyman.durable import Durable, Worker
from journeyman.durable.records import DONE, Claim, Record, Status, pack_step, record_of_step
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.journal import new_id
from journeyman.model import Request, Response
from journeyman.step import RunStep, call_step, iteration_key
from journeyman.testing.scripted import FunctionModel, call, say
from journeyman.types import Effect

Noted: TypeAlias = Callable[[int], Awaitable[None]]
"""Called at each model call, with the number of those before it."""

_PAGE: Final = Random(7).randbytes(1_000).hex()


def measure(effort: Effort) -> list[Row]:
    """Measure against the same runs without a journal, and against a file in which nothing waits."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_rows(Path(folder), effort))


async def _rows(folder: Path, effort: Effort) -> list[Row]:
    waiting, queued = effort.size(10_000), effort.size(200_000)
    await _fill(folder / "waiting.db", waiting, status="waiting")
    await _fill(folder / "queued.db", queued, status="ready")
    return [
        *await _iterations(folder, effort),
        *[await _on_disk(folder, effort.size(iterations)) for iterations in (10, 100, 1_000)],
        *await _beside_waiting(folder, effort, waiting),
        *await _queue(folder, effort, queued),
        await approval(str(folder / "approval.db"), effort),
        await _takeover(folder, effort),
    ]


def reader(iterations: int, *, effect: Effect = "idempotent", at: Noted | None = None) -> Agent:
    """Return an agent that reads a page in each iteration but the last."""
    answers = [say(call("read", id=f"call_{turn}")) for turn in range(iterations - 1)]
    answers.append(say("Done."))

    async def answer(request: Request) -> Response:
        turn = len(request.messages) // 2
        if at is not None:
            await at(turn)
        return answers[turn]

    @tool(effect=effect)
    async def read() -> str:
        """Read a page."""
        return _PAGE

    return Agent(name="reader", model=FunctionModel(answer), tools=[read], limits=Limits(iterations=MAX_ITERATIONS))


async def _fill(path: Path, n_runs: int, *, status: Status) -> None:
    """Put runs into a file that nobody drives, each with the steps of one iteration."""
    async with Durable(path) as durable:
        begun = await durable.start(reader(2), PROMPT)
        row = await durable.hub.row(begun.id)
        at = row.created
        for n in range(n_runs):
            id = new_id(at + n / 1_000)
            made = replace(row, id=id, status=status, created=at + n / 1_000)
            await durable.hub.engine.add(made, _steps(Claim(made, 1), at) if status == "waiting" else ())
        await durable.stop(begun.id)
        await durable.resume(begun.id, reader(2))


def _steps(claim: Claim, at: float) -> Sequence[Record]:
    model = RunStep(key=iteration_key(1, 1, "model"), kind="model", attempt=1, iteration=1)
    steps = (RunStep(key="head", kind="head"), model, call_step(1, 1, "call_0"))
    done = partial(record_of_step, claim, state=DONE, effect="pure", at=at, used_s=0.0)
    return [done(step=each, body=pack_step(b'"x"', key=each.key)) for each in steps]


async def _iterations(folder: Path, effort: Effort) -> list[Row]:
    iterations = effort.size(100)
    rows: list[Row] = []
    async with Durable(folder / "iterations.db") as durable:
        kinds: dict[Effect, str] = {"idempotent": "≤ 0.3", "once": ""}
        for effect, target in kinds.items():
            agent = reader(iterations, effect=effect)
            contenders: dict[str, Contender] = {
                "in a file": lambda agent=agent: durable.run(agent, PROMPT),
                "without": lambda agent=agent: run(agent, PROMPT),
            }
            costs = await taking_turns(contenders, rounds=effort.rounds(30), per=iterations)
            what = f"durable, {iterations} iterations, 2 KB results"
            what += "" if effect == "idempotent" else ", calls that must not be made twice"
            row = compared(what, costs, ours="in a file", reference="without", unit="us CPU / iteration", scale=1e6)
            more = [ours - theirs for ours, theirs in zip(costs["in a file"], costs["without"], strict=True)]
            more_ms = [max(each * 1e3, 1e-6) for each in more]
            rows += [row, alone(f"{what}: more than without", more_ms, unit="ms CPU / iteration", target=target)]
    return rows


async def _on_disk(folder: Path, iterations: int) -> Row:
    path = folder / f"disk{iterations}.db"
    sizes: list[int] = []
    for length in (1, iterations):  # the first one makes the file, and whatever it always has
        async with Durable(path) as durable:
            await durable.run(reader(length), PROMPT)
        sizes.append(_size(path))
    used_kb = (sizes[1] - sizes[0]) / iterations / 1e3
    what = f"on the disk after {iterations:,} iterations, 2 KB results"
    return alone(what, [used_kb], unit="KB / iteration", target="≤ 4.5")


def _size(path: Path) -> int:
    return path.stat().st_size  # what is in the log beside it is written into it when it is closed


async def _beside_waiting(folder: Path, effort: Effort, waiting: int) -> list[Row]:
    """Compare a file in which many runs wait with an empty one: an iteration, replay, and a start."""
    iterations, rounds = effort.size(100), effort.rounds(20)
    names = {"beside them": "waiting.db", "in an empty file": "empty.db"}
    beside = f"beside {waiting:,} runs that wait"
    costs: dict[str, Costs] = {}
    opened = {name: Durable(folder / file) for name, file in names.items()}
    for durable in opened.values():
        await durable.__aenter__()
    try:
        agent = reader(iterations)
        work: dict[str, Contender] = {
            name: lambda durable=durable: durable.run(agent, PROMPT) for name, durable in opened.items()
        }
        costs["a durable iteration"] = await taking_turns(work, rounds=rounds, per=iterations)
        costs["replay"] = {name: await replays(each, iterations, rounds) for name, each in opened.items()}
        starts: dict[str, Contender] = {
            name: lambda durable=durable: durable.run(reader(1), PROMPT) for name, durable in opened.items()
        }
        costs["a run of one answer"] = await taking_turns(starts, rounds=effort.rounds(200))
    finally:
        for durable in opened.values():
            await durable.__aexit__(None, None, None)
    replays_ms = [each * 1e3 for each in costs["replay"]["in an empty file"]]
    rows = [alone(f"replay of {iterations} iterations", replays_ms, unit="ms CPU / iteration", target="≤ 0.2")]
    ours, reference = names
    for what, each in costs.items():
        what = f"{what} {beside}"
        rows.append(compared(what, each, ours=ours, reference=reference, unit="us CPU", scale=1e6, target="≈ 1"))
    return rows


async def replays(durable: Durable, iterations: int, rounds: int) -> list[float]:
    """Return what it costs, by iteration, to come to where a run was that dies in its last model call, each time."""
    reached = asyncio.Event()

    async def stand(turn: int) -> None:
        if turn == iterations - 1:
            reached.set()
            await asyncio.Event().wait()

    agent, costs = reader(iterations, at=stand), list[float]()
    handle = await durable.start(agent, PROMPT)
    with only_new_garbage():
        for _ in range(rounds + 1):
            reached.clear()
            began_s = time.process_time()
            living = asyncio.create_task(durable.resume(handle.id, agent))
            await reached.wait()
            costs.append((time.process_time() - began_s) / iterations)
            living.cancel()
            await asyncio.wait({living})
    await handle.stop("measured")
    await durable.resume(handle.id, agent)
    return costs[1:]


async def _queue(folder: Path, effort: Effort, queued: int) -> list[Row]:
    engine_s, first_s = list[float](), list[float]()
    async with Durable(folder / "queued.db") as durable:
        engine = durable.hub.engine
        for _ in range(effort.rounds(300)):
            began_s = time.perf_counter()
            [row] = await engine.ready(now=durable.hub.now(), agents=["reader"], queues=(), limit=1)
            assert await engine.claim(row.id, now=durable.hub.now()) is not None
            engine_s.append(time.perf_counter() - began_s)
        for _ in range(effort.rounds(20)):
            first_s.append(await first_step(durable))
    p99 = quantiles(engine_s, n=100)[98] if len(engine_s) > 1 else engine_s[0]
    behind = f"with {queued:,} queued"
    return [
        alone(f"to find and claim a run {behind}, p99", [p99 * 1e3], unit="ms", target="≤ 10"),
        alone(f"start to first model call {behind}", [each * 1e3 for each in first_s], unit="ms"),
    ]


async def first_step(durable: Durable) -> float:
    """Return how long it takes from the start of a run to its first model call in a worker that idles."""
    called = asyncio.Event()

    async def note(_: int) -> None:
        called.set()

    agent, stop = replace(reader(1, at=note), name="urgent"), asyncio.Event()
    serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
    await asyncio.sleep(0)
    began_s = time.perf_counter()
    handle = await durable.start(agent, PROMPT)
    await called.wait()
    taken_s = time.perf_counter() - began_s
    await handle.result()
    stop.set()
    await serving
    return taken_s


@asynccontextmanager
async def elsewhere(store: str, how: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Give a process that drives the runs of a store, and prints when it calls the model."""
    command = (sys.executable, "-m", "benchmarks.durable_file", store, how)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def called_at(process: asyncio.subprocess.Process, turn: int) -> float:
    """Wait until the process calls the model after so many calls, and return when it did."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        number, at = line.split()
        if int(number) == turn:
            return float(at)
    raise AssertionError("The other process ended.")


async def approval(store: str, effort: Effort) -> Row:
    """Measure how long a run that waits goes on after it was allowed to."""
    taken_s = list[float]()
    async with Durable(store) as durable, elsewhere(store, "asks") as process:
        for _ in range(effort.rounds(10)):
            handle = await durable.start(reader(2), PROMPT, runtime=Runtime(gate=Asking()))
            await called_at(process, 0)
            while (await handle.info()).status != "waiting":
                await durable.hub.changed(0.05)
            [question] = (await handle.info()).pending
            began_s = time.time()
            await handle.approve(question.question_id, Allow())
            taken_s.append(await called_at(process, 1) - began_s)
            await handle.result()
    return alone("approval to next model call, another process", taken_s, unit="s", target="≤ 0.5")


async def _takeover(folder: Path, effort: Effort) -> Row:
    taken_s: list[float] = []
    for n in range(effort.rounds(10)):
        path, called = folder / f"takeover{n}.db", asyncio.Event()

        async def note(_: int, called: asyncio.Event = called) -> None:
            called.set()

        async with Durable(path) as durable, elsewhere(str(path), "hangs") as process:
            agent, stop = reader(4, at=note), asyncio.Event()
            handle = await durable.start(agent, PROMPT)
            await called_at(process, 0)
            serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
            began_s = time.perf_counter()
            process.kill()
            await called.wait()
            taken_s.append(time.perf_counter() - began_s)
            await handle.result()
            stop.set()
            await serving
    return alone("takeover of a run whose process was killed", taken_s, unit="s")


class Asking:
    """Lets somebody decide about each call."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask("Read?")


async def _serve(store: str, how: str) -> None:
    async def note(turn: int) -> None:
        print(turn, time.time(), flush=True)
        if how == "hangs":
            await asyncio.Event().wait()

    gate = Asking() if how == "asks" else None
    async with Durable(store, suspend_after_s=0.0) as durable:
        await Worker(durable, agents=[reader(2, at=note)], runtime=Runtime(gate=gate)).run()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))

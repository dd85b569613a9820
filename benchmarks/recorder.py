"""What recording and telemetry cost: the loop's own time, that of durable steps that are written meanwhile, room on the
disk, and how fast recordings are found.

What takes two processes starts the other one itself: `python -m benchmarks.recorder FOLDER recorded`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.measuring import Effort, Row, alone, compared, taking_turns
from benchmarks.server import ROOT
from benchmarks.work import MAX_ITERATIONS, PROMPT
from journeyman import Agent, Limits, Runtime, run, tool
from journeyman.durable import Durable
from journeyman.events import Event, StepStored
from journeyman.loop.finish import END_STEP
from journeyman.model import Request, Response
from journeyman.otel import OpenTelemetry
from journeyman.record import Recorder, Recordings
from journeyman.store.file import File
from journeyman.store.recordings import EVENTS, events_path
from journeyman.testing.scripted import FunctionModel, call, say
from journeyman.types import Effect


def measure(effort: Effort) -> list[Row]:
    """Measure against the same run without a recorder."""
    with TemporaryDirectory() as folder:
        return [
            *asyncio.run(_iterations(Path(folder) / "runs.db", effort)),
            *asyncio.run(_told(effort)),
            *_steps_beside(effort),
            asyncio.run(_room(Path(folder) / "room.db", effort.size(200))),
            *_searches(Path(folder) / "many.db", runs=effort.size(100_000), events=effort.size(1_000_000)),
        ]


_RUNS = 20


def _reader(iterations: int, *, effect: Effect = "idempotent") -> Agent:
    answers = [*[say(call("read", id=f"call_{turn}")) for turn in range(iterations - 1)], say("Done.")]
    chance = Random(7)

    async def answer(request: Request) -> Response:
        return answers[len(request.messages) // 2]

    @tool(effect=effect)
    async def read() -> str:
        """Read a page."""
        return chance.randbytes(1_000).hex()

    return Agent(name="reader", model=FunctionModel(answer), tools=[read], limits=Limits(iterations=MAX_ITERATIONS))


async def _iterations(path: Path, effort: Effort) -> list[Row]:
    iterations = effort.size(20)
    agent = _reader(iterations)
    with Recorder(path) as recorder:

        async def recorded() -> None:
            await run(agent, PROMPT, runtime=Runtime(recorder=recorder))

        contenders = {"recorded": recorded, "without": lambda: run(agent, PROMPT)}
        rounds = effort.rounds(100)
        costs = await taking_turns(contenders, rounds=rounds, clock=time.thread_time, per=iterations)
    what = f"recorded, {iterations} iterations, in process"
    more = [(ours - theirs) * 1e6 for ours, theirs in zip(costs["recorded"], costs["without"], strict=True)]
    return [
        compared(what, costs, ours="recorded", reference="without", unit="us CPU of the loop / iteration", scale=1e6),
        alone(f"{what}: more than without", more, unit="us CPU of the loop / iteration", target="≤ 60"),
    ]


async def _told(effort: Effort) -> list[Row]:
    """Measure what telemetry costs where spans and figures are made, and go nowhere."""
    iterations = effort.size(20)
    agent = _reader(iterations)
    runtime = Runtime(
        telemetry=OpenTelemetry(TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False))
    )
    contenders = {"told": lambda: run(agent, PROMPT, runtime=runtime), "without": lambda: run(agent, PROMPT)}
    costs = await taking_turns(contenders, rounds=effort.rounds(100), clock=time.thread_time, per=iterations)
    what = f"told to OpenTelemetry, {iterations} iterations, in process"
    more = [(ours - theirs) * 1e6 for ours, theirs in zip(costs["told"], costs["without"], strict=True)]
    return [
        compared(what, costs, ours="told", reference="without", unit="us CPU of the loop / iteration", scale=1e6),
        alone(f"{what}: more than without", more, unit="us CPU of the loop / iteration"),
    ]


def _steps_beside(effort: Effort) -> list[Row]:
    """Measure how long durable steps take to be written while all is recorded, here and in another process."""
    late: dict[str, list[float]] = {"without": [], "recorded": [], "without, beside runs": [], "beside a recorder": []}
    for _ in range(effort.rounds(9)):
        for name, each in late.items():
            with TemporaryDirectory() as folder, _others(name.partition("beside ")[2]):
                took_s = asyncio.run(
                    _write_steps(Path(folder), iterations=effort.size(20), is_recorded="out" not in name)
                )
            each.append(quantiles(took_s, n=100, method="inclusive")[98])
    pairs = (("recorded", "without"), ("beside a recorder", "without, beside runs"))
    return [
        compared(
            f"a durable step is written, {_RUNS} runs at once, {ours}: p99",
            late,
            **{"ours": ours, "reference": theirs},
            unit="ms",
            scale=1e3,
            target="≤ 1.5",
        )
        for ours, theirs in pairs
    ]


async def _write_steps(folder: Path, *, iterations: int, is_recorded: bool) -> list[float]:
    """Carry runs out at once, and return how long each of their steps took to be written, except for their ends: an end
    writes the whole conversation."""
    took_s: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, StepStored) and event.key != END_STEP.key:
            took_s.append(event.duration_s)

    agent = _reader(iterations, effect="once")
    with Recorder(folder / "runs.db") if is_recorded else nullcontext() as recorder:
        runtime = Runtime(recorder=recorder)
        async with Durable(folder / "runs.db", on_event=hear) as durable:
            await asyncio.gather(*(durable.run(agent, PROMPT, runtime=runtime) for _ in range(_RUNS)))
    return took_s


@contextmanager
def _others(what: str) -> Generator[None]:
    """Let another process carry out runs meanwhile: `runs`, or those of `a recorder`."""
    if not what:
        yield
        return
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.recorder", folder, "recorded" if what == "a recorder" else "plain"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as other:
            try:
                if other.stdout is None or not other.stdout.readline():
                    raise RuntimeError("The other process did not start; it says why above.")
                yield
            finally:
                other.kill()


def _carry_out_runs(folder: Path, *, is_recorded: bool) -> None:
    """Carry out one lot of runs after the other, until this process is killed."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        asyncio.run(_write_steps(folder, iterations=20, is_recorded=is_recorded))


async def _room(path: Path, iterations: int) -> Row:
    with Recorder(path) as recorder:
        await run(_reader(1), PROMPT, runtime=Runtime(recorder=recorder))
    before = _size(path)
    with Recorder(path) as recorder:
        await run(_reader(iterations), PROMPT, runtime=Runtime(recorder=recorder))
    with Recordings(path) as recordings:
        conversation = recordings.requests(recordings.find("last"))[-1].size
    ratio = (_size(path) - before) / conversation
    what = f"room on the disk after {iterations} iterations, 2 KB results, to the size of the conversation"
    return alone(what, [ratio], unit="times", target="≤ 1.3")


def _size(path: Path) -> int:
    return events_path(path).stat().st_size


def _searches(path: Path, *, runs: int, events: int) -> list[Row]:
    Recorder(path).close()
    file = File(events_path(path), kind=EVENTS)
    with file.transaction() as connection:
        connection.executemany(
            "INSERT INTO rec_runs"
            " (id, kind, agent, model, input, owner, life, due, until, has_content, started, seen, status)"
            " VALUES (?, 'run', 'reader', 'scripted:x', 'Read it.', '', 1, 1 << 30, 1 << 30, 1, ?, ?, 'success')",
            ((f"{n:036x}", float(n), float(n)) for n in range(runs)),
        )
        connection.executemany(
            "INSERT INTO rec_events (run, n, until, at, path, kind, attempt, iteration, call, tool, body)"
            " VALUES (?, ?, 1, ?, 'reader', 'ToolFinished', 1, 1, 'c1', 'read', ?)",
            (
                (n % runs + 1, n, float(n), f'{{"tool_result":"page {n} of the book","duration_s":0.1}}')
                for n in range(events)
            ),
        )
    file.close()
    with Recordings(path) as recordings:
        began_s = time.perf_counter()
        recordings.runs(limit=50)
        listed_ms = (time.perf_counter() - began_s) * 1e3
        began_s = time.perf_counter()
        recordings.search("nothing of the kind")
        searched_ms = (time.perf_counter() - began_s) * 1e3
    return [
        alone(f"the newest of {runs:,} recordings", [listed_ms], unit="ms", target="≤ 200"),
        alone(f"a search through {events:,} events", [searched_ms], unit="ms", target="≤ 300"),
    ]


if __name__ == "__main__":
    _carry_out_runs(Path(sys.argv[1]), is_recorded=sys.argv[2] == "recorded")

"""Over loopback HTTP: against aiohttp by hand and against the official SDK; growth; a thousand runs at once."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from anthropic import AsyncAnthropic

from benchmarks import by_hand
from benchmarks.agents import BY_HAND, SPECS, Report, agent
from benchmarks.measuring import Pairs, Row, in_turns
from journeyman import Success, run
from journeyman.models.anthropic import AnthropicModel


@contextmanager
def server(iterations: int, *, tool: str = "add", delay_s: float = 0.0) -> Generator[str]:
    """Run the loopback server in a process of its own; give its address."""
    calls = [{"content": [{"type": "tool_use", "name": tool, "input": {"x": 1}}]}] * (iterations - 1)
    output = {"content": [{"type": "tool_use", "name": "output", "input": {"total": 3.0}}]}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps([*calls, output]))
        options = ["--script", str(script), "--by-turn", "--no-judging", "--delay", str(delay_s)]
        command = [sys.executable, "-m", "tests.support.messages_api", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                port = process.stdout.readline().strip() if process.stdout else ""
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


async def against_by_hand(rounds: int) -> list[Row]:
    """CPU for an iteration of 20, against aiohttp and against the SDK."""
    with server(20) as url:
        model = AnthropicModel("m", api_key="key", base_url=url)
        sdk = AsyncAnthropic(base_url=url, api_key="key", max_retries=0)
        async with model.open(), aiohttp.ClientSession() as session, sdk:
            bare, official = by_hand.over_aiohttp(session, url, SPECS), by_hand.over_sdk(sdk, SPECS)
            with_bare = await in_turns(
                lambda: _succeed(model),
                lambda: by_hand.loop(bare, BY_HAND, Report, task="Go."),
                rounds=rounds * 3,
            )
            with_sdk = await in_turns(
                lambda: _succeed(model),
                lambda: by_hand.loop(official, BY_HAND, Report, task="Go."),
                rounds=rounds,
            )
    return [
        with_bare.row("over HTTP, against aiohttp by hand", per=20, unit="us/iter", target="<= 2"),
        with_sdk.row("over HTTP, against the official SDK", per=20, unit="us/iter", target="<= 0.25"),
    ]


async def growth(rounds: int) -> list[Row]:
    """CPU of iterations 180 to 200 against iterations 5 to 25, with results of 2 KB."""
    with server(200, tool="read") as url:
        model = AnthropicModel("m", api_key="key", base_url=url)
        pairs: list[tuple[float, float]] = []
        async with model.open():
            for _ in range(max(2, rounds // 2)):
                marks: list[float] = []
                await _succeed(model, marks)
                pairs.append(((marks[199] - marks[179]) / 20, (marks[24] - marks[4]) / 20))
    return [Pairs(pairs).row("over HTTP, iteration 200 against 10", per=1, unit="us/iter", target="<= 1.8")]


async def fan_out(rounds: int, runs: int = 1_000) -> list[Row]:
    """Wall time of many runs at once, 5 requests each, at 50 ms latency; and memory per run."""
    with server(5, delay_s=0.05) as url:
        model = AnthropicModel("m", api_key="key", base_url=url)
        connector = aiohttp.TCPConnector(limit=0)
        async with model.open(), aiohttp.ClientSession(connector=connector) as session:

            async def ours() -> None:
                await asyncio.gather(*(_succeed(model) for _ in range(runs)))

            async def bare() -> None:
                asks = [by_hand.over_aiohttp(session, url, SPECS) for _ in range(runs)]
                await asyncio.gather(*(by_hand.loop(ask, BY_HAND, Report, task="Go.") for ask in asks))

            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await ours()
            kilobytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / runs
            pairs = await in_turns(ours, bare, rounds=max(2, rounds // 3), clock=time.perf_counter)
    memory = Row(
        name=f"memory of a run, of {runs:,} at once",
        ours=kilobytes,
        other=80.0,
        ratio=kilobytes / 80.0,
        unit="KB/run",
        target="< 80 KB",
    )
    return [pairs.row(f"{runs:,} runs at once, against aiohttp by hand", per=1, unit="s", target="<= 1.6"), memory]


async def _succeed(model: AnthropicModel, marks: list[float] | None = None) -> None:
    given = agent(model)
    if marks is not None:
        result = await run(given, "Go.", on_event=lambda event: _mark(event, marks))
    else:
        result = await run(given, "Go.")
    if not isinstance(result, Success):
        raise TypeError(f"The run failed: {result.error}")


def _mark(event: object, marks: list[float]) -> None:
    if type(event).__name__ == "IterationStarted":
        marks.append(time.process_time())

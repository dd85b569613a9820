"""What a batch costs: 10,000 inputs, a provider that takes 100 ms and refuses 5 of 100 requests, 40 runs at once.

It is measured against workers that one would write by hand over aiohttp, with the same retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import orjson

from benchmarks.crowd import memory
from benchmarks.measuring import Effort, Row, compared
from benchmarks.runs_in_a_row import ANSWER
from benchmarks.server import failing
from benchmarks.work import MAX_TOKENS, MODEL
from journeyman import Agent, Limits, ModelSettings, Success, run_many
from journeyman.models.anthropic.model import AnthropicModel

AT_ONCE, RETRIES, DELAY_S, SHARE = 40, 8, 0.1, 0.05


def measure(effort: Effort) -> list[Row]:
    """Measure the batch against the workers, and how its memory grows."""
    n_inputs = effort.size(10_000)
    wall: dict[str, list[float]] = {"run_many": [], "aiohttp by hand": []}
    cpu: dict[str, list[float]] = {"run_many": [], "aiohttp by hand": []}
    used: dict[str, list[float]] = {"at the end": [], "after a fifth": []}

    async def turns() -> None:
        contenders: dict[str, Callable[[str, int], Awaitable[float]]] = {"run_many": batch, "aiohttp by hand": by_hand}
        for work in contenders.values():
            await work(url, 2 * AT_ONCE)
        for _ in range(effort.rounds(3)):
            for name, work in contenders.items():
                began, began_cpu = time.perf_counter(), time.process_time()
                early = await work(url, n_inputs)
                wall[name].append((time.perf_counter() - began) / n_inputs)
                cpu[name].append((time.process_time() - began_cpu) / n_inputs)
                if name == "run_many":
                    used["after a fifth"].append(early)
                    used["at the end"].append(memory("VmRSS") / 2**20)

    with failing(ANSWER, delay_s=DELAY_S, share=SHARE) as url:
        asyncio.run(turns())
    what = f"{n_inputs:,} inputs, {AT_ONCE} at once, 5 % faults"
    return [
        compared(
            what, wall, ours="run_many", reference="aiohttp by hand", unit="us wall / input", scale=1e6, target="≤ 1.2"
        ),
        compared(what, cpu, ours="run_many", reference="aiohttp by hand", unit="us CPU / input", scale=1e6, target=""),
        compared(
            f"{what}: memory", used, ours="at the end", reference="after a fifth", unit="MiB", scale=1, target="≤ 1.05"
        ),
    ]


def texts(n_inputs: int) -> Iterator[str]:
    """Give the inputs, none of which is kept."""
    return (f"Input {number}: what does one drink at five?" for number in range(n_inputs))


async def batch(url: str, n_inputs: int) -> float:
    """Do all with `run_many`. Return how much memory was in use after the first fifth, in MiB."""
    model = AnthropicModel(MODEL, api_key="key", base_url=url)
    agent = Agent(
        name="answerer",
        model=model,
        limits=Limits(request_retries=RETRIES),
        settings=ModelSettings(max_tokens=MAX_TOKENS),
    )
    n_done, early = 0, 0.0
    async with model.open():
        async for _, result in run_many(agent, texts(n_inputs), max_concurrency=AT_ONCE):
            if not isinstance(result, Success):
                raise RuntimeError(str(result))
            n_done += 1
            if n_done == n_inputs // 5:
                early = memory("VmRSS") / 2**20
    if n_done != n_inputs:
        raise RuntimeError(f"{n_done} of {n_inputs} inputs were done")
    return early


async def by_hand(url: str, n_inputs: int) -> float:
    """Do all with workers over aiohttp."""
    inputs, answers = texts(n_inputs), list[str]()

    async def ask(session: aiohttp.ClientSession, text: str) -> str:
        body = {"model": MODEL, "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": text}]}
        for attempt in range(RETRIES + 1):
            async with session.post(f"{url}/v1/messages", data=orjson.dumps(body), headers=headers) as response:
                read = await response.read()
            if response.status == 200:
                return str(orjson.loads(read)["content"][0]["text"])
            after = response.headers.get("retry-after")
            await asyncio.sleep(2.0**attempt if after is None else float(after))
        raise RuntimeError("too many retries")

    async def worker(session: aiohttp.ClientSession) -> None:
        for text in inputs:
            answers.append(await ask(session, text))

    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(worker(session) for _ in range(AT_ONCE)))
    if len(answers) != n_inputs:
        raise RuntimeError(f"{len(answers)} of {n_inputs} inputs were done")
    return 0.0

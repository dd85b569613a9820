"""What a model call costs the caller over loopback HTTP, where the server answers at once."""

from __future__ import annotations

import asyncio

from benchmarks import hand_written, on_sdk, ours
from benchmarks.measuring import Costs, Effort, Row, compared, taking_turns
from benchmarks.server import serving


def measure(effort: Effort) -> list[Row]:
    """Measure a run of 20 iterations against both loops by hand."""
    iterations = effort.size(20)
    with serving(iterations=iterations) as url:
        costs = asyncio.run(_costs(url, iterations, effort.rounds(60)))
    what, unit = f"over HTTP, {iterations} iterations", "us CPU / iteration"
    against = [("SDK by hand", "≤ 0.25"), ("aiohttp by hand", "≤ 2")]
    return [
        compared(what, costs, ours="journeyman", reference=reference, unit=unit, scale=1e6, target=target)
        for reference, target in against
    ]


async def _costs(url: str, iterations: int, rounds: int) -> Costs:
    async with ours.over_http(url) as mine, hand_written.over_aiohttp(url) as bare, on_sdk.over_sdk(url) as sdk:
        contenders = {"journeyman": mine, "aiohttp by hand": bare, "SDK by hand": sdk}
        return await taking_turns(contenders, rounds=rounds, per=iterations)

"""What an iteration costs over Gemini's wire, against the same one over that of the Messages API.

Both servers give the same calls. The late iterations are those of a run whose every request holds a long conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from benchmarks import ours
from benchmarks.measuring import Contender, Costs, Effort, Row, compared, only_new_garbage, taking_turns
from benchmarks.server import serving
from benchmarks.work import Function, add, noting

GEMINI: Final = "journeyman, Gemini"
MESSAGES: Final = "journeyman, Messages API"
_PAGE: Final = "birdstrike" * 200


def measure(effort: Effort) -> list[Row]:
    """Measure runs of 20 and of 200 iterations, and of 200 with results of 2 KB: there the late iterations."""
    early, late = effort.size(20), effort.size(200)
    return [
        asyncio.run(_row(early, effort.rounds(60))),
        asyncio.run(_row(late, effort.rounds(15))),
        asyncio.run(_late_row(late, effort.rounds(15))),
    ]


@asynccontextmanager
async def _contenders(iterations: int, function: Function = add) -> AsyncGenerator[dict[str, Contender]]:
    with serving(iterations=iterations) as messages, serving(iterations=iterations, api="gemini") as gemini:
        async with ours.over_gemini(gemini, function) as mine, ours.over_http(messages, function) as other:
            yield {GEMINI: mine, MESSAGES: other}


async def _row(iterations: int, rounds: int) -> Row:
    async with _contenders(iterations) as contenders:
        costs = await taking_turns(contenders, rounds=rounds, per=iterations)
    return _compared(f"{iterations} iterations", costs)


async def _late_row(iterations: int, rounds: int) -> Row:
    """Return what the last tenth of the iterations costs."""
    called_at_s: list[float] = []
    costs: dict[str, list[float]] = {GEMINI: [], MESSAGES: []}
    n_late = max(1, iterations // 10)
    async with _contenders(iterations, noting(called_at_s, result=_PAGE)) as contenders:
        with only_new_garbage():
            for name in [*contenders] * rounds:
                called_at_s.clear()
                await contenders[name]()
                costs[name].append((called_at_s[-1] - called_at_s[-1 - n_late]) / n_late)
    return _compared(f"2 KB results, iterations {iterations - n_late} to {iterations}", costs)


def _compared(what: str, costs: Costs) -> Row:
    unit = "us CPU / iteration"
    whole = f"Gemini's wire, {what}"
    return compared(whole, costs, ours=GEMINI, reference=MESSAGES, unit=unit, scale=1e6, target="≤ 1.2")

"""What the loop itself costs: no network, no listener, a trivial tool, a typed output."""

from __future__ import annotations

import asyncio

from benchmarks import hand_written, ours
from benchmarks.measuring import Effort, Row, compared, taking_turns
from journeyman.errors import count


def measure(effort: Effort) -> list[Row]:
    """Measure a run of one iteration, a usual one and a long one."""
    return [
        _compared(1, effort.rounds(3_000)),
        _compared(effort.size(20), effort.rounds(600), target="≤ 5"),
        _compared(effort.size(200), effort.rounds(80)),
    ]


def _compared(iterations: int, rounds: int, target: str = "") -> Row:
    contenders = {"journeyman": ours.in_process(iterations), "by hand": hand_written.in_process(iterations)}
    costs = asyncio.run(taking_turns(contenders, rounds=rounds, per=iterations))
    return compared(
        f"in process, {count(iterations, 'iteration')}",
        costs,
        ours="journeyman",
        reference="by hand",
        unit="us CPU / iteration",
        scale=1e6,
        target=target,
    )

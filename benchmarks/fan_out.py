"""Many runs at once, of 5 requests each, where the server takes 50 ms for an answer."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.crowd import Taken
from benchmarks.measuring import Costs, Effort, Row, alone, compared
from benchmarks.server import ROOT, serving

_REQUESTS = 5
_DELAY_S = 0.05
_SDK_RUNS = 100
"""At 1,000 the SDK's connection pool needs most of a minute."""


def measure(effort: Effort) -> list[Row]:
    """Measure wall time, CPU and memory of 1,000 runs; and, of fewer, wall time against the SDK."""
    many, few = effort.size(1_000), effort.size(_SDK_RUNS)
    with serving(iterations=_REQUESTS, delay_s=_DELAY_S) as url:
        crowds = _crowds(url, many, effort.rounds(7), ["journeyman", "aiohttp by hand"])
        small = _crowds(url, few, effort.rounds(3), ["journeyman", "aiohttp by hand", "SDK by hand"])
    what = f"{many:,} runs at once, {_REQUESTS} requests each"
    hand = {"ours": "journeyman", "reference": "aiohttp by hand"}
    return [
        compared(what, _walls(crowds), **hand, unit="s wall", scale=1.0, target="≤ 1.6"),
        compared(what, _cpus(crowds), **hand, unit="s CPU", scale=1.0),
        *(
            alone(
                f"memory of {many:,} runs at once: {name}", _memory(crowds[name], many), unit="KB / run", target=target
            )
            for name, target in (("journeyman", "< 80"), ("aiohttp by hand", ""))
        ),
        *(
            compared(
                f"{few:,} runs at once, {_REQUESTS} requests each",
                _walls(small),
                ours="journeyman",
                reference=name,
                unit="s wall",
                scale=1.0,
            )
            for name in ("aiohttp by hand", "SDK by hand")
        ),
    ]


def _crowds(url: str, runs: int, rounds: int, names: list[str]) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            taken[name].append(_crowd(name, url, runs))
    return taken


def _crowd(name: str, url: str, runs: int) -> Taken:
    command = [sys.executable, "-m", "benchmarks.crowd", name, url, str(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return Taken.model_validate_json(done.stdout)


def _walls(crowds: dict[str, list[Taken]]) -> Costs:
    return {name: [taken.wall_s for taken in all_taken] for name, all_taken in crowds.items()}


def _cpus(crowds: dict[str, list[Taken]]) -> Costs:
    return {name: [taken.cpu_s for taken in all_taken] for name, all_taken in crowds.items()}


def _memory(all_taken: list[Taken], runs: int) -> list[float]:
    return [taken.bytes / runs / 1_000 for taken in all_taken]

"""Many runs at once, in a process of its own: `python -m benchmarks.crowd NAME ADDRESS RUNS` prints what they took.

A process of its own, because the memory that runs take can be seen only where no earlier run has left any behind.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import orjson
from pydantic import BaseModel

from benchmarks.measuring import Contender

HOMES = {
    "journeyman": ("benchmarks.ours", "over_http"),
    "aiohttp by hand": ("benchmarks.hand_written", "over_aiohttp"),
    "SDK by hand": ("benchmarks.on_sdk", "over_sdk"),
}
"""Where the contenders are. Only the one that is asked for is imported."""

Opened: TypeAlias = Callable[[str], AbstractAsyncContextManager[Contender]]


class Taken(BaseModel):
    """What a crowd took, all its runs together."""

    wall_s: float
    cpu_s: float
    bytes: int
    """By how much the memory of the process grew, at its peak."""


async def crowd(name: str, url: str, runs: int) -> Taken:
    """Let `runs` runs work at the same time."""
    module, function = HOMES[name]
    opened: Opened = getattr(import_module(module), function)
    async with opened(url) as work:
        await work()
        before = memory("VmRSS")
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(runs)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Taken(wall_s=wall, cpu_s=cpu, bytes=memory("VmHWM") - before)


def memory(figure: str) -> int:
    """Return how much memory this process has (`VmRSS`), or had at its peak (`VmHWM`), in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: only the peak so far is known
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1_024
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(lines[figure].split()[0]) * 1_024


def main() -> None:
    """Print what a crowd took, as JSON."""
    name, url, runs = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    taken = asyncio.run(crowd(name, url, int(runs)))
    print(orjson.dumps(taken.model_dump()).decode())


if __name__ == "__main__":
    main()

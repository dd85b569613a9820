"""`python -m benchmarks [--quick] [NAME ...]`: measure, and print a table."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Mapping

from benchmarks import http, in_process, start_up
from benchmarks.measuring import HEADER, Row

BENCHMARKS: Mapping[str, Callable[[int], Awaitable[list[Row]]]] = {
    "iteration": in_process.iteration,
    "growth": in_process.growth,
    "parallel": in_process.parallel_calls,
    "http": http.against_by_hand,
    "http-growth": http.growth,
    "fan-out": http.fan_out,
    "start-up": start_up.start_up,
}


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all if left out")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load:.1f}. Trust the ratios.\n")
    print(HEADER)
    for name in given.names or BENCHMARKS:
        for row in asyncio.run(_measured(name, 2 if given.quick else 12)):
            print(row, flush=True)


async def _measured(name: str, rounds: int) -> list[Row]:
    return await BENCHMARKS[name](rounds)


if __name__ == "__main__":
    main()

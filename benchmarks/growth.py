"""What an iteration costs late in a long run, against an early one of the same run.

Over HTTP every request carries the whole conversation, since the API keeps none: there the cost of an iteration must
grow with the bytes, and the loops by hand show how much. In process it should not grow at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks import hand_written, on_sdk, ours
from benchmarks.measuring import Contender, Effort, Row, compared, only_new_garbage
from benchmarks.server import serving
from benchmarks.work import Function, noting

_PAGE = "birdstrike" * 200
_BARE = "aiohttp by hand"

Opened: TypeAlias = Callable[[Function], AbstractAsyncContextManager[Contender]]
"""Opens a contender whose tool is the given function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Which iterations of a run are compared: `width` of them from `early` on, and from `late` on."""

    early: int
    late: int
    width: int

    @property
    def iterations(self) -> int:
        return self.late + self.width + 2

    def costs(self, called_at_s: list[float]) -> tuple[float, float]:
        """Return what an iteration cost in each window, given when each called its tool."""
        return self._cost_from(self.early, called_at_s), self._cost_from(self.late, called_at_s)

    def _cost_from(self, first: int, called_at_s: list[float]) -> float:
        return (called_at_s[first + self.width] - called_at_s[first]) / self.width


def measure(effort: Effort) -> list[Row]:
    """Measure in process and over HTTP to 1,000 iterations, and over HTTP to 200 with results of 2 KB."""
    thousand = Windows(early=effort.size(10), late=effort.size(900), width=effort.size(100))
    pages = Windows(early=effort.size(5), late=effort.size(195), width=effort.size(10))
    return [
        *asyncio.run(_rows("in process", thousand, _in_process(thousand), effort.rounds(20), target="≈ 1")),
        *_over_http("over HTTP", thousand, effort.rounds(5)),
        *_over_http("over HTTP, 2 KB results", pages, effort.rounds(20), page=_PAGE, target="≤ 1.8"),
    ]


def _in_process(windows: Windows) -> dict[str, Opened]:
    return {
        "journeyman": lambda function: nullcontext(ours.in_process(windows.iterations, function)),
        "by hand": lambda function: nullcontext(hand_written.in_process(windows.iterations, function)),
    }


def _over_http(where: str, windows: Windows, rounds: int, *, page: str = "", target: str = "") -> list[Row]:
    with serving(iterations=windows.iterations) as url:
        opened: dict[str, Opened] = {
            "journeyman": lambda function: ours.over_http(url, function),
            _BARE: lambda function: hand_written.over_aiohttp(url, function),
        }
        if page:  # to 1,000 iterations it would take minutes
            opened["SDK by hand"] = lambda function: on_sdk.over_sdk(url, function)
        return asyncio.run(_rows(where, windows, opened, rounds, page=page, target=target))


async def _rows(
    where: str, windows: Windows, opened: Mapping[str, Opened], rounds: int, *, page: str = "", target: str = ""
) -> list[Row]:
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in opened}
    called_at_s: list[float] = []
    async with AsyncExitStack() as stack:
        function = noting(called_at_s, result=page)
        contenders = {name: await stack.enter_async_context(enter(function)) for name, enter in opened.items()}
        with only_new_garbage():
            for _ in range(rounds):
                for name, work in contenders.items():
                    called_at_s.clear()
                    await work()
                    costs[name].append(windows.costs(called_at_s))
    rows = [
        _row(where, windows, name, pairs=pairs, target=target if name == "journeyman" else "")
        for name, pairs in costs.items()
    ]
    return [*rows, _against_bare(where, windows, costs)] if page else rows


def _against_bare(where: str, windows: Windows, costs: Mapping[str, list[tuple[float, float]]]) -> Row:
    """Return what a late iteration costs against one of the bare loop in the same run."""
    late = {name: [pair[1] for pair in costs[name]] for name in ("journeyman", _BARE)}
    what = f"{where}, iterations {windows.late} to {windows.late + windows.width}"
    return compared(what, late, ours="journeyman", reference=_BARE, unit="us CPU / iteration", scale=1e6, target="≤ 2")


def _row(where: str, windows: Windows, name: str, *, pairs: list[tuple[float, float]], target: str) -> Row:
    late = f"iterations {windows.late} to {windows.late + windows.width}"
    early = f"{windows.early} to {windows.early + windows.width}"
    costs = {early: [pair[0] for pair in pairs], late: [pair[1] for pair in pairs]}
    what = f"{where}, {late}: {name}"
    return compared(what, costs, ours=late, reference=early, unit="us CPU / iteration", scale=1e6, target=target)

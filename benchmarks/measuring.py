"""How things are measured here: contenders take turns in one run, and their costs are compared turn by turn.

On a busy machine a cost by itself says little: it doubles when a neighbour wakes up. Two costs that were measured one
right after the other meet the same neighbours, so a ratio of the two says more, and the median of many ratios most.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final, TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Reads seconds: `time.process_time` is CPU of this process, user and system; `time.perf_counter` is wall time."""

Contender: TypeAlias = Callable[[], Awaitable[object]]
"""Does the work once. It fails if the work was not done right."""

Costs: TypeAlias = Mapping[str, Sequence[float]]
"""What each turn of each contender cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure. The numbers that a benchmark names are those of the full effort."""

    share_of_rounds: float = 1.0
    share_of_size: float = 1.0

    def rounds(self, full: int) -> int:
        """Return how often to take turns."""
        return max(1, round(full * self.share_of_rounds))

    def size(self, full: int) -> int:
        """Return how large one turn is: iterations, runs or milliseconds."""
        return max(2, round(full * self.share_of_size))


FULL: Final = Effort()
QUICK: Final = Effort(share_of_rounds=0.1)
TINY: Final = Effort(share_of_rounds=0.0, share_of_size=0.03)
"""Only to see that everything works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    unit: str
    ours: float
    """Median."""
    reference: str = ""
    """What it is compared with; empty for a figure that stands by itself."""
    theirs: float | None = None
    """Median."""
    ratio: float | None = None
    """Median of the ratios of all turns: ours to theirs."""
    ratio_low: float | None = None
    """The ratio below which a quarter of the turns are."""
    ratio_high: float | None = None
    """The ratio above which a quarter of the turns are."""
    target: str = ""
    turns: int = 1


async def taking_turns(
    contenders: Mapping[str, Contender], *, rounds: int, clock: Clock = time.process_time, per: int = 1
) -> Costs:
    """Let the contenders work in turn, `rounds` times and once to warm up. Return their costs, divided by `per`."""
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    with only_new_garbage():
        for number in range(rounds + 1):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                started = clock()
                await contenders[name]()
                cost = (clock() - started) / per
                if number > 0:
                    costs[name].append(cost)
    return costs


@contextmanager
def only_new_garbage() -> Generator[None]:
    """Let the garbage collector look only at what is made in this block, not at all the packages imported so far."""
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


def compared(what: str, costs: Costs, *, ours: str, reference: str, unit: str, scale: float, target: str = "") -> Row:
    """Compare two contenders. `scale` turns the costs, in seconds, into `unit`."""
    mine, theirs = costs[ours], costs[reference]
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Row(
        what=what,
        unit=unit,
        ours=median(mine) * scale,
        reference=reference,
        theirs=median(theirs) * scale,
        ratio=median(ratios),
        ratio_low=low,
        ratio_high=high,
        target=target,
        turns=len(ratios),
    )


def alone(what: str, figures: Sequence[float], *, unit: str, target: str = "") -> Row:
    """Make a row of a figure that is not compared with another."""
    return Row(what=what, unit=unit, ours=median(figures), target=target, turns=len(figures))

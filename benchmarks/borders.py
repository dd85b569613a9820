"""How often a run crosses from one room of the package to another: `python -m benchmarks.borders`.

A border is crossed where code of one room calls code of another, also to make one of its values. The rooms are those of
`tests/test_architecture.py`. The run has five iterations with one tool call each, a scripted model, a typed output and
no listener; a run before it, which is not counted, loads what is loaded on first use. Nothing here depends on how fast
the machine is: the same code gives the same figures.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks import ours
from benchmarks.measuring import Contender
from benchmarks.work import PROMPT
from journeyman.agent import Runtime
from journeyman.durable import Durable
from journeyman.record import Recorder
from tests.test_architecture import FRONT_PAGE, room_of

ITERATIONS: Final = 5
MOST_ROOM_BORDERS: Final = 200
"""What the run may cross at most, between rooms."""
MOST_WITH_ONE_CALL: Final = {"plain": (208, 121), "durable and recorded": (740, 453)}
"""What a run with one call crosses at most, between modules and between rooms. These only fall."""

Pair = tuple[str, str]
"""Who calls, and who is called."""


@dataclass(slots=True)
class Crossings:
    """What was counted in one run."""

    n_calls: int = 0
    """Calls of functions of the package, resumed coroutines included."""
    modules: Counter[Pair] = field(default_factory=Counter[Pair])
    """The calls from one module to another."""

    @property
    def rooms(self) -> Counter[Pair]:
        """The calls from one room to another."""
        found: Counter[Pair] = Counter()
        for (caller, called), times in self.modules.items():
            if room_of(caller) != room_of(called):
                found[room_of(caller), room_of(called)] += times
        return found

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call. `sys.setprofile` calls this with every call and return."""
        called = module_of(frame)
        if event != "call" or called is None:
            return
        self.n_calls += 1
        caller = _caller(frame)
        if caller is not None and caller != called:
            self.modules[caller, called] += 1


def module_of(frame: FrameType) -> str | None:
    """Name the module of the package that a frame belongs to; None if it belongs to another package."""
    package, _, name = str(frame.f_globals.get("__name__", "")).partition(".")
    return (name or FRONT_PAGE) if package == "journeyman" else None


def _caller(frame: FrameType) -> str | None:
    """Name the module that called, also where another package stands between the two."""
    above = frame.f_back
    while above is not None and module_of(above) is None:
        above = above.f_back
    return None if above is None else module_of(above)


async def count_stored(folder: Path, iterations: int) -> Crossings:
    """Count what a durable run crosses that is recorded. What its threads do is not counted. It is the least of several
    runs: while a slow one goes on, the store is looked at more often."""
    agent = ours.counter(iterations)
    async with Durable(folder / "runs.db") as durable:
        with Recorder(folder / "recorded.db") as recorder:
            each = [
                await count(lambda: durable.run(agent, PROMPT, runtime=Runtime(recorder=recorder))) for _ in "12345"
            ]
    return min(each, key=lambda found: found.modules.total())


async def count(work: Contender) -> Crossings:
    """Let an agent work, and count what the run crosses."""
    await work()
    found = Crossings()
    sys.setprofile(found.note)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return found


def shown(found: Crossings) -> str:
    """Return the figures, and below them who calls whom how often."""
    n_rooms = found.rooms.total()
    over = n_rooms - MOST_ROOM_BORDERS
    verdict = (
        f"{over} more than the {MOST_ROOM_BORDERS} that are allowed" if over > 0 else f"allowed: {MOST_ROOM_BORDERS}"
    )
    lines = [
        f"A run of {ITERATIONS} iterations makes {found.n_calls} calls.",
        f"{n_rooms} of them cross from one room to another ({verdict}).",
        f"{found.modules.total()} of them cross from one module to another.",
    ]
    return "\n".join([*lines, "", "Rooms:", *_listed(found.rooms), "", "Modules:", *_listed(found.modules)])


def _listed(pairs: Mapping[Pair, int]) -> list[str]:
    by_count = sorted(pairs.items(), key=lambda each: (-each[1], each[0]))
    return [f"{times:>5}  {caller} -> {called}" for (caller, called), times in by_count]


def main() -> int:
    """Count, and print."""
    print(shown(asyncio.run(count(ours.in_process(ITERATIONS)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

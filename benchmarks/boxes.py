"""The costs of commands in a box: CPU of everything that is started, read from a cgroup, beside `bash -c true`.

What ends in a box is in no usage of children, since nobody waits for it outside. So this process enters a cgroup of its
own for as long as it measures, with all that it starts, and the time is that of the cgroup.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.measuring import Clock, Costs, Effort, Row, alone, taking_turns
from journeyman.sandbox import Box, OpenSandbox, Sandbox, choose_sandbox
from journeyman.sandbox.trials import visible_folder
from journeyman.toolbox import Workspace
from tests.toolbox.player import Player

_CGROUPS: Final = Path("/sys/fs/cgroup")
_BASH: Final = "bash -c true"
_SETTLED_S: Final = 0.02
"""How long it takes until all has ended that belongs to a command."""


def measure(effort: Effort) -> list[Row]:
    """Measure what it costs to open a box, and to run a command in it, by itself and as an agent's."""
    sandbox = choose_sandbox()
    with visible_folder() as folder, _cpu_clock() as clock:
        costs = asyncio.run(_costs(sandbox, folder, clock, effort.rounds(50)))
    sandbox.close()
    rows = [
        alone(f"{sandbox.name}: open a box with its keeper", _more(costs, "open", "box"), unit="ms CPU", target="≤ 20"),
        alone(_BASH, [each * 1e3 for each in costs[_BASH]], unit="ms CPU"),
    ]
    for name, what, target in (
        ("box", "in an open box", "≤ 3"),
        ("tool in a box", "in a box, of a run with one", ""),
        ("tool", "without a box, of a run with one", ""),
    ):
        rows.append(alone(f"a command {what}: more than that", _more(costs, name, _BASH), unit="ms CPU", target=target))
    return rows


def _more(costs: Costs, name: str, other: str) -> Sequence[float]:
    return [(one - two) * 1e3 for one, two in zip(costs[name], costs[other], strict=True)]


async def _costs(sandbox: Sandbox, folder: Path, clock: Clock, rounds: int) -> Costs:
    box = Box(work=str(folder))
    opened = sandbox.open(box)
    boxed, plain = (Workspace(folder, sandbox=each) for each in (sandbox, None))
    players = [Player(workspace) for workspace in (boxed, plain)]

    async def run_by_hand() -> None:
        process = await asyncio.create_subprocess_exec("bash", "-c", "true", env={"PATH": os.defpath})
        assert await process.wait() == 0
        await asyncio.sleep(_SETTLED_S)

    async def open_and_run() -> None:
        fresh = sandbox.open(box)
        await _run_in(fresh)
        fresh.close()
        await asyncio.sleep(_SETTLED_S)

    try:
        return await taking_turns(
            {
                _BASH: run_by_hand,
                "open": open_and_run,
                "box": lambda: _run_in(opened),
                "tool in a box": lambda: _run_by(players[0]),
                "tool": lambda: _run_by(players[1]),
            },
            rounds=rounds,
            clock=clock,
        )
    finally:
        opened.close()
        boxed.close()
        plain.close()


async def _run_in(opened: OpenSandbox) -> None:
    process = await opened.spawn("bash", ["-c", "true"], environment={"PATH": os.defpath})
    assert await process.wait() == 0
    await process.wait_for_all()
    process.close()
    await asyncio.sleep(_SETTLED_S)


async def _run_by(player: Player) -> None:
    assert await player.text("bash", command="true") == "[exit code 0]"
    await asyncio.sleep(_SETTLED_S)


@contextmanager
def _cpu_clock() -> Generator[Clock]:
    """Give a clock of the CPU time of this process and all that it starts meanwhile.

    Raises:
        SystemExit: this process may not make a cgroup.
    """
    old = _CGROUPS / "cpuacct"
    root = old if old.is_dir() else _CGROUPS
    try:
        group = Path(tempfile.mkdtemp(prefix="journeyman-", dir=root))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise SystemExit(f"No cgroup can be made below {root}, so nobody counts what ends in a box: {error}") from error

    def read() -> float:
        if root is old:
            return int((group / "cpuacct.usage").read_text()) / 1e9
        facts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(facts["usage_usec"]) / 1e6

    try:
        yield read
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()

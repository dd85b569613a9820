"""A durable run goes on from wherever its process was killed, and nothing that must not happen twice does.

`make crash` tries every point at which the process can be killed, many pairs of them, and a power cut at each, half of
them with a recorder on the same store; here a few are tried, chosen by the seed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.durable.crash import SKIPPED
from tests.durable.crash_judge import Line, Lives, faults
from tests.durable.crash_program import EFFECTS

_CRASH = os.environ.get("JOURNEYMAN_CRASH", "4")
"""How many cases: a number, or `all`."""
_SEED = os.environ.get("JOURNEYMAN_CRASH_SEED", "7")
_WORKERS = int(os.environ.get("JOURNEYMAN_CRASH_WORKERS", "1"))
LEAST_POINTS = 340
"""At least so many points at which the process can be killed; there are some thirty more in a file."""
_PROGRAM = (sys.executable, "-m", "tests.durable.crash")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.mark.timeout(3_600 if _CRASH == "all" else 120)
@pytest.mark.parametrize("store", ["file", "database"])
def test_a_run_that_is_killed_anywhere_ends_as_if_nobody_had_killed_it(store: str) -> None:
    n_cases = _CRASH if store == "file" or _CRASH == "all" else str(int(_CRASH) // 2)
    chosen = ["--postgres"] * (store == "database") + ["--sample", n_cases] * (_CRASH != "all")
    parts = [
        subprocess.Popen(
            [*_PROGRAM, "--seed", _SEED, *chosen, "--share", f"{part + 1}/{_WORKERS}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for part in range(_WORKERS)
    ]
    said = [part.communicate()[0] for part in parts]
    counts: Counter[str] = Counter()
    for line in "".join(said).splitlines():
        if line.startswith('{"points": '):
            told = json.loads(line)
            counts.update(told["cases"])
            assert told["points"] >= LEAST_POINTS, "a statement that no connection hears of kills nobody"
    report = f"in a {store}, seed {_SEED}, {sum(counts.values())} cases: {dict(sorted(counts.items()))}"
    print(f"\n{report}")  # noqa: T201 - `make crash` shows it
    if [part.returncode for part in parts] == [SKIPPED] * _WORKERS:
        pytest.skip(said[0].strip())
    assert [part.returncode for part in parts] == [0] * _WORKERS, "\n".join((report, *said))
    assert any("recorded" in each for each in counts)
    assert sum(counts.values()) >= ({"file": 1_000, "database": 800}[store] if _CRASH == "all" else int(n_cases))


@pytest.mark.parametrize(
    ("killed", "is_wrong"),
    [
        (["died before COMMIT", "status running", "died after model a"], False),  # 17,134: before the first claim
        (["status running", "status waiting", "died after COMMIT", "status running", "died after model a"], False),
        (["status running", "died after COMMIT", "status running", "died after model a"], True),
        (["status running", "died after COMMIT", "status waiting", "status running", "died after model a"], False),
    ],
)
def test_a_model_call_counts_as_cut_by_each_death_of_who_held_the_run_but_the_first(
    killed: list[str], *, is_wrong: bool
) -> None:
    lives = _lives(*killed)
    found = [each for each in faults(lives, lives) if "cut by the deaths" in each]
    assert len(found) == is_wrong


def _lives(*lines: str, **more: Any) -> Lives:
    result = {"code": "SUCCESS", "usage": {"requests": 1, "exact": True}}
    outcome: dict[str, Any] = {"status": "done", "cut": 0, "result": result, "stored": result}
    outcome |= {"unknown": [], "keys": [], "faults": [], **more}
    return Lives(lines=[Line(1, *each.split(" ", 1)) for each in lines], outcome=outcome)


@pytest.mark.parametrize(
    ("lines", "changed", "n_wrong"),
    [
        (["ended done"], {}, 0),
        (["ended done", "died after COMMIT"], {"status": "running", "events": [["leader", "RunStarted"]]}, 0),
        (["died after COMMIT", "ended done"], {"status": "running", "events": [["leader", "RunStarted"]]}, 1),
        (["ended done"], {"events": [["leader", "RunStarted"]]}, 1),
        (["ended done"], {"events": [["leader", "RunStarted"], ["leader", "RunSucceeded"]] * 2}, 2),
        (["ended done"], {"cut": [7]}, 1),
        (["ended done"], {"id": "another"}, 1),
    ],
)
def test_the_judge_sees_a_recording_that_is_wrong(lines: list[str], changed: dict[str, Any], n_wrong: int) -> None:
    recording: dict[str, Any] = {"id": "run", "status": "done", "why": None, "cut": []}
    recording |= {"events": [["leader", "RunStarted"], ["leader", "RunSucceeded"]], **changed}
    lives = _lives(*lines, id="run", lives=1, recordings=[recording])
    assert len([each for each in faults(lives, lives) if "recording" in each]) == n_wrong


@pytest.mark.parametrize(
    ("status", "loses_power", "n_wrong"), [("died", True, 0), ("died", False, 1), ("done", True, 1)]
)
def test_a_run_that_a_power_cut_took_may_leave_a_recording(status: str, *, loses_power: bool, n_wrong: int) -> None:
    recording: dict[str, Any] = {"id": "run", "status": "done", "why": None, "cut": []}
    recording["events"] = [["leader", "RunStarted"], ["leader", "RunSucceeded"]]
    lives = _lives("ended done", id="run", lives=1, recordings=[recording, {**recording, "id": "x", "status": status}])
    wrong = [each for each in faults(lives, lives, loses_power=loses_power) if "recordings" in each]
    assert len(wrong) == n_wrong


_OPTIONS = ("-f", "-y", "-s", "5000", "-e", "trace=write,pwrite64,fsync,fdatasync")
_BEGINS = re.compile(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\(\d+<([^>]*)>")
_PID = re.compile(r"\[pid +(\d+)\]|(\d+) ")


def _late_calls(trace: Sequence[str]) -> Iterator[str]:
    """Yield the `once` calls that took effect before it was on the disk that they were begun."""
    steps = [*_steps(trace)]
    for id in [id for id, effect in EFFECTS.items() if effect == "once"]:
        written = _first(steps, rf"pwrite64 .*-wal .*call/{id}begun", 0)
        synced = _first(steps, r"f(data)?sync .*-wal ", written)
        done = _first(steps, rf"write .*/log .*\b1 did {id}\\n", 0)
        if not written < synced < done < len(steps):
            yield f"{id}: begun in step {written}, synced in {synced}, took effect in {done} of {len(steps)}"


def _first(steps: Sequence[str], pattern: str, after: int) -> int:
    """Return the number of the first step behind `after` that fits; that behind all steps if there is none."""
    return next((n for n in range(after, len(steps)) if re.match(pattern, steps[n])), len(steps))


def _steps(trace: Sequence[str]) -> Iterator[str]:
    """Yield the calls of the system as `NAME FILE LINE`: a sync where it has ended, all else where it begins."""
    syncing: dict[str, str] = {}
    for line in trace:
        whose = _PID.match(line)
        pid = "" if whose is None else whose[1] or whose[2]
        found = _BEGINS.match(line)
        if found is not None and "sync" in found[1] and "unfinished" in line:
            syncing[pid] = f"{found[1]} {found[2]} {line}"
        elif found is not None:
            yield f"{found[1]} {found[2]} {line}"
        elif "sync resumed" in line and pid in syncing:
            yield syncing.pop(pid)


def test_no_call_takes_effect_before_it_is_on_the_disk_that_it_was_begun(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip(
            "strace is not installed: what is synced is not seen; that nothing is lost by a power cut is, above"
        )
    trace = tmp_path / "trace"
    traced = subprocess.run(
        [strace, *_OPTIONS, "-o", str(trace), *_PROGRAM, "--sample", "0"], capture_output=True, text=True, check=False
    )
    if "ptrace" in traced.stderr and not trace.stat().st_size:
        pytest.skip(f"strace may not look here: {traced.stderr.splitlines()[-1]}")
    assert traced.returncode == 0, traced.stdout + traced.stderr
    lines = trace.read_text(errors="replace").splitlines()
    assert [*_late_calls(lines)] == []
    without_syncs = [line for line in lines if "sync" not in line]
    assert len([*_late_calls(without_syncs)]) == [*EFFECTS.values()].count("once"), "it would be seen"

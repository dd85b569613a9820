"""Whether what strace has seen of one life shows that each call was on the disk as begun before it took effect."""

import re
from collections.abc import Iterator, Sequence

from tests.durable.crash_program import EFFECTS

OPTIONS = ("-f", "-y", "-s", "5000", "-e", "trace=write,pwrite64,fsync,fdatasync")
_BEGINS = re.compile(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\(\d+<([^>]*)>")
_PID = re.compile(r"\[pid +(\d+)\]|(\d+) ")


def late_calls(trace: Sequence[str]) -> Iterator[str]:
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

"""Kills the program of the crash tests, and judges what came of it: `python -m tests.durable.crash --help`.

This process does nothing itself: each life is a fork of it, which costs next to no time. Without arguments every kill
point is tried, half of them with a recorder on the same store; `--kills N` or `--kills N,M` repeats one case, and shows
its log.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from journeyman.durable import schema_sql
from journeyman.durable.records import DONE
from tests.durable.crash_judge import Line, Lives, faults
from tests.durable.crash_program import MORE_TOKENS, MOST_TOKENS, World, live
from tests.support.postgres import NoPostgres, PostgresServer

MOST_LIVES = 8
LONGEST_S = 20
_SETTINGS = ("max_connections=200", "fsync=off", "full_page_writes=off", "autovacuum=off", "wal_writer_delay=10s")
"""What a database has not synced when the power goes, it has not written by chance."""
SKIPPED = 3
"""The exit code where there is no Postgres."""


@dataclass(frozen=True, slots=True)
class Case:
    """Where the lives of one run die, by the numbers of their points."""

    kills: tuple[int, ...]
    loses_power: bool = False
    """The store is then as it was on the disk: what was written after the last sync is gone."""
    stays: bool = False
    """The run does not leave memory while it waits: all others are compared with that one."""
    is_recorded: bool = False
    """A recorder on the same store is open all the time. Its points come when they come: the same numbers of two cases
    may be other places."""

    def __str__(self) -> str:
        power, recorded = " --power" * self.loses_power, " --record all" * self.is_recorded
        return f"python -m tests.durable.crash --kills {','.join(map(str, self.kills))}{power}{recorded}"


def run_case(case: Case, folder: Path, server: PostgresServer | None = None) -> Lives:
    """Let a run live until it is over, and return what its lives have left. With a server, in a database there.

    Raises:
        RuntimeError: a life did not end as it should.
    """
    folder.mkdir(parents=True)
    log, outcome = folder / "log", folder / "outcome"
    store = folder / "runs.db" if server is None else server.url(server.emptied(schema_sql()))
    for life in range(1, MOST_LIVES + 1):
        kill = case.kills[life - 1] if life <= len(case.kills) else 0
        status = _forked(folder, case, life, store=store, dies_at=kill)
        if server is not None:  # the next life does not begin before the database knows that this one has ended
            server.kill_connections("application_name LIKE 'journeyman %%'")
        if status == 0:
            break
        if status != -signal.SIGKILL:
            error = folder / "error"
            words = error.read_text() if error.exists() else "it hung" if status == -signal.SIGALRM else f"{status}"
            raise RuntimeError(f"life {life}: {words}\n{_tail(log)}")
        if case.loses_power and server is not None:
            server.restart()
        elif case.loses_power:
            _lose_power(folder)
    else:
        raise RuntimeError(f"it has not ended after {MOST_LIVES} lives\n{_tail(log)}")
    lines = [Line(int(life), word, what) for life, word, what in _split(log)]
    return Lives(lines=lines, outcome=json.loads(outcome.read_text()))


def _split(log: Path) -> Iterator[list[str]]:
    return (line.split(" ", 2) for line in log.read_text().splitlines())


def _tail(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-15:]) if log.exists() else ""


def _forked(folder: Path, case: Case, life: int, *, store: Path | str, dies_at: int) -> int:
    """Let one life pass in a process of its own. Return how it ended: 0, or the signal as a negative number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(LONGEST_S)
            log = os.open(folder / "log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            words = os.open(folder / "warnings", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            os.dup2(words, 2)
            n_more = max(0, len(case.kills) - 1)
            most_tokens = MOST_TOKENS + n_more * MORE_TOKENS
            world = World(log, life, dies_at, store=store, stays=case.stays, most_tokens=most_tokens)
            world.notes_syncs, world.is_recorded = case.loses_power, case.is_recorded
            asyncio.run(live(world, folder / "outcome"))
            status = 0
        except BaseException:  # noqa: BLE001 - told to the process above
            (folder / "error").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _lose_power(folder: Path) -> None:
    """Cut the log of SQLite to what was on the disk when the process died."""
    log = folder / "runs.db-wal"
    synced = [what.split() for _, word, what in _split(folder / "log") if word == "synced"]
    (folder / "runs.db-shm").unlink(missing_ok=True)
    if not synced or not log.exists():
        return
    size, begin = synced[-1]
    with log.open("r+b") as file:
        if file.read(32).hex() == begin:
            file.truncate(int(size))


_MORE = 10
"""So many points more than were counted once may be reached, since processes are never scheduled twice alike."""


def all_cases(n_points: int, seed: int, *, n_double: int, power_step: int) -> list[Case]:
    """Return each kill point, also with a power cut, and some pairs. `power_step`: of so many points, one has a cut."""
    random = Random(seed)
    points = range(1, n_points + _MORE + 1)
    pairs = [(first, random.randint(1, n_points + 2 * _MORE - first)) for first in random.choices(points, k=n_double)]
    cut = [Case((point,), loses_power=True) for point in points[seed % power_step :: power_step]]
    return [Case(()), *[Case((point,)) for point in points], *cut, *[Case(pair) for pair in pairs]]


def judged(
    cases: Sequence[Case], undisturbed: Lives, folder: Path, server: PostgresServer | None
) -> Iterator[tuple[Case, str, list[str]]]:
    """Yield what came of each case: how often it was killed, and whether its result is equal, or a call was told as
    unknown; and what is wrong."""
    for number, case in enumerate(cases):
        place = folder / f"{number}"
        try:
            lives = run_case(case, place, server)
            found = list(faults(lives, undisturbed, loses_power=case.loses_power))
            n_killed = sum([line.word == "died" for line in lives.lines])
            what = f"power cut {n_killed}" if case.loses_power and n_killed else f"killed {n_killed}"
            came_of_it = f"{what}: {'unknown' if lives.unknown else 'equal'}{', recorded' * case.is_recorded}"
        except RuntimeError as error:
            found, came_of_it = [str(error)], "broken"
        yield case, came_of_it, found
        shutil.rmtree(place)


def main() -> int:
    """Run what the arguments say, and print how it went; the exit code tells whether anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.durable.crash")
    parser.add_argument("--kills", help="the points at which the first, the second, … life dies: 12 or 12,40")
    parser.add_argument("--power", action="store_true", help="the power is cut with each kill")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--double", type=int, default=500, help="how many runs are killed twice")
    parser.add_argument("--sample", type=int, help="only so many cases, chosen by the seed")
    parser.add_argument("--record", choices=("none", "half", "all"), default="half", help="how many runs are recorded")
    parser.add_argument("--share", default="1/1", help="2/3: the second of three parts of the cases")
    parser.add_argument("--postgres", action="store_true", help="in a database instead of a file")
    given = parser.parse_args()
    try:
        server = PostgresServer(*_SETTINGS) if given.postgres else None
    except NoPostgres as error:
        print(f"skipped: no Postgres can be had: {error}")  # noqa: T201 - a program
        return SKIPPED
    try:
        with tempfile.TemporaryDirectory(prefix="journeyman-crash-") as name:
            folder = Path(name)
            undisturbed = run_case(Case((), stays=True), folder / "undisturbed", server)
            # What no connection has heard has no kill point either.
            n_heard = sum([line.word == "stored" for line in undisturbed.lines])
            assert n_heard == sum([each.endswith(f" {DONE}") for each in undisturbed.outcome["keys"]])
            if given.kills:
                kills = tuple(map(int, given.kills.split(",")))
                case = Case(kills, given.power, is_recorded=given.record == "all")
                return _one(case, undisturbed, folder, server)
            return _many(given, undisturbed, folder, server)
    finally:
        if server is not None:
            server.stop()


def _one(case: Case, undisturbed: Lives, folder: Path, server: PostgresServer | None) -> int:
    place = folder / "case"
    try:
        lives = run_case(case, place, server)
    finally:
        print((place / "log").read_text())  # noqa: T201 - a program
        print((place / "warnings").read_text())  # noqa: T201
    found = list(faults(lives, undisturbed, loses_power=case.loses_power))
    print(f"unknown: {sorted(lives.unknown)}", *found, sep="\n")  # noqa: T201
    return bool(found)


def _many(given: Any, undisturbed: Lives, folder: Path, server: PostgresServer | None) -> int:  # noqa: ANN401 - of argparse
    n_points = run_case(Case(()), folder / "not killed", server).outcome["points"]
    # To start a database again takes as long as three lives.
    cases = all_cases(n_points, given.seed, n_double=given.double, power_step=1 if server is None else 8)
    if given.sample is not None:
        cases = Random(given.seed).sample(cases, given.sample)
    part, n_parts = map(int, given.share.split("/"))
    # Of two seeds that follow each other, each records what the other does not.
    recorded = {"none": (), "half": (given.seed % 2,), "all": (0, 1)}[given.record]
    cases = [replace(case, is_recorded=n % 2 in recorded) for n, case in enumerate(cases[part - 1 :: n_parts])]
    n_ways: Counter[str] = Counter()
    n_wrong = 0
    for case, came_of_it, found in judged(cases, undisturbed, folder, server):
        n_ways[came_of_it] += 1
        if found:
            n_wrong += 1
            print(f"FAULT  {case}{' --postgres' * given.postgres}\n  " + "\n  ".join(found), flush=True)  # noqa: T201
    print(json.dumps({"points": n_points, "wrong": n_wrong, "cases": n_ways}))  # noqa: T201
    return bool(n_wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Does a test fail where a line is wrong? `python -m tools.mutants --seed 7 --count 40` plants faults one by one.

Each is planted in a copy of the checkout and tried with the tests nearest to it, then with those of its room, then with
all that name the room; a test that fails without it too is no witness. What comes of it is a line in
`tools/mutants.jsonl`: `killed`, with the test; or `survived`, until somebody has judged it: a `gap`, or `equivalent`
where nobody could see it.

The libraries that do this were looked at. One puts all faults of a module into it at once and chooses one in its own
process, where the tests of this project begin others; the other works in the checkout itself. Neither chooses by a
seed, goes from near tests to far ones, or keeps what was judged.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal, TypeAlias

from tools.changes import Change, changes

Verdict: TypeAlias = Literal["killed", "survived", "gap", "equivalent"]

ENOUGH: Final = 0.8
"""So many of those that are not equivalent must be killed."""
_LEFT_OUT: Final = (".git", ".venv", ".tools", ".cache", "node_modules", "__pycache__", "dist")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::[^\n]*?)?)(?: - .*)?$", re.MULTILINE)
_WITHOUT_A_NAME: Final = " (exit code "
"""How a failure ends that is none of a test."""
_MOST_DOUBTED: Final = 3
"""So many tests that fail by themselves are left out before the rest is not asked any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one fault."""

    seed: int
    place: str
    """The module, and the line."""
    old: str
    new: str
    verdict: Verdict
    test: str = ""
    """The test that fails."""
    note: str = ""
    """Why it is judged so, or how far it was tried."""
    on: str = ""
    """The day."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault that can be planted."""

    module: Path
    """From the checkout on."""
    change: Change

    @property
    def place(self) -> str:
        return f"{self.module}:{self.change.line}"


def rate(judged: Sequence[Judged]) -> float:
    """Return the part of those that are not equivalent which was killed; 1 where there is none."""
    counted = [each for each in judged if each.verdict != "equivalent"]
    return sum(each.verdict == "killed" for each in counted) / len(counted) if counted else 1.0


def load(file: Path) -> list[Judged]:
    """Return what was judged so far."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [Judged(**json.loads(line)) for line in text.splitlines()]


def mutants(root: Path, *, room: str = "") -> list[Mutant]:
    """Return all faults that can be planted in the package, or in one room or module of it."""
    found: list[Mutant] = []
    for module in sorted((root / "src").rglob("*.py")):
        path = module.relative_to(root)
        if not room or room in (path.stem, *path.parts[2:-1]):
            found += [Mutant(path, each) for each in changes(module.read_bytes())]
    return found


def stages(root: Path, module: Path) -> Iterator[list[str]]:
    """Give the tests to ask, the nearest first: those that import the module, the room's, and all that name it."""
    package, *inner = module.with_suffix("").parts[1:]
    dotted = ".".join([package, *[each for each in inner if each != "__init__"]])
    above = dotted.rpartition(".")[0] if len(inner) > 1 else dotted
    files = [each for each in sorted((root / "tests").rglob("test_*.py")) if "typing" not in each.parts]
    texts = {each: each.read_text(encoding="utf-8") for each in files}
    near = [each for each in files if re.search(rf"\b{re.escape(dotted)}\b", texts[each])]
    rooms = [each for each in files if inner and inner[0] == each.relative_to(root / "tests").parts[0]]
    by_name = [each for each in rooms if inner[-1] in each.stem.split("_")]
    far = [each for each in files if re.search(rf"\b{re.escape(above)}\b", texts[each])]
    gates = [each for each in files if each.stem in ("test_architecture", "test_any_run", "test_examples")]
    asked: set[Path] = set()
    for stage in ([*by_name, *near], rooms, [*far, *gates]):
        new = [each for each in dict.fromkeys(stage) if each not in asked]
        asked |= {*new}
        if new:
            yield [str(each.relative_to(root)) for each in new]


class Copy:
    """A copy of the checkout, with an environment in which the package is the one of the copy."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.root = folder / "checkout"
        shutil.copytree(checkout, self.root, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
        venv.create(self.root / ".venv", symlinks=True)
        self._python = self.root / ".venv" / "bin" / "python"
        (site,) = (self.root / ".venv" / "lib").glob("*/site-packages")
        (site / "copy.pth").write_text(f"{self.root / 'src'}\n{sysconfig.get_path('purelib')}\n")

    def check(self) -> None:
        """See to it that tests can be run here: whatever keeps all of them from it would be taken for a witness.

        Raises:
            SystemExit: they cannot.
        """
        found = sorted((self.root / "tests").rglob("test_*.py"))
        failing = self.failing(["--collect-only", *[str(each) for each in found[:1]]], limit_s=300)
        if failing is not None:
            raise SystemExit(f"No test can be run in the copy: {failing}")

    def failing(self, tests: Sequence[str], *, limit_s: float, without: Sequence[str] = ()) -> str | None:
        """Return the first test that fails. None: none does.

        Raises:
            TimeoutError: it takes too long.
        """
        words = ["-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:randomly", "-m", "not browser"]
        words += [f"--deselect={each}" for each in without]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        process = subprocess.Popen(
            [str(self._python), *words, *tests],
            cwd=self.root,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode in (0, 5):  # none was collected
            return None
        found = _FAILED.search(said)
        return found[1] if found else f"{tests[-1]}{_WITHOUT_A_NAME}{process.returncode})"

    def judge(self, mutant: Mutant, *, limit_s: float) -> tuple[Verdict, str, str]:
        """Plant a fault, ask the tests, and take it back. Return the verdict, the test that fails, and how far."""
        file = self.root / mutant.module
        whole = file.read_bytes()
        ends, without, n_asked = time.monotonic() + limit_s, list[str](), 0
        for stage in stages(self.root, mutant.module):
            while True:
                file.write_bytes(mutant.change.made_in(whole))
                try:
                    test = self.failing(stage, limit_s=ends - time.monotonic(), without=without)
                except TimeoutError:
                    return "survived", "", f"not tried to the end: {n_asked} files of tests in {limit_s:.0f} s"
                finally:
                    file.write_bytes(whole)
                if test is None:
                    break
                if _WITHOUT_A_NAME in test or not self._fails_anyway(
                    test
                ):  # a package that cannot be imported has none
                    return "killed", test, ""
                without.append(test)
                if len(without) > _MOST_DOUBTED:
                    break
            n_asked += len(stage)
        return "survived", "", f"tried to the end: {n_asked} files of tests"

    def _fails_anyway(self, test: str) -> bool:
        """Tell whether a test fails without a fault, too."""
        try:
            return self.failing([test], limit_s=300) is not None
        except TimeoutError:
            return True


def main(words: Sequence[str] | None = None) -> int:
    """Plant faults, and tell how many the tests found; 1 if those are too few."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--room", default="", help="a room, or a module")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    given = parser.parse_args(words)
    every = mutants(given.root, room=given.room)
    chosen = Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"seed {given.seed}: {len(chosen)} of {len(every)} faults", flush=True)
    file, made = given.root / "tools" / "mutants.jsonl", list[Judged]()
    file.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(given.root, Path(folder))
        copy.check()
        for mutant in chosen:
            verdict, test, note = copy.judge(mutant, limit_s=given.limit)
            old, new = mutant.change.old, mutant.change.new
            day = time.strftime("%Y-%m-%d")
            made.append(
                Judged(
                    seed=given.seed, place=mutant.place, old=old, new=new, verdict=verdict, test=test, note=note, on=day
                )
            )
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(made[-1])) + "\n")
            print(f"{verdict}: {mutant.place}: {old!r} -> {new!r} {test or note}", flush=True)
    n_killed = sum(each.verdict == "killed" for each in made)
    print(f"{n_killed} of {len(made)} were killed: {rate(made):.0%}")
    return 0 if rate(made) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())

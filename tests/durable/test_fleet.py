"""Several workers drive the runs of one database while they are killed and stopped, and the database is restarted.

`make crash` does it with more jobs, several times, and with each dispatcher.
"""

import os
import subprocess
import sys

import pytest

_IS_LONG = os.environ.get("JOURNEYMAN_CRASH") == "all"
_SEED = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "7"))
_SKIPPED = 3
_SEEDS = range(_SEED, _SEED + (5 if _IS_LONG else 1))
_CASES = [(name, seed) for name in ("procrastinate", "pgqueuer")[: 2 if _IS_LONG else 1] for seed in _SEEDS]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.mark.timeout(160)
@pytest.mark.parametrize(("dispatcher", "seed"), _CASES)
def test_every_job_ends_once_whatever_becomes_of_its_workers_and_the_database(dispatcher: str, seed: int) -> None:
    words = ("--jobs", "200" if _IS_LONG else "24", "--seed", str(seed), "--dispatcher", dispatcher)
    done = subprocess.run(
        [sys.executable, "-m", "tests.durable.fleet", *words], capture_output=True, text=True, check=False
    )
    print(f"\n{done.stdout}")  # noqa: T201 - `make crash` shows it
    if done.returncode == _SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr

"""A skip that hides a proof is a failure: where everything was set up, and for a reason that nobody has listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import fault_of

ROOT = Path(__file__).parents[2]
NO_POSTGRES = "no Postgres can be had: there is no wheel"
NO_NPM = "aimock is not installed: make test does it, if npm can reach a registry"


@pytest.mark.parametrize(
    ("reason", "environment", "begins"),
    [
        (NO_POSTGRES, {}, None),
        (NO_POSTGRES, {"JOURNEYMAN_CI": ""}, None),
        (NO_POSTGRES, {"JOURNEYMAN_CI": "1"}, "Skipped where everything was set up: no Postgres"),
        (NO_NPM, {"JOURNEYMAN_CI": "1"}, None),
        (NO_NPM, {"JOURNEYMAN_CI": "1", "JOURNEYMAN_NPM": "1"}, "Skipped where everything was set up: aimock"),
        (NO_NPM, {"JOURNEYMAN_NPM": "1"}, None),
        ("strace is not installed: what is synced is not seen", {"JOURNEYMAN_CI": "1"}, None),
        ("it is late", {}, "Skipped for a reason that is in no list of tests/support/skips.py: it is late"),
        ("it is late", {"JOURNEYMAN_CI": "1"}, "Skipped for a reason that is in no list"),
        ("", {}, "Skipped for a reason that is in no list"),
    ],
)
def test_a_reason_holds_here_or_there(
    monkeypatch: pytest.MonkeyPatch, reason: str, environment: dict[str, str], begins: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    fault = fault_of(reason, environment)
    assert fault is None if begins is None else (fault or "").startswith(begins)


def test_on_other_systems_there_is_no_wheel_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert fault_of(NO_POSTGRES, {"JOURNEYMAN_CI": "1"}) is None


PLANTED = """
import pytest

@pytest.mark.skipif(True, reason="it is late")
def test_by_a_mark():
    pass

def test_in_its_body():
    pytest.importorskip("no_such_package", reason="Celery is not installed")

@pytest.fixture
def server():
    pytest.skip("{npm}")

def test_by_its_fixture(server):
    pass

@pytest.mark.xfail(reason="it is known", strict=True)
def test_that_fails():
    assert False
"""


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize(
    ("ci", "counts"), [("", "2 skipped, 1 xfailed, 1 error"), ("1", "1 failed, 1 skipped, 1 xfailed, 1 error")]
)
def test_a_planted_skip_fails(tmp_path: Path, ci: str, counts: str) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_makereport\n")
    (tmp_path / "test_planted.py").write_text(PLANTED.format(npm=NO_NPM))
    words = ("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path))
    told = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "JOURNEYMAN_CI": ci, "JOURNEYMAN_NPM": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert counts in told.stdout, told.stdout + told.stderr
    assert "Skipped for a reason that is in no list of tests/support/skips.py: it is late" in told.stdout

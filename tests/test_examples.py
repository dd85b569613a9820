"""The numbered programs run offline, quickly, without a warning, and print what stands in the file beside each."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Warm, environment

EXAMPLES = Path(__file__).parent.parent / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9]*.py"))


def shown_output(program: Path) -> str:
    return program.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", [*NUMBERED, EXAMPLES / "team" / "stocktaking.py"], ids=lambda each: each.name)
def test_an_example_prints(program: Path, tmp_path: Path, warm: Warm) -> None:  # R68, X39
    done = warm(program=program, cwd=tmp_path)
    assert (done.stderr, done.stdout, done.code) == ("", shown_output(program), 0)


def test_an_example_prints_the_same_where_nothing_was_imported_before(tmp_path: Path) -> None:
    """As a user runs it, without a key; a warning is an error."""
    program = EXAMPLES / "02_tools.py"
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout, done.returncode) == ("", shown_output(program), 0)


def test_every_numbered_program_is_short_and_shows_something() -> None:
    assert len(NUMBERED) >= 17
    assert {path.name for path in NUMBERED if len(path.read_text(encoding="utf-8").splitlines()) > 60} == set()
    assert [path.name for path in NUMBERED if not shown_output(path).strip()] == []


@pytest.mark.parametrize(("folder", "first", "most"), [("analyst", "agent.py", 100), ("crew", "research.py", 80)])
def test_every_file_of_an_example_is_short_enough_to_be_read(folder: str, first: str, most: int) -> None:
    files = (EXAMPLES / folder).glob("*.py")
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert [name for name, length in lengths.items() if length > 300] == []
    assert lengths[first] <= most


def test_a_crew_researches_the_pages_of_this_project(tmp_path: Path, warm: Warm) -> None:
    done = warm(program=EXAMPLES / "crew" / "research.py", cwd=tmp_path)
    assert (done.stderr, done.code) == ("", 0)
    assert done.stdout.startswith("Offline stand-in at work: a small program, not a language model.")
    assert "links on " in done.stdout
    assert " lead nowhere" not in done.stdout

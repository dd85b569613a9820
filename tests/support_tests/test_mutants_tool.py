"""The tool that plants faults finds what no test sees, and takes everything back."""

import json
from pathlib import Path

import pytest

from tools.changes import changes
from tools.mutants import Judged, load, main, rate, stages

SOURCE = '''"""A module."""

from typing import TYPE_CHECKING

__all__ = ["is_late"]

if TYPE_CHECKING:
    LIMIT = 1


def is_late(hours: int, *, most: int = 3) -> bool:
    """Tell whether it is."""
    _log.info("seen %d", hours + 1)
    print(f"it is {hours + 1}")
    if hours > most and not hours == 24:
        state.seen += 1
    return hours - 1 in (4, True)
'''


def test_each_change_is_one_place_and_what_no_run_shows_is_left_out() -> None:
    found = [(change.line, change.old, change.new) for change in changes(SOURCE.encode())]
    assert sorted(found) == [
        (11, "3", "4"),
        (14, 'print(f"it is {hours + 1}")', "pass"),
        (15, "24", "25"),
        (15, "hours == 24", "hours != 24"),
        (15, "hours > most", "hours >= most"),
        (15, "hours > most and not hours == 24", "hours > most or not hours == 24"),
        (15, "not hours == 24", "hours == 24"),
        (16, "1", "2"),
        (16, "state.seen += 1", "pass"),
        (17, "1", "2"),
        (17, "4", "5"),
        (17, "True", "False"),
        (17, "hours - 1", "hours + 1"),
        (17, "hours - 1 in (4, True)", "hours - 1 not in (4, True)"),
    ]


def test_a_change_is_made_behind_letters_of_several_bytes() -> None:
    source = "name = 'é'; late = 3 < 4\n".encode()
    (change,) = [each for each in changes(source) if each.old == "3 < 4"]
    assert change.made_in(source).decode() == "name = 'é'; late = 3 <= 4\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package of two functions, of which one is tested well."""
    for folder in ("src/toy/clock", "tests/clock"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a second a run, for nothing
    (tmp_path / "src/toy/__init__.py").touch()
    (tmp_path / "src/toy/clock/__init__.py").touch()
    (tmp_path / "src/toy/clock/hours.py").write_text("def is_late(hours):\n    return hours > 3\n")
    (tmp_path / "src/toy/clock/days.py").write_text("def is_free(day):\n    return day > 5\n")
    late = "    assert [is_late(n) for n in (3, 4)] == [False, True]\n"
    test = f"from toy.clock.hours import is_late\ndef test_late():\n{late}"
    (tmp_path / "tests/clock/test_hours.py").write_text(test)
    test = "from toy.clock.days import is_free\ndef test_free():\n    assert is_free(7)\n"
    broken = "def test_that_fails_by_itself():\n    assert False\n"
    (tmp_path / "tests/clock/test_days.py").write_text(f"{broken}{test}")
    return tmp_path


def test_nearest_tests_are_asked_first(toy: Path) -> None:
    hours, days = "tests/clock/test_hours.py", "tests/clock/test_days.py"
    assert [*stages(toy, Path("src/toy/clock/hours.py"))] == [[hours], [days]]


def test_a_planted_survivor_is_found_and_kept(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seed", "1", "--root", str(toy), "--limit", "60"]
    assert main([*words, "--room", "days"]) == 1
    lines = load(toy / "tools" / "mutants.jsonl")
    assert {(each.place, each.old, each.new, each.verdict) for each in lines} == {
        ("src/toy/clock/days.py:2", "day > 5", "day >= 5", "survived"),
        ("src/toy/clock/days.py:2", "5", "6", "survived"),
    }
    assert {each.note for each in lines} == {"tried to the end: 2 files of tests"}
    assert "0 of 2 were killed: 0%" in capsys.readouterr().out


def test_what_a_test_sees_is_killed_and_the_checkout_stays_as_it_is(toy: Path) -> None:
    before = {path: path.read_bytes() for path in (toy / "src").rglob("*.py")}
    assert main(["--seed", "1", "--root", str(toy), "--room", "hours"]) == 0
    assert {path: path.read_bytes() for path in (toy / "src").rglob("*.py")} == before
    killed = {(each.verdict, each.test) for each in load(toy / "tools" / "mutants.jsonl")}
    assert killed == {("killed", "tests/clock/test_hours.py::test_late")}


def test_where_no_test_can_be_run_nothing_is_judged(toy: Path) -> None:
    (toy / "tests" / "conftest.py").write_text("import no_such_package\n")
    with pytest.raises(SystemExit, match=r"No test can be run in the copy: .*exit code 4"):
        main(["--seed", "1", "--root", str(toy), "--room", "hours"])
    assert load(toy / "tools" / "mutants.jsonl") == []


def test_a_package_that_cannot_be_imported_any_more_is_seen(toy: Path) -> None:
    (toy / "tests" / "conftest.py").write_text("import toy.clock\n")
    (toy / "src/toy/clock/__init__.py").write_text("assert not False\n")
    assert main(["--seed", "1", "--count", "1", "--root", str(toy), "--room", "__init__"]) == 0
    assert {each.verdict for each in load(toy / "tools" / "mutants.jsonl")} == {"killed"}


def test_what_nobody_could_see_does_not_count() -> None:
    made = [Judged(seed=1, place="a:1", old="", new="", verdict="equivalent")] * 9
    assert rate(made) == 1
    killed = Judged(seed=1, place="a:1", old="", new="", verdict="killed")
    assert rate([*made, killed, *[Judged(seed=1, place="a:2", old="", new="", verdict="gap")] * 3]) == 0.25


def test_of_the_last_faults_enough_were_killed_and_each_survivor_is_judged() -> None:
    judged = load(Path(__file__).parents[2] / "tools" / "mutants.jsonl")[-200:]
    assert rate(judged) >= 0.8
    assert [each.place for each in judged if each.verdict == "survived"] == [], "Say gap or equivalent, and why."
    assert [each.place for each in judged if each.verdict != "killed" and not each.note] == []


def test_every_line_of_the_judged_is_one_object(toy: Path) -> None:
    file = toy / "tools" / "mutants.jsonl"
    file.parent.mkdir()
    file.write_text(json.dumps({"seed": 1, "place": "a:1", "old": "", "new": "", "verdict": "gap", "nobody": 1}) + "\n")
    with pytest.raises(TypeError, match="nobody"):
        load(file)

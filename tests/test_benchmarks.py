"""The benchmarks work: each measures a little and shows what it measured. How fast anything is, is not judged here."""

import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator

from benchmarks import borders, checks, ours
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.growth import Windows
from benchmarks.measuring import Effort, alone, compared, taking_turns
from benchmarks.table import table


def cells(printed: str) -> list[list[str]]:
    """Return the table's cells, line by line, without its head."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


_IS_RARE = [pytest.mark.fuzz, pytest.mark.skipif("JOURNEYMAN_FUZZ" not in os.environ, reason="`make fuzz` does it")]
_NAMES = [name if name in ("in-process", "over-http") else pytest.param(name, marks=_IS_RARE) for name in BENCHMARKS]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", _NAMES)
def test_a_benchmark_measures_a_little_and_each_of_its_rows_has_figures(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tiny", name]) == 0
    rows = cells(capsys.readouterr().out)
    assert len({(what, unit, reference) for what, unit, _, reference, *_ in rows}) == len(rows) > 0
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)


def test_the_results_are_written_as_json_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--tiny", "in-process", "--json", str(tmp_path / "results.json")])
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert sorted(results) == ["date", "machine", "python", "rows"]
    assert [row["what"] for row in results["rows"]] == [row[0] for row in cells(capsys.readouterr().out)]


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--tiny", "in-proces"])
    assert stopped.value.code == 2
    assert "in-process" in capsys.readouterr().err


def ticking(seconds: list[float]) -> Callable[[], float]:
    """Return a clock that gives these readings."""
    readings = iter(seconds)
    return lambda: next(readings)


def test_a_check_that_holds_the_loop_is_seen_and_so_is_a_wrong_verdict() -> None:
    def hold(numbers: list[int]) -> list[int]:
        return numbers if sum(range(9_000_000)) else []  # all the time in one call, which lets nobody else run

    written, kind = f"[{'1,' * 60_000}1]", Annotated[list[int], AfterValidator(hold)]
    shapes = [
        checks.Shape("slow", kind, written, is_right=True),
        checks.Shape("fast", list[int], written, is_right=False),
    ]
    slow, fast = checks.costs_of(shapes)
    assert slow.turn_ms > 50 > fast.turn_ms
    assert (slow.is_right, fast.is_right) == (True, False)


@pytest.mark.parametrize("way", ["arguments", "input"])
def test_what_does_not_fit_is_refused_before_anything_large_is_made_of_it(way: Literal["arguments", "input"]) -> None:
    written = f"[{'[1],' * 250_000}7.5]"  # as deques, it takes 200 MB
    (refused,) = checks.costs_of([checks.Shape("deques", list[deque[int]], written, is_right=False, way=way)])
    assert (refused.is_right, refused.peak_mb < 50) == (True, True)


async def test_contenders_take_turns_and_the_first_turns_do_not_count() -> None:
    worked: list[str] = []

    async def one() -> None:
        worked.append("one")

    async def other() -> None:
        worked.append("other")

    clock = ticking([0, 9, 9, 18, 20, 24, 24, 26, 30, 36, 36, 39])
    costs = await taking_turns({"one": one, "other": other}, rounds=2, clock=clock, per=2)
    assert worked == ["one", "other", "other", "one", "one", "other"]
    assert costs == {"one": [1.0, 3.0], "other": [2.0, 1.5]}


def test_a_ratio_is_the_median_of_the_ratios_of_all_turns() -> None:
    costs = {"ours": [2.0, 9.0, 4.0], "by hand": [1.0, 3.0, 1.0]}
    row = compared("it", costs, ours="ours", reference="by hand", unit="ms", scale=1e3, target="≤ 4")
    words = {"what": "it", "unit": "ms", "reference": "by hand", "target": "≤ 4"}
    figures = {"ours": 4_000.0, "theirs": 1_000.0, "ratio": 3.0, "ratio_low": 2.5, "ratio_high": 3.5, "turns": 3}
    assert asdict(row) == {**words, **figures}


def test_growth_compares_an_early_window_with_a_late_one_of_the_same_run() -> None:
    windows = Windows(early=1, late=4, width=2)
    assert windows.iterations == 8
    assert windows.costs([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 11.0]) == (1.0, 3.0)


def test_the_table_shows_figures_ratios_and_targets() -> None:
    costs = {"ours": [0.0251], "by hand": [0.0119]}
    rows = [
        compared("a loop", costs, ours="ours", reference="by hand", unit="us CPU", scale=1e6, target="≤ 5"),
        alone("memory", [41.27, 39.0], unit="KB"),
    ]
    assert table(rows).splitlines() == [
        "| benchmark | unit   | journeyman | reference | its cost | ratio | quartiles    | target | turns |",
        "|-----------|--------|------------|-----------|----------|-------|--------------|--------|-------|",
        "| a loop    | us CPU | 25,100     | by hand   | 11,900   | 2.11  | 2.11 to 2.11 | ≤ 5    | 1     |",
        "| memory    | KB     | 40.1       |           |          |       |              |        | 2     |",
    ]


def test_less_effort_takes_fewer_and_smaller_turns_but_never_none() -> None:
    effort = Effort(share_of_rounds=0.1, share_of_size=0.01)
    assert (effort.rounds(600), effort.rounds(4), effort.size(1_000), effort.size(20)) == (60, 1, 10, 2)


def test_calls_across_borders_are_counted_by_module_and_by_room() -> None:
    names = ("history", "gate", "loop.calls")
    history, gate, calls = (dict[str, Any](__name__=f"journeyman.{name}") for name in names)
    exec("def add(): pass", history)
    exec("def judge(add): add()", gate)
    exec("def own(add): sorted([1], key=lambda _: add())\ndef run(judge, add): judge(add); own(add); own(add)", calls)
    found = borders.Crossings()
    sys.setprofile(found.note)
    try:
        calls["run"](gate["judge"], history["add"])
    finally:
        sys.setprofile(None)
    assert found.modules == {("loop.calls", "gate"): 1, ("gate", "history"): 1, ("loop.calls", "history"): 2}
    assert found.rooms == {("loop", "ports"): 3}


def test_the_borders_of_a_run_are_printed_the_most_frequent_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert borders.main() == 0
    summary, rooms, modules = capsys.readouterr().out.split("\n\n")
    assert re.match(r"A run of 5 iterations makes \d+ calls\.\n\d+ of them cross from one room", summary)
    for pairs in (rooms, modules):
        counts = [int(line.split()[0]) for line in pairs.splitlines()[1:]]
        assert counts == sorted(counts, reverse=True) != []


async def test_a_run_with_one_call_crosses_no_more_borders_than_it_may(tmp_path: Path) -> None:
    plain, stored = await borders.count(ours.in_process(2)), await borders.count_stored(tmp_path, 2)
    for found, most in zip((plain, stored), borders.MOST_WITH_ONE_CALL.values(), strict=True):
        assert (found.modules.total() <= most[0], found.rooms.total() <= most[1]) == (True, True)

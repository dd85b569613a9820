"""Every number of docs/requirements.md is stated once and held by a test, or, for advice, by a page."""

from __future__ import annotations

from pathlib import Path

from tests.support.requirements import (
    ADVICE,
    MAP,
    NUMBERS,
    PAGE,
    Holder,
    cited,
    holders,
    holders_in_pages,
    holders_in_tests,
    stated,
    written_map,
)

REFRESH = "python -m tests.support.requirements"


def test_every_number_is_stated_once_in_order() -> None:
    assert stated() == list(NUMBERS)


def test_every_number_is_held_by_a_test_or_if_it_is_advice_by_a_page() -> None:
    found = holders()
    free = [number for number in NUMBERS if not any(counts(number, holder) for holder in found[number])]
    assert free == []


def counts(number: str, holder: Holder) -> bool:
    return holder.path.startswith("tests/") or number in ADVICE


def test_no_number_is_cited_that_is_not_stated() -> None:
    assert {number: found for number, found in holders().items() if number not in NUMBERS} == {}


def test_the_map_in_the_page_is_up_to_date() -> None:
    written = PAGE.read_text(encoding="utf-8").partition(MAP)
    assert written[1] + written[2] == written_map(), f"Run: {REFRESH}"


def test_a_comment_cites_single_numbers_and_ranges() -> None:
    assert [*cited("# R28-R30, M2, X7: a tool, A26 to A28, D1-3")] == [
        *("R28", "R29", "R30", "X7", "A26", "A27", "A28", "D1", "D2", "D3")
    ]
    assert [*cited("# ISO D1234, SHA256, RED2")] == []


def test_a_comment_belongs_to_the_test_around_it_or_right_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(
        "# X1\nTABLE = {}\n\n\n\n\n"
        "# R2\n@mark\ndef test_below() -> None:\n    pass\n\n\n"
        "def test_around() -> None:  # R3\n    # R5\n    text = '# R4'\n",
        encoding="utf-8",
    )
    assert [*holders_in_tests(folder)] == [
        ("X1", Holder("tests/test_it.py", 0, "")),
        ("R2", Holder("tests/test_it.py", 8, "test_below")),
        ("R3", Holder("tests/test_it.py", 13, "test_around")),
        ("R5", Holder("tests/test_it.py", 13, "test_around")),
    ]


def test_a_mark_in_a_page_belongs_to_the_heading_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "page.md").write_text("# One\n\n## Two\n<!-- R1, D2 -->\n\n## Three\n", encoding="utf-8")
    holder = Holder("docs/page.md", 3, "Two")
    assert [*holders_in_pages(folder)] == [("R1", holder), ("D2", holder)]

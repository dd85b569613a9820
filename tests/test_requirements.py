"""Every number of docs/contributing/requirements.md is stated once and held by a test, or, for advice, by a page."""

from pathlib import Path

from tests.support import requirements

REFRESH = "python -m tests.support.requirements"


def test_every_number_is_stated_once_in_order() -> None:
    assert requirements.stated() == list(requirements.NUMBERS)


def test_every_number_is_held_by_a_test_or_if_it_is_advice_by_a_page() -> None:
    found = requirements.holders()
    free = [number for number in requirements.NUMBERS if not any(counts(number, holder) for holder in found[number])]
    assert free == []


def counts(number: str, holder: requirements.Holder) -> bool:
    return holder.path.startswith("tests/") or number in requirements.ADVICE


def test_no_number_is_cited_that_is_not_stated() -> None:
    cited = requirements.holders()
    assert {number: found for number, found in cited.items() if number not in requirements.NUMBERS} == {}


def test_the_map_in_the_page_is_up_to_date() -> None:
    written = requirements.PAGE.read_text(encoding="utf-8").partition(requirements.MAP)
    assert written[1] + written[2] == requirements.written_map(), f"Run: {REFRESH}"


def test_a_comment_cites_single_numbers_and_ranges() -> None:
    assert [*requirements.cited("# R28-R30, M2, X7: a tool, A26 to A28, D1-3")] == [
        *("R28", "R29", "R30", "X7", "A26", "A27", "A28", "D1", "D2", "D3")
    ]
    assert [*requirements.cited("# ISO D1234, SHA256, RED2")] == []


def test_a_comment_belongs_to_the_test_around_it_or_right_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(
        "# X1\nTABLE = {}\n\n\n\n\n"
        "# R2\n@mark\ndef test_below() -> None:\n    pass\n\n\n"
        "def test_around() -> None:  # R3\n    # R5\n    text = '# R4'\n",
        encoding="utf-8",
    )
    assert [*requirements.holders_in_tests(folder)] == [
        ("X1", requirements.Holder("tests/test_it.py", 0, "")),
        ("R2", requirements.Holder("tests/test_it.py", 8, "test_below")),
        ("R3", requirements.Holder("tests/test_it.py", 13, "test_around")),
        ("R5", requirements.Holder("tests/test_it.py", 13, "test_around")),
    ]


def test_a_mark_in_a_page_belongs_to_the_heading_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "page.md").write_text("# One\n\n## Two\n<!-- R1, D2 -->\n\n## Three\n", encoding="utf-8")
    holder = requirements.Holder("docs/page.md", 3, "Two")
    assert [*requirements.holders_in_pages(folder)] == [("R1", holder), ("D2", holder)]

"""How many cases a test may make in `make test`: the sixtieth shows hardly what 59 have not shown.

A larger table has the mark `share`, or a reason in this list, which only gets shorter.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pytest

from tests.support.shares import IS_WHOLE

MOST: Final = 60
REASONS: Final[Mapping[str, str]] = {
    "contracts/test_faults.py::test_a_fault_that_stays_ends_the_run": "fewer would leave out a fault or an adapter",
    "support_tests/test_rules.py::test_a_breach_is_found_by_its_rule": "a body for each breach of a rule",
    "test_docs.py::test_every_link_of_a_page_leads_to_a_file_and_a_heading": "a page each",
    "test_docs.py::test_the_blocks_of_a_page_run_and_print_what_it_shows": "a page each",
}
"""Tests that may make more, and why."""


def crowds(nodeids: Sequence[str], reasons: Mapping[str, str] = REASONS) -> Iterator[str]:
    """Yield what is wrong with the number of cases of a test, for each test of which it is."""
    counts = Counter(nodeid.removeprefix("tests/").partition("[")[0] for nodeid in nodeids)
    for test, count in counts.items():
        if count > MOST and test not in reasons:
            yield f"{test} makes {count} cases, and may make {MOST}. Give it the mark `share`."
        if count <= MOST and test in reasons:
            yield f"{test} makes {count} cases, and needs no reason any more. Remove it here."


def test_a_test_with_too_many_cases_is_told_unless_it_has_a_reason_and_so_is_a_reason_too_many() -> None:
    many = [f"tests/room/test_a.py::test_many[{n}]" for n in range(MOST + 1)]
    few = [f"tests/room/test_a.py::test_few[{n}]" for n in range(MOST)]
    assert [*crowds([*many, *few], {})] == [
        "room/test_a.py::test_many makes 61 cases, and may make 60. Give it the mark `share`."
    ]
    assert [*crowds([*many, *few], {"room/test_a.py::test_many": "a page each"})] == []
    assert [told.partition(",")[0] for told in crowds(few, {"room/test_a.py::test_few": "a page each"})] == [
        "room/test_a.py::test_few makes 60 cases"
    ]
    assert [*crowds(few, {"room/test_b.py::test_gone": "another file"})] == []


def test_no_test_of_make_test_makes_more_cases_than_one_may(request: pytest.FixtureRequest) -> None:
    is_make_test = request.config.getoption("journal") == "memory" and not IS_WHOLE
    assert [*crowds([each.nodeid for each in request.session.items] if is_make_test else [])] == []

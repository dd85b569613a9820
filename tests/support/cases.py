"""How many cases a test may make in `make test`: the sixtieth shows hardly what 59 have not shown.

A larger table has the mark `share`, or a reason in this list, which only gets shorter.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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
            yield f"{test} makes {count} cases, and needs no reason any more. Remove it from tests/support/cases.py."

"""How many cases a test may make."""

import pytest

from tests.support.cases import MOST, crowds
from tests.support.shares import IS_WHOLE


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

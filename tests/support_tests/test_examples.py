"""How much of a large table the default run tries."""

from __future__ import annotations

from itertools import product

import pytest

from tests.properties.examples import thinned


@pytest.mark.parametrize("one_in", [2, 3, 4])
def test_a_thinned_table_tries_each_row_and_each_column(one_in: int) -> None:
    found = thinned([*product(range(20), range(5))], one_in)
    assert {row for row, _ in found} == set(range(20))
    assert {column for _, column in found} == set(range(5))


@pytest.mark.parametrize("one_in", [2, 3, 4])
def test_rows_that_are_thinned_one_by_one_try_each_column(one_in: int) -> None:
    rows = [thinned(range(20), one_in, first=number) for number in range(5)]
    assert all(rows)
    assert {column for row in rows for column in row} == set(range(20))

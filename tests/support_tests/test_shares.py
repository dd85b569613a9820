"""How much of a large table the default run tries."""

from itertools import product

import pytest

from tests.support.shares import IS_WHOLE, SEED, beyond_share, share_of, thinned


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


def test_as_many_seeds_as_one_in_so_many_is_tried_try_all() -> None:
    cases = range(50)
    assert {each for seed in range(3) for each in share_of(cases, 3, seed=seed)} == {*cases}
    assert [share_of(range(2), 9, seed=seed) for seed in range(2)] == [range(0, 2, 9), range(1, 2, 9)]
    assert share_of((), 3) == ()


def test_of_a_test_with_the_mark_each_seed_leaves_other_cases_and_of_others_none(
    request: pytest.FixtureRequest,
) -> None:
    def planted(name: str) -> pytest.Item:
        parent = request.node.parent
        return pytest.Function.from_parent(parent, name=name, callobj=lambda: None)  # pyright: ignore[reportUnknownMemberType] - of pytest

    plain, cases = [planted(f"plain[{n}]") for n in range(9)], [planted(f"case[{n}]") for n in range(9)]
    for each in cases:
        each.add_marker(pytest.mark.share(one_in=3))
    left = [[each.name for each in cases if each not in beyond_share([*plain, *cases], seed=n)] for n in range(3)]
    assert left == [[f"case[{n}]" for n in range(first, 9, 3)] for first in range(3)]
    assert beyond_share(plain) == set()
    assert [bool([*each.iter_markers("fuzz")]) for each in (*plain, *cases)] == [False] * 9 + [True] * 9


def test_a_turn_that_is_seldom_is_tried_by_one_seed_in_so_many_and_always_in_the_files_that_are_named(
    request: pytest.FixtureRequest,
) -> None:
    def planted(name: str, *but: str) -> pytest.Item:
        parent = request.node.parent
        made = pytest.Function.from_parent(parent, name=name, callobj=lambda: None)  # pyright: ignore[reportUnknownMemberType] - of pytest
        made.add_marker(pytest.mark.seldom(one_in=3, but=but))
        return made

    turns = [planted(f"test_{n}[postgres]") for n in range(30)]
    tried = [[each for each in turns if each not in beyond_share(turns, seed=seed)] for seed in range(3)]
    assert sorted(each.name for share in tried for each in share) == sorted(each.name for each in turns)
    assert all(tried)
    here = [planted(f"test_{n}[postgres]", "test_shares.py") for n in range(30)]
    assert beyond_share(here) == set()
    assert {bool([*each.iter_markers("fuzz")]) for each in turns} == {True}
    assert {bool([*each.iter_markers("fuzz")]) for each in here} == {False}


@pytest.mark.share(one_in=9)
@pytest.mark.parametrize("n", range(9))
def test_of_a_table_in_nine_cases_make_test_tries_that_of_its_seed(request: pytest.FixtureRequest, n: int) -> None:
    are_named = any("::" in word for word in request.config.args)
    assert IS_WHOLE or are_named or n == SEED % 9

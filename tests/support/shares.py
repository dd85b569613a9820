"""Tests that try much the same many times: `make test` tries a share, chosen by the seed `SHARE`; `make fuzz`, all.

The share is a diagonal that moves with the seed: if one case in five is tried, five seeds in a row try every case. A
test whose cases are parameters has the mark `share`; a parameter that gives any test one more turn, such as another
engine, has the mark `seldom`. Who names a test on the command line gets all of its cases.
"""

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.support.turns import name_of

T = TypeVar("T")

SEED = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "7"))
"""Chooses the share."""
IS_WHOLE = "JOURNEYMAN_FUZZ" in os.environ


def share_of(cases: Sequence[T], one_in: int, *, seed: int = SEED) -> Sequence[T]:
    """Return each `one_in`-th case, and at least one.

    Of a table of rows and columns this takes a diagonal, if `one_in` does not divide the length of a row: then each
    row and each column is tried.
    """
    return cases[seed % max(min(one_in, len(cases)), 1) :: one_in]


def thinned(cases: Sequence[T], one_in: int, *, first: int = 0) -> Sequence[T]:
    """Return the share of a large table; in `make fuzz`, all. The test has the mark `fuzz`, too.

    Where a test has a single row, `first` says where in it the diagonal begins.
    """
    return cases if IS_WHOLE else share_of(cases, one_in, seed=SEED + first)


def beyond_share(items: Sequence[pytest.Item], *, seed: int = SEED) -> set[pytest.Item]:
    """Return the cases that are not in the share. Nobody has shuffled them yet; `make fuzz` finds all by their mark."""
    tables = defaultdict[str, list[pytest.Item]](list)
    beyond: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("share") is not None:
            item.add_marker(pytest.mark.fuzz)
            tables[item.nodeid.partition("[")[0]].append(item)
        elif (seldom := item.get_closest_marker("seldom")) and item.path.name not in seldom.kwargs["but"]:
            item.add_marker(pytest.mark.fuzz)
            if (zlib.crc32(name_of(item.nodeid).encode()) + seed) % seldom.kwargs["one_in"]:
                beyond.add(item)
    for table in tables.values():
        [one_in] = [mark.kwargs["one_in"] for mark in table[0].iter_markers("share")]
        beyond |= {*table} - {*share_of(table, one_in, seed=seed)}
    return beyond

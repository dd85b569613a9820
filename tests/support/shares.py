"""Tests with many cases that differ little: `make test` tries a share of them, chosen by the seed; `make fuzz` tries all.

Such a test has the mark `share`. Of its table the share is a diagonal, as `thinned` takes it, and it moves with
`SHARE`: so as many runs with other seeds as one is left out of try every case. Whoever names a test gets all its cases.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

SEED = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "7"))
"""Chooses the share."""
_IS_WHOLE = "JOURNEYMAN_FUZZ" in os.environ


def share_of(cases: Sequence[T], one_in: int, *, seed: int = SEED) -> Sequence[T]:
    """Return each `one_in`-th case, and at least one."""
    return cases[seed % min(one_in, len(cases)) :: one_in]


def choose_share(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that are not in the share, unless all are asked for. They are in the order of their tables."""
    tables = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("share") is not None:
            item.add_marker(pytest.mark.fuzz)
            tables[item.nodeid.partition("[")[0]].append(item)
    if _IS_WHOLE or any("::" in word for word in config.args):
        return
    chosen: set[pytest.Item] = set()
    for table in tables.values():
        mark = table[0].get_closest_marker("share")
        assert mark is not None
        chosen.update(share_of(table, mark.kwargs["one_in"]))
    left_out = [item for table in tables.values() for item in table if item not in chosen]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)

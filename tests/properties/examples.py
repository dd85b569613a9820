"""How many examples the generated tests and the large tables try, and how long they may take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

T = TypeVar("T")

_FUZZ = os.environ.get("JOURNEYMAN_FUZZ")

N_EXAMPLES = int(_FUZZ or 75)
"""Of the tests with the mark `fuzz`."""

patient = pytest.mark.timeout(3_600 if _FUZZ else 300)
"""A failure is made smaller before it is shown, which takes time."""


def examples(one_in: int = 1) -> settings:
    """Return the settings of a generated test that tries a part of the examples."""
    return settings(
        max_examples=max(20, N_EXAMPLES // one_in),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def thinned(cases: Sequence[T], one_in: int, *, first: int = 0) -> Sequence[T]:
    """Return each `one_in`-th case of a large table; in `make fuzz`, all. The test has the mark `fuzz`, too.

    Of a table of rows and columns this takes a diagonal, if `one_in` does not divide the length of a row: then each
    row and each column is tried. Where a test has a single row, `first` says where in it the diagonal begins.
    """
    return cases if _FUZZ else cases[first % one_in :: one_in]

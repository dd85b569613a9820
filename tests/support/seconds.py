"""How much work a test may be: more than two seconds of it need a reason in this list, which CI asks for.

Counted are seconds of a processor, of this process and of the children that it has waited for: a machine that does
something else makes nobody slower. What a test only waits for is its timeout's affair.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest

MOST_S: Final = 2.0
ROOMS: Final = ("chat", "durable", "record", "serve", "store", "support_tests", "team", "view")
"""Those whose list is complete."""
REASONS: Final[dict[str, str]] = {}
"""Tests that may take longer, and why."""
_IS_ASKED: Final = bool(os.environ.get("CI")) and "JOURNEYMAN_FUZZ" not in os.environ


@contextmanager
def counted(test: str, *, most_s: float = MOST_S, is_asked: bool = _IS_ASKED) -> Generator[None]:
    """Fail a test that is more work than tests may be, unless there is a reason."""
    before_s = _spent_s()
    yield
    spent_s, name = _spent_s() - before_s, test.removeprefix("tests/").partition("[")[0]
    if is_asked and spent_s > most_s and name.partition("/")[0] in ROOMS and name not in REASONS:
        pytest.fail(
            f"It took {spent_s:.1f} s of a processor; a test may take {most_s:g} s. Make it smaller, give it the mark"
            " `share`, or say in tests/support/seconds.py why it has to take so long."
        )


def _spent_s() -> float:
    return sum(os.times()[:4])

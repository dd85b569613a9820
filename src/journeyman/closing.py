"""The time in which a process has to end: one for everything that waits then, and no sum of waits of their own.

Whatever waits at the end takes a part of what is left, so that what ends after it has time, too. Nothing here waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

__all__ = ["TimeToEnd"]

LEAST_S: Final = 2.0
"""How long the whole end may take where no time was given, in seconds: runs are given back, and files are closed."""
_LAST_WORDS_S: Final = 5.0
"""The longest part of an end that is not left to what goes on, in seconds."""


def time_of_work(within_s: float) -> float:
    """Return the seconds that running work may still take where everything must have ended `within_s` seconds from now:
    the rest is for last words."""
    # A quarter of a short time, so that the work has the larger part of it.
    return max(0.0, within_s - min(_LAST_WORDS_S, max(within_s, LEAST_S) / 4))


class TimeToEnd:
    """The end of a process, or of a part of it. It may be asked in any thread."""

    def __init__(self, within_s: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`within_s`: it begins now, and has so many seconds. None: it has not begun. `clock` gives the time."""
        # Monotonic, if nobody says otherwise: correcting the time of day must not make an end longer.
        self._clock: Final = clock
        self._until_s = math.inf
        self._lock: Final = Lock()
        if within_s is not None:
            self.begin(within_s)

    def begin(self, within_s: float) -> None:
        """Let everything end within so many seconds; if less was left, that stays."""
        with self._lock:
            # What was promised first holds: a second signal may only make it shorter.
            self._until_s = min(self._until_s, self._clock() + max(within_s, LEAST_S))

    @property
    def has_begun(self) -> bool:
        """True once the end has begun."""
        return self._until_s < math.inf

    def left_s(self) -> float:
        """Return how many seconds are left; infinity before the end has begun."""
        return max(0.0, self._until_s - self._clock())

    def part_s(self, most_s: float = math.inf) -> float:
        """Return how many seconds one of those that wait may take, at most: half of what is left."""
        # Half and half again: what ends last still has some, however many end before it.
        return min(most_s, self.left_s() / 2)

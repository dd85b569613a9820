"""The time and the space that recordings are kept for, and how they are forgotten.

Each row carries the day on which it goes, which it is given when it is written: no row needs another one that goes
earlier. So it does not matter who forgets what, when, or by which settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from journeyman.store.storage import Storage

_DAY_S: Final = 86_400.0
_NEVER: Final = 1 << 30
"""A day that does not come."""
_PARTS: Final = {"rec_events": "run", "rec_requests": "run", "rec_pieces": "root"}


class Lasts(NamedTuple):
    """The days, since 1970, on which what is written now goes."""

    until: int
    """That of an event, a request and a recording."""
    shared_until: int
    """That of a text: half a lifetime later, so that what is written later may use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The limits on the recordings that are kept."""

    seconds: float | None
    """The seconds for which each row is kept, and at most a day more; None: forever."""
    bytes: int | None
    """How many bytes all recordings may take; the newest are kept. None: without limit."""

    @property
    def has_limits(self) -> bool:
        return self.seconds is not None or self.bytes is not None

    def lasts(self, now: float) -> Lasts:
        """Return when what is written at a moment goes."""
        if self.seconds is None:
            return Lasts(_NEVER, _NEVER)
        return Lasts(*[math.ceil((now + part * self.seconds) / _DAY_S) for part in (1.0, 1.5)])


def prune_old(file: Storage, keeping: Keeping, now: float) -> None:
    """Forget what is too old at a moment, and the oldest recordings if there is too much. A recording that goes on is
    never forgotten.

    Raises:
        StoreError: the store cannot be written.
    """
    today = int(now // _DAY_S)
    # Each in a transaction of its own: others may want to write.
    for n, until, status, owner in file.rows("SELECT n, until, status, owner FROM rec_runs WHERE due <= ?", (today,)):
        if until <= today and not (status == "live" and file.is_held(owner)):
            forget(file, [n])
        else:
            old = [f"DELETE FROM {table} WHERE {run} = ? AND until <= ?" for table, run in _PARTS.items()]
            put_off = ("UPDATE rec_runs SET due = ? WHERE n = ?", [(today + 1, n)])
            file.write(*[(each, [(n, today)]) for each in old], put_off, is_large=True)
    file.write(("DELETE FROM rec_pieces WHERE root = 0 AND until <= ?", [(today,)]), is_large=True)
    total = file.rows("SELECT coalesce(sum(bytes), 0) FROM rec_runs")[0][0]
    if keeping.bytes is not None and total > keeping.bytes:
        forgotten: list[int] = []
        for n, size in file.rows("SELECT n, bytes FROM rec_runs WHERE status != 'live' ORDER BY seen"):
            if total <= keeping.bytes:
                break
            total -= size
            forgotten.append(n)
        forget(file, forgotten)


def forget(file: Storage, runs: Sequence[int]) -> None:
    """Forget the recordings with these numbers, each in a transaction of its own.

    Raises:
        StoreError: the store cannot be written.
    """
    for run in runs:
        parts = {**_PARTS, "rec_runs": "n"}
        file.write(*[(f"DELETE FROM {table} WHERE {of} = ?", [(run,)]) for table, of in parts.items()], is_large=True)

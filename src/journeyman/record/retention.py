"""The time and the space that recordings are kept for, and how they are forgotten."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from journeyman.store.storage import Storage, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The limits on the recordings that are kept."""

    seconds: float | None
    """How many seconds after its end a recording is kept; None: forever."""
    bytes: int | None
    """How many bytes all recordings may take; the newest are kept. None: without limit."""

    @property
    def has_limits(self) -> bool:
        return self.seconds is not None or self.bytes is not None


def prune_old(file: Storage, keeping: Keeping) -> int:
    """Forget recordings that are too old, or too many. Return how many there were. A recording that goes on is never
    forgotten.

    Raises:
        StoreError: the store cannot be written.
    """
    forgotten: list[int] = []
    if keeping.seconds is not None:
        query = "SELECT n FROM rec_runs WHERE seen < ?"
        forgotten += [row[0] for row in file.rows(query, (time.time() - keeping.seconds,))]
    total = file.rows("SELECT coalesce(sum(bytes), 0) FROM rec_runs")[0][0]
    if keeping.bytes is not None and total > keeping.bytes:
        # From the oldest on, and none that goes on.
        for n, size in file.rows("SELECT n, bytes FROM rec_runs WHERE status != 'live' ORDER BY seen"):
            if total <= keeping.bytes:
                break
            total -= size
            forgotten.append(n)
    forget(file, sorted({*forgotten}))
    return len({*forgotten})


def forget(file: Storage, runs: Sequence[int]) -> None:
    """Forget the recordings with these numbers, each in a transaction of its own: others may want to write.

    Raises:
        StoreError: the store cannot be written.
    """
    for run in runs:
        with file.transaction("forgets") as connection:
            _forget(connection, run)


def _forget(connection: Transaction, run: int) -> None:
    # What others use, too, is theirs from now on.
    heirs = connection.execute(
        "SELECT p.n, min(s.run) FROM rec_pieces p JOIN rec_shared s ON s.piece = p.n WHERE p.run = ? GROUP BY p.n",
        (run,),
    ).fetchall()
    connection.executemany("UPDATE rec_pieces SET run = ? WHERE n = ?", [(heir, piece) for piece, heir in heirs])
    connection.executemany("DELETE FROM rec_shared WHERE piece = ? AND run = ?", heirs)
    for table in ("rec_shared", "rec_pieces", "rec_events", "rec_requests"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    connection.execute("DELETE FROM rec_runs WHERE n = ?", (run,))

"""What has to be on the disk waits for one sync with all that waits at that time, and fails by itself."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journeyman.durable.records import BEGUN, Change, Claim
from journeyman.durable.sqlite import SqliteEngine
from tests.durable.processes import START, a_row, a_step, claimed, found
from tests.play import cancelled

OVER = Change(status="done", result=b"{}")


class Disk:
    """Counts the commits that are synced. Each waits in its thread while the disk is slow, and may fail."""

    connection: sqlite3.Connection

    def __init__(self) -> None:
        self.n_syncs, self.n_faults, self.is_asked, self.is_quick = 0, 0, threading.Event(), threading.Event()
        self.is_quick.set()

    def sync(self) -> None:
        self.n_syncs += 1
        self.is_asked.set()
        assert self.is_quick.wait(10)
        if self.n_faults > 0:
            self.n_faults -= 1
            raise sqlite3.OperationalError("database or disk is full")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()

    class Connection(sqlite3.Connection):
        is_synced = False

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - of the driver
            disk.connection = self
            self.is_synced = sql.endswith("FULL") if sql.startswith("PRAGMA synchronous") else self.is_synced
            if sql == "COMMIT" and self.is_synced:
                disk.sync()
            return super().execute(sql, parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    return disk


@pytest.fixture
async def engine(tmp_path: Path, disk: Disk) -> AsyncGenerator[SqliteEngine]:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    yield engine
    disk.is_quick.set()
    await engine.close()


async def claims_of(engine: SqliteEngine, number: int) -> list[Claim]:
    return [await claimed(engine, (await engine.add(a_row(f"r{n}"))).id) for n in range(number)]


def ending(engine: SqliteEngine, *claims: Claim) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(engine.settle(each, OVER, now=START)) for each in claims]


async def test_ends_and_marks_of_many_runs_that_come_while_the_disk_is_waited_for_share_the_next_sync(
    engine: SqliteEngine, disk: Disk
) -> None:
    first, *others, marked, late = await claims_of(engine, 20)
    disk.is_quick.clear()
    ends = ending(engine, first)
    assert await asyncio.to_thread(disk.is_asked.wait, 10), "the disk does not keep the event loop"
    ends += ending(engine, *others)
    mark = asyncio.create_task(engine.write(marked, a_step(marked.row.id, "a", None, state=BEGUN), is_synced=True))
    step = asyncio.create_task(engine.write(marked, a_step(marked.row.id, "b")))
    (taken_back,) = ending(engine, late)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (*ends, mark, step)), "nobody is told before it is on the disk"
    await cancelled(taken_back)
    ends[0].cancel()  # it is being written, so it counts
    disk.is_quick.set()
    await asyncio.wait(ends)
    assert [each.cancelled() or each.result() for each in ends] == [True] * 18
    assert (await mark, await step, disk.n_syncs) == ("written", "written", 2)
    assert [each.key for each in await engine.records(marked.row.id)] == ["b", "a"], "a step waits for no second sync"
    statuses = [(await found(engine, each.row.id)).status for each in (first, *others, marked, late)]
    assert statuses == ["done"] * 18 + ["running"] * 2


@pytest.mark.parametrize(
    ("n_faults", "is_full", "n_syncs"), [(0, False, 1), (0, True, 4), (1, False, 6), (6, False, 6)]
)
async def test_one_write_that_fails_fails_alone_and_a_full_disk_is_told_to_all_and_passes(
    engine: SqliteEngine, disk: Disk, n_faults: int, is_full: bool, n_syncs: int
) -> None:
    claims = await claims_of(engine, 5)
    wrong: Any = bytes(100_000) if is_full else object()  # SQLite takes a whole transaction back for which is no room
    n_pages = disk.connection.execute("PRAGMA page_count").fetchone()[0] + 10
    disk.connection.execute(f"PRAGMA max_page_count = {n_pages}")
    changes = [Change(status="done", result=wrong if n == 2 else b"{}") for n in range(5)]
    given = [*claims[:3], claims[3]._replace(epoch=claims[3].epoch - 1), claims[4]]
    disk.n_faults = n_faults
    tried = await asyncio.gather(
        *[engine.settle(*each, now=START) for each in zip(given, changes, strict=True)], return_exceptions=True
    )
    told = ["error" if isinstance(each, Exception) else each for each in tried]
    assert told == ([True, True, "error", False, True] if n_faults < 6 else ["error"] * 5)
    # A transaction that fails as a whole is followed by one for each: what does not fit must not hold up what does.
    assert disk.n_syncs == n_syncs
    again = [each for each, was in zip(claims, told, strict=True) if was is not True]
    assert all(await asyncio.gather(*ending(engine, *again)))
    assert {(await found(engine, each.row.id)).status for each in claims} == {"done"}

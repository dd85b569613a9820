"""What has to be on the disk waits for one sync with all that waits at that time, and fails by itself."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from journeyman.durable.records import BEGUN, Change, Claim
from journeyman.durable.sqlite import SqliteEngine
from tests.durable.processes import START, a_row, a_step, claimed, found
from tests.play import cancelled


class Disk(sqlite3.Connection):
    """Counts the commits that are synced. Each waits in its thread while the disk is slow, and may fail."""

    connection: ClassVar[sqlite3.Connection]
    n_syncs = n_faults = 0
    is_synced = False
    is_asked, is_quick = threading.Event(), threading.Event()

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - of the driver
        Disk.connection = self
        self.is_synced = sql.endswith("FULL") if sql.startswith("PRAGMA synchronous") else self.is_synced
        if sql == "COMMIT" and self.is_synced:
            Disk.n_syncs += 1
            self.is_asked.set()
            assert self.is_quick.wait(10)
            if Disk.n_faults > 0:
                Disk.n_faults -= 1
                raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, parameters)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[SqliteEngine]:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Disk))
    Disk.n_syncs = Disk.n_faults = 0
    Disk.is_asked.clear()
    Disk.is_quick.set()
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    yield engine
    await engine.close()


async def claims_of(engine: SqliteEngine, number: int) -> list[Claim]:
    return [await claimed(engine, (await engine.add(a_row(f"r{n}"))).id) for n in range(number)]


def ending(engine: SqliteEngine, *claims: Claim) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(engine.settle(each, Change(status="done"), now=START)) for each in claims]


async def test_ends_and_marks_of_many_runs_that_come_while_the_disk_is_waited_for_share_the_next_sync(
    engine: SqliteEngine,
) -> None:
    first, *others, marked, late = await claims_of(engine, 20)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # whose thread is busy below
    Disk.is_quick.clear()
    waiting = asyncio.create_task(asyncio.to_thread(Disk.is_asked.wait, 10))
    await asyncio.sleep(0)
    ends = ending(engine, first)
    assert await waiting, "the disk does not keep the event loop"
    ends += ending(engine, *others)
    mark = asyncio.create_task(engine.write(marked, a_step(marked.row.id, "a", None, state=BEGUN), is_synced=True))
    step = asyncio.create_task(engine.write(marked, a_step(marked.row.id, "b")))
    (taken_back,) = ending(engine, late)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (*ends, mark, step)), "nobody is told before it is on the disk"
    await cancelled(taken_back)
    ends[0].cancel()  # it is being written, so it counts
    Disk.is_quick.set()
    await asyncio.wait(ends)
    assert [each.cancelled() or each.result() for each in ends] == [True] * 18
    assert (await mark, await step, Disk.n_syncs) == ("written", "written", 2)
    assert [each.key for each in await engine.records(marked.row.id)] == ["b", "a"], "a step waits for no second sync"
    statuses = [(await found(engine, each.row.id)).status for each in (first, *others, marked, late)]
    assert statuses == ["done"] * 18 + ["running"] * 2


@pytest.mark.parametrize(("n_faults", "is_full", "n_syncs"), [(0, 0, 1), (0, 1, 4), (1, 0, 6), (6, 0, 6)])
async def test_one_write_that_fails_fails_alone_and_a_full_disk_is_told_to_all_and_passes(
    engine: SqliteEngine, n_faults: int, is_full: int, n_syncs: int
) -> None:
    # K22
    claims = await claims_of(engine, 5)
    wrong: Any = bytes(100_000) if is_full else object()  # SQLite takes a whole transaction back for which is no room
    (n_pages,) = Disk.connection.execute("PRAGMA page_count").fetchone()
    Disk.connection.execute(f"PRAGMA max_page_count = {n_pages + 10}")
    ends = [a_step(each.row.id, "end")._replace(body=wrong if n == 2 else b"{}") for n, each in enumerate(claims)]
    changes = [Change(status="done", end=end) for end in ends]
    given = [*claims[:3], claims[3]._replace(epoch=claims[3].epoch - 1), claims[4]]
    Disk.n_faults = n_faults
    tried = await asyncio.gather(
        *[engine.settle(*each, now=START) for each in zip(given, changes, strict=True)], return_exceptions=True
    )
    told = ["error" if isinstance(each, Exception) else each for each in tried]
    assert told == ([True, True, "error", False, True] if n_faults < 6 else ["error"] * 5)
    assert Disk.n_syncs == n_syncs, "after one for all, one for each: what does not fit must not hold up what does"
    await asyncio.gather(*ending(engine, *claims))
    assert {(await found(engine, each.row.id)).status for each in claims} == {"done"}

"""What has to be on the disk waits for one sync with all that waits at that time, and fails by itself."""

import asyncio
from pathlib import Path
from typing import Any

from journeyman.durable.records import Change, Claim
from journeyman.durable.sqlite import SqliteEngine
from tests.durable.processes import START, a_row, claimed, found
from tests.play import cancelled

OVER = Change(status="done", result=b"{}")


async def claims_of(engine: SqliteEngine, number: int) -> list[Claim]:
    for n in range(number):
        await engine.add(a_row(f"r{n}", head=b"." * 3_000))  # a page of the file for each
    return [await claimed(engine, f"r{n}") for n in range(number)]


async def bytes_written(engine: SqliteEngine, path: Path, *works: Any) -> int:
    before = path.with_name(f"{path.name}-wal").stat().st_size
    assert await asyncio.gather(*works) == [True] * len(works)
    return path.with_name(f"{path.name}-wal").stat().st_size - before


async def test_runs_that_end_at_once_are_written_in_two_transactions_and_not_one_each(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    try:
        # Every transaction writes the pages of the index again, so one for all is less to write.
        claims = await claims_of(engine, 40)
        alone = [await bytes_written(engine, engine.path, engine.settle(each, OVER, now=START)) for each in claims[:20]]
        ends = [engine.settle(each, OVER, now=START) for each in claims[20:]]
        assert await bytes_written(engine, engine.path, *ends) < 0.75 * sum(alone)
        assert {(await found(engine, each.row.id)).status for each in claims} == {"done"}
    finally:
        await engine.close()


async def test_one_write_that_fails_fails_alone_and_one_that_is_taken_back_in_time_is_not_made(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    try:
        claims = await claims_of(engine, 6)
        wrong: Any = object()
        changes = [Change(status="done", result=wrong if n == 2 else b"{}") for n in range(5)]
        fenced = claims[3]._replace(epoch=claims[3].epoch - 1)
        given = [*claims[:3], fenced, claims[4]]
        ends = [asyncio.create_task(engine.settle(*each, now=START)) for each in zip(given, changes, strict=True)]
        late = asyncio.create_task(engine.settle(claims[5], OVER, now=START))
        await asyncio.sleep(0)
        await cancelled(late)  # while the first waits for the disk
        first, second, failed, unowned, last = await asyncio.gather(*ends, return_exceptions=True)
        assert (first, second, unowned, last) == (True, True, False, True)
        assert isinstance(failed, Exception)
        statuses = [(await found(engine, each.row.id)).status for each in claims]
        assert statuses == ["done", "done", "running", "running", "done", "running"]
    finally:
        await engine.close()

"""Lists of runs: what they read of each run, in each store that is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from journeyman.durable.postgres.engine import PostgresEngine
from journeyman.durable.records import Head, dump_head, info_of
from journeyman.durable.sqlite import SqliteEngine
from tests.durable.processes import START, a_row
from tests.support import tamper

N_RUNS = 10_000
fetched: list[Sequence[object]] = []
"""The rows that the stores below were given."""


def size_of(value: object) -> int:
    """Return about how many bytes a value takes: a number as few as hold it."""
    match value:
        case str() | bytes():
            return len(value)
        case bool() | int():
            return (value.bit_length() + 7) // 8
        case _:
            return 0 if value is None else 8


class CountingFile(SqliteEngine):
    async def _read(self, query: str, given: Sequence[object] = (), *, in_thread: bool = False) -> list[Any]:
        found = await super()._read(query, given, in_thread=in_thread)
        fetched.extend(found)
        return found


class CountingDatabase(PostgresEngine):
    async def _find(self, query: str, *given: object) -> list[list[Any]]:
        found = await super()._find(query, *given)
        fetched.extend(found)
        return found


@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_a_list_of_many_runs_reads_nothing_of_what_they_were_begun_with_or_have_come_to(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = request.getfixturevalue("emptied") if kind == "postgres" else str(tmp_path / "runs.db")
    engine = CountingDatabase(place) if kind == "postgres" else CountingFile(place)
    head = Head(agent="clerk", input="x" * 300, prints={}, gates=(), target="agents.py:clerk", version="1")
    one = a_row("0" * 36, head=dump_head(head), target=head.target)
    await engine.open()
    try:
        await engine.add(one)
        tamper.alter(place, f"{tamper.DONE_RUNS}; {tamper.multiply_runs(N_RUNS - 1)}")
        fetched.clear()
        rows = await engine.rows(statuses=("done",), limit=N_RUNS)
        n_bytes = sum(size_of(each) for row in fetched for each in row)
    finally:
        await engine.close()
    assert len(rows) == len(fetched) == N_RUNS
    assert n_bytes < 1_000_000
    assert {(info_of(row, bool).target, row.created, row.queue) for row in rows} == {
        ("agents.py:clerk", START, "default")
    }

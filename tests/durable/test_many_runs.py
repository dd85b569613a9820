"""However many runs a store holds: what can be driven is found at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman import Agent
from journeyman.durable import Durable, Worker
from journeyman.durable.records import Row
from journeyman.durable.sqlite import SqliteEngine
from journeyman.journal import new_id
from journeyman.model import Request
from journeyman.testing.scripted import FunctionModel

NOW = 1_700_000_000.0


def queued(agent: str = "reader", queue: str = "default", priority: int = 0) -> Row:
    return Row(
        id=new_id(NOW), name=None, agent=agent, head=b"{}", created=NOW, status="ready", queue=queue, priority=priority
    )


async def test_what_is_ready_is_found_in_every_queue_by_priority(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    for priority, queue in enumerate(["", "default", "default!", "mail", ""]):
        await engine.add(queued(queue=queue, priority=priority))
        await engine.add(queued("other", queue, priority))
    found = await engine.ready(now=NOW, agents=["reader"], queues=(), limit=3)
    assert [(row.agent, row.queue, row.priority) for row in found] == [
        *(("reader", "", 4), ("reader", "mail", 3), ("reader", "default!", 2))
    ]
    only = await engine.ready(now=NOW, agents=["reader", "other"], queues=["mail"], limit=9)
    assert sorted((row.agent, row.queue) for row in only) == [("other", "mail"), ("reader", "mail")]
    await engine.close()


async def test_a_run_whose_owner_is_dead_is_found_behind_any_number_that_are_driven(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    for _ in range(150):
        await engine.add(replace(queued(priority=1), status="running", owner=engine.owner))
    left = await engine.add(replace(queued(), status="running", owner="w0"))
    found = await engine.ready(now=NOW, agents=["reader"], queues=(), limit=1)
    assert [row.id for row in found] == [left.id]
    await engine.close()


async def test_a_worker_that_has_just_looked_hears_of_a_run_that_is_started_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journeyman.durable.worker._PATIENCE_S", 3_600)  # no look of its own would find it
    stop = asyncio.Event()

    def answer(_: Request) -> str:
        stop.set()
        return "Done."

    agent = Agent(name="reader", model=FunctionModel(answer))
    async with Durable(tmp_path / "runs.db") as durable:
        await durable.hub.changed()  # a file that was just opened is news
        serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
        await asyncio.sleep(0)
        handle = await durable.start(agent, "Go.")
        await asyncio.wait_for(serving, 30)
        assert (await handle.info()).status == "done"

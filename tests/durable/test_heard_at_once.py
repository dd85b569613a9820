"""What is said in the process that drives a run is heard there at once, and a run that waits leaves memory on time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Success
from journeyman.durable import Durable, RunHandle, Worker
from journeyman.durable.engine import Written
from journeyman.durable.records import Claim, Record
from journeyman.durable.sqlite import SqliteEngine
from journeyman.gate import Allow, Ask
from journeyman.model import Request
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from tests.play import make_gate, make_tool

ASKING = make_gate(Ask("May it?"))


pay = make_tool("pay", "paid", effect="once")


def payer() -> Agent[str, str]:
    return Agent(name="payer", model=ScriptedModel([call("pay", id="A"), "Done."]), tools=[pay], gate=ASKING)


async def asked(handle: RunHandle[str], *, status: str) -> str:
    """Return the digest of what waits, once something does while the run has this status."""
    while True:
        info = await handle.info()
        if info.pending and info.status == status:
            return info.pending[0].question_id
        await handle.hub.changed(0.01)


async def test_a_run_that_waits_is_suspended_and_goes_on_without_a_look_that_would_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journeyman.durable.driver._LOOK_S", 3_600)
    async with Durable(tmp_path / "runs.db", suspend_after_s=0.01) as durable:
        handle = await durable.start(payer(), "Pay.", id="1")
        running = asyncio.create_task(durable.run(payer(), "Pay.", id="1"))
        await handle.approve(await asked(handle, status="waiting"), Allow())
        assert isinstance(await asyncio.wait_for(running, 30), Success)


class SlowEngine(SqliteEngine):
    """An engine that takes its time to write an answer: another process is writing."""

    async def write(self, claim: Claim, record: Record, **options: Any) -> Written:
        if "/approval/" in record.key:
            await asyncio.sleep(0.2)
        return await super().write(claim, record, **options)


@pytest.mark.parametrize(("engine", "suspend_after_s"), [(SqliteEngine, 600), (SlowEngine, 0.05)])
async def test_an_answer_in_the_same_process_is_taken_by_the_run_in_memory_also_while_it_is_being_stored(
    tmp_path: Path, engine: type[SqliteEngine], suspend_after_s: float
) -> None:  # K8
    async with Durable(engine(tmp_path / "runs.db"), suspend_after_s=suspend_after_s) as durable:
        handle = await durable.start(payer(), "Pay.", id="1")
        running = asyncio.create_task(durable.run(payer(), "Pay.", id="1"))
        await handle.approve(await asked(handle, status="running"), Allow())
        assert isinstance(await asyncio.wait_for(running, 30), Success)


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

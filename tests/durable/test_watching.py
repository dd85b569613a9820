"""What can be seen of durable runs beside what happens in them: the events of a store, and the state of its queues."""

from pathlib import Path

import pytest

from journeyman import Agent, Success
from journeyman.durable import Durable, QueueState, Worker
from journeyman.errors import RunBlocked
from journeyman.events import Event, RunClaimed, RunNeedsAttention, RunQueued, RunSuspended, RunWoken, StepStored
from journeyman.gate import Allow
from journeyman.testing.scripted import ScriptedModel, call
from tests.durable.processes import START, Stage, a_row, claimed
from tests.durable.worlds import World, asking_agent, until
from tests.play import make_tool, raising
from tests.support.made_events import made_events


async def test_a_store_tells_who_drives_a_run_and_what_is_stored(tmp_path: Path) -> None:
    heard: list[Event] = []

    pay = make_tool("pay", "Paid.", effect="once")
    agent = Agent(name="payer", model=ScriptedModel([call("pay"), "Done."]), tools=[pay])
    async with Durable(tmp_path / "runs.db", on_event=heard.append) as durable:
        handle = await durable.start(agent, "Pay.", queue="bills", priority=3)
        await Worker(durable, agents=[agent]).run(until_idle=True)
        records = await durable.hub.engine.records(handle.id)
        owner = durable.hub.engine.owner
    queued, claimed_, *steps = heard
    assert queued == RunQueued(path=("payer",), run=handle.id, queue="bills", priority=3, after_s=0.0)
    assert isinstance(claimed_, RunClaimed)
    assert (claimed_.worker, claimed_.epoch, claimed_.taken_from) == (owner, 1, None)
    assert (claimed_.n_lives, claimed_.n_steps) == (1, 0)
    assert [(each.key, each.bytes) for each in steps if isinstance(each, StepStored)] == [
        (each.key, len(each.body or b"")) for each in records
    ]
    assert len(steps) == len(records) > 4
    with made_events() as made:
        async with Durable(tmp_path / "unwatched.db") as durable:
            await durable.start(agent, "Pay.")
            await Worker(durable, agents=[agent]).run(until_idle=True)
    assert made == []


async def test_a_store_tells_of_a_run_that_waits_and_is_woken(tmp_path: Path) -> None:
    heard: list[Event] = []
    async with Durable(tmp_path / "runs.db", suspend_after_s=0.01, on_event=heard.append) as durable:
        agent = asking_agent(World())
        handle = await durable.start(agent, "Pay.", id="1")
        await durable.resume("1", agent)
        info = await until(durable, "1", "waiting")
        await handle.approve(info.pending[0].question_id, Allow())
        assert isinstance(await durable.resume("1", agent), Success)
    told = [type(each) for each in heard if not isinstance(each, StepStored)]
    assert told == [RunQueued, RunClaimed, RunSuspended, RunClaimed, RunWoken]


async def test_a_store_tells_from_whom_a_run_was_taken_and_why_one_is_blocked(tmp_path: Path) -> None:
    heard: list[Event] = []
    agent = Agent(name="reader", model=ScriptedModel(["Read."]))
    async with Durable(tmp_path / "runs.db") as durable:
        handle = await durable.start(agent, "Read.")
        first = durable.hub.engine.owner
        await claimed(durable.hub.engine, handle.id)
    other = Agent(name="reader", model=ScriptedModel(["Read."]), input=int)
    async with Durable(tmp_path / "runs.db", on_event=heard.append) as durable:
        with pytest.raises(RunBlocked) as caught:
            await durable.resume(handle.id, other)
    taken, halted = heard
    assert isinstance(taken, RunClaimed)
    assert (taken.taken_from, taken.epoch, taken.n_lives) == (first, 2, 2)
    assert isinstance(halted, RunNeedsAttention)
    assert halted.reason in str(caught.value)
    assert "no longer fits" in halted.reason


async def test_one_who_listens_and_raises_is_logged_and_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(name="reader", model=ScriptedModel(["Read."]))
    async with Durable(tmp_path / "runs.db", on_event=raising(LookupError("secret"))) as durable:
        assert isinstance(await durable.run(agent, "Read."), Success)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert said[0].startswith("The listener")
    assert "LookupError" in said[0]
    assert "secret" not in said[0]


async def test_a_queue_says_how_many_runs_are_where_and_how_old_the_oldest_is(stage: Stage) -> None:
    process = await stage.begin()
    assert list(await process.queues(now=START)) == []
    for id, queue, wake in (("a", "b", None), ("b", "b", None), ("c", "b", START + 50), ("d", "a", START + 5)):
        await process.add(a_row(id, queue=queue, wake=wake))
    for id, status in (("e", "waiting"), ("f", "held"), ("g", "blocked"), ("h", "done"), ("i", "failed")):
        await process.add(a_row(id, queue="b", status=status))
    await claimed(process, "a")
    assert list(await process.queues(now=START + 10)) == [
        QueueState(queue="a", ready=1, oldest_s=5.0, delayed=0, running=0, waiting=0, held=0, blocked=0),
        QueueState(queue="b", ready=1, oldest_s=10.0, delayed=1, running=1, waiting=1, held=1, blocked=1),
    ]

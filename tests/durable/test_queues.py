"""How workers do what is queued: limits over several workers, and the model that a run was started with."""

import asyncio

import pytest

from journeyman import Agent, Runtime
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.durable.worker import Queue, Worker
from journeyman.testing.scripted import ScriptedModel
from tests.durable.processes import Stage
from tests.durable.worlds import World, do
from tests.play import cancelled, following, virtual_clock
from tests.support.messages_answers import answer
from tests.support.servers import MessagesApi


@virtual_clock
async def test_a_worker_does_not_spin_while_its_queue_is_full(stage: Stage) -> None:
    # K18
    world = World(dies_in="A")  # it hangs there
    agent = Agent(name="clerk", model=following(do("idempotent", "A"), "Done."), tools=world.tools())
    queues, stop = {"batch": Queue(max_concurrency=1)}, asyncio.Event()
    process, n_claims = stage.process(), 0

    async def count(name: str) -> None:
        nonlocal n_claims
        n_claims += name == "claim"
        assert n_claims < 100

    process.before = count
    async with stage.durable() as left, Durable(process, now=stage.now) as right:
        handles = [await left.start(agent, "Go.", queue="batch") for _ in range(3)]
        working = asyncio.create_task(Worker(left, agents=[agent], queues=queues).run())
        await world.reached.wait()
        asyncio.get_running_loop().call_later(20, stop.set)
        await Worker(right, agents=[agent], queues=queues).run(stop=stop)
        assert sorted([(await handle.info()).status for handle in handles]) == ["ready", "ready", "running"]
        world.lives_on()
        await cancelled(working)
        await Worker(right, agents=[agent], queues=queues).run(until_idle=True)
        assert [(await handle.info()).status for handle in handles] == ["done"] * 3


async def test_a_run_that_was_started_with_another_model_is_done_with_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clerk, other = Agent(name="clerk", model=ScriptedModel(["Mine."] * 2)), "anthropic:claude-sonnet-5-5"
    async with MessagesApi([answer("From the other model.")]) as api, Durable(InMemoryEngine(Memory())) as durable:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        started = [await durable.start(clerk, "Go.", model=name) for name in (other, "", "nobody:nothing")]
        await Worker(durable, agents=[clerk]).run(until_idle=True)
        assert [(await each.result()).unwrap() for each in started[:2]] == ["From the other model.", "Mine."]
        assert (await started[2].info()).status == "ready"
        assert "is left to another worker: No provider is called 'nobody'" in caplog.text
        await Worker(durable, agents=[clerk], runtime=Runtime(model=ScriptedModel(["The worker's."]))).run(
            until_idle=True
        )
        assert (await started[2].result()).unwrap() == "The worker's."


async def test_workers_whose_clocks_are_a_day_apart_do_each_run_once(stage: Stage) -> None:
    world, a_day_s, n_runs = World(), 86_400.0, 16
    agent = Agent(name="clerk", model=following(do("once", "A"), do("once", "B"), "Done."), tools=world.tools())
    async with (
        stage.durable() as durable,
        Durable(stage.process(), now=lambda: stage.now() + a_day_s) as ahead,
        Durable(stage.process(), now=lambda: stage.now() - a_day_s) as behind,
    ):
        handles = [await durable.start(agent, "Go.") for _ in range(n_runs)]
        while {(await handle.info()).status for handle in handles} != {"done"}:
            working = [Worker(each, agents=[agent], max_concurrency=4).run(until_idle=True) for each in (ahead, behind)]
            await asyncio.wait_for(asyncio.gather(*working), 30)
        assert {(await handle.info()).leases for handle in handles} == {1}
    assert sorted(world.done) == ["A"] * n_runs + ["B"] * n_runs

"""A run that waits: for an answer, in time or not, from any process; and one that is stopped."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from journeyman import Agent, Failure, Limits, Success
from journeyman.durable.durable import Durable
from journeyman.durable.worker import Worker
from journeyman.errors import RunOver
from journeyman.gate import Allow
from journeyman.testing.scripted import Answer
from tests.durable.processes import START, Stage
from tests.durable.worlds import World, asked, asking_agent, do, is_cancelled, until
from tests.play import existing, following, succeeded, texts, virtual_clock


@virtual_clock
async def test_a_question_that_nobody_answers_in_time_is_denied(stage: Stage) -> None:
    # K12
    world, process = World(), stage.process()
    result = await stage.life(asking_agent(world, approval_seconds=60, seconds=30), process=process)
    assert isinstance(result, Success), "the wait does not count against the deadline"
    assert process.calls["glance"] > 20 > 5 > process.calls["get"], "it looks each second, and not at its long row"
    assert "nobody answered within 60s" in texts(result)[0]
    assert world.done == []


@virtual_clock
async def test_who_waits_for_the_result_of_a_run_looks_at_each_change_and_reads_its_long_row_at_its_end(
    stage: Stage,
) -> None:
    world, watching = World(), stage.process()
    async with stage.durable() as durable, Durable(watching, now=stage.now) as elsewhere:
        handle = await durable.start(asking_agent(world), "Go.", id="trip")
        waiting = asyncio.create_task((await elsewhere.get("trip")).result())
        for number in range(20):
            await durable.start(asking_agent(world), "Go.", id=f"other{number}")
            await asyncio.sleep(2)  # virtual
        n_read = watching.calls["get"]
        await handle.stop("enough")
        driven = asyncio.create_task(durable.resume("trip", asking_agent(world)))
        assert is_cancelled(await waiting)
        assert is_cancelled(await driven)
    assert watching.calls["glance"] > 10
    assert n_read < 5


@virtual_clock
async def test_a_run_that_waits_for_a_person_says_so_at_once_and_each_minute_and_how_to_answer(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    async with stage.durable() as durable:
        with caplog.at_level("INFO", logger="journeyman"):
            waiting = asyncio.create_task(durable.run(asking_agent(world), "Go.", id="trip"))
            await until(durable, "trip", "waiting")
            lines = [each.getMessage() for each in caplog.records if "waits for" in each.getMessage()]
            await asyncio.sleep(125)  # virtual
        again = [each.getMessage() for each in caplog.records if "waits for" in each.getMessage()]
        assert (len(lines), again) == (1, lines * 3)
        assert lines[0].startswith("The run trip of clerk waits for a decision about once (")
        there: dict[str, Any] = {"durable": durable, "Allow": Allow}
        exec(f"async def answer(): {lines[0].partition('process: ')[2]}", there)
        await there["answer"]()
        succeeded(await waiting)
    assert world.done == ["A"]


@virtual_clock
async def test_a_question_that_is_asked_again_in_another_life_has_no_more_time_than_it_had(stage: Stage) -> None:
    # K12
    world, until = World(), asyncio.Event()
    agent = asking_agent(world, approval_seconds=60)
    async with stage.durable() as other:
        living = asyncio.create_task(stage.life(agent, until=until))
        await asyncio.sleep(1)  # virtual
        first = await asked(other)
        until.set()
        assert await living is None
        stage.skipped_s += 40
        succeeded(await stage.life(agent))
        expires_at = existing(first.pending[0].expires_at)
        [denied] = [each.at for each in await (await other.get("run")).records() if "/approval/" in each.key]
        assert expires_at <= denied <= expires_at + 2


@virtual_clock
async def test_an_answer_that_comes_while_no_process_is_there_is_taken_by_the_next(stage: Stage) -> None:
    world = World()
    agent = asking_agent(world)
    async with stage.durable(suspend_after_s=1) as durable:
        await durable.start(agent, "Go.", id="run")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        info = await until(durable, "run", "waiting")
        assert (info.pending[0].tool, info.pending[0].question) == ("once", "May it run?")
        stage.skipped_s += 7 * 24 * 3_600
        handle = await durable.get("run")
        await handle.approve(info.pending[0].question_id[:12], Allow(), who="ann")
        assert (await handle.info()).status == "ready"
    async with stage.durable() as durable:
        await Worker(durable, agents=[agent]).run(until_idle=True)
        result = await (await durable.get("run", agent)).result()
    assert texts(result) == ["did A"]
    assert world.done == ["A"]


@pytest.mark.share(one_in=4)
@pytest.mark.parametrize("seed", range(10))
@virtual_clock
async def test_no_answer_is_lost_that_races_with_the_suspension_of_its_run(stage: Stage, seed: int) -> None:
    # K8: 40 races for each seed and engine; 8 where each takes a while
    random, world, process = Random(seed), World(), stage.process()
    n_answers = 4 if stage.is_elsewhere else 20
    answers: list[Answer] = [[do("once", f"A{n}"), do("idempotent", f"B{n}")] for n in range(n_answers)]
    agent = replace(asking_agent(world), model=following(*answers, "Done."), limits=Limits(iterations=30))

    async def take_a_while(_: str) -> None:
        await asyncio.sleep(random.uniform(0, 0.02))

    process.before = process.after = take_a_while
    stop, answered = asyncio.Event(), set[str]()
    async with Durable(process, now=stage.now, suspend_after_s=0.01) as durable, stage.durable() as other:
        handle = await durable.start(agent, "Go.", id="run")
        working = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
        while not (info := await handle.info()).is_over:
            for question in info.pending:
                if question.key not in answered:
                    answered.add(question.key)
                    await (await other.get("run")).approve(question.question_id, Allow())
            await asyncio.sleep(random.uniform(0, 0.2))
            assert stage.now() < START + 10_000, f"it stands still: {info}"
        stop.set()
        await working
        assert isinstance(await handle.result(), Success)
    assert sorted(world.done) == sorted(f"{kind}{n}" for kind in "AB" for n in range(n_answers))


@virtual_clock
async def test_a_run_that_is_cancelled_before_it_is_claimed_does_nothing(stage: Stage) -> None:
    # K17
    world = World()
    agent = Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools())
    async with stage.durable() as durable, stage.durable() as other:
        handle = await durable.start(agent, "Go.", id="run", after_s=3_600)
        await other.stop("run", "not today")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        result = await handle.result()
    assert is_cancelled(result)
    assert "not today" in str(result.error if isinstance(result, Failure) else "")
    assert world.done == []


@virtual_clock
async def test_a_run_that_is_cancelled_while_it_waits_ends(stage: Stage) -> None:
    # K17
    world = World()
    agent = asking_agent(world)
    async with stage.durable(suspend_after_s=1) as durable, stage.durable() as other:
        handle = await durable.start(agent, "Go.", id="run")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        await until(durable, "run", "waiting")
        await other.stop("run", "not today")
        await Worker(other, agents=[agent]).run(until_idle=True)
        result = await handle.result()
        assert is_cancelled(result)
        assert existing(result.metadata.usage).requests == 1
        with pytest.raises(RunOver, match="EXECUTION_CANCELLED"):
            await other.stop("run")
    assert world.done == []


@pytest.mark.parametrize("suspend_after_s", [0.5, 1e9])
@virtual_clock
async def test_a_run_that_is_cancelled_from_elsewhere_while_it_runs_ends(stage: Stage, suspend_after_s: float) -> None:
    # K17
    world = World(dies_in="A")  # it hangs there
    agent = Agent(name="clerk", model=following(do("idempotent", "A"), "Done."), tools=world.tools())
    async with stage.durable(suspend_after_s=suspend_after_s) as durable, stage.durable() as other:
        running = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await world.reached.wait()
        await other.stop("run", "not today")
        assert is_cancelled(await running)
        assert is_cancelled(await (await other.get("run")).result())


@virtual_clock
async def test_a_stop_holds_for_every_later_life(stage: Stage) -> None:
    # K17
    world = World(dies_in="B")
    agent = Agent(name="clerk", model=following(do("once", "A"), do("idempotent", "B"), "Done."), tools=world.tools())
    assert await stage.life(agent, until=world.reached) is None
    async with stage.durable() as other:
        await other.stop("run", "not today")
    world.lives_on()
    result = await stage.life(agent)
    assert is_cancelled(result)
    assert result is not None
    assert world.done == ["A"]
    assert texts(result)[:1] == ["did A"], "it ends with what it has gathered"
    assert existing(result.metadata.usage).requests == 2

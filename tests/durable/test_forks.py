"""Forks at every place of a run, three workers on one queue, and how much memory a replay takes."""

import asyncio
import tracemalloc
from dataclasses import replace

from journeyman import Agent, Limits, Output, Success
from journeyman.durable.handle import is_before
from journeyman.durable.records import DONE, unpack_step
from journeyman.durable.worker import Queue, Worker
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.durable.processes import Stage
from tests.durable.worlds import Letter, World, do, is_long
from tests.play import following, succeeded, virtual_clock


def writer(world: World) -> Agent[Letter, str]:
    """Return an agent whose run has two attempts of three iterations each."""

    answers: list[Answer] = [
        do("once", "A"),
        [do("idempotent", "B"), do("pure", "C")],
        call("output", text="Hi", id="o1"),
        do("once", "D"),
        do("once", "E"),
        call("output", text="Hello.", id="o2"),
    ]
    return Agent(
        name="writer", model=following(*answers), tools=world.tools(), output=Output(Letter), validators=[is_long]
    )


@virtual_clock
async def test_a_fork_at_every_place_has_all_that_was_done_before_and_nothing_else(stage: Stage) -> None:
    # K13
    world = World()
    agent = writer(world)
    async with stage.durable() as durable:
        whole = succeeded(await durable.run(agent, "Go.", id="run"))
        assert world.done == ["A", "B", "C", "D", "E"]
        records = [each for each in await (await durable.get("run")).records() if each.state == DONE]
        done_from = {(1, 1): "ABCDE", (1, 2): "BCDE", (1, 3): "DE", (2, 1): "DE", (2, 2): "E", (2, 3): ""}
        for at, done in done_from.items():
            branch = await durable.fork("run", at)
            head, *copied = await branch.records()
            assert head.key == "head"
            assert {each.about for each in copied} <= {None}, "what was done is taken as it is"
            assert [(each.key, each.body) for each in copied] == [
                (each.key, each.body) for each in records if is_before(each, at)
            ]
            world.done.clear()
            result = succeeded(await durable.resume(branch.id, agent))
            assert "".join(world.done) == done, at
            assert (result.output, result.history) == (whole.output, whole.history)
            assert result.metadata.usage == whole.metadata.usage
            seen = await branch.info()
            assert (seen.parent, seen.status) == ((await (await durable.get("run")).info()).id, "done")


@virtual_clock
async def test_a_fork_inherits_no_begun_mark(stage: Stage) -> None:
    # K13
    world = World(dies_after="A")
    agent = writer(world)
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    async with stage.durable() as durable:
        branch = await durable.fork("run", (1, 1))
        assert [each.key for each in await branch.records()] == ["head"]
        assert isinstance(await durable.resume(branch.id, agent), Success)
    assert world.done == ["A", "A", "B", "C", "D", "E"]


@virtual_clock
async def test_three_workers_let_no_more_of_a_queue_go_on_at_once_than_it_lets(stage: Stage) -> None:
    # K18
    world, most, now = World(slowest_s=3.0), 0, set[str]()
    agent = Agent(name="clerk", model=following(do("pure", "A"), do("once", "B"), "Done."), tools=world.tools())

    async def look(_: str) -> None:
        nonlocal most, now
        rows = await stage.processes[0].engine.rows(statuses=["running"])
        now = {row.id for row in rows if row.queue == "batch"}
        most = max(most, len(now))

    async with stage.durable() as one, stage.durable() as two, stage.durable() as three:
        for process in stage.processes:
            process.after = look
        n_runs = 6
        handles = [await one.start(agent, f"{n}", queue="batch" if n % 4 else "default") for n in range(n_runs)]
        queues = {"batch": Queue(max_concurrency=2), "default": Queue()}
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for durable in (one, two, three):
                group.create_task(Worker(durable, agents=[agent], queues=queues, max_concurrency=4).run(stop=stop))
            results = [await handle.result() for handle in handles]
            stop.set()
        assert [isinstance(result, Success) for result in results] == [True] * n_runs
        assert [(await handle.info()).leases for handle in handles] == [1] * n_runs
    assert most == 2
    assert world.done.count("B") == n_runs


@virtual_clock
async def test_what_a_replay_takes_of_the_memory_is_bounded_by_what_is_stored(stage: Stage) -> None:
    # K24. Beside 300 steps, what a program takes anyway is little. Each allocation is traced, which takes its time.
    n_iterations, n_asked, world = 150, 0, World()

    async def answer(_: object) -> Answer:
        nonlocal n_asked
        n_asked += 1
        if n_asked > n_iterations:
            await world.die()
        return do("pure", f"{n_asked} {world.random.randbytes(3_000).hex()}")

    limits = Limits(iterations=n_iterations + 1)
    agent = Agent(name="clerk", model=FunctionModel(answer), tools=world.tools(), limits=limits)
    assert await stage.life(agent, until=world.reached) is None
    async with stage.durable() as durable:
        records = await (await durable.get("run")).records()
        n_bytes = sum([len(unpack_step(each)) for each in records if each.state == DONE])
        assert len(records) > 2 * n_iterations
    del records
    peaks: list[int] = []

    def go_on(_: object) -> Answer:
        peaks.append(tracemalloc.get_traced_memory()[1])
        return "Done."

    tracemalloc.start()
    try:
        result = await stage.life(replace(agent, model=FunctionModel(go_on)))
    finally:
        tracemalloc.stop()
    assert isinstance(result, Success)
    assert peaks[0] <= 2.2 * n_bytes, "the values, and the conversation that is made of them"

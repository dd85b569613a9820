"""A run leaves its process: what it was doing ends, and nothing of it stays."""

import asyncio

from journeyman import Agent, Runtime, Success
from journeyman.durable.dispatch import GIVE_BACK_S
from journeyman.durable.durable import Durable
from journeyman.durable.worker import Worker
from journeyman.model import Request
from journeyman.serve.hosting import Hosting
from journeyman.serve.live import ServeLimits
from journeyman.testing.scripted import FunctionModel, ScriptedModel
from tests.durable.processes import Stage, a_cut, found
from tests.durable.worlds import World, do
from tests.play import cancelled, following, virtual_clock


@virtual_clock
async def test_no_task_of_a_run_outlives_the_task_that_drives_it(stage: Stage) -> None:
    world = World(dies_in="A")
    agent = Agent(name="clerk", model=ScriptedModel([do("once", "A")]), tools=world.tools())
    async with stage.durable() as durable:
        driving = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await world.reached.wait()
        before = asyncio.all_tasks()
        await cancelled(driving)
        assert asyncio.all_tasks() < before
    # that none is left at all is looked at by the clock


@virtual_clock
async def test_no_task_of_a_worker_outlives_it(stage: Stage) -> None:
    world = World(dies_in="A")
    agent = Agent(name="clerk", model=ScriptedModel([do("once", "A")]), tools=world.tools())
    async with stage.durable() as durable:
        await durable.start(agent, "Go.", id="run")
        working = asyncio.create_task(Worker(durable, agents=[agent]).run())
        await cancelled(working, when=world.reached)


@virtual_clock
async def test_a_run_that_is_cancelled_before_anything_of_it_is_read_is_given_back(stage: Stage) -> None:
    world, process = World(), stage.process()
    agent = Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools())
    away = asyncio.Event()

    async def fail(name: str) -> None:
        if name in ("records", "signals"):  # a run that was never driven has no records, and nobody reads them
            away.set()
            raise a_cut()

    process.before = fail
    async with Durable(process, now=stage.now) as durable:
        driving = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await cancelled(driving, when=away)
        assert (await found(process, "run")).status == "ready"
    assert isinstance(await stage.life(agent), Success)


@virtual_clock
async def test_a_run_whose_task_is_cancelled_twice_is_given_back(stage: Stage) -> None:
    begun, is_leaving = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_leaving.set()
            await asyncio.Event().wait()  # until it is cancelled once more
        return "never"

    agent = Agent(name="clerk", model=FunctionModel(answer))
    async with stage.durable() as durable:
        driving = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await begun.wait()
        driving.cancel()
        await cancelled(driving, when=is_leaving)
        assert (await (await durable.get("run")).info()).status == "ready"


async def is_gone(called: str) -> None:
    raise a_cut()


@virtual_clock
async def test_a_worker_whose_store_has_gone_ends_when_it_is_cancelled(stage: Stage) -> None:
    world, process = World(dies_in="A"), stage.process()
    agent = Agent(name="clerk", model=ScriptedModel([do("once", "A")]), tools=world.tools())
    async with Durable(process, now=stage.now) as durable:
        await durable.start(agent, "Go.", id="run")
        working = asyncio.create_task(Worker(durable, agents=[agent]).run())
        await world.reached.wait()
        process.before = is_gone
        began_s = asyncio.get_running_loop().time()
        await cancelled(working)
        assert asyncio.get_running_loop().time() - began_s <= GIVE_BACK_S


@virtual_clock
async def test_a_server_whose_store_has_gone_ends_within_its_grace(stage: Stage) -> None:
    world, process = World(dies_in="A"), stage.process()
    agent = Agent(name="clerk", model=ScriptedModel([do("once", "A")]), tools=world.tools())
    durable, loop = Durable(process, now=stage.now), asyncio.get_running_loop()
    hosting = Hosting(
        {"clerk": agent}, durable, deps=None, runtime=Runtime(), limits=ServeLimits(), on_disconnect="continue"
    )
    async with durable:
        async with hosting.lifespan():
            await hosting.start("public:run", agent, "Go.", is_tied=False)
            await world.reached.wait()
            process.before = is_gone
            began_s = loop.time()
            await hosting.drain(3.0)
        assert loop.time() - began_s <= 3

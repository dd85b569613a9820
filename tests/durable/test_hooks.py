"""Functions of the program that durable runs call beside their steps: one may raise once, or be async."""

import asyncio
from typing import Any

import pytest

from journeyman import Agent, Callbacks, DefinitionError, Event, Success
from journeyman.durable import Durable, Worker
from journeyman.durable.binding import Program
from journeyman.durable.records import Row
from tests.durable.processes import Stage
from tests.durable.worlds import World, do
from tests.play import following, virtual_clock


def clerk(world: World) -> Agent[str, str]:
    return Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools())


async def worked(durable: Durable, world: World, **options: Any) -> None:
    """Let a worker do a run to its end."""
    agent, stop = clerk(world), asyncio.Event()
    handle = await durable.start(agent, "Go.", id="run")
    serving = asyncio.create_task(Worker(durable, agents=[agent], **options).run(stop=stop))
    async with asyncio.timeout(60):  # virtual
        assert isinstance(await handle.result(), Success)
    stop.set()
    await serving


@virtual_clock
async def test_a_clock_that_raises_once_hangs_no_run_and_ends_no_worker(stage: Stage) -> None:
    n_calls, is_reached = 1, True
    while is_reached:
        world, is_reached = World(), False
        n_left: int | None = None

        def now() -> float:
            nonlocal n_left, is_reached
            if n_left is not None:
                n_left -= 1
                if n_left == 0:
                    is_reached = True
                    raise OSError("no clock")
            return stage.now()

        async with Durable(stage.process(), now=now) as durable:
            agent, stop = clerk(world), asyncio.Event()
            handle = await durable.start(agent, "Go.", id=f"run {n_calls}")
            n_left = n_calls
            serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
            async with asyncio.timeout(60):  # virtual
                result = await handle.result()
            assert isinstance(result, Success) or result.code == "INTERNAL_ERROR", (n_calls, result)
            stop.set()
            await serving
        assert world.done in (["A"], []), n_calls
        n_calls += 1
    assert n_calls > 5


@virtual_clock
async def test_listeners_and_callbacks_that_raise_or_are_awaited_change_nothing(stage: Stage) -> None:
    world, called = World(), list[str]()

    def raises(event: Event) -> None:
        called.append(type(event).__name__)
        raise OSError("nobody listens")

    async def awaited(*_: object) -> None:
        called.append("awaited")
        await asyncio.sleep(0)
        raise OSError("nobody listens")

    async with stage.durable(on_event=raises) as durable:
        await worked(durable, world, on_event=raises, callbacks=Callbacks(on_tool_call=awaited, on_success=awaited))
    assert world.done == ["A"]
    assert {"RunClaimed", "ToolFinished", "awaited"} <= {*called}


@virtual_clock
async def test_what_a_worker_gives_a_run_may_fail_at_first_and_takes_no_others_slot_while_it_waits(
    stage: Stage,
) -> None:
    world, asked = World(), list[str]()

    async def equip(row: Row, program: Program) -> Program:
        asked.append(row.name or "")
        if row.name == "stuck":
            await asyncio.Event().wait()
        if asked.count("run") == 1:
            raise OSError("not yet")
        return program

    async with stage.durable() as durable:
        await durable.start(clerk(World()), "Go.", id="stuck", priority=1)
        await worked(durable, world, max_concurrency=2, prepare=equip)
    assert asked == ["stuck", "run", "run"]
    assert world.done == ["A"]


async def hears(event: Event) -> None:
    """Hear nothing."""


async def test_a_listener_that_nobody_would_await_is_refused(stage: Stage) -> None:
    with pytest.raises(DefinitionError, match="on_event, hears, is an async function"):
        Durable(stage.process(), on_event=hears)  # pyright: ignore[reportArgumentType] - users' code may not be typed
    async with stage.durable() as durable:
        with pytest.raises(DefinitionError, match="on_event, hears, is an async function"):
            Worker(durable, agents=[clerk(World())], on_event=hears)  # pyright: ignore[reportArgumentType] - as above

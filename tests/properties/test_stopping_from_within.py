"""Stopped by its own listeners, tools, validators and prompts, and by what stands around it, a run ends as it must."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest

from journeyman import Abort, Agent, Callbacks, Event, Success, run, stream, tool
from journeyman.events import Listener, RunSucceeded
from journeyman.testing.scripted import ScriptedModel, call
from tests.properties.played_model import PlayedModel
from tests.properties.stopped_everywhere import EVERYTHING, SLOW, ending
from tests.properties.world import Act, ReflectionPlan, Site, Stop, ToolPlan, World
from tests.properties.world_run import WorldRun
from tests.support.counting_loop import CountingLoop, on_counting_loop, the_counting_loop
from tests.support.invariants import check_invariants
from tests.support.run_record import RunRecord

How = Literal["abort", "cancel"]


def run_of(world: World) -> WorldRun:
    return WorldRun(world, PlayedModel(world.turns, world.price))


def run_world(world: World) -> RunRecord:
    """Return a checked run of the world."""
    record = on_counting_loop(lambda: run_of(world).run())
    check_invariants(record)
    return record


STOPPED: dict[How, str] = {"abort": "EXECUTION_CANCELLED", "cancel": "CancelledError"}


@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_a_listener_may_stop_the_run_at_any_event(how: How) -> None:  # A22, A23, D22, D23, R52, design 4.8
    async def scenario() -> list[str]:
        world_run = run_of(EVERYTHING)
        undisturbed = await world_run.run()
        found: list[str] = []
        for number in range(1, len(undisturbed.events) + 1):
            asked: list[int] = []
            world_run.listener = _at_event(world_run, number, how, asked)
            record = await world_run.run()
            check_invariants(record)
            assert asked in ([], [len(record.replies or ())]), "the model is asked after the stop"
            found.append(ending(record))
        return found

    found = on_counting_loop(scenario)
    n_stopped = found.count(STOPPED[how])
    assert n_stopped > 60
    assert found[:n_stopped] == [STOPPED[how]] * n_stopped
    assert set(found[n_stopped:]) <= {"Success"}


def _at_event(world_run: WorldRun, number: int, how: How, asked: list[int]) -> Listener:
    def listener(event: Event) -> None:
        record = world_run.actor.record
        if record is not None and len(record.events) == number:
            asked.append(len(record.replies or ()))
            world_run.actor.stop(how)

    return listener


def _with_act(where: str, act: Act, form: Literal["sync", "async"]) -> World:
    """Return the world in which this happens in this place."""
    site = Site(form, (act,))
    match where:
        case "a tool" | "a parallel tool":
            form_of_tool = "inline" if form == "sync" else "async"
            first = ToolPlan(name="look", form=form_of_tool, parallel=where == "a parallel tool", acts=(act,))
            changed: dict[str, Any] = {"tools": (first, *EVERYTHING.tools[1:])}
        case "a validator":
            changed = {"validators": (site, SLOW)}
        case "the reflection":
            changed = {"reflection": ReflectionPlan(site=site)}
        case "a middleware":
            changed = {"tool_middleware": (site,)}
        case callback if callback.startswith("on_") and callback != "on_message":
            changed = {"callbacks": {**EVERYTHING.callbacks, callback: site}}
        case field:
            changed = {field: site}
    return replace(EVERYTHING, **changed)


ASYNC_PLACES = (
    *("a tool", "a parallel tool", "a validator", "the reflection", "a middleware", "system", "prompt", "error_prompt"),
    *("gate", "runtime_gate", "on_attempt_start", "on_iteration_start", "on_tool_call", "on_model_response"),
    *("on_tool_result", "on_layer_start", "on_layer_complete", "on_validation_failure"),
)
SYNC_PLACES = (
    *("run_state", "attempt_state", "transform_messages", "on_message"),
    *(where for where in ASYNC_PLACES if where != "a parallel tool"),
)
PLACES = [*((where, "async") for where in ASYNC_PLACES), *((where, "sync") for where in SYNC_PLACES)]


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("how", ["abort", "cancel"])
@pytest.mark.parametrize(("where", "form"), PLACES)
def test_a_function_of_the_user_may_stop_the_run(  # A22, D22
    where: str, form: Literal["sync", "async"], how: How
) -> None:
    assert ending(run_world(_with_act(where, Act(how), form))) == STOPPED[how]


@pytest.mark.parametrize("where", ASYNC_PLACES)
@pytest.mark.parametrize("kind", ["swallow", "convert"])
def test_an_abort_is_obeyed_also_when_a_function_swallows_it(  # R36, D22
    where: str, kind: Literal["swallow", "convert"]
) -> None:
    world = replace(_with_act(where, Act(kind, 1_000.0), "async"), stops=(Stop(100.0, "abort"),))
    assert ending(run_world(world)) == "EXECUTION_CANCELLED"


@pytest.mark.parametrize("where", ASYNC_PLACES)
def test_a_cancellation_that_a_function_swallows_is_that_functions(where: str) -> None:  # A21: as `TaskGroup` has it
    world = replace(_with_act(where, Act("swallow", 1_000.0), "async"), stops=(Stop(100.0, "cancel"),))
    record = run_world(world)
    assert record.was_swallowed
    assert ending(record) in ("Success", "CancelledError")  # the latter where calls run together, in a `TaskGroup`


@pytest.mark.parametrize("how", ["abort", "cancel"])
@pytest.mark.parametrize("where", ["on_success", "final_state"])
def test_what_stops_a_finished_run_comes_too_late(where: str, how: How) -> None:  # A22: "or the finished result"
    record = run_world(_with_act(where, Act(how), "sync"))
    assert isinstance(record.events[-1], RunSucceeded)
    assert ending(record) == "Success" or how == "cancel"


@pytest.mark.parametrize("limit_s", [0.05, 0.7, 2.0, 4.0, 6.0, 9.0, 12.0, 15.0])
def test_a_timeout_around_the_run_is_the_timeouts(limit_s: float) -> None:  # design 4.5
    seen: list[str] = []

    async def in_time(recorded: Coroutine[Any, Any, RunRecord]) -> RunRecord:
        made = None
        try:
            async with asyncio.timeout(limit_s):
                made = await recorded
                made.was_cancelled = True
                if made.raised is not None:
                    raise made.raised
        except TimeoutError:
            seen.append("TimeoutError")
        assert made is not None
        task = asyncio.current_task()
        seen.append("cancelling" if task is not None and task.cancelling() else "not cancelling")
        return made

    async def scenario() -> RunRecord:
        world_run = run_of(EVERYTHING)
        world_run.around = in_time
        return await world_run.run()

    record = on_counting_loop(scenario)
    check_invariants(record)
    assert (ending(record), seen) == ("CancelledError", ["TimeoutError", "not cancelling"])


def test_a_task_group_around_the_run_cancels_it_when_a_sibling_fails_at_any_step() -> None:  # design 4.5
    async def scenario() -> set[str]:
        loop, world_run = the_counting_loop(), run_of(EVERYTHING)
        assert loop is not None
        await world_run.run()
        found: set[str] = set()
        for step in range(3, loop.steps, 3):
            world_run.around = partial(_beside_a_sibling, loop, step)
            record = await world_run.run()
            check_invariants(record)
            found.add(ending(record))
        return found

    assert on_counting_loop(scenario) == {"CancelledError", "Success"}


async def _beside_a_sibling(loop: CountingLoop, step: int, recorded: Coroutine[Any, Any, RunRecord]) -> RunRecord:
    failed = asyncio.Event()

    async def sibling() -> None:
        await failed.wait()
        raise LookupError("the sibling failed")

    async def hero() -> RunRecord:
        made = await recorded
        made.was_cancelled = True
        failed.set()
        records.append(made)
        if made.raised is not None:
            raise made.raised
        return made

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sibling())
            tasks.create_task(hero())
            loop.count_from_here()
            loop.before_step(step, failed.set)

    records: list[RunRecord] = []
    with pytest.raises(ExceptionGroup) as caught:
        await group()
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    return records[0]


def test_one_signal_stops_many_runs_of_one_agent() -> None:  # A48, design 4.5
    async def scenario() -> list[str]:
        world_runs = [run_of(EVERYTHING) for _ in range(20)]
        running = [asyncio.create_task(world_run.run()) for world_run in world_runs]
        await asyncio.sleep(4.0)
        for world_run in world_runs[1:]:
            assert world_run.actor.abort is not world_runs[0].actor.abort
        for world_run in world_runs:
            world_run.actor.stop("abort")
        records = [await each for each in running]
        for record in records:
            check_invariants(record)
        return [ending(record) for record in records]

    assert on_counting_loop(scenario) == ["EXECUTION_CANCELLED"] * 20


def test_leaving_a_stream_at_any_event_ends_its_run_at_once() -> None:  # design 2: "cancels the run and awaits it"
    async def scenario() -> list[str]:
        loop, world_run = the_counting_loop(), run_of(EVERYTHING)
        assert loop is not None
        n_events = len((await world_run.run()).events)
        before = (asyncio.all_tasks(), loop.pending_timers())
        found: list[str] = []
        for number in range(1, n_events + 1):
            world_run.actor.begin()
            found.append(await _left(world_run, number))
            assert (asyncio.all_tasks(), loop.pending_timers()) == before
        return found

    found = on_counting_loop(scenario)
    n_cancelled = found.count("CancelledError")
    assert n_cancelled > 30
    assert found[n_cancelled:] == ["Success"] * (len(found) - n_cancelled)  # the run was ahead of its reader


async def _left(world_run: WorldRun, number: int) -> str:
    """Read so many events of a stream, and leave it; return how its run ended."""
    n_read = 0
    async with stream(world_run.agent, "What sold best?") as events:
        async for _ in events:
            n_read += 1
            if n_read == number:
                break
    try:
        return type(events.result).__name__
    except asyncio.CancelledError:
        return "CancelledError"


@pytest.mark.parametrize("where", ["tool", "validator", "project", "listener", "callback"])
async def test_a_signal_from_another_thread_never_hits_the_caller(where: str) -> None:  # A22
    """The signal may still be on its way to the loop when the run ends: it must not cancel whoever goes on then."""
    abort = Abort()

    def fire(here: str) -> None:
        if here == where:
            thread = threading.Thread(target=abort.abort)
            thread.start()
            thread.join()

    @tool(thread=False)
    def look() -> None:
        """Look."""
        fire("tool")

    agent = Agent(
        name="hero",
        model=ScriptedModel([call("look"), "Done."]),
        tools=[look],
        validators=[lambda text: fire("validator")],
        final_state=lambda states: fire("project"),
    )
    result = await run(
        agent,
        "Go.",
        abort=abort,
        on_event=lambda event: fire("listener") if isinstance(event, RunSucceeded) else None,
        callbacks=Callbacks(on_success=lambda context, output: fire("callback")),
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert abort.aborted
    assert isinstance(result, Success) or result.code == "EXECUTION_CANCELLED"


@pytest.mark.parametrize("stop", [None, "abort", "cancel", "deadline"])
def test_a_run_in_the_clean_up_of_a_cancelled_task_is_a_run_like_any(stop: str | None) -> None:  # design 4.5
    """Its task has a cancellation behind it that nobody took back: that is none of the run's."""

    async def scenario() -> tuple[str, int]:
        world_run = run_of(
            replace(EVERYTHING, limits=replace(EVERYTHING.limits, seconds=10.0 if stop == "deadline" else None))
        )

        async def cleaning_up(recorded: Coroutine[Any, Any, RunRecord]) -> RunRecord:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
            if stop in ("abort", "cancel"):
                asyncio.get_running_loop().call_later(5.0, world_run.actor.stop, stop)
            made = await recorded
            counts.append(task.cancelling())
            return made

        counts: list[int] = []
        world_run.around = cleaning_up
        record = await world_run.run()
        check_invariants(record)
        return ending(record), counts[0]

    expected = {None: "Success", **STOPPED, "deadline": "BUDGET_EXCEEDED"}
    assert on_counting_loop(scenario) == (expected[stop], 2 if stop == "cancel" else 1)

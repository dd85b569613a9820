"""Stopped by its own listeners, tools, validators and prompts, and by what stands around it, a run ends as it must."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest

from journeyman import Event, Failure, Listener, Success
from journeyman.events import RunSucceeded
from tests.properties.everywhere import EVERYTHING, SLOW
from tests.properties.played_model import PlayedModel
from tests.properties.staging import Staging
from tests.properties.world import Act, ReflectionPlan, Site, Stop, ToolPlan, World
from tests.support.counting_loop import CountingLoop, on_counting_loop, the_counting_loop
from tests.support.invariants import check_invariants
from tests.support.run_record import RunRecord

How = Literal["abort", "cancel"]


def ending(record: RunRecord) -> str:
    """Return how a run ended, in a word."""
    match record.result:
        case None:
            return type(record.raised).__name__
        case Success():
            return "Success"
        case Failure(error=error):
            return error.code


def staged(world: World) -> Staging:
    return Staging(world, PlayedModel(world.turns, world.price))


def run_world(world: World) -> RunRecord:
    """Return a checked run of the world."""
    record = on_counting_loop(lambda: staged(world).run())
    check_invariants(record)
    return record


STOPPED: dict[How, str] = {"abort": "EXECUTION_CANCELLED", "cancel": "CancelledError"}


@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_a_listener_may_stop_the_run_at_any_event(how: How) -> None:  # A22, design 4.8
    async def scenario() -> list[str]:
        staging = staged(EVERYTHING)
        undisturbed = await staging.run()
        found: list[str] = []
        for number in range(1, len(undisturbed.events) + 1):
            staging.listener = _at_event(staging, number, how)
            record = await staging.run()
            check_invariants(record)
            found.append(ending(record))
        return found

    found = on_counting_loop(scenario)
    n_stopped = found.count(STOPPED[how])
    assert n_stopped > 60
    assert found[:n_stopped] == [STOPPED[how]] * n_stopped
    assert set(found[n_stopped:]) <= {"Success"}


def _at_event(staging: Staging, number: int, how: How) -> Listener:
    def listener(event: Event) -> None:
        record = staging.actor.record
        if record is not None and len(record.events) == number:
            staging.actor.stop(how)

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
            changed = {"middlewares": (site,)}
        case callback if callback.startswith("on_") and callback != "on_message":
            changed = {"callbacks": {**EVERYTHING.callbacks, callback: site}}
        case field:
            changed = {field: site}
    return replace(EVERYTHING, **changed)


ASYNC_PLACES = (
    *("a tool", "a parallel tool", "a validator", "the reflection", "a middleware", "system", "prompt", "error_prompt"),
    *("gate", "host_gate", "on_attempt_start", "on_iteration_start", "on_tool_call", "on_model_response"),
    *("on_tool_result", "on_layer_start", "on_layer_complete", "on_validation_failure"),
)
SYNC_PLACES = (
    *("run_state", "attempt_state", "convert", "on_message"),
    *(where for where in ASYNC_PLACES if where != "a parallel tool"),
)
PLACES = [*((where, "async") for where in ASYNC_PLACES), *((where, "sync") for where in SYNC_PLACES)]


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
@pytest.mark.parametrize("where", ["on_success", "project"])
def test_what_stops_a_finished_run_comes_too_late(where: str, how: How) -> None:  # A22: "or the finished result"
    record = run_world(_with_act(where, Act(how), "sync"))
    assert isinstance(record.events[-1], RunSucceeded)
    assert ending(record) == "Success" or how == "cancel"


def test_a_signal_that_has_fired_before_stops_the_run_before_its_first_request() -> None:  # A23, R52
    record = run_world(replace(EVERYTHING, stops=(Stop(0.0, "abort"),)))
    assert ending(record) == "EXECUTION_CANCELLED"
    assert record.replies == []


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
        staging = staged(EVERYTHING)
        staging.around = in_time
        return await staging.run()

    record = on_counting_loop(scenario)
    check_invariants(record)
    assert (ending(record), seen) == ("CancelledError", ["TimeoutError", "not cancelling"])


def test_a_task_group_around_the_run_cancels_it_when_a_sibling_fails_at_any_step() -> None:  # design 4.5
    async def scenario() -> set[str]:
        loop, staging = the_counting_loop(), staged(EVERYTHING)
        assert loop is not None
        await staging.run()
        found: set[str] = set()
        for step in range(3, loop.steps, 3):
            staging.around = partial(_beside_a_sibling, loop, step)
            record = await staging.run()
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
        stagings = [staged(EVERYTHING) for _ in range(20)]
        running = [asyncio.create_task(staging.run()) for staging in stagings]
        await asyncio.sleep(4.0)
        for staging in stagings[1:]:
            assert staging.actor.abort is not stagings[0].actor.abort
        for staging in stagings:
            staging.actor.stop("abort")
        records = [await each for each in running]
        for record in records:
            check_invariants(record)
        return [ending(record) for record in records]

    assert on_counting_loop(scenario) == ["EXECUTION_CANCELLED"] * 20

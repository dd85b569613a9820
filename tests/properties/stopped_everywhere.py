"""One run with everything in it, and the ways to stop it before any step of its event loop.

The run: a failed request and a wait, parallel tools, a tool inline and one that runs out of time, a gate, a
middleware, a reflection, a rejected output and its repair, async prompts, validators and callbacks.
"""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from journeyman import Failure, Limits, Success, Text
from journeyman.types import ToolUse
from tests.properties.played_model import Fault, PlayedModel, Turn
from tests.properties.world import Act, ReflectionPlan, Site, ToolPlan, World
from tests.properties.world_run import WorldRun
from tests.support.counting_loop import CountingLoop, the_counting_loop
from tests.support.run_record import RunRecord
from tests.support.shares import thinned

SLOW = Site("async", (Act("slow", 0.5),))
TURNS = (
    Turn(content=(Text("Let me"),), stop_reason="end_turn", slow_s=0.1, fault=Fault(kind="overloaded", after=2)),
    Turn(
        content=(
            Text("Let me see."),
            ToolUse("a", "look", '{"value": 1}'),
            ToolUse("b", "count", '{"value": 2}'),
            ToolUse("c", "fetch", '{"value": 3}'),
            ToolUse("d", "ask"),
        ),
        stop_reason="tool_use",
    ),
    Turn(content=(ToolUse("e", "output", '{"title": "June", "total": 1}'),), stop_reason="tool_use"),
    Turn(content=(ToolUse("f", "submit"),), stop_reason="tool_use"),
    Turn(
        content=(ToolUse("g", "output", '{"title": "May", "total": 3}'), ToolUse("h", "submit")), stop_reason="tool_use"
    ),
)
SLOW_CALLBACKS = (
    *("on_run_start", "on_attempt_start", "on_tool_call", "on_tool_result", "on_layer_complete"),
    *("on_attempt_complete", "on_success", "on_failure"),
)
EVERYTHING = World(
    turns=TURNS,
    output="model",
    tools=(
        ToolPlan(name="look", parallel=True, acts=(Act("slow", 1.0),)),
        ToolPlan(name="count", parallel=True, acts=(Act("slow", 2.0),), cache="run"),
        ToolPlan(name="fetch", form="inline", acts=(Act("state"),)),
        ToolPlan(name="ask", acts=(Act("slow", 3.0),), timeout_s=1.0),
    ),
    reflection=ReflectionPlan(site=SLOW),
    validators=(Site("sync"), Site("async", (Act("reject"), Act("slow", 0.5)))),
    limits=Limits(attempts=2, iterations=3, max_concurrency=2),
    request_retries=1,
    gate=SLOW,
    tool_middleware=(SLOW,),
    error_prompt=SLOW,
    system=SLOW,
    callbacks={**dict.fromkeys(SLOW_CALLBACKS, SLOW), "on_model_response": Site()},
    has_runtime_budget=True,
)


def ending(record: RunRecord) -> str:
    """Return how a run ended, in a word."""
    match record.result:
        case None:
            return type(record.raised).__name__
        case Success():
            return "Success"
        case Failure(error=error):
            return error.code


Plan: TypeAlias = Callable[[CountingLoop, WorldRun, int], None]
"""Sees to it that a run is stopped before the step of that number."""


def abort(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    loop.before_step(step, lambda: world_run.actor.stop("abort"))


def cancel(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    loop.before_step(step, lambda: world_run.actor.stop("cancel"))


def abort_then_cancel(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    abort(loop, world_run, step)
    cancel(loop, world_run, step + 1)


def cancel_then_abort(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    cancel(loop, world_run, step)
    abort(loop, world_run, step + 1)


def both_at_once(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    def stop() -> None:
        world_run.actor.stop("abort")
        world_run.actor.stop("cancel")

    loop.before_step(step, stop)


def let_time_run_out(loop: CountingLoop, world_run: WorldRun, step: int) -> None:
    def jump() -> None:
        loop.now_s += 1_000.0

    loop.before_step(step, jump)


async def stopped_everywhere(world: World, plan: Plan, *, one_in: int = 1, first: int = 0) -> AsyncIterator[RunRecord]:
    """Run the world undisturbed, then stopped before step 1, before step 2, and so on to the last step it had.

    `one_in` and `first` are those of `thinned`.
    """
    loop, world_run = the_counting_loop(), WorldRun(world, PlayedModel(world.turns, world.price))
    assert loop is not None
    loop.count_from_here()
    yield await world_run.run()
    for step in thinned(range(1, loop.steps + 1), one_in, first=first):
        loop.count_from_here()
        plan(loop, world_run, step)
        yield await world_run.run()

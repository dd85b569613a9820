"""Whatever model, tools, validators and callbacks do: every run ends, and holds what every run must hold."""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given

from journeyman import Budget, Failure
from tests.properties.examples import examples, patient
from tests.properties.played_model import PlayedModel
from tests.properties.world import World
from tests.properties.world_run import WorldRun
from tests.properties.worlds import worlds
from tests.support.counting_loop import on_counting_loop
from tests.support.invariants import check_invariants
from tests.support.run_record import RunRecord

pytestmark = patient


def run_world(world: World) -> RunRecord:
    """Return what was seen of a run of the world, on the virtual clock. The waits between requests are drawn anew."""
    random.seed(7)
    return on_counting_loop(lambda: WorldRun(world, PlayedModel(world.turns, world.price)).run())


@pytest.mark.fuzz
@examples()
@given(worlds())
def test_every_run_holds_what_every_run_must_hold(world: World) -> None:  # design, section 4, items 3 to 8
    check_invariants(run_world(world))


@pytest.mark.fuzz
@examples(one_in=5)
@given(worlds())
def test_a_run_ends_the_same_whoever_watches(world: World) -> None:  # R74, design 4.2: there is one loop
    """Where nobody watches the loop takes shorter ways, and `stream` runs it in a task of its own."""
    limits = replace(world.limits, seconds=None, per_attempt=Budget())
    quiet = replace(world, limits=limits, stops=(), callbacks={}, on_message=None)
    listened, streamed, unseen = (run_world(replace(quiet, watch=watch)) for watch in ("listener", "stream", "nobody"))
    for record in (listened, streamed, unseen):
        check_invariants(record)
    # A task that cancels itself meets the cancellation at its next wait, and a stream waits elsewhere than a plain run.
    assume(not any(record.was_cancelled for record in (listened, streamed, unseen)))
    assert _gist(listened) == _gist(streamed) == _gist(unseen)
    assert [type(event) for event in listened.events] == [type(event) for event in streamed.events]


def _gist(record: RunRecord) -> tuple[object, ...]:
    result = record.result
    if result is None:
        return (type(record.raised),)
    metadata = result.metadata
    counted = {name: (stats.calls, stats.succeeded, dict(stats.errors)) for name, stats in metadata.tools.items()}
    attempts = [(attempt.iterations, attempt.usage) for attempt in metadata.attempts]
    ended = (result.code, result.candidate) if isinstance(result, Failure) else (result.output, result.terminal_result)
    # As text, since a NaN is not equal to itself.
    return (*map(repr, ended), result.history, metadata.usage, attempts, counted, metadata.latency_s)

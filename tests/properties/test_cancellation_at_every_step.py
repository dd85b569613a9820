"""Stopped before every single step of its event loop, in every way there is, a run still ends as it must.

What must hold of every run holds each time; an abort is a `Failure` or the finished result, a cancellation is a
`CancelledError` or the finished result, and what was used is counted. An abort alone and a cancellation alone are tried
before every step. Of ways that are made of these, and of worlds around this one, `make test` takes a diagonal: each
step is tried in some of them, and all in `make fuzz`.
"""

from collections import Counter
from dataclasses import replace

import pytest

from journeyman import Budget
from tests.properties import stopped_everywhere as stopped
from tests.properties.stopped_everywhere import EVERYTHING, Plan, ending
from tests.properties.world import Act, ToolPlan, World
from tests.properties.world_run import LIMITLESS
from tests.support.counting_loop import on_counting_loop
from tests.support.invariants import check_invariants
from tests.support.run_record import RunRecord


def endings(world: World, plan: Plan, *, one_in: int = 1, first: int = 0) -> Counter[str]:
    """Stop the world everywhere, check every run, and return how often they ended in which way."""

    async def scenario() -> Counter[str]:
        found: Counter[str] = Counter()
        async for record in stopped.stopped_everywhere(world, plan, one_in=one_in, first=first):
            check_invariants(record)
            await _nothing_is_reserved(record)
            found[ending(record)] += 1
        return found

    return on_counting_loop(scenario)


async def _nothing_is_reserved(record: RunRecord) -> None:
    """What the run used is settled with the budget it drew on, also when nothing was returned; the rest is free."""
    budget = record.runtime.budget if record.runtime is not None else None
    if budget is not None and record.replies is not None:
        replies = [reply for each in (record, *record.inside) for reply in each.replies or ()]
        used = sum(reply.usage.total_tokens for reply in replies)
        spent = budget.used_tokens
        # The words of an answer that was cut are estimated; where nothing is known of it, what was reserved counts.
        assert 0 <= spent - used <= 20 or 8_192 < spent - used < 9_000
        grant = await budget.reserve(input_tokens=0, max_tokens=LIMITLESS - spent, price=None)
        assert grant.max_tokens == LIMITLESS - spent


WITH_LIMIT = replace(EVERYTHING, limits=replace(EVERYTHING.limits, seconds=100.0))
WITH_LIMIT_OF_THE_ATTEMPT = replace(EVERYTHING, limits=replace(EVERYTHING.limits, per_attempt=Budget(seconds=100.0)))
STOPPED: dict[str, tuple[World, Plan, str, int]] = {
    "an abort is a failure": (EVERYTHING, stopped.abort, "EXECUTION_CANCELLED", 2),
    "a cancellation is raised": (EVERYTHING, stopped.cancel, "CancelledError", 2),
    "a cancellation wins over an abort after it": (EVERYTHING, stopped.cancel_then_abort, "CancelledError", 5),
    "a cancellation wins over an abort at the same time": (EVERYTHING, stopped.both_at_once, "CancelledError", 5),
    "a deadline is a failure": (WITH_LIMIT, stopped.let_time_run_out, "BUDGET_EXCEEDED", 5),
    "a deadline of the attempt is one": (WITH_LIMIT_OF_THE_ATTEMPT, stopped.let_time_run_out, "BUDGET_EXCEEDED", 5),
}
"""By what is stopped, how, and to what end; each is tried at one step in so many."""


# A21, A22, A23, A39, R36, R79, D21, D22, design 4.7
@pytest.mark.fuzz
@pytest.mark.parametrize("how", STOPPED)
def test_a_stop_at_any_step_ends_the_run_or_the_result_is_finished(how: str) -> None:
    world, plan, ends, one_in = STOPPED[how]
    found = endings(world, plan, one_in=one_in, first=[*STOPPED].index(how))
    assert set(found) == {"Success", ends}
    assert found[ends] > 100 // one_in


@pytest.mark.fuzz
def test_an_abort_and_then_a_cancellation_end_as_the_cancellation() -> None:  # A22: never swallow the latter
    found = endings(EVERYTHING, stopped.abort_then_cancel, one_in=2)
    assert set(found) <= {"Success", "CancelledError", "EXECUTION_CANCELLED"}
    assert found["CancelledError"] > 50


@pytest.mark.fuzz
def test_a_run_inside_a_tool_of_another_run_is_stopped_with_it_at_any_step() -> None:  # design 4.5
    nested = replace(EVERYTHING, tools=(ToolPlan(name="look", acts=(Act("nested run"),)), *EVERYTHING.tools[1:]))
    assert set(endings(nested, stopped.abort, one_in=4)) == {"Success", "EXECUTION_CANCELLED"}
    assert set(endings(nested, stopped.cancel, one_in=4, first=2)) == {"Success", "CancelledError"}


@pytest.mark.fuzz
def test_a_stream_is_stopped_at_any_step_with_whoever_reads_it() -> None:  # R74, design 4.14
    streamed = replace(EVERYTHING, watch="stream")
    assert set(endings(streamed, stopped.abort, one_in=4)) == {"Success", "EXECUTION_CANCELLED"}
    assert set(endings(streamed, stopped.cancel, one_in=4, first=2)) == {"Success", "CancelledError"}

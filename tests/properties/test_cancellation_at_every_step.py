"""Stopped before every single step of its event loop, in every way there is, a run still ends as it must.

What must hold of every run holds each time; an abort is a `Failure` or the finished result, a cancellation is a
`CancelledError` or the finished result, and what was used is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from journeyman import Allowance, Failure, Success
from tests.properties.stopped_everywhere import (
    EVERYTHING,
    Plan,
    abort,
    abort_then_cancel,
    both_at_once,
    cancel,
    cancel_then_abort,
    let_time_run_out,
    stopped_everywhere,
)
from tests.properties.world import Act, ToolPlan, World
from tests.properties.world_run import LIMITLESS
from tests.support.counting_loop import on_counting_loop
from tests.support.invariants import check_invariants
from tests.support.run_record import RunRecord


def endings(world: World, plan: Plan, check: Callable[[RunRecord], None] = check_invariants) -> Counter[str]:
    """Stop the world everywhere, check every run, and return how often they ended in which way."""

    async def scenario() -> Counter[str]:
        found: Counter[str] = Counter()
        async for record in stopped_everywhere(world, plan):
            check(record)
            await _nothing_is_reserved(record)
            found[_ending(record)] += 1
        return found

    return on_counting_loop(scenario)


def _ending(record: RunRecord) -> str:
    match record.result:
        case None:
            return type(record.raised).__name__
        case Success():
            return "Success"
        case Failure(error=error):
            return error.code


async def _nothing_is_reserved(record: RunRecord) -> None:
    """What the run used is settled with the budget it drew on, also when nothing was returned; the rest is free."""
    budget = record.host.budget if record.host is not None else None
    if budget is not None and record.replies is not None:
        replies = [reply for each in (record, *record.inside) for reply in each.replies or ()]
        used = sum(reply.usage.total_tokens for reply in replies)
        assert budget.tokens == used
        grant = await budget.reserve(input_tokens=0, max_tokens=LIMITLESS - used, price=None)
        assert grant.max_tokens == LIMITLESS - used


def test_an_abort_at_any_step_is_a_failure_or_the_finished_result() -> None:  # A22, A23, R36, D21, D22
    found = endings(EVERYTHING, abort)
    assert set(found) == {"Success", "EXECUTION_CANCELLED"}
    assert found["EXECUTION_CANCELLED"] > 100


def test_a_cancellation_at_any_step_is_raised_or_the_result_is_finished() -> None:  # A21, A22
    found = endings(EVERYTHING, cancel)
    assert set(found) == {"Success", "CancelledError"}
    assert found["CancelledError"] > 100


def test_an_abort_and_then_a_cancellation_end_as_the_cancellation() -> None:  # A22: never swallow the latter
    found = endings(EVERYTHING, abort_then_cancel)
    assert set(found) <= {"Success", "CancelledError", "EXECUTION_CANCELLED"}
    assert found["CancelledError"] > 100


def test_a_cancellation_and_then_an_abort_end_as_the_cancellation() -> None:  # A22
    found = endings(EVERYTHING, cancel_then_abort)
    assert set(found) == {"Success", "CancelledError"}
    assert found["CancelledError"] > 100


def test_an_abort_and_a_cancellation_at_once_end_as_the_cancellation() -> None:  # A22
    found = endings(EVERYTHING, both_at_once)
    assert set(found) == {"Success", "CancelledError"}
    assert found["CancelledError"] > 100


def test_a_deadline_at_any_step_is_a_failure_or_the_finished_result() -> None:  # R79, A39, design 4.7
    limited = replace(EVERYTHING, limits=replace(EVERYTHING.limits, seconds=100.0))
    found = endings(limited, let_time_run_out)
    assert set(found) == {"Success", "BUDGET_EXCEEDED"}
    assert found["BUDGET_EXCEEDED"] > 100


def test_a_deadline_of_the_attempt_at_any_step_is_a_failure_or_the_finished_result() -> None:  # R79
    limited = replace(EVERYTHING, limits=replace(EVERYTHING.limits, each_attempt=Allowance(seconds=100.0)))
    found = endings(limited, let_time_run_out)
    assert set(found) == {"Success", "BUDGET_EXCEEDED"}
    assert found["BUDGET_EXCEEDED"] > 100


def test_a_run_inside_a_tool_of_another_run_is_stopped_with_it_at_any_step() -> None:  # design 4.5
    nested = replace(EVERYTHING, tools=(ToolPlan(name="look", acts=(Act("nested run"),)), *EVERYTHING.tools[1:]))
    assert set(endings(nested, abort)) == {"Success", "EXECUTION_CANCELLED"}
    assert set(endings(nested, cancel)) == {"Success", "CancelledError"}


def test_a_stream_is_stopped_at_any_step_with_whoever_reads_it() -> None:  # R74, design 4.14
    streamed = replace(EVERYTHING, watch="stream")
    assert set(endings(streamed, abort)) == {"Success", "EXECUTION_CANCELLED"}
    assert set(endings(streamed, cancel)) == {"Success", "CancelledError"}

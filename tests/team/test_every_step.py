"""Whatever happens to a team at whatever step: mail ends delivered or as a dead letter, once, and everything ends."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.team.members import LEADER
from tests.properties.examples import examples, patient
from tests.support.counting_loop import CountingLoop, on_counting_loop, the_counting_loop
from tests.team.any_step import NAMES, WHATS, WRITES, Disturbance, Plan, Site, What, check

pytestmark = patient


async def run_checked(plan: Plan) -> int:
    """Run a plan, check it, and return how many steps it had."""
    before = asyncio.all_tasks()
    site = Site(plan)
    await site.run()
    loop = the_counting_loop()
    assert loop is not None
    steps = loop.steps
    check(site)
    left = asyncio.all_tasks() - before
    assert not left, f"Tasks were left behind: {left}"
    assert not timers_of(loop), f"Timers were left behind: {timers_of(loop)}"
    return steps


def timers_of(loop: CountingLoop) -> list[asyncio.TimerHandle]:
    return [timer for timer in loop.pending_timers() if "Event.set" not in repr(timer)]


@pytest.mark.parametrize("what", WHATS)
def test_something_happens_before_every_step(what: What) -> None:  # S3, S16.6
    async def scenario() -> int:
        whole = Plan(writes=tuple(WRITES), slow_s=1.0)
        steps = await run_checked(whole)
        names = NAMES if what in ("stop", "cancel") else NAMES[-1:]
        for step, name in product(range(1, steps + 1), names):
            await run_checked(Plan(writes=tuple(WRITES), slow_s=1.0, disturbances=(Disturbance(step, what, name),)))
        return steps

    assert on_counting_loop(scenario) > 50


addressees = st.sampled_from([*NAMES, "*", LEADER])
disturbances = st.builds(Disturbance, st.integers(1, 100), st.sampled_from(WHATS), st.sampled_from(NAMES))
plans = st.builds(
    Plan,
    writes=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([*NAMES, "*", "team-lead"])), max_size=8).map(
        tuple
    ),
    slow_s=st.sampled_from([0.0, 1.0]),
    disturbances=st.lists(disturbances, max_size=5).map(tuple),
    picks_one=st.booleans(),
)


@pytest.mark.fuzz
@examples(one_in=2)
@given(plan=plans)
def test_anything_happens_at_any_step(plan: Plan) -> None:
    on_counting_loop(lambda: run_checked(plan))

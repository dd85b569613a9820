"""Contracts of the rules by which runs change, and of what changes them: in every engine."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, tool
from journeyman.durable.dispatch import may_be_handed_over
from journeyman.durable.engine import Engine
from journeyman.durable.records import BEGUN, OPEN, OVER, Change, Claim, Row
from journeyman.durable.rules import MOST_DEATHS, Facts, claim_row, hand_over_row, is_free, return_row, signal_row
from journeyman.testing.scripted import call
from journeyman.types import Effect
from tests.durable.processes import START, Stage, a_row, a_signal, a_step, claimed, found
from tests.durable.worlds import UNKNOWN, World
from tests.play import existing, following, texts, virtual_clock

T = TypeVar("T")

rows = st.builds(
    a_row,
    st.just("a"),
    status=st.sampled_from((*OPEN, *OVER)),
    owner=st.sampled_from([None, "w1", "w2"]),
    gen=st.integers(0, 2),
    epoch=st.integers(0, 2),
    wake=st.sampled_from([None, START - 1, START + 1]),
    deaths=st.sampled_from([0, 1, MOST_DEATHS - 1]),
    n_steps=st.integers(0, 1),
    parked=st.booleans(),
)
facts = st.builds(
    Facts, now=st.just(START), owner_is_dead=st.booleans(), n_steps=st.integers(0, 1), n_busy=st.integers(0, 2)
)


@given(rows, facts, st.sampled_from([None, 0, 1]), st.booleans(), st.sampled_from([None, 1]))
def test_a_claim_is_a_new_epoch_of_a_free_run_or_says_why_it_waits(
    row: Row, facts: Facts, gen: int | None, steal: bool, at_once: int | None
) -> None:
    # Trap 6
    after = claim_row(row, facts, by="w3", gen=gen, steal=steal, at_once=at_once)
    if gen not in (None, row.gen) or not is_free(row, now=START, also=(), owner_is_dead=steal or facts.owner_is_dead):
        assert after is None
    elif at_once is not None and facts.n_busy >= at_once:
        assert after == (None if gen is None else replace(row, parked=True))
    else:
        died = row.owner is not None and not steal
        deaths = (row.deaths + 1 if facts.n_steps == row.n_steps else 1) if died else 0
        after = existing(after)
        if deaths == MOST_DEATHS:
            assert (after.status, after.owner, after.deaths, after.gen) == ("blocked", None, 0, row.gen)
            assert after.epoch == row.epoch
        else:
            assert (after.status, after.owner, after.deaths) == ("running", "w3", deaths)
            assert (after.epoch, after.gen, after.parked) == (row.epoch + 1, row.gen + (gen is None), False)


@given(rows, facts, st.integers(0, 2))
def test_who_is_handed_over_or_given_back_has_another_gen_and_is_driven_by_nobody(
    row: Row, facts: Facts, number: int
) -> None:
    handed = hand_over_row(row, facts, gen=number)
    assert (handed is not None) == (row.gen == number and may_be_handed_over(row))
    if handed is not None:
        assert (handed.gen, handed.owner, handed.parked) == (row.gen + 1, row.owner, False)
        assert handed.epoch - row.epoch == (row.status == "running"), "who drives it writes nothing more"
        assert handed.status != "running"
    returned = return_row(row, facts, claim=Claim(row, number))
    assert (returned is not None) == (row.status == "running" and row.epoch == number)
    assert signal_row(row, facts, kind="stop") is None or row.status not in OVER


async def hand_over(engine: Engine, id: str) -> None:
    await engine.change(id, lambda row, facts: hand_over_row(row, facts, gen=row.gen), now=START)


async def test_a_run_that_was_taken_from_its_driver_counts_as_its_death_unless_it_was_stolen(stage: Stage) -> None:
    # Trap 6: each engine wrote this in a way of its own.
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    before = await claimed(left, "a")
    await hand_over(left, "a")
    row = await found(left, "a")
    assert (row.status, row.owner, row.epoch) == ("ready", left.owner, before.epoch + 1)
    assert await left.write(before, a_step("a", "late", epoch=before.epoch)) == "fenced"
    assert await right.claim("a", now=START, gen=row.gen - 1) is None, "the ticket is void"
    after = await claimed(right, "a", gen=row.gen)
    assert (after.row.deaths, after.row.gen) == (1, row.gen)
    assert (await claimed(left, "a", steal=True)).row.deaths == 0


async def test_what_is_done_for_a_waiter_who_has_gone_counts_or_was_never_begun(stage: Stage) -> None:
    # Trap 5
    left, right = await stage.begin(), await stage.begin()

    async def cut(work: Awaitable[T], n: int) -> T | None:
        """Go away after so many turns of the event loop."""
        task = asyncio.ensure_future(work)
        for _ in range(n):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    for n in (0, 1, 2, 3, 4, 6, 9, 14, 20, 30, 45, 70):
        first, second, third = [f"{each}{n}" for each in "abc"]
        for id in (first, second, third):
            await left.add(a_row(id))
        claim, asking = await claimed(left, second), await claimed(left, third)
        mine = await cut(left.claim(first, now=START), n)
        assert (mine is None) == ((await found(right, first)).status != "running"), "nobody drives what is claimed"
        step = a_step(second, "step", None, state=BEGUN, epoch=claim.epoch)
        await cut(left.write(claim, step, is_synced=True, posts=a_signal(third)), n)
        is_new = await left.write(claim, step) == "written"
        assert [each.key for each in await right.records(second)] == ["step"]
        assert len(await right.signals(run=third)) == (not is_new), "with its step, or neither"
        given_back = await cut(left.settle(asking, Change(status="waiting"), now=START), n)
        assert (await found(right, third)).status in (("waiting",) if given_back else ("waiting", "running"))


@virtual_clock
async def test_a_call_that_was_begun_is_unknown_though_its_tool_may_be_repeated_today(stage: Stage) -> None:
    # Trap 3
    world = World(dies_in="A")

    def clerk(effect: Effect) -> Agent[str, str]:
        async def act() -> str:
            await world.act("A")
            return "done"

        return Agent(name="clerk", model=following(call("act", id="A"), "Done."), tools=[tool(effect=effect)(act)])

    assert await stage.life(clerk("once"), until=world.reached) is None
    world.lives_on()
    assert UNKNOWN in texts(await stage.life(clerk("pure")))[0]
    assert world.done == []

"""Contracts of the rules by which runs change, and of what changes them: in every engine."""

import asyncio
from collections.abc import Awaitable
from contextlib import closing
from typing import Any, TypeVar

from journeyman import Agent, tool
from journeyman.durable.records import BEGUN, Change
from journeyman.durable.rules import RowRule, hand_over_row
from journeyman.store.log import queued
from journeyman.testing.scripted import call
from journeyman.types import Effect
from tests.durable.processes import START, Stage, a_row, a_signal, a_step, claimed, found
from tests.durable.worlds import UNKNOWN, World
from tests.play import following, texts, virtual_clock

T = TypeVar("T")


async def test_a_run_that_was_taken_from_its_driver_counts_as_its_death_unless_it_was_stolen(stage: Stage) -> None:
    # Trap 6: each engine wrote this in a way of its own.
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    before = await claimed(left, "a")
    await left.change("a", RowRule(lambda row, facts: hand_over_row(row, facts, gen=row.gen)), now=START)
    row = await found(left, "a")
    assert (row.status, row.owner, row.epoch) == ("ready", left.owner, before.epoch + 1)
    assert await left.write(before, a_step("a", "late", epoch=before.epoch)) == "fenced"
    assert await right.claim("a", now=START, gen=row.gen - 1) is None, "the ticket is void"
    after = await claimed(right, "a", gen=row.gen)
    assert (after.row.deaths, after.row.gen) == (1, row.gen)
    stolen = (await claimed(left, "a", steal=True)).row
    assert (stolen.owner, stolen.lives, stolen.deaths) == (left.owner, 3, 0)
    await left.add(a_row("b"))
    assert await right.claim("b", now=START, at_once=1) is None
    assert not (await found(left, "b")).parked, "no ticket brought it"
    assert await right.claim("b", now=START, at_once=1, gen=0) is None
    assert (await found(left, "b")).parked
    assert not (await claimed(right, "b", at_once=2, gen=0)).row.parked


async def test_what_is_done_for_a_waiter_who_has_gone_counts_or_was_never_begun(stage: Stage) -> None:
    # Trap 5
    left, right = await stage.begin(), await stage.begin()

    async def go_away_from(work: Awaitable[T], n: int) -> T | None:
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
        mine = await go_away_from(left.claim(first, now=START), n)
        assert (mine is None) == ((await found(right, first)).status != "running"), "nobody drives what is claimed"
        step = a_step(second, "step", None, state=BEGUN, epoch=claim.epoch)
        await go_away_from(left.write(claim, step, is_synced=True, posts=a_signal(third)), n)
        is_new = await left.write(claim, step) == "written"
        assert [each.key for each in await right.records(second)] == ["step"]
        assert len(await right.signals(run=third)) == (not is_new), "with its step, or neither"
        given_back = await go_away_from(left.settle(asking, Change(status="waiting"), now=START), n)
        assert (await found(right, third)).status in (("waiting",) if given_back else ("waiting", "running"))


async def test_what_belongs_together_is_stored_together_or_not_at_all(stage: Stage) -> None:
    process, nothing, all_of_it = await stage.begin(), (0, 0, 0, 0, 0), (2, 1, 1, 1, 1)
    no_json: dict[str, Any] = {"text": b""}  # in memory it is stored, with all that belongs to it
    for n, body in enumerate((no_json, {"text": "Hi."})):
        await process.add(a_row(f"a{n}"))
        await process.add(a_row(f"b{n}"))
        claim = await claimed(process, f"a{n}")
        with closing(process.session(f"talk{n}", agent="clerk", any_agent=False, create=True)) as session:
            session.add("First.", "steering")
        ended = Change(status="done", conversation=session.id, lines=[queued("Late.", "steering")])
        first, second = [a_signal(f"b{n}", dedup=each)._replace(body=body) for each in "xy"]
        for work in (
            process.write(claim, a_step(f"a{n}", "step"), starts=a_row(f"c{n}"), posts=first),
            process.settle(claim, ended, now=START, posts=second),
        ):
            try:
                await work
            except TypeError:
                assert body is no_json
        stored = (
            len(await process.signals(run=f"b{n}")),
            len(await process.records(f"a{n}")),
            len(await process.rows(prefix=f"c{n}")),
            len(await process.rows(prefix=f"a{n}", statuses=["done"])),
            len((await process.conversation(session.id)).waiting) - 1,
        )
        assert stored == all_of_it or (stored == nothing and body is no_json)


async def test_who_has_a_chat_open_and_who_ends_its_turn_write_one_conversation(stage: Stage) -> None:
    # Trap 14
    left, right = await stage.begin(), await stage.begin()
    session = left.session("a", agent="clerk", any_agent=False, create=True)
    session.add("One.", "steering")
    for n in range(3):
        await right.add(a_row(f"turn{n}"))
        late = Change(status="done", conversation="a", lines=[queued(f"Late {n}.", "steering")])
        assert await right.settle(await claimed(right, f"turn{n}"), late, now=START)
        session.add(f"Then {n}.", "steering")
    session.close()
    waiting = [each.text for each in (await left.conversation("a")).waiting]
    assert waiting == ["One.", "Late 0.", "Then 0.", "Late 1.", "Then 1.", "Late 2.", "Then 2."]


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

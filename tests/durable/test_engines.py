"""What every engine keeps to: who may write, what is written once, and what is ready."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.durable.records import BEGUN, OVER, Change, Status
from journeyman.durable.rules import MOST_DEATHS
from journeyman.durable.sqlite import SqliteEngine
from journeyman.store.file import File
from journeyman.types import Usage
from tests.durable.processes import START, Stage, a_row, a_step, claimed, found, ready_ids

DONE_CHANGE = Change(status="done")


async def test_a_run_that_is_claimed_cannot_be_claimed_again(stage: Stage) -> None:
    # K5
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    claim = await claimed(left, "a")
    assert (claim.epoch, claim.row.lives, claim.row.status, claim.row.owner) == (1, 1, "running", left.owner)
    assert await right.claim("a", now=START) is None
    assert await left.claim("a", now=START) is None, "not by the same process either"
    assert await right.claim("a", now=START, also=("waiting", "held", "blocked")) is None
    assert await left.claim("nothing", now=START) is None


async def test_a_step_is_written_once(stage: Stage) -> None:
    # K1
    process = await stage.begin()
    await process.add(a_row("a"))
    claim = await claimed(process, "a")
    first = a_step("a", "attempt/1/iteration/1/call/c", b'"first"')
    assert await process.write(claim, first) == "written"
    assert await process.write(claim, first._replace(body=b"other", epoch=9)) == "taken"
    begun = a_step("a", "attempt/1/iteration/1/call/c", None, state=BEGUN)
    assert await process.write(claim, begun, is_synced=True) == "written", "that it was begun is another record"
    assert await process.write(claim, begun) == "taken"
    assert list(await process.records("a")) == [first, begun]


async def test_a_step_is_written_once_another_process_has_written(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "runs.db")
    await engine.open()
    other = File(engine.path)
    await engine.add(a_row("a"))
    claim = await claimed(engine, "a")
    with other.transaction():
        writing = asyncio.create_task(engine.write(claim, a_step("a", "prompt")))
        await asyncio.sleep(0)
        assert not writing.done(), "the event loop goes on meanwhile"
        assert list(await engine.records("a")) == []
    assert await writing == "written"
    assert len(await engine.records("a")) == 1
    other.close()
    await engine.close()


async def test_records_come_back_as_they_were_written(stage: Stage) -> None:
    process = await stage.begin()
    await process.add(a_row("a"))
    claim = await claimed(process, "a")
    written = [
        a_step("a", "attempt/1/iteration/1/model", b'"x"' * 1_000),
        a_step("a", "attempt/1/iteration/1/call/2", b"")._replace(used_s=1e9, epoch=7),
        a_step("a", "attempt/1/iteration/1/call/é\n🎉", None, state=BEGUN)._replace(about=None),
    ]
    for each in written:
        assert await process.write(claim, each) == "written"
    other = await stage.begin()
    assert list(await other.records("a")) == written
    assert list(await other.records("b")) == []


async def test_whoever_was_fenced_writes_nothing(stage: Stage) -> None:
    # K6
    asleep, awake = await stage.begin(), await stage.begin()
    await asleep.add(a_row("a"))
    old = await claimed(asleep, "a")
    assert await asleep.write(old, a_step("a", "prompt")) == "written"
    new = await claimed(awake, "a", steal=True)
    before, records = await found(awake, "a"), list(await awake.records("a"))
    assert await asleep.write(old, a_step("a", "system")) == "fenced"
    assert await asleep.write(old, a_step("a", "prompt")) == "fenced", "also what is stored already"
    assert not await asleep.settle(old, DONE_CHANGE, now=START)
    await asleep.note(old, b"[]")
    assert (await found(awake, "a"), list(await awake.records("a"))) == (before, records)
    assert await awake.write(new, a_step("a", "system", epoch=2)) == "written"
    assert await awake.settle(new, DONE_CHANGE, now=START)
    assert not await awake.settle(old, DONE_CHANGE, now=START)


@pytest.mark.parametrize("status", ["waiting", "held", "blocked", "ready", *OVER])
async def test_a_run_is_given_back_once_and_is_claimed_by_who_asks_for_its_status(stage: Stage, status: Status) -> None:
    process = await stage.begin()
    await process.add(a_row("a"))
    claim = await claimed(process, "a")
    assert await process.settle(claim, Change(status=status, why="why", asked=b"[1]"), now=START + 7)
    row = await found(process, "a")
    assert (row.status, row.why, row.owner, row.ended) == (status, "why", None, START + 7 if status in OVER else None)
    assert row.gen == claim.row.gen + (status == "ready")
    assert not await process.settle(claim, Change(status="ready"), now=START)
    await process.note(claim, b"[]")
    assert await found(process, "a") == row, "who gave it back has no more to say of it"
    assert await ready_ids(process, now=START + 99) == ["a"] * (status == "ready")
    assert (await process.claim("a", now=START + 99) is None) == (status != "ready")
    if status not in (*OVER, "ready"):
        again = await claimed(process, "a", also=(status,))
        assert (again.epoch, again.row.why) == (2, None)


async def test_what_a_run_was_given_back_with_is_in_its_row(stage: Stage) -> None:
    process = await stage.begin()
    await process.add(a_row("a"))
    claim = await claimed(process, "a", head=b'{"other": 1}')
    usage = Usage(requests=1, input_tokens=30, output_tokens=12, cost=0.5)
    change = Change(
        status="waiting", wake=START + 5, asked=b"[1]", used_s=2.5, usage=usage, attempt=2, iteration=3, why="w"
    )
    assert await process.settle(claim, change, now=START)
    row = await found(await stage.begin(), "a")
    expected = replace(
        a_row("a"),
        head=b'{"other": 1}',
        status="waiting",
        wake=START + 5,
        asked=b"[1]",
        used_s=2.5,
        tokens=42,
        cost=0.5,
        attempt=2,
        iteration=3,
        why="w",
        gen=1,
        epoch=1,
        lives=1,
    )
    assert row == expected


async def test_the_higher_priority_goes_first_and_then_the_older(stage: Stage) -> None:
    # K19
    process = await stage.begin()
    for id, queue, priority, created in [
        *(("a", "", 0, 3.0), ("b", "mail", 5, 2.0), ("c", "", 5, 1.0), ("d", "default!", -1, 0.0)),
        *(("e", "default", 5, 1.0), ("f", "default!", 1, 0.0)),
    ]:
        await process.add(a_row(id, queue=queue, priority=priority, created=START + created))
        await process.add(a_row(f"{id} of another", agent="other", queue=queue, priority=priority))
    assert await ready_ids(process) == ["c", "e", "b", "f", "a", "d"]
    assert await ready_ids(process, limit=2) == ["c", "e"]


async def test_dead_due_and_new_runs_are_sorted_together(stage: Stage) -> None:
    left, right = await stage.begin(), await stage.begin()
    for n, id in enumerate("abc"):
        await left.add(a_row(id, priority=n))
    await claimed(left, "a")
    assert await left.settle(await claimed(left, "b"), Change(status="waiting", wake=START + 1), now=START)
    left.kill()
    assert await ready_ids(right, now=START + 1) == ["c", "b", "a"]
    assert await ready_ids(right, now=START + 1, limit=1) == ["c"]


async def test_a_run_that_begins_later_or_waits_is_not_ready_before_its_moment(stage: Stage) -> None:
    # K19
    process = await stage.begin()
    await process.add(a_row("begins", wake=START + 60))
    await process.add(a_row("waits", created=START + 1))
    assert await process.settle(await claimed(process, "waits"), Change(status="waiting", wake=START + 60), now=START)
    assert await ready_ids(process, now=START + 59.9) == []
    assert [await process.claim(each, now=START + 59.9) for each in ("begins", "waits")] == [None, None]
    assert await ready_ids(process, now=START + 60) == ["begins", "waits"]
    for each in ("begins", "waits"):
        assert (await claimed(process, each, now=START + 60)).row.wake is None


async def test_only_runs_of_the_agents_and_queues_that_are_asked_for_are_ready(stage: Stage) -> None:
    process = await stage.begin()
    await process.add(a_row("a", queue="batch"))
    await process.add(a_row("b"))
    await process.add(a_row("c", agent="somebody"))
    assert await ready_ids(process) == ["a", "b"]
    assert await ready_ids(process, queues=("batch",)) == ["a"]
    assert await ready_ids(process, queues=("batch", "default")) == ["a", "b"]
    assert await process.ready(now=START, agents=[], queues=(), limit=9) == []


async def test_a_dead_run_is_found_behind_many_that_live(stage: Stage) -> None:
    """What lives is not looked at one by one: there may be any number of it."""
    dead, alive, worker = await stage.begin(), await stage.begin(), await stage.begin()
    await dead.add(a_row("dead", priority=-1))
    await claimed(dead, "dead")
    for n in range(120):
        await alive.add(a_row(f"alive{n}", status="running", owner=alive.owner, epoch=1))
    dead.kill()
    assert await ready_ids(worker, limit=1) == ["dead"]


async def test_of_a_queue_no_more_run_at_once_than_it_lets_over_all_processes(stage: Stage) -> None:
    # K18
    workers = [await stage.begin() for _ in range(3)]
    for n in range(6):
        await workers[0].add(a_row(f"run{n}", queue="batch"))
    await workers[0].add(a_row("other"))
    claims = [await workers[n % 3].claim(f"run{n}", now=START, at_once=2) for n in range(6)]
    assert [claim is not None for claim in claims] == [True, True, False, False, False, False]
    assert await workers[2].claim("other", now=START, at_once=1) is not None, "another queue is not full"
    assert claims[0] is not None
    assert await workers[0].settle(claims[0], DONE_CHANGE, now=START)
    assert await workers[2].claim("run5", now=START, at_once=2) is not None
    assert await workers[0].claim("run4", now=START, at_once=2) is None
    workers[1].kill()  # who drove run1, which takes no room in the queue any more
    assert await workers[0].claim("run4", now=START, at_once=2) is not None
    assert await workers[0].claim("run1", now=START, at_once=2) is None
    assert await workers[0].claim("run1", now=START, at_once=3) is not None


async def test_a_run_that_kills_its_process_twenty_times_without_a_step_is_blocked(stage: Stage) -> None:
    first = await stage.begin()
    await first.add(a_row("a"))
    for n in range(MOST_DEATHS):
        process = await stage.begin()
        claim = await claimed(process, "a")
        assert claim.row.deaths == n
        process.kill()
    assert await ready_ids(first) == ["a"]
    assert await first.claim("a", now=START) is None
    row = await found(first, "a")
    assert (row.status, row.owner, row.lives) == ("blocked", None, MOST_DEATHS)
    assert row.why is not None
    assert "20 times in a row" in row.why
    assert await first.claim("a", now=START) is None
    assert (await claimed(first, "a", also=("blocked",))).row.deaths == 0, "who resumes it begins anew"


async def test_a_run_that_makes_a_step_in_each_life_is_never_blocked_by_its_deaths(stage: Stage) -> None:
    first = await stage.begin()
    await first.add(a_row("a"))
    for n in range(MOST_DEATHS + 5):
        process = await stage.begin()
        claim = await claimed(process, "a")
        assert claim.row.deaths <= 1
        assert await process.write(claim, a_step("a", f"attempt/1/iteration/{n}/model")) == "written"
        process.kill()
    assert (await claimed(first, "a")).row.lives == MOST_DEATHS + 6

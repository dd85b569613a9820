"""What every engine keeps to: what a signal does, and how runs are added, found and forgotten."""

from typing import Any, Final

import pytest

from journeyman.durable.records import OVER, Change, Status
from journeyman.inbox.signals import SignalKind
from tests.durable.processes import START, Stage, a_row, a_signal, a_step, claimed, found, heard, ready_ids

DONE_CHANGE = Change(status="done")


async def test_a_signal_is_stored_once_for_each_run_and_kind(stage: Stage) -> None:
    # K9
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    await left.add(a_row("b"))
    assert await left.signal(a_signal("a", "steer", "1", text="first")) == "taken"
    assert await right.signal(a_signal("a", "steer", "1", text="second")) == "known"
    assert await right.signal(a_signal("a", "approve", "1", text="third")) == "taken"
    assert await right.signal(a_signal("b", "steer", "1", text="fourth")) == "taken"
    stored = await left.signals(run="a")
    assert [(each.kind, each.body, each.who) for each in stored] == [
        ("steer", {"text": "first"}, "ann@host"),
        ("approve", {"text": "third"}, "ann@host"),
    ]
    numbers = [each.n for each in await right.signals()]
    assert numbers == sorted(set(numbers))
    assert [each.run for each in await right.signals()] == ["a", "a", "b"]
    assert [each.run for each in await right.signals(after=numbers[1])] == ["b"]
    assert await right.signals(run="a", after=numbers[1]) == []
    assert (await found(right, "a")).n_signals == 2


@pytest.mark.parametrize("status", OVER)
async def test_a_run_that_is_over_takes_no_signal(stage: Stage, status: Status) -> None:
    # K10
    process = await stage.begin()
    await process.add(a_row("a"))
    assert await process.settle(await claimed(process, "a"), Change(status=status), now=START)
    before = await found(process, "a")
    kinds: tuple[SignalKind, ...] = ("steer", "stop", "release")
    for kind in kinds:
        assert await process.signal(a_signal("a", kind)) == "over"
    assert await process.signal(a_signal("nobody")) == "over", "nor does one that is not there"
    assert await process.signals() == []
    assert await found(process, "a") == before


_BECOMES: Final[dict[Status, dict[SignalKind, Status]]] = {
    "ready": {"steer": "ready", "hold": "held", "stop": "ready"},
    "running": {"hold": "running", "stop": "running"},
    "waiting": {**dict.fromkeys(("approve", "answer", "steer", "stop"), "ready"), "hold": "held", "release": "waiting"},
    "held": {"steer": "held", "approve": "held", "release": "ready", "stop": "ready"},
    "blocked": {"steer": "blocked", "release": "blocked", "stop": "ready"},
}


@pytest.mark.parametrize(
    ("status", "kind", "becomes"), [(status, *each) for status, kinds in _BECOMES.items() for each in kinds.items()]
)
async def test_a_signal_makes_of_a_run_what_its_kind_says(
    stage: Stage, status: Status, kind: SignalKind, becomes: Status
) -> None:
    process = await stage.begin()
    await process.add(a_row("a"))
    claim = await claimed(process, "a")
    if status != "running":
        assert await process.settle(
            claim, Change(status=status, wake=START + 60 if status == "waiting" else None), now=START
        )
    before = await found(process, "a")
    assert await process.signal(a_signal("a", kind)) == "taken"
    row = await found(process, "a")
    woke = becomes == "ready" != status
    assert (row.status, row.gen) == (becomes, before.gen + woke)
    assert row.n_signals == 1
    if woke:
        assert await ready_ids(process) == ["a"], "it goes on at once, whatever its moment was"


async def test_a_run_is_not_given_back_over_a_signal_that_it_has_not_seen(stage: Stage) -> None:
    # K8
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    claim = await claimed(left, "a")
    assert await right.signal(a_signal("a")) == "taken"
    assert not await left.settle(claim, Change(status="waiting"), now=START, n_signals=0)
    assert (await found(left, "a")).status == "running"
    assert await left.settle(claim, Change(status="waiting"), now=START, n_signals=1)
    assert await right.signal(a_signal("a", dedup="2")) == "taken"
    assert (await found(left, "a")).status == "ready"


async def test_a_delay_lasts_while_a_run_is_held_and_ends_with_a_stop_or_where_it_was_one_of_waiting(
    stage: Stage,
) -> None:
    # K17
    process = await stage.begin()
    for id in ("delayed", "stopped", "waited"):
        await process.add(a_row(id, wake=None if id == "waited" else START + 60))
    waiting = Change(status="waiting", wake=START + 60)
    assert await process.settle(await claimed(process, "waited"), waiting, now=START)
    for id in ("delayed", "waited"):
        assert await process.signal(a_signal(id, "hold")) == "taken"
        assert id not in await ready_ids(process, now=START + 99)
        assert await process.signal(a_signal(id, "release")) == "taken"
    assert await process.signal(a_signal("stopped", "stop")) == "taken"
    assert await ready_ids(process, now=START + 59) == ["stopped", "waited"]
    assert await ready_ids(process, now=START + 60) == ["delayed", "stopped", "waited"]


async def test_a_name_or_a_dedup_finds_the_run_that_has_it(stage: Stage) -> None:
    left, right = await stage.begin(), await stage.begin()
    first = await left.add(a_row("a", name="invoices", dedup="monday"))
    assert first == a_row("a", name="invoices", dedup="monday")
    assert (await right.add(a_row("b", name="invoices"))).id == "a"
    assert (await right.add(a_row("c", dedup="monday"))).id == "a"
    assert (await right.add(a_row("d", dedup="monday", agent="other"))).id == "d"
    assert (await right.add(a_row("e"))).id == "e"
    assert (await right.add(a_row("f"))).id == "f", "runs without a name differ"
    assert (await found(right, "invoices")).id == "a"
    assert await right.get("b") is None


async def test_runs_are_found_by_what_they_are(stage: Stage) -> None:
    process = await stage.begin()
    for n, (id, name) in enumerate([("a1", None), ("a2", "b_name"), ("b3", None), ("%4", "a%")]):
        await process.add(a_row(id, name=name, created=START + n, agent="clerk" if n < 3 else "other"))
    assert await process.settle(await claimed(process, "b3"), DONE_CHANGE, now=START + 10)

    async def ids(**which: Any) -> list[str]:
        return [row.id for row in await process.rows(**which)]

    assert await ids() == ["%4", "b3", "a2", "a1"]
    assert await ids(limit=1) == ["%4"]
    assert await ids(statuses=["done"]) == ["b3"]
    assert await ids(statuses=["done", "ready"], agent="clerk") == ["b3", "a2", "a1"]
    assert await ids(agent="nobody") == []
    assert await ids(prefix="a") == ["%4", "a2", "a1"]
    assert await ids(prefix="b") == ["b3", "a2"]
    assert await ids(prefix="%") == ["%4"], "a prefix is a text, not a pattern"
    assert await ids(ended_before=START + 10.5) == ["b3"]
    assert await ids(ended_before=START + 10) == []


async def test_only_runs_that_are_over_are_forgotten_with_all_that_was_stored_of_them(stage: Stage) -> None:
    process = await stage.begin()
    for id in ("open", "over"):
        await process.add(a_row(id, name=f"{id}'s name"))
        claim = await claimed(process, id)
        assert await process.write(claim, a_step(id, "prompt")) == "written"
        assert await process.signal(a_signal(id)) == "taken"
        if id == "over":
            assert await process.settle(claim, DONE_CHANGE, now=START)
    assert await process.forget(["over", "open", "nobody"]) == 1
    assert await process.forget(["over"]) == 0
    assert await process.get("over") is None
    assert list(await process.records("over")) == []
    assert [(each.n, each.run) for each in await process.signals()] == [(1, "open")]
    assert len(await process.records("open")) == 1
    await process.add(a_row("again", name="over's name"))
    assert await process.signal(a_signal("again")) == "taken"
    assert [each.n for each in await process.signals(after=1)] == [3], "no number is used twice"


async def test_what_another_process_writes_is_news(stage: Stage) -> None:
    left, right = await stage.begin(), await stage.begin()
    await left.add(a_row("a"))
    assert await heard(right)
    assert not right.has_news()
    claim = await claimed(left, "a")
    assert await heard(right)
    assert not right.has_news()
    assert await left.signal(a_signal("a")) == "taken"
    assert await heard(right)
    assert await left.settle(claim, DONE_CHANGE, now=START)
    assert await heard(right)
    await left.get("a")
    await left.records("a")
    assert not right.has_news(), "reading is none"


async def test_a_row_that_was_read_does_not_change_with_the_store(stage: Stage) -> None:
    process = await stage.begin()
    await process.add(a_row("a"))
    before = await found(process, "a")
    claim = await claimed(process, "a")
    assert (before.status, before.epoch) == ("ready", 0)
    assert await process.settle(claim, DONE_CHANGE, now=START)
    assert (claim.row.status, claim.row.epoch) == ("running", 1)

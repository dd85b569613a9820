"""A damaged store: what can be read of its recordings is recovered."""

import warnings
from pathlib import Path
from random import Random

import pytest

from journeyman import Agent, Runtime, run, tool
from journeyman.errors import StoreError
from journeyman.record import RecordedEvent, Recorder, Recordings
from journeyman.store.store import StoreRepaired
from journeyman.testing.scripted import ScriptedModel, call, say

PAGE = 4096
N = 25
SYSTEM = "You are careful, and say what you know. " * 20


async def filled(path: Path) -> None:
    """Record runs that share pieces."""
    chance = Random(4)

    @tool
    async def look(n: int) -> str:
        """Look."""
        return f"{n} " + "".join(chance.choices("abcdefghijklmnop ", k=900))

    with Recorder(path) as recorder:
        for number in range(N):
            answers = [*[say(call("look", {"n": n}, id=f"c{n}")) for n in range(4)], say(f"Answer {number}.")]
            agent = Agent(name="scout", model=ScriptedModel(answers), tools=[look], system=SYSTEM)
            (await run(agent, f"Question {number}?", runtime=Runtime(recorder=recorder))).unwrap()


def contents(path: Path) -> dict[str, tuple[list[RecordedEvent], list[bytes | None]]]:
    """Return all events and requests of a store, by recording."""
    with Recordings(path) as recordings:
        return {
            found.id: (
                list(recordings.all_events(found)),
                [recordings.body(request) for request in recordings.requests(found)],
            )
            for found in recordings.runs()
        }


def recovered(path: Path) -> dict[str, tuple[list[RecordedEvent], list[bytes | None]]]:
    """Return them after damage, which may show only when they are read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreRepaired)
        try:
            return contents(path)
        except StoreError as error:
            assert "is damaged" in error.message  # noqa: PT017
        return contents(path)


async def test_a_damaged_page_costs_what_was_on_it_and_nothing_else(path: Path) -> None:
    await filled(path)
    whole, before = path.read_bytes(), contents(path)
    events = {event.n: event for told, _ in before.values() for event in told}
    bodies = {body for _, sent in before.values() for body in sent}
    n_pages = len(whole) // PAGE
    for page in [n_pages, *Random(9).sample(range(30, n_pages), 10)]:
        path.write_bytes(whole[: (page - 1) * PAGE] + b"\xa5" * PAGE + whole[page * PAGE :])
        after = recovered(path)
        left = [event for told, _ in after.values() for event in told]
        lost = [event for event in left if events[event.n] != event]
        assert [event for event in lost if "lost" not in event.facts] == [], page
        assert len(events) - len(left) + len(lost) < 120, page
        kept = [body for _, sent in after.values() for body in sent if body is not None]
        assert set(kept) <= bodies, page
        for damaged in path.parent.glob(f"{path.name}.damaged-*"):
            damaged.unlink()


@pytest.mark.parametrize("page", ["first", "schema"])
async def test_damage_where_the_tables_are_listed_costs_no_recording(path: Path, page: str) -> None:
    await filled(path)
    before, data = contents(path), bytearray(path.read_bytes())
    number = 1 if page == "first" else int.from_bytes(data[108:112], "big")  # the last page of the list
    start = (number - 1) * PAGE + (100 if number == 1 else 0)
    data[start : start + 8] = b"\xa5" * 8
    path.write_bytes(data)
    with pytest.warns(StoreRepaired, match=f"{N} recordings and 0 records were recovered"):
        assert contents(path) == before
    assert contents(path) == before


@pytest.mark.filterwarnings("ignore::journeyman.store.store.StoreRepaired")
async def test_a_recorder_goes_on_in_a_repaired_store_and_shares_its_pieces(path: Path) -> None:
    await filled(path)
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    await filled(path)
    assert len(contents(path)) == 2 * N
    with Recordings(path) as recordings:
        recordings.forget(recordings.runs()[N:])
        for found in recordings.runs():
            assert [request for request in recordings.requests(found) if recordings.body(request) is None] == []

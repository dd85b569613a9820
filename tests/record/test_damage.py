"""The file of recordings beside a store: whatever becomes of it delays and breaks nothing else."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from random import Random

import pytest

from journeyman import Agent, Chat, Limits, Runtime, ToolContext, run, tool
from journeyman.durable import Durable
from journeyman.errors import StoreError
from journeyman.record import Recorder, Recordings
from journeyman.store.recordings import events_path
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.support.room import no_room

WORDS = "".join(Random(4).choices("abcdefghijklmnop ", k=2_000))


def scout(*answers: str) -> Agent:
    return Agent(name="scout", model=ScriptedModel(list(answers)), system=WORDS)


async def filled(path: Path) -> None:
    """Keep a conversation and a durable run in a store, and record both, and more."""
    with Recorder(path) as recorder:
        runtime = Runtime(recorder=recorder)
        async with Chat.open(scout("Hello."), path, id="user-42", create=True, runtime=runtime) as chat:
            await chat.prompt("Who is there?")
        for number in range(9):
            await run(scout(f"{number} {WORDS[number:]}"), f"{number} {WORDS}", runtime=runtime)
        async with Durable(path) as durable:
            await durable.run(scout("Done."), "Do it.", id="errand", runtime=runtime)


async def goes_on(path: Path) -> None:
    """Assert that the conversation and the run are in a store, and go on."""
    async with Chat.open(scout("Still."), path, id="user-42") as chat:
        assert len(chat.messages) == 2
        assert (await chat.prompt("Still there?")).unwrap() == "Still."
    async with Durable(path) as durable:
        assert (await (await durable.get("errand")).info()).status == "done"


def smash(at: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        data = bytearray(path.read_bytes())
        start = at % len(data)
        data[start : start + 4096] = b"\xa5" * len(data[start : start + 4096])
        path.write_bytes(data)

    return spoil


@pytest.mark.parametrize(
    "spoil", [smash(100), smash(0), smash(-4096), smash(8 * 4096)], ids=["list", "head", "end", "middle"]
)
@pytest.mark.filterwarnings("ignore::journeyman.store.store.StoreRepaired")
async def test_damaged_recordings_are_put_aside_and_told_and_the_store_is_whole(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    await filled(path)
    store, events = path.read_bytes(), events_path(path)
    spoil(events)
    recordings = Recordings(path)
    later = pytest.raises(StoreError, match="is damaged")  # where it is not found at once
    with recordings, nullcontext() if recordings.notice else later:
        for found in recordings.runs():
            assert [*recordings.all_events(found), *map(recordings.body, recordings.requests(found))]
    told = recordings.notice or ""
    assert f"{events} was damaged" in told
    aside = events.with_name(f"{events.name}.damaged-1")
    assert str(aside) in told
    assert aside.exists()
    assert path.read_bytes() == store
    await goes_on(path)
    (await run(scout("Again."), "?", runtime=Runtime(recorder=path))).unwrap()
    with Recordings(path) as recordings:
        assert [found.status for found in recordings.runs()] == ["done"]


@pytest.mark.parametrize("what", ["missing", "of another store", "not ours"])
async def test_a_store_is_whole_without_its_recordings_or_with_others(
    path: Path, what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await filled(path)
    copied = tmp_path_factory.mktemp("copy") / "copied.db"
    shutil.copyfile(path, copied)
    if what == "of another store":
        (await run(scout("Else."), "Elsewhere?", runtime=Runtime(recorder=copied.with_name("other.db")))).unwrap()
        shutil.copyfile(events_path(copied.with_name("other.db")), events_path(copied))
    elif what == "not ours":
        with closing(sqlite3.connect(events_path(copied))) as connection:
            connection.execute("CREATE TABLE accounts (name TEXT)")
        events_path(copied).chmod(0o600)
        with pytest.raises(StoreError, match=r"copied.db-events is not a store of journeyman"):
            Recordings(copied)
    await goes_on(copied)
    if what != "not ours":
        with Recordings(copied) as recordings:
            assert [found.input for found in recordings.runs()] == (
                ["Elsewhere?"] if what == "of another store" else []
            )
        assert events_path(copied).exists() is (what != "missing")  # who looks makes none


class Troubles:
    """What may befall the file of recordings while a run goes on."""

    def __init__(self, path: Path) -> None:
        self.events = events_path(path)

    def stalled(self) -> AbstractContextManager[object]:
        disk = sqlite3.connect(self.events, isolation_level=None)
        disk.execute("BEGIN IMMEDIATE")
        return closing(disk)

    def full(self) -> AbstractContextManager[object]:
        return no_room(self.events.parent, 1_000_000)

    def deleted(self) -> AbstractContextManager[object]:
        self.events.unlink()
        return nullcontext()

    def damaged(self) -> AbstractContextManager[object]:
        for file in (self.events, self.events.with_name(f"{self.events.name}-wal")):
            with file.open("r+b") as data:
                data.write(b"\xa5" * file.stat().st_size)
        return nullcontext()


@pytest.mark.parametrize("what", ["stalled", "full", "deleted", "damaged"])
@pytest.mark.filterwarnings("ignore::journeyman.store.store.StoreRepaired")
async def test_no_step_waits_for_recordings_or_fails_by_them(path: Path, what: str) -> None:
    told = ["".join(Random(each).choices(WORDS, k=800)) for each in range(180)]

    @tool(effect="once")
    async def work(ctx: ToolContext, n: int) -> str:
        """Work, and tell of it."""
        for number, each in enumerate(told):  # which only recordings hold
            ctx.progress(f"{n} {number} {each}")
        return f"{n} is done"

    answers = [*[say(call("work", {"n": n}, id=f"c{n}")) for n in range(20)], say("Done.")]
    agent = Agent(name="worker", model=ScriptedModel(answers), tools=[work], limits=Limits(iterations=25))
    async with Durable(path) as durable:
        with Recorder(path) as recorder:
            await run(scout("First."), "?", runtime=Runtime(recorder=recorder))
            await recorder.flush()
            with getattr(Troubles(path), what)():  # which ends once the run has ended
                assert (await durable.run(agent, "Go.", id="w", runtime=Runtime(recorder=recorder))).unwrap() == "Done."
                if what == "full":  # else it might have more room before all is written
                    await recorder.flush()
        assert (await (await durable.get("w")).info()).leases == 1
    with Recordings(path) as recordings:
        kinds = {events[-1].kind for found in recordings.runs() if (events := [*recordings.all_events(found)])}
    assert kinds == {"stalled": {"RunSucceeded"}, "full": {"RunSucceeded", "ToolProgress"}}.get(what, set())

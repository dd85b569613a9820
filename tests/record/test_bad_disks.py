"""Recorders on stores and disks that are not as they should be: one warning, and never the end of a run."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from journeyman import Agent, Runtime, ToolContext, run, tool
from journeyman.events import RecordingEnded, Target
from journeyman.model import Request
from journeyman.record import Recorder, Recordings
from journeyman.record.recorder import MOST_WAITING
from journeyman.store.recordings import events_path
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from tests.cli.program import Warm
from tests.play import Recorder as Heard
from tests.play import succeeded
from tests.support import tamper
from tests.support.room import no_room


def _text(path: Path) -> None:
    path.write_text("what somebody wrote down")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE accounts (name TEXT)")


def _newer(path: Path) -> None:
    Recorder(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def _newer_recordings(path: Path) -> None:
    Recorder(path).close()
    tamper.alter(path, tamper.NEWER_RECORDINGS)


def _folder(path: Path) -> None:
    path.mkdir()


def answering() -> Agent:
    return Agent(name="scout", model=ScriptedModel([say("So.")]))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("make", [_text, _foreign, _newer, _newer_recordings, _folder])
async def test_a_store_that_cannot_be_used_costs_one_warning(
    path: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    make(path)
    if path.is_file():
        path.chmod(0o600)
    before = path.read_bytes() if path.is_file() else b""
    assert (await run(answering(), "?", runtime=Runtime(recorder=path))).unwrap() == "So."
    [told] = warnings_of(caplog)
    assert told.startswith("nothing is recorded of scout: ")
    assert "runs.db" in told
    assert before == (path.read_bytes() if path.is_file() else b"")


async def test_a_full_disk_ends_recording_with_one_warning_and_an_event(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    @tool
    async def fill(n: int) -> str:
        """Give a page that fits nowhere."""
        await recorder.flush()
        return f"{n} " + "".join(chr(97 + (n * i * i) % 26) for i in range(50_000))

    answers = [*[say(call("fill", {"n": n}, id=f"c{n}")) for n in range(1, 6)], say("Filled.")]
    agent = Agent(name="scout", model=ScriptedModel(answers), tools=[fill])
    with Recorder(path) as recorder:
        await run(answering(), "?", runtime=Runtime(recorder=recorder))
        await recorder.flush()
        with no_room(path.parent, 4096):
            succeeded(await run(agent, "?", on_event=heard, runtime=Runtime(recorder=recorder)))
            await recorder.flush()
    [told] = warnings_of(caplog)
    assert "nothing more is recorded in" in told
    assert len(heard.of(RecordingEnded)) == 1
    with Recordings(path) as recordings:
        first = recordings.runs()[-1]
        assert (first.status, recordings.events(first)[-1].kind) == ("done", "RunSucceeded")


async def test_a_full_disk_costs_the_recordings_that_go_on_and_no_later_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = "".join(chr(97 + (n * n) % 26) for n in range(200_000))
    with Recorder(path) as recorder:
        cut = recorder.begin("run", "cut")
        cut.hear(Target(path=("cut",), target="before"))
        await recorder.flush()
        with no_room(path.parent, 4096):
            await run(answering(), f"? {long}", runtime=Runtime(recorder=recorder))
            await recorder.flush()
        cut.hear(Target(path=("cut",), target="after"))
        assert cut.ended_early() is not None
        for text in ("first after", "second after"):
            await run(answering(), text, runtime=Runtime(recorder=recorder))
        await cut.end("success")
    [told] = warnings_of(caplog)
    assert "nothing more is recorded in" in told
    assert "of what goes on now" in told
    with Recordings(path) as recordings:
        found = {each.input: each for each in recordings.runs() if each.status == "done"}
        for text in ("first after", "second after"):
            assert [*recordings.all_events(found[text])][-1].kind == "RunSucceeded"
        assert [each.kind for each in recordings.all_events(recordings.find(cut.id))] == ["Target"]


async def test_a_slow_disk_costs_reports_of_progress_and_nothing_else(path: Path, warm: Warm) -> None:
    n_reports, was_free = MOST_WAITING + 1_500, list[bool]()

    @tool
    async def report(ctx: ToolContext) -> str:
        """Report more than can be written."""
        disk.execute("BEGIN IMMEDIATE")
        for n in range(n_reports):
            ctx.progress(f"{n} done")
        asyncio.get_running_loop().call_later(0.1, disk.execute, "ROLLBACK")
        return "reported"

    def answer(request: Request) -> Answer:
        was_free.append(not disk.in_transaction)
        return "So." if len(was_free) > 1 else call("report", id="c1")

    agent = Agent(name="scout", model=FunctionModel(answer), tools=[report])
    with Recorder(path) as recorder, closing(sqlite3.connect(events_path(path), isolation_level=None)) as disk:
        (await run(agent, "?", runtime=Runtime(recorder=recorder))).unwrap()
    assert was_free == [True, True], "no run goes on while so much waits"
    with Recordings(path) as recordings:
        found = recordings.find("last")
        events = list(recordings.all_events(found))
    kinds = [event.kind for event in events if event.kind != "ToolProgress"]
    assert found.dropped == n_reports - (len(events) - len(kinds))
    assert found.dropped >= 500
    shown = warm("show", "last", "--store", str(path)).stdout.splitlines()
    assert [line for line in shown if "left out" in line] == [
        f"incomplete:  {found.dropped:,} reports of progress left out"
    ]
    assert kinds == [
        *("RunStarted", "Input", "AttemptStarted", "MessageCommitted", "IterationStarted", "ModelAsked"),
        *("MessageCommitted", "ModelResponded", "ToolCalled", "ToolFinished", "MessageCommitted", "IterationStarted"),
        *("ModelAsked", "MessageCommitted", "ModelResponded", "AttemptCompleted", "RunSucceeded"),
    ]

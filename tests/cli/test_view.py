"""`journeyman view`, and what is said to recorded runs of another process on the command line."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman import Runtime, Text, ToolResult, ask_user, run
from journeyman.durable import Durable
from journeyman.events import Event, RunSuspended
from journeyman.gate import Allow, Ask
from journeyman.record import Recorder, Recordings
from journeyman.record.operator import open_questions
from journeyman.testing.scripted import call, say
from tests.cli.program import Done, Warm, assert_one_error_line, running
from tests.play import failed, make_gate, succeeded
from tests.support import tamper
from tests.view.desk import asking, look


@pytest.fixture
def desk(tmp_path: Path, warm: Warm) -> Callable[..., Done]:
    return lambda *words, **env: warm(*words, cwd=tmp_path, env=env)


async def asked(path: Path, *, unlike: str = "") -> tuple[str, str]:
    """Wait until a run asks something else, and return its id and the digest."""
    while True:
        with Recordings(path) as recordings:
            waiting = [
                (run.id, each.question_id) for run in recordings.runs() for each in open_questions(recordings, run)
            ]
        for id, digest in waiting:
            if digest != unlike:
                return id, digest
        await asyncio.sleep(0.01)


async def test_a_recorded_run_is_steered_and_approved_by_commands(tmp_path: Path, desk: Callable[..., Done]) -> None:
    path = tmp_path / "runs.db"

    def told(*words: str) -> Done:
        return desk(*words, "--store", str(path))

    with Recorder(path, asks=True) as recorder:
        agent = asking(say(call("look", {"topic": "tides"}, id="c1")), say("They rise."), say("Yes."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        id, digest = await asked(path)
        steered = await asyncio.to_thread(told, "tell", id, "steer", "Be short.")
        assert (steered.code, steered.stderr) == (0, "It is said before the next model call.\n")
        assert (await asyncio.to_thread(told, "tell", id, "hold")).code == 0
        wrong = await asyncio.to_thread(told, "tell", id, "approve", "ffffff")
        assert_one_error_line(wrong, 1, ["No question waits under", digest[:12]])
        allowed = await asyncio.to_thread(told, "tell", "last", "approve", digest[:8])
        assert (allowed.code, allowed.stderr) == (0, "Allowed: look tides · May it?\n")
        again = await asyncio.to_thread(told, "tell", id, "approve", digest[:8], "--deny", "no")
        assert_one_error_line(again, 1, ["answered before: allow, by"])
        assert (await asyncio.to_thread(told, "tell", id, "release")).code == 0
        succeeded(await going)
    assert_one_error_line(await asyncio.to_thread(told, "tell", id, "stop"), 1, ["has ended"])


async def test_a_recorded_run_hears_other_arguments_denials_follow_ups_answers_and_stops_from_commands(
    tmp_path: Path, desk: Callable[..., Done]
) -> None:
    path = tmp_path / "runs.db"

    async def told(*words: str) -> Done:
        return await asyncio.to_thread(desk, *words, "--store", str(path))

    with Recorder(path, asks=True) as recorder:
        looks = [say(call("look", {"topic": each}, id=each)) for each in ("tides", "fire")]
        question = say(call("ask_user", {"question": "Which?"}, id="q"))
        agent = replace(
            asking(*looks, question, say("So."), *looks), tools=[look, ask_user], gate=make_gate(Ask("May it?"), "look")
        )
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        id, digest = await asked(path)
        assert_one_error_line(
            await told("tell", id, "approve", digest, "--arguments", "{"), 2, ["--arguments is no JSON"]
        )
        changed = await told("tell", id, "approve", digest, "--arguments", '{"topic": "moon"}')
        assert changed.stderr == "Allowed, with other arguments: look tides · May it?\n"
        id, other = await asked(path, unlike=digest)
        assert "Denied: look fire" in (await told("tell", id, "approve", other, "--deny", "too hot")).stderr
        id, which = await asked(path, unlike=other)
        later = await told("tell", id, "steer", "And then?", "--at-end")
        assert later.stderr == "It is said when nothing else is left to do.\n"
        assert (await told("tell", id, "answer", which, "that one")).stderr == "Answered: Which?\n"
        id, digest = await asked(path, unlike=which)
        assert (await told("tell", id, "stop", "enough")).code == 0
        result = failed(await going)
    assert "enough" in result.error.message
    blocks = [block for message in result.history for block in message.content]
    heard = " ".join(block.text for block in blocks if isinstance(block, Text | ToolResult))
    assert all(each in heard for each in ("about moon", "too hot", "that one", "And then?"))


async def test_a_stored_run_is_followed_while_it_waits_and_to_its_end(tmp_path: Path, warm: Warm) -> None:
    path = tmp_path / "runs.db"
    agent = asking(say(call("look", {"topic": "tides"}, id="c")), say("So."))
    has_left = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RunSuspended):
            has_left.set()

    async with Durable(path, suspend_after_s=0.0, on_event=hear) as durable:
        going = asyncio.create_task(durable.run(agent, "What?", runtime=Runtime(recorder=path)))
        await has_left.wait()
        (waiting,) = await durable.list(statuses=["waiting"])
        id, asked_id = waiting.id, waiting.pending[0].question_id
        with running("show", id, "--follow", "--store", path, cwd=tmp_path, start=warm.start) as tail:
            await asyncio.to_thread(tail.wait_for, "May it?", "stdout")
            await (await durable.get(id)).approve(asked_id, Allow())
            succeeded(await going)
            assert (await asyncio.to_thread(tail.done)).stdout.splitlines()[-1].startswith("success")


def test_what_cannot_be_viewed_gets_one_line(tmp_path: Path, desk: Callable[..., Done]) -> None:
    assert_one_error_line(desk("view", "nope.db"), 2, ["There is no store nope.db"])
    nowhere = "postgresql://ann:secret@127.0.0.1:1/x"
    done = desk("view", nowhere)
    assert_one_error_line(done, 2, ["could not be opened", "Check that the database runs"])
    assert "secret" not in done.stderr
    Recorder(tmp_path / "runs.db").close()
    assert_one_error_line(desk("view", "runs.db", "--host", "192.0.2.1"), 2, ["JOURNEYMAN_VIEW_TOKEN"])
    (tmp_path / "other.db").write_text("something else, of another program, and long enough " * 30)
    (tmp_path / "other.db").chmod(0o600)
    assert_one_error_line(desk("view", "other.db"), 2, ["not a store"])
    Recorder(tmp_path / "newer.db").close()
    tamper.alter(tmp_path / "newer.db", tamper.NEWER_RECORDINGS)
    assert_one_error_line(desk("view", "newer.db"), 2, ["recordings of format 99", "Update"])
    assert_one_error_line(desk("view", str(tmp_path)), 2, ["could not be opened"])

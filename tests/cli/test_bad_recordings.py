"""Commands about recordings, where stores and ids are not as they should be: one clear line, the right exit code."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from journeyman.store.recordings import events_path
from tests.cli.program import QUICK_PYTEST, Done, Warm, assert_one_error_line, running
from tests.cli.test_recorded_commands import AGENTS
from tests.store.test_killed import started
from tests.support import tamper

READING = (
    ("runs",),
    ("show", "last"),
    ("show", "last", "--diff", "last"),
    ("show", "last", "--follow"),
    ("export", "last"),
)
COMMANDS = (*READING, ("cassette", "test", "last", "--out", "test_made.py"), ("prune", "last"))
UNPRIVILEGED = Path(__file__).parent / "unprivileged.py"


@pytest.fixture
def desk(tmp_path: Path, warm: Warm) -> Callable[..., Done]:
    """Run commands beside a store with two recordings, `good.db`."""
    (tmp_path / "agents.py").write_text(AGENTS)

    def command(*words: str | Path, program: Path | None = None) -> Done:
        env = {"JOURNEYMAN_RECORD": "1", "JOURNEYMAN_STORE": "", **QUICK_PYTEST}
        return warm(*words, cwd=tmp_path, env=env, program=program)

    for _ in range(2):
        assert command("run", "agents.py:scout", "?", "--quiet", "--store", "good.db").code == 0
    return command


def _text(place: Path, good: Path) -> None:
    place.write_text("what somebody wrote down")


def _foreign(place: Path, good: Path) -> None:
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE accounts (name TEXT)")


def _newer(place: Path, good: Path) -> None:
    _changed(place, good, "PRAGMA user_version = 99")


def _newer_recordings(place: Path, good: Path) -> None:
    _changed(place, good, tamper.NEWER_RECORDINGS)


def _changed(place: Path, good: Path, statement: str) -> None:
    _copy(good, place)
    tamper.alter(place, statement)


def _copy(store: Path, place: Path) -> None:
    shutil.copy(store, place)
    shutil.copy(events_path(store), events_path(place))


def _missing(place: Path, good: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (_missing, "There is no store"),
        (_text, "is not a store of journeyman"),
        (_foreign, "is not a store of journeyman"),
        (_newer, "has format 99"),
        (_newer_recordings, "has recordings of format 99"),
    ],
)
def test_a_store_that_cannot_be_used_is_left_as_it_is(
    desk: Callable[..., Done], tmp_path: Path, make: Callable[[Path, Path], None], part: str
) -> None:
    place = tmp_path / "bad.db"
    make(place, tmp_path / "good.db")
    if place.exists():
        place.chmod(0o600)
    before = place.read_bytes() if place.exists() else b""
    for words in COMMANDS if make is _newer_recordings else COMMANDS[::3]:
        assert_one_error_line(desk(*words, "--store", "bad.db"), 2, [part])
    if make is not _missing:
        assert_one_error_line(desk("run", "agents.py:scout", "?", "--record", "--store", "bad.db"), 2, [part])
        done = desk("run", "agents.py:scout", "?", "--store", "bad.db")
        assert (done.code, done.stdout, done.stderr.count("Nothing is recorded")) == (0, "They rise.\n", 1)
        assert place.read_bytes() == before


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_may_not_be_written_is_named_with_what_to_do(
    desk: Callable[..., Done], tmp_path: Path, what: str
) -> None:
    place = tmp_path / "kept" / "runs.db"
    place.parent.mkdir()
    _copy(tmp_path / "good.db", place)
    events_path(place).chmod(0o400 if what == "file" else 0o600)
    place.parent.chmod(0o700 if what == "file" else 0o500)
    for words in (
        (("prune", "last"),) if what == "file" else (("runs",), ("cassette", "test", "last"), ("prune", "last"))
    ):
        done = desk(*words, "--store", place, program=UNPRIVILEGED)
        assert_one_error_line(done, 2, ["runs.db", "writable"])
    done = desk("run", "agents.py:scout", "?", "--store", place, program=UNPRIVILEGED)
    ended = "nothing more is recorded in" if what == "file" else "Nothing is recorded"
    assert (done.code, done.stdout, done.stderr.count(ended)) == (0, "They rise.\n", 1), done.stderr
    place.parent.chmod(0o700)


@contextmanager
def _locked(place: Path) -> Generator[None]:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def test_what_somebody_writes_to_is_read_and_not_written(desk: Callable[..., Done], tmp_path: Path) -> None:
    with _locked(events_path(tmp_path / "good.db")):
        for words in COMMANDS[:-1]:
            done = desk(*words, "--store", "good.db")
            assert (done.code, "error" in done.stderr) == (0, False), done.stderr
        done = desk("prune", "last", "--store", "good.db")
    assert_one_error_line(done, 2, ["good.db-events could not be written", "Another program is writing to it"])


def test_damaged_recordings_are_put_aside_and_it_is_said_once(desk: Callable[..., Done], tmp_path: Path) -> None:
    events = events_path(tmp_path / "good.db")
    data = bytearray(events.read_bytes())
    data[100:104] = b"\xa5" * 4
    events.write_bytes(data)
    told = "good.db-events was damaged, so recordings begin again; runs and chats go on."
    done = desk("runs", "--json", "--store", "good.db")
    assert (done.code, json.loads(done.stdout), done.stderr.count(told)) == (0, {"runs": []}, 1)
    assert "recorded.py" not in done.stderr, "the line of our program that found it"
    assert desk("run", "agents.py:scout", "?", "--quiet", "--store", "good.db").code == 0
    done = desk("runs", "--json", "--store", "good.db")
    assert (done.stderr, len(json.loads(done.stdout)["runs"])) == ("", 1)


def test_wrong_ids_name_the_nearest_and_short_ones_those_that_fit(desk: Callable[..., Done]) -> None:
    found = json.loads(desk("runs", "--json", "--store", "good.db").stdout)["runs"]
    second, first = [each["id"] for each in found]
    of_one = (
        ("show",),
        ("show", "last", "--diff"),
        ("show", "--follow"),
        ("export",),
        ("cassette", "test"),
        ("prune",),
    )
    for words in of_one:
        wrong = f"{first[:-1]}x"
        assert_one_error_line(desk(*words, wrong, "--store", "good.db"), 2, [wrong, "nearest is", first])
        parts = ["Several", first, second, "Give more of the id"]
        assert_one_error_line(desk(*words, first[:3], "--store", "good.db"), 2, parts)
    assert len(json.loads(desk("runs", "--json", "--store", "good.db").stdout)["runs"]) == 2


def test_a_run_of_another_process_is_shown_as_far_as_it_is_and_followed_to_its_end(
    warm: Warm, desk: Callable[..., Done], tmp_path: Path
) -> None:
    store, pipe = tmp_path / "live.db", tmp_path / "live.db.pipe"
    os.mkfifo(pipe)
    with started(warm, "recorded", store) as program:
        assert program.line() == "written"
        of_store = ("--store", "live.db")
        assert "  running  " in desk("runs", *of_store).stdout
        assert "status:      running" in desk("show", "last", *of_store).stdout
        assert desk("show", "last", "--diff", "last", *of_store).code == 0
        done = desk("export", "last", "--as", "markdown", *of_store)
        assert (done.code, "still goes on" in done.stderr) == (0, True)
        assert_one_error_line(
            desk("cassette", "test", "last", "agents.py:scout", *of_store), 1, ["no end to assert: it is running"]
        )
        assert_one_error_line(desk("prune", "last", *of_store), 1, ["goes on", "once its run has ended"])
        desk("prune", "--older-than", "0s", *of_store)
        with running("show", "last", "--follow", *of_store, cwd=tmp_path, start=warm.start) as tail:
            tail.wait_for("hang({})", "stdout")
            pipe.write_text("go on")
            done = tail.done()
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "success: It was let go.")

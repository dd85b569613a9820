"""`journeyman worker` in processes of its own, and the other commands on a database."""

import json
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import pytest

from examples.dispatchers import pgqueuer_dispatcher
from journeyman.durable import Durable
from journeyman.record import Recordings
from tests.cli.durable_agents import clerk
from tests.cli.program import Running, Warm, assert_one_error_line, running
from tests.support.postgres import PostgresServer

AGENTS = Path(__file__).parent.parent / "cli" / "durable_agents.py"
CLERK = f"{AGENTS}:clerk"
PGQUEUER = f"{Path(pgqueuer_dispatcher.__file__)}:dispatcher"


def shown(warm: Warm, folder: Path, store: str, run: str = "pay") -> dict[str, object]:
    return json.loads(warm("show", run, "--json", "--store", store, cwd=folder).stdout)


def until_done(warm: Warm, folder: Path, store: str) -> dict[str, object]:
    """Wait until the run has ended."""
    info = shown(warm, folder, store)
    for _ in range(200):
        if info["is_over"]:
            break
        info = shown(warm, folder, store)
    return info


def stop(worker: Running) -> None:
    worker.send(SIGTERM)
    done = worker.done()
    assert (done.code, done.stdout) == (0, ""), done.stderr


@pytest.fixture(params=["file", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("database") if request.param == "database" else str(tmp_path / "runs.db")


def test_a_worker_goes_on_where_another_one_was_killed(warm: Warm, tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")  # a database that has just begun takes nobody for dead: see test_fleet.py
    (tmp_path / "stuck").touch()
    begun = warm("run", CLERK, "Pay.", "--durable", "--detach", "--id", "pay", "--store", store, cwd=tmp_path)
    assert (begun.code, begun.stdout) == (0, "pay\n"), begun.stderr
    words = ("worker", CLERK, "--store", store)
    with running(*words, cwd=tmp_path, start=warm.start) as killed:
        killed.wait_for("stuck in: ")
        killed.send(SIGKILL)
        assert killed.done().code == -SIGKILL
    (tmp_path / "stuck").unlink()
    with running(*words, "--record", cwd=tmp_path, start=warm.start) as worker:
        worker.wait_for("Serving clerk from ")
        info = until_done(warm, tmp_path, store)
        stop(worker)
    with Recordings(store) as recordings:
        assert [(each.id, each.kind, each.status) for each in recordings.runs()] == [(info["id"], "durable", "done")]
    assert (info["status"], info["leases"]) == ("done", 2)
    assert (tmp_path / "done.log").read_text("utf-8").splitlines() == ["look A", "pay A", "pay B"]


def test_a_worker_that_is_told_to_stop_gives_back_what_is_not_done_in_time(
    warm: Warm, tmp_path: Path, store: str
) -> None:
    (tmp_path / "stuck").touch()
    options = ("--store", store, "--queue", "mail=1", "--max-concurrency", "2", "--grace", "0.1")
    with running("worker", CLERK, *options, cwd=tmp_path, start=warm.start) as worker:
        worker.wait_for("2 runs at once")
        assert warm("run", CLERK, "Pay.", "--durable", "--detach", "--id", "other", "--store", store, cwd=tmp_path)
        worker.send(SIGTERM)
        worker.wait_for("stopping within 0.1 s: what goes on has 0 s to end; once more, and it is given back at once")
        assert worker.done().code == 0
    assert shown(warm, tmp_path, store, "other")["status"] == "ready", "its queue is not served"


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_second_signal_gives_back_at_once_what_is_driven(warm: Warm, tmp_path: Path, number: Signals) -> None:
    store = str(tmp_path / "runs.db")
    (tmp_path / "stuck").touch()
    assert warm("run", CLERK, "Pay.", "--durable", "--detach", "--id", "pay", "--store", store, cwd=tmp_path)
    with running("worker", CLERK, "--store", store, "--grace", "600", cwd=tmp_path, start=warm.start) as worker:
        worker.wait_for("stuck in: ")
        worker.send(number)
        worker.wait_for("stopping within 600 s: what goes on has 595 s to end")
        worker.send(SIGTERM)
        assert worker.done().code == 0
    assert shown(warm, tmp_path, store)["status"] == "ready"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["No agent is named."]),
        ([CLERK, CLERK], ["Two agents are called 'clerk'"]),
        ([CLERK, "--max-concurrency", "0"], ["for --max-concurrency. Give a number above 0."]),
        ([CLERK, "--grace", "-1"], ["for --grace. Give a number from 0 on."]),
        ([CLERK, "--queue", "mail=none"], ["--queue 'mail=none' is no queue"]),
        ([CLERK, "--queue", "=3"], ["is no queue"]),
        ([CLERK, "--store", "mysql://host/db"], ["there is no kind 'mysql'", "postgresql://"]),
        ([CLERK, "--store", "postgresql://ann:sesame@127.0.0.1:1/db"], ["could not be opened"]),
        ([CLERK, "--store", "postgresql://host/db?direct=x"], ["direct=x"]),
        ([CLERK, "--dispatcher", "kafka"], ["--dispatcher 'kafka' is none.", "for PgQueuer"]),
        ([CLERK, "--dispatcher", CLERK], ["is an Agent, not a dispatcher."]),
        ([CLERK, "--dispatcher", f"{AGENTS}:nothing"], ["is a NoneType, not a dispatcher."]),
        ([CLERK, "--dispatcher", "pgqueuer"], ["Leave it out for Procrastinate, or give FILE:NAME", "for PgQueuer"]),
        ([CLERK, "--dispatcher", PGQUEUER, "--store", "runs.db"], ["needs the URL of a database", "is 'runs.db'"]),
    ],
)
def test_what_a_worker_cannot_do_is_one_line(warm: Warm, tmp_path: Path, words: list[str], parts: list[str]) -> None:
    done = warm("worker", *words, cwd=tmp_path)
    assert_one_error_line(done, 2, parts)
    assert "sesame" not in done.stderr


async def test_a_worker_takes_the_dispatcher_that_it_is_given_and_records_beside_its_runs(
    warm: Warm, tmp_path: Path, postgres: PostgresServer
) -> None:
    name = postgres.database()
    words = ("--store", postgres.url(name))
    with running(
        *("worker", CLERK, *words, "--dispatcher", PGQUEUER, "--record"),
        cwd=tmp_path,
        env={"PGDSN": words[1]},
        start=warm.start,
    ) as worker:
        worker.wait_for("Serving clerk from ")
        async with Durable(words[1], dispatcher=pgqueuer_dispatcher.PgQueuerDispatcher(words[1])) as durable:
            await durable.start(clerk, "Pay.", id="pay")
        info = until_done(warm, tmp_path, words[1])
        stop(worker)
    assert (info["status"], info["leases"]) == ("done", 1)
    with Recordings(words[1]) as recordings:
        assert [(each.id, each.kind, each.status) for each in recordings.runs()] == [(info["id"], "durable", "done")]
    assert not (tmp_path / ".journeyman").exists()
    postgres.drop(name)


def test_a_command_that_is_named_on_a_database_shows_no_password(warm: Warm, tmp_path: Path, emptied: str) -> None:
    named = emptied.replace("postgresql:///", "postgresql://tests:sesame@/")
    careful = f"{AGENTS}:careful"
    done = warm("run", careful, "Pay.", "--durable", "--id", "pay", "--store", named, cwd=tmp_path)
    assert done.code == 3
    assert "journeyman tell pay approve " in done.stderr
    assert "sesame" not in done.stderr
    digest = str(shown(warm, tmp_path, emptied)["pending"][0]["question_id"])  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]
    assert warm("tell", "pay", "approve", digest, "--store", emptied, cwd=tmp_path).code == 0
    resumed = warm("resume", "pay", "--store", emptied, cwd=tmp_path)
    assert (resumed.code, resumed.stdout) == (0, "All is paid.\n"), resumed.stderr

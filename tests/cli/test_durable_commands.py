"""`run --durable` and the commands for durable runs: each process here knows of the others by the store alone."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import Any

import pytest

from tests.cli.program import AGENTS as PLAIN
from tests.cli.program import Done, Warm, assert_one_error_line, running
from tests.cli.terminal import terminal

AGENTS = Path(__file__).parent / "durable_agents.py"
ANALYST = Path(__file__).parent / "durable_analyst.py"
FORGED = "\x1b"


class Desk:
    """A folder with a store, and the command line in it."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder, self.warm = folder, warm

    def __call__(self, *words: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        return self.warm(*words, cwd=self.folder, stdin=stdin, env=env)

    def start(self, agent: str, id: str, *words: str) -> Done:
        return self("run", f"{AGENTS}:{agent}", "Pay.", "--durable", "--id", id, *words)

    def done(self) -> list[str]:
        """Return what the tools did."""
        log = self.folder / "done.log"
        return log.read_text("utf-8").splitlines() if log.exists() else []

    def shown(self, run: str, *words: str) -> dict[str, Any]:
        return json.loads(self("show", run, "--json", *words).stdout)

    def digest(self, run: str) -> str:
        return self.shown(run)["pending"][0]["question_id"]

    def stop(self, agent: str, id: str, number: int = SIGKILL, file: Path = AGENTS) -> Done:
        """Begin a run, and send it a signal in the middle of a tool."""
        (self.folder / "stuck").touch()
        words = ("run", f"{file}:{agent}", "Pay.", "--durable", "--id", id)
        with running(*words, cwd=self.folder, start=self.warm.start) as program:
            program.wait_for("stuck in: ")
            program.send(number)  # pyright: ignore[reportArgumentType] - a signal
            done = program.done()
        (self.folder / "stuck").unlink()
        return done


@pytest.fixture
def desk(tmp_path: Path, warm: Warm) -> Iterator[Desk]:
    return Desk(tmp_path, warm)  # pyright: ignore[reportReturnType]


def test_a_durable_run_prints_its_result_and_the_same_id_again_prints_it_from_the_store(desk: Desk) -> None:
    first, second = desk.start("clerk", "one"), desk.start("clerk", "one", "--quiet")
    assert (first.code, first.stdout) == (second.code, second.stdout) == (0, "All is paid.\n")
    assert "✓ done · 1 attempt, 4 iterations, 3 calls" in first.stderr
    assert desk.done() == ["look A", "pay A", "pay B"]
    assert (desk.folder / ".journeyman" / "runs.db").is_file()
    other = desk("run", f"{AGENTS}:clerk", "Pay more.", "--durable", "--id", "one")
    assert_one_error_line(other, 2, ["'one' is another one: its input is 'Pay.', not 'Pay more.'"])


def test_an_analyst_that_was_killed_in_mid_tool_goes_on_in_another_process(desk: Desk) -> None:
    assert desk.stop("analyst", "report", file=ANALYST).code == -SIGKILL
    assert desk.done() == ["describe", "query"]
    assert "status:      died" in desk("show", "report").stdout
    done = desk("resume", "report", "--tree")
    assert done.code == 0, done.stderr
    assert "analyst · goes on at attempt 1, iteration 2" in done.stderr
    assert "✓ analyst · " in done.stderr.partition("The whole tree")[2]
    assert json.loads(done.stdout)
    assert desk.done().count("describe") == 1
    assert desk.done().count("query") > 2


def test_a_call_with_effect_once_is_not_made_again_after_a_kill(desk: Desk) -> None:  # K4
    desk.stop("clerk", "kill")
    done = desk("resume", "kill")
    assert (done.code, done.stdout) == (0, "All is paid.\n")
    assert "whether it" in done.stderr
    assert desk.done() == ["look A", "pay A", "pay B"]


def test_a_run_that_is_interrupted_says_how_it_goes_on(desk: Desk) -> None:
    done = desk.stop("clerk", "left", SIGINT)
    assert (done.code, done.stdout) == (130, "")
    assert done.error.endswith("Nothing that it finished is lost. Go on: journeyman resume left")
    assert [row["status"] for row in json.loads(desk("runs", "--json").stdout)["runs"]] == ["ready"]
    assert desk("resume", "left", "--quiet").stdout == "All is paid.\n"


def test_a_second_interrupt_quits_at_once_and_the_run_goes_on(desk: Desk) -> None:
    words = ("run", f"{PLAIN}:blocker", "Go on", "--durable", "--id", "blocked")
    with running(*words, cwd=desk.folder, start=desk.warm.start) as program:
        program.wait_for("I block.")
        program.send(SIGINT)
        program.wait_for("stopping")
        program.send(SIGINT)
        assert program.done().code == 130
    shown = desk.shown("blocked")
    assert shown["status"] in ("died", "ready"), "it had no time to give the run back, or just enough"


def test_a_run_that_no_worker_takes_says_which_agent_it_needs(desk: Desk) -> None:
    desk.start("clerk", "later", "--detach")
    assert "none has taken it" not in desk("runs").stdout
    with closing(sqlite3.connect(desk.folder / ".journeyman" / "runs.db")) as connection, connection:
        connection.execute("UPDATE jm_runs SET created = created - 300")
    [_, row] = desk("runs").stdout.splitlines()
    assert f"a worker with this agent; none has taken it for 5 min: journeyman worker {AGENTS}:clerk" in row


def test_a_run_that_is_detached_is_only_stored(desk: Desk) -> None:
    done = desk.start("clerk", "later", "--detach")
    assert (done.code, done.stdout) == (0, "later\n")
    assert done.error == "The run later is stored. Go on with it: journeyman resume later"
    assert desk.done() == []
    unnamed = desk("run", f"{AGENTS}:clerk", "Pay.", "--durable", "--detach", "--quiet")
    assert len(unnamed.stdout) == 37
    listed = desk("runs").stdout.splitlines()
    assert [line.split()[:4] for line in listed[1:]] == [
        [unnamed.stdout[:18], "durable", "clerk", "ready"],
        ["later", "durable", "clerk", "ready"],
    ]
    assert desk("resume", unnamed.stdout[:18], "--quiet").stdout == "All is paid.\n"


def test_a_call_that_waits_is_approved_from_another_process(desk: Desk) -> None:
    done = desk.start("careful", "ask")
    assert (done.code, done.stdout) == (3, "")
    digest = desk.digest("ask")
    assert f"    journeyman tell ask approve {digest[:12]}\n" in done.stderr
    assert FORGED not in done.stderr
    shown = desk("show", "ask").stdout
    assert f'pending: approve {digest[:12]} · pay\n  May it be paid?\n  {{\n    "invoice": "B"\n  }}\n' in shown
    assert FORGED not in shown
    assert FORGED not in desk("runs").stdout
    assert desk("resume", "ask").code == 3
    assert_one_error_line(
        desk("tell", "ask", "approve", "0123456789"), 1, ["No question waits under '0123456789'", digest[:12]]
    )
    allowed = desk("tell", "ask", "approve", digest[:8])
    assert (allowed.code, allowed.error) == (0, "Unless a worker does, go on with it: journeyman resume ask")
    assert_one_error_line(desk("tell", "ask", "approve", digest), 1, ["This was answered before: allow, by "])
    assert desk("resume", "ask", "--quiet").stdout == "All is paid.\n"
    assert desk.done() == ["look A", "pay A", "pay B"]
    assert_one_error_line(desk("tell", "ask", "approve", digest), 1, ["This was answered before: allow, by "])


def test_a_call_that_is_denied_is_not_made(desk: Desk) -> None:
    desk.start("careful", "no")
    assert "Denied: pay B" in desk("tell", "no", "approve", desk.digest("no"), "--deny", "Too dear.").stderr
    done = desk("resume", "no")
    assert done.code == 0
    assert "Too dear." in done.stderr
    assert desk.done() == ["look A", "pay A"]


def test_a_question_of_the_model_is_answered_from_another_process(desk: Desk) -> None:
    asked = desk.start("asker", "colour", "--json")
    assert (asked.code, json.loads(asked.stdout)["status"]) == (3, "waiting")
    assert "colour answer" in asked.stderr
    assert FORGED not in asked.stderr
    assert desk("tell", "colour", "answer", desk.digest("colour"), "Green.").code == 0
    assert desk("resume", "colour", "--quiet").stdout == "You said: Green.\n"


def test_a_run_that_is_held_goes_on_when_it_is_released(desk: Desk) -> None:
    desk.start("clerk", "slow", "--detach")
    assert desk("tell", "slow", "hold").code == 0
    held = desk("resume", "slow")
    assert (held.code, held.error) == (3, "The run slow is held. Let it go on: journeyman tell slow release")
    assert desk("tell", "slow", "steer", "Quickly!").code == 0
    assert desk("tell", "slow", "release").code == 0
    done = desk("resume", "slow", "--json", "--quiet")
    assert "Quickly!" in done.stdout
    assert_one_error_line(desk("tell", "slow", "hold"), 1, ["'slow' has ended"])


def test_a_run_that_nobody_drives_is_cancelled_here(desk: Desk) -> None:  # K17
    desk.start("careful", "stop")
    done = desk("tell", "stop", "stop", "not today")
    assert (done.code, done.error) == (0, "The run stop has ended as cancelled.")
    again = desk("resume", "stop")
    assert_one_error_line(again, 1, ["EXECUTION_CANCELLED", "not today"])
    assert desk.done() == ["look A", "pay A"]
    assert_one_error_line(desk("tell", "stop", "stop"), 1, ["'stop' has ended (EXECUTION_CANCELLED)"])


def test_a_run_that_is_driven_elsewhere_is_cancelled_there(desk: Desk) -> None:
    (desk.folder / "stuck").touch()
    words = ("run", f"{AGENTS}:clerk", "Pay.", "--durable", "--id", "far")
    with running(*words, cwd=desk.folder, start=desk.warm.start) as program:
        program.wait_for("stuck in: ")
        assert_one_error_line(desk("resume", "far"), 1, ["'far' is driven by the process", "resume far --steal"])
        assert "was told to end it" in desk("tell", "far", "stop").stderr
        done = program.done()
    assert done.code == 1
    assert "EXECUTION_CANCELLED" in done.error


def test_a_changed_prompt_blocks_a_run_and_a_fork_or_acceptance_goes_on(desk: Desk) -> None:  # K13, K15
    desk.stop("clerk", "old")
    blocked = desk("resume", "old", "--agent", f"{AGENTS}:stern")
    ways = ["'old' is blocked", "fork old --at 1/1 --agent FILE:AGENT", "resume old --accept"]
    assert_one_error_line(blocked, 4, ways)
    assert "blocked: " in desk("show", "old").stdout
    made = desk("fork", "old", "--at", "1/3", "--agent", f"{AGENTS}:stern", "--id", "new", "--yes")
    assert (made.code, made.stdout) == (0, "new\n")
    assert "attempt/1/iteration/3/call/b" in made.stderr
    assert made.error == "Go on with it: journeyman resume new"
    done = desk("resume", "new")
    assert (done.code, done.stdout) == (0, "All is paid. Be stern.\n")
    assert desk.done() == ["look A", "pay A", "pay B", "pay B"]
    accepted = desk("resume", "old", "--agent", f"{AGENTS}:stern", "--accept", "--quiet")
    assert (accepted.code, accepted.stdout) == (0, "All is paid. Be stern.\n")
    assert desk.done().count("pay A") == 1


def test_a_fork_that_may_repeat_an_effect_asks_on_a_terminal_and_is_refused_without_one(desk: Desk) -> None:
    desk.start("clerk", "first")
    refused = desk("fork", "first", "--at", "1/2")
    assert_one_error_line(refused, 2, ["add --yes"])
    assert "attempt/1/iteration/2/call/a\n  attempt/1/iteration/3/call/b\n" in refused.stderr
    words = ("fork", "first", "--at", "1/2", "--id", "second", "--store", str(desk.folder / ".journeyman" / "runs.db"))
    with terminal(*words, start=desk.warm.start) as tty:
        tty.wait_for(lambda shown: "May they? [y/N]" in shown)
        tty.press(b"y\r")
        assert tty.end() == 0
    assert desk.shown("second")["parent"] == desk.shown("first")["id"]
    assert desk("fork", "first", "--at", "1/4").code == 0


def test_the_steps_of_a_run_are_shown_with_effect_size_and_duration(desk: Desk) -> None:
    desk.stop("clerk", "steps")
    lines = desk("show", "steps", "--steps").stdout.splitlines()
    call = next(line for line in lines if line.startswith("attempt/1/iteration/2/call/a "))
    assert (" once " in call, call[-1]) == (True, "s")
    assert lines[-1].endswith("begun, not finished")
    steps = desk.shown("steps", "--steps")["steps"]
    finished = [step["key"] for step in steps if step["effect"] == "once" and step["is_finished"]]
    assert finished == ["attempt/1/iteration/2/call/a"]
    assert all(step["bytes"] > 0 for step in steps[:-1])


def test_runs_are_filtered_newest_first(desk: Desk) -> None:
    for id in ("a", "b", "c"):
        desk.start("clerk", id, "--detach")
    desk.start("careful", "d")
    listed = json.loads(desk("runs", "--json").stdout)["runs"]
    assert [each["name"] for each in listed] == ["d", "c", "b", "a"]
    [last] = json.loads(desk("runs", "--json", "-n", "1", "--agent", "clerk").stdout)["runs"]
    assert last["name"] == "c"
    waiting = desk("runs", "--status", "waiting").stdout.splitlines()
    assert waiting[1].split()[:5] == ["d", "durable", "careful", "waiting", "1/3"]


def test_the_queues_of_a_store_are_shown_with_what_waits_in_them(desk: Desk) -> None:
    desk.start("clerk", "a", "--detach")
    desk.start("careful", "b")
    (state,) = json.loads(desk("runs", "--queues", "--json").stdout)["queues"]
    assert (state["queue"], state["ready"], state["waiting"]) == ("default", 1, 1)
    head, line = [each.split() for each in desk("runs", "--queues").stdout.splitlines()]
    assert head == ["queue", "ready", "oldest", "delayed", "running", "waiting", "held", "blocked"]
    assert (line[:2], line[3], line[4:]) == (["default", "1"], "s", ["0", "0", "1", "0", "0"])


def test_only_runs_that_have_ended_are_forgotten(desk: Desk) -> None:
    desk.start("clerk", "good", "--quiet")
    desk.start("clerk", "bad", "--detach")
    desk("tell", "bad", "stop")
    desk.start("clerk", "open", "--detach")
    assert desk("prune", "--older-than", "30d").stdout == ""
    assert desk("prune", "--older-than", "0s", "--dry-run").stdout == "bad\ngood\n"
    assert desk("prune", "--older-than", "0s", "--status", "done").stdout == "good\n"
    assert_one_error_line(desk("prune", "open"), 1, ["'open' is ready: only runs that have ended can be forgotten"])
    done = desk("prune", "bad")
    assert (done.stdout, done.error) == ("bad\n", "1 run forgotten.")
    assert [each["name"] for each in json.loads(desk("runs", "--json").stdout)["runs"]] == ["open"]


def test_the_store_is_found_by_one_rule(desk: Desk) -> None:
    folder = desk.folder
    nothing = desk("runs")
    assert_one_error_line(nothing, 2, ["--store is not given, JOURNEYMAN_STORE is not set", str(folder), "runs.db"])
    desk.start("clerk", "near", "--detach")
    (folder / "deep" / "er").mkdir(parents=True)
    assert "near" in desk.warm("runs", cwd=folder / "deep" / "er").stdout
    away = {"JOURNEYMAN_STORE": str(folder / "away.db")}
    assert_one_error_line(desk("runs", env=away), 2, ["There is no store", "away.db"])
    words = ("run", f"{AGENTS}:clerk", "Pay.", "--durable", "--detach", "--id")
    assert desk(*words, "far", env=away).code == 0
    assert "far" in desk("runs", env=away).stdout
    assert desk(*words, "named", "--store", "sqlite:other.db", env=away).error.endswith("--store sqlite:other.db")
    listed = desk("runs", "--store", "other.db", env=away).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["run", "named"]


def test_a_store_that_is_damaged_is_repaired_and_that_is_said(desk: Desk) -> None:
    desk.start("clerk", "whole", "--detach")
    file = desk.folder / ".journeyman" / "runs.db"
    (desk.folder / "cut.db").write_bytes(file.read_bytes()[:50])
    done = desk("runs", "--store", "cut.db")
    assert done.code == 0
    assert "cut.db was damaged" in done.stderr
    assert ".py" not in done.stderr


BAD: dict[str, tuple[int, list[str]]] = {
    "run A:clerk Pay. --durable --id=": (2, ["The id '' cannot be used: it is empty."]),
    f"run A:clerk Pay. --durable --id {'x' * 201}": (2, ["it has 201 characters; at most 200 are allowed"]),
    "run A:clerk Pay. --durable --id a\x07b": (2, ["it has characters that cannot be shown"]),
    "run A:clerk Pay. --id x": (2, ["--id is for a durable run. Add --durable."]),
    "run A:clerk Pay. --detach": (2, ["--detach is for a durable run. Add --durable."]),
    "run A:clerk Pay. --durable --store mysql://h/d": (2, ["there is no kind 'mysql'", "sqlite:PATH"]),
    "show in-voices": (2, ["There is no run 'in-voices'. Did you mean invoices?", "journeyman runs"]),
    "tell inwoices steer hello": (2, ["Did you mean invoices"]),
    "tell invoices approve abc": (1, ["'abc' is no id of a question", "at least its first 6 characters"]),
    "tell invoices approve abcdef": (1, ["No question waits under 'abcdef'", "It waits for nobody."]),
    "tell invoices steer \t": (2, ["The text is blank"]),
    "fork invoices --at 0/0": (2, ["--at '0/0' is no place", "--at 2/3"]),
    "fork invoices --at 9": (2, ["--at '9' is no place"]),
    "fork invoices --at 2/1": (2, ["'invoices' was never at 2/1. Its last step is of attempt 1, iteration 4"]),
    "fork fresh --at 1/1": (2, ["'fresh' has done nothing yet"]),
    "prune": (2, ["Name runs, or give --older-than 30d"]),
    "prune --older-than soon": (2, ["'soon' is no duration", "30d"]),
    "prune --older-than 1d --status open": (2, ["--status", "failed"]),
    "runs --status over": (2, ["over", "blocked"]),
    "runs -n 0": (2, ["for -n. Give a number above 0."]),
    "runs --store A": (2, ["is not a store of journeyman"]),
    "runs --store newer.db": (2, ["newer.db"]),
    "runs --store .": (2, ["error: "]),
    "resume invoices --agent nowhere.py:clerk": (2, ["There is no file nowhere.py."]),
    "resume invoices --agent A:careful": (2, ["agent"]),
}


@pytest.fixture(scope="module")
def invoices(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("bad"), warm)
    desk.start("clerk", "invoices")
    desk.start("clerk", "fresh", "--detach")
    (desk.folder / "newer.db").write_bytes((desk.folder / ".journeyman" / "runs.db").read_bytes())
    with closing(sqlite3.connect(desk.folder / "newer.db")) as file:
        file.execute("PRAGMA user_version = 99")
    return desk


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("words", BAD)
def test_what_cannot_be_done_is_one_line(words: str, invoices: Desk) -> None:
    code, parts = BAD[words]
    given = [str(AGENTS) + word[1:] if word == "A" or word.startswith("A:") else word for word in words.split(" ")]
    assert_one_error_line(invoices(*given), code, parts)

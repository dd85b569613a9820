"""`journeyman chat` without a terminal, and what cannot be done at all."""

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import Literal

import pytest

from tests.cli.program import Done, Warm, environment, running
from tests.cli.terminal import CHAT_AGENTS as AGENTS
from tests.cli.terminal import chatting


def talk(warm: Warm, folder: Path, lines: str, *words: str, agent: str = "helper") -> Done:
    env = {"XDG_DATA_HOME": str(folder / "data")}
    return warm("chat", f"{AGENTS}:{agent}", *words, cwd=folder, stdin=lines.encode(), env=env)


def test_each_line_is_a_prompt_and_only_answers_go_to_stdout(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "door").touch()
    done = talk(warm, tmp_path, "Hello\n\nwait\nprinting\n/cost\n")
    assert done.code == 0
    assert done.stdout == "heard ['Hello'], read []\nheard [], read ['waited']\nheard [], read ['printed']\n"
    assert "> wait\nI wait.\n  ✓ wait" in done.stderr
    assert "5 requests · 50 tokens in, 25 out" in done.stderr
    assert "\x1b" not in done.stderr.replace("\x1b[2Ja tool prints", "")


def test_nobody_is_there_to_approve_or_to_answer(warm: Warm, tmp_path: Path) -> None:
    done = talk(warm, tmp_path, "bash touch evil\nask_user\n")
    assert done.code == 0
    assert "Nobody is there to approve it." in done.stdout
    assert "Decide by yourself" in done.stdout
    assert not (tmp_path / "evil").exists()
    assert talk(warm, tmp_path, "bash touch good\n", "--mode", "trust").code == 0
    assert (tmp_path / "good").exists()


def test_typed_output_is_one_line_of_json(warm: Warm, tmp_path: Path) -> None:
    assert talk(warm, tmp_path, "A\nB\n", agent="planner").stdout == '{"city":"Oslo"}\n' * 2


@pytest.mark.parametrize("last", ["Again\n", "Again\n/quit\n"])
def test_a_line_that_fails_is_told_the_others_go_on_and_the_exit_code_says_so(
    warm: Warm, tmp_path: Path, last: str
) -> None:
    done = talk(warm, tmp_path, f"Hello\nbad\n{last}", agent="picky")
    assert (done.code, done.stdout) == (1, "heard Hello\nheard Again\n")
    assert "error: API_ERROR: The model call failed (bad_request)" in done.stderr


def test_a_line_that_is_no_input_is_told_and_the_others_go_on(warm: Warm, tmp_path: Path) -> None:
    done = talk(warm, tmp_path, "{torn\n1\n", agent="adder")
    assert (done.code, done.stdout) == (1, "heard 1\n")
    assert "error: INVALID_INPUT: " in done.stderr


def test_a_later_start_of_the_agent_goes_on_with_the_latest_or_with_an_id(warm: Warm, tmp_path: Path) -> None:
    file = ("--session-file", str(tmp_path / "kept.sqlite"))
    assert talk(warm, tmp_path, "One\n", *file).code == 0
    done = talk(warm, tmp_path, "Two\n/resume\n", *file, "--resume")
    assert "▸" in done.stderr
    assert "4 messages · helper · One" in done.stderr
    id = done.stderr.partition("▸ ")[2].split()[0]
    assert "6 messages" in talk(warm, tmp_path, "Three\n/resume\n", *file, "--resume", id).stderr
    done = talk(warm, tmp_path, "Four\n", *file, "--resume", id, agent="guarded")
    assert (done.code, "of the agent 'helper', not of 'guarded'" in done.error) == (2, True)
    assert not (tmp_path / "data/journeyman/sessions.sqlite").exists()


def test_a_chat_in_a_database_goes_on_there(warm: Warm, tmp_path: Path, emptied: str) -> None:
    url = f"{emptied}&password=secret"
    first = talk(warm, tmp_path, "One\n", "--session-file", url)
    assert (first.code, first.stdout) == (0, "heard ['One'], read []\n"), first.stderr
    assert "secret" not in first.stderr
    later = talk(warm, tmp_path, "Two\n/resume\n", "--session-file", url, "--resume")
    assert later.code == 0, later.stderr
    assert "4 messages · helper · One" in later.stderr
    assert [*tmp_path.iterdir()] == [], "no file is made of its name"


@pytest.mark.timeout(60)
def test_a_conversation_that_is_open_elsewhere_is_refused(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("Hello", "heard ['Hello']")
        done = talk(warm, tmp_path, "Me too\n", "--resume")
        assert done.code == 2
        assert str(chat.process.pid) in done.error


@pytest.mark.parametrize("command", ["chat", "mcp"])
def test_a_closed_stdin_is_an_empty_one(tmp_path: Path, command: str) -> None:
    shell = ["sh", "-c", f'exec "$0" -m journeyman {command} "$1" <&-', sys.executable, f"{AGENTS}:helper"]
    env = environment(XDG_DATA_HOME=str(tmp_path / "data"))
    done = subprocess.run(shell, cwd=tmp_path, env=env, capture_output=True, text=True, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("path", "mode", "code", "said"),
    [(os.devnull, "rb", 0, ""), ("made", "wb", 2, "error: stdin cannot be read: Bad file descriptor.")],
)
def test_a_stdin_that_is_nothing_is_an_empty_one_and_one_that_cannot_be_read_is_told(
    warm: Warm, tmp_path: Path, path: str, mode: Literal["rb", "wb"], code: int, said: str
) -> None:
    words, env = ("chat", f"{AGENTS}:helper"), {"XDG_DATA_HOME": str(tmp_path / "data")}
    with (
        (tmp_path / path).open(mode) as stdin,
        running(*words, cwd=tmp_path, env=env, stdin=stdin, start=warm.start) as chat,
    ):
        done = chat.done()
    assert (done.code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "steps", "said"),
    [
        ("", [("", SIGINT)], ""),
        ("", [("", SIGTERM)], ""),
        ("sleep\nHello\n", [("I sleep.", SIGINT)], "stopped"),
        ("sleep\nHello\n", [("I sleep.", SIGTERM)], "stopped"),
        ("block\nHello\n", [("I block.", SIGINT), ("stopping", SIGINT)], ""),
    ],
)
def test_a_signal_ends_it_after_the_turn_that_goes_on_and_another_one_at_once(
    warm: Warm, tmp_path: Path, line: str, steps: list[tuple[str, Signals]], said: str
) -> None:
    given, giving = os.pipe()
    os.write(giving, b"Hi\n" + line.encode())
    words = ("chat", f"{AGENTS}:helper")
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with os.fdopen(given, "rb") as stdin, running(*words, cwd=tmp_path, env=env, stdin=stdin, start=warm.start) as chat:
        chat.wait_for("heard ['Hi']", "stdout")
        for sign, number in steps:
            chat.wait_for(sign)
            chat.send(number)
        done = chat.done()
    os.close(giving)
    assert (done.code, done.stdout) == (128 + steps[-1][1], "heard ['Hi'], read []\n")
    assert said in done.stderr

"""Who is asked, of a call and of what the model wants to know: each command, in each of the places where it may be."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.request import Request, urlopen

import pytest

from journeyman import Agent, tool
from journeyman.cli.permit.asked import TerminalQuestion
from journeyman.events import ApprovalRequested, QuestionAsked
from journeyman.gate import Rewrite
from journeyman.testing.scripted import ScriptedModel
from tests.cli.program import Done, Warm
from tests.cli.terminal import Terminal, terminal

AGENTS = Path(__file__).parent / "policy_agents.py"
WORKER = f"{AGENTS}:worker"
ASK = json.dumps({"tool": "ask_user", "question": "Which one?", "options": ["Grand", "Harbour"]})
BASH = json.dumps({"tool": "bash", "command": "echo hello > made"})
NOT_ANSWERED = "! not answered, because nobody is there to ask: Which one? Run this in a terminal, or with --durable:"
RUN = ("run", WORKER)
CHAT = ("chat", WORKER)
BATCH = ("batch", WORKER, "-", "--format", "jsonl", "--out", "out.jsonl")
COMMANDS = pytest.mark.parametrize("words", [RUN, CHAT, BATCH], ids=lambda words: words[0])


def around(folder: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(folder / "data")}


def at(
    folder: Path, warm: Warm, *words: str, stdin: Path | None = None, stdout: Path | None = None
) -> AbstractContextManager[Terminal]:
    return terminal(
        *words, folder=folder, start=warm.start, stdin=stdin, stdout=stdout, XDG_DATA_HOME=str(folder / "data")
    )


def given(folder: Path, call: str) -> Path:
    file = folder / "input"
    file.write_text(call + "\n")
    return file


def answer_is(tty: Terminal, text: str) -> None:
    assert "? a question Which one?\n    1 Grand\n    2 Harbour\nA number or a text.\nanswer>" in tty.see("answer>")
    tty.type(text)
    assert tty.end() == 0, tty.text


@COMMANDS
def test_a_question_of_the_model_goes_to_the_terminal_though_stdin_and_stdout_lead_elsewhere(
    warm: Warm, tmp_path: Path, words: tuple[str, ...]
) -> None:
    stdin, stdout = given(tmp_path, ASK), tmp_path / "stdout"
    with at(tmp_path, warm, *words, stdin=stdin, stdout=stdout) as tty:
        answer_is(tty, "2")
    found = tmp_path / "out.jsonl" if words is BATCH else stdout
    assert "Harbour" in found.read_text()
    assert "Grand" not in found.read_text()


@COMMANDS
def test_a_call_is_asked_about_at_the_terminal_though_stdin_and_stdout_lead_elsewhere(
    warm: Warm, tmp_path: Path, words: tuple[str, ...]
) -> None:
    stdin, stdout = given(tmp_path, BASH), tmp_path / "stdout"
    with at(tmp_path, warm, *words, stdin=stdin, stdout=stdout) as tty:
        tty.see("\nallow?")
        tty.type("y")
        assert tty.end() == 0, tty.text
    assert (tmp_path / "made").exists()


@COMMANDS
def test_where_nobody_is_there_the_model_decides_and_the_end_says_what_was_asked(
    warm: Warm, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = warm(*words, cwd=tmp_path, stdin=ASK.encode() + b"\n", env=around(tmp_path))
    assert done.code == 0, done.stderr
    found = (tmp_path / "out.jsonl").read_text() if words is BATCH else done.stdout
    assert "Nobody is there to answer. Decide by yourself" in found
    assert NOT_ANSWERED in " ".join(done.stderr.split())


def test_a_question_that_is_not_answered_leaves_the_model_to_decide(warm: Warm, tmp_path: Path) -> None:
    with at(tmp_path, warm, *RUN, ASK) as tty:
        tty.see("answer>")
        tty.press(b"\r")
        tty.wait_for(lambda shown: shown.count("answer>") == 2)
        tty.press(b"\x04")
        tty.see("Decide by yourself")
        assert tty.end() == 0


def durable(warm: Warm, folder: Path, *words: str) -> Done:
    return warm(*words, cwd=folder, env=around(folder))


def test_a_durable_run_asks_at_the_terminal_and_waits_in_the_store_where_nobody_is(warm: Warm, tmp_path: Path) -> None:
    with at(tmp_path, warm, *RUN, ASK, "--durable", "--id", "here") as tty:
        answer_is(tty, "the old one")
    assert "the old one" in durable(warm, tmp_path, *RUN, ASK, "--durable", "--id", "here").stdout
    waits = durable(warm, tmp_path, *RUN, ASK, "--durable", "--id", "away")
    assert (waits.code, waits.stdout) == (3, "")
    assert "journeyman tell away answer " in waits.stderr
    with at(tmp_path, warm, "resume", "away") as tty:
        answer_is(tty, "1")
    assert "Grand" in tty.text


def test_a_call_that_waits_in_the_store_is_asked_about_where_its_run_is_gone_on_with(
    warm: Warm, tmp_path: Path
) -> None:
    assert durable(warm, tmp_path, *RUN, BASH, "--durable", "--id", "a").code == 3
    with at(tmp_path, warm, "resume", "a") as tty:
        tty.see("\nallow?")
        tty.type("y")
        assert tty.end() == 0, tty.text
    assert (tmp_path / "made").exists()


def test_a_durable_batch_asks_at_the_terminal_one_question_after_the_other(warm: Warm, tmp_path: Path) -> None:
    stdin = given(tmp_path, f"{ASK}\n{ASK}")
    with at(tmp_path, warm, *BATCH, "--durable", "runs.db", stdin=stdin) as tty:
        tty.see("answer>")
        tty.type("1")
        tty.wait_for(lambda shown: shown.count("answer>") == 2)
        tty.type("2")
        assert tty.end() == 0, tty.text
    outputs = sorted(json.loads(line)["output"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert outputs == ["Grand", "Harbour"]


def test_a_worker_asks_nobody_and_lets_the_run_wait(warm: Warm, tmp_path: Path) -> None:
    for id, call in (("call", BASH), ("question", ASK)):
        assert durable(warm, tmp_path, *RUN, call, "--durable", "--id", id, "--detach").code == 0
    with at(tmp_path, warm, "worker", WORKER) as tty:

        def waits() -> bool:
            return durable(warm, tmp_path, "runs", "--status", "waiting").stdout.count("\n") == 3

        tty.wait_for(lambda _: waits())
        tty.process.send_signal(SIGTERM)
        tty.process.wait()
    assert "allow?" not in tty.text
    assert "answer>" not in tty.text


@pytest.mark.parametrize(("call", "read"), [(ASK, "Nobody is there to answer."), (BASH, "Error: denied: bash")])
def test_a_server_of_mcp_tools_asks_its_client_and_nobody_else(
    warm: Warm, tmp_path: Path, call: str, read: str
) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "worker", "arguments": {"input": call}}},
    ]
    client, stdout = tmp_path / "client", tmp_path / "stdout"
    os.mkfifo(client)
    stays = os.open(client, os.O_RDWR)
    os.write(stays, "".join(f"{json.dumps(each)}\n" for each in messages).encode())
    with at(tmp_path, warm, "mcp", WORKER, stdin=client, stdout=stdout) as tty:
        tty.wait_for(lambda _: '"id":2' in stdout.read_text())
        tty.process.send_signal(SIGTERM)
        assert tty.process.wait() == 143
    os.close(stays)
    assert read in stdout.read_text()
    assert not (tmp_path / "made").exists()
    assert "allow?" not in tty.text
    assert "answer>" not in tty.text


@pytest.mark.parametrize("call", [ASK, BASH])
def test_a_server_behind_http_asks_its_client_and_nobody_else(warm: Warm, tmp_path: Path, call: str) -> None:
    with at(tmp_path, warm, "serve", WORKER, "--port", "0", "--grace", "0") as tty:
        address = tty.see("Ctrl-C ends it").partition("serving at ")[2].partition(";")[0]
        headers = {"content-type": "application/json", "idempotency-key": "r", "prefer": "respond-async"}
        begins = Request(f"{address}/agents/worker/runs", json.dumps({"input": call}).encode(), headers)
        with urlopen(begins) as begun:
            assert begun.status == 202

        def waits() -> bool:
            with urlopen(f"{address}/runs/r") as found:
                return bool(json.load(found)["questions"])

        tty.wait_for(lambda _: waits())
        tty.process.send_signal(SIGTERM)
        tty.process.wait()
    assert not (tmp_path / "made").exists()
    assert "allow?" not in tty.text
    assert "answer>" not in tty.text


@tool
def transfer(n: int) -> str:
    """Move it."""
    return str(n)


def test_arguments_are_edited_until_they_fit_and_an_empty_line_goes_back() -> None:
    call: dict[str, Any] = {"tool_use_id": "1", "tool_name": "transfer", "arguments": {"n": 1}, "question_id": "d"}
    asked = ApprovalRequested(path=("a",), id="1", question="May it?", offers=("once",), **call)
    question = TerminalQuestion(Agent(name="a", model=ScriptedModel([]), tools=[transfer]), asked, may_exit="turn")
    given: list[str] = []
    for line in ("m", "", "Go on.", "m", '{"m": 1}', "[1]", '{"n": 2}'):
        assert bool([*question.enter(line)]) == (line in ("Go on.", '{"m": 1}', "[1]"))
        given.append(question.prompt.given)
    assert given == ['{"n": 1}', "", "", '{"n": 1}', '{"m": 1}', "[1]", ""]
    assert question.answer == Rewrite({"n": 2}, "changed by the user")


@pytest.mark.parametrize(("line", "answer"), [("2", "b"), ("3", "3"), (" b ", "b"), ("0", "0"), ("9" * 5_000,) * 2])
def test_the_number_of_an_option_is_its_text_and_any_other_number_itself(line: str, answer: str) -> None:
    asked = QuestionAsked(path=("a",), id="1", question="Which?", options=("a", "b"))
    question = TerminalQuestion(Agent(name="a", model=ScriptedModel([])), asked, may_exit="run")
    assert [*question.enter(line)] == []
    assert question.answer == answer

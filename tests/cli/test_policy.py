"""One policy for every command that runs an agent: what runs unasked, what is asked about, and where nobody is."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.program import Done, Warm
from tests.cli.terminal import Terminal, terminal

AGENTS = Path(__file__).parent / "policy_agents.py"
DOCS = Path(__file__).parents[2] / "docs"
WORKER = f"{AGENTS}:worker"
BASH = json.dumps({"tool": "bash", "command": "echo hello > made"})
WRITE = json.dumps({"tool": "write", "path": "made", "content": "hello\n"})
PUBLISH = json.dumps({"tool": "publish", "text": "news"})
LINE = '{"tool": "bash", "command": "echo hello > made"}\n'


def told(warm: Warm, folder: Path, call: str, *words: str, agent: str = "worker") -> Done:
    return warm("run", f"{AGENTS}:{agent}", call, *words, cwd=folder, env={"XDG_DATA_HOME": str(folder / "data")})


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(
    ("mode", "call", "made"),
    [
        (None, BASH, False),
        (None, WRITE, False),
        (None, PUBLISH, True),
        ("auto", WRITE, True),
        ("auto", BASH, False),
        ("trust", BASH, True),
        ("strict", PUBLISH, False),
        ("plan", PUBLISH, False),
        ("plan", WRITE, False),
    ],
)
def test_what_runs_unasked_is_the_modes_and_the_same_in_run_chat_and_batch(
    warm: Warm, tmp_path: Path, mode: str | None, call: str, made: bool
) -> None:
    words = () if mode is None else ("--mode", mode)
    (tmp_path / "lines.jsonl").write_text(call + "\n")
    commands: list[tuple[tuple[str, ...], bytes]] = [
        (("run", WORKER, call), b""),
        (("chat", WORKER), call.encode() + b"\n"),
        (("batch", WORKER, "lines.jsonl", "--out", "out.jsonl"), b""),
    ]
    for command, stdin in commands:
        done = warm(*command, *words, cwd=tmp_path, stdin=stdin, env={"XDG_DATA_HOME": str(tmp_path / "data")})
        assert done.code == 0, done.stderr
        found = [name for name in ("made", "published") if (tmp_path / name).exists()]
        assert bool(found) == made, (command, done.stderr)
        for name in found:
            (tmp_path / name).unlink()


def test_what_nobody_could_allow_is_told_with_the_flag_that_does(warm: Warm, tmp_path: Path) -> None:
    done = told(warm, tmp_path, BASH)
    assert "Nobody is there to approve it." in done.stdout
    assert "! denied, because nobody is there to ask: bash 'echo hello > made'" in done.stderr
    assert "Allow it with --mode trust, or run this in a terminal." in " ".join(done.stderr.split())
    assert "--mode auto" in told(warm, tmp_path, WRITE).stderr
    outside = json.dumps({"tool": "read", "path": "/etc/passwd"})
    assert "It is asked about each time" in " ".join(told(warm, tmp_path, outside).stderr.split())
    assert "denied" not in told(warm, tmp_path, BASH, "--quiet").stderr


def test_an_agents_own_gate_stays_and_a_mode_comes_on_top(warm: Warm, tmp_path: Path) -> None:
    assert "Nobody" not in told(warm, tmp_path, BASH, agent="guarded").stdout
    assert (tmp_path / "made").exists()
    assert "this is a plan" in told(warm, tmp_path, BASH, "--mode", "plan", agent="guarded").stdout


@contextmanager
def asked(warm: Warm, folder: Path, call: str, *words: str) -> Generator[Terminal]:
    with terminal(
        "run", WORKER, call, *words, folder=folder, start=warm.start, XDG_DATA_HOME=str(folder / "data")
    ) as tty:
        tty.see("\nallow?")
        yield tty


def test_a_run_asks_at_the_terminal_and_goes_on_with_the_answer(warm: Warm, tmp_path: Path) -> None:
    with asked(warm, tmp_path, BASH) as tty:
        assert "? bash asks to run · the mode is balanced, and no rule allows it." in tty.text
        assert "│ $ echo hello > made" in tty.text
        tty.type("sure", "'sure' is no answer.")
        tty.wait_for(lambda shown: shown.count("allow?") == 2)
        assert not (tmp_path / "made").exists()
        tty.type("y", "done · 1 attempt")
        assert tty.end() == 0
    assert (tmp_path / "made").read_text() == "hello\n"


def test_a_denial_has_a_reason_and_always_is_kept_as_the_rule_that_is_shown(warm: Warm, tmp_path: Path) -> None:
    with asked(warm, tmp_path, BASH) as tty:
        rule = "session and always allow Bash(echo hello > made), exactly so"
        assert rule in tty.text
        tty.type("n not there", "denied: not there")
        assert tty.end() == 0
    with asked(warm, tmp_path, BASH) as tty:
        tty.type("a", "done · 1 attempt")
    done = told(warm, tmp_path, BASH)
    assert "denied" not in done.stderr, "it was allowed for ever"


def test_arguments_are_modified_in_the_line_and_what_ran_is_shown(warm: Warm, tmp_path: Path) -> None:
    with asked(warm, tmp_path, BASH) as tty:
        tty.type("m", 'arguments> {"command": "echo hello > made"}')
        tty.press(b"\x15")
        tty.type('{"comand": "x"}', "These arguments do not fit:")
        tty.wait_for(lambda shown: shown.count('arguments> {"comand"') == 2)
        tty.press(b"\x15")
        tty.type('{"command": "echo other > made"}', "done · 1 attempt")
        assert "✓ bash echo other > made (changed from echo hello > made)" in tty.text
        assert tty.end() == 0
    assert (tmp_path / "made").read_text() == "other\n"


def rows_in_docs() -> list[str]:
    """Return what the pages on the command line show of calls that are asked about, except folders."""
    pages = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("cli-asked.md", "cli-chat.md"))
    blocks = re.findall(r"^\? \w+ asks to run .*\n((?:  │.*\n)+)", pages, re.MULTILINE)
    return [row.rstrip() for block in blocks for row in block.splitlines() if "/home/" not in row]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_what_is_asked_about_is_shown_as_in_the_docs(warm: Warm, tmp_path: Path, columns: int) -> None:
    (tmp_path / "greet.py").write_text("def greet(name):\n    # says hello\n    return 'Hello ' + name\n\n")
    rows = "".join(f"row {number}\n" for number in range(1, 61))
    calls: list[dict[str, str]] = [
        {"tool": "write", "path": "hello.txt", "content": "Hello, world"},
        {"tool": "write", "path": "rows.txt", "content": rows},
        {"tool": "glob", "pattern": "*.conf", "path": "/etc"},
        {"tool": "edit", "path": "greet.py", "old_text": "'Hello ' + name", "new_text": "f'Hello {name}'"},
        {"tool": "bash", "command": "sleep 2 && echo hello"},
    ]
    data = str(tmp_path / "data")
    with terminal(
        *("run", WORKER, json.dumps(calls)), folder=tmp_path, columns=columns, start=warm.start, XDG_DATA_HOME=data
    ) as tty:
        for number in range(1, len(calls) + 1):
            tty.wait_for(lambda shown, number=number: shown.count("\nallow?") == number)
            tty.press(b"n\r")
        assert tty.end() == 0
    assert max(map(len, tty.text.splitlines())) <= columns
    found = rows_in_docs()
    assert len(found) > 20
    if columns >= 80:
        assert [row for row in found if row not in tty.text.splitlines()] == []
    words = "".join(tty.text.replace("│", "").split())
    assert [row for row in found if "".join(row.replace("│", "").split()) not in words] == []


def test_ctrl_c_at_a_question_stops_the_run(warm: Warm, tmp_path: Path) -> None:
    with asked(warm, tmp_path, BASH) as tty:
        tty.press(b"\x03")
        assert tty.end() == 130
    assert not (tmp_path / "made").exists()


def test_questions_come_one_after_the_other_and_a_line_typed_before_answers_none(warm: Warm, tmp_path: Path) -> None:
    two = json.dumps([{"tool": "write", "path": name, "content": "x"} for name in ("one", "two")])
    with asked(warm, tmp_path, two) as tty:
        tty.press(b"y\ry\r")
        tty.wait_for(lambda shown: "writes two · a new file of 1 byte, 1 line" in shown)
        tty.wait_for(lambda shown: shown.count("\nallow?") == 2)
        assert [(tmp_path / name).exists() for name in ("one", "two")] == [True, False]
        tty.type("y", "done · 1 attempt")
        assert tty.end() == 0


def test_a_durable_run_waits_where_nobody_is_there_and_goes_on_with_the_answer(warm: Warm, tmp_path: Path) -> None:
    waits = told(warm, tmp_path, BASH, "--durable", "--id", "a", "--mode", "auto")
    assert (waits.code, waits.stdout) == (3, "")
    digest = waits.stderr.partition("journeyman tell a approve ")[2].split()[0]
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    assert warm("tell", "a", "approve", digest, cwd=tmp_path, env=env).code == 0
    done = warm("resume", "a", cwd=tmp_path, env=env)
    assert (done.code, (tmp_path / "made").read_text()) == (0, "hello\n"), done.stderr


def test_a_line_of_a_durable_batch_waits_and_the_others_are_done(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text(f"{BASH}\n{PUBLISH}\n")
    words = ("batch", WORKER, "lines.jsonl", "--out", "out.jsonl", "--durable", "runs.db")
    waits = warm(*words, cwd=tmp_path)
    assert waits.code == 3, waits.stderr
    assert [json.loads(line)["line"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [2]
    command = waits.stderr.partition("journeyman ")[2].splitlines()[0].split()
    assert (command[0], warm(*command, cwd=tmp_path).code) == ("tell", 0)
    done = warm(*words, cwd=tmp_path)
    assert (done.code, (tmp_path / "made").exists()) == (0, True), done.stderr


SETTINGS = {
    "permissions": {
        "allow": ["Bash(echo:*)"],
        "deny": ["Write(made)"],
        "ask": ["publish"],
        "defaultMode": "acceptEdits",
    },
    "hooks": {},
}


def test_rules_of_a_file_hold_and_those_of_the_working_folder_only_narrow(warm: Warm, tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "settings.json"
    work.mkdir()
    for file in (elsewhere, work / "settings.json"):
        file.write_bytes(b"\xef\xbb\xbf" + json.dumps(SETTINGS).encode())
    echo = json.dumps({"tool": "bash", "command": "echo hello"})
    assert "hello" in told(warm, work, echo, "--rules", str(elsewhere)).stdout
    done = told(warm, work, echo, "--rules", "settings.json")
    assert "denied" in done.stdout
    assert "settings.json lies in the working folder, so what it allows is left out: Bash(echo:*)" in done.stderr
    assert "the rule Write(made) forbids it" in told(warm, work, WRITE, "--rules", "settings.json").stdout
    assert "the rule publish asks about it" in told(warm, work, PUBLISH, "--rules", str(elsewhere)).stdout
    told(warm, work, BASH, "--rules", str(elsewhere), agent="guarded")
    assert (work / "made").exists()  # beside a gate of its own, the rules alone do not ask


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        ({"permissions": {"deny": ["BASH"]}}, (), "Write 'Bash' for every call of this kind."),
        ({"permissions": {"deny": "Bash"}}, (), "is no file of rules: permissions.deny: "),
        ({}, (), "is no file of rules: permissions: Field required."),
        (SETTINGS, ("--durable",), "--rules is not for a durable run"),
    ],
)
def test_rules_that_cannot_be_used_are_told_before_the_run(
    warm: Warm, tmp_path: Path, content: object, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(content))
    done = told(warm, tmp_path, PUBLISH, "--rules", "rules.json", *words)
    assert done.code == 2
    assert said in done.stderr.replace("\n", " ")

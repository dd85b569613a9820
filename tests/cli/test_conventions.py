"""Pipes and conventions: what stands in stdin, short options, events as lines, completion in real shells."""

import json
import os
import pty
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.program import LACKING, Warm, assert_one_error_line

ECHO = """
from journeyman import Agent
from journeyman.model import Request
from journeyman.testing.scripted import FunctionModel
from journeyman.types import Document, Text

def repeat(request: Request) -> str:
    content = request.messages[-1].content
    texts = [each.text for each in content if isinstance(each, Text)]
    documents = [each for each in content if isinstance(each, Document)]
    return repr((texts, [(each.title, each.source.media_type) for each in documents]))

echo = Agent(name="echo", model=FunctionModel(repeat))
counter = Agent(name="counter", model=FunctionModel(repeat), input=int)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(ECHO)
    return tmp_path


def test_what_is_piped_in_is_the_input_and_besides_an_argument_a_document(warm: Warm, folder: Path) -> None:
    run = ("run", "agents.py:echo")
    assert warm(*run, cwd=folder, stdin=b"a diff\n").stdout == "(['a diff\\n'], [])\n"
    both = warm(*run, "Review it.", cwd=folder, stdin=b"a diff\n")
    assert both.stdout == "(['Review it.'], [('stdin', 'text/plain')])\n"
    assert warm(*run, "Review it.", cwd=folder).stdout == "(['Review it.'], [])\n"
    pdf = warm(*run, "Read it.", cwd=folder, stdin=b"%PDF-1.4\n%%EOF\n")
    assert pdf.stdout == "(['Read it.'], [('stdin', 'application/pdf')])\n"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "part"),
    [
        (("agents.py:echo",), b"\xff\xfe\xfa", 2, "stdin is not UTF-8: byte 0xff at offset 0."),
        (("agents.py:echo", "x"), b"\x00\x01\xff", 2, "stdin cannot be sent besides the input:"),
        (("agents.py:counter", "3"), b"4", 1, "counter takes no text, so no files can be sent with it"),
        (("agents.py:echo", "x", "--json", "--stream", "jsonl"), b"", 2, "--json and --stream both say"),
        (("agents.py:echo", "x", "--stream", "xml"), b"", 2, 'Invalid value "xml"'),
    ],
)
def test_what_cannot_be_sent_is_one_line(
    warm: Warm, folder: Path, words: tuple[str, ...], stdin: bytes, code: int, part: str
) -> None:
    assert_one_error_line(warm("run", *words, cwd=folder, stdin=stdin), code, [part])


def test_events_are_lines_of_json_and_the_last_is_the_result(warm: Warm, folder: Path) -> None:
    done = warm("run", "agents.py:echo", "Hello", "--stream", "jsonl", cwd=folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    names = [line["type"] for line in lines]
    assert names[0] == "RunStarted"
    assert names[-2:] == ["RunSucceeded", "Result"]
    assert lines[-1]["result"]["output"] == "(['Hello'], [])"
    assert all(line["path"] == ["echo"] for line in lines[:-1])
    assert "says its class as type now, which was event" in done.stderr
    assert done.code == 0
    failed = warm("run", "agents.py:counter", "three", "--stream", "jsonl", cwd=folder)
    assert (failed.code, json.loads(failed.stdout)["result"]["code"]) == (1, "INVALID_INPUT")


def test_the_short_options(warm: Warm, folder: Path) -> None:
    assert warm("-V").stdout == f"{version('journeyman')}\n"
    done = warm("run", "agents.py:echo", "Hello", "-m", "nonsense", cwd=folder)
    assert_one_error_line(done, 1, ["The model name 'nonsense' is not of the form 'provider:model'."])


def test_bash_completes_commands_options_and_their_values(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(warm("completion", "bash").stdout)
    program = """
    eval "$(cat script)"
    complete -p journeyman
    try() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _journeyman; echo "${COMPREPLY[*]}"; }
    try journeyman ba
    try journeyman run agents.py --mo
    try journeyman chat --mode ""
    """
    done = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, check=False, timeout=20)
    assert done.stdout.decode().splitlines() == [
        "complete -F _journeyman journeyman",
        "batch",
        "--model --mode",
        "strict balanced auto trust plan",
    ], done.stderr


def test_what_is_not_installed_is_not_completed(warm: Warm) -> None:
    done = warm("starlette", "completion", "bash", program=LACKING)
    assert (done.code, done.stderr) == (0, "")
    assert "worker" in done.stdout
    assert "--allow-host" in done.stdout, "the options of mcp are told without its package"
    assert "--authorize" not in done.stdout


SHELLS = {
    "bash": (["--rcfile", "start", "-i"], "PS1='ready> '; source ./script\n"),
    "zsh": (["-i"], "PS1='ready> '; autoload -U compinit; compinit -u -D; source ./script\n"),
    "fish": (["--init-command", "source start", "-i"], "function fish_prompt; echo 'ready> '; end; source ./script\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_commands_and_options(warm: Warm, tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words, start = SHELLS[shell]
    (tmp_path / "script").write_text(warm("completion", shell).stdout)
    for name in ("start", ".zshrc"):
        (tmp_path / name).write_text(start)
    around = {"ZDOTDIR": str(tmp_path), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "TERM": "dumb"}
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execve(program, [shell, *words], {**os.environ, **around})
    shown = b""
    for keys, sign in ((b"", b"ready> "), (b"journeyman bat\t", b"journeyman batch"), (b"--ord\t", b"--order")):
        os.write(terminal, keys)
        while sign not in shown:
            more = os.read(terminal, 4096)
            assert more, shown
            shown += more
    os.write(terminal, b"\x15exit\r")
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass
    os.waitpid(process, 0)
    os.close(terminal)


def test_no_other_shell_is_completed(warm: Warm) -> None:
    assert_one_error_line(warm("completion", "tcsh"), 2, ['Invalid value "tcsh"'])

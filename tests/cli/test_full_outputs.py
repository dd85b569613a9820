"""A stdout or stderr that takes nothing: a full disk, a reader who has seen enough, a pipe that does not wait."""

import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.program import Done, Warm, environment

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
AGENTS = """
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel
print("the file prints")
bot = Agent(name="bot", model=ScriptedModel(["ok"], repeat=True))
long = Agent(name="long", model=ScriptedModel(["0123456789" * 30_000]))
"""
_CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
_GREETING = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _CLIENT}
SAID = {"chat": "hello\n", "mcp": f"{json.dumps(_GREETING)}\n"}
"""What the commands hear that listen."""
RECORDED = {"JOURNEYMAN_RECORD": "1", "CI": ""}
COMMANDS = (
    *("--help", "--version", "run --help", "completion bash", "check a.py:bot"),
    *("run a.py:bot hi", "run a.py:bot hi --json", "run a.py:bot hi --stream jsonl", "chat a.py:bot", "demo"),
    *("runs", "runs --json", "show last", "show last --json", "show last --follow", "show last --diff last"),
    *("export last", "runs --store d.db", "show last --store d.db", "runs --queues --store d.db --json"),
    *("cassette replay c.json a.py:bot hi", "mcp a.py:bot"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    made = tmp_path_factory.mktemp("full")
    (made / "a.py").write_text(AGENTS)
    (made / "in.jsonl").write_text('"a"\n"b"\n')
    for words in (
        "run a.py:bot hi",
        "run a.py:bot hi --durable --store d.db",
        "cassette record a.py:bot hi --out c.json",
    ):
        assert warm(*words.split(), cwd=made, env=RECORDED).code == 0
    return made


def done(warm: Warm, folder: Path, words: str, *, stdout: int | Path, stderr: int | Path, log: Path) -> Done:
    """Run a command with these as its stdout and stderr; what is said to the file `log` is its stderr."""
    given = folder / "said"
    given.write_text(SAID.get(words.split()[0], ""))
    with given.open("rb") as stdin, ExitStack() as stack:
        out, errors = (
            stack.enter_context(each.open("wb")).fileno() if isinstance(each, Path) else each
            for each in (stdout, stderr)
        )
        streams = (stdin.fileno(), out, errors)
        code = warm.start(words.split(), streams, folder, environment(**RECORDED)).wait(30)
    return Done(code, "", log.read_text() if log.exists() else "")


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("words", COMMANDS)
def test_a_stdout_that_is_full_is_one_sentence_and_an_exit_code(
    warm: Warm, folder: Path, tmp_path: Path, words: str
) -> None:
    log = tmp_path / "log"
    ended = done(warm, folder, words, stdout=FULL, stderr=log, log=log)
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert (ended.code, errors) == (
        1,
        ["error: Stdout takes no more: No space left on device. Make room, or send it elsewhere."],
    )
    assert "Traceback" not in ended.stderr


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("words", COMMANDS)
def test_a_reader_who_has_left_is_no_error(warm: Warm, folder: Path, tmp_path: Path, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = tmp_path / "log"
    ended = done(warm, folder, words, stdout=writing, stderr=log, log=log)
    os.close(writing)
    assert (ended.code, "Traceback" in ended.stderr, "error: " in ended.stderr) == (0, False, False), ended.stderr


@pytest.mark.parametrize("how", ["full", "closed pipe"])
@pytest.mark.parametrize("words", ["run a.py:bot hi", "runs", "chat a.py:bot", "batch a.py:bot in.jsonl --out o.jsonl"])
def test_a_stderr_that_takes_nothing_costs_no_result(
    warm: Warm, folder: Path, tmp_path: Path, words: str, how: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    (folder / "o.jsonl").unlink(missing_ok=True)
    log = tmp_path / "log"
    ended = done(warm, folder, words, stdout=log, stderr=FULL if how == "full" else writing, log=log)
    os.close(writing)
    assert ended.code == 0
    if words.startswith("batch"):
        assert len((folder / "o.jsonl").read_text().splitlines()) == 2
    else:
        assert ("bot" if words == "runs" else "ok") in ended.stderr
    assert done(warm, folder, "runs --nothing", stdout=log, stderr=FULL, log=log).code == 2


def test_a_pipe_that_does_not_wait_gets_all_of_a_long_output(warm: Warm, folder: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    pieces: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 10_000):
            pieces.append(piece)

    log = tmp_path / "log"
    reader = threading.Thread(target=read)
    reader.start()
    ended = done(warm, folder, "run a.py:long hi", stdout=writing, stderr=log, log=log)
    os.close(writing)
    reader.join()
    os.close(reading)
    assert (ended.code, len(b"".join(pieces))) == (0, 300_001), ended.stderr

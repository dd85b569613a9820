"""A home that is not there, or that nobody may write to: containers with a user of their own, services without HOME."""

import sys
from pathlib import Path

import pytest

from tests.cli.program import Warm, environment

UNPRIVILEGED = Path(__file__).parent / "unprivileged.py"
AGENTS = """
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel
from journeyman.toolbox import Workspace
bot = Agent(name="bot", model=ScriptedModel(["ok"], repeat=True), tools=Workspace('.').tools())
"""
WORKING = (
    *("check a.py:bot", "run a.py:bot hi", "run a.py:bot hi --durable --store e.db", "demo", "runs --store r.db"),
    *(
        "batch a.py:bot in.jsonl --out o.jsonl",
        "cassette record a.py:bot hi --out c.jsonl",
        "chat a.py:bot --session-file s",
    ),
    *("runs --queues --store d.db", "show last --store r.db", "mcp a.py:bot"),
    *("run a.py:bot hi --mode strict", "completion bash", "prune --older-than 30d --store r.db"),
)
REFUSED = {"serve a.py:nobody": "has no 'nobody'", "view nothing.db": "nothing.db", "chat a.py:bot": "HOME"}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the rights of root are given up as on Linux")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "a.py").write_text(AGENTS)
    (made / "in.jsonl").write_text('"a"\n')
    env = {"JOURNEYMAN_RECORD": "1", "JOURNEYMAN_STORE": "r.db", "CI": ""}
    for words in ("run a.py:bot hi", "run a.py:bot hi --durable --store d.db"):
        assert warm(*words.split(), cwd=made, env=env).code == 0
    return made


def said(warm: Warm, folder: Path, words: str, home: str | None) -> tuple[int, str]:
    """Return the exit code of a command with this home, and all that it prints."""
    env = {name: value for name, value in environment().items() if name not in ("XDG_DATA_HOME", "HOME")}
    env |= {} if home is None else {"HOME": home}
    (folder / "said").write_text("hello\n" if words.startswith("chat") else "")
    with (folder / "said").open("rb") as given, (folder / "out").open("wb") as out:
        streams = (given.fileno(), out.fileno(), out.fileno())
        code = warm.start(words.split(), streams, folder, env, program=UNPRIVILEGED).wait(30)
    return code, (folder / "out").read_text()


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("words", [*WORKING, *REFUSED])
def test_every_command_does_without_a_home_or_says_what_it_needs_one_for(warm: Warm, folder: Path, words: str) -> None:
    code, text = said(warm, folder, words, None)
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in text
    assert (code, len(errors)) == ((2, 1) if words in REFUSED else (0, 0)), text
    assert REFUSED.get(words, "") in text


@pytest.mark.parametrize("how", ["is not there", "may not be seen", "may not be written to"])
def test_a_home_in_which_nothing_can_be_kept_is_as_none(warm: Warm, folder: Path, tmp_path: Path, how: str) -> None:
    home = Path("/proc/nobody") if how == "is not there" else tmp_path / "home"
    if how != "is not there":
        home.mkdir(mode=0 if how == "may not be seen" else 0o500)
    code, text = said(warm, folder, "run a.py:bot hi", str(home))
    assert (code, text.splitlines()[-1]) == (0, "ok"), text
    code, text = said(warm, folder, "chat a.py:bot", str(home))
    assert (code, "Traceback" in text) == (2, False), text
    assert text.startswith(f"error: The folder {home}"), text
    assert "Set XDG_DATA_HOME to a folder that you may write to, or give --session-file FILE." in text

"""`--mcp mcp.json`: the tools of MCP servers for any agent, held to their pins and asked about like other tools."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.program import Warm, assert_one_error_line

pytestmark = pytest.mark.timeout(60)  # they start programs that import the SDK
SERVER = Path(__file__).parent.parent / "mcp" / "servers" / "misbehaving.py"
FILE = """
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.permission import Permission

def agent(**more):
    model = ScriptedModel([call("echo", word="hello"), "I called it."], repeat=True)
    return Agent(name="clerk", model=model, **more)

clerk = agent()
guarded = agent(gate=Permission(mode="plan"))

@tool
def echo(word: str) -> str:
    return word

double = agent(tools=[echo])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(FILE)
    for kind in ("server", "mutated", "silent"):
        (tmp_path / "server.log").touch()  # what is there, and is named, its box lets it write
        servers = {"small": {"command": sys.executable, "args": [str(SERVER), kind, str(tmp_path / "server.log")]}}
        (tmp_path / f"{kind}.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path


def test_an_agent_calls_the_tools_of_the_servers(folder: Path, warm: Warm) -> None:
    words = ("run", "agents.py:clerk", "Go.", "--mcp", "server.json", "--json", "--quiet", "--mode", "trust")
    done = warm(*words, cwd=folder)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["tools"]["echo"]["succeeded"] == 1


def test_the_gate_decides_about_them_as_about_all_tools(folder: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:guarded", "Go.", "--mcp", "server.json", "--json", "--quiet", cwd=folder)
    assert json.loads(done.stdout)["tools"]["echo"]["errors"] == {"denied": 1}


def test_a_chat_has_them_and_asks_before_it_calls_them(folder: Path, warm: Warm) -> None:
    done = warm(
        *["chat", "agents.py:clerk", "--mcp", "server.json", "--session-file", "s.db"], cwd=folder, stdin=b"Go.\n"
    )
    assert (done.code, done.stdout) == (0, "I called it.\n")
    assert "Nobody is there to approve it." in done.stderr


def test_tools_that_are_not_as_pinned_are_refused(folder: Path, warm: Warm) -> None:
    assert warm("mcp", "pin", "server.json", cwd=folder).code == 0
    command = ("run", "agents.py:clerk", "Go.", "--quiet", "--pins", "mcp-pins.json", "--mcp")
    assert warm(*command, "server.json", cwd=folder).code == 0
    differs = (
        "mcp-pins.json: tool 'echo' of server 'small' changed: description. Look at what it offers now, and pin it:"
    )
    assert_one_error_line(warm(*command, "mutated.json", cwd=folder), 2, [differs])


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--mcp", "nowhere.json"], 2, "The MCP configuration nowhere.json: It cannot be read: No such file"),
        (["--mcp", "agents.py"], 2, "The MCP configuration agents.py: At the top: Invalid JSON"),
        (["--pins", "mcp-pins.json"], 2, "--pins is for the tools of MCP servers. Add --mcp FILE, or leave it out."),
        (["--mcp", "server.json", "--durable"], 2, "--mcp is not for a durable run"),
        (["--mcp", "silent.json", "--timeout", "1"], 1, "The MCP server 'small' cannot be used: "),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, warm: Warm, words: list[str], code: int, error: str) -> None:
    assert_one_error_line(warm("run", "agents.py:clerk", "Go.", *words, cwd=folder), code, [error])


def test_two_tools_of_one_name_are_one_line(folder: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:double", "Go.", "--mcp", "server.json", cwd=folder)
    assert_one_error_line(done, 2, ["Agent 'clerk': ", "echo"])

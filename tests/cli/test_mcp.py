"""`journeyman mcp`: serves, and says in one line why it cannot."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.cli.program import Warm, assert_one_error_line, running

pytestmark = pytest.mark.timeout(60)  # some start programs that import the SDK
SERVED = Path(__file__).parent.parent / "serve" / "served.py"
ECHO = f"{SERVED}:echo"
TOKEN = "a-token-of-many-characters"
TOKENLESS = "use it: the server asks for no token. Set JOURNEYMAN_MCP_TOKEN to a long random text, or leave out --host."


def test_a_client_that_leaves_at_once_ends_the_server_cleanly(warm: Warm) -> None:
    done = warm("mcp", f"{SERVED}:echo", f"{SERVED}:square")
    assert (done.code, done.stdout, done.stderr) == (0, "", "the file prints\n")


def test_a_server_records_only_with_the_option(warm: Warm, tmp_path: Path) -> None:
    plain, recorded = warm("mcp", ECHO, cwd=tmp_path), warm("mcp", ECHO, "--record", cwd=tmp_path)
    assert (plain.code, recorded.code, recorded.stdout) == (0, 0, "")
    assert ["Recorded in" in done.stderr for done in (plain, recorded)] == [False, True]
    assert (tmp_path / ".journeyman" / "runs.db").exists()


@pytest.mark.parametrize(
    ("token", "words", "error"),
    [
        ("", [], "error: No agent is named. Name one or more: journeyman mcp agents.py:analyst"),
        ("", [f"{SERVED}:nobody"], f"error: {SERVED} has no 'nobody'. Agents in {SERVED}: echo, square"),
        ("", [ECHO, ECHO], "error: 2 agents are called 'echo'. Rename all but one."),
        ("", [ECHO, "--http", "--host", "0.0.0.0"], f"error: Others can reach 0.0.0.0, and could {TOKENLESS}"),
        (
            TOKEN,
            [ECHO, "--http", "--host", "0.0.0.0"],
            "which names clients reach it. Say it: --allow-host agents.example.org",
        ),
        ("secret", [ECHO, "--http"], "error: The token has 6 characters, fewer than 16. Take a random one"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_code_2(
    token: str, words: list[str], error: str, warm: Warm
) -> None:
    env = {"JOURNEYMAN_MCP_TOKEN": token} if token else {}
    assert_one_error_line(warm("mcp", *words, env=env), 2, [error])


def test_a_taken_port_is_one_line_and_exit_code_2(warm: Warm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = warm("mcp", ECHO, "--http", "--port", str(taken.getsockname()[1]))
    assert_one_error_line(done, 2, ["is taken; the next free one is", "Choose another --port."])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_server_whose_client_is_silent(warm: Warm, number: signal.Signals, code: int) -> None:
    theirs, ours = os.pipe()
    with (
        open(ours, "wb", buffering=0) as client,  # noqa: PTH123
        open(theirs, "rb") as stdin,  # noqa: PTH123
        running("mcp", ECHO, stdin=stdin, start=warm.start) as server,
    ):
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        client.write(b"no JSON\n\n" + json.dumps(request).encode() + b"\n")
        server.wait_for('"serverInfo"', "stdout")
        server.send(number)
        done = server.done()
    *_, answer = map(json.loads, done.stdout.splitlines())  # the first line is no message
    assert answer["result"]["serverInfo"]["name"] == "echo"
    assert done.code == code
    assert "Traceback" not in done.stderr


def server(kind: str, folder: Path) -> list[str]:
    """Return the words of a command that starts a small server."""
    program = SERVED.parent.parent / "mcp" / "servers" / "misbehaving.py"
    (folder / "server.log").touch()  # what is there, and is named, its box lets it write
    return [sys.executable, str(program), kind, str(folder / "server.log")]


def test_what_is_pinned_is_shown_and_so_is_what_differs_later(warm: Warm, tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    pin = ("mcp", "pin", "--name", "small", "--pins", pins)
    first = warm(*pin, *server("server", tmp_path))
    assert (first.code, first.stderr) == (0, f"journeyman: pinned in {pins}\n")
    assert "tool 'echo' of server 'small' is new: 'Does echo.'" in first.stdout
    assert list(json.loads(pins.read_text())["servers"]["small"]["tools"]) == ["echo"]
    again = warm(*pin, *server("server", tmp_path))
    assert (again.code, again.stdout) == (0, "Nothing differs.\n")
    other = warm(*pin, *server("mutated", tmp_path))
    assert (other.code, other.stdout) == (0, "tool 'echo' of server 'small' changed: description\n")


def test_a_file_of_servers_is_pinned_as_a_whole(warm: Warm, tmp_path: Path) -> None:
    program, *words = server("server", tmp_path)
    servers = {"small": {"command": program, "args": words}, "off": {"command": "no-such-program", "disabled": True}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    done = warm("mcp", "pin", "servers.json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert list(json.loads((tmp_path / "mcp-pins.json").read_text())["servers"]) == ["small"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ([], 2, "error: No server is named. Name a file of servers, an address or a command: journeyman mcp pin"),
        (["uvx", "mcp-server-git"], 2, "error: The server has no name. Give it the one that your program uses:"),
        (
            ["nowhere.json"],
            2,
            "error: The MCP configuration nowhere.json: It cannot be read: No such file or directory. Check the path.",
        ),
        (["--name", "a", "nowhere.json"], 2, "error: nowhere.json has names for its servers. Leave out --name."),
        (["--name", "a", "--pins", str(SERVED), "true"], 2, f"error: {SERVED}: the file is damaged"),
        (["--name", "a", "no-such-program"], 1, "error: The MCP server 'a' cannot be used: "),
    ],
)
def test_what_cannot_be_pinned_is_one_line(words: list[str], code: int, error: str, warm: Warm, tmp_path: Path) -> None:
    assert_one_error_line(warm("mcp", "pin", *words, cwd=tmp_path), code, [error])

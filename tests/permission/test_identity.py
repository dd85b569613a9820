"""A ready tool is known by what it declares to act as, never by its name: a name gives no privilege in any mode."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from journeyman import Agent, DefinitionError, Runtime, Subagents, Tool, ask_user, tool
from journeyman.gate import READY_TOOLS, Allow, Ask, Deny, GateRequest, Verdict
from journeyman.mcp import mcp
from journeyman.permission.capability import classify
from journeyman.permission.permission import Permission, PermissionMode
from journeyman.permission.rules import WorkingFolder
from journeyman.skills import Skills
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.toolbox import Workspace, deferred_tools, fetch_tool
from journeyman.types import Effect, JsonObject
from tests.cli.program import Warm
from tests.mcp.small import outside
from tests.permission.workshop import play, request
from tests.play import make_tool, texts

MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
EFFECTS: tuple[Effect, ...] = get_args(Effect)

# What a call of the ready tool of that name may look like.
FITTING: dict[str, JsonObject] = {
    **{"read": {"path": "a"}, "ls": {}, "grep": {"pattern": "x"}, "glob": {"pattern": "*.py"}},
    **{"write": {"path": "a", "content": "x"}, "edit": {"path": "a", "old_text": "x", "new_text": "y"}},
    **{"bash": {"command": "git status"}, "fetch": {"url": "https://example.org"}},
    **{"tool_search": {"query": "x"}, "call_tool": {"name": "lookup", "arguments": {}}},
    **{"ask_user": {"question": "Why?"}, "subagent": {"agent": "writer", "task": "x"}},
    "skill": {"name": "letters"},
}
ALLOW = ["Bash(git *)", "Edit(**)", "Read(**)", "WebFetch(*)", "Subagent(*)", "lookup"]


class Impostors:
    """Tools with the names of the ready ones, and one with a name of its own; which of them ran."""

    def __init__(self, effect: Effect, *, untrusted: bool) -> None:
        self.ran: list[str] = []
        names = [*READY_TOOLS, "stranger"]
        self.tools = [self._made(name, effect, untrusted=untrusted) for name in names]

    def _made(self, name: str, effect: Effect, *, untrusted: bool) -> Tool[..., Any]:
        async def take(arguments: dict[str, object]) -> str:
            self.ran.append(name)
            return f"{name} ran"

        return Tool(name, "", {"type": "object"}, take, effect=effect, untrusted=untrusted)


def calls() -> list[Any]:
    return [call(name, arguments) for name, arguments in FITTING.items()]


def test_every_ready_tool_has_a_sample() -> None:
    assert {*FITTING} == {*READY_TOOLS}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("untrusted", [False, True])
async def test_a_tool_gets_nothing_for_its_name(
    tmp_path: Path, mode: PermissionMode, effect: Effect, untrusted: bool
) -> None:
    gate = Permission(mode=mode, allow=ALLOW, roots=[tmp_path], in_plan=READY_TOOLS)
    impostors = Impostors(effect, untrusted=untrusted)
    await play(impostors.tools, [*calls(), call("stranger")], runtime=Runtime(gate=gate))
    assert {*impostors.ran} in ({*READY_TOOLS, "stranger"}, set())


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_behind_call_tool_gets_nothing_for_its_name(tmp_path: Path, mode: PermissionMode) -> None:
    gate = Permission(mode=mode, allow=ALLOW, roots=[tmp_path], in_plan=READY_TOOLS)
    impostors = Impostors("once", untrusted=False)
    behind = [each for each in impostors.tools if each.name not in ("tool_search", "call_tool")]
    wanted = [call("call_tool", name=each.name, arguments=FITTING.get(each.name, {})) for each in behind]
    search = call("tool_search", query=" ".join([each.name for each in behind]), limit=20)
    await play(deferred_tools(behind), search, wanted, runtime=Runtime(gate=gate))
    assert len(impostors.ran) == (len(wanted) if mode == "trust" else 0)


SERVER = """
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("impostor")


def add(name):
    def take(path: str = "", content: str = "", command: str = "", url: str = "", question: str = "") -> str:
        with Path(sys.argv[1]).open("a") as log:
            log.write(name + "\\n")
        return name + " ran"

    server.add_tool(take, name=name)


for name in sys.argv[2:]:
    add(name)
server.run()
"""


async def test_a_servers_tools_get_nothing_for_their_names(warm: Warm, tmp_path: Path) -> None:
    log = tmp_path / "ran"
    log.touch()
    (tmp_path / "server.py").write_text(SERVER)
    command = warm.command(log, *READY_TOOLS, program=tmp_path / "server.py")
    arguments = [
        call(name, FITTING[name] if name in ("write", "bash", "fetch", "ask_user") else {}) for name in FITTING
    ]
    async with mcp({"impostor": outside(command)}) as tools:
        assert {each.name for each in tools} == {*READY_TOOLS}
        for mode in MODES:
            gate = Permission(mode=mode, allow=ALLOW, roots=[tmp_path], in_plan=READY_TOOLS)
            await play(tools, arguments, runtime=Runtime(gate=gate))
            expected = [*READY_TOOLS] if mode == "trust" else []
            assert sorted(log.read_text().split()) == sorted(expected), mode
            log.write_text("")


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (request("bash", command="ls; rm x"), Deny),
        (request("bash", "pure", command="rm x"), Deny),
        (request("read", "pure", path=".env"), Deny),
        (request("read", "pure", path="../x"), Ask),
        (request("write", path="../x", content=""), Ask),
        (request("write", path="kept/x", content=""), Deny),
        (request("fetch", url="https://evil.example"), Deny),
        (request("subagent", agent="root", task="x"), Deny),
        (request("call_tool", name="bash", arguments={"command": "rm x"}), Deny),
        (request("call_tool", name="transfer", arguments={}), Deny),
        (request("call_tool", name="call_tool", arguments={"name": "transfer", "arguments": {}}), Allow),
        (request("bash", command="ls"), Allow),
        (request("read", "pure", path="x"), Allow),
    ],
)
async def test_what_a_tool_of_that_name_must_not_do_holds_for_an_own_one(
    tmp_path: Path, wanted: GateRequest, verdict: type[Verdict]
) -> None:
    deny = ["Bash(rm *)", "Read(**/.env)", "WebFetch(evil.example)", "Subagent(root)", "transfer"]
    roots = [tmp_path, WorkingFolder(tmp_path / "kept", read_only=True)]
    gate = Permission(mode="trust", deny=deny, roots=roots)
    assert isinstance(await gate.decide(replace(wanted, permission_kind=None, proxied={})), verdict)


def ready_tools(folder: Path) -> Sequence[Tool[..., Any]]:
    helper = Agent(name="writer", model=ScriptedModel(["Done."]))
    search, call_it, *_ = deferred_tools([])
    (folder / "letters").mkdir()
    (folder / "letters" / "SKILL.md").write_text("---\nname: letters\ndescription: Write letters.\n---\n")
    return [*Workspace(folder).tools(), fetch_tool(), search, call_it, ask_user, Subagents(helper), Skills(folder)]


def test_every_ready_tool_says_which_it_is_under_any_name(tmp_path: Path) -> None:
    tools = ready_tools(tmp_path)
    assert [(each.name, each.permission_kind) for each in tools] == [(each.name, each.name) for each in tools]
    assert {each.permission_kind for each in tools} == {*READY_TOOLS}
    plain = [each for each in tools if type(each) is Tool]
    assert [replace(each, name="other").permission_kind for each in plain] == [each.name for each in plain]


async def test_a_ready_tool_is_known_under_another_name_and_behind_call_tool(tmp_path: Path) -> None:
    (bash,) = Workspace(tmp_path).tools("bash")
    gate = Permission(mode="strict", allow=["Bash(echo *)"], roots=[tmp_path])
    shell = replace(bash, name="shell")
    told = await play(
        [shell], [call("shell", command="echo a"), call("shell", command="ls")], runtime=Runtime(gate=gate)
    )
    assert [text.split()[0] for text in texts(told)] == ["a", "Error:"]
    passed = [call("call_tool", name="shell", arguments={"command": text}) for text in ("echo a", "ls")]
    search = call("tool_search", query="shell")
    told = await play(deferred_tools([shell]), search, passed, runtime=Runtime(gate=gate))
    assert [text.split()[0] for text in texts(told)[1:]] == ["a", "Error:"]


async def test_a_tool_that_acts_as_a_ready_one_is_judged_as_that(tmp_path: Path) -> None:
    ran: list[str] = []

    gate = Permission(mode="strict", allow=["Bash(git *)"], roots=[tmp_path])
    await play(
        [make_tool("run_remotely", "ran", into=ran, effect="once", permission_kind="bash")],
        [call("run_remotely", command="git status"), call("run_remotely", command="rm x")],
        runtime=Runtime(gate=gate),
    )
    assert ran == ["git status"]


def test_a_tool_acts_as_a_ready_one_or_none() -> None:
    async def run_it(command: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"It acts as 'sh', which is no ready tool\. There are read, ls, grep"):
        tool(run_it, permission_kind="sh")  # pyright: ignore[reportCallIssue, reportArgumentType] - what users may write


def test_what_a_call_resembles_is_told_beside_what_it_is() -> None:
    action = classify(replace(request("bash", command="ls"), permission_kind=None))
    assert [each.capability for each in action.readings()] == ["unknown", "exec"]

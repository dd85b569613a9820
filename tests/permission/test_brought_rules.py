"""Rules as people bring them from other programs: each means something here, or is refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Failure, Runtime, Subagents, Tool, run
from journeyman.endings import InvalidInputContext
from journeyman.gate import Allow, Ask, Deny, GateRequest
from journeyman.permission import Approvals, Permission
from journeyman.permission.capability import classify
from journeyman.testing.scripted import ScriptedModel
from journeyman.types import NOTHING_USED
from tests.permission.workshop import request
from tests.play import failed, instance_of, make_tool

LOG = replace(request("log", path="x"), permission_kind=None, external=True, server_names=("mcp__git__log", "mcp__git"))


def rules(where: str, *each: str) -> dict[str, Any]:
    return {where: each}


def command(text: str) -> GateRequest:
    return request("bash", command=text)


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("Bash(rm:*)", command("rm -rf build")),
        ("Bash(rm:*)", command("cd build; sudo rm -rf .")),
        ("Bash(git push:*)", command("git -C sub push origin")),
        ("Bash(docker pull nginx:*)", command("docker pull nginx:1.27")),
        ("Bash(:*)", command("ls")),
        ("Bash(* --force)", command("git push origin --force")),
        ("Bash(git * main)", command("git push --tags origin main")),
        ("Read(/secrets/**)", request("read", "pure", path="secrets/key")),
        ("Read(//srv/secrets/**)", request("read", "pure", path="/srv/secrets/key")),
        ("MultiEdit(a)", request("edit", path="a", old="1", new="2")),
        ("Task", request("subagent", agent="writer", task="Write.")),
        ("Agent(writer)", request("subagent", agent="writer", task="Write.")),
        ("Grep", request("grep", "pure", pattern="x")),
        ("WebFetch(domain:example.org)", request("fetch", "pure", untrusted=True, url="https://example.org/a")),
        ("mcp__git__log", LOG),
        ("mcp__git__*", LOG),
        ("mcp__git", LOG),
        ("mcp_*", LOG),
        ("bash", replace(command("ls"), tool_name="shell")),
    ],
)
async def test_a_rule_of_another_program_denies_here_what_it_denies_there(
    tmp_path: Path, rule: str, call: GateRequest
) -> None:
    gate = Permission(mode="trust", roots=[tmp_path], deny=[rule])
    assert isinstance(await gate.decide(call), Deny)
    assert isinstance(await Permission(mode="trust", roots=[tmp_path], ask=[rule]).decide(call), Ask)
    assert not isinstance(await Permission(mode="trust", roots=[tmp_path]).decide(call), Deny)


@pytest.mark.parametrize(
    "rule", ["BASH", "webfetch", "bash(rm *)", "Grep(src/**)", "Bash(git:* push)", "NotebookEdit(", "mcp__git__log(x)"]
)
def test_a_rule_that_means_nothing_here_is_refused_by_name(rule: str) -> None:
    for where in ("allow", "ask", "deny"):
        with pytest.raises(DefinitionError) as refused:
            Permission(**rules(where, rule))
        assert repr(rule) in str(refused.value)


@pytest.mark.parametrize("rule", ["mcp__git__log", "mcp__git", "mcp__git__*"])
async def test_only_its_server_allows_a_tool_by_a_rule_of_servers(tmp_path: Path, rule: str) -> None:
    gate = Permission(mode="balanced", roots=[tmp_path], allow=[rule])
    assert await gate.decide(LOG) == Allow()
    posing = replace(LOG, tool_name="mcp__git__log", server_names=("mcp__evil__mcp__git__log", "mcp__evil"))
    assert isinstance(await gate.decide(posing), Ask)


async def test_what_is_to_be_asked_about_is_allowed_by_a_person_only(tmp_path: Path) -> None:
    approvals = Approvals()
    allow, ask = ["Bash(git *)", "Read"], ["Bash(git push *)", "Read(**/.env)"]
    gate = Permission(mode="strict", roots=[tmp_path], approvals=approvals, allow=allow, ask=ask)
    assert await gate.decide(command("git log")) == Allow()
    asked = instance_of(Ask, await gate.decide(command("git push origin")))
    assert "the rule Bash(git push *) asks about it" in asked.question
    assert isinstance(await gate.decide(command("git $x")), Ask)  # it may be what the rule is about
    approvals.grant(gate.key(classify(command("git push origin"))), "session")
    assert await gate.decide(command("git push origin")) == Allow()
    looking = request("grep", "pure", pattern="KEY")
    assert await gate.decide(looking) == Allow()
    file = str(tmp_path / ".env")
    assert gate.hides(file, call=(looking.path, looking.tool_use_id), use="read", base=str(tmp_path))
    assert not gate.hides(str(tmp_path / "a"), call=(looking.path, looking.tool_use_id), use="read", base=str(tmp_path))


refund = make_tool("refund", "refunded {order}")


def agent(name: str, **fields: object) -> Agent[str]:
    return Agent(name=name, model=ScriptedModel(["Done."]), **fields)  # pyright: ignore[reportArgumentType] - each test's own


@pytest.mark.parametrize("rule", ["refnud", "mcp__git__log", "TodoWrite", "refund_*"])
@pytest.mark.parametrize("where", ["deny", "ask"])
async def test_a_rule_about_no_tool_ends_the_run_before_anything_is_spent(rule: str, where: str) -> None:
    gate = Permission(mode="trust", **rules(where, rule))
    for made, runtime in (
        (agent("a", tools=[refund], gate=gate), Runtime()),
        (agent("a", tools=[refund]), Runtime(gate=gate)),
    ):
        ended = failed(await run(made, "Go.", runtime=runtime))
        assert isinstance(ended.error.context, InvalidInputContext)
        assert f"The permission's rule {rule!r} matches no kind" in ended.error.context.issues[0]
        assert ended.metadata.usage == NOTHING_USED


async def test_a_rule_may_be_about_a_tool_of_a_sub_agent_a_server_or_a_ready_one() -> None:
    log = Tool("log", "Show.", {"type": "object"}, print, external=True, server_names=("mcp__git__log", "mcp__git"))
    below = agent("below", description="Refunds.", tools=[refund, log])
    gate = Permission(mode="trust", deny=["refund", "mcp__git", "mcp__git__log", "bash", "Bash", "fetch", "Task"])
    ended = await run(agent("above", tools=[Subagents(below)], gate=[gate]), "Go.")
    assert not isinstance(ended, Failure)

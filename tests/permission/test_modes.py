"""What each mode makes of each kind of call, and what goes before the mode."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from journeyman import DefinitionError
from journeyman.gate import Allow, Ask, Deny, GateRequest, Verdict
from journeyman.permission.approvals import Approvals
from journeyman.permission.capability import Action, Capability, classify
from journeyman.permission.permission import AuditEntry, Permission, PermissionMode
from journeyman.permission.rules import WorkingFolder
from journeyman.toolbox import Workspace
from journeyman.types import JsonObject
from tests.permission.workshop import request

CALLS: dict[str, GateRequest] = {
    "read": request("read", "pure", path="a"),
    "search": request("glob", "pure", pattern="**/*.py"),
    "internal": request("tool_search", "pure", query="x"),
    "write": request("write", "idempotent", path="a", content="x"),
    "exec": request("bash", command="ls"),
    "network": request("fetch", "pure", untrusted=True, url="https://example.org"),
    "unknown": request("mystery", depth=3),
}

TABLE: dict[PermissionMode, str] = {
    "strict": "read search internal write? exec! network! unknown!",
    "balanced": "read search internal write? exec? network? unknown?",
    "auto": "read search internal write exec? network? unknown?",
    "trust": "read search internal write exec network unknown",
    "plan": "read search internal write! exec! network unknown!",
}


def marked(verdict: Verdict) -> Literal["", "?", "!"]:
    match verdict:
        case Allow():
            return ""
        case Ask():
            return "?"
        case _:
            return "!"


@pytest.mark.parametrize("mode", TABLE)
async def test_a_mode_decides_about_each_capability(tmp_path: Path, mode: PermissionMode) -> None:
    gate = Permission(mode=mode, roots=[tmp_path])
    assert " ".join([f"{name}{marked(await gate.decide(call))}" for name, call in CALLS.items()]) == TABLE[mode]


async def test_an_allow_rule_beats_every_mode_but_plan(tmp_path: Path) -> None:
    for mode in TABLE:
        gate = Permission(mode=mode, allow=["Bash(ls)", "mys*", "Edit(**)", "WebFetch(*)"], roots=[tmp_path])
        found = {name for name, call in CALLS.items() if await gate.decide(call) == Allow()}
        assert found == ({"read", "search", "internal", "network"} if mode == "plan" else {*CALLS})


async def test_a_deny_rule_beats_an_allow_rule_and_trust(tmp_path: Path) -> None:
    rules = ["Bash(ls)", "mystery", "Edit(a)", "WebFetch(example.org)", "Read(a)", "tool_*", "glob"]
    gate = Permission(mode="trust", allow=rules, deny=rules, roots=[tmp_path])
    verdicts = [await gate.decide(call) for call in CALLS.values()]
    assert all(isinstance(verdict, Deny) for verdict in verdicts)
    assert verdicts[3] == Deny("the rule Edit(a) forbids it.")


@pytest.mark.parametrize("rule", ["Bash", "Edit", "Write", "Read", "WebFetch", "Subagent"])
async def test_a_kind_without_a_pattern_means_all_of_it(tmp_path: Path, rule: str) -> None:
    gate = Permission(mode="trust", deny=[rule], roots=[tmp_path])
    calls = {**CALLS, "delegate": request("subagent", agent="writer", task="Write.")}
    denied = {name for name, call in calls.items() if isinstance(await gate.decide(call), Deny)}
    kinds = {"Bash": {"exec"}, "Edit": {"write"}, "Write": {"write"}, "WebFetch": {"network"}, "Subagent": {"delegate"}}
    assert denied == kinds.get(rule, {"read", "search"})


async def test_plan_mode_allows_only_those_internal_tools_that_are_listed(tmp_path: Path) -> None:
    delegate = request("subagent", agent="writer", task="Write.")
    assert isinstance(await Permission(mode="plan", roots=[tmp_path]).decide(delegate), Deny)
    assert await Permission(mode="plan", in_plan=["subagent", "write"], roots=[tmp_path]).decide(delegate) == Allow()
    listed = Permission(mode="plan", in_plan=["write", "bash"], roots=[tmp_path])
    assert isinstance(await listed.decide(CALLS["write"]), Deny)  # listing a tool makes it no internal one


async def test_what_was_approved_before_beats_strict_but_not_plan_and_not_a_deny(tmp_path: Path) -> None:
    approvals = Approvals()
    gate = Permission(mode="strict", approvals=approvals, roots=[tmp_path])
    assert isinstance(await gate.decide(CALLS["exec"]), Deny)
    approvals.grant(gate.key(classify(CALLS["exec"])), "session")
    assert await gate.decide(CALLS["exec"]) == Allow()
    assert isinstance(await gate.decide(request("bash", command="ls -l")), Deny)
    assert isinstance(await Permission(mode="plan", approvals=approvals, roots=[tmp_path]).decide(CALLS["exec"]), Deny)
    denying = Permission(mode="strict", approvals=approvals, deny=["Bash(ls)"], roots=[tmp_path])
    assert isinstance(await denying.decide(CALLS["exec"]), Deny)


async def test_strict_denies_outside_of_the_roots_what_it_denies_inside(tmp_path: Path) -> None:
    gate = Permission(mode="strict", roots=[tmp_path])
    assert isinstance(await gate.decide(request("bash", command="ls", folder="/")), Deny)
    assert isinstance(await gate.decide(request("write", path="/x", content="")), Ask)


async def test_a_read_only_root_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    gate = Permission(
        mode="trust", allow=["Edit(**)"], roots=[tmp_path, WorkingFolder(tmp_path / "vendor", read_only=True)]
    )
    assert await gate.decide(request("write", path="a", content="")) == Allow()
    assert await gate.decide(request("read", "pure", path="vendor/a")) == Allow()
    denied = await gate.decide(request("write", path="vendor/a", content=""))
    assert denied == Deny("write 'vendor/a': the folder is read-only.")


async def test_a_root_inside_of_a_read_only_root_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    gate = Permission(mode="auto", roots=[WorkingFolder(tmp_path, read_only=True), tmp_path / "build"])
    assert isinstance(await gate.decide(request("write", path="a", content="")), Deny)
    assert await gate.decide(request("write", path="build/a", content="")) == Allow()


async def test_the_programs_own_folders_need_nobodys_approval(tmp_path: Path) -> None:
    own, notes = tmp_path / "own", tmp_path / "notes"
    for mode in TABLE:
        internal = [own, WorkingFolder(notes, read_only=True)]
        gate = Permission(mode=mode, roots=[tmp_path / "project"], internal=internal, deny=["Edit(**/key)"])
        wanted = [request("read", "pure", path=str(notes / "a"))]
        wanted += [request("write", path=str(path), content="") for path in (own / "a", notes / "a", own / "key")]
        assert [marked(await gate.decide(each)) for each in wanted] == ["", "", "!", "!"]


async def test_a_root_wins_over_an_internal_folder(tmp_path: Path) -> None:
    gate = Permission(mode="balanced", roots=[tmp_path], internal=[tmp_path / "own"])
    assert isinstance(await gate.decide(request("write", path="own/a", content="")), Ask)


async def test_without_roots_the_current_folder_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gate = Permission(mode="auto")
    monkeypatch.chdir("/")
    assert await gate.decide(request("write", path="a", content="")) == Allow()
    assert isinstance(await gate.decide(request("write", path="../a", content="")), Ask)


async def test_links_are_followed_by_whoever_keeps_the_files() -> None:
    links = {"/workspace/link": "/etc"}
    gate = Permission(mode="auto", roots=["/workspace"], resolve=lambda path: links.get(path, path))
    assert await gate.decide(request("write", path="a", content="")) == Allow()
    assert isinstance(await gate.decide(request("write", path="link", content="")), Ask)


@pytest.mark.parametrize(
    ("call", "capability"),
    [
        (request("read", "once", path="a"), "unknown"),  # says that it changes something: no read
        (request("read", "pure", file="a"), "unknown"),  # not the tool of that name
        (request("lookup", "pure", key="a"), "read"),
        (request("search_web", "pure", untrusted=True, query="a"), "network"),
        (request("lookup", "idempotent", key="a"), "unknown"),
        (request("glob", "pure", pattern="*/../../x"), "unknown"),
        (request("call_tool", name="bash", arguments={"command": "ls"}), "exec"),
        (request("call_tool", name="read", arguments={"path": "a"}), "unknown"),
        (request("call_tool", name="call_tool", arguments={}), "unknown"),
        (request("call_tool", name=3), "unknown"),
        (request("bash", "pure", command="ls"), "exec"),
        (request("bash", command=["ls"]), "unknown"),
        (request("subagent", agent="writer", task="x"), "internal"),
        (request("subagent", chain=[{"agent": "a", "task": "x"}, {"agent": "b", "task": "y"}]), "internal"),
        (request("subagent", task="x"), "unknown"),
    ],
)
def test_what_a_call_could_do_is_told_by_its_name_and_its_effect(call: GateRequest, capability: Capability) -> None:
    assert classify(call).capability == capability


def test_the_ready_tools_of_a_workspace_are_known_by_their_names_and_arguments(tmp_path: Path) -> None:
    samples: JsonObject = {
        **{"read": {"path": "a"}, "ls": {}, "grep": {"pattern": "x"}, "glob": {"pattern": "*.py"}},
        **{"write": {"path": "a", "content": "x"}, "edit": {"path": "a", "old_text": "x", "new_text": "y"}},
        **{"bash": {"command": "ls"}},
    }
    found: dict[str, Capability] = {}
    for each in Workspace(tmp_path).tools():
        arguments = samples[each.name]
        assert isinstance(arguments, dict)
        each.parse(json.dumps(arguments))
        found[each.name] = classify(replace(request(each.name, each.effect or "once"), arguments=arguments)).capability
    reads = dict.fromkeys(("read", "glob", "grep", "ls"), "read")
    assert found == {**reads, "write": "write", "edit": "write", "bash": "exec"}


async def test_a_search_below_another_folder_is_a_read_of_that_folder(tmp_path: Path) -> None:
    gate = Permission(mode="trust", roots=[tmp_path])
    for pattern in ("../*", "/etc/*", "a/../../x*"):
        assert isinstance(await gate.decide(request("glob", "pure", pattern=pattern)), Ask)


async def test_a_call_that_is_passed_on_is_judged_as_the_one_it_is(tmp_path: Path) -> None:
    gate = Permission(mode="trust", deny=["Bash(rm *)", "mcp_*"], roots=[tmp_path])
    for name, arguments in (("bash", {"command": "ls; rm x"}), ("mcp_send", {"to": "x"})):
        assert isinstance(await gate.decide(request("call_tool", name=name, arguments=arguments)), Deny)
    allowing = Permission(mode="strict", allow=["call_tool"], roots=[tmp_path])
    assert isinstance(await allowing.decide(request("call_tool", name="mcp_send", arguments={})), Deny)


async def test_a_program_may_classify_calls_itself(tmp_path: Path) -> None:
    def mine(call: GateRequest) -> Action:
        return Action(tool=call.tool_name, capability="write", paths=(str(call.arguments["target"]),))

    gate = Permission(mode="auto", classify=mine, roots=[tmp_path])
    assert await gate.decide(request("save", target="a")) == Allow()
    assert isinstance(await gate.decide(request("save", target="../a")), Ask)


async def test_a_task_is_only_allowed_when_all_its_agents_are(tmp_path: Path) -> None:
    gate = Permission(mode="plan", in_plan=["subagent"], deny=["Subagent(root*)"], roots=[tmp_path])
    tasks = [{"agent": "writer", "task": "x"}, {"agent": "rooter", "task": "y"}]
    assert await gate.decide(request("subagent", tasks=tasks[:1])) == Allow()
    assert isinstance(await gate.decide(request("subagent", tasks=tasks)), Deny)


async def test_an_allow_rule_for_sub_agents_means_calls_of_those_only(tmp_path: Path) -> None:
    entries: list[AuditEntry] = []
    gate = Permission(allow=["Subagent(write*)"], roots=[tmp_path], audit=entries.append)
    writer: JsonObject = {"agent": "writer", "task": "x"}
    editor: JsonObject = {"agent": "editor", "task": "y"}
    meant = [request("subagent", agent="writer", task="x")]
    others = [request("subagent", agent="editor", task="y"), CALLS["internal"]]
    for many in ("tasks", "chain"):
        meant.append(replace(meant[0], arguments={many: [writer, writer]}))
        others.append(replace(meant[0], arguments={many: [writer, editor]}))
    for each in [*meant, *others]:
        await gate.decide(each)
    rule = "the rule Subagent(write*) allows it."
    assert [entry.reason == rule for entry in entries] == [True] * len(meant) + [False] * len(others)


def test_a_wrong_definition_lists_every_problem() -> None:
    with pytest.raises(DefinitionError) as raised:
        Permission(
            mode="careful",  # pyright: ignore[reportArgumentType] - what users may write
            allow=["Bash(git *", "Shell(ls)", "Bash(a && b)", "Bash(/bin/ls)", "Edit(../x)", "Edit(a**)", "two words"],
            deny=["WebFetch(https://example.org)", "Bash()", "", "m*p", "Subagent(a b)"],
            roots=[""],
        )
    codes = ["INVALID_MODE", "UNCLOSED_RULE", "UNKNOWN_RULE_KIND", *["INVALID_RULE"] * 10, "INVALID_ROOT"]
    assert [problem.code for problem in raised.value.problems] == codes
    assert "The rule 'Bash(git *' in allow does not end with ')'. Close the parenthesis." in str(raised.value)
    kinds = "There are Bash(…), Edit(…), Write(…), Read(…), WebFetch(…), Subagent(…), and names of tools."
    assert kinds in str(raised.value)


def test_a_text_where_a_list_of_rules_belongs_is_a_wrong_definition() -> None:
    with pytest.raises(DefinitionError, match="allow is the text"):
        Permission(allow="Bash(git *)")


@pytest.mark.parametrize(
    ("rule", "fits", "fits_not"),
    [
        ("Edit(src/**)", ["src/a/b.py", "src"], ["src2/a"]),
        ("Edit(src/*)", [], ["src/a/b"]),
        ("Edit(src/*.py)", ["src/.py"], []),
        ("Edit(**/test_*.py)", ["a/b/test_x.py", "test_x.py"], []),
        ("Edit(a/**/z)", ["a/z", "a/b/c/z"], ["a/b/c/zz"]),
        ("Edit(a?c)", ["abc"], ["a/c"]),
        ("Edit([a])", ["[a]"], ["a"]),
        ("Edit(./a)", ["a"], []),
        ("Edit(a.b)", [], ["axb"]),
        ("Edit(**)", ["anything/at/all"], []),
        ("Edit(secret)", [], ["secret/below"]),
        ("Write(a)", ["a"], []),
        ("edit", [], ["a"]),
        ("wri*", ["a"], []),
        ("*", ["a"], []),
    ],
)
async def test_a_pattern_of_paths(tmp_path: Path, rule: str, fits: list[str], fits_not: list[str]) -> None:
    gate, paths = Permission(mode="balanced", allow=[rule], roots=[tmp_path]), [*fits, *fits_not]
    assert [each for each in paths if await gate.decide(request("write", path=each, content="")) == Allow()] == fits


@pytest.mark.parametrize(
    ("rule", "fits", "fits_not"),
    [
        ("Bash(git *)", ["git", "git log -1"], ["gitk"]),
        ("Bash(git status)", ["git status"], ["git status -s"]),
        ("Bash(git * --dry-run)", ["git push --dry-run"], ["git push -f --dry-run"]),
        ("Bash(npm run test:*)", ["npm run test", "npm run test -v"], ["npm run deploy", "npm run test:unit"]),
        ("Bash(*)", ["ls -l"], ["sudo ls"]),
        ("Bash(s*)", [], ["sh x"]),
        ("Bash(sudo ls)", ["sudo ls"], []),
        ("Bash(git)", [], ["git log"]),
        ("bash", ["ls"], ["ls; ls"]),
        ("*", [], ["ls | ls"]),
    ],
)
async def test_a_pattern_of_commands(tmp_path: Path, rule: str, fits: list[str], fits_not: list[str]) -> None:
    gate, commands = Permission(mode="strict", allow=[rule], roots=[tmp_path]), [*fits, *fits_not]
    assert [each for each in commands if await gate.decide(request("bash", command=each)) == Allow()] == fits


async def test_a_word_that_can_be_no_path_is_asked_about(tmp_path: Path) -> None:
    gate = Permission(allow=["Bash(cat *)"], roots=[tmp_path])
    assert await gate.decide(request("bash", command=f"cat {'a/' * 2_000}")) == Allow()
    assert isinstance(await gate.decide(request("bash", command=f"cat {'a/' * 2_100}")), Ask)


async def test_a_path_that_cannot_be_one_is_denied_in_every_mode_whatever_the_rules_say(tmp_path: Path) -> None:
    for mode in TABLE:
        for path in ("a\0", "a/" * 5_000):
            gate = Permission(mode=mode, allow=["Edit(**)"], deny=["Edit(secret)"], roots=[tmp_path])
            verdict = await gate.decide(request("write", path=path, content=""))
            assert isinstance(verdict, Deny)
            assert "cannot be a path" in verdict.reason

"""What is asked about a command in a box: not how it looks, but whether it may do more than the box lets it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.gate import Allow, Approval, Ask, Extent, GateRequest
from journeyman.permission import Approvals, Permission, PermissionMode, make_box
from journeyman.permission.permission import AuditEntry
from journeyman.sandbox import Box, secrets_of_home
from tests.permission.commands import INNOCENT
from tests.permission.workshop import request

PIP = ["host:packages.example"]


def boxed(box: Box | None, command: str, **more: Any) -> GateRequest:
    return replace(request("bash", command=command, **more), box=box)


async def verdict(rules: Permission, box: Box | None, command: str, **more: Any) -> str:
    return type(await rules.decide(boxed(box, command, **more))).__name__.lower()


@pytest.mark.parametrize(
    ("command", "needs", "expected"),
    [
        ("x=rm; $x -rf build", [], "plan deny, strict ask, balanced ask, auto allow, trust allow"),
        ("git log | head", [], "plan deny, strict ask, balanced allow, auto allow, trust allow"),
        ("pip install x", PIP, "plan deny, strict deny, balanced ask, auto ask, trust allow"),
        ("make", ["write:../lib"], "plan deny, strict deny, balanced ask, auto ask, trust allow"),
        ("ls", ["outside"], "plan deny, strict deny, balanced ask, auto ask, trust allow"),
        ("make", ["anything"], "plan deny, strict deny, balanced deny, auto deny, trust deny"),
        ("curl x", ["host:evil.test"], "plan deny, strict deny, balanced deny, auto deny, trust deny"),
        ("curl x", ["host:good.test"], "plan deny, strict deny, balanced allow, auto allow, trust allow"),
        ("sqlite3 a", [], "plan deny, strict deny, balanced deny, auto deny, trust deny"),
        ("x=sql; ${x}ite3 a", [], "plan deny, strict ask, balanced ask, auto allow, trust allow"),
    ],
)
async def test_each_mode_judges_a_boxed_command_by_what_it_may_do(
    tmp_path: Path, command: str, needs: list[str], expected: str
) -> None:
    deny, allow = ["Bash(sqlite3 *)", "WebFetch(evil.test)"], ["WebFetch(good.test)"]
    rules = Permission(mode="auto", roots=[tmp_path], deny=deny, allow=allow)
    box = replace(make_box(rules), hosts=())
    found: list[str] = []
    for mode in ("plan", "strict", "balanced", "auto", "trust"):
        rules.mode = mode
        found.append(f"{mode} {await verdict(rules, box, command, needs=needs)}")
    assert ", ".join(found) == expected


@pytest.mark.parametrize("command", ["mkfifo a", "x=mkf; ${x}ifo a"])
async def test_what_a_rule_has_asked_about_is_asked_about_in_a_box_too(tmp_path: Path, command: str) -> None:
    rules = Permission(mode="auto", roots=[tmp_path], ask=["Bash(mkfifo *)"])
    assert [await verdict(rules, make_box(rules), each) for each in (command, "ls")] == ["ask", "allow"]


async def test_a_plan_runs_commands_in_a_box_in_which_nothing_may_be_changed(tmp_path: Path) -> None:
    rules = Permission(mode="plan", roots=[tmp_path])
    assert await verdict(rules, make_box(rules), "git log") == "allow"
    assert await verdict(rules, make_box(rules), "pip install x", needs=PIP) == "deny"
    assert await verdict(rules, None, "git log") == "deny"


async def test_a_box_that_does_not_hold_a_rule_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=x\n")
    rules = Permission(mode="auto", roots=[tmp_path], deny=["Read(.env)", "Bash(sqlite3 *)"])
    box = make_box(rules)
    lesser = [None, *(replace(box, **each) for each in ({"hidden": ()}, {"denied": ()}, {"writes": ("/srv/other",)}))]
    assert [await verdict(rules, each, "./run") for each in (box, *lesser)] == ["allow", *["ask"] * 4]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.env").write_text("")
    assert await verdict(Permission(mode="auto", roots=[tmp_path], deny=["Read(**/.env)"]), box, "./run") == "ask"
    audited = Permission(mode="auto", roots=[tmp_path], audit=tmp_path / "audit")
    assert await verdict(audited, make_box(audited), "./run") == "ask", "the command could make the file of the audit"


async def test_what_rules_say_of_other_folders_is_held_too(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for each in (work, other):
        each.mkdir()
    (other / "a.key").touch()
    (other / "b.txt").touch()
    named = Permission(mode="auto", roots=[work], deny=[f"Read(/{other}/*.key)"])
    assert str(other / "a.key") in make_box(named).hidden
    assert await verdict(named, make_box(named), "./run") == "allow"
    assert await verdict(named, make_box(Permission(roots=[work])), "./run") == "ask"
    for pattern in ("**/.env", "~/*.key", "//**"):
        anywhere = Permission(mode="auto", roots=[work], deny=[f"Read({pattern})"])
        plain = Box(work=str(work), hidden=secrets_of_home())
        assert await verdict(anywhere, plain, "./run") == "ask", "it shows files that the rule may mean"
    kept = Permission(mode="auto", roots=[work], deny=["Read(**/.env)"])
    assert (make_box(kept).reads, await verdict(kept, make_box(kept), "./run")) == ("system", "allow")


async def test_an_answer_holds_for_the_need_whatever_the_command_is(tmp_path: Path) -> None:
    rules = Permission(mode="auto", roots=[tmp_path], ask=["Bash(git push *)"])
    box = make_box(rules)
    first = boxed(box, "pip install a", needs=PIP)
    asked = await rules.decide(first)
    assert isinstance(asked, Ask)
    assert asked.rule == "any command in its box with host:packages.example"
    answered = Approval(request=first, question=asked.question, question_id=first.digest, offers=asked.offers, rule="")
    rules.settle(answered, Allow("session"))
    assert await verdict(rules, box, "pip install b", needs=PIP) == "allow"
    assert await verdict(rules, box, "pip install b", needs=["host:evil.test"]) == "ask"
    assert await verdict(rules, None, "pip install b", needs=PIP) == "ask", "without a box the command counts"
    push = await rules.decide(boxed(box, "git push origin", needs=PIP))
    assert isinstance(push, Ask)
    assert push.offers == ("once",), "two questions in one are answered for this call alone"


async def test_each_need_that_was_answered_holds_by_itself_and_a_question_says_why(tmp_path: Path) -> None:
    rules = Permission(mode="auto", roots=[tmp_path])
    box, needs = make_box(rules), [*PIP, "write:../lib"]
    first = boxed(box, "pip install a", needs=needs, why="the tests\x1b[2K need it")
    asked = await rules.decide(first)
    assert isinstance(asked, Ask)
    resolved = [*PIP, f"write:{tmp_path.parent / 'lib'}"]
    assert f"it asks for {', '.join(resolved)}, which is beyond its box. It says why: " in asked.question
    assert "the tests\\x1b[2K need it" in asked.question
    approval = Approval(request=first, question=asked.question, question_id=first.digest, offers=asked.offers, rule="")
    rules.settle(approval, Allow("session"))
    assert [await verdict(rules, box, "make", needs=each) for each in (PIP, needs, needs[1:])] == ["allow"] * 3
    assert sorted(rules.approvals.granted().values()) == [f"any command in its box with {each}" for each in resolved]


async def test_an_answer_about_a_path_holds_for_where_it_leads(tmp_path: Path) -> None:
    work, one, other = (tmp_path / each for each in ("work", "one", "other"))
    for each in (work, one, other):
        each.mkdir()
    (work / "link").symlink_to(one)
    (work / "sub").mkdir()
    rules = Permission(mode="auto", roots=[work])
    rules.approvals.grant(f"needs:write:{one}", "session")
    box, needs = make_box(rules), ["write:link"]
    assert await verdict(rules, box, "make", needs=needs) == "allow"
    (work / "link").unlink()
    (work / "link").symlink_to(other)
    assert await verdict(rules, box, "make", needs=needs) == "ask", "it leads elsewhere now"
    inner = Box(work=str(work / "sub"))
    denied = Permission(mode="auto", roots=[work], deny=["Edit(sub/a)"])
    assert await verdict(denied, inner, "make", needs=["write:a"]) == "deny", (
        "a path is one below the folder of the box"
    )


@pytest.mark.parametrize("extent", ["session", "always"])
async def test_an_answer_to_a_question_that_waits_holds_for_each_need(tmp_path: Path, extent: Extent) -> None:
    approvals = Approvals(tmp_path.parent / f"{tmp_path.name}.json")
    rules = Permission(mode="auto", roots=[tmp_path], approvals=approvals)
    box, needs = make_box(rules), [*PIP, "write:../lib"]
    assert await verdict(rules, box, "pip install a", needs=needs) == "ask"
    (asked,) = approvals.pending()
    approvals.answer(asked.question_id, Allow(extent))
    resolved = [*PIP, f"write:{tmp_path.parent / 'lib'}"]
    assert approvals.granted() == {f"needs:{each}": f"any command in its box with {each}" for each in resolved}
    assert [await verdict(rules, box, "make", needs=each) for each in (PIP, needs[1:], needs)] == ["allow"] * 3


async def test_the_audit_names_the_box_of_each_command_that_stays_in_one(tmp_path: Path) -> None:
    entries: list[AuditEntry] = []
    rules = Permission(mode="trust", roots=[tmp_path], audit=entries.append)
    box = replace(make_box(rules), sandbox="bubblewrap")
    for given, needs in ((box, []), (box, ["outside"]), (None, [])):
        await verdict(rules, given, "make", needs=needs)
    assert [each.box for each in entries] == ["bubblewrap", None, None]


async def test_what_was_allowed_in_the_box_is_not_allowed_outside_of_it(tmp_path: Path) -> None:
    rules = Permission(mode="balanced", roots=[tmp_path])
    box, inside = make_box(rules), boxed(make_box(rules), "make")
    asked = await rules.decide(inside)
    assert isinstance(asked, Ask)
    given = Approval(request=inside, question=asked.question, question_id=inside.digest, offers=asked.offers, rule="")
    rules.settle(given, Allow("session"))
    assert await verdict(rules, box, "make") == "allow"
    assert await verdict(rules, box, "make", needs=["outside"]) == "ask"
    assert await verdict(rules, None, "make") == "ask", "it was judged as one that stays in its box"


@pytest.mark.parametrize("mode", ["auto", "trust"])
async def test_a_deny_rule_about_words_is_read_by_where_a_command_leaves_its_box(
    tmp_path: Path, mode: PermissionMode
) -> None:
    rules = Permission(mode=mode, roots=[tmp_path], deny=["Bash(git push *)"], allow=["Bash(make *)"])
    box = make_box(rules)
    rules.approvals.grant("needs:host:git.example", "session")
    needs = ["host:git.example"]
    found = {each: await verdict(rules, box, each, needs=needs) for each in LEAVING}
    assert found == LEAVING
    assert {await verdict(rules, box, each) for each in LEAVING if each != "git push"} == {"allow"}, "nothing is given"


LEAVING = {
    "git push": "deny",
    "git fetch": "allow",
    "make deploy": "allow",  # a rule names it
    "make push": "allow",
    "make git": "ask",  # it mentions the program
    "x=push; git $x": "ask",
    "./deploy": "ask",
    'bash -c "$x"': "ask",
}


async def test_what_runs_outside_of_the_box_is_asked_about_each_time(tmp_path: Path) -> None:
    rules = Permission(mode="auto", roots=[tmp_path], deny=["Bash(git push *)"])
    asked = await rules.decide(boxed(make_box(rules), "ssh host", needs=["outside"]))
    assert isinstance(asked, Ask)
    assert asked.offers == ("once",)
    assert await verdict(rules, make_box(rules), "git push", needs=["outside"]) == "deny"


async def test_everyday_commands_are_seldom_asked_about(tmp_path: Path) -> None:
    rules = Permission(roots=[tmp_path])
    box = make_box(rules)
    asked = [each for each in INNOCENT if await verdict(rules, box, each) != "allow"]
    assert len(asked) < 0.5 * len(INNOCENT), json.dumps(asked)
    rules.mode = "auto"
    assert [each for each in INNOCENT if await verdict(rules, box, each) != "allow"] == []


@pytest.mark.parametrize("command", ["npm install", "git log", "x=rm; $x -rf build"])
async def test_startup_files_get_their_names_back_in_no_mode_without_an_answer(tmp_path: Path, command: str) -> None:
    rules = Permission(roots=[tmp_path], allow=["Bash", "Edit(sub/**)"], deny=["Edit(.envrc)"])
    files = {name: str(tmp_path / name) for name in (".husky/a", ".envrc", "sub/.bashrc")}
    made = {name: replace(request("bash", command=command), startup_files=(path,)) for name, path in files.items()}
    found: dict[str, str] = {}
    for rules.mode in ("plan", "strict", "balanced", "auto", "trust"):
        found[rules.mode] = " ".join([type(await rules.decide(each)).__name__ for each in made.values()])
    assert found == {
        **dict.fromkeys(("plan", "strict"), "Deny Deny Deny"),
        **dict.fromkeys(("balanced", "auto", "trust"), "Ask Deny Allow"),
    }
    assert len({request("bash", command=command).digest, *(each.digest for each in made.values())}) == 4
    rules.approvals.grant(f"needs:write:{files['.husky/a']}", "session")
    assert isinstance(await rules.decide(made[".husky/a"]), Allow)
    both = replace(made[".husky/a"], startup_files=(files[".husky/a"], str(tmp_path / ".vimrc")))
    asked = await rules.decide(both)
    assert isinstance(asked, Ask)
    assert asked.offers == ("once", "session", "always")

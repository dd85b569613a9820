"""Rules as a box: a table of what the kernel holds of each, and what it cannot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.permission import Permission, WorkingFolder, make_box, rules_beyond_box
from journeyman.permission.borders import box_of
from journeyman.permission.rules import Roots, Rules
from journeyman.sandbox import Box

WORK = "/srv/project"
PATHS = [
    f"{WORK}/{name}"
    for name in (".env", "a.py", "build", "build/out", "docs", "docs/.env", "secrets", "secrets/key", "secrets/deep")
]


def as_it_is(path: str) -> str:
    return path


def box(*, roots: tuple[str | WorkingFolder, ...] = (WORK,), **rules: list[str]) -> Box:
    folders = Roots(roots, resolve=as_it_is)
    read = Rules(rules.get("allow", []), rules.get("deny", []), rules.get("ask", []), folders)
    return box_of(read, folders, paths=PATHS)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, {}),
        ({"deny": ["Bash(rm *)"]}, {"denied": ("rm",)}),
        ({"deny": ["Bash(rm:*)", "Bash(/bin/rm *)"]}, {"denied": ("rm",)}),
        ({"deny": ["Bash(git push *)"]}, {}),
        ({"deny": ["Bash(rm)"]}, {}),
        ({"deny": ["Bash(*)"]}, {}),
        ({"allow": ["Bash(rm *)"]}, {}),
        ({"ask": ["Bash(rm *)"]}, {}),
        ({"deny": ["Read(.env)"]}, {"hidden": (f"{WORK}/.env",)}),
        ({"deny": ["Read(**/.env)"]}, {"reads": "system", "hidden": (f"{WORK}/.env", f"{WORK}/docs/.env")}),
        ({"deny": ["Read(secrets/**)"]}, {"hidden": (f"{WORK}/secrets",)}),
        ({"deny": ["Read(secrets/*)"]}, {"hidden": (f"{WORK}/secrets/key", f"{WORK}/secrets/deep")}),
        ({"ask": ["Read(.env)"]}, {"hidden": (f"{WORK}/.env",)}),
        ({"allow": ["Read(.env)"]}, {}),
        ({"deny": ["Edit(build/**)"]}, {"protected": (f"{WORK}/build",)}),
        ({"deny": ["Write(a.py)", "Edit(a.py)"]}, {"protected": (f"{WORK}/a.py",)}),
        ({"ask": ["Edit(a.py)"]}, {}),
        ({"deny": ["Read(/secrets/key)"]}, {"hidden": (f"{WORK}/secrets/key",)}),
        ({"allow": ["WebFetch(a.test)", "WebFetch(*.b.test)"]}, {"hosts": ("a.test", "*.b.test")}),
        ({"allow": ["WebFetch(a.test)"], "deny": ["WebFetch(a.test)"]}, {}),
        ({"allow": ["WebFetch(*)", "WebFetch([::1])", "WebFetch(127.0.0.1)", "fetch"]}, {}),
        ({"roots": (WORK, "/srv/lib")}, {"writes": ("/srv/lib",)}),
        (
            {"roots": (WORK, WorkingFolder(f"{WORK}/vendor", read_only=True))},
            {"readable": (f"{WORK}/vendor",), "protected": (f"{WORK}/vendor",)},
        ),
        ({"roots": (WorkingFolder(WORK, read_only=True),)}, {"changes": False}),
    ],
)
def test_rules_become_a_box(rules: dict[str, Any], expected: dict[str, Any]) -> None:
    assert box(**rules) == replace(Box(work=WORK), **expected)


def test_what_is_planned_changes_nothing_and_what_is_protected_or_hidden_besides_stays_so() -> None:
    folders = Roots([WORK, "/srv/lib"], resolve=as_it_is)
    made = box_of(
        Rules([], ["Edit(a.py)"], [], folders), folders, paths=PATHS, protected=["/x"], hidden=["/y"], changes=False
    )
    assert made == Box(work=WORK, changes=False, protected=("/x", f"{WORK}/a.py"), hidden=("/y",))


def test_a_permission_becomes_a_box_for_the_files_that_are_there(tmp_path: Path) -> None:
    for name in ("a/.env", "b.py", "audit.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    audit = str(tmp_path / "audit.jsonl")
    made = make_box(Permission(roots=[tmp_path], audit=audit, deny=["Read(**/.env)", "Edit(b.py)", "Bash(rm *)"]))
    assert (made.work, made.changes, made.denied) == (str(tmp_path), True, ("rm",))
    assert str(tmp_path / "a/.env") in made.hidden
    assert {*made.protected} == {audit, str(tmp_path / "b.py")}
    assert not make_box(Permission(roots=[tmp_path], mode="plan")).changes


def test_a_rule_that_no_kernel_can_hold_is_told_with_what_holds_instead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = [*rules_beyond_box(Permission(deny=["Bash(git push *)", "Bash(rm *)", "Read(.env)"]))]
    assert told == [
        "The rule Bash(git push *) is about the words of a command, which a box cannot hold. There it is held by"
        " what the command would need: no host and no key is there. Deny the program, the path or the host."
    ]
    permission = Permission(roots=[tmp_path], deny=["Bash(git push *)", "Bash(rm *)"])
    assert make_box(permission) == make_box(permission)
    assert [each.levelname for each in caplog.records] == ["WARNING"], "once, when the box is made first"
    assert "Bash(git push *)" in caplog.text


@pytest.mark.parametrize(
    ("allow", "deny", "contradicts"),
    [
        ("Bash(rm *)", "Bash(rm *)", True),
        ("Bash(git push *)", "Bash(git *)", True),
        ("Bash(git *)", "Bash(git push *)", False),
        ("Bash(git status)", "Bash", True),
        ("Bash(python *)", "Bash(*)", True),
        ("Edit(src/a/**)", "Write(src)", True),
        ("Edit(**)", "Edit(**/.env)", False),
        ("Read(src/**)", "Edit(src/**)", False),
        ("Read(.env)", "Read", True),
        ("WebFetch(a.b.test)", "WebFetch(*.b.test)", True),
        ("WebFetch(*)", "WebFetch(a.test)", False),
        ("Subagent(writer)", "Subagent(w*)", True),
        ("mcp__git__log", "mcp__git*", True),
        ("mcp__git", "Bash", False),
    ],
)
@pytest.mark.parametrize("where", ["allow", "ask"])
def test_a_rule_that_another_contradicts_is_told(
    where: str, allow: str, deny: str, contradicts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rules: dict[str, Any] = {where: [allow], "deny": [deny]}
    Permission(**rules)
    assert [each.levelname for each in caplog.records] == ["WARNING"] * contradicts
    assert all(rule in caplog.text for rule in (allow, deny)) or not contradicts

"""Files that a gate denies stay hidden from the tools that search, and from links that change under the gate's eyes."""

import asyncio
import sys
from pathlib import Path

import pytest

from journeyman import Runtime
from journeyman.gate import Allow
from journeyman.permission import Permission
from journeyman.toolbox import Workspace
from tests.play import answered

FILES = {
    "a.txt": "hello world",
    "key.txt": "hello key",
    "deep/key.txt": "hello deep key",
    "deep/b.txt": "hello b",
    "private/c.txt": "hello c",
    "private/more/d.txt": "hello d",
}
DENY = ["Read(**/key.txt)", "Read(private/**)"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return tmp_path / "root"


async def told(root: Path, name: str, *, ripgrep: str | None = "rg", deny: list[str], **arguments: object) -> str:
    with Workspace(root, ripgrep=ripgrep) as workspace:
        (made,) = workspace.tools(name)  # pyright: ignore[reportArgumentType] - one of the names
        runtime = Runtime(gate=[Permission(mode="auto", roots=[root], deny=deny)])
        return (await answered(made, arguments, runtime=runtime)).text


@pytest.mark.parametrize("ripgrep", ["rg", None])
@pytest.mark.parametrize(
    ("name", "arguments", "shown", "n_hidden"),
    [
        ("grep", {"pattern": "hello"}, ["a.txt", "deep/b.txt"], 4),
        ("grep", {"pattern": "deep key"}, [], 4),
        ("grep", {"pattern": "hello", "glob": "*.txt", "path": "deep"}, ["deep/b.txt"], 1),
        ("glob", {"pattern": "**/*.txt"}, ["a.txt", "deep/b.txt"], 4),
        ("ls", {"depth": 3}, ["a.txt", "b.txt"], 3),
        ("read", {"path": "deep"}, ["b.txt"], 1),
    ],
)
async def test_what_a_rule_forbids_to_read_is_counted_and_not_shown(
    root: Path, ripgrep: str | None, name: str, arguments: dict[str, object], shown: list[str], n_hidden: int
) -> None:
    text = await told(root, name, ripgrep=ripgrep, deny=DENY, **arguments)
    note = f"[{n_hidden} path{'s' if n_hidden > 1 else ''} left out: a rule forbids showing more.]"
    assert text.splitlines()[-1] == note
    names = ("a.txt", "key.txt", "deep/key.txt", "deep/b.txt", "c.txt", "d.txt", "b.txt")
    body = text.removesuffix(note)
    assert all(each in body for each in shown)
    assert "key.txt" not in body
    assert "private" not in body
    assert not any(each in body for each in names if not any(each in ok for ok in shown))


@pytest.mark.parametrize("name", ["grep", "glob", "ls"])
async def test_without_a_rule_nothing_is_left_out(root: Path, name: str) -> None:
    arguments = {} if name == "ls" else {"pattern": "hello" if name == "grep" else "*.txt"}
    text = await told(root, name, deny=[], **arguments)
    assert "key.txt" in text
    assert "left out" not in text


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(("name", "tried"), [("read", 60), ("grep", 60), ("write", 60)])
async def test_a_link_that_is_flipped_between_gate_and_tool_opens_nothing_denied(
    root: Path, name: str, tried: int
) -> None:
    (root / "open").mkdir()
    (root / "open" / "c.txt").write_text("hello everybody\n")
    flip = f"""
import os
os.chdir({str(root)!r})
while True:
    for target in ("private", "open"):
        os.symlink(target, "new")
        os.replace("new", "link")
"""
    (root / "link").symlink_to("open")
    arguments = {
        "read": {"path": "link/c.txt"},
        "grep": {"pattern": "hello", "path": "link/c.txt"},
        "write": {"path": "link/new.txt", "content": "mine"},
    }[name]
    flipping = await asyncio.create_subprocess_exec(sys.executable, "-c", flip)
    try:
        deny = [*DENY, "Edit(private/**)"]
        texts = [await told(root, name, deny=deny, **arguments) for _ in range(tried)]
    finally:
        flipping.kill()
        await flipping.wait()
    assert [text for text in texts if "hello c" in text] == []
    assert not (root / "private" / "new.txt").exists()


async def test_a_link_that_leads_out_of_the_roots_after_the_gate_has_judged_it_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "open", outside):
        folder.mkdir(parents=True)
        (folder / "c.txt").write_text(f"from {folder.name}\n")
    (inside / "link").symlink_to("open")
    permission = Permission(mode="auto", roots=[inside])

    class Flipping:
        """Comes after the permission, and stands for whoever changes the link in between."""

        async def decide(self, request: object) -> Allow:
            (inside / "link").unlink()
            (inside / "link").symlink_to(outside)
            return Allow()

    with Workspace(inside, confined=False) as workspace:
        (read,) = workspace.tools("read")
        runtime = Runtime(gate=[permission, Flipping()])
        result = await answered(read, {"path": "link/c.txt"}, runtime=runtime)
    assert result.is_error
    assert "a rule forbids where this path leads" in result.text

"""What a workspace lets its file tools touch: what is inside of it, links followed, and nothing else."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.toolbox import LocalFiles, ToolRefused, Workspace
from tests.properties.examples import examples, patient
from tests.toolbox.player import Player

OUTSIDE = [
    *("../outside/secret.txt", "../outside", "src/../../outside/secret.txt", "link/../outside/secret.txt"),
    *("to-outside", "to-outside/secret.txt", "to-secret", "to-secret/x", "chain", "chain/secret.txt"),
    *("to-nothing", "to-nothing/new.txt"),
    *("src/up/outside/new.txt", "/etc/passwd", "//etc/passwd", "~", "~/.profile"),
    *("../project-sibling/new.txt",),
]


@pytest.fixture
def traps(folder: Path) -> Path:
    """A workspace with links that lead out of it."""
    (folder / "src").mkdir()
    (folder / "to-outside").symlink_to(folder.parent / "outside")
    (folder / "to-secret").symlink_to("../outside/secret.txt")
    (folder / "to-nothing").symlink_to(folder.parent / "nothing")
    (folder / "chain").symlink_to("to-outside")
    (folder / "src" / "up").symlink_to("../..")
    (folder / "link").symlink_to(folder.parent / "outside")
    return folder


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_that_leads_out_of_the_workspace_is_refused(player: Player, traps: Path, path: str) -> None:
    before = everything_below(traps.parent)
    for text in (
        await player.refused("read", path=path),
        await player.refused("write", path=path, content="stolen"),
        await player.refused("edit", path=path, old_text="secret", new_text="stolen"),
        await player.refused("ls", path=path),
        await player.refused("glob", pattern="*", path=path),
        await player.refused("grep", pattern="secret", path=path),
        await player.refused("bash", command="true", folder=path),
    ):
        assert text == f"{path!r} is outside of the workspace {traps}. Use a path inside of it."
    assert everything_below(traps.parent) == before


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a/\udfff/b"])
def test_what_cannot_be_a_path_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(ToolRefused) as refused:
        Workspace(folder).locate(path)
    assert refused.value.kind == "invalid"


async def test_searches_do_not_follow_links(player: Player, traps: Path) -> None:
    assert await player.text("glob", pattern="**") == "No file in . matches **."
    assert await player.text("grep", pattern="secret") == "No line matches secret."
    listed = await player.text("ls", depth=3)
    assert "secret.txt" not in listed
    assert "to-outside (link)" in listed


async def test_links_inside_of_the_workspace_are_followed(player: Player, folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "file.txt").write_text("here\n")
    (folder / "b").symlink_to("a")
    assert await player.text("read", path="b/file.txt") == "1\there"
    await player.text("write", path="b/../new.txt", content="x")  # where `b` leads to, not beside it
    assert (folder / "new.txt").exists()


async def test_further_folders_can_be_opened_and_the_confinement_can_be_left_to_a_gate(folder: Path) -> None:
    secret = str(folder.parent / "outside" / "secret.txt")
    for workspace in (Workspace(folder, also=[folder.parent / "outside"]), Workspace(folder, confined=False)):
        player = Player(workspace)
        assert await player.text("read", path=secret) == "1\tsecret"
        assert (await player.text("write", path=secret, content="secret\n")).startswith(f"Wrote {secret}")
    with pytest.raises(ToolRefused):
        Workspace(folder, also=[folder.parent / "outside"]).locate("../other")


def test_what_becomes_a_link_after_it_was_looked_at_is_not_followed(folder: Path) -> None:
    secret, files = folder.parent / "outside" / "secret.txt", LocalFiles()
    (folder / "a").mkdir()
    (folder / "a" / "secret.txt").write_text("harmless")
    located = Workspace(folder).locate("a/secret.txt")
    (folder / "a" / "secret.txt").unlink()
    (folder / "a").rmdir()
    (folder / "a").symlink_to(secret.parent)
    with pytest.raises(NotADirectoryError):
        files.read(located, 10)
    with pytest.raises(NotADirectoryError):
        files.replace(located, b"stolen")
    (folder / "a.txt").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        files.read(str(folder / "a.txt"), 10)
    with pytest.raises(OSError, match="not a regular file"):
        files.replace(str(folder / "a.txt"), b"stolen")
    assert secret.read_text() == "secret\n"


async def test_a_loop_of_links_is_an_error(player: Player, folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    await player.refused("read", path="a")
    await player.refused("read", path="a/x")
    await player.refused("write", path="a/x", content="x")


NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "outside", "project", "secret.txt", "…", "a b", "x" * 300])
PATHS = st.lists(NAMES, max_size=6).map("/".join) | st.lists(NAMES, max_size=6).map(
    lambda names: "/".join(["", *names])
)
TARGETS = st.sampled_from(
    ["..", "../outside", "../outside/secret.txt", "a", "b", "../../..", "/", "c/../..", "../project/b", "../new", "."]
)
PLACES = st.sampled_from(["a", "b", "c", "a/a", "a/b", "b/a"])


def everything_below(folder: Path) -> dict[str, object]:
    """Return every path below a folder with its content, or with where it leads."""
    found: dict[str, object] = {}
    for above, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(above) / name
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = path.read_bytes() if is_file else str(path.readlink()) if path.is_symlink() else None
    return found


@contextmanager
def world(links: dict[str, str]) -> Generator[Path]:
    """A folder with `project`, which has these links, and `outside`, which is none of its business."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        for each in ("outside", "project"):
            (top / each).mkdir()
        (top / "outside" / "secret.txt").write_text("secret\n")
        for place, target in links.items():
            path = top / "project" / place
            if path.parent.is_symlink() or path.exists() or path.is_symlink():
                continue
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(target)
        yield top


@pytest.mark.fuzz
@patient
@examples(2)
@given(path=PATHS, links=st.dictionaries(PLACES, TARGETS, max_size=4), inside=st.booleans())
def test_nothing_outside_of_the_root_is_ever_touched(path: str, links: dict[str, str], inside: bool) -> None:
    with world(links) as top:
        given_path = f"{top}/project/{path}" if inside else path
        before = everything_below(top)
        workspace = Workspace(top / "project", ripgrep=None)
        tools = {each.name: each for each in workspace.tools("read", "write", "edit", "ls", "glob", "grep")}
        said = [
            outcome(lambda: tools["read"](path=given_path)),
            outcome(lambda: tools["edit"](path=given_path, old_text="secret", new_text="stolen")),
            outcome(lambda: tools["ls"](path=given_path, depth=3)),
            outcome(lambda: tools["glob"](pattern="**", path=given_path)),
            outcome(lambda: tools["grep"](pattern="secr", path=given_path)),
            outcome(lambda: tools["write"](path=given_path, content="stolen")),
        ]
        assert not any("1\tsecret" in each or "1:secret" in each for each in said)
        is_named = any("secret.txt" in each for each in (given_path, *links.values()))  # so that it may be said
        assert is_named or not any("secret.txt" in each for each in said)
        after = everything_below(top)
        changed = {name for name in before.keys() | after.keys() if before.get(name, ...) != after.get(name, ...)}
        assert all(name.startswith(f"{top}/project/") for name in changed)


def outcome(act: object) -> str:
    assert callable(act)
    try:
        return str(act())
    except (ToolRefused, OSError) as error:
        return str(error)


@given(path=PATHS, links=st.dictionaries(PLACES, TARGETS, max_size=4))
def test_a_located_path_is_inside_of_the_root_once_its_links_are_followed(path: str, links: dict[str, str]) -> None:
    with world(links) as top:
        try:
            located = Workspace(top / "project").locate(path)
        except ToolRefused:
            return
        assert Path(os.path.realpath(located)).is_relative_to(top / "project")

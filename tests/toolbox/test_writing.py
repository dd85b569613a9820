"""The tools `write` and `edit` on files: what must have been read, and what is kept."""

import os
import stat
from pathlib import Path

import pytest

from journeyman.toolbox import ToolRefused, Workspace
from tests.support.room import no_room
from tests.toolbox.player import Player


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_new_file_is_written_with_its_folders_and_can_be_changed_at_once(player: Player, folder: Path) -> None:
    assert await player.text("write", path="a/b/c.txt", content="one\n") == "Created a/b/c.txt: 1 line, 4 bytes."
    for old, new in (("one", "two"), ("two", "three")):
        text = await player.text("edit", path="a/b/c.txt", old_text=old, new_text=new)
        assert text == "Edited a/b/c.txt: 1 place, at line 1."
    assert await player.text("write", path="a/b/c.txt", content="four") == "Wrote a/b/c.txt: 1 line, 4 bytes."
    assert (folder / "a/b/c.txt").read_text() == "four"


@pytest.mark.parametrize("change", [{"content": "new"}, {"old_text": "old", "new_text": "new"}])
async def test_a_file_must_be_read_before_it_is_changed(player: Player, folder: Path, change: dict[str, str]) -> None:
    name, path = "write" if "content" in change else "edit", folder / "a.txt"

    async def why_not() -> str:
        return await player.refused(name, path="a.txt", **change)

    path.write_text("old\n" * 3000)
    assert await why_not() == "a.txt has not been read. Read it before you change it."
    await player.text("read", path="a.txt")
    part = "You have read only a part of a.txt. Read lines 2001 to 3000 too, with offset=2001, before you change it."
    assert await why_not() == part
    await player.text("read", path="a.txt", offset=2001)
    path.write_text("old\n")
    assert await why_not() == "a.txt has changed since you read it. Read it again, then change it."
    await player.text("read", path="a.txt")
    os.utime(path, (1, 1))  # touched, but not changed
    assert await player.text(name, path="a.txt", **change)


async def test_a_refusal_has_a_label_for_programs(folder: Path) -> None:
    (folder / "a.txt").write_text("old\n")
    (write,) = Workspace(folder).tools("write")
    with pytest.raises(ToolRefused) as refused:
        write(path="a.txt", content="new")
    assert refused.value.kind == "not_read"


async def test_mode_and_link_are_kept(player: Player, folder: Path) -> None:
    (folder / "script.sh").write_text("#!/bin/sh\n")
    (folder / "script.sh").chmod(0o754)
    (folder / "link.sh").symlink_to("script.sh")
    await player.text("read", path="link.sh")
    await player.text("write", path="link.sh", content="#!/bin/bash\n")
    assert (folder / "link.sh").is_symlink()
    assert (folder / "script.sh").read_text() == "#!/bin/bash\n"
    assert stat.S_IMODE((folder / "script.sh").stat().st_mode) == 0o754
    assert names_in(folder) == ["link.sh", "script.sh"]
    (folder / "link").symlink_to("later.txt")  # leads to nothing yet
    await player.text("write", path="link", content="here")
    assert ((folder / "later.txt").read_text(), (folder / "link").is_symlink()) == ("here", True)


async def test_a_file_that_cannot_be_replaced_stays_as_it_is_with_nothing_beside_it(
    player: Player, folder: Path
) -> None:
    (folder / "a.txt").mkdir()
    assert "is not a regular file" in await player.refused("write", path="a.txt", content="x")
    (folder / "file").write_text("x")
    assert "Not a directory" in await player.refused("write", path="file/a.txt", content="x")
    (folder / "old.txt").write_text("old")
    await player.text("read", path="old.txt")
    for names in (["a.txt", "file", "old.txt"], ["a.txt", "file", "old.txt", "other.txt"]):
        with no_room(folder):
            text = await player.refused("write", path="old.txt", content="new" * 50_000)
        assert "File too large" in text
        assert (folder / "old.txt").read_text() == "old"
        assert names_in(folder) == names
        if "other.txt" not in names:  # a file with several names is written in its place
            (folder / "other.txt").hardlink_to(folder / "old.txt")


@pytest.mark.parametrize("name", ["write", "edit"])
async def test_a_file_keeps_its_other_names(player: Player, folder: Path, name: str) -> None:
    (folder / "one.txt").write_text("old text that is long\n")
    (folder / "two.txt").hardlink_to(folder / "one.txt")
    await player.text("read", path="one.txt")
    if name == "write":
        await player.text("write", path="one.txt", content="new\n")
    else:
        await player.text("edit", path="one.txt", old_text="old text that is long", new_text="new")
    assert (folder / "two.txt").read_text() == "new\n"
    assert (folder / "one.txt").samefile(folder / "two.txt")


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffb\n", b"\xef\xbb\xbfb\n"),
        ("a\n".encode("utf-16"), "ü\n", "ü\n".encode("utf-16")),
        (b"a\r\nb\r\n", "a\nc\nb\n", b"a\r\nc\r\nb\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nx\nc\n", b"a\r\nb\nx\r\nc\r\n"),
        (b"a\r\n", "a\r\nb\n", b"a\r\nb\n"),
    ],
)
async def test_byte_order_mark_encoding_and_line_endings_are_kept(
    player: Player, folder: Path, before: bytes, content: str, after: bytes
) -> None:
    (folder / "a.txt").write_bytes(before)
    await player.text("read", path="a.txt")
    await player.text("write", path="a.txt", content=content)
    assert (folder / "a.txt").read_bytes() == after

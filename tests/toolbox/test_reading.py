"""The tool `read`: numbered lines, long files in parts, pictures, folders, and what is no text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman import Image, Text
from tests.toolbox.playing import Player

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


async def test_lines_come_with_their_numbers(player: Player, folder: Path) -> None:
    (folder / "a.py").write_bytes(b"one\r\n\n\tthree\nfour")
    assert await player.text("read", path="a.py") == "1\tone\n2\t\n3\t\tthree\n4\tfour"
    assert await player.text("read", path=str(folder / "a.py"), offset=2, limit=2) == (
        "2\t\n3\t\tthree\n[Lines 2 to 3 of 4. Go on with offset=4.]"
    )


async def test_a_long_file_is_cut_after_two_thousand_lines_with_a_note_on_how_to_go_on(
    player: Player, folder: Path
) -> None:
    (folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 2502)))
    lines = (await player.text("read", path="long.txt")).split("\n")
    assert len(lines) == 2001
    assert lines[-2:] == ["2000\tline 2000", "[Lines 1 to 2,000 of 2,501. Go on with offset=2001.]"]
    assert (await player.text("read", path="long.txt", offset=2001)).endswith("2501\tline 2501")


async def test_a_wide_file_is_cut_after_fifty_kilobytes(player: Player, folder: Path) -> None:
    (folder / "wide.txt").write_text(("x" * 1000 + "\n") * 100)
    text = await player.text("read", path="wide.txt")
    assert len(text) < 51_300
    assert text.split("\n")[-1] == "[Lines 1 to 51 of 100. Go on with offset=52.]"


async def test_a_long_line_is_cut(player: Player, folder: Path) -> None:
    (folder / "min.js").write_text("x" * 2_345)
    assert await player.text("read", path="min.js") == "1\t" + "x" * 2000 + " [345 more characters]"


async def test_an_empty_file_says_so(player: Player, folder: Path) -> None:
    (folder / "empty").touch()
    assert await player.text("read", path="empty") == "[empty is empty.]"


async def test_a_line_past_the_end_is_an_error_with_the_length(player: Player, folder: Path) -> None:
    (folder / "a.txt").write_text("1\n2\n")
    assert await player.refused("read", path="a.txt", offset=3) == "a.txt has 2 lines, so there is no line 3."
    assert "offset: should be greater than or equal to 1" in await player.refused("read", path="a.txt", offset=0)


async def test_a_folder_is_listed(player: Player, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "b.txt").touch()
    assert await player.text("read", path=".") == "src/\nb.txt"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x04\x00\x00\x00WEBP", "image/webp"),
    ],
)
async def test_a_picture_is_shown_by_its_content(player: Player, folder: Path, data: bytes, media_type: str) -> None:
    (folder / "picture.dat").write_bytes(data)
    result = await player.result("read", path="picture.dat")
    assert result.content == (Text(f"picture.dat: {media_type}, {len(data)} bytes"), Image.from_bytes(data, media_type))


async def test_a_picture_too_large_for_providers_is_refused(player: Player, folder: Path) -> None:
    (folder / "big.png").write_bytes(PNG + bytes(3_750_000))
    assert "is a picture of 3,750,028 bytes; at most 3,750,000" in await player.refused("read", path="big.png")


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x00\x00", b"abc\x00def", bytes(range(1, 9)) * 20])
async def test_what_is_no_text_is_refused_by_its_content(player: Player, folder: Path, data: bytes) -> None:
    (folder / "data.txt").write_bytes(data)
    text = await player.refused("read", path="data.txt")
    assert text == f"data.txt is no text but binary data ({len(data)} bytes)."


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
async def test_byte_order_marks_are_read_and_not_shown(player: Player, folder: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    (folder / "a.txt").write_bytes((mark + "grün\n").encode(encoding))
    assert await player.text("read", path="a.txt") == "1\tgrün"


async def test_bytes_that_are_no_utf_8_are_shown_as_replaced(player: Player, folder: Path) -> None:
    (folder / "old.txt").write_bytes(b"gr\xfcn\n")
    assert await player.text("read", path="old.txt") == "1\tgr\ufffdn"


async def test_a_missing_file_suggests_similar_names(player: Player, folder: Path) -> None:
    (folder / "src").mkdir()
    for name in ("handler.py", "Handlers.py", "zebra.py"):
        (folder / "src" / name).touch()
    text = await player.refused("read", path="src/handlers.py")
    assert text == "src/handlers.py does not exist. Did you mean src/Handlers.py or src/handler.py?"
    assert await player.refused("read", path="zzz") == "zzz does not exist."
    assert await player.refused("read", path="none/a.py") == "none/a.py does not exist. Nor does the folder none."


async def test_a_pipe_is_refused_and_does_not_hang(player: Player, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "is not a regular file" in await player.refused("read", path="pipe")

"""The tool `read`: numbered lines, long files in parts, pictures, folders, and what is no text."""

import os
from pathlib import Path

import pytest

from journeyman import Image, Text
from journeyman.types import Base64
from tests.toolbox.player import Player

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
BINARY = (b"\x7fELF\x02\x01\x00\x00", b"abc\x00def", bytes(range(1, 9)) * 20)
LARGE = "a picture of 3,750,028 bytes; at most 3,750,000 can be shown. Make it smaller first."


LINES, REST = b"one\r\n\n\tthree\nfour", "[Lines 2 to 3 of 4. Go on with offset=4.]"


@pytest.mark.parametrize(
    ("data", "part", "text"),
    [
        pytest.param(LINES, {}, "1\tone\n2\t\n3\t\tthree\n4\tfour", id="lines come with their numbers"),
        pytest.param(LINES, {"offset": 2, "limit": 2}, f"2\t\n3\t\tthree\n{REST}", id="a part says how to go on"),
        pytest.param(b"x" * 2_345, {}, "1\t" + "x" * 2000 + " [345 more characters]", id="a long line is cut"),
        pytest.param(b"", {}, "[a.txt is empty.]", id="an empty file says so"),
        pytest.param(b"gr\xfcn\n", {}, "1\tgr\ufffdn", id="bytes that are no UTF-8 are shown as replaced"),
        # byte order marks are read and not shown
        *((("\ufeffgrün\n").encode(encoding), {}, "1\tgrün") for encoding in ("utf-8", "utf-16-le", "utf-16-be")),
    ],
)
async def test_a_file_is_shown(player: Player, folder: Path, data: bytes, part: dict[str, object], text: str) -> None:
    (folder / "a.txt").write_bytes(data)
    assert await player.text("read", path="a.txt", **part) == text
    assert await player.text("read", path=str(folder / "a.txt"), **part) == text


async def test_a_long_file_is_cut_with_a_note_on_how_to_go_on(player: Player, folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 2502)))
    lines = (await player.text("read", path="long.txt")).split("\n")
    assert len(lines) == 2001
    assert lines[-2:] == ["2000\tline 2000", "[Lines 1 to 2,000 of 2,501. Go on with offset=2001.]"]
    assert (await player.text("read", path="long.txt", offset=2001)).endswith("2501\tline 2501")
    (folder / "wide.txt").write_text(("x" * 1000 + "\n") * 100)
    text = await player.text("read", path="wide.txt")
    assert len(text) < 51_300
    assert text.split("\n")[-1] == "[Lines 1 to 51 of 100. Go on with offset=52.]"


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
    assert result.content == (Text(f"picture.dat: {media_type}, {len(data)} bytes"), Image(Base64.of(data, media_type)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        *((data, f"not a text but binary data ({len(data)} bytes).") for data in BINARY),
        pytest.param(PNG + bytes(3_750_000), LARGE, id="a picture too large for providers"),
    ],
)
async def test_what_cannot_be_shown_is_refused_by_its_content(
    player: Player, folder: Path, data: bytes, why: str
) -> None:
    (folder / "data.txt").write_bytes(data)
    assert await player.refused("read", path="data.txt") == f"data.txt is {why}"


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

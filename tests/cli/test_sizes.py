"""Nothing and one are sizes, too: of a terminal, of a file that is about to be written, and of a change in one."""

import os
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size

from journeyman.cli.chat.terminal import usable_size
from journeyman.cli.permit.asked import whole
from journeyman.events import ApprovalRequested


@pytest.mark.parametrize(
    ("columns", "rows", "size"),
    [(0, 0, Size(24, 80)), (1, 1, Size(1, 1)), (0, 50, Size(50, 80)), (120, 0, Size(24, 120))],
)
def test_a_terminal_that_does_not_know_its_size_has_the_usual_one(columns: int, rows: int, size: Size) -> None:
    assert usable_size(os.terminal_size((columns, rows))) == size


@pytest.mark.parametrize(
    ("content", "size"),
    [("", "0 bytes, 0 lines"), ("a", "1 byte, 1 line"), ("a\n", "2 bytes, 1 line"), ("\n", "1 byte, 1 line")],
)
def test_what_a_file_will_hold_is_counted_in_bytes_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, size: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_text("ab")
    for name, how in (("new", f"a new file of {size}"), ("old", f"replaces 2 bytes with {size}")):
        assert next(whole(asks("write", path=name, content=content))).text == f"writes {name} · {how}"


def asks(tool: str, **arguments: Any) -> ApprovalRequested:
    call: dict[str, Any] = {"tool_use_id": "1", "tool_name": tool, "arguments": arguments, "question_id": "d"}
    return ApprovalRequested(path=("a",), id="1", question="May it?", offers=("once",), **call)


NINE = "".join(f"line {number}\n" for number in range(1, 10))
AROUND_5 = [
    "@@ line 5 @@",
    "  line 2",
    "  line 3",
    "  line 4",
    "- line 5",
    "+ five",
    "  line 6",
    "  line 7",
    "  line 8",
]
MANY = "".join(f"{number}\n" for number in range(500))


@pytest.mark.parametrize(
    ("text", "change", "rows"),
    [
        (NINE, ("line 5", "five"), AROUND_5),
        (NINE.replace("\n", "\r\n"), ("line 5", "five"), AROUND_5),
        ("a", ("a", ""), ["@@ line 1 @@", "- a", "+ "]),
        ("a\nb\nc", ("b\n", ""), ["@@ line 2 @@", "  a", "- b", "  c"]),
        ("a\nb\nc", ("c", "d\ne"), ["@@ line 3 @@", "  a", "  b", "- c", "+ d", "+ e"]),
        ("a a", ("a", "b"), ["@@ line 1 @@", "- a a", "+ b a", "and at 1 other place: it must be unique"]),
        ("b", ("a\nb", "a\nc"), ["@@ where it is could not be told @@", "  a", "- b", "+ c"]),
        (MANY, (MANY, "0\n"), ["@@ line 1 @@", *(f"- {row}" for row in MANY.split("\n")), "+ 0", "+ "]),
    ],
)
def test_a_change_is_shown_with_the_lines_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, change: tuple[str, str], rows: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(text.encode())
    title, *shown = whole(asks("edit", path="file", old_text=change[0], new_text=change[1]))
    assert (title.text, [row.text for row in shown]) == ("edits file", rows)


def test_of_a_change_at_many_places_a_few_are_shown_and_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x\n" * 500_000)
    rows = [row.text for row in whole(asks("edit", path="file", old_text="x", new_text="y", replace_all=True))]
    assert [row for row in rows if row[:2] not in ("  ", "+ ", "- ")] == [
        "edits file",
        *(f"@@ line {number} @@" for number in (1, 2, 3)),
        "and at 499,997 other places",
    ]
    assert rows.count("- x") == rows.count("+ y") == 3

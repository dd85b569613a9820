"""Nothing and one are sizes, too: of a terminal, and of a file that is about to be written."""

import os
from pathlib import Path

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
        asked = ApprovalRequested(
            path=("a",),
            id="1",
            question="May it?",
            tool_use_id="1",
            tool_name="write",
            arguments={"path": name, "content": content},
            question_id="d",
            offers=("once",),
        )
        assert next(whole(asked)).text == f"writes {name} · {how}"

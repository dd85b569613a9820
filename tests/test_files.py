"""Files that are written whole: what is left of a write that fails."""

from pathlib import Path

import pytest

from journeyman.machine.files import replace_file
from tests.support.room import no_room


def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pins.json").write_bytes(b"old" * 1_000)
    (tmp_path / "folder").mkdir()
    with no_room(tmp_path), pytest.raises(OSError, match="File too large"):
        replace_file(tmp_path / "pins.json", b"new" * 50_000, mode=0o600)
    with pytest.raises(OSError, match="Is a directory"):
        replace_file(tmp_path / "folder", b"new", mode=0o600)
    assert (tmp_path / "pins.json").read_bytes() == b"old" * 1_000
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "pins.json"]

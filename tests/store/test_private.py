"""A store is its owner's: so is every folder that is made for it, and one that others may write to is not opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.errors import StoreError
from journeyman.store import Store


@pytest.fixture(autouse=True)
def wide_open() -> Iterator[None]:
    """Let the system take away no permission by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_that_is_made_for_a_store_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "a" / "b" / "c" / "chats.db"
    Store(path).close()
    assert [mode_of(each) for each in (path, *path.parents[:4])] == [0o600, 0o700, 0o700, 0o700, 0o755]


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602, 0o777])
def test_a_store_that_others_may_write_to_is_refused_with_how_to_repair_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "my chats.db"
    Store(path).close()
    path.chmod(mode)
    with pytest.raises(StoreError) as raised:
        Store(path)
    assert f"may be written by others (mode {mode:o})" in str(raised.value)
    assert raised.value.hint == f"If you trust what is in it: chmod 600 '{path}'. Else use another file."
    path.chmod(0o600)
    Store(path).close()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_a_store_that_others_may_only_read_is_opened(tmp_path: Path, mode: int) -> None:
    Store(tmp_path / "chats.db").close()
    (tmp_path / "chats.db").chmod(mode)
    Store(tmp_path / "chats.db").close()

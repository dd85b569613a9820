"""What one statement writes is in the file or is not, and what goes wrong is told as for a transaction."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman.errors import StoreError
from journeyman.store.file import Damaged, File

_ADD = "INSERT INTO jm_conversation VALUES (hex(randomblob(4)), 1, '', 0, 0.0, 1, ?, 0)"


def n_records(path: Path) -> int:
    other = File(path)
    try:
        return other.rows("SELECT count(*) FROM jm_conversation")[0][0]
    finally:
        other.close()


def test_what_a_statement_has_written_others_see_at_once(path: Path) -> None:
    file = File(path)
    assert file.write(_ADD, (b"x",)) == 1
    assert n_records(path) == 1
    assert file.write("DELETE FROM jm_conversation WHERE session = 'unknown'", ()) == 0
    file.close()


_WORKS: list[Callable[[File], object]] = [
    lambda file: file.write(_ADD, (b"x",)),
    lambda file: file.rows("SELECT * FROM jm_conversation"),
]


@pytest.mark.parametrize("work", _WORKS)
def test_a_statement_that_meets_damage_notes_it(path: Path, work: Callable[[File], object]) -> None:
    # K21
    File(path).close()
    schema = path.read_bytes()[: 2 * 4_096]  # the pages of its root
    path.write_bytes(schema + b"\xff" * (path.stat().st_size - len(schema)))
    file = File(path)
    try:
        with pytest.raises(Damaged):
            work(file)
        assert file.is_damaged
    finally:
        file.close()


def _moved(path: Path) -> None:
    path.rename(path.with_name("aside.db"))


def _removed(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    _moved(path)
    other = path.with_name("other.db")
    File(other).close()
    other.rename(path)


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be moved")
@pytest.mark.parametrize("take_away", [_moved, _removed, _replaced])
def test_nothing_is_written_to_a_file_that_others_do_not_find(path: Path, take_away: Callable[[Path], None]) -> None:
    file = File(path)
    file.write(_ADD, (b"x",))
    take_away(path)
    with pytest.raises(StoreError, match="was moved, removed or replaced while it was open") as caught:
        file.write(_ADD, (b"y",))
    with pytest.raises(StoreError, match="was moved"), file.transaction() as connection:
        connection.execute(_ADD, (b"z",))
    with pytest.raises(StoreError, match="was moved"), file.synced_transaction():
        file.attempt([lambda connection: connection.execute(_ADD, (b"z",))])
    assert (caught.value.may_pass, caught.value.is_busy) == (False, False)
    assert file.rows("SELECT body FROM jm_conversation") == [(b"x",)]
    file.close()


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be moved")
def test_no_new_store_begins_beside_the_log_of_one_that_was_taken_away(path: Path) -> None:
    file = File(path)
    file.write(_ADD, (b"x",))
    _moved(path)
    file.close()
    with pytest.raises(StoreError, match="is not there, but its log is"):
        File(path)
    path.with_name("aside.db").rename(path)
    assert n_records(path) == 1

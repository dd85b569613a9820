"""The repair of a damaged store: it is put aside as it is, and what can be read of it goes into a new one.

SQLite gives up at the first damaged page, so the rows are read around such pages. Each session then has the records up
to the first whose checksum is wrong.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from journeyman.errors import StoreError, name_and_words
from journeyman.store.file import (
    APPLICATION,
    BUSY_S,
    MAGIC,
    STORE,
    Damaged,
    File,
    FileKind,
    check_free,
    file_tables,
    not_a_store,
)
from journeyman.store.log import SessionRecord, readable_records, sound_records

_log = logging.getLogger("journeyman")
_Found: TypeAlias = dict[str, dict[int, tuple[Any, ...]]]
"""For each table its rows, by their numbers."""

_WAL: Final = ("-wal", "-shm")
# SQLite's own size of a page, with which every store was made.
_PAGE: Final = 4096
_UNKNOWN_ROWS: Final = 100_000
"""How far to look for rows when their number cannot be read."""


_KINDS: Final[Mapping[str, type]] = {"INTEGER": int, "REAL": float, "TEXT": str, "BLOB": bytes}


@cache
def _columns() -> Mapping[str, Mapping[str, tuple[type, ...]]]:
    """Return the columns of each table with numbered rows, except its key: each with the types that a sound value
    has."""
    found: dict[str, dict[str, tuple[type, ...]]] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(file_tables())
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            if any(name == "n" for _, name, *_ in columns):
                found[table] = {
                    name: (_KINDS[kind], *(() if needed else (type(None),)))
                    for _, name, kind, needed, _, is_key in columns
                    if not is_key
                }
    return found


class StoreRepaired(UserWarning):
    """A store was damaged. A new store with everything that could be read took its place; the damaged file is kept
    beside it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


def open_or_repair(path: Path, *, busy_s: float = BUSY_S, kind: FileKind = STORE) -> tuple[File, str | None]:
    """Open the file at `path`, repaired if it is damaged; then say what was repaired, with a `StoreRepaired` warning.

    Raises:
        StoreError: as `File` and `repair` do.
    """
    try:
        return File(path, busy_s=busy_s, kind=kind), None
    except Damaged:
        notice = repair(path, kind)
    warnings.warn(StoreRepaired(notice), stacklevel=3)
    return File(path, busy_s=busy_s, kind=kind), notice


def repair_on_close(path: Path, kind: FileKind = STORE) -> str | None:
    """Repair a file that turned out to be damaged as it is closed, and return what was said about it. None: it cannot
    be done now, which is logged; whoever opens it next does it."""
    try:
        notice = repair(path, kind)
    except (StoreError, OSError) as error:
        _log.warning("%s is damaged, and could not be repaired as it was closed: %s", path, name_and_words(error))
        return None
    warnings.warn(StoreRepaired(notice), stacklevel=3)
    return notice


def repair(path: Path, kind: FileKind = STORE) -> str:
    """Put a damaged file aside. What can be read of a store goes into a new one; recordings begin again. Return what to
    say about it.

    Raises:
        StoreError: it is no store, or it is open somewhere.
    """
    if kind is STORE:
        return _rescue(path)
    aside = _put_aside(path)
    return f"{path} was damaged, so recordings begin again; runs and chats go on. The damaged file is kept as {aside}."


def _rescue(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(100)
    # At byte 68 of its head, an SQLite file tells the program that it belongs to.
    if head[68:72] != APPLICATION.to_bytes(4, "big") and (len(head) >= 72 or not head.startswith(MAGIC)):
        raise not_a_store(path)
    aside = _put_aside(path)
    # Beside the store: the copies are as large as it is, and as private.
    with TemporaryDirectory(prefix=".rescue-", dir=path.parent) as folder:
        found = _find_rows(aside, Path(folder))
    n_records, n_lost = _write_store(path, found)
    lost = f", and {n_lost} left out that are damaged or behind such" if n_lost else ""
    recovered = "1 record was" if n_records == 1 else f"{n_records} records were"
    return f"{path} was damaged. {recovered} recovered{lost}. The damaged file is kept as {aside}."


def _put_aside(path: Path) -> Path:
    """Give a damaged file another name, and return that.

    Raises:
        StoreError: it is open somewhere.
    """
    # Whoever has it open would write on into the file that is put aside.
    check_free(path, what=f"The damaged store {path}")
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not name.exists())
    # The log goes with it: SQLite would take a log that it finds beside a new file for that file's own.
    for suffix in ("", *_WAL):
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.replace(aside.with_name(aside.name + suffix))
    return aside


def is_readable(path: Path) -> bool:
    """Tell whether no damage is found in a file."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def _find_rows(aside: Path, folder: Path) -> _Found:
    """Return the rows that can be read: from copies, since to read may be to write."""
    found: _Found = {table: {} for table in _columns()}
    for number in (0, 1):  # as it is, and with the first page of a new store
        copy = folder / f"copy-{number}"
        # Not the index of the log, which SQLite makes again from the log itself.
        for suffix in ("", "-wal"):
            if aside.with_name(aside.name + suffix).exists():
                shutil.copyfile(aside.with_name(aside.name + suffix), copy.with_name(copy.name + suffix))
        if number:
            _give_head(copy, folder / "model")
        with closing(sqlite3.connect(copy)) as connection:
            for table, rows in found.items():
                rows |= {n: row for n, row in _rows_of_table(connection, table) if n not in rows}
    return found


def _give_head(copy: Path, model: Path) -> None:
    """Replace the first page, and what else says where the tables are, by those of a new store: they are always
    there."""
    File(model).close()
    with closing(sqlite3.connect(model)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # all of it is in the file then
    whole, size = model.read_bytes(), copy.stat().st_size
    pages = {1}
    if whole[100] == 5:  # what says where the tables are goes on in other pages, whose numbers are on the first
        # The places in a page are those of SQLite's file format: the cells begin behind a head of 12 bytes, which
        # stands behind the 100 bytes of the file's.
        n_cells = int.from_bytes(whole[103:105], "big")
        cells = [int.from_bytes(whole[at : at + 2], "big") for at in range(112, 112 + 2 * n_cells, 2)]
        pages |= {int.from_bytes(whole[at : at + 4], "big") for at in (108, *cells)}
    with copy.open("r+b") as file:
        for number in pages:
            page = bytearray(whole[(number - 1) * _PAGE : number * _PAGE])
            if number == 1:
                # How many pages the file has: SQLite takes a wrong number for damage.
                page[28:32] = struct.pack(">I", size // _PAGE)
            start = (number - 1) * _PAGE
            file.seek(start)
            file.write(page[: max(0, size - start)])


def _rows_of_table(connection: sqlite3.Connection, table: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Give the rows of a table. Where a page is damaged, look further on."""
    try:
        # Not by an index, which may be damaged where the rows are not.
        last = connection.execute(f"SELECT max(rowid) FROM {table} NOT INDEXED").fetchone()[0] or 0
    except (sqlite3.Error, UnicodeDecodeError):
        last = _UNKNOWN_ROWS
    columns = ", ".join(("rowid", *_columns()[table]))
    query = f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid > ? AND rowid < ? ORDER BY rowid"
    end, sound, after, jump = last + 1, 0, 0, 1
    while after < last:
        try:
            for n, *row in connection.execute(query, (after, end)):
                if jump > 1:
                    yield from _back(connection, table, query, (sound, n))
                sound, after, jump = n, n, 1
                if all(map(isinstance, row, _columns()[table].values())):
                    yield n, tuple(row)
            break
        except (sqlite3.Error, OverflowError, UnicodeDecodeError):
            # A damaged page may have held any number of rows: further and further on, and then back from behind.
            after, jump = after + jump, jump * 2
    if jump > 1:
        yield from _back(connection, table, query, (sound, after + 1))


def _back(
    connection: sqlite3.Connection, table: str, query: str, between: tuple[int, int]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Give the rows behind a damaged page that a jump has left out, from the last one back to that page."""
    try:
        for n, *row in connection.execute(f"{query} DESC", between):
            if all(map(isinstance, row, _columns()[table].values())):
                yield n, tuple(row)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError):
        return


def _write_store(path: Path, found: _Found) -> tuple[int, int]:
    """Write what is sound into a new store. Return how many records that were, and how many are lost."""
    records = dict(enumerate(_sound_records(found), 1))
    written = {row[0] for row in records.values()}
    heads = {n: row for n, row in found["jm_sessions"].items() if row[0] in written}
    # The conversation of a run by itself has no other head.
    missing = written - {row[0] for row in (*heads.values(), *found["jm_runs"].values())}
    tables = {
        "jm_sessions": heads,
        "jm_conversation": records,
        "jm_runs": {n: _blocked(row) for n, row in found["jm_runs"].items()},
        "jm_steps": found["jm_steps"],  # who reads them checks them
        "jm_signals": found["jm_signals"],
    }
    with closing(File(path)) as new, new.transaction() as connection:
        for table, rows in tables.items():
            names, marks = ", ".join(_columns()[table]), ", ".join("?" * (1 + len(_columns()[table])))
            statement = f"INSERT INTO {table} (rowid, {names}) VALUES ({marks})"
            connection.executemany(statement, [(n, *row) for n, row in rows.items()])
        for session in sorted(missing):
            began = min(row[4] for row in records.values() if row[0] == session)
            statement = "INSERT INTO jm_sessions (id, agent, created, parent) VALUES (?, '', ?, NULL)"
            connection.execute(statement, (session, began))
    return len(records), len(found["jm_conversation"]) - len(records)


def _blocked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a durable run as it stands after a repair: nobody knows whether all of its steps could be read, so one
    that is not over goes on only when somebody says so."""
    fields = dict(zip(_columns()["jm_runs"], row, strict=True))
    if fields["status"] not in ("done", "failed"):
        why = "the store was damaged, and steps of this run may be lost: look at what it has done, then resume it"
        fields |= {"status": "blocked", "owner": None, "why": why}
    return tuple(fields.values())


def _sound_records(found: _Found) -> Iterator[SessionRecord]:
    sessions: dict[str, list[SessionRecord]] = {}
    for row in found["jm_conversation"].values():
        sessions.setdefault(row[0], []).append(SessionRecord(*row))
    for session, records in sessions.items():
        records.sort(key=lambda record: record.n)
        try:
            yield from readable_records(records, session)[0]
        except StoreError:  # another version has written some, and can read them
            yield from sound_records(records)

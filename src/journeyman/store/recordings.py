"""The tables of recordings, and what a repair does with them.

Each row stands for itself, so a damaged page costs only what was on it. Pieces are checked by their digests; of what
was told of a recording whose own row is lost, another row is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from secrets import token_bytes
from sqlite3 import Connection, Error, connect
from typing import Any, Final, TypeAlias

from journeyman.files import read_text
from journeyman.journal import new_id
from journeyman.store.codec import DamagedValue, unpack

_Rows: TypeAlias = dict[int, tuple[Any, ...]]

FORMAT: Final = 1
"""The version of these tables. A newer one is neither read nor written."""

_KINDS: Final[Mapping[str, type]] = {"INTEGER": int, "REAL": float, "TEXT": str, "BLOB": bytes}
_WHY: Final = "the store was damaged, and what it was is lost, except what is shown"


def tables() -> str:
    """Return the statements that make these tables, as SQLite reads them."""
    return read_text("journeyman.store", "recordings.sql")


@cache
def columns_of(statements: str) -> Mapping[str, Mapping[str, tuple[type, ...]]]:
    """Return the columns of each table with numbered rows that these statements make, except its key: each with the
    types that a sound value has."""
    found: dict[str, dict[str, tuple[type, ...]]] = {}
    with closing(connect(":memory:")) as connection:
        connection.executescript(statements)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            if any(name == "n" for _, name, *_ in columns):
                found[table] = {
                    name: (_KINDS[kind], *(() if needed else (type(None),)))
                    for _, name, kind, needed, _, is_key in columns
                    if not is_key
                }
    return found


def digest_of(piece: bytes, key: bytes) -> int:
    """Return what a piece is found by in a store. `key` is the store's own and secret, so that nobody can make two
    texts of which one is taken for the other."""
    # With a sign, as the integers of both databases have one.
    return int.from_bytes(blake2b(piece, digest_size=8, key=key).digest(), "big", signed=True)


def unpack_piece(stored: bytes | None) -> bytes | None:
    """Return a piece from what is stored of it; None: it was not kept, or is damaged."""
    try:
        return None if stored is None else unpack(stored)
    except DamagedValue:  # which SQLite does not see
        return None


def unpacked(data: bytes) -> list[int]:
    """Return what was packed."""
    steps: list[int] = []
    rest = shift = 0
    for byte in data:
        rest |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            steps.append(-((rest + 1) >> 1) if rest & 1 else rest >> 1)
            rest = shift = 0
    return [*accumulate(steps)]


# -- after damage ------------------------------------------------------------------------------------------------------


def key_of(connection: Connection) -> bytes | None:
    """Return the key of the digests; None: it cannot be read."""
    try:
        row = connection.execute("SELECT key FROM rec_format").fetchone()
    except (Error, UnicodeDecodeError):
        return None
    return row[0] if row and isinstance(row[0], bytes) else None


def restore(connection: Connection, found: dict[str, _Rows], key: bytes | None) -> int:
    """Write the rows that were found into a store without recordings. Return how many recordings these are."""
    columns = columns_of(tables())
    if not any(found[table] for table in columns):
        return 0
    for statement in filter(str.strip, tables().split(";")):
        connection.execute(statement)
    connection.execute("DELETE FROM rec_format")
    new_key = key or token_bytes(16)
    connection.execute("INSERT INTO rec_format VALUES (?, ?)", (FORMAT, new_key))
    pieces = {n: row for n, row in found["rec_pieces"].items() if key is None or _is_sound(row, key)}
    # Without the old key nothing can be checked, and other recordings find pieces by the new one.
    if key is None:
        for n, (run, digest, size, body) in pieces.items():
            whole = unpack_piece(body)
            pieces[n] = run, digest if whole is None else digest_of(whole, new_key), size, body
    told = dict(_runs(found))
    written = {**{table: found[table] for table in columns}, "rec_runs": told, "rec_pieces": pieces}
    for table, rows in written.items():
        names, marks = ", ".join(columns[table]), ", ".join("?" * (1 + len(columns[table])))
        # Damage may show a row twice, in an old page and in a new one: the first counts.
        statement = f"INSERT OR IGNORE INTO {table} (n, {names}) VALUES ({marks})"
        connection.executemany(statement, [(n, *row) for n, row in rows.items()])
    connection.executemany("INSERT OR IGNORE INTO rec_shared VALUES (?, ?)", _shared(found, pieces))
    return len(told)


def _is_sound(row: Sequence[Any], key: bytes) -> bool:
    _, digest, size, body = row
    if body is None:
        return True
    whole = unpack_piece(body)
    return whole is not None and len(whole) == size and digest_of(whole, key) == digest


def _runs(found: dict[str, _Rows]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Give the recordings, and one for each of which only events or requests are left."""
    known = found["rec_runs"]
    yield from known.items()
    left: dict[int, list[tuple[float, str]]] = {}
    for table in ("rec_events", "rec_requests"):
        for run, at, path, *_ in found[table].values():
            if run not in known:
                left.setdefault(run, []).append((at, path))
    for run, told in left.items():
        (began, path), (seen, _) = min(told), max(told)
        # Nothing else is left of it: the path of its first event begins with the agent's name.
        agent = path.partition("/")[0]
        head = (new_id(began), "run", agent, "", "", "", 1, began, seen, None, "live", None)
        yield run, (*head, *[0] * 7, None, 0, 0, _WHY)


def _shared(found: dict[str, _Rows], pieces: _Rows) -> Iterator[tuple[int, int]]:
    """Give the pieces that recordings use and others own, with who uses them."""
    for row in found["rec_events"].values():
        yield from _used(row[0], row[9], pieces)
    for row in found["rec_requests"].values():
        yield from _used(row[0], row[12], pieces)
        try:
            n_first, *numbers = unpacked(row[10]) or [0]
        except IndexError:
            continue
        of_others = {row[7], *numbers[:n_first], *numbers[n_first + 1 :]}
        yield from ((n, row[0]) for n in of_others if n in pieces and pieces[n][0] != row[0])


def _used(run: int, refs: bytes | None, pieces: _Rows) -> Iterator[tuple[int, int]]:
    numbers = unpacked(refs or b"")
    for n in numbers[len(numbers) // 2 :]:
        if n in pieces and pieces[n][0] != run:
            yield n, run

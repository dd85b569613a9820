"""The tables of recordings: a file of their own beside that of a store, or tables of a database."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from journeyman.machine.files import read_text
from journeyman.store.codec import DamagedValue, unpack
from journeyman.store.file import FileKind

FORMAT: Final = 3
"""The version of these tables. Those of another one are neither read nor written."""


def tables() -> str:
    """Return the statements that make these tables, as SQLite reads them."""
    return read_text("journeyman.store", "recordings.sql")


# "jme1" in letters.
EVENTS: Final = FileKind(
    0x6A6D_6531,
    FORMAT,
    lambda: f"{tables()}INSERT INTO rec_format VALUES ({FORMAT}, randomblob(16));",
    first="SELECT version FROM rec_format",
)


def events_path(store: Path) -> Path:
    """Return where the recordings of the store in a file are."""
    return store.with_name(f"{store.name}-events")


def digest_of(piece: bytes, key: bytes) -> int:
    """Return what a piece is found by in a store. `key` is the store's own and secret, so that nobody can make two
    texts of which one is taken for the other."""
    # With a sign, as the integers of both databases have one.
    return int.from_bytes(blake2b(piece, digest_size=8, key=key).digest(), "big", signed=True)


def unpack_piece(stored: bytes) -> bytes | None:
    """Return a piece from what is stored of it; None: it is damaged."""
    try:
        return unpack(stored)
    except DamagedValue:  # which SQLite does not see
        return None

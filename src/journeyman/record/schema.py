"""The tables of recordings, beside those of sessions and durable runs in the same store, and what is read of them.

A row of `rec_runs` is one recording: a run with all runs in it, a chat with all its turns, or a team. What happened is
in `rec_events`, in order; what was sent to models is in `rec_requests`. Long texts stand once in `rec_pieces`, whoever
mentions them: a row of an event or a request says where they belong. Who looks says so in `rec_watched`: for them the
last words of answers that are being written are in `rec_words`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from journeyman.errors import StoreError
from journeyman.store.address import find_store
from journeyman.store.codec import DamagedValue, unpack_beginning
from journeyman.store.recordings import FORMAT, unpack_piece, unpacked
from journeyman.store.shared import SharedStorage
from journeyman.store.storage import FileStorage, Storage
from journeyman.types import JsonObject

_BROKEN: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2})?$")
"""An escape, or the first half of two, at the end of a JSON string that was cut in its middle."""


def storage_at(place: str | os.PathLike[str], *, owner: str | None = None) -> Storage:
    """Open what is at a path, or at a URL of Postgres. It is held as `owner`, who records; None: it is only looked at.

    Raises:
        StoreError: it cannot be opened, or it is something else.
    """
    found = find_store(place)
    return SharedStorage(found, owner=owner) if isinstance(found, str) else FileStorage(found, owner=owner)


def is_there(file: Storage) -> bool:
    """Tell whether the store has these tables.

    Raises:
        StoreError: they are of a newer version, or the store cannot be read.
    """
    if not file.has("rec_format"):
        return False
    versions: list[object] = [row[0] for row in file.rows("SELECT version FROM rec_format")]
    numbers = [each for each in versions if isinstance(each, int)]
    if len(numbers) < len(versions):
        text = f"{file.place} does not say in which format its recordings are: the row of the format is damaged."
        raise StoreError(text, hint="Restore the store from a copy.")
    version = max(numbers, default=0)
    if version > FORMAT:
        raise StoreError(
            f"{file.place} has recordings of format {version}; this version of journeyman reads formats up to"
            f" {FORMAT}.",
            hint="Update journeyman, or use another store. Nothing was changed.",
        )
    return version > 0


def make(file: Storage) -> None:
    """Make the tables where they are not.

    Raises:
        StoreError: they are of a newer version, or the store cannot be written.
    """
    # The newest of the tables: whoever has it has all.
    if not is_there(file) or not file.has("rec_words"):
        file.make()


# -- numbers in few bytes ----------------------------------------------------------------------------------------------


def packed(numbers: Sequence[int]) -> bytes:
    """Return whole numbers in few bytes, if neighbours are close to each other."""
    out = bytearray()
    before = 0
    for number in numbers:
        # The sign is the lowest bit, so that small differences of either sign are small numbers.
        rest = (number - before) << 1 if number >= before else ((before - number) << 1) - 1
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
        before = number
    return bytes(out)


# -- texts whose long strings stand elsewhere --------------------------------------------------------------------------


def unfold(
    file: Storage,
    text: str,
    refs: bytes | None,
    *,
    most: int | None = None,
    known: dict[int, bytes | None] | None = None,
) -> str | None:
    """Put the long strings back: `refs` has their places, in characters, and then the numbers of their pieces, packed.
    None: one is not there. `most`: of a longer one only so many characters, as `shortened` gives them; `known` keeps
    those by number for the next ones."""
    known = {} if known is None else known
    if not refs:
        return text
    numbers = unpacked(refs)
    half = len(numbers) // 2
    parts: list[str] = []
    end = 0
    for at, number in zip(numbers[:half], numbers[half:], strict=True):
        if most is None:
            piece = piece_of(file, number)
        else:
            if number not in known:
                known[number] = _beginning(file, number, most)
            piece = known[number]
        if piece is None:
            return None
        parts += [text[end:at], piece.decode("utf-8", "replace")]
        end = at
    return "".join([*parts, text[end:]])


def piece_of(file: Storage, number: int) -> bytes | None:
    """Return a piece; None if its content was not kept, or it is gone."""
    rows = file.rows("SELECT body FROM rec_pieces WHERE n = ?", (number,))
    return unpack_piece(rows[0][0]) if rows else None


def _beginning(file: Storage, number: int, most: int) -> bytes | None:
    """Return a piece, or of a long one that is a JSON string what `shortened` would make of it, without reading all."""
    # A character has four bytes at most.
    rows = file.rows("SELECT substr(body, 1, ?), size FROM rec_pieces WHERE n = ?", (4 * most + 64, number))
    if not rows or rows[0][0] is None:
        return None
    body, size = rows[0]
    if size <= 4 * most:  # it may be of short characters that are long in bytes
        return piece_of(file, number)
    try:
        # Only as much as is shown: what is packed may be a thousand times as long.
        start = unpack_beginning(body, 4 * most)
    except DamagedValue:  # which SQLite does not see
        return None
    if not start.startswith(b'"'):
        return piece_of(file, number)
    told = _BROKEN.sub(r"\1", start[: 4 * most].decode("utf-8", "ignore")[1 : most + 1])
    return f'{{"cut":"{told}","characters":{size - 2}}}'.encode()


def shorten_object(value: JsonObject, most: int) -> JsonObject:
    """Return an object of JSON whose longer texts, wherever in it they are, are cut as by `shortened`."""
    return {name: shortened(each, most) for name, each in value.items()}


def shortened(value: JsonValue, most: int) -> JsonValue:
    """Return JSON in which each longer text is `{"cut": its beginning, "characters": how many it has}`."""
    match value:
        case str() if len(value) > most:
            return {"cut": value[:most], "characters": len(value)}
        case dict():
            return shorten_object(value, most)
        case list():
            return [shortened(each, most) for each in value]
        case _:
            return value

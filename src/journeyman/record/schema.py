"""The tables of recordings, beside those of sessions and durable runs in the same store, and what is read of them.

A row of `rec_runs` is one recording: a run with all runs in it, a chat with all its turns, or a team. What happened is
in `rec_events`, in order; what was sent to models is in `rec_requests`: both count on in one sequence, from a new
beginning whenever a recording is taken up again. Long texts stand in `rec_pieces`, once for each recording: a row of an
event or a request says where they belong. Who looks says so in `rec_watched`: for them the last words of answers that
are being written are in `rec_words`.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from journeyman.errors import StoreError
from journeyman.store.address import find_store
from journeyman.store.codec import DamagedValue, check_version, unpack_beginning
from journeyman.store.recordings import FORMAT, unpack_piece
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
    if version > 0:
        check_version(f"{file.place} has recordings of format", version, FORMAT, another="store")
    return version > 0


SHARED: Final = 0
"""The root of the texts that come from the definition of an agent alone. All others stand under the number of their
recording."""


def packed_places(places: Sequence[int], digests: Sequence[int]) -> bytes:
    """Return the places of long strings in a text, in characters, and what they are found by, as they are stored."""
    return struct.pack(f">{len(places)}I{len(digests)}q", *places, *digests)


def unpacked_places(refs: bytes | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what was packed. Of what was damaged, nothing."""
    n, rest = divmod(len(refs or b""), 12)
    numbers = struct.unpack(f">{n}I{n}q", refs or b"") if not rest else ()
    return numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]


class Texts:
    """The long texts of one recording."""

    def __init__(self, file: Storage, run: int, *, most: int | None = None) -> None:
        """`most`: of a longer one only so many characters are read, as `shortened` gives them."""
        self._file = file
        self._run = run
        self._most = most
        self._known: dict[int, bytes | None] = {}
        """Those of which only the beginning is read: they are often asked for again."""

    def unfold(self, text: str, refs: bytes | None) -> str | None:
        """Put the long strings of a text back. None: one is not there."""
        parts: list[str] = []
        end = 0
        for at, digest in zip(*unpacked_places(refs), strict=True):
            if (piece := self.find(digest)) is None:
                return None
            parts += [text[end:at], piece.decode("utf-8", "replace")]
            end = at
        return "".join([*parts, text[end:]])

    def find(self, digest: int) -> bytes | None:
        """Return a text; None if its content was not kept, or it is gone."""
        if self._most is None:
            return self._whole(digest)
        if digest not in self._known:
            self._known[digest] = self._beginning(digest, self._most)
        return self._known[digest]

    def _whole(self, digest: int) -> bytes | None:
        rows = self._file.rows(f"SELECT body FROM rec_pieces WHERE {_FOUND}", (self._run, digest))
        return unpack_piece(rows[0][0]) if rows else None

    def _beginning(self, digest: int, most: int) -> bytes | None:
        """Return a text, or of a long one that is a JSON string what `shortened` would make of it, without reading
        all."""
        # A character has four bytes at most.
        query = f"SELECT substr(body, 1, ?), size FROM rec_pieces WHERE {_FOUND}"
        rows = self._file.rows(query, (4 * most + 64, self._run, digest))
        if not rows:
            return None
        body, size = rows[0]
        if size <= 4 * most:  # it may be of short characters that are long in bytes
            return self._whole(digest)
        try:
            # Only as much as is shown: what is packed may be a thousand times as long.
            start = unpack_beginning(body, 4 * most)
        except DamagedValue:  # which SQLite does not see
            return None
        if not start.startswith(b'"'):
            return self._whole(digest)
        told = _BROKEN.sub(r"\1", start[: 4 * most].decode("utf-8", "ignore")[1 : most + 1])
        return f'{{"cut":"{told}","characters":{size - 2}}}'.encode()


_FOUND: Final = f"root IN (?, {SHARED}) AND digest = ? LIMIT 1"


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

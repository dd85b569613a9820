"""The stored form of the values of steps, conversations and recordings: packed where that saves room, and checked.

What was written comes back byte for byte, or is known to be damaged.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from journeyman.errors import StoreError

FORMAT: Final = 1
"""The format of the rows that this version writes. Each row of a step and of a conversation has its own number: two
versions may write in one store."""
MOST_BYTES: Final = 16_100_000
"""A longer value is stored as it is, and none is unpacked to more: a few bytes of a foreign file must not fill the
memory."""
# Below it, to pack costs more than it saves.
_PACKED_FROM: Final = 1_000
_SMALL_BYTES: Final = 16_384
_SMALL, _LARGE = (13, 7), (15, 8)
"""The window and the memory for packing a value of at most so many bytes, and for others: to set up the larger window
takes longer than to pack 5 KB."""
_PACKED, _PLAIN = b"z", b"\0"
"""The first byte of what is packed, and of a value that would be taken for one of the two. No JSON begins so."""


class DamagedValue(ValueError):
    """A stored value is not as it was written."""


def check_version(what: str, found: int, known: int, *, another: str = "file") -> None:
    """Raise a `StoreError` unless `what`, of the version `found`, can be used by this one, which knows `known`."""
    if found > known:
        raise StoreError(
            f"{what} {found}; this version of journeyman knows those up to {known}.",
            hint=f"Update journeyman, or use another {another}. Nothing was changed.",
        )
    if found < known:
        raise StoreError(
            f"{what} {found}, which only versions of journeyman before the first release read.",
            hint=f"Use another {another}, or go on with the version that made it. Nothing was changed.",
        )


def pack(value: bytes) -> bytes:
    """Return a value as it is stored."""
    if _PACKED_FROM <= len(value) <= MOST_BYTES:
        # The quickest level, since each step waits for it.
        packing = zlib.compressobj(1, zlib.DEFLATED, *(_SMALL if len(value) <= _SMALL_BYTES else _LARGE))
        packed = b"".join((_PACKED, packing.compress(value), packing.flush()))
        # What saves less than a quarter is not worth unpacking in each later life.
        if len(packed) <= len(value) * 3 // 4:
            return packed
    return _PLAIN + value if value[:1] in (_PACKED, _PLAIN) else value


def unpack(stored: bytes) -> bytes:
    """Return a value that was packed.

    Raises:
        DamagedValue: it is damaged, or longer than any that is packed.
    """
    if stored[:1] != _PACKED:
        return stored[1:] if stored[:1] == _PLAIN else stored
    unpacking = zlib.decompressobj()
    try:
        value = unpacking.decompress(stored[1:], MOST_BYTES)
    except zlib.error as error:
        raise DamagedValue(str(error)) from error
    # With a byte behind its end it is another value, although that byte is not one of it.
    if not unpacking.eof or unpacking.unused_data:
        raise DamagedValue("it is cut off, or longer than any may be")
    return value


def unpack_beginning(stored: bytes, n_bytes: int) -> bytes:
    """Return so many bytes of a value, of which only the beginning may be given.

    Raises:
        DamagedValue: it is damaged.
    """
    if stored[:1] != _PACKED:
        return unpack(stored)[:n_bytes]
    try:
        return zlib.decompressobj().decompress(stored[1:], n_bytes)
    except zlib.error as error:
        raise DamagedValue(str(error)) from error


def checksum(facts: Sequence[object], body: bytes | None) -> int:
    """Return the checksum of a row: of its facts and its body."""
    return zlib.crc32(body or b"", zlib.crc32(repr(facts).encode()))

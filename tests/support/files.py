"""Small whole files of the kinds that providers take: a pixel, a page, a tick."""

import struct
import zlib
from typing import Final


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _riff(kind: bytes, data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + kind + data


def png(noise: bytes = b"", size: tuple[int, int] = (1, 1)) -> bytes:
    """Return a picture of one pixel, with `noise` in it to make it larger; its head says that it has `size`."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0))
    pixel = _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return b"\x89PNG\r\n\x1a\n" + header + (_chunk(b"juNk", noise) if noise else b"") + pixel + _chunk(b"IEND", b"")


PNG: Final = png()
JPEG: Final = b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xda\0\x08\1\1\0\0?\0\xd2\xcf\x20\xff\xd9"
GIF: Final = b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
WEBP: Final = _riff(b"WEBP", b"VP8L\x0d\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0")
PDF: Final = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
WAV: Final = _riff(b"WAVE", b"fmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\2\0\0\0\x80\x80")
MP3: Final = b"ID3\4\0\0\0\0\0\0\xff\xfb\x90\0" + bytes(32)

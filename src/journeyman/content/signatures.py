"""Recognises files by their bytes: the type, whether the end is missing, and the size of a picture or a page.

Each signature is that of the format's own standard: ISO 32000 and the implementation notes of Adobe's reference for
PDF, ISO 11172-3 and 13818-3 for MPEG audio, ISO 14496-12 and 23008-12 and the register of their brands (MP4RA) for MP4
and HEIF. A few letters at the beginning are no signature where a text may begin with them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

HEAD_BYTES: Final = 2_048
"""How many bytes of a file's beginning tell what it is, except for an MP4 without a brand of its own."""

_RATES: Final = re.escape(bytes(byte for byte in range(256) if byte >> 4 != 15 and byte >> 2 & 3 != 3))
_BEGINNINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"BM.{4}\0\0.{6}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", "image/bmp"),  # the size of its second head
    (rb"II\*\0|MM\0\*", "image/tiff"),
    (rb"%PDF-\d", "application/pdf"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "audio/aac"),  # ADTS: layer 0
    # MPEG 1, 2 or 2.5, layer III or II, with or without a check sum; bit rate 15 and sampling rate 3 are none.
    (rb"\xff[\xfa-\xfd\xf2-\xf5\xe2-\xe5][%b]" % _RATES, "audio/mpeg"),
    (rb"fLaC", "audio/flac"),
    (rb"OggS\0", "audio/ogg"),
    (rb"PK\x03\x04", "application/zip"),
    (rb"\x1f\x8b", "application/gzip"),
)
_SIGNATURES: Final = tuple((re.compile(form, re.DOTALL), media_type) for form, media_type in _BEGINNINGS)
# A reader looks for the head of a PDF in the first 1,024 bytes: a printer's commands or a mark may stand before it.
_PDF_BEHIND: Final = re.compile(rb"[^\x20-\x7e\t]%PDF-[12]\.\d[ \t]*[\r\n]")
_PDF_HEAD_BYTES: Final = 1_024 + len(b"%PDF-1.7\n")
# The size of a tag has seven bits in each of its bytes.
_ID3: Final = re.compile(rb"ID3[\x02-\x04][\0-\x0f].[\0-\x7f]{4}", re.DOTALL)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FORM: Final = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_BRANDS: Final = {
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "image/heic"),
}
_ANY_HEIF: Final = (b"mif1", b"mif2", b"msf1")  # says how the file is built, and not what codes the picture
_SOUND_BRANDS: Final = (b"M4A ", b"M4B ", b"M4P ")
_TRACK: Final = re.compile(rb"hdlr.{8}(vide|soun)", re.DOTALL)
# It bounds how many brands are read: a file may say any number.
_LARGEST_FTYP: Final = 1_024

# Each begins with a literal, which is what makes it fast in 64 MB of anything.
# And no count is without a bound, for a file may be full of blanks.
_PAGE: Final = re.compile(rb"/Type\s{0,9}/Page(?![A-Za-z])")
_OBJECT: Final = re.compile(rb" obj(?<=\d obj)\b")
_MOST_PAGES: Final = 10_000
"""How many pages are counted; nobody takes more."""
_OBJECT_NUMBER: Final = re.compile(rb"(\d{1,10}) \d{1,5}$")
_LINEARIZED: Final = re.compile(rb"/Linearized\b[^>]{0,200}/N\s{1,9}(\d{1,9})")
_ENCRYPTED: Final = re.compile(rb"/Encrypt\s{0,9}(?:\d{1,10}\s{1,9}\d{1,5}\s{1,9}R\b|<<)")
# Three numbers in this range are tables, and no frames: DHT, JPG and DAC.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def media_type_of(data: bytes) -> str | None:
    """Return what a file is by how it begins, such as `image/png`; None for texts and all that is not known here."""
    if data[:4] in (b"RIFF", b"FORM"):
        return (_RIFF if data[:4] == b"RIFF" else _FORM).get(data[8:12])
    if data[4:8] == b"ftyp" and 16 <= (n_bytes := int.from_bytes(data[:4], "big")) <= _LARGEST_FTYP:
        return _type_of_mp4(data, n_bytes)
    if _ID3.match(data):
        n_tag = sum(byte << 7 * place for place, byte in enumerate(reversed(data[6:10])))
        behind = media_type_of(data[10 + n_tag : 10 + n_tag + HEAD_BYTES])
        return behind if behind in ("audio/flac", "audio/aac") else "audio/mpeg"
    found = next((media_type for signature, media_type in _SIGNATURES if signature.match(data)), None)
    return found or ("application/pdf" if _PDF_BEHIND.search(data, 0, _PDF_HEAD_BYTES) else None)


def _type_of_mp4(data: bytes, n_bytes: int) -> str:
    """Return what is in an MP4: a picture by its brands; a sound by its brand, or because it has no track of moving
    pictures, as the recordings of phones and of pages."""
    # From 16 on: before it stand the size, the name, the main brand and its version.
    brands = [data[8:12], *(data[place : place + 4] for place in range(16, n_bytes, 4))]
    if brands[0] in _BRANDS or brands[0] in _ANY_HEIF:
        return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), "image/heic")
    if brands[0] in _SOUND_BRANDS:
        return "audio/mp4"
    return "audio/mp4" if {found[1] for found in _TRACK.finditer(data)} == {b"soun"} else "video/mp4"


def lack_of(data: bytes, media_type: str) -> str | None:
    """Say that the end of a file is missing, if it is; only formats that mark their end are looked at."""
    match media_type:
        case "image/png":
            # The last chunk's name, and its check sum.
            whole = b"IEND\xaeB`\x82" in data
        case "image/jpeg":
            whole = data.find(b"\xff\xd9", _end_of_jpeg_head(data)) >= 0
        case "image/gif":
            whole = data.rstrip(b"\0")[-1:] == b";"
        case "image/webp" | "audio/wav":
            # RIFF counts what comes behind the size.
            said = int.from_bytes(data[4:8], "little")
            whole = said + 8 <= len(data) or (media_type == "audio/wav" and said == 0xFFFF_FFFF)  # it was streamed
        case "application/pdf":  # what a mailer or a server puts behind its end is no part of it
            end = data.rfind(b"%%EOF")
            whole = end >= 0 and not _OBJECT.search(data, end)
        case _:
            whole = True
    return None if whole else f"its end is missing: it has {len(data):,} bytes, and breaks off there"


def _end_of_jpeg_head(data: bytes) -> int:
    """Return where the picture itself begins: what stands before may hold a smaller picture, with an end of its own."""
    place = 2
    while data[place : place + 1] == b"\xff" and data[place + 1 : place + 2] != b"\xda":
        # A size counts its own two bytes. Less is damage, and must not keep the loop in one place.
        place += 2 + max(2, int.from_bytes(data[place + 2 : place + 4], "big"))
    return place


def size_of(data: bytes, media_type: str) -> tuple[int, int] | None:
    """Return the width and height of a picture in pixels; None where its head does not tell."""
    match media_type:
        case "image/png" if data[12:16] == b"IHDR":
            return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        case "image/gif":
            return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
        case "image/webp":
            return _size_of_webp(data)
        case "image/jpeg":
            return _size_of_jpeg(data)
        case _:
            return None


def _size_of_webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            # Each side is written less one.
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            both = int.from_bytes(data[21:25], "little")
            # Both sides, less one, in 14 bits each.
            return 1 + (both & 0x3FFF), 1 + (both >> 14 & 0x3FFF)
        case b"VP8 ":
            # The upper two bits say how it is scaled.
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            return None


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while data[place : place + 1] == b"\xff" and place + 9 <= len(data):
        if data[place + 1] in _FRAMES:
            # A JPEG tells its height first.
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        # As above.
        place += 2 + max(2, int.from_bytes(data[place + 2 : place + 4], "big"))
    return None


def has_password(data: bytes) -> bool:
    """Tell whether a PDF is encrypted."""
    return _ENCRYPTED.search(data) is not None


def n_pages_of(data: bytes) -> int:
    """Return how many pages a PDF has at least: 0 where they are packed, or were changed after it was written."""
    linearized = _LINEARIZED.search(data, 0, HEAD_BYTES)
    # One that is made for the web has two from the start; more tell of a change.
    if data.count(b"startxref") > (1 if linearized is None else 2):
        return 0
    if linearized is not None:
        return int(linearized[1])
    objects: set[bytes] = set()
    end = 0
    for page in islice(_PAGE.finditer(data), _MOST_PAGES):
        place = data.rfind(b" obj", end, page.start())
        # Room for both of its numbers.
        number = _OBJECT_NUMBER.search(data[max(0, place - 20) : max(0, place)])
        if number is not None:
            objects.add(number[1])
        end = page.end()
    return len(objects)

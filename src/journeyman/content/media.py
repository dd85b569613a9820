"""What kind of file some bytes are, whether all of it is there, and what a model takes of such files.

The bytes decide what a file is, and not its name or label: a file is what it begins with. Each fault is told in one
sentence.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from journeyman.data import lazy_dataclass

FileKind: TypeAlias = Literal["image", "document", "audio"]
"""What a file is for a model."""

LARGEST_BYTES: Final = 64_000_000
"""No larger file is read: no provider takes one within a request."""
MAX_URL_CHARS: Final = 8_000

_BEGINNINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FORM: Final = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_FTYP: Final = {b"heic": "image/heic", b"mif1": "image/heif", b"avif": "image/avif", b"M4A ": "audio/mp4"}
_SUFFIXES: Final[Mapping[str, str]] = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"},
    **{".bmp": "image/bmp", ".tif": "image/tiff", ".tiff": "image/tiff", ".heic": "image/heic", ".heif": "image/heif"},
    **{".pdf": "application/pdf", ".wav": "audio/wav", ".mp3": "audio/mpeg", ".flac": "audio/flac"},
    **{".ogg": "audio/ogg", ".m4a": "audio/mp4", ".aac": "audio/aac", ".aiff": "audio/aiff"},
    **{".md": "text/markdown", ".csv": "text/csv", ".html": "text/html", ".xml": "text/xml", ".txt": "text/plain"},
}
_SAME: Final[Mapping[str, str]] = {
    **{"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png", "image/heif": "image/heic"},
    **{"audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/vnd.wave": "audio/wav"},
    **{"audio/x-flac": "audio/flac", "audio/m4a": "audio/mp4", "audio/x-m4a": "audio/mp4", "audio/opus": "audio/ogg"},
    **{"audio/x-aiff": "audio/aiff", "audio/aacp": "audio/aac", "application/x-pdf": "application/pdf"},
}
_NOUNS: Final[Mapping[FileKind, str]] = {"image": "picture", "document": "document", "audio": "sound"}
_CLASSES: Final[Mapping[FileKind, str]] = {"image": "Image", "document": "Document", "audio": "Audio"}


# -- what some bytes are -----------------------------------------------------------------------------------------------


def media_type_of(data: bytes) -> str | None:
    """Return what a file is by how it begins, such as `image/png`; None for texts and all that is not known here."""
    if data[:4] in (b"RIFF", b"FORM"):
        return (_RIFF if data[:4] == b"RIFF" else _FORM).get(data[8:12])
    if data[4:8] == b"ftyp":
        return _FTYP.get(data[8:12], "video/mp4")
    return next((media_type for beginning, media_type in _BEGINNINGS if data.startswith(beginning)), None)


def kind_of(media_type: str) -> FileKind | None:
    """Return what stands for files of this type: `image`, `audio`, `document` (PDF and texts), or None."""
    main = media_type.partition("/")[0]
    if main in ("image", "audio"):
        return "image" if main == "image" else "audio"
    return "document" if main == "text" or media_type == "application/pdf" else None


def lack_of(data: bytes, media_type: str) -> str | None:
    """Say that the end of a file is missing, if it is; only formats that mark their end are looked at."""
    match media_type:
        case "image/png":
            whole = b"IEND\xaeB`\x82" in data
        case "image/jpeg":
            whole = data.find(b"\xff\xd9", _end_of_jpeg_head(data)) >= 0
        case "image/gif":
            whole = data.rstrip(b"\0")[-1:] == b";"
        case "image/webp" | "audio/wav":
            said = int.from_bytes(data[4:8], "little")
            whole = said + 8 <= len(data) or (media_type == "audio/wav" and said == 0xFFFF_FFFF)  # it was streamed
        case "application/pdf":
            whole = b"%%EOF" in data[-2048:]
        case _:
            whole = True
    return None if whole else f"its end is missing: it has {len(data):,} bytes, and breaks off there"


def _end_of_jpeg_head(data: bytes) -> int:
    """Return where the picture itself begins: what stands before may hold a smaller picture, with an end of its own."""
    place = 2
    while data[place : place + 1] == b"\xff" and data[place + 1 : place + 2] != b"\xda":
        place += 2 + max(2, int.from_bytes(data[place + 2 : place + 4], "big"))
    return place


def checked(data: bytes, kind: FileKind, media_type: str | None, *, name: str, named: bool = False) -> str:
    """Return the type of a file that is to be an `Image`, a `Document` or an `Audio`.

    `media_type` is what somebody says that it is; `named`: only its name says so.

    Raises:
        ValueError: it is empty, too large, cut, of another type than is said, or of another kind.
    """
    if not data:
        raise ValueError(f"{name} is empty.")
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"{name} has {len(data):,} bytes; at most {LARGEST_BYTES:,} can be sent. Make it smaller.")
    said = None if media_type is None else media_type.partition(";")[0].strip().lower()
    said = said and _SAME.get(said, said)
    found = media_type_of(data) or _text_type(data, said, kind, name)
    if said is not None and found != said and not (said == "audio/webm" and found == "video/mp4"):
        what = "is called" if named else "is said to be"
        how = f"pass media_type={found!r}" if kind_of(found) == kind else "give the right file"
        raise ValueError(f"{name} {what} {said}, but its bytes are {found}. Rename it, or {how}.")
    if kind_of(found) != kind:
        right = kind_of(found)
        how = f"Use {_CLASSES[right]} for it." if right else "Convert it first."
        raise ValueError(f"{name} is {found}, which is no {_NOUNS[kind]}. {how}")
    if (lack := lack_of(data, found)) is not None:
        raise ValueError(f"{name} is damaged: {lack}. Give the whole file.")
    return found


def _text_type(data: bytes, said: str | None, kind: FileKind, name: str) -> str:
    """Return the type of what has no known beginning: that of a text, if it is one; else what is said of it."""
    is_text_wanted = said is None or said.startswith("text/")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if said is not None and not is_text_wanted and said not in _SUFFIXES.values():
            return said
        if kind == "document" and is_text_wanted:
            where = f"byte 0x{data[error.start]:02x} at offset {error.start:,}"
            raise ValueError(f"{name} is neither a PDF nor text in UTF-8: {where}. Convert it first.") from None
        return "of no type that is known here"
    if b"\0" in data:
        return "of no type that is known here"
    return said if said is not None and is_text_wanted else "text/plain"


def read(path: str | os.PathLike[str], kind: FileKind, media_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of a file, and its type.

    Raises:
        OSError: it cannot be read.
        ValueError: see `checked`.
    """
    file = Path(path)
    n_bytes = file.stat().st_size
    if n_bytes > LARGEST_BYTES:
        raise ValueError(f"{file} has {n_bytes:,} bytes; at most {LARGEST_BYTES:,} can be sent. Make it smaller.")
    with file.open("rb") as opened:
        data = opened.read(LARGEST_BYTES + 1)
    named = _SUFFIXES.get(file.suffix.lower()) if media_type is None else None
    return data, checked(data, kind, media_type or named, name=str(file), named=named is not None)


def checked_url(url: str) -> str:
    """Return the address of a file.

    Raises:
        ValueError: it is no whole address with http or https, it has a password in it, or it is too long.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url[:200]!r} is not a URL: {error}.") from None
    if parts.scheme == "data":
        raise ValueError(f"{url[:60]!r} holds the file itself. Use from_bytes with its bytes.")
    if parts.scheme not in ("http", "https") or not host or len(url) > MAX_URL_CHARS or not url.isprintable():
        raise ValueError(f"{url[:200]!r} is not the address of a file. Give a whole URL with http or https.")
    if "@" in parts.netloc:
        raise ValueError("The URL has a user name or a password in it. Give it without.")
    return url


def n_bytes_of(base64: str) -> int:
    """Return how many bytes a Base64 text stands for."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def decoded(base64: str) -> bytes:
    """Return the bytes of a Base64 text.

    Raises:
        ValueError: it is none.
    """
    try:
        return b64decode(base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"its Base64 text is damaged ({error})") from None


# -- what a model takes ------------------------------------------------------------------------------------------------


@lazy_dataclass(frozen=True)
class Taken:
    """Which files of one kind a model takes."""

    types: frozenset[str]
    """The media types. One that ends with a slash stands for all types that begin with it."""
    largest_bytes: int
    """How many bytes one file may have, before it is written as Base64."""
    by_url: bool = False
    """Whether the service fetches such files by their address."""

    def takes(self, media_type: str) -> bool:
        """Tell whether a type is among them."""
        return media_type in self.types or f"{media_type.partition('/')[0]}/" in self.types

    def shown(self) -> str:
        """Name the types, as a sentence does."""
        names = sorted(f"{each}*" if each.endswith("/") else each for each in self.types)
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@lazy_dataclass(frozen=True, kw_only=True)
class Media:
    """Which files a model takes from users. None for a kind: the model takes no such files."""

    image: Taken | None = None
    """Which images it takes."""
    document: Taken | None = None
    """Which documents it takes."""
    audio: Taken | None = None
    """Which sounds it takes."""
    largest_request_bytes: int | None = None
    """How many bytes all files of one request may have together, as Base64. None: not known."""

    def of(self, kind: FileKind) -> Taken | None:
        """Return what is taken of a kind."""
        return {"image": self.image, "document": self.document, "audio": self.audio}[kind]

    def lack(self, kind: FileKind, media_type: str, n_bytes: int, *, model: str) -> str | None:
        """Say why a model does not take a file, if it does not; and then what to do."""
        taken = self.of(kind)
        if taken is None:
            return f"{model} takes no {_NOUNS[kind]}s. Use another model, or leave it out"
        if not taken.takes(media_type):
            return f"{model} takes no {media_type}. Convert it to one of these: {taken.shown()}"
        if n_bytes > taken.largest_bytes:
            most = f"at most {taken.largest_bytes:,} bytes"
            return f"it has {n_bytes:,} bytes, and {model} takes {_NOUNS[kind]}s of {most}. Make it smaller"
        return None


PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The kinds of pictures that every provider takes that takes pictures at all."""

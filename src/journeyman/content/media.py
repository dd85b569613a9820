"""Checks that bytes are the file that they are said to be, and that a model takes such a file.

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

from journeyman.content.signatures import has_password, lack_of, media_type_of, n_pages_of, size_of
from journeyman.definition.data import lazy_dataclass

FileKind: TypeAlias = Literal["image", "document", "audio"]
"""What a file is for a model."""

LARGEST_BYTES: Final = 64_000_000
"""No larger file is read: no provider takes one within a request."""
MAX_URL_CHARS: Final = 8_000  # RFC 9110, section 4.1, asks everybody to take as many
_HEAD_CHARS: Final = 400_000  # of Base64: a photo has its size behind a preview and its colours

_SUFFIXES: Final[Mapping[str, str]] = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"},
    **{".bmp": "image/bmp", ".tif": "image/tiff", ".tiff": "image/tiff", ".heic": "image/heic", ".heif": "image/heif"},
    **{".pdf": "application/pdf", ".wav": "audio/wav", ".mp3": "audio/mpeg", ".flac": "audio/flac"},
    **{".ogg": "audio/ogg", ".m4a": "audio/mp4", ".aac": "audio/aac", ".aiff": "audio/aiff"},
    **{".md": "text/markdown", ".csv": "text/csv", ".html": "text/html", ".xml": "text/xml", ".txt": "text/plain"},
}
# Other names for the same, which browsers and libraries give.
_SAME: Final[Mapping[str, str]] = {
    **{"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png", "image/heif": "image/heic"},
    **{"audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/vnd.wave": "audio/wav"},
    **{"audio/x-flac": "audio/flac", "audio/m4a": "audio/mp4", "audio/x-m4a": "audio/mp4", "audio/opus": "audio/ogg"},
    **{"audio/x-aiff": "audio/aiff", "audio/aacp": "audio/aac", "application/x-pdf": "application/pdf"},
}
_NOUNS: Final[Mapping[FileKind, str]] = {"image": "picture", "document": "document", "audio": "sound"}
_CLASSES: Final[Mapping[FileKind, str]] = {"image": "Image", "document": "Document", "audio": "Audio"}


def kind_of(media_type: str) -> FileKind | None:
    """Return what stands for files of this type: `image`, `audio`, `document` (PDF and texts), or None."""
    main = media_type.partition("/")[0]
    if main in ("image", "audio"):
        return "image" if main == "image" else "audio"
    return "document" if main == "text" or media_type == "application/pdf" else None


def check_file(data: bytes, kind: FileKind, media_type: str | None, *, name: str, named: bool = False) -> str:
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
    found = media_type_of(data)
    # A text may quote the head of a PDF.
    is_about_pdf = found == "application/pdf" and (said or "").startswith("text/") and not data.startswith(b"%PDF-")
    if found is None or is_about_pdf:
        found = _text_type(data, said, kind, name)
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
    # A zero byte is right in UTF-8, but stands in no text.
    if b"\0" in data:
        return "of no type that is known here"
    return said if said is not None and is_text_wanted else "text/plain"


def read_file(path: str | os.PathLike[str], kind: FileKind, media_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of a file, and its type.

    Raises:
        OSError: it cannot be read.
        ValueError: see `check_file`.
    """
    file = Path(path)
    n_bytes = file.stat().st_size
    if n_bytes > LARGEST_BYTES:
        raise ValueError(f"{file} has {n_bytes:,} bytes; at most {LARGEST_BYTES:,} can be sent. Make it smaller.")
    with file.open("rb") as opened:
        # One byte more: the file may have grown since.
        data = opened.read(LARGEST_BYTES + 1)
    named = _SUFFIXES.get(file.suffix.lower()) if media_type is None else None
    return data, check_file(data, kind, media_type or named, name=str(file), named=named is not None)


def checked_url(url: str) -> str:
    """Return the address of a file.

    Raises:
        ValueError: it is no whole address with http or https, it has a password in it, or it is too long.
    """
    try:
        parts = urlsplit(url)
        # The port is checked only when it is read.
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
    # Four characters stand for three bytes, and `=` for none.
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def decode_base64(base64: str) -> bytes:
    """Return the bytes of a Base64 text.

    Raises:
        ValueError: it is none.
    """
    try:
        # Without `validate`, what is no Base64 is dropped in silence.
        return b64decode(base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"its Base64 text is damaged ({error})") from None


@lazy_dataclass(frozen=True)
class MediaLimit:
    """The limits of a model for files of one kind: types, size, and whether it takes addresses."""

    types: frozenset[str]
    """The media types. One that ends with a slash stands for all types that begin with it."""
    largest_bytes: int
    """How many bytes one file may have, before it is written as Base64."""
    by_url: bool = False
    """Whether the service fetches such files by their address."""
    largest_side: int | None = None
    """How many pixels wide and high a picture may be. None: not known."""
    most_pages: int | None = None
    """How many pages a PDF may have. None: not known."""
    takes_passwords: bool = True
    """Whether a PDF may be encrypted; False where it is known that none is taken."""

    def takes(self, media_type: str) -> bool:
        """Tell whether a type is among them."""
        return media_type in self.types or f"{media_type.partition('/')[0]}/" in self.types

    def shown(self) -> str:
        """Name the types, as a sentence does."""
        names = sorted(f"{each}*" if each.endswith("/") else each for each in self.types)
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@lazy_dataclass(frozen=True, kw_only=True)
class MediaSupport:
    """The kinds of files that a model takes from users, with the limits of each. None: it takes no such files."""

    image: MediaLimit | None = None
    """Which images it takes."""
    document: MediaLimit | None = None
    """Which documents it takes."""
    audio: MediaLimit | None = None
    """Which sounds it takes."""
    largest_request_bytes: int | None = None
    """How many bytes all files of one request may have together, as Base64. None: not known."""

    def of(self, kind: FileKind) -> MediaLimit | None:
        """Return what is taken of a kind."""
        return {"image": self.image, "document": self.document, "audio": self.audio}[kind]

    def lack(self, kind: FileKind, media_type: str, base64: str, *, model: str) -> str | None:
        """Say why a model does not take a file, if it does not; and then what to do."""
        taken = self.of(kind)
        if taken is None:
            return f"{model} takes no {_NOUNS[kind]}s. Use another model, or leave it out"
        if not taken.takes(media_type):
            return f"{model} takes no {media_type}. Convert it to one of these: {taken.shown()}"
        if (n_bytes := n_bytes_of(base64)) > taken.largest_bytes:
            most = f"at most {taken.largest_bytes:,} bytes"
            return f"it has {n_bytes:,} bytes, and {model} takes {_NOUNS[kind]}s of {most}. Make it smaller"
        if media_type.startswith("image/"):
            return _lack_of_picture(taken, media_type, base64, model)
        return _lack_of_paper(taken, base64, model) if media_type == "application/pdf" else None


def _lack_of_picture(taken: MediaLimit, media_type: str, base64: str, model: str) -> str | None:
    if taken.largest_side is None:
        return None
    try:
        size = size_of(decode_base64(base64[:_HEAD_CHARS]), media_type)
    except ValueError as error:
        return str(error)
    if size is None or max(size) <= taken.largest_side:
        return None
    most = f"at most {taken.largest_side:,} pixels wide and high"
    return f"it has {size[0]:,} x {size[1]:,} pixels, and {model} takes pictures of {most}. Make it smaller"


def _lack_of_paper(taken: MediaLimit, base64: str, model: str) -> str | None:
    if taken.takes_passwords and taken.most_pages is None:
        return None
    try:
        data = decode_base64(base64)
    except ValueError as error:
        return str(error)
    if not taken.takes_passwords and has_password(data):
        return f"it is protected by a password, and {model} takes no such PDF. Save it without"
    if taken.most_pages is not None and (n_pages := n_pages_of(data)) > taken.most_pages:
        return f"it has {n_pages:,} pages, and {model} takes at most {taken.most_pages:,}. Send it in parts"
    return None


PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The kinds of pictures that every provider takes that takes pictures at all."""

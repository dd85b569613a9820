"""Words in which something else is written: base64, hex, and what URLs, JSON and HTML escape.

Such a word is read, and given to whoever asks. What was encoded is a text only if all of it can be printed, so pictures
and digests are passed over after a few characters.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Final
from urllib.parse import unquote

from journeyman.machine.secret_keys import long_words

_LEAST: Final = 20
_RUN: Final = re.compile(rf"(?<![\w+/%-])[\w+/-]{{{_LEAST},}}+={{0,2}}(?![\w+/-])", re.ASCII)
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\{1,8}u00[0-9A-Fa-f]{2}|&(?:quot|amp|#\d{1,3}|#x[0-9a-f]{1,3});")
_ENDS_BEFORE: Final = frozenset(" \t\r\n\"'<>")
_REST: Final = re.compile(r"(?:[^\s\"'<>\\]|\\{1,8}u00[0-9A-Fa-f]{2})*+")
_UNICODE: Final = re.compile(r"\\{1,8}u00([0-9A-Fa-f]{2})")
_BEGINNING: Final = 40
_LONGEST: Final = 100_000


def mark_codes(text: str, mark: str, clean: Callable[[str], str]) -> str:
    """Return a text in which each word is replaced by a mark that holds, once it is decoded, what `clean` changes."""

    def is_clean(plain: str | None) -> bool:
        return plain is None or clean(plain) == plain

    parts, end = list[str](), 0
    for start, stop in _escaped_words(text):
        plain = _UNICODE.sub(lambda found: chr(int(found[1], 16)), text[start : min(stop, start + _LONGEST)])
        if not is_clean(unescape(unquote(plain, errors="replace"))):
            parts += [text[end:start], mark]
            end = stop
    text = "".join([*parts, text[end:]]) if parts else text
    runs = (found[0] for word in long_words(text, _LEAST) for found in _RUN.finditer(word))
    if all(is_clean(_decode(run)) for run in runs):
        return text
    return _RUN.sub(lambda found: found[0] if is_clean(_decode(found[0])) else mark, text)


def _escaped_words(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of words, up to a blank or a quote, in which something is escaped."""
    end = 0
    if "%" not in text and "\\u00" not in text and "&" not in text:
        return
    for found in _ESCAPE.finditer(text):
        start = found.start()
        if start < end:
            continue
        while start > end and text[start - 1] not in _ENDS_BEFORE:
            start -= 1
        rest = _REST.match(text, found.end())
        end = found.end() if rest is None else rest.end()
        yield start, end


def _decode(word: str) -> str | None:
    try:
        return _text_of(bytes.fromhex(word))
    except ValueError:
        pass
    # Most words are none: that shows after a few characters.
    if len(word) > _LONGEST or any(_text_of(_bytes_of(word[:size])) is None for size in (8, _BEGINNING)):
        return None
    return _text_of(_bytes_of(word))


def _bytes_of(word: str) -> bytes:
    bare = word.rstrip("=").replace("-", "+").replace("_", "/")
    bare = bare[: len(bare) - (len(bare) % 4 == 1)]
    try:
        return binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        return b"\0"


def _text_of(data: bytes) -> str | None:
    """Return what the bytes say; None if they are no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:  # the beginning of a long word may end within a character
            return None
        text = data[: error.start].decode()
    return text if all(line.isprintable() for line in text.replace("\t", " ").splitlines()) else None

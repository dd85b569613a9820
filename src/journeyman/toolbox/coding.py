"""From bytes to text and back without loss: byte order marks, encodings, line endings. Imports `refusal`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from journeyman.toolbox.refusal import Refusal

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""The largest file that is read, searched or changed."""

_SNIFFED_BYTES: Final = 8_192
_MOST_CONTROLS: Final = 0.3
_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b"})
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Coding:
    """How a text is written."""

    mark: bytes = b""
    """The byte order mark before it."""
    encoding: str = "utf-8"

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.encoding, self._errors)

    def decode(self, data: bytes) -> str:
        return data[len(self.mark) :].decode(self.encoding, self._errors)

    @property
    def _errors(self) -> str:
        # What is no valid text comes back as it was.
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


PLAIN: Final = Coding()


def decoded(data: bytes) -> tuple[str, Coding] | None:
    """Return the text with what gives the same bytes again; None if it is none, by its content."""
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    coding = Coding(mark, encoding)
    if encoding == "utf-8" and _is_binary(data):
        return None
    try:
        text = coding.decode(data)
    except UnicodeDecodeError:
        return None
    return (text, coding) if "\0" not in text else None


def _is_binary(data: bytes) -> bool:
    sample = data[:_SNIFFED_BYTES]
    n_controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in data or n_controls > _MOST_CONTROLS * len(sample)


def text_of(data: bytes, shown: str) -> tuple[str, Coding]:
    """Return the text of a file with its coding.

    Raises:
        Refusal: it is too large, or no text.
    """
    if len(data) > MAX_FILE_BYTES:
        raise Refusal(
            "too_large",
            f"{shown} is larger than {MAX_FILE_BYTES // 1024 // 1024} MB. Use a command that reads only a part of it.",
        )
    found = decoded(data)
    if found is None:
        raise Refusal("not_a_text", f"{shown} is no text but binary data ({len(data):,} bytes).")
    return found


def lines_of(text: str) -> list[str]:
    """Return the lines without their endings; an empty text has none."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


_ENDING = re.compile(r"\r?\n")


def with_endings_like(old: str, new: str) -> str:
    """Return the new text with the line endings of the old one: of each line that stays, its own."""
    if "\r\n" not in old or "\r\n" in new:
        return new
    if old.count("\r\n") == old.count("\n"):
        return new.replace("\n", "\r\n")
    return _with_each_ending(old, new)


def _with_each_ending(old: str, new: str) -> str:
    old_lines, new_lines = _ENDING.split(old), new.split("\n")
    endings = _ENDING.findall(old)
    given = [endings[0]] * (len(new_lines) - 1)
    for i, j, n in SequenceMatcher(None, old_lines, new_lines, autojunk=True).get_matching_blocks():
        for k in range(n):
            if i + k < len(endings) and j + k < len(given):
                given[j + k] = endings[i + k]
    return "".join([*(line + ending for line, ending in zip(new_lines, given, strict=False)), new_lines[-1]])

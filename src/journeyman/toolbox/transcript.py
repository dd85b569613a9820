"""What a command wrote: its beginning and its end in memory, all of it in a file once that is too much."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from journeyman.toolbox.caps import MAX_BYTES, MAX_LINES, MAX_SPILL_BYTES, Spill

_HEAD_BYTES: Final = MAX_BYTES // 5
_TAIL_BYTES: Final = MAX_BYTES - _HEAD_BYTES  # what went wrong is told at the end
_HEAD_LINES: Final = MAX_LINES // 5
_TAIL_LINES: Final = MAX_LINES - _HEAD_LINES

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|\Z)")


def plain(text: str) -> str:
    """Return the text as a screen would show it in the end: without colors, and without lines written over."""
    if "\x1b" in text:
        text = _SEQUENCE.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text.replace("\r\n", "\n")).replace("\r", "")
    return text


@dataclass(slots=True)
class Transcript:
    """The output of one command. `feed` it, then `finish` it once."""

    spill: Spill
    n_bytes: int = 0
    file: str | None = None
    """Where all of it is; None while it fits into memory."""
    _kept: bytearray = field(default_factory=bytearray)
    """All of it, and its end once there is a file."""
    _head: bytes = b""
    _written: BinaryIO | None = None
    _n_written: int = 0

    def feed(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._kept += data
        if self._written is not None:
            self._write(data)
        elif self.n_bytes > MAX_BYTES:
            self._overflow()
        if self.file is not None and len(self._kept) > 2 * _TAIL_BYTES:
            del self._kept[:-_TAIL_BYTES]

    def _overflow(self) -> None:
        self._written, self.file = self.spill.create("bash")
        self._head = bytes(self._kept[:_HEAD_BYTES])
        self._write(bytes(self._kept))
        del self._kept[:_HEAD_BYTES]

    def _write(self, data: bytes) -> None:
        if self._written is not None and self._n_written < MAX_SPILL_BYTES:
            self._n_written += self._written.write(data[: MAX_SPILL_BYTES - self._n_written])

    def close(self) -> None:
        if self._written is not None:
            self._written.close()
            self._written = None

    def finish(self) -> str:
        """Return what the model reads: all of it, or beginning and end with a note on where the rest is."""
        self.close()
        if self.file is None:
            return self._all()
        head = _text(self._head).rpartition("\n")[0] or _text(self._head)
        end = _text(bytes(self._kept[-_TAIL_BYTES:]))
        tail = end.partition("\n")[2] or end
        head_lines, tail_lines = head.split("\n")[:_HEAD_LINES], tail.split("\n")[-_TAIL_LINES:]
        return self._with_note(head_lines, tail_lines)

    def _all(self) -> str:
        text = _text(bytes(self._kept))
        lines = text.split("\n")
        if len(lines) <= MAX_LINES:
            return text
        self.file = self.spill.keep("bash", text)
        return self._with_note(lines[:_HEAD_LINES], lines[-_TAIL_LINES:])

    def _with_note(self, head: list[str], tail: list[str]) -> str:
        whole = f"all {self.n_bytes:,} bytes are in {self.file}"
        if self.n_bytes > MAX_SPILL_BYTES:
            whole = f"the first {MAX_SPILL_BYTES:,} of {self.n_bytes:,} bytes are in {self.file}"
        note = f"[Cut here: {whole}; read it with an offset, or grep it.]"
        return "\n".join([*head, note, *tail])


def _text(data: bytes) -> str:
    return plain(data.decode("utf-8", "replace"))

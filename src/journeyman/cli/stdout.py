"""The stdout of the program, kept for the result: whatever else is printed, by whomever, goes to stderr.

An agent's file, its tools and the programs that these start may all print. Imports nothing of this package but
`words`.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Final, cast

from journeyman.cli.show.words import clean

_STDOUT: Final = 1
_STDERR: Final = 2


class Stdout:
    """Takes stdout away from everyone else, until the process ends."""

    def __init__(self, *, drop_others: bool = False) -> None:
        """With `drop_others`, what others print goes nowhere instead of to stderr."""
        self._descriptor = _taken(drop_others=drop_others)
        self.is_terminal = os.isatty(self._descriptor)
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"

    def write_text(self, text: str) -> None:
        """Write `text` and a line break. A terminal gets it without escape sequences."""
        shown = clean(text) if self.is_terminal else text
        self._write(shown.encode(self._encoding, "replace") + b"\n")

    def write_json(self, document: bytes) -> None:
        """Write a JSON document and a line break."""
        self._write(document + b"\n")

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # the reader has seen enough
            while data:
                data = data[os.write(self._descriptor, data) :]


def _taken(*, drop_others: bool) -> int:
    printed = cast("io.TextIOWrapper[io.BufferedWriter] | None", sys.stdout)
    if printed is not None:
        printed.flush()
        printed.reconfigure(line_buffering=True)
    try:
        descriptor = os.dup(_STDOUT)
    except OSError:  # closed by whoever started the program
        return os.open(os.devnull, os.O_WRONLY)
    others = os.open(os.devnull, os.O_WRONLY) if drop_others or not _is_open(_STDERR) else os.dup(_STDERR)
    os.dup2(others, _STDOUT)
    os.close(others)
    return descriptor


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

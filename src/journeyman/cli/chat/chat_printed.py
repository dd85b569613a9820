"""The terminal, kept for the chat: what is printed meanwhile, by whomever, becomes lines; nobody else reads the keys.

Imports nothing of this room but `words` and `lines`.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Final

from journeyman.cli.show.lines import Line

_STDIN: Final = 0
_PRINTED: Final = (1, 2)
_LONGEST_LINE: Final = 10_000
_ROWS: Final = 100
_PATIENCE_S: Final = 0.2


class Taken:
    """The terminal, taken from stdin, stdout and stderr until it is given back."""

    def __init__(self, say: Callable[[Sequence[Line]], None]) -> None:
        """`say` takes the lines that others print, in a thread of its own."""
        self._say = say
        self._kept = {number: os.dup(number) for number in (_STDIN, *_PRINTED) if os.isatty(number)}
        self.input: Final = open(os.dup(self._kept[_STDIN]), encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
        self.output: Final = open(os.dup(self._kept[1]), "w", encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
        nothing, (heard, told) = os.open(os.devnull, os.O_RDONLY), os.pipe()
        os.dup2(nothing, _STDIN)
        for number in self._kept.keys() & _PRINTED:
            os.dup2(told, number)
        os.close(nothing)
        os.close(told)
        self._reader = Thread(target=self._listen, args=(heard,), name="journeyman-printed", daemon=True)
        self._reader.start()

    def _listen(self, heard: int) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        rest = ""
        while data := os.read(heard, 65_536):
            *whole, rest = (rest + decode(data)).split("\n")
            if len(rest) > _LONGEST_LINE:
                whole, rest = [*whole, rest], ""
            self._show(whole)
        self._show([rest] if rest else [])
        os.close(heard)

    def _show(self, texts: Sequence[str]) -> None:
        lines = [Line(indent=2, mark="bar", text=text, style="dim", rows=_ROWS) for text in texts]
        if lines:
            self._say(lines)

    def give_back(self) -> None:
        """Let everybody use the terminal again. What was printed until then has been shown."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for number, kept in self._kept.items():
            os.dup2(kept, number)
            os.close(kept)
        self._kept = {}
        self._reader.join(_PATIENCE_S)  # a program that the agent left running may still hold the other end
        self.input.close()
        self.output.close()

"""A terminal of 80 columns: a pseudo-terminal for a command, and the screen that its output draws.

The screen knows the few control sequences that a calm program needs, and refuses any other.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Thread

COLUMNS, ROWS = 80, 24

_PATIENCE_S = 30.0
_TOKEN = re.compile(r"\x1b\[(?P<arguments>[?0-9;]*)(?P<command>[A-Za-z])|(?P<character>.)", re.DOTALL)


@dataclass(slots=True)
class Screen:
    """What a terminal shows, with all that has scrolled away."""

    lines: list[str] = field(default_factory=lambda: [""])
    has_cursor: bool = True
    has_colours: bool = False
    _row: int = 0
    _column: int = 0

    def draw(self, output: str) -> None:
        for token in _TOKEN.finditer(output):
            if token["command"]:
                self._control(token["command"], token["arguments"])
            else:
                self._print(token["character"])

    def _control(self, command: str, arguments: str) -> None:
        match command, arguments:
            case "m", _:
                self.has_colours |= any(30 <= int(code or 0) < 48 for code in arguments.split(";"))
            case "A", count:
                self._row = max(0, self._row - int(count or 1))
            case "K", "2":
                self.lines[self._row] = ""
            case (("h" | "l"), "?25"):
                self.has_cursor = command == "h"
            case _:
                raise AssertionError(f"an unexpected control sequence: {arguments}{command}")

    def _print(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._move_down()
        else:
            if self._column == COLUMNS:
                self._move_down()
                self._column = 0
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def _move_down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._output = b""
        self.n_writes = 0
        """How many times there was something to draw."""
        self._news = Condition()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while data := self._next():
            with self._news:
                self._output += data
                self.n_writes += 1
                self._news.notify_all()

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, 65_536)
        except OSError:  # the other end was closed
            return b""

    @property
    def screen(self) -> Screen:
        screen = Screen()
        screen.draw(self._output.decode("utf-8", "ignore"))
        return screen

    def times_drawn(self, text: str) -> int:
        """Return how many times `text` was drawn, also where it was drawn over since."""
        return self._output.decode("utf-8", "ignore").count(text)

    def wait_for(self, ready: Callable[[Screen], bool]) -> Screen:
        """Wait until the screen is as it should be."""
        until = time.monotonic() + _PATIENCE_S
        with self._news:
            while not ready(self.screen):
                left = until - time.monotonic()
                assert left > 0, f"the screen is not as it should be:\n{self.screen.text}"
                self._news.wait(left)
            return self.screen

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def end(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        code = self.process.wait(_PATIENCE_S)
        self._reader.join(_PATIENCE_S)
        return code


@contextmanager
def terminal(command: list[str], environment: dict[str, str]) -> Generator[Terminal]:
    """Start a command in a terminal: stdin, stdout and stderr. It is killed when the block ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
    finally:
        os.close(theirs)
    with process:
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)

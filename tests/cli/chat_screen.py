"""A real terminal for `journeyman chat`: 80 columns, a screen that pyte draws, and all that has scrolled away."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pyte

from tests.cli.program import command, environment

AGENTS = Path(__file__).parent / "chat_agents.py"
COLUMNS, ROWS = 80, 40
PATIENCE_S = 30.0


class ChatScreen:
    """A chat in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._screen: Any = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._news = Condition()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while data := self._next():
            with self._news:
                self._stream.feed(data)
                self._news.notify_all()

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, 65_536)
        except OSError:  # the other end was closed
            return b""

    @property
    def text(self) -> str:
        """All rows so far."""
        with self._news:
            above = ["".join(row[column].data for column in range(COLUMNS)) for row in self._screen.history.top]
            return "\n".join(row.rstrip() for row in [*above, *self._screen.display]).rstrip()

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    def see(self, text: str, *, times: int = 1) -> str:
        """Wait until the screen shows `text`, and return all of it."""
        until = time.monotonic() + PATIENCE_S
        while (shown := self.text).count(text) < times:
            left = until - time.monotonic()
            assert left > 0, f"{text!r} is not on the screen:\n{shown}"
            with self._news:
                self._news.wait(min(left, 0.1))
        return shown

    def type(self, text: str) -> None:
        """Type a line, and press Enter."""
        self.press(text.encode() + b"\r")

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def chatting(folder: Path, *words: str, agent: str = "helper", **more: str) -> Generator[ChatScreen]:
    """Start `journeyman chat` in `folder`, and wait until it listens. It is killed when the block ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    before = termios.tcgetattr(theirs)
    if not (folder / "door").exists():
        os.mkfifo(folder / "door")  # what the agents' tool waits for
    process = subprocess.Popen(
        command("chat", f"{AGENTS}:{agent}", *words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment(TERM="xterm-256color", XDG_DATA_HOME=str(folder / "data"), **more),
        start_new_session=True,
    )
    with process:
        try:
            screen = ChatScreen(process, ours)
            screen.see("/help shows what else there is.")
            yield screen
            if process.poll() is not None and process.returncode >= 0:
                assert termios.tcgetattr(theirs)[:4] == before[:4], "the terminal is not as it was"
        finally:
            process.kill()
            os.close(theirs)
            os.close(ours)

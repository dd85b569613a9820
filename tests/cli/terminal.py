"""A pseudo-terminal for a command, and the screen that its output draws, with all that has scrolled away."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pyte

from tests.cli.program import Process, Start, environment, from_nothing

CHAT_AGENTS = Path(__file__).parent / "chat_agents.py"
COLUMNS = 80
PATIENCE_S = 30.0
_LOUD = re.compile(r"\x1b(?!\[(?:[0-9;]*m|[0-9]*A|2K|\?25[hl]))")
"""Begins a control sequence that does more than go up, clear a line, colour, or hide the cursor."""


def _unbroken(text: str) -> str:
    """Return the characters of `text` that are there at any width of the screen."""
    return re.sub(r"[\s│]", "", text)


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, process: Process, ours: int, theirs: int, settings: list[Any], size: tuple[int, int]) -> None:
        """`settings` are those of the terminal before the command had it, `size` its columns and rows."""
        self.process = process
        self._ours = ours
        self._theirs = theirs
        self._settings = settings
        self._screen: Any = pyte.HistoryScreen(*size, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
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
                self._stream.feed(data)
                self.n_writes += 1
                self._news.notify_all()

    def _next(self) -> bytes:
        try:
            return os.read(self._ours, 65_536)
        except OSError:  # the other end was closed
            return b""

    @property
    def output(self) -> str:
        """What the command has written so far, with its control sequences."""
        with self._news:
            return self._output.decode("utf-8", "ignore")

    @property
    def text(self) -> str:
        """All rows so far, those that have scrolled away included."""
        with self._news:
            above = [
                "".join(row[column].data for column in range(self._screen.columns)) for row in self._screen.history.top
            ]
            return "\n".join(row.rstrip() for row in [*above, *self._screen.display]).rstrip()

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def has_colours(self) -> bool:
        codes = ";".join(re.findall(r"\x1b\[([0-9;]*)m", self.output)).split(";")
        return any(30 <= int(code or 0) < 48 for code in codes)

    @property
    def is_calm(self) -> bool:
        """Whether only the few control sequences were written that a calm program needs."""
        return _LOUD.search(self.output) is None

    def times_drawn(self, text: str) -> int:
        """Return how many times `text` was drawn, also where it was drawn over since."""
        return self.output.count(text)

    def wait_for(self, ready: Callable[[str], bool]) -> str:
        """Wait until the text on the screen is as it should be, and return it."""
        until = time.monotonic() + PATIENCE_S
        while not ready(shown := self.text):
            left = until - time.monotonic()
            assert left > 0, f"the screen is not as it should be:\n{shown}"
            with self._news:
                self._news.wait(min(left, 0.1))
        return shown

    def see(self, text: str) -> str:
        """Wait until the screen shows `text`, and return all of it."""
        return self.wait_for(lambda shown: text in shown)

    def see_flowing(self, text: str) -> str:
        """Wait until the screen shows `text`, wherever its lines are broken and whatever bar begins them."""
        return self.wait_for(lambda shown: _unbroken(text) in _unbroken(shown))

    def type(self, text: str, sign: str = "") -> str:
        """Type a line, and press Enter. Wait until the screen shows `sign`, and return all of it."""
        self.press(text.encode() + b"\r")
        return self.see(sign)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """Wait for the end of the command, and return its exit code. It leaves the terminal as it was."""
        code = self.process.wait(PATIENCE_S)
        assert code < 0 or termios.tcgetattr(self._theirs)[:4] == self._settings[:4], "the terminal is not as it was"
        return code

    def close(self) -> None:
        """Stop the command if it goes on, and draw the rest of what it wrote."""
        self.process.kill()
        os.close(self._theirs)
        self._reader.join(PATIENCE_S)
        os.close(self._ours)


@contextmanager
def terminal(
    *words: str,
    folder: Path | None = None,
    columns: int = COLUMNS,
    rows: int = 24,
    start: Start = from_nothing,
    stdin: Path | None = None,
    stdout: Path | None = None,
    **more: str,
) -> Generator[Terminal]:
    """Start `journeyman` in a terminal: stdin and stdout, unless they lead to a file, and stderr. It is killed when the
    block ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    settings = termios.tcgetattr(theirs)
    with ExitStack() as files:
        given = theirs if stdin is None else files.enter_context(stdin.open("rb")).fileno()
        taken = theirs if stdout is None else files.enter_context(stdout.open("wb")).fileno()
        process = start(words, (given, taken, theirs), folder, environment(**{"TERM": "xterm-256color", **more}))
    with process, closing(Terminal(process, ours, theirs, settings, (columns, rows))) as screen:
        yield screen
        if process.poll() is not None:
            screen.end()


@contextmanager
def chatting(
    folder: Path, *words: str, agent: str = "helper", columns: int = COLUMNS, start: Start = from_nothing, **more: str
) -> Generator[Terminal]:
    """Start `journeyman chat` in `folder`, and wait until it listens."""
    if not (folder / "door").exists():
        os.mkfifo(folder / "door")  # what the agents' tool waits for
    more["XDG_DATA_HOME"] = str(folder / "data")
    words = ("chat", f"{CHAT_AGENTS}:{agent}", *words)
    with terminal(
        *words, folder=folder, columns=columns, rows=40, start=start, stdin=None, stdout=None, **more
    ) as screen:
        greeting = "/help shows what else there is."
        # Before the line is there, keys are the terminal's own, which holds them until Enter.
        screen.wait_for(lambda shown: greeting in " ".join(shown.split()) and ">" in shown.splitlines())
        yield screen

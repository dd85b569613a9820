"""A chat in lines, one after the other, with nothing drawn over: for screen readers, and where nothing can be.

What is typed is read by the line, as the terminal gives it. What a line is for is said before it is asked for; where a
question came while one was typed, that line is its answer, if it is one of the words that are.
"""

from __future__ import annotations

import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread, Timer
from typing import Final

from journeyman.cli.chat.view import SAY, ChatView, EnteredLine, Keys
from journeyman.cli.ending import end_process
from journeyman.cli.permit.asked import Prompt
from journeyman.cli.show.lines import Line, laid_out
from journeyman.cli.show.screen import plain_console

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""
LEAVING: Final = Line(text="Press Ctrl-C again to leave.", style="yellow")
_GRACE_S: Final = 0.8
"""How long leaving may take, in seconds, before the process is ended."""
_STOPPING: Final = Line(mark="stopped", text="stopping; press Ctrl-C again to quit at once")


class PlainTerminal:
    """Shows a view, and hears what is typed."""

    def __init__(self, view: ChatView, keys: Keys) -> None:
        self._view = view
        self._keys = keys
        self._console = plain_console()
        self._lock = Lock()
        """Guards what follows, and what is written."""
        self._prompt: Prompt | None = None
        """What the line that is being typed is for; None when nothing was asked for."""
        self._asked_to_leave = False
        self._is_leaving = False
        self._reader = Thread(target=self._read, name="journeyman-stdin", daemon=True)

    def start(self) -> None:
        """Write, and listen. Once it does, nothing changes."""
        self._view.watch(self._write)
        if self._reader.ident is None:
            self._reader.start()
        self._write()

    def close(self) -> None:
        """Show what is left."""
        self._view.watch(lambda: None)
        self._write(asks=False)
        print(flush=True)

    def interrupt(self) -> None:
        """Do what Ctrl-C does. Any thread may."""
        if self._is_leaving:
            end_process(INTERRUPTED, terminal=1, last=b"\n")
        elif self._view.is_working:
            if not self._view.stop():
                end_process(INTERRUPTED, terminal=1, last=b"\n")
            self._view.say([_STOPPING])
            self._keys.interrupted()
        elif self._asked_to_leave:
            self.leave(INTERRUPTED)
        else:
            self._asked_to_leave = True
            self._view.say([LEAVING])

    def leave(self, exit_code: int) -> None:
        """Leave, at the latest after a moment. Any thread may."""
        self.hurry(exit_code)
        self._keys.left(exit_code)

    def hurry(self, exit_code: int) -> None:
        """End the process after a moment, if it has not ended by then."""
        if not self._is_leaving:
            self._is_leaving = True
            after_grace(lambda: end_process(exit_code, terminal=1, last=b"\n"))

    # -- writing

    def _write(self, *, asks: bool = True) -> None:
        """Write what is new, and ask for a line where one is wanted. Any thread may."""
        with self._lock:
            lines = self._view.take()
            if lines and self._prompt is not None:
                print()
                self._prompt = None
            for line in lines:
                for row in laid_out(line, self._console):
                    self._console.print(row)
            wanted = self._view.prompt
            if asks and wanted is not self._prompt and (wanted is not SAY or not self._view.is_working):
                self._ask(wanted)

    def _ask(self, wanted: Prompt) -> None:
        if self._prompt is not None:
            print()
        self._prompt = wanted
        shown = [Line(text=text, rows=100) for text in (wanted.hint, wanted.given) if text]
        for row in (row for line in shown for row in laid_out(line, self._console)):
            self._console.print(row)
        print(wanted.label, end="", flush=True)

    # -- reading

    def _read(self) -> None:
        for text in lines_of_stdin():
            with self._lock:
                prompt, self._prompt = self._prompt or SAY, None
            self._asked_to_leave = False
            if text.strip() or prompt.id:
                self._keys.entered(EnteredLine(text, prompt.id))
            else:
                self._write()
        self.leave(0)


def lines_of_stdin() -> Iterator[str]:
    """Give the lines of stdin as they come, without their ends.

    Python's own buffer is not used: if the process ended while a thread waits for it, Python would abort.
    """
    if sys.stdin is None:  # it was closed: its number may be that of something else
        return
    decode, rest = getincrementaldecoder("utf-8")("replace").decode, ""
    with suppress(OSError):  # the terminal is gone: nothing more will come
        while data := os.read(0, 65_536):
            *whole, rest = (rest + decode(data)).split("\n")
            yield from (line.rstrip("\r") for line in whole)
    if rest:
        yield rest


def after_grace(end: Callable[[], None]) -> None:
    """End the process by `end` after a moment, if it has not ended by then."""
    timer = Timer(_GRACE_S, end)
    timer.daemon = True
    timer.start()

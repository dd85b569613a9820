"""The screens that show a tree: a live terminal, plain lines, or nothing; and the signals that stop what it shows.

In a terminal finished lines are printed above, for good, and only the tail is drawn again, by a thread of its own: ten
times a second, even while a tool or a validator blocks the event loop. For the same reason a thread hears Ctrl-C and
SIGTERM: the first stops the run and keeps what it gathered, the second quits at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event as Flag
from threading import Lock, Thread
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from journeyman.cli.show.lines import Line, laid_out, one_line, speaks_unicode
from journeyman.cli.show.tail import Tail
from journeyman.cli.show.tree import Tree
from journeyman.definition.problems import join_sentences
from journeyman.events import Event
from journeyman.events.json_form import told_of
from journeyman.events.run_view import RunViews

_BETWEEN_PAINTS_S: Final = 0.1
_ERROR: Final = "error:"
_ERROR_ROWS: Final = 40
_STOPPING: Final = Line(mark="stopped", text="stopping; interrupt again to quit at once")


class Screen:
    """Shows a run; this one shows nothing. `show` may be called from the event loop, `stopping` from any thread."""

    def __init__(self) -> None:
        self.views: Final = RunViews(keeps_roots=True)

    def show(self, event: Event) -> None:
        """Take in the next event."""
        self.views.take(told_of(event))

    def say(self, lines: Sequence[Line]) -> None:
        """Print lines of one's own after what was shown so far."""

    def stopping(self) -> None:
        """Say that the user's wish to stop was heard."""

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to somebody else while the block runs, with all that was shown so far on it."""
        return nullcontext()

    def close(self) -> None:
        """Show what is left, and leave the terminal as it was."""


def open_screen(*, quiet: bool, status: Callable[[], RenderableType] | None = None) -> Screen:
    """Return the screen that fits where stderr leads. In a terminal its last rows are what `status` returns; without
    that, what the run does now."""
    if quiet:
        return Screen()
    console = stderr_console()
    return LiveScreen(console, status) if console.is_terminal else PlainScreen(console)


def stderr_console() -> Console:
    """Return a console on stderr: with colours in a terminal that has them, or where `FORCE_COLOR` is set."""
    is_live = sys.stderr is not None and sys.stderr.isatty() and not is_dumb()
    return plain_console(stderr=True, is_live=is_live)


def plain_console(*, stderr: bool = False, is_live: bool = False) -> Console:
    """Return a console on stdout, or on stderr. Unless it is live, colours are its only escape sequences, and only
    with `FORCE_COLOR`."""
    has_colours = bool(os.environ.get("FORCE_COLOR")) and not is_live
    return Console(
        stderr=stderr,
        force_terminal=is_live,
        color_system="standard" if has_colours else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def is_dumb() -> bool:
    """Tell whether the terminal, as `TERM` has it, cannot draw over what it shows."""
    return os.environ.get("TERM", "") in ("dumb", "unknown")


def print_error(message: str, hint: str) -> None:
    """Print one line: what is wrong, and the next step."""
    console = stderr_console()
    line = Line(name=_ERROR, text=one_line(join_sentences(message, hint)), rows=_ERROR_ROWS)
    rows = laid_out(line, console) if console.is_terminal else [Text(f"{_ERROR} {line.text}")]
    for number, row in enumerate(rows):
        if number == 0:
            row.stylize("red", 0, len(_ERROR))
        console.print(row)


class PlainScreen(Screen):
    """Prints each line once, as it comes."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._tree = Tree()

    def show(self, event: Event) -> None:
        self.say(self._tree.lines(event, self.views.take(told_of(event))))

    def say(self, lines: Sequence[Line]) -> None:
        for line in lines:
            for row in laid_out(line, self._console):
                self._console.print(row)

    def stopping(self) -> None:
        self.say([_STOPPING])

    def close(self) -> None:
        self.say(self._tree.rest())


class LiveScreen(Screen):
    """Prints finished lines above a tail that moves."""

    def __init__(self, console: Console, status: Callable[[], RenderableType] | None) -> None:
        super().__init__()
        self._console = console
        self._status = status
        self._tree = Tree()
        self._tail = Tail(self.views)
        self._waiting: list[Line] = []
        self._lock = Lock()
        """Guards the three above, and the views; never held while the terminal is written to."""
        self._painting = Lock()
        """Held by whoever writes to the terminal."""
        self._closing = Flag()
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._live.start()
        self._painter = Thread(target=self._paint_on, name="journeyman-screen", daemon=True)
        self._painter.start()

    def show(self, event: Event) -> None:
        with self._lock:
            self._waiting += self._tree.lines(event, self.views.take(told_of(event)))

    def say(self, lines: Sequence[Line]) -> None:
        with self._lock:
            self._waiting += lines
        if self._closing.is_set():
            self._print_waiting()

    def stopping(self) -> None:
        with self._lock:
            self._tail.is_stopping = True

    @contextmanager
    def paused(self) -> Generator[None]:
        with self._painting:
            self._live.update("")
            self._live.stop()
            self._print_waiting()
            try:
                yield
            finally:
                self._live.start()

    def close(self) -> None:
        if not self._closing.is_set():
            self._closing.set()
            self._painter.join()
            self._waiting += self._tree.rest()
            self._live.update("")
            self._live.stop()
        self._print_waiting()

    def _print_waiting(self) -> None:
        for row in self._take_rows():
            self._console.print(row)

    def _take_rows(self) -> list[RenderableType]:
        """Take out the lines that wait, laid out."""
        with self._lock:
            finished, self._waiting = self._waiting, []
        return self._laid_out(finished)

    def _paint_on(self) -> None:
        while not self._closing.wait(_BETWEEN_PAINTS_S):
            with self._painting:
                self._paint()

    def _paint(self) -> None:
        finished = self._take_rows()
        if self._status is None:
            with self._lock:
                tail = list(self._tail.lines(unicode=speaks_unicode(self._console)))
            self._live.update(Group(*self._laid_out(tail)))
        else:
            self._live.update(self._status())
        if finished:
            self._console.print(*finished, sep="\n")
        else:
            self._live.refresh()

    def _laid_out(self, lines: Sequence[Line]) -> list[RenderableType]:
        return [row for line in lines for row in laid_out(line, self._console)]

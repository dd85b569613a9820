"""What is to be seen of a chat: finished lines, the tail below them, and what the input line is for.

The thread of the chat writes it, and the thread of the terminal reads it. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from journeyman.cli.show.lines import Line
from journeyman.cli.show.tail import Tail
from journeyman.events import Event


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What the input line is for."""

    label: str
    """The text before the line."""
    id: str = ""
    """The id of the question that the line answers; empty when the line is said to the agent."""
    given: str = ""
    """The text in the line at first, to be edited."""
    hint: str = ""
    """The text above the line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that the user entered, and what it was meant for when it was begun."""

    text: str
    id: str = ""
    """The id of the question that it answers; empty when it is said to the agent."""


SAY: Final = Prompt("> ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What the terminal tells. It calls these in its own thread."""

    entered: Callable[[Entry], None]
    interrupted: Callable[[], None]
    """The user wants the turn to stop."""
    left: Callable[[int], None]
    """The user wants to leave, with this exit code."""


class View:
    """What is to be seen of a chat. Without a terminal, the lines are printed and the rest is not asked for."""

    def __init__(self) -> None:
        self._lock = Lock()
        """Guards what follows; never held while something is drawn."""
        self._finished: list[Line] = []
        self._tail: Tail | None = None
        self._words = ""
        self._queued: tuple[Line, ...] = ()
        self._prompt = SAY
        self._wake: Callable[[], None] = lambda: None  # nobody watches yet

    # -- for the thread of the chat

    def say(self, lines: Sequence[Line]) -> None:
        """Show finished lines, after those before them. Any thread may."""
        with self._lock:
            self._finished += lines
        self._wake()

    def begin(self) -> None:
        """Note that a turn has begun. During a turn, this changes nothing."""
        with self._lock:
            self._tail = self._tail or Tail(shows_words=False)
        self._wake()

    def end(self) -> None:
        """Note that the turn has ended."""
        with self._lock:
            self._tail, self._words = None, ""
        self._wake()

    def follow(self, event: Event) -> None:
        """Let the tail take note of what happened."""
        with self._lock:
            if self._tail is not None:
                self._tail.follow(event)

    def write(self, words: str) -> None:
        """Show the line that the model is writing, instead of the one before."""
        with self._lock:
            self._words = words

    def queue(self, lines: Sequence[Line]) -> None:
        """Show what waits to be said."""
        with self._lock:
            self._queued = tuple(lines)
        self._wake()

    def ask(self, prompt: Prompt) -> None:
        """Say what the input line is for from now on."""
        with self._lock:
            self._prompt = prompt
        self._wake()

    # -- for the thread of the terminal

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever there is something new. It must be quick."""
        self._wake = wake

    def stop(self) -> bool:
        """Note that the user wants the turn to stop. False: that was noted before."""
        with self._lock:
            if self._tail is None or self._tail.is_stopping:
                return False
            self._tail.is_stopping = True
            return True

    @property
    def is_working(self) -> bool:
        """True while a turn goes on."""
        return self._tail is not None

    @property
    def prompt(self) -> Prompt:
        """What the input line is for."""
        return self._prompt

    @property
    def words(self) -> str:
        """What the model has written of a line so far."""
        return self._words

    def take(self) -> list[Line]:
        """Take out the finished lines that were not taken yet."""
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def tail(self) -> list[Line]:
        """Return the lines below the finished ones."""
        with self._lock:
            moving = [] if self._tail is None else list(self._tail.lines(unicode=True))
            return [*moving, *self._queued]

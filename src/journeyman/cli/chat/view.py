"""The state that a chat in the terminal shows: finished lines, the tail below them, and the prompt of the input line.

The thread of the chat writes it, and the thread of the terminal reads it. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, Timer
from typing import Final

from rich.cells import cell_len

from journeyman.cli.permit.asked import Prompt
from journeyman.cli.show.lines import Line
from journeyman.cli.show.tail import Tail
from journeyman.events import Event
from journeyman.events.json_form import told_of
from journeyman.events.run_view import RunView, RunViews


@dataclass(frozen=True, slots=True)
class EnteredLine:
    """A line that the user entered, and what it was meant for when it was begun."""

    text: str
    id: str = ""
    """The id of the question that it answers; empty when it is said to the agent."""


SAY: Final = Prompt("> ")
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""
LEAVING: Final = Line(text="Press Ctrl-C again to leave.", style="yellow")
_GRACE_S: Final = 0.8
"""How long leaving may take, in seconds, before the process is ended."""
_FULL: Final = 0.8
"""From this share of the window on, what is used of it stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The facts in the row below the input line: model, window, mode, cost, and what waits or goes on."""

    model: str = ""
    """The name of the model, without its provider."""
    used_tokens: int = 0
    """About how many tokens the conversation takes in the model's window; 0 when unknown."""
    window_tokens: int | None = None
    """The model's window, in tokens; None when unknown."""
    cost: float | None = None
    """What the chat has cost so far, in US dollars; None when unknown."""
    mode: str = ""
    """What happens to calls of which no rule speaks; empty when the agent's own gate decides."""
    n_queued: int = 0
    """How many texts wait to be said."""
    n_background: int = 0
    """How many tasks go on in the background."""

    def line(self, width: int) -> Line:
        """Return the row, without what does not fit: of what is left out, the first is the cost, the last the model."""
        parts = {
            "queue": f"{self.n_queued} queued" if self.n_queued else "",
            "model": self.model,
            "window": self._window(),
            "mode": self.mode,
            "background": f"{self.n_background} in the background" if self.n_background else "",
            "cost": "" if self.cost is None else f"${self.cost:.4f}",
        }
        kept = [part for part in parts.values() if part]
        while len(kept) > 1 and cell_len(" · ".join(kept)) > width:
            kept.pop()
        is_full = bool(self.window_tokens) and self.used_tokens >= _FULL * (self.window_tokens or 1)
        return Line(text=" · ".join(kept), style="yellow" if is_full else "dim")

    def _window(self) -> str:
        if not self.used_tokens:
            return ""
        if not self.window_tokens:
            return f"{_short(self.used_tokens)} tokens"
        share = self.used_tokens / self.window_tokens
        return f"{f'{share:.0%}' if share >= 0.01 else '<1%'} of {_short(self.window_tokens)}"


def _short(tokens: int) -> str:
    """Return a number of tokens in few letters: `950`, `12.3k`, `200k`, `1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}".removesuffix(".0") + letter
    return str(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The functions that the terminal calls, in its own thread, when the user enters a line, interrupts or leaves."""

    entered: Callable[[EnteredLine], None]
    interrupted: Callable[[], None]
    """The user wants the turn to stop."""
    left: Callable[[int], None]
    """The user wants to leave, with this exit code."""


class ChatView:
    """A buffer between a chat and the screen. Without a terminal its lines are printed, and the rest is not used."""

    def __init__(self) -> None:
        self._lock = Lock()
        """Guards what follows; never held while something is drawn."""
        self._views = RunViews()
        self._finished: list[Line] = []
        self._tail: Tail | None = None
        self._growing: tuple[Line, ...] = ()
        self._queued: tuple[Line, ...] = ()
        self.status = Status()
        """How the chat is."""
        self.prompt = SAY
        """What the input line is for."""
        self.height = 1_000
        """How many rows the terminal has; more than enough where nothing is drawn over."""
        self._wake: Callable[[], None] = lambda: None  # nobody watches yet

    def say(self, lines: Sequence[Line]) -> None:
        """Show finished lines, after those before them. Any thread may."""
        with self._lock:
            self._finished += lines
        self._wake()

    def begin(self, doing: str = "") -> None:
        """Note that a turn has begun, or other work, and what it does at first. Meanwhile, this changes nothing."""
        with self._lock:
            self._tail = self._tail or Tail(self._views, shows_words=False, doing=doing)
        self._wake()

    def end(self) -> None:
        """Note that the turn has ended."""
        with self._lock:
            self._tail, self._growing = None, ()
        self._wake()

    def follow(self, event: Event) -> RunView | None:
        """Take note of what happened. Return the view of its run; None when it happened beside the runs."""
        with self._lock:
            return self._views.take(told_of(event))

    def grow(self, lines: Sequence[Line]) -> None:
        """Show the block that the model is writing, instead of the one before."""
        with self._lock:
            self._growing = tuple(lines)

    def tell(self, status: Status) -> None:
        """Show how the chat is."""
        is_new, self.status = status != self.status, status
        if is_new:
            self._wake()

    def queue(self, lines: Sequence[Line]) -> None:
        """Show what waits to be said."""
        with self._lock:
            self._queued = tuple(lines)
        self._wake()

    def ask(self, prompt: Prompt) -> None:
        """Say what the input line is for from now on."""
        self.prompt = prompt
        self._wake()

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

    def take(self) -> list[Line]:
        """Take out the finished lines that were not taken yet."""
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def tail(self) -> list[Line]:
        """Return the lines below the finished ones."""
        with self._lock:
            moving = [] if self._tail is None else list(self._tail.lines(unicode=True))
            return [*self._growing, *moving, *self._queued]


class ChatExit:
    """The ways to stop a turn and to leave a chat, which wait for nothing for longer than a moment. Any thread may."""

    def __init__(self, view: ChatView, keys: Keys, end: Callable[[int], None], *, is_patient: bool = False) -> None:
        """`end` ends the process at once. `is_patient`: the turn is stopped, and left after its end, which is waited
        for."""
        self._view = view
        self._keys = keys
        self._end = end
        self._is_patient = is_patient
        self.was_asked = False
        """True after Ctrl-C where nothing was to be stopped: the next one leaves."""
        self.is_leaving = False

    def interrupt(self) -> None:
        """Do what Ctrl-C does: stop the turn; end the process, where it was stopped before; leave, the second time."""
        if self._is_patient:
            self.leave(INTERRUPTED)
        elif self.is_leaving or (self._view.is_working and not self._view.stop()):
            self._end(INTERRUPTED)
        elif self._view.is_working:
            self._keys.interrupted()
        elif self.was_asked:
            self.leave(INTERRUPTED)
        else:
            self.was_asked = True

    def leave(self, exit_code: int) -> None:
        """Leave; if that goes on already, or there is nothing to be patient with, at once."""
        if self.is_leaving or (self._is_patient and not self._view.is_working):
            self._end(exit_code)
        if not self._is_patient:
            self.hurry(exit_code)
        self.is_leaving = True
        self._keys.left(exit_code)
        if self._is_patient:  # only now, so that nothing more is said when the turn has ended
            self._keys.interrupted()

    def hurry(self, exit_code: int) -> None:
        """End the process after a moment, if it has not ended by then."""
        if not self.is_leaving:
            self.is_leaving = True
            timer = Timer(_GRACE_S, self._end, [exit_code])
            timer.daemon = True
            timer.start()

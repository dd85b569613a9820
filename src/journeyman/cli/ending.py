"""Ctrl-C and SIGTERM, and the end of a command that was told to stop: it comes in time, whatever still waits for a
store, a collector, a server, a thread or a process that does not answer.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Final, NoReturn

from journeyman.cancellation import Abort
from journeyman.cli.show.screen import print_error
from journeyman.closing import TimeToEnd
from journeyman.machine.descriptors import take_descriptor
from journeyman.processes.marked import kill_children

TERMINATED_S: Final = 8.0
"""Within how many seconds a command ends after SIGTERM that has no `--grace`: others kill it after ten."""
_REASONS: Final = {signal.SIGINT: "interrupted (Ctrl-C)", signal.SIGTERM: "terminated (SIGTERM)"}
_SHOW_CURSOR: Final = b"\x1b[?25h"
_LEFT: Final = 1
"""The exit code of a command that could not wait for everything."""


class TimedEnd(TimeToEnd):
    """The end of a command. When its time is up, the process ends, and says what it has left."""

    def __init__(self, grace_s: float = TERMINATED_S, *, exit_code: int = _LEFT) -> None:
        """`grace_s` is in how many seconds it comes after the first signal."""
        super().__init__()
        self.grace_s: Final = grace_s
        self._exit_code: Final = exit_code
        self._has_changed: Final = threading.Event()
        self._is_over = False
        self._is_up = False
        """True once the time is up, and what is left is being ended."""
        self._deciding: Final = threading.Lock()
        self._watching: threading.Thread | None = None

    def begin(self, within_s: float) -> None:
        super().begin(within_s)
        self._has_changed.set()
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="journeyman-end", daemon=True)
            self._watching.start()

    def hear(self) -> None:
        """Take in a signal. After the second one it comes as soon as it can."""
        self.begin(0.0 if self.has_begun else self.grace_s)

    def finish(self) -> None:
        """Note that nothing waits any more but threads, for which Python waits at its end. Where the time is up, this
        waits for the end of the process: what was killed does not count as having ended."""
        with self._deciding:
            if not self._is_up and not awaited_threads():
                self._is_over = True
                self._has_changed.set()
        if self._is_up and self._watching is not None:
            self._watching.join()

    def _watch(self) -> None:
        while not self._is_over and (left_s := self.left_s()) > 0:
            self._has_changed.wait(left_s)
            self._has_changed.clear()
        with self._deciding:
            self._is_up = not self._is_over
        if self._is_up:
            names = ", ".join(awaited_threads())
            said = f"Not everything has ended in time, and is left{f': {names}' if names else ''}."
            print_error(said, "Look at what was told before this, or give it longer, if it has --grace.")
            kill_children()
            end_process(self._exit_code, terminal=2, last=b"")


@contextmanager
def ending_in_time(grace_s: float) -> Generator[TimedEnd]:
    """Give the end of a command, all of which is in the block."""
    end = TimedEnd(grace_s)
    try:
        yield end
    finally:
        end.finish()


def awaited_threads() -> list[str]:
    """Return the names of the threads for which Python waits."""
    main = threading.main_thread()
    return [each.name for each in threading.enumerate() if each is not main and not each.daemon]


class Interrupt:
    """Listens for signals while its block runs."""

    def __init__(
        self,
        abort: Abort,
        on_first: Callable[[], None],
        *,
        end: TimedEnd | None = None,
        hurry: Callable[[], object] | None = None,
    ) -> None:
        """`on_first` is called at the first signal. SIGTERM begins the `end`, or one of its own. With `hurry`, so does
        Ctrl-C, and `hurry` is called at each further signal; without it the second one ends the process."""
        self._abort = abort
        self._on_first = on_first
        self._end = end
        self._hurry = hurry
        self.exit_code: int | None = None
        """128 and the number of the first signal, as shells count; None while there was none."""
        self.has_ended = False
        """True when there is nothing left to stop: the next signal quits."""

    def listening(self) -> AbstractContextManager[None]:
        """Listen. A signal that the caller of the program ignores stays ignored."""
        return hearing(self._hear)

    def _hear(self, number: signal.Signals) -> None:
        is_again = self.exit_code is not None or self.has_ended
        if is_again and self._hurry is None:
            end_process(128 + number, terminal=2, last=b"\r\n" + _SHOW_CURSOR)
        self.exit_code = self.exit_code or 128 + number
        if number == signal.SIGTERM or self._hurry is not None:
            self._end = self._end or TimedEnd(exit_code=self.exit_code)
            self._end.hear()
        if not is_again:
            self._on_first()
            self._abort.abort(_REASONS[number])
        elif self._hurry is not None and not self.has_ended:
            self._hurry()


@contextmanager
def hearing(hear: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call `hear`, in a thread of its own, for each Ctrl-C and SIGTERM while the block runs."""
    heard, told = socket.socketpair()
    told.setblocking(False)
    numbers = [number for number in _REASONS if signal.getsignal(number) is not signal.SIG_IGN]
    # Python's own handler would raise KeyboardInterrupt.
    before = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
    wakeup_before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    Thread(target=_listen, args=(heard, hear), name="journeyman-signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, previous in before.items():
            signal.signal(number, previous)
        told.close()


def _listen(heard: socket.socket, hear: Callable[[signal.Signals], None]) -> None:
    with heard:
        while received := heard.recv(1):
            if received[0] in _REASONS:
                hear(signal.Signals(received[0]))


def end_process(exit_code: int, *, terminal: int, last: bytes) -> NoReturn:
    """End the process at once, also where the terminal is gone. Nothing comes after `last`, whatever threads draw."""
    try:
        if os.isatty(terminal):
            os.write(take_descriptor(terminal, os.open(os.devnull, os.O_WRONLY)), last)
    finally:
        os._exit(exit_code)

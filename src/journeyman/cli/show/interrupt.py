"""Ctrl-C and SIGTERM: the first stops the run and keeps what it gathered, the second quits at once.

The signals are heard by a thread: the event loop, and Python's own signal handlers, may wait for a tool that blocks
them. Imports `cancel`.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Thread
from typing import Final

from journeyman.cancel import Abort

_REASONS: Final = {signal.SIGINT: "interrupted (Ctrl-C)", signal.SIGTERM: "terminated (SIGTERM)"}
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Interrupt:
    """Listens for signals while its block runs."""

    def __init__(self, abort: Abort, on_first: Callable[[], None]) -> None:
        self._abort = abort
        self._on_first = on_first
        self.exit_code: int | None = None
        """128 and the number of the first signal, as shells count; None while there was none."""
        self.has_ended = False
        """Set when there is nothing left to stop: the next signal quits."""

    @contextmanager
    def listening(self) -> Generator[None]:
        """Listen. A signal that the caller of the program ignores stays ignored."""
        with hearing(self._hear):
            yield

    def _hear(self, number: signal.Signals) -> None:
        if self.exit_code is not None or self.has_ended:
            _quit(128 + number)
        self.exit_code = 128 + number
        self._on_first()
        self._abort.abort(_REASONS[number])


@contextmanager
def hearing(hear: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call `hear`, in a thread of its own, for each Ctrl-C and SIGTERM while the block runs."""
    heard, told = socket.socketpair()
    told.setblocking(False)
    numbers = [number for number in _REASONS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _do_nothing) for number in numbers}
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


def _do_nothing(number: int, frame: object) -> None:
    """Stand where Python's own handler would raise KeyboardInterrupt."""


def _quit(exit_code: int) -> None:
    """End the process without waiting for anything, with a visible cursor on a line of its own."""
    if os.isatty(2):
        os.write(2, b"\r\n" + _SHOW_CURSOR)
    os._exit(exit_code)

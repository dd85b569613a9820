"""SIGTERM and Ctrl-C while a worker serves in a program that has not said what they do."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals_heard(heed: Callable[[], None]) -> Generator[None]:
    """Call `heed` in the running event loop for each SIGTERM and Ctrl-C while the block runs.

    What the program handles itself, or ignores, is left to it; so is everything where this is not the main thread:
    Python lets nobody handle signals elsewhere. Several blocks at the same time all hear.
    """
    heard = [_Heard(number, heed) for number in _NUMBERS if _is_free(number)]
    try:
        yield
    finally:
        for each in heard:
            each.leave()


def _is_free(number: signal.Signals) -> bool:
    """Tell whether nobody in the program has said what this signal does."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(number)
    if handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(handler, _Heard):
        return True
    # `asyncio.run` turns Ctrl-C into a cancellation of its main task.
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


class _Heard:
    """The handler of one signal in one block."""

    def __init__(self, number: signal.Signals, heed: Callable[[], None]) -> None:
        self._number, self._heed = number, heed
        self._loop = asyncio.get_running_loop()
        self._before = signal.signal(number, self)
        self._is_left = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._is_left:
            # A signal comes between any two instructions: only this may be called there, and it wakes the loop.
            self._loop.call_soon_threadsafe(self._heed)
        if isinstance(self._before, _Heard):
            self._before(number, frame)

    def leave(self) -> None:
        """Hear no more. Whoever has begun to hear later, and hears still, passes on what it hears."""
        self._is_left = True
        handler = self
        while handler._is_left and signal.getsignal(self._number) is handler:
            signal.signal(self._number, handler._before)
            if not isinstance(handler._before, _Heard):
                break
            handler = handler._before

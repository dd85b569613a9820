"""The moment at which uvicorn begins to stop: it waits for open streams before it ends the lifespan, and streams of
events wait for their runs. So the application has to hear of the signal itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uvicorn_stop_heard(heed: Callable[[], None]) -> Generator[None]:
    """Call `heed` in the running event loop when uvicorn is told to stop while the block runs. Other servers, and those
    outside of the main thread, are not heard: they have limits of their own, or whoever runs them calls `drain`."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _NUMBERS}
        owners = {number: type(getattr(handler, "__self__", None)).__module__ for number, handler in before.items()}
        before = {number: each for number, each in before.items() if owners[number].partition(".")[0] == "uvicorn"}

    def hear(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(heed)
        before[number](number, frame)

    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hear:
                signal.signal(number, handler)

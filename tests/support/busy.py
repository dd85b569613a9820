"""A busy process: threads that compute all the time and are switched every 10 microseconds, so that what a thread does
comes between any two steps of the event loop."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event, Thread

N_THREADS = 3
SWITCH_INTERVAL_S = 10e-6


@contextmanager
def busy_threads() -> Generator[None]:
    """Let three threads compute in this block, and switch between threads as often as it goes."""
    interval, over = sys.getswitchinterval(), Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(100))

    threads = [Thread(target=compute, daemon=True) for _ in range(N_THREADS)]
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)

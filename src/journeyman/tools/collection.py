"""The collection of garbage, put off while a long text is read: it looks at each new object again and again, finds none
to free, and takes as long as the reading itself."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

LONG: Final = 50_000
"""From how many characters on it pays."""


@contextmanager
def collecting_later() -> Generator[None]:
    """Collect no garbage in the block, which is for work of a moment that does not wait."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

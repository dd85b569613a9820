"""Collecting the garbage of a test, without all that was made before it."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def only_new_garbage() -> Generator[None]:
    """Let `gc.collect` look at what is made within only: what is older are all modules, which takes half a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

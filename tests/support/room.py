"""A disk that is full, for anybody, root included."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_room(folder: Path, more: int = 1) -> Generator[None]:
    """Let files of this process grow `more` bytes further than the largest file in a folder, and no further."""
    largest = max(each.stat().st_size for each in folder.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

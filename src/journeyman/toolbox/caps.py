"""How much of a long text the model reads, and where the rest is: in a temporary folder of the workspace's own."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from journeyman.tools.results import encodable

MAX_LINES: Final = 2_000
MAX_BYTES: Final = 50 * 1024
"""The longest text that a tool gives, as lines and as bytes."""

MAX_SPILL_BYTES: Final = 32 * 1024 * 1024
"""The most that is kept of one text in a file."""


class Spill:
    """A temporary folder for texts that are too long to show. It is made with the first one."""

    def __init__(self, opened: Callable[[str], None]) -> None:
        self._opened = opened
        """Told where the folder is."""
        self._folder: Path | None = None
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._finalizer: weakref.finalize[..., Spill] | None = None

    def create(self, stem: str) -> tuple[BinaryIO, str]:
        """Open a new file, and return it with its path."""
        with self._lock:
            folder = self._folder or self._make()
            path = folder / f"{stem}-{next(self._numbers)}.txt"
        return path.open("xb"), str(path)

    def keep(self, stem: str, text: str) -> str:
        """Write a text to a new file, as much of it as is kept, and return the path."""
        file, path = self.create(stem)
        with file:
            file.write(encodable(text).encode()[:MAX_SPILL_BYTES])
        return path

    def close(self) -> None:
        """Remove the folder. The next text makes another."""
        with self._lock:
            self._folder = None
            if self._finalizer is not None:
                self._finalizer()

    def _make(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="journeyman-")).resolve()
        self._folder = folder
        # Whoever forgets to close leaves nothing behind either.
        self._finalizer = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._opened(str(folder))
        return folder


def first_lines(lines: Iterable[str], *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> list[str]:
    """Return as many lines as fit, from the first on; at least one."""
    kept: list[str] = []
    room = max_bytes
    for line in lines:
        room -= len(line.encode("utf-8", "surrogatepass")) + 1
        if kept and (room < 0 or len(kept) >= max_lines):
            break
        kept.append(line)
    return kept


def capped(text: str, spill: Spill | None, stem: str) -> str:
    """Return the beginning of a text that is too long, with a note on where all of it is."""
    lines = text.split("\n")
    kept = first_lines(lines)
    shown = "\n".join(kept)
    if len(shown.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        shown = shown.encode("utf-8", "surrogatepass")[:MAX_BYTES].decode("utf-8", "ignore")
    if len(shown) == len(text):
        return text
    where = "" if spill is None else f" All of it is in {spill.keep(stem, text)}: read it with an offset."
    return f"{shown}\n[Cut: the first {len(kept):,} of {len(lines):,} lines.{where}]"

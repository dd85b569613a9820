"""The processes of local models, which are found by the weights on their command line."""

from contextlib import suppress
from pathlib import Path


def processes_with(weights: Path) -> list[int]:
    """Return the processes that serve the weights of a file."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended by now
            if entry.name.isdecimal():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if str(weights).encode() in words and any(word.endswith(b"/local/child.py") for word in words):
                    found.append(int(entry.name))
    return found

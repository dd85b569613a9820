"""All files below a folder, without those that ignore files, or hidden folders, leave out. By ripgrep, or without it.

Both ways give the same files. Links are not followed. A folder that is itself left out can still be named, and is then
walked as if nothing stood above it. Imports `bench` and `ignore`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.files import Entry, Files, LocalFiles
from journeyman.toolbox.ignore import Ignored
from journeyman.toolbox.reach import Located
from journeyman.toolbox.refusal import Refusal

SEARCH_S: Final = 60.0
"""How long a search may take."""

_IGNORE_FILE_BYTES: Final = 1024 * 1024
_OPTIONS: Final = (
    *("--no-config", "--no-messages", "--color=never", "--null", "--hidden", "--glob=!.*/", "--no-require-git"),
    *("--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent"),
)
# What ripgrep, which sees a whole file, and we, who see a line, could understand in different ways.
_NOT_BY_LINE = re.compile(r"\\[AzRr]|\(\?[a-zA-Z]*[-msR]|[\r\n]")


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a search has to end."""

    at: float

    @classmethod
    def from_now(cls) -> Deadline:
        return cls(monotonic() + SEARCH_S)

    def check(self) -> None:
        """Go on only while there is time.

        Raises:
            Refusal: there is none left.
        """
        if monotonic() > self.at:
            raise _late()


def _late() -> Refusal:
    return Refusal("timeout", f"The search took longer than {SEARCH_S:g} s. Search in a folder further down.")


def files_below(bench: Bench, located: Located, deadline: Deadline, pattern: str | None = None) -> Iterator[str]:
    """Give the path of each file below a folder, relative to it, in no order.

    With a `pattern`, a regular expression, files in which no line matches it may be missing.
    """
    prefix = _inside_root(bench, located)
    above = _rules_above(located.files, bench.reach.root, prefix)
    if bench.ripgrep is None or not isinstance(located.files, LocalFiles):
        return _walked(located, prefix, above, deadline)
    search = ["--files"]
    if pattern is not None and not _NOT_BY_LINE.search(pattern):
        search = ["--files-with-matches", "--crlf"]
    else:
        pattern = None
    if not any(above.kinds):
        return _by_ripgrep(bench.ripgrep, search, pattern, folder=located.path, deadline=deadline)
    found = _by_ripgrep(bench.ripgrep, search, pattern, folder=bench.reach.root, deadline=deadline)
    return (path[len(prefix) + 1 :] for path in found if path.startswith(f"{prefix}/"))


def _inside_root(bench: Bench, located: Located) -> str:
    """Return the folder relative to the root; empty for the root itself, and for what is not inside of it."""
    shown = bench.reach.shown(located.path)
    return "" if shown == "." or shown.startswith("/") else shown


def _by_ripgrep(
    program: str, search: Sequence[str], pattern: str | None, *, folder: str, deadline: Deadline
) -> Iterator[str]:
    ending = ["--", "./"] if pattern is None else ["--", pattern, "./"]
    try:
        done = subprocess.run(
            [program, *_OPTIONS, *search, *ending],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.0, deadline.at - monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _late() from None
    return (os.fsdecode(path).removeprefix("./") for path in done.stdout.split(b"\0") if path)


# -- without ripgrep ---------------------------------------------------------------------------------------------------


def _rules_above(files: Files, root: str, prefix: str) -> Ignored:
    """Return the rules that the folders above set for a folder; none if they leave out the folder itself."""
    rules = Ignored()
    parts = prefix.split("/") if prefix else []
    for n, name in enumerate(parts):
        folder = "/".join(parts[:n])
        rules = _entered(files, root, folder, rules)[1]
        if name.startswith(".") or rules.covers("/".join(parts[: n + 1]), is_folder=True):
            return Ignored()
    return rules


def _walked(located: Located, prefix: str, above: Ignored, deadline: Deadline) -> Iterator[str]:
    root = located.path.removesuffix(f"/{prefix}") if prefix else located.path
    waiting = [(prefix, above)]
    while waiting:
        deadline.check()
        folder, rules = waiting.pop()
        try:
            entries, inside = _entered(located.files, root, folder, rules)
        except OSError:  # no longer there, or not for us: ripgrep, too, goes on without it
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.kind == "file" and not inside.covers(path, is_folder=False):
                yield path[len(prefix) + 1 :] if prefix else path
            elif entry.kind == "folder" and entry.name[0] != "." and not inside.covers(path, is_folder=True):
                waiting.append((path, inside))


def _entered(files: Files, root: str, folder: str, rules: Ignored) -> tuple[Sequence[Entry], Ignored]:
    path = f"{root.rstrip('/')}/{folder}" if folder else root
    entries = files.list(path)

    def read(name: str) -> str:
        try:
            return files.read(f"{path.rstrip('/')}/{name}", _IGNORE_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    return entries, rules.entered(folder, entries, read)

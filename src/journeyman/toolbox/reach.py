"""Which paths may be touched: those inside of the workspace, links followed first. Imports `files` and `refusal`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from journeyman.toolbox.files import Facts, Files, LocalFiles
from journeyman.toolbox.refusal import Refusal

_N_SIMILAR: Final = 3


@dataclass(frozen=True, slots=True)
class Located:
    """A path that may be touched."""

    path: str
    """Absolute, with every link followed."""
    shown: str
    """As the model reads it: relative to the root where it is inside of it."""
    files: Files
    """Where it is."""

    @property
    def facts(self) -> Facts | None:
        return self.files.facts(self.path)


class Reach:
    """The folders that may be touched."""

    def __init__(self, root: str, files: Files, *, also: Sequence[str], confined: bool) -> None:
        self.files: Final = files
        self.root: Final = files.resolve(root)
        self._roots = (self.root, *(files.resolve(each) for each in also))
        self._confined = confined
        self._read_only: str | None = None

    def open_for_reading(self, folder: str) -> None:
        """Let a folder of this machine be read, too: the one with texts that were too long to show."""
        self._read_only = os.path.realpath(folder)

    def locate(self, path: str, *, writing: bool = False) -> Located:
        """Return where a path of the model's leads.

        Raises:
            Refusal: out of the workspace, or it cannot be a path.
        """
        resolved = self._resolved(path)
        if any(_is_inside(resolved, root) for root in self._roots):
            return Located(resolved, self.shown(resolved), self.files)
        if self._read_only is not None and not writing and path.startswith("/"):
            there = os.path.realpath(path)
            if _is_inside(there, self._read_only):
                return Located(there, there, LocalFiles())
        if self._confined:
            raise Refusal("outside", f"{path!r} is outside of the workspace {self.root}. Use a path inside of it.")
        return Located(resolved, resolved, self.files)

    def existing(self, path: str) -> tuple[Located, Facts]:
        """Return where a path leads, and what is there.

        Raises:
            Refusal: nothing is, or it may not be touched.
        """
        located = self.locate(path)
        facts = located.facts
        if facts is None:
            raise Refusal("not_found", f"{located.shown} does not exist.{self._similar(located)}")
        return located, facts

    def shown(self, path: str) -> str:
        """Return a resolved path as the model reads it."""
        if path == self.root:
            return "."
        prefix = "/" if self.root == "/" else f"{self.root}/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    def _resolved(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)  # noqa: PTH111  as text: a `Path` would fold `//` and `.` away before the links
        try:
            path.encode()
            if "\0" in path:
                raise ValueError("it contains a NUL")
            return self.files.resolve(path if path.startswith("/") else f"{self.root}/{path}")
        except (ValueError, OSError) as error:
            raise Refusal("invalid", f"{path[:200]!r} cannot be a path: {error}.") from error

    def _similar(self, located: Located) -> str:
        """Name what is in the same folder, or at the nearest folder above, under a name like it."""
        folder, _, name = located.path.rpartition("/")
        if not any(_is_inside(folder or "/", root) for root in self._roots):
            return ""
        try:
            names = {entry.name.lower(): entry.name for entry in located.files.list(folder or "/")}
        except OSError:
            return f" Nor does the folder {self.shown(folder)}." if folder != self.root else ""
        near = get_close_matches(name.lower(), names, n=_N_SIMILAR, cutoff=0.6)
        found = [self.shown(f"{folder}/{names[each]}") for each in near]
        return f" Did you mean {' or '.join(found)}?" if found else ""


def _is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith("/" if root == "/" else f"{root}/")

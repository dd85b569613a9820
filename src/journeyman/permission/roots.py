"""Which folders an agent may work in, and where a path that it names really leads. Imports nothing of this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

_LONGEST_PATH: Final = 4_096

Place: TypeAlias = Literal["inside", "read_only", "internal", "internal_read_only", "outside"]
"""Where a path is. `internal`: in a folder of the program's own, which needs nobody's approval."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that an agent may work in."""

    path: str | Path
    read_only: bool = False


class Roots:
    """The folders that an agent may work in, links followed."""

    def __init__(
        self,
        roots: Sequence[str | Path | Root],
        internal: Sequence[str | Path | Root] = (),
        resolve: Callable[[str], str] = os.path.realpath,
    ) -> None:
        self._resolve: Final = resolve
        self.folders: Final = tuple(self._resolved(each) for each in roots)
        """Each root with whether it is read-only; relative paths belong to the first."""
        self._internal: Final = tuple(self._resolved(each) for each in internal)

    @property
    def base(self) -> str:
        """The folder to which relative paths belong."""
        return self.folders[0][0]

    def locate(self, path: str) -> str:
        """Return where a path leads: absolute, every link followed, also where nothing exists there yet.

        Raises:
            ValueError: it cannot be a path.
        """
        if "\0" in path:
            raise ValueError(f"{path[:200]!r} holds a NUL, so it cannot be a path")
        if len(path) > _LONGEST_PATH:
            raise ValueError(f"{path[:200]!r}… is {len(path):,} characters long, so it cannot be a path")
        try:
            return self._resolve(self._absolute(path))
        except (OSError, UnicodeError) as error:
            raise ValueError(f"{path[:200]!r} cannot be a path: {error}") from error

    def spelled(self, path: str) -> str:
        """Return a path as it is written: absolute, no link followed."""
        return os.path.normpath(self._absolute(path))

    def place(self, path: str) -> Place:
        """Say where a located path is. Of several folders the innermost counts; a root wins over an internal one."""
        found = _innermost(path, self.folders)
        if found is not None:
            return "read_only" if found else "inside"
        found = _innermost(path, self._internal)
        if found is None:
            return "outside"
        return "internal_read_only" if found else "internal"

    def _absolute(self, path: str) -> str:
        path = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path  # noqa: PTH111 - as `toolbox`
        return path if path.startswith("/") else f"{self.base}/{path}"

    def _resolved(self, given: str | Path | Root) -> tuple[str, bool]:
        root = given if isinstance(given, Root) else Root(given)
        return self._resolve(os.path.expanduser(root.path)), root.read_only  # noqa: PTH111 - a string is wanted


def _innermost(path: str, folders: Sequence[tuple[str, bool]]) -> bool | None:
    """Return whether the innermost folder around a path is read-only; None if there is none."""
    around = [(len(folder), read_only) for folder, read_only in folders if is_inside(path, folder)]
    return max(around)[1] if around else None


def is_inside(path: str, folder: str) -> bool:
    """Tell whether a path is a folder, or somewhere in it. Both are absolute."""
    return path == folder or path.startswith("/" if folder == "/" else f"{folder}/")

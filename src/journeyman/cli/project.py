"""Finds the store of the project that one works in, for commands without `--store`; never one outside of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = ".journeyman"
"""The folder in which a project has its store."""


def project_folders(here: Path) -> Iterator[Path]:
    """Yield the folder in which one works and those above it in the same project, the nearest first.

    A project goes up to the root of its git checkout, or else to the home directory, and it never goes into a folder of
    another user.
    """
    home: Path | None = None
    with suppress(RuntimeError):  # a user may have no home directory
        home = Path.home().resolve()
    for folder in (here, *here.parents):
        if folder != here and not is_own(folder):
            return
        yield folder
        if folder == home or os.path.lexists(folder / ".git"):  # a file, in a worktree or a submodule
            return


def find_project_store(here: Path) -> Path | None:
    """Return the nearest store of the project that `here` is a part of; None if it has none."""
    for folder in project_folders(here):
        store = folder / FOLDER / "runs.db"
        if is_own(store.parent) and os.path.lexists(store):
            return store
    return None


def is_own(path: Path) -> bool:
    """Say whether the path is there and belongs to whoever runs this program; a link counts as itself."""
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    return not hasattr(os, "geteuid") or owner == os.geteuid()

"""Programs by their names: every file that a command could run under one, and what else must be readable for `PATH`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_SYSTEM: Final = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games", "/usr/libexec"),
    *("/usr/lib/git-core", "/usr/libexec/git-core", "/snap/bin", "/opt/bin", "/opt/homebrew/bin"),
)
_MOST_NAMES: Final = 16
"""A file with more names is many programs in one: to take it away would take away all of them."""


def folders_of_programs(path: str | None = None, *, besides: Sequence[str] = _SYSTEM) -> list[str]:
    """Return the folders in which programs are: those of `PATH`, and those of systems; each once, without links."""
    named = (os.environ.get("PATH", "") if path is None else path).split(os.pathsep)
    real = [os.path.realpath(each) for each in dict.fromkeys((*named, *besides)) if each.startswith("/")]
    return [each for each in dict.fromkeys(real) if os.access(f"{each}/.", os.X_OK)]  # some are another user's


def files_of_programs(names: Iterable[str], folders: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that must not be run for these programs to be denied, and the names that cannot be denied so,
    because their file is many programs in one."""
    wanted = frozenset(names)
    entries: list[os.DirEntry[str]] = []
    for folder in folders if wanted else ():
        with suppress(OSError), os.scandir(folder) as listed:
            entries += listed
    inodes = {inode: entry.name for entry in entries if entry.name in wanted and (inode := _inode_of(entry))}
    found: dict[str, None] = {}
    refused: list[str] = []
    for inode, name in inodes.items():
        same = [each for each in entries if each.inode() == inode[1] and _inode_of(each) == inode]
        targets = {os.path.realpath(each.path) for each in entries if each.name == name}
        ends = tuple(Path(each).name for each in targets)
        links = [each for each in entries if each.is_symlink() and Path(each.path).readlink().name in ends]
        others = {each.name for each in [*same, *links]}
        if len([each for each in others if not each.startswith(f"{name}-")]) > _MOST_NAMES:  # as git has `git-add`
            refused.append(name)
        else:
            found |= dict.fromkeys([*[each.path for each in same], *sorted(targets)])
    return [path for path in found if not Path(path).is_symlink()], sorted({*refused})


def _inode_of(entry: os.DirEntry[str]) -> tuple[int, int] | None:
    with suppress(OSError):
        facts = entry.stat()
        return facts.st_dev, facts.st_ino
    return None


def needed_for_programs(path: str | None, gone: Sequence[str]) -> Iterator[str]:
    """Give the folders that programs of `PATH` and this interpreter need, of those in folders that are `gone` for a
    command: their own, the libraries beside them, and what a virtual environment was made of."""
    bases = [sys.base_prefix, sys.prefix]
    folders = folders_of_programs(path, besides=())  # those of systems are shown whole
    for prefix in dict.fromkeys(map(os.path.dirname, folders)):
        settings = f"{prefix}/pyvenv.cfg"
        if os.access(settings, os.R_OK):
            bases.append(prefix)
            bases += [str(Path(home).parent) for home in _homes_in(settings)]
    around = tuple([each.rstrip("/") + "/" for each in gone])
    for folder in [each for each in folders if f"{each}/".startswith(around)]:  # to look for libraries takes time
        yield folder
        prefix = os.path.dirname(folder)
        yield from (str(each) for each in Path(prefix).glob("lib*") if each.is_dir() and prefix != "/")
    real = map(os.path.realpath, bases)
    yield from (path for path in real if f"{path}/".startswith(around))


def _homes_in(settings: str) -> Iterator[str]:
    with suppress(OSError):
        for line in Path(settings).read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                yield value.strip()

"""Startup files: what git, a shell, an editor or Python runs by itself. A command in a box must not change those that
are there, and those that are new after a command are put aside.

The folder is walked once, whole. Later only those folders are looked at again whose entries have changed since, by a
time that no program can set.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

_FOLDERS: Final = frozenset({".husky", ".idea", ".vscode", "fish"})
_NAMES: Final = re.compile(
    r"\.(bash_?(rc|profile|login|logout|aliases)|profile|z(shrc|shenv|profile|login|logout)|kshrc|cshrc|tcshrc|login"
    r"|envrc|inputrc|gitconfig|pythonrc|pre-commit-config\.yaml|mcp\.json)|config\.fish|config\.worktree",
    re.IGNORECASE,
)
_OF_GIT: Final = frozenset({"HEAD", "objects", "refs"})
_SECTION: Final = re.compile(r'\[\s*([\w.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_HARMLESS: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol)"
    r"|extensions\.(objectformat|refstorage|partialclone)|remote\..*\.(url|fetch|tagopt|prune|promisor)"
    r"|branch\..*\.(remote|merge|rebase|description)|submodule\..*\.(url|active)|user\.(name|email)"
    r"|init\.defaultbranch|pull\.rebase",
    re.IGNORECASE | re.DOTALL,
)
"""The keys of git that run nothing: of all others that is not known."""
_TICK_NS: Final = 20_000_000
"""Two changes within this time may have the same time."""
_MOST_ENTRIES: Final = 200_000
_LONGEST_CONFIG: Final = 100_000


class StartupFiles:
    """The startup files of a folder."""

    def __init__(self, root: str) -> None:
        """Walk the folder."""
        self.is_whole: bool = True
        """False: the folder has more entries than are looked at."""
        self._root: Final = root
        self._folders: Final[dict[str, int]] = {}
        """The folders, each with the time at which its entries had changed last."""
        self._known: Final[dict[str, tuple[int, ...]]] = {}
        self._n_entries: int = 0
        self._known.update(self._walk(root))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, and the folders of which every file is one, as far as they are there."""
        folders = [each for each in self._folders if _is_startup_folder(each)]
        alone = [each for each in self._known if not any(each.startswith(f"{folder}/") for folder in folders)]
        return tuple(sorted([*folders, *alone]))

    def hold_changes(self) -> list[str]:
        """Put aside each startup file that is new or changed and may run something, as `NAME.held` beside it, or as
        `NAME.2.held` where that is taken. Return where they were."""
        held: list[str] = []
        for path, facts in [*self._find_changes()]:
            self._known[path] = facts
            if not _is_harmless(path):
                names = (f"{path}.held" if number == 1 else f"{path}.{number}.held" for number in count(1))
                with suppress(FileNotFoundError):
                    Path(path).rename(next(each for each in names if not os.path.lexists(each)))
                    del self._known[path]
                    held.append(path)
        return held

    def _find_changes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for folder in [*self._folders]:
            changed_ns = _changed_ns(folder)
            if changed_ns is None:
                del self._folders[folder]
            elif changed_ns != self._folders[folder]:
                yield from self._compare(self._walk(folder))
        yield from self._compare(iter([(path, facts) for path in [*self._known] if (facts := _facts_of(path))]))

    def _compare(self, found: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        return ((path, facts) for path, facts in found if self._known.get(path) != facts)

    def _walk(self, top: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Give the startup files in a folder and in those below it that were not walked yet."""
        folders = [top]
        while folders:
            folder = folders.pop()
            seen_ns = _changed_ns(folder)
            if seen_ns is None:
                continue
            # What changes in this very moment may leave the time as it is, so such a folder is looked at again.
            is_new = folder not in self._folders
            self._folders[folder] = seen_ns if time.time_ns() - seen_ns > _TICK_NS else 0
            with suppress(OSError), os.scandir(folder) as entries:
                listed = [*entries]
                self._n_entries += len(listed) if is_new else 0
                self.is_whole = self.is_whole and self._n_entries <= _MOST_ENTRIES
                of_git = {each.name for each in listed} >= _OF_GIT
                for entry in listed if self.is_whole else ():
                    if entry.is_dir(follow_symlinks=False):
                        is_walked = entry.path in self._folders or (of_git and entry.name in ("objects", "refs"))
                        folders += [] if is_walked else [entry.path]
                    elif _runs_by_itself(entry, of_git=of_git) and (facts := _facts_of(entry.path)):
                        yield entry.path, facts


def _is_startup_folder(folder: str) -> bool:
    path = Path(folder)
    return path.name.lower() in _FOLDERS or (path.name == "hooks" and path.parent.joinpath("HEAD").exists())


def _runs_by_itself(entry: os.DirEntry[str], *, of_git: bool) -> bool:
    if entry.name.endswith((".held", ".sample")):
        return False
    folders = Path(entry.path).parts[:-1]
    if not _FOLDERS.isdisjoint([each.lower() for each in folders]):
        return True
    if folders[-1] == "hooks" and _is_startup_folder(str(Path(entry.path).parent)):
        return True
    if entry.name.lower().endswith((".pth", "customize.py")):  # those of a virtual environment are that environment's
        return not any(each.joinpath("pyvenv.cfg").exists() for each in Path(entry.path).parents)
    return _NAMES.fullmatch(entry.name) is not None or (of_git and entry.name == "config") or entry.name == ".git"


def _is_harmless(path: str) -> bool:
    """Tell whether a file is a config of git whose keys run nothing, or the file by which git finds a repository."""
    file = Path(path)
    if file.name == ".git":
        return True
    if file.name not in ("config", "config.worktree"):
        return False
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return len(text) <= _LONGEST_CONFIG and all(_HARMLESS.fullmatch(key) for key in _keys_of(text))


def _keys_of(text: str) -> Iterator[str]:
    """Give the keys of a config of git; something that is no key for a line that is not read for sure."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        header = _SECTION.match(line)
        if header is not None:
            section = header[1] if header[2] is None else f"{header[1]}.{header[2]}"
            line = line[header.end() :].strip()
        if line and not line.startswith(("#", ";")):
            key, equals, value = line.partition("=")
            yield f"{section}.{key.strip()}" if equals and not value.endswith("\\") else ""


def _changed_ns(folder: str) -> int | None:
    with suppress(OSError):
        return os.lstat(folder).st_ctime_ns
    return None


def _facts_of(path: str) -> tuple[int, ...] | None:
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_ctime_ns

"""Protects the files that decide about an agent: it must not change them, whatever rules and roots say.

These are the approvals with their lock, the audit, the stores of sessions, and other files that the program names.
Links are followed, and capital and small letters count as the same; a hard link counts as the file. A store is
recognised by its content. In a command, every word that might be the name of such a file counts.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from journeyman.definition.narrowing import is_json_object, is_list
from journeyman.machine.files import is_inside
from journeyman.permission.rules import Roots, fold_path
from journeyman.permission.shell import every_command

_CUT: Final = re.compile(r"[\s;&|<>()=,:@'\"`\\]+")
_CHANGING: Final = re.compile(r"\{[^{}]*\}|\$\{[^}]*\}|\$[A-Za-z_]\w*|\[[^]]*\]|[*?]+")
"""What a shell would put something in the place of."""

_HEADER: Final = b"SQLite format 3\x00"
_APPLICATION: Final = slice(68, 72)
_STORE: Final = (0x6A6D6E31).to_bytes(4, "big")
"""What the header of a store holds there: see `store`. Until it is written there, it is in the log beside it."""
_BESIDE: Final = re.compile(r"-(wal|shm|journal|[0-9A-Za-z]{1,32}\.lock)$")


class Protected:
    """The files that decide about an agent."""

    def __init__(self, paths: Sequence[str | Path], roots: Roots) -> None:
        self._paths: Final = tuple(os.path.abspath(os.path.expanduser(path)) for path in paths)
        self._roots: Final = roots

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and folders, with links followed."""
        return tuple(self._find_paths())

    def holds(self, located: str) -> bool:
        """Tell whether a located path is one of these files, or in one of these folders."""
        place = fold_path(located)
        for path in self._find_paths():
            if is_inside(place, fold_path(path)):
                return True
            with suppress(OSError, ValueError):  # one of the two is not there
                if os.path.samefile(located, path):
                    return True
        return is_store(located)

    def named_by(self, command: str, folder: str) -> str | None:
        """Return why a command must be asked about: it names such a file, or it cannot be read. None: neither."""
        commands = every_command(command)
        if commands is None:
            return "the command is too long or too deep to be read."
        texts = {command, re.sub(r"\\\n|[\\'\"]", "", command)}
        words = {word.text for each in commands for word in each}
        words |= {word for text in texts for word in _CUT.split(text) if word}
        names = sorted(map(re.escape, self._names()))
        spelled = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w-]|\.\w)") if names else None
        if spelled is not None and any(spelled.search(fold_path(text)) for text in texts):
            return "it names a file that decides about the agent itself."
        if any(self._may_name(word, folder) for word in words) or self._leads_to_one(folder):
            return "it may name a file that decides about the agent itself."
        return None

    def named_in(self, arguments: object) -> bool:
        """Tell whether a text among the arguments of a call is the path of such a file."""
        texts = {text for text in _texts_inside(arguments) if len(text) <= 4_096 and "\0" not in text}
        texts |= {text.removeprefix("file://") for text in texts}
        return any(self.holds(place) for text in texts for place in self._places(text, "."))

    def _may_name(self, word: str, folder: str) -> bool:
        if _CHANGING.search(word) is None:
            return self._leads_to_one(word, folder)
        pattern = _CHANGING.sub("*", word).removeprefix("./")
        if "$" in word and re.search(r"\w", pattern) is None:  # nothing is known of it
            return False
        folders, slash, _ = pattern.partition("*")[0].rpartition("/")
        fixed = f"{folders}{slash}"
        located = self._locate(fixed if fixed.startswith(("/", "~")) else f"{folder}/{fixed}")
        wanted = fold_path(f"{located}/{pattern.removeprefix(fixed)}")
        return any(fnmatchcase(fold_path(path), wanted) for path in self._find_paths())

    def _leads_to_one(self, word: str, folder: str = ".") -> bool:
        """Tell whether a word leads to such a file, or to a folder around one; not if a root is in that folder, too."""
        for place in self._places(word, folder):
            around = any(is_inside(root, place) for root, _ in self._roots.folders)
            if self.holds(place) or (not around and any(is_inside(path, place) for path in self._find_paths())):
                return True
        return False

    def _places(self, text: str, folder: str) -> Iterator[str]:
        """Give where a text leads, if it may be a path: below a folder, and for a program that starts in this one's."""
        names = self._names()
        for place in (text if text.startswith(("/", "~")) else f"{folder}/{text}", os.path.abspath(text)):
            try:
                spelled = self._roots.spelled(place)
                is_there = os.path.lexists(spelled) or ("/" in text and os.path.lexists(os.path.dirname(spelled)))
                if is_there or fold_path(os.path.basename(spelled)) in names:
                    yield self._roots.locate(place)
            except ValueError:  # it can be no path
                continue

    def _names(self) -> set[str]:
        return {fold_path(os.path.basename(path)) for path in self._find_paths()}

    def _locate(self, path: str) -> str | None:
        try:
            return self._roots.locate(path)
        except ValueError:  # it can be no path
            return None

    def _find_paths(self) -> list[str]:
        return [os.path.realpath(path) for path in self._paths]


def _texts_inside(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_json_object(value):
        for each in value.values():
            yield from _texts_inside(each)
    elif is_list(value):
        for each in value:
            yield from _texts_inside(each)


def is_store(path: str) -> bool:
    """Tell whether a file is a store of sessions, or one of the files that belong to it."""
    store = _BESIDE.sub("", path)
    try:
        if not stat.S_ISREG(os.stat(store).st_mode):  # noqa: PTH116 - a string
            return False
        with open(store, "rb") as file:  # noqa: PTH123 - a string
            header = file.read(100)
    except (OSError, ValueError):  # it is not there, or not for this program to read
        return False
    is_young = header[_APPLICATION] == bytes(4) and os.path.exists(f"{store}-wal")
    return header.startswith(_HEADER) and (header[_APPLICATION] == _STORE or is_young)


def is_loaded(located: str) -> bool:
    """Tell whether a file is a part of this very program: a module that it has loaded."""
    name = os.path.basename(located)
    files = [vars(module).get("__file__") for module in [*sys.modules.values()] if hasattr(module, "__dict__")]
    return any(
        isinstance(file, str) and os.path.basename(file) == name and os.path.realpath(file) == located for file in files
    )

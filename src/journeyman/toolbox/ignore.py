"""What ignore files leave out: `.gitignore`, `.ignore` and `.rgignore`, by the rules that ripgrep follows.

A file of a kind further down beats one further up; of the kinds, `.rgignore` beats `.ignore` beats `.gitignore`. The
rules of a `.gitignore` end where another repository begins. Imports `globs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from journeyman.toolbox.files import Entry
from journeyman.toolbox.globs import regex

IGNORE_FILES: Final = (".rgignore", ".ignore", ".gitignore")


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    ignores: bool
    only_folders: bool


@dataclass(frozen=True, slots=True)
class _File:
    """The rules of one ignore file."""

    folder: str
    rules: tuple[_Rule, ...]
    """The last one first: the last that matches holds."""

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        inside = path[len(self.folder) + 1 :] if self.folder else path
        for rule in self.rules:
            if (is_folder or not rule.only_folders) and rule.pattern.match(inside):
                return rule.ignores
        return None


@dataclass(frozen=True, slots=True)
class Ignored:
    """The rules that hold in a folder: for each kind of file, those of the folder itself first."""

    kinds: tuple[tuple[_File, ...], ...] = ((), (), ())

    def covers(self, path: str, *, is_folder: bool) -> bool:
        """Tell whether a path, relative to where the walk began, is left out."""
        for files in self.kinds:
            for file in files:
                verdict = file.verdict(path, is_folder=is_folder)
                if verdict is not None:
                    return verdict
        return False

    def entered(self, folder: str, entries: Sequence[Entry], read: Callable[[str], str]) -> Ignored:
        """Return the rules that hold in a folder. `read` gives the text of an ignore file, by its name."""
        names = {entry.name: entry.kind for entry in entries}
        above = (*self.kinds[:2], () if ".git" in names else self.kinds[2])
        if not any(names.get(name) == "file" for name in IGNORE_FILES):
            return self if above == self.kinds else Ignored(above)
        return Ignored(
            tuple(
                (_File(folder, _rules(read(name))), *files) if names.get(name) == "file" else files
                for name, files in zip(IGNORE_FILES, above, strict=True)
            )
        )


def _rules(text: str) -> tuple[_Rule, ...]:
    rules = [_rule(line) for line in text.removeprefix("\ufeff").splitlines()]
    return tuple(rule for rule in reversed(rules) if rule is not None)


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    pattern = re.sub(r"(?<!\\)\s+\Z", "", line)
    ignores = not pattern.startswith("!")
    pattern = pattern if ignores else pattern[1:]
    only_folders = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    if not pattern:
        return None
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    try:
        return _Rule(re.compile(regex(pattern.lstrip("/")), re.DOTALL), ignores, only_folders)
    except re.error:  # ripgrep, too, leaves out a rule that it cannot read
        return None

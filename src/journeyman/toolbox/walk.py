"""All files below a folder, without those that ignore files, or hidden folders, leave out. By ripgrep, or without it.

Both ways give the same files. Links are not followed. A folder that is itself left out can still be named, and is then
walked as if nothing stood above it.

What ignore files leave out: `.gitignore`, `.ignore` and `.rgignore`, by the rules that ripgrep follows.

A file of a kind further down beats one further up; of the kinds, `.rgignore` beats `.ignore` beats `.gitignore`. The
rules of a `.gitignore` end where another repository begins.

Patterns for paths, as ignore files and the tools `glob` and `grep` have them: `*`, `?`, `[a-z]`, `{a,b}`, `**`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.files import Entry, Files, LocalFiles, Located, Refusal

_CLASS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what matches whole paths relative to a folder. A pattern without a slash matches names at any depth.

    Raises:
        Refusal: it is no pattern.
    """
    stripped = pattern.removeprefix("./")
    anchored = stripped if "/" in stripped.rstrip("/") else f"**/{stripped}"
    try:
        return re.compile(regex(anchored.lstrip("/")), re.DOTALL)
    except re.error as error:
        raise Refusal("invalid", f"{pattern!r} is no pattern for paths: {error}. Example: src/**/*.py") from error


def regex(pattern: str) -> str:
    """Return the regular expression for a pattern: no wildcard but `**` crosses a slash.

    Raises:
        re.error: a brace or a bracket is not closed.
    """
    return f"(?:{''.join(_pieces(pattern))})\\Z"


def _pieces(pattern: str) -> Iterator[str]:
    at, depth = 0, 0
    while at < len(pattern):
        piece, length, change = _piece(pattern, at, depth)
        depth += change
        at += length
        yield piece
    if depth:
        raise re.error("a { is not closed")


def _piece(pattern: str, at: int, depth: int) -> tuple[str, int, int]:
    """Return the expression for what stands here, its length, and the change in the depth of braces."""
    rest = pattern[at:]
    match rest[0]:
        case "*":
            return _stars(pattern, at)
        case "[":
            return _class(rest)
        case "\\" if len(rest) > 1:
            return re.escape(rest[1]), 2, 0
        case "{":
            return "(?:", 1, 1
        case "}" if depth:
            return ")", 1, -1
        case char:
            special = {"?": "[^/]", ",": "|" if depth else ","}
            return special.get(char, re.escape(char)), 1, 0


def _stars(pattern: str, at: int) -> tuple[str, int, int]:
    n = len(pattern[at:]) - len(pattern[at:].lstrip("*"))
    is_begun = at == 0 or pattern[at - 1] == "/"
    after = pattern[at + n : at + n + 1]
    if n == 2 and is_begun and after == "/":
        return "(?:[^/]+/)*", 3, 0
    if n == 2 and is_begun and not after:
        return ".+" if at else ".*", 2, 0
    return "[^/]*", n, 0


def _class(rest: str) -> tuple[str, int, int]:
    found = _CLASS.match(rest)
    if found is None:
        raise re.error("a [ is not closed")
    negated, chars = found.groups()
    quoted = re.sub(r"([\\\[\]&~|^])", r"\\\1", chars)
    return f"(?!/)[{'^' if negated else ''}{quoted}]", found.end(), 0


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

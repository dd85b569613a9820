"""All files below a folder, without those that ignore files, or hidden folders, leave out. By ripgrep, or without it.

Both ways give the same files. Links are not followed. A folder that is itself left out can still be named, and is then
walked as if nothing stood above it.

Files are left out by `.gitignore`, `.ignore` and `.rgignore`, by the rules that ripgrep follows. A file of a kind
further down beats one further up; of the kinds, `.rgignore` beats `.ignore` beats `.gitignore`. The rules of a
`.gitignore` end where another repository begins. Their patterns, which the tools `glob` and `grep` take, too, have `*`,
`?`, `[a-z]`, `{a,b}` and `**`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern
from pydantic_core import SchemaError, SchemaValidator, core_schema

from journeyman.errors import count
from journeyman.toolbox.files import DirEntry, FileSystem, LocalFiles, Located, ToolRefused
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.results import encodable

SEARCH_S: Final = 60.0
"""How long a search may take."""
_IGNORE_FILES: Final = (".rgignore", ".ignore", ".gitignore")
_IGNORE_FILE_BYTES: Final = 1024 * 1024
_OPTIONS: Final = (
    *("--no-config", "--no-messages", "--color=never", "--null", "--hidden", "--glob=!.*/", "--no-require-git"),
    *("--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent"),
)
# What ripgrep, which sees a whole file, and we, who see a line, could understand in different ways.
_NOT_BY_LINE = re.compile(r"\\[AzRr]|\(\?[a-zA-Z]*[-msR]|[\r\n]")


_MAX_DEPTH: Final = 200
"""How deeply folders may be nested below the one that is searched. Each is opened by way of all above it, so that the
time grows with the square of the depth."""
_MAX_PATTERN_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which a search has to end, and the folders that it left out because they lie too deep."""

    at: float
    too_deep: list[str] = field(default_factory=list[str])
    """Folders that were not looked into."""

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

    def notes(self) -> list[str]:
        """Return what to tell of folders that were not looked into."""
        if not self.too_deep:
            return []
        more = f" and {count(len(self.too_deep) - 1, 'other')}" if len(self.too_deep) > 1 else ""
        which = f"…{self.too_deep[0][-100:]}{more}"
        return [f"[Not searched, {_MAX_DEPTH} folders further down: {which}. Give such a folder as the path.]"]


def _late() -> ToolRefused:
    return ToolRefused("timeout", f"The search took longer than {SEARCH_S:g} s. Search in a folder further down.")


def files_below(bench: Bench, located: Located, deadline: Deadline, pattern: str | None = None) -> Iterator[str]:
    """Give the path of each file below a folder, relative to it, in no order.

    With a `pattern`, a regular expression, files in which no line matches it may be missing.
    """
    inside = bench.reach.show_path(located.path)
    prefix = "" if inside == "." or inside.startswith("/") else inside  # empty, too, for what is not inside of the root
    above = _rules_above(located.files, bench.reach.root, prefix, deadline)
    if bench.ripgrep is None or not isinstance(located.files, LocalFiles):
        return _walk(located, prefix, above, deadline)
    search = ["--files", "--", "./"]
    if pattern is not None and not _NOT_BY_LINE.search(pattern):
        search = ["--files-with-matches", "--crlf", "--", pattern, "./"]
    is_all = not any(above.kinds)
    found = _by_ripgrep(bench.ripgrep, search, located.path if is_all else bench.reach.root, deadline)
    if found is None:
        return _walk(located, prefix, above, deadline)
    return iter(found) if is_all else (path[len(prefix) + 1 :] for path in found if path.startswith(f"{prefix}/"))


def _by_ripgrep(program: str, search: Sequence[str], folder: str, deadline: Deadline) -> list[str] | None:
    """Return the paths that it finds; None if it cannot be started, or finds nothing and fails."""
    try:
        done = subprocess.run(
            [program, *_OPTIONS, *search],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.0, deadline.at - monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _late() from None
    except OSError:
        return None
    if done.returncode not in (0, 1) and not done.stdout:  # 1: nothing was found
        return None
    return [os.fsdecode(path).removeprefix("./") for path in done.stdout.split(b"\0") if path]


# -- without ripgrep ---------------------------------------------------------------------------------------------------


def _rules_above(files: FileSystem, root: str, prefix: str, deadline: Deadline) -> _Rules:
    """Return the rules that the folders above set for a folder; none if they leave out the folder itself."""
    rules = _Rules()
    parts = prefix.split("/") if prefix else []
    for n, name in enumerate(parts):
        deadline.check()
        rules = _read_folder(files, root, "/".join(parts[:n]), rules)[1]
        if name.startswith(".") or rules.leave_out("/".join(parts[: n + 1]), is_folder=True):
            return _Rules()
    return rules


def _walk(located: Located, prefix: str, above: _Rules, deadline: Deadline) -> Iterator[str]:
    root = located.path.removesuffix(f"/{prefix}") if prefix else located.path
    waiting = [(prefix, above, 0)]
    while waiting:
        deadline.check()
        folder, rules, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            deadline.too_deep.append(folder)
            continue
        try:
            entries, inside = _read_folder(located.files, root, folder, rules)
        except OSError:  # no longer there, or not for us: ripgrep, too, goes on without it
            continue
        for number, entry in enumerate(entries):
            if number % 100 == 99:
                deadline.check()  # there may be very many, and very many rules
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.kind == "file" and not inside.leave_out(path, is_folder=False):
                yield path[len(prefix) + 1 :] if prefix else path
            elif entry.kind == "folder" and entry.name[0] != "." and not inside.leave_out(path, is_folder=True):
                waiting.append((path, inside, depth + 1))


def _read_folder(files: FileSystem, root: str, folder: str, rules: _Rules) -> tuple[Sequence[DirEntry], _Rules]:
    path = f"{root.rstrip('/')}/{folder}" if folder else root
    entries = files.list(path)

    def read(name: str) -> str:
        try:
            return files.read(f"{path.rstrip('/')}/{name}", _IGNORE_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    return entries, rules.rules_in(folder, entries, read)


# -- the rules of ignore files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    matches: Callable[[str], bool]
    leaves_out: bool
    only_folders: bool


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    folder: str
    rules: tuple[_Rule, ...]
    """The last rule of the file stands first, because the last that matches decides."""

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        inside = path[len(self.folder) + 1 :] if self.folder else path
        for rule in self.rules:
            if (is_folder or not rule.only_folders) and rule.matches(inside):
                return rule.leaves_out
        return None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules that hold in a folder."""

    kinds: tuple[tuple[_IgnoreFile, ...], ...] = ((), (), ())
    """The files of each kind; that of the folder itself stands first."""

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Tell whether a path, relative to where the walk began, is left out."""
        for files in self.kinds:
            for file in files:
                verdict = file.verdict(path, is_folder=is_folder)
                if verdict is not None:
                    return verdict
        return False

    def rules_in(self, folder: str, entries: Sequence[DirEntry], read: Callable[[str], str]) -> _Rules:
        """Return the rules that hold in a folder. `read` gives the text of an ignore file, by its name."""
        kind_of = {entry.name: entry.kind for entry in entries}
        above = (*self.kinds[:2], () if ".git" in kind_of else self.kinds[2])
        return _Rules(
            tuple(
                (_IgnoreFile(folder, _read_rules(read(name))), *files) if kind_of.get(name) == "file" else files
                for name, files in zip(_IGNORE_FILES, above, strict=True)
            )
        )


def _read_rules(text: str) -> tuple[_Rule, ...]:
    rules = [_rule(line) for line in text.removeprefix("\ufeff").splitlines()]
    return tuple(rule for rule in reversed(rules) if rule is not None)


def _rule(line: str) -> _Rule | None:
    line = line if line.endswith("\\ ") else line.rstrip()
    try:
        expression, leaves_out = _translate_pattern(line.rstrip("/"))
        return None if expression is None else _Rule(_path_test(expression), leaves_out, line.endswith("/"))
    except (ValueError, re.error):  # ripgrep, too, leaves out a rule that it cannot read
        return None


# -- patterns ----------------------------------------------------------------------------------------------------------

_BESIDES = re.compile(r"\\.|\[[!^]?\]?[^\]]*\]|[{,}\ue000-\uf8ff]", re.DOTALL)
_STAND_IN: Final = 0xE000
"""The first of the characters for private use."""
_FOLDER: Final = "(?P<ps_d>/)"
_BELOW: Final = f"(?:{_FOLDER}|$)"
"""How pathspec's expressions end. They match what is below a folder, too, which is not wanted here."""


def check_pattern(pattern: str) -> None:
    """Look at the length of a pattern: what it costs to read and to match grows with it.

    Raises:
        Refusal: it is too long.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        wrong = f"The pattern has {len(pattern):,} characters, of at most {_MAX_PATTERN_CHARS:,}"
        raise ToolRefused("invalid", f"{wrong}. Search for a part of it: {pattern[:40]!r}…")


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return the test of whole paths, relative to a folder. A pattern without a slash fits a name at any depth.

    Raises:
        Refusal: it is no pattern.
    """
    check_pattern(pattern)
    stripped = pattern.removeprefix("./")
    anchored = stripped if "/" in stripped.rstrip("/") else f"**/{stripped}"
    try:
        expression, _ = _translate_pattern(f"/{anchored.lstrip('/')}")
        if expression is None:
            raise re.error("a [ is not closed")
        return _path_test(expression)
    except (ValueError, re.error) as error:
        raise ToolRefused(
            "invalid", f"{pattern!r} is not a pattern for paths: {error}. Example: src/**/*.py"
        ) from error


def _path_test(expression: str) -> Callable[[str], bool]:
    """Return the test of a path, by the engine that `grep` has: no pattern takes more than linear time."""
    if expression.endswith((_BELOW, _FOLDER)):
        expression = expression.removesuffix(_BELOW) + r"\z"
    try:
        schema = core_schema.str_schema(pattern=f"(?s){expression}", regex_engine="rust-regex")
        matches = SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        raise re.error("a [ ] or { } in it cannot be read") from error
    return lambda path: matches(path if path.isascii() else encodable(path))


def _translate_pattern(pattern: str) -> tuple[str | None, bool]:
    """Return a pattern as a regular expression, None if it is none, and whether it leaves out what it matches.

    pathspec knows no braces, and what it makes of classes may mean something else in a regular expression. So these,
    and escaped characters, are translated here; in between, each is a character that stands for it.
    """
    pieces: list[str] = []
    depth = 0

    def put_aside(found: re.Match[str]) -> str:
        nonlocal depth
        text = found.group()
        piece = re.escape(text[-1])
        if text[0] == "[":
            piece = _class(text)
        elif text == "{":
            piece, depth = "(?:", depth + 1
        elif depth and text in ",}":
            piece, depth = ("|", depth) if text == "," else (")", depth - 1)
        pieces.append(piece)
        return chr(_STAND_IN + len(pieces) - 1)

    expression, leaves_out = GitIgnoreSpecPattern.pattern_to_regex(_BESIDES.sub(put_aside, pattern))
    if depth:
        raise re.error("a { is not closed")
    if expression is not None:
        expression = re.sub("[\ue000-\uf8ff]", lambda found: pieces[ord(found.group()) - _STAND_IN], expression)
    return expression, bool(leaves_out)


def _class(text: str) -> str:
    negation = "^" if text[1] in "!^" else ""
    chars = re.sub(r"([\\\[\]&~|^])", r"\\\1", text[1 + len(negation) : -1])
    return f"[[{negation}{chars}]&&[^/]]"

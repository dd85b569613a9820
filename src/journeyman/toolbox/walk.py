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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from journeyman.errors import count
from journeyman.machine.environment import select_environment
from journeyman.processes.process import SandboxUnavailable
from journeyman.processes.whole_run import run_whole
from journeyman.toolbox.files import DirEntry, FileSystem, LocalFiles, Located, ToolRefused
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.results import encodable

SEARCH_S: Final = 60.0
"""How long a search may take."""
_IGNORE_FILES: Final = (".rgignore", ".ignore", ".gitignore")
_SHOWN_CHARS: Final = 100
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
_MAX_RULES_WEIGHT: Final = 500_000
"""What the rules that hold in one folder may cost, as characters of regular expressions: some 20,000 names. A star, of
five, takes 1 KB and 10 us."""
_BLOCK_CHARS: Final = 5_000
"""How long a rule may be, and rules that are tried as one."""
_BLOCK_WEIGHT: Final = 500
"""What each expression costs besides its characters."""
_MAX_NESTED: Final = 100


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which a search has to end, and the folders in which it did less than it was asked to."""

    at: float
    too_deep: list[str] = field(default_factory=list[str])
    """Folders that were not looked into."""
    too_many_rules: dict[str, None] = field(default_factory=dict[str, None])
    """Folders whose ignore files were not read to their end."""

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
        """Return what to tell of folders that were not looked into, and of rules that were not heeded."""
        notes: list[str] = []
        if self.too_deep:
            where = _name_folders(self.too_deep)
            notes.append(f"[Not searched, {_MAX_DEPTH} folders further down: {where}. Give such a folder as the path.]")
        if self.too_many_rules:
            where = _name_folders([*self.too_many_rules])
            notes.append(f"[The ignore files in {where} hold too many rules; those at their ends are not heeded.]")
        return notes


def _name_folders(folders: Sequence[str]) -> str:
    more = f" and {count(len(folders) - 1, 'other')}" if len(folders) > 1 else ""
    first = folders[0] or "."
    return f"{'…' if len(first) > _SHOWN_CHARS else ''}{first[-_SHOWN_CHARS:]}{more}"


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
    found = _by_ripgrep(bench, search, located.path if is_all else bench.reach.root, deadline)
    if found is None:
        return _walk(located, prefix, above, deadline)
    return iter(found) if is_all else (path[len(prefix) + 1 :] for path in found if path.startswith(f"{prefix}/"))


def _by_ripgrep(bench: Bench, search: Sequence[str], folder: str, deadline: Deadline) -> list[str] | None:
    """Return the paths that it finds; None if it cannot be started, or finds nothing and fails. Where commands have a
    box, it has one in which it can only read."""
    program = bench.ripgrep or "rg"
    try:
        opened = None if bench.box is None else bench.box.open_for_search(program, folder)
        code, output = run_whole(
            (opened or bench.unboxed).spawn,
            program,
            [*_OPTIONS, *search],
            folder=folder,
            environment=select_environment(),
            timeout_s=max(0.0, deadline.at - monotonic()),
        )
    except TimeoutError:
        raise _late() from None
    except (OSError, SandboxUnavailable):
        return None
    if code not in (0, 1) and not output:  # 1: nothing was found
        return None
    return [os.fsdecode(path).removeprefix("./") for path in output.split(b"\0") if path]


def _rules_above(files: FileSystem, root: str, prefix: str, deadline: Deadline) -> _Rules:
    """Return the rules that the folders above set for a folder; none if they leave out the folder itself."""
    rules = _Rules()
    parts = prefix.split("/") if prefix else []
    for n, name in enumerate(parts):
        deadline.check()
        rules = _read_folder(files, root, "/".join(parts[:n]), rules, deadline=deadline)[1]
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
            entries, inside = _read_folder(located.files, root, folder, rules, deadline=deadline)
        except OSError:  # no longer there, or not for us: ripgrep, too, goes on without it
            continue
        for entry in entries:
            deadline.check()  # there may be very many, and very many rules
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.kind == "file" and not inside.leave_out(path, is_folder=False):
                yield path[len(prefix) + 1 :] if prefix else path
            elif entry.kind == "folder" and entry.name[0] != "." and not inside.leave_out(path, is_folder=True):
                waiting.append((path, inside, depth + 1))


def _read_folder(
    files: FileSystem, root: str, folder: str, rules: _Rules, *, deadline: Deadline
) -> tuple[Sequence[DirEntry], _Rules]:
    path = f"{root.rstrip('/')}/{folder}" if folder else root
    entries = files.list(path)

    def read(name: str) -> bytes:
        try:
            return files.read(f"{path.rstrip('/')}/{name}", _IGNORE_FILE_BYTES)
        except OSError:
            return b""

    inside = rules.rules_in(folder, entries, read)
    deadline.too_many_rules.update({file.folder: None for kind in inside.kinds for file in kind[:1] if file.is_cut})
    return entries, inside


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: str
    leaves_out: bool
    only_folders: bool


class _IgnoreFile:
    """An ignore file: the rules that hold in its folder and below. To ripgrep and git a `?` is a byte, and so it is
    here: rules and paths are read as Latin-1."""

    def __init__(self, folder: str, text: bytes, most: int) -> None:
        self.folder = folder
        self.weight = 0
        """What the rules cost, as characters of regular expressions."""
        self.is_cut = False
        """Whether the rules from one on are not heeded, since it is too long, or all of them cost more than `most`."""
        blocks: list[list[_Rule]] = []
        room = 0
        for line in text.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"):
            rule = _read_rule(line[: _BLOCK_CHARS + 1])
            if rule is None:
                continue
            room, weight = room - len(rule.expression), len(rule.expression)
            if room < 0 or not blocks or rule.leaves_out != blocks[-1][0].leaves_out:
                blocks.append([])
                room, weight = _BLOCK_CHARS - weight, weight + _BLOCK_WEIGHT
            self.weight += weight
            self.is_cut = len(line) > _BLOCK_CHARS or room < 0 or self.weight > most
            if self.is_cut:
                break
            blocks[-1].append(rule)
        self._blocks = [_Block(rules) for rules in reversed(blocks) if rules]

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Tell whether a path is left out, by the last rule that matches it; None if none does."""
        inside = os.fsencode(path[len(self.folder) + 1 :] if self.folder else path).decode("latin-1")
        for block in self._blocks:
            if (block.matches_folder if is_folder else block.matches_file)(inside):
                return block.leaves_out
        return None


class _Block:
    """Rules of which all leave out, or all keep, as one expression: that takes a hundredth of what each takes alone."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self.leaves_out = rules[0].leaves_out
        for_files = [rule for rule in rules if not rule.only_folders]
        self.matches_folder = _path_test([rule.expression for rule in rules])
        self.matches_file = (
            self.matches_folder if len(for_files) == len(rules) else _path_test([rule.expression for rule in for_files])
        )


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

    def rules_in(self, folder: str, entries: Sequence[DirEntry], read: Callable[[str], bytes]) -> _Rules:
        """Return the rules that hold in a folder. `read` gives what is in an ignore file, by its name."""
        kind_of = {entry.name: entry.kind for entry in entries}
        kinds = [*self.kinds[:2], () if ".git" in kind_of else self.kinds[2]]
        for index, name in enumerate(_IGNORE_FILES):
            if kind_of.get(name) == "file":
                most = _MAX_RULES_WEIGHT - sum([file.weight for files in kinds for file in files])
                kinds[index] = (_IgnoreFile(folder, read(name), most), *kinds[index])
        return _Rules(tuple(kinds))


def _read_rule(line: str) -> _Rule | None:
    """Return the rule of a line; None if there is none, or none that ripgrep could read."""
    line = line if line.endswith("\\ ") else line.rstrip(" \t\r\v\f")
    keeps = line.startswith("!")
    glob = re.sub(r"\\?/\Z", "", line[keeps:])
    if not glob or line.startswith("#"):
        return None
    try:
        expression = translate_glob(glob.removeprefix("/"))
    except ValueError:
        return None
    return _Rule(expression if "/" in glob else _FOLDERS + expression, not keeps, line.endswith("/"))


_FOLDERS: Final = "(?:.*/)?"
_GLOB = re.compile(
    r"(?P<recursive>(?<![^/{,])\*\*(?:/\*\*)*(?:/|\Z|(?=[,}])))|\*+|[^*?\\[{},]+|\\(?P<escaped>.)"
    r"|\[(?P<negated>[!^]?+)(?P<chars>\][^\]]*|[^\]]+)\]|.",
    re.DOTALL,
)
_RANGE = re.compile(r"(.)(?:-(.))*", re.DOTALL)
_UNREADABLE: Final = {
    "{": "its { are nested too deeply",
    "[": "a [ is not closed",
    "}": "a } is not opened",
    "\\": "nothing follows its \\",
}


def check_pattern(pattern: str) -> None:
    """Look at the length of a pattern: what it costs to read and to match grows with it.

    Raises:
        ToolRefused: it is too long.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        wrong = f"The pattern has {len(pattern):,} characters, of at most {_MAX_PATTERN_CHARS:,}"
        raise ToolRefused("invalid", f"{wrong}. Search for a part of it: {pattern[:40]!r}…")


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return the test of whole paths, relative to a folder. A pattern without a slash fits a name at any depth.

    Raises:
        ToolRefused: it is no pattern.
    """
    check_pattern(pattern)
    stripped = pattern.removeprefix("./")
    try:
        expression = translate_glob(stripped.lstrip("/"))
        return _path_test([expression if "/" in stripped.rstrip("/") else _FOLDERS + expression])
    except ValueError as error:
        raise ToolRefused(
            "invalid", f"{pattern!r} is not a pattern for paths: {error}. Example: src/**/*.py"
        ) from error


def _path_test(expressions: Sequence[str]) -> Callable[[str], bool]:
    """Return the test whether any of these expressions matches a whole path. The engine is that of `grep`: none takes
    more than linear time.

    Raises:
        ValueError: the engine refuses the expression.
    """
    try:
        # Of nothing, the expression is one that matches nothing: a path is never empty.
        schema = core_schema.str_schema(pattern=rf"(?s)\A(?:{'|'.join(expressions)})\z", regex_engine="rust-regex")
        matches = SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        raise ValueError("it is too large, or nested too deeply") from error
    return lambda path: matches(path if path.isascii() else encodable(path))


def translate_glob(glob: str) -> str:
    """Return the regular expression of the paths that a glob matches as a whole. It is read as ripgrep reads it.

    Raises:
        ValueError: ripgrep would not read it.
    """
    pieces, depth = [""], 0
    for found in _GLOB.finditer(glob):
        token = found.group()
        match token[0]:
            case "*" if found["recursive"]:
                pieces.append(_FOLDERS if token[-1] == "/" else ".+")
            case "*" | "?":
                pieces.append("[^/]*" if token[0] == "*" else "[^/]")
            case "{" if depth < _MAX_NESTED:
                pieces.append("(?:")
                depth += 1
            case "," if depth:  # a choice that is empty is none
                pieces += [] if pieces[-1] in ("(?:", "|") else ["|"]
            case "}" if depth:
                pieces[-1:] = [")"] if pieces[-1] == "|" else [pieces[-1], ")"]
                depth -= 1
            case "[" | "{" | "}" | "\\" if len(token) == 1:
                raise ValueError(_UNREADABLE[token])
            case "[":
                pieces.append(_translate_class(found["chars"], "^" if found["negated"] else ""))
            case _:
                pieces.append(re.escape(found["escaped"] or token))
    if depth:
        raise ValueError("a { is not closed")
    return "".join(pieces)


def _translate_class(chars: str, negation: str) -> str:
    ranges = _RANGE.findall(chars)
    if any(last and last < first for first, last in ranges):
        raise ValueError(f"a range in [{chars}] is turned round")
    listed = [f"{re.escape(first)}-{re.escape(last)}" if last else re.escape(first) for first, last in ranges]
    return f"[[{negation}{''.join(listed)}]&&[^/]]"

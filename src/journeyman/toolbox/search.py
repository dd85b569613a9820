"""The tools that find: `grep` finds lines by a regular expression, and `glob` finds files by their paths.

Lines are matched by the engine that ripgrep has, and pydantic, too: no expression, however unlucky, takes more than
linear time. Where ripgrep is installed, it finds the files; which lines of them match is always decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from pydantic_core import SchemaError, SchemaValidator, core_schema

from journeyman.toolbox.files import (
    MAX_FILE_BYTES,
    Located,
    ToolRefused,
    cut,
    cut_output,
    decode_text,
    left_out_note,
    nothing_hidden,
    split_lines,
)
from journeyman.toolbox.walk import Deadline, check_pattern, compile_pattern, files_below
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.raw_schema import n_repeats
from journeyman.tools.results import encodable
from journeyman.tools.tools import AnyTool, tool

MAX_FILES: Final = 200
MAX_MATCHES: Final = 100
MAX_LINE_CHARS: Final = 500
MAX_CONTEXT: Final = 10
_MAX_REPEATS: Final = 600
"""How often a regular expression may repeat something, as in `a{20}`: each repetition is compiled. Any counts 100."""
_MAX_WORK: Final = 200_000_000
"""The largest line, times the size of the expression: some 0.2 s."""
_LINES_AT_ONCE: Final = 1_000
_SPECIAL: Final = frozenset(r"\.+*?()|[]{}^$#&-~")


def grep_tool(bench: Bench) -> AnyTool:
    """Return the tool that searches the files of a workspace."""

    def grep(
        pattern: str,
        path: str = ".",
        *,
        glob: str | None = None,
        literal: bool = False,
        ignore_case: bool = False,
        context: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] = 0,
    ) -> str:
        """Find lines by a regular expression. Each comes as its number, a colon and its text, below its file's path.

        Hidden folders, binary files, and what ignore files name, are left out.

        Args:
            pattern: The regular expression, as for ripgrep: without look-around and back-references.
            path: The file or folder to look in, relative to the workspace.
            glob: Look only in files whose path matches this pattern, such as `*.py` or `tests/**`.
            literal: Take the pattern as a plain text.
            ignore_case: Take small and capital letters as the same.
            context: How many lines to show before and after each.
        """
        check_pattern(pattern)
        expression = "".join(f"\\{char}" if char in _SPECIAL else char for char in pattern) if literal else pattern
        expression = f"(?i){expression}" if ignore_case else expression
        matches = _matcher(expression)
        weight = len(expression) + n_repeats(expression)
        deadline = Deadline.from_now()
        searched, n_hidden = _files_to_search(bench, path, expression, glob=glob, deadline=deadline)
        text = _text_of_matches(_search(searched, matches, deadline, weight), context)
        note = [*left_out_note(n_hidden), *deadline.notes()]
        text = cut_output(text, bench.spill, "grep") if text else f"No line matches {pattern}."
        return "\n".join([text, *note])

    return tool(grep, parallel=True, effect="pure", untrusted=bench.untrusted, permission_kind="grep")


def _matcher(expression: str) -> Callable[[str], bool]:
    if n_repeats(expression) > _MAX_REPEATS:
        wrong = f"{expression!r} repeats more than {_MAX_REPEATS} things, each of which takes time"
        raise ToolRefused("invalid", f"{wrong}. Use *, + or smaller numbers in {{}}.")
    try:
        schema = core_schema.str_schema(pattern=expression, regex_engine="rust-regex")
        found = SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip() or "it cannot be read"
        raise ToolRefused(
            "invalid", f"{expression!r} is not a regular expression: {reason}. For a plain text, give literal=true."
        ) from None
    return lambda line: found(line if line.isascii() else encodable(line))


@dataclass(frozen=True, slots=True)
class _InFile:
    """The lines of one file, with the numbers of those that match."""

    shown: str
    lines: list[str]
    numbers: list[int]
    """The lines that match, from 0."""


def _search(
    searched: Iterable[Located], matches: Callable[[str], bool], deadline: Deadline, weight: int
) -> Iterator[_InFile]:
    """Search files for lines that match. `weight`: how large the expression is; a line that costs too much, which
    nobody could interrupt, is refused before."""
    left = MAX_MATCHES + 1
    for located in searched:
        deadline.check()
        lines = _lines_of_file(located)
        numbers: list[int] = []
        for number, line in enumerate(lines):
            if len(line) * weight > _MAX_WORK:
                where = f"line {number + 1:,} of {located.shown}, which has {len(line):,} characters"
                hint = "Use a simpler one, or leave the file out by glob."
                raise ToolRefused("invalid", f"The pattern takes too long for {where}. {hint}")
            if number % _LINES_AT_ONCE == 0:
                deadline.check()
            if matches(line):
                numbers.append(number)
        numbers = numbers[:left]
        if numbers:
            yield _InFile(located.shown, lines, numbers)
            left -= len(numbers)
        if left == 0:
            return


def _files_to_search(
    bench: Bench, path: str, expression: str, *, glob: str | None, deadline: Deadline
) -> tuple[Iterable[Located], int]:
    """Return the files to search, and how many are hidden from this call, whether or not they match."""
    located, facts, is_hidden = bench.existing(path)
    if facts.kind == "file":
        return [located], 0
    wanted = compile_pattern("**" if glob is None else glob)
    folder = located.path.rstrip("/")
    found = sorted(each for each in files_below(bench, located, deadline, expression) if wanted(each))
    n_hidden = 0
    if is_hidden is not nothing_hidden:
        # Counted by their names alone: a count of those that match would tell what is in them.
        every = (f"{folder}/{each}" for each in files_below(bench, located, deadline) if wanted(each))
        n_hidden = sum(map(is_hidden, every))
    paths = (f"{folder}/{each}" for each in found)
    shown = (Located(each, bench.reach.show_path(each), located.files) for each in paths if not is_hidden(each))
    return shown, n_hidden


def _lines_of_file(located: Located) -> list[str]:
    try:
        data = located.content()
    except (OSError, ToolRefused):  # no longer there, or not for us
        return []
    text = None if len(data) > MAX_FILE_BYTES else decode_text(data)
    return [] if text is None else split_lines(text[0])


def _text_of_matches(found: Iterable[_InFile], context: int) -> str:
    blocks: list[str] = []
    left = MAX_MATCHES
    for each in found:
        blocks.append("\n".join([each.shown, *_lines_with_context(each.lines, each.numbers[:left], context)]))
        left -= len(each.numbers)
        if left < 0:
            if each.numbers[: left or None] == []:
                blocks.pop()
            blocks.append(f"[Only the first {MAX_MATCHES} are shown. Use a narrower pattern, glob or path.]")
    return "\n\n".join(blocks)


def _lines_with_context(lines: list[str], numbers: list[int], context: int) -> Iterator[str]:
    matching, last = {*numbers}, -1
    for number in numbers:
        first = max(last + 1, number - context)
        if context and last >= 0 and first > last + 1:
            yield "--"
        for each in range(first, min(len(lines), number + context + 1)):
            if each > last:
                yield f"{each + 1}{':' if each in matching else '-'}{cut(lines[each], MAX_LINE_CHARS)}"
                last = each


def glob_tool(bench: Bench) -> AnyTool:
    """Return the tool that finds files of a workspace by their paths."""

    def glob(pattern: str, path: str = ".") -> str:
        """Find files by a pattern for their paths, such as `src/**/*.py` or `*.{js,ts}`, the newest first.

        A pattern without a slash matches names in all folders. Hidden folders and what ignore files
        name are left out.

        Args:
            pattern: The pattern, relative to `path`.
            path: The folder to look in, relative to the workspace.
        """
        matches = compile_pattern(pattern)
        located, facts, is_hidden = bench.existing(path)
        if facts.kind != "folder":
            raise ToolRefused("not_found", f"{located.shown} is not a folder. Give the folder to look in.")
        deadline = Deadline.from_now()
        found = [each for each in files_below(bench, located, deadline) if matches(each)]
        folder = located.path.rstrip("/")
        open_to_us = [each for each in found if not is_hidden(f"{folder}/{each}")]
        text = (
            _list_paths(bench, located, open_to_us) if open_to_us else f"No file in {located.shown} matches {pattern}."
        )
        return "\n".join([text, *left_out_note(len(found) - len(open_to_us)), *deadline.notes()])

    return tool(glob, parallel=True, effect="pure", untrusted=bench.untrusted, permission_kind="glob")


def _list_paths(bench: Bench, located: Located, found: list[str]) -> str:
    paths = [f"{located.path.rstrip('/')}/{each}" for each in found]
    dated = [
        (-facts.modified_ns, bench.reach.show_path(each)) for each in paths if (facts := located.files.facts(each))
    ]
    lines = [path for _, path in sorted(dated)]
    more = len(lines) - MAX_FILES
    note = [f"[{more:,} more. Use a narrower pattern, or a folder further down.]"] if more > 0 else []
    return "\n".join([*lines[:MAX_FILES], *note])

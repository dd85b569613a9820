"""The tools `read`, `ls` and `write`: a file as numbered lines or as a picture, a folder as a tree, a file as a whole.

A file is written over only if the model has read all of it, as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final

from pydantic import Field

from journeyman.content.media import PICTURES
from journeyman.content.signatures import media_type_of
from journeyman.errors import count
from journeyman.toolbox.files import (
    MAX_BYTES,
    MAX_LINES,
    PLAIN,
    Coding,
    FileSystem,
    Located,
    ToolRefused,
    cut,
    decode_file,
    first_lines,
    left_out_note,
    split_lines,
    with_endings_like,
)
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.tools import AnyTool, tool
from journeyman.types import Base64, Image, Text, ToolResult

MAX_LINE_CHARS: Final = 2_000
"""Where a long line is cut."""
MAX_IMAGE_BYTES: Final = 3_750_000
"""The largest picture that is shown: providers take 5 MB, as base64."""
MAX_LEVELS: Final = 5
MAX_ENTRIES: Final = 500
_CLOSED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "vendor", "bower_components"})
"""Folders that programs fill, and nobody reads; so are hidden ones."""
_MARKS = {"folder": "/", "link": " (link)", "other": " (no regular file)"}


def read_tool(bench: Bench) -> AnyTool:
    """Return the tool that reads in a workspace."""

    def read(
        path: str, offset: Annotated[int, Field(ge=1)] = 1, limit: Annotated[int, Field(ge=1)] = MAX_LINES
    ) -> str | ToolResult:
        """Read a file. Each line comes as its number, a tab, and its text. Pictures are shown; of a folder, its names.

        A long file is cut, with a note on how to go on. A file must have been read to its end before it is changed.

        Args:
            path: The file, relative to the workspace.
            offset: The number of the first line to read.
            limit: The most lines to read.
        """
        located, facts, is_hidden = bench.existing(path)
        if facts.kind == "folder":
            return tree(located, is_hidden, depth=1)
        data = located.content()
        media_type = media_type_of(data)
        if media_type in PICTURES:
            return _picture_result(located, data, media_type)
        text, _ = decode_file(data, located.shown)
        return _number_lines(bench, located, data, split_lines(text), offset=offset, limit=limit)

    return tool(read, parallel=True, effect="pure", untrusted=bench.untrusted, permission_kind="read")


def _picture_result(located: Located, data: bytes, media_type: str) -> ToolResult:
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolRefused(
            "too_large",
            f"{located.shown} is a picture of {len(data):,} bytes; at most {MAX_IMAGE_BYTES:,} can be shown. "
            "Make it smaller first.",
        )
    return ToolResult(
        (Text(f"{located.shown}: {media_type}, {count(len(data), 'byte')}"), Image(Base64.of(data, media_type)))
    )


def _number_lines(bench: Bench, located: Located, data: bytes, lines: list[str], *, offset: int, limit: int) -> str:
    if not lines:
        bench.stamps.saw(located.path, data, first=1, last=0, n_lines=0)
        return f"[{located.shown} is empty.]"
    if offset > len(lines):
        raise ToolRefused(
            "invalid", f"{located.shown} has {count(len(lines), 'line')}, so there is no line {offset:,}."
        )
    wanted = lines[offset - 1 : offset - 1 + min(limit, MAX_LINES)]
    shown = first_lines(
        (f"{number}\t{cut(line, MAX_LINE_CHARS)}" for number, line in enumerate(wanted, start=offset)),
        max_bytes=MAX_BYTES,
    )
    last = offset + len(shown) - 1
    bench.stamps.saw(located.path, data, first=offset, last=last, n_lines=len(lines))
    if last < len(lines):
        shown.append(f"[Lines {offset:,} to {last:,} of {len(lines):,}. Go on with offset={last + 1}.]")
    return "\n".join(shown)


def ls_tool(bench: Bench) -> AnyTool:
    """Return the tool that lists folders of a workspace."""

    def ls(path: str = ".", depth: Annotated[int, Field(ge=1, le=MAX_LEVELS)] = 1) -> str:
        """List a folder as a tree. Folders end with a slash, links are marked.

        Args:
            path: The folder, relative to the workspace.
            depth: How many levels to show. Hidden and generated folders inside of it stay closed.
        """
        located, facts, is_hidden = bench.existing(path)
        if facts.kind != "folder":
            raise ToolRefused("not_found", f"{located.shown} is not a folder. Read it instead.")
        return tree(located, is_hidden, depth=depth)

    return tool(ls, parallel=True, effect="pure", untrusted=bench.untrusted, permission_kind="ls")


def tree(located: Located, is_hidden: Callable[[str], bool], *, depth: int) -> str:
    """Return what is in a folder, a name per line, indented by level, and how much of it is hidden."""
    lines: list[str] = []
    left_out: list[str] = []

    def leaves_out(path: str) -> bool:
        if not is_hidden(path):
            return False
        left_out.append(path)
        return True

    for line in _listing_lines(located.files, located.path, "", depth=depth, leaves_out=leaves_out):
        if len(lines) == MAX_ENTRIES:
            lines.append(f"[Cut: the first {MAX_ENTRIES}. List a folder inside of it, or fewer levels.]")
            break
        lines.append(line)
    return "\n".join([*lines, *left_out_note(len(left_out))]) or f"[{located.shown} is empty.]"


def _listing_lines(
    files: FileSystem, folder: str, indent: str, *, depth: int, leaves_out: Callable[[str], bool]
) -> Iterator[str]:
    for entry in sorted(files.list(folder), key=lambda entry: (entry.kind != "folder", entry.name)):
        if leaves_out(f"{folder.rstrip('/')}/{entry.name}"):
            continue
        yield f"{indent}{entry.name}{_MARKS.get(entry.kind, '')}"
        if depth > 1 and entry.kind == "folder" and entry.name not in _CLOSED and not entry.name.startswith("."):
            try:
                inner = f"{folder.rstrip('/')}/{entry.name}"
                yield from _listing_lines(files, inner, f"{indent}  ", depth=depth - 1, leaves_out=leaves_out)
            except OSError as error:
                yield f"{indent}  [{error.strerror}]"


def write_tool(bench: Bench) -> AnyTool:
    """Return the tool that writes files of a workspace."""

    def write(path: str, content: str) -> str:
        """Write a file: a new one, with the folders it needs, or all of an old one, which must have been read before.

        To change a part of a file, edit it instead.

        Args:
            path: The file, relative to the workspace.
            content: All that shall be in it.
        """
        located = bench.locate(path, "write")
        with bench.stamps.writing:
            return _write_text(bench, located, content)

    return tool(write, effect="idempotent", permission_kind="write")


def _write_text(bench: Bench, located: Located, text: str) -> str:
    facts = located.facts
    coding = PLAIN
    if facts is not None:
        if facts.kind != "file":
            raise ToolRefused(
                "invalid", f"{located.shown} is not a regular file, so it cannot be written. Use another path."
            )
        text, coding = _as_before(bench, located, text)
    data = coding.encode(text)
    bench.replace(located, data)
    n_lines = len(split_lines(text))
    how = "Created" if facts is None else "Wrote"
    return f"{how} {located.shown}: {count(n_lines, 'line')}, {count(len(data), 'byte')}."


def _as_before(bench: Bench, located: Located, text: str) -> tuple[str, Coding]:
    """Return the text with the line endings of the old one, and its coding."""
    data = located.content()
    bench.stamps.check(located.path, located.shown, data)
    old_text, coding = decode_file(data, located.shown)
    return with_endings_like(old_text, text.removeprefix("\ufeff")), coding

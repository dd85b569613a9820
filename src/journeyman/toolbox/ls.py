"""The tool `ls`: folders as a tree. Imports `bench`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.files import Entry, Files
from journeyman.toolbox.reach import Located
from journeyman.toolbox.refusal import Refusal
from journeyman.tools.tool import tool

if TYPE_CHECKING:
    from journeyman.tools.tool import AnyTool

MAX_DEPTH: Final = 5
MAX_ENTRIES: Final = 500

_CLOSED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "vendor", "bower_components"})
"""Folders that programs fill, and nobody reads; so are hidden ones."""


def ls_tool(bench: Bench) -> AnyTool:
    """Return the tool that lists folders of a workspace."""

    def ls(path: str = ".", depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = 1) -> str:
        """List a folder as a tree. Folders end with a slash, links are marked.

        Args:
            path: The folder, relative to the workspace.
            depth: How many levels to show. Hidden and generated folders inside of it stay closed.
        """
        located, facts = bench.reach.existing(path)
        if facts.kind != "folder":
            raise Refusal("not_found", f"{located.shown} is not a folder. Read it instead.")
        return tree(located, depth=depth)

    return tool(ls, parallel=True, effect="pure", untrusted=bench.untrusted)


def tree(located: Located, *, depth: int) -> str:
    """Return what is in a folder, a name per line, indented by level."""
    lines: list[str] = []
    for line in _lines(located.files, located.path, "", depth):
        if len(lines) == MAX_ENTRIES:
            lines.append(f"[Cut: the first {MAX_ENTRIES}. List a folder inside of it, or fewer levels.]")
            break
        lines.append(line)
    return "\n".join(lines) or f"[{located.shown} is empty.]"


def _lines(files: Files, folder: str, indent: str, depth: int) -> Iterator[str]:
    for entry in sorted(files.list(folder), key=lambda entry: (entry.kind != "folder", entry.name)):
        yield f"{indent}{entry.name}{_MARKS.get(entry.kind, '')}"
        if depth > 1 and _is_open(entry):
            yield from _below(files, f"{folder.rstrip('/')}/{entry.name}", f"{indent}  ", depth - 1)


def _below(files: Files, folder: str, indent: str, depth: int) -> Iterator[str]:
    try:
        yield from _lines(files, folder, indent, depth)
    except OSError as error:
        yield f"{indent}[{error.strerror}]"


_MARKS = {"folder": "/", "link": " (link)", "other": " (no regular file)"}


def _is_open(entry: Entry) -> bool:
    return entry.kind == "folder" and entry.name not in _CLOSED and not entry.name.startswith(".")

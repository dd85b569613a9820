"""The tool `write`: a new file, or all of an old one. Imports `bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journeyman.toolbox.bench import Bench, content
from journeyman.toolbox.coding import PLAIN, Coding, decoded, lines_of, with_endings_like
from journeyman.toolbox.reach import Located
from journeyman.toolbox.refusal import Refusal
from journeyman.tools.tool import tool

if TYPE_CHECKING:
    from journeyman.tools.tool import AnyTool


def write_tool(bench: Bench) -> AnyTool:
    """Return the tool that writes files of a workspace."""

    def write(path: str, content: str) -> str:
        """Write a file: a new one, with the folders it needs, or all of an old one, which must have been read before.

        To change a part of a file, edit it instead.

        Args:
            path: The file, relative to the workspace.
            content: All that shall be in it.
        """
        located = bench.reach.locate(path, writing=True)
        with bench.stamps.writing:
            return _written(bench, located, content)

    return tool(write, effect="idempotent")


def _written(bench: Bench, located: Located, text: str) -> str:
    facts = located.facts
    coding = PLAIN
    if facts is not None:
        if facts.kind != "file":
            raise Refusal(
                "invalid", f"{located.shown} is not a regular file, so it cannot be written. Use another path."
            )
        text, coding = _as_before(bench, located, text)
    data = coding.encode(text)
    located.files.replace(located.path, data)
    bench.stamps.wrote(located.path, data)
    n_lines = len(lines_of(text))
    how = "Created" if facts is None else "Wrote"
    return f"{how} {located.shown}: {n_lines:,} {'line' if n_lines == 1 else 'lines'}, {len(data):,} bytes."


def _as_before(bench: Bench, located: Located, text: str) -> tuple[str, Coding]:
    """Return the text with the line endings of the old one, and its coding."""
    data = content(located)
    bench.stamps.check(located.path, located.shown, data)
    old = decoded(data)
    if old is None:
        raise Refusal("not_a_text", f"{located.shown} is no text but binary data ({len(data):,} bytes).")
    old_text, coding = old
    return with_endings_like(old_text, text.removeprefix("\ufeff")), coding

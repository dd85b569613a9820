"""The tool `glob`: files by the pattern of their paths, the newest first. Imports `bench`, `globs` and `walk`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.globs import compiled
from journeyman.toolbox.reach import Located
from journeyman.toolbox.refusal import Refusal
from journeyman.toolbox.walk import Deadline, files_below
from journeyman.tools.tool import tool

if TYPE_CHECKING:
    from journeyman.tools.tool import AnyTool

MAX_FILES: Final = 200


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
        matches = compiled(pattern).match
        located, facts = bench.reach.existing(path)
        if facts.kind != "folder":
            raise Refusal("not_found", f"{located.shown} is not a folder. Give the folder to look in.")
        found = [each for each in files_below(bench, located, Deadline.from_now()) if matches(each)]
        return _listed(bench, located, found) if found else f"No file in {located.shown} matches {pattern}."

    return tool(glob, parallel=True, effect="pure", untrusted=bench.untrusted)


def _listed(bench: Bench, located: Located, found: list[str]) -> str:
    dated: list[tuple[int, str]] = []
    for each in found:
        path = f"{located.path.rstrip('/')}/{each}"
        facts = located.files.facts(path)
        if facts is not None:
            dated.append((-facts.modified_ns, bench.reach.shown(path)))
    lines = [path for _, path in sorted(dated)]
    more = len(lines) - MAX_FILES
    note = [f"[{more:,} more. Use a narrower pattern, or a folder further down.]"] if more > 0 else []
    return "\n".join([*lines[:MAX_FILES], *note])

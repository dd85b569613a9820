"""Ready tools: read, write, edit, bash, glob, grep and ls in a workspace, fetch for the web, and hidden tools.

    workspace = Workspace("project")
    agent = Agent(..., tools=[*workspace.tools(), fetch_tool(), *deferred_tools(many_more)])

The names below are loaded when they are first used, so that only who fetches pays for an HTTP client. Read
`workspace.py` next.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from journeyman.toolbox.command import Shell
    from journeyman.toolbox.fetch import fetch_tool
    from journeyman.toolbox.files import Entry, Facts, Files, LocalFiles
    from journeyman.toolbox.memory_files import InMemoryFiles
    from journeyman.toolbox.refusal import Refusal
    from journeyman.toolbox.tool_search import deferred_tools
    from journeyman.toolbox.workspace import Workspace

__all__ = [
    "Entry",
    "Facts",
    "Files",
    "InMemoryFiles",
    "LocalFiles",
    "Refusal",
    "Shell",
    "Workspace",
    "deferred_tools",
    "fetch_tool",
]

_HOMES = {
    "command": "Shell",
    "fetch": "fetch_tool",
    "files": "Entry Facts Files LocalFiles",
    "memory_files": "InMemoryFiles",
    "refusal": "Refusal",
    "tool_search": "deferred_tools",
    "workspace": "Workspace",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'journeyman.toolbox' has no attribute {name!r}")
    value: object = getattr(import_module(f"journeyman.toolbox.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

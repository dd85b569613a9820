"""Ready tools: read, write, edit, bash, glob, grep and ls in a workspace, fetch for the web, and hidden tools.

    workspace = Workspace("project")
    agent = Agent(..., tools=[*workspace.tools(), fetch_tool(), *deferred_tools(many_more)])

The names below are loaded when they are first used, so that only who fetches pays for an HTTP client.
"""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.toolbox.bench import Shell
    from journeyman.toolbox.fetch import fetch_tool, fetched
    from journeyman.toolbox.files import Entry, Facts, Files, LocalFiles, Refusal
    from journeyman.toolbox.memory import project_memory
    from journeyman.toolbox.memory_files import InMemoryFiles
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
    "fetched",
    "project_memory",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "bench": "Shell",
            "fetch": "fetch_tool fetched",
            "files": "Entry Facts Files LocalFiles Refusal",
            "memory": "project_memory",
            "memory_files": "InMemoryFiles",
            "tool_search": "deferred_tools",
            "workspace": "Workspace",
        },
    )

"""Ready tools: read, write, edit, bash, glob, grep and ls in a workspace, fetch for the web, and hidden tools.

    workspace = Workspace("project")
    agent = Agent(..., tools=[*workspace.tools(), fetch_tool(), *deferred_tools(many_more)])

The names below are loaded when they are first used, so that only who fetches pays for an HTTP client.
"""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.toolbox.fetch import download_media, fetch_tool
    from journeyman.toolbox.files import DirEntry, FileInfo, FileSystem, InMemoryFiles, LocalFiles, ToolRefused
    from journeyman.toolbox.memory import load_agents_md
    from journeyman.toolbox.notes import MemoryTool
    from journeyman.toolbox.openapi import openapi_tools
    from journeyman.toolbox.todo import todo_tool
    from journeyman.toolbox.tool_search import deferred_tools
    from journeyman.toolbox.workspace import Workspace
    from journeyman.toolbox.workspace_state import Shell

__all__ = [
    "DirEntry",
    "FileInfo",
    "FileSystem",
    "InMemoryFiles",
    "LocalFiles",
    "MemoryTool",
    "Shell",
    "ToolRefused",
    "Workspace",
    "deferred_tools",
    "download_media",
    "fetch_tool",
    "load_agents_md",
    "openapi_tools",
    "todo_tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "workspace_state": "Shell",
            "fetch": "download_media fetch_tool",
            "files": "DirEntry FileInfo FileSystem InMemoryFiles LocalFiles ToolRefused",
            "memory": "load_agents_md",
            "notes": "MemoryTool",
            "openapi": "openapi_tools",
            "todo": "todo_tool",
            "tool_search": "deferred_tools",
            "workspace": "Workspace",
        },
    )

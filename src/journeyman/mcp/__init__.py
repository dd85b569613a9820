"""The tools of MCP servers, for agents."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.mcp.tools import Http, Stdio, mcp, pin

__all__ = [
    "Http",
    "Stdio",
    "mcp",
    "pin",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "tools": "Http Stdio mcp pin",
        },
    )

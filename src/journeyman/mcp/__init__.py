"""The tools of MCP servers, for agents."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.mcp.servers import Http, Server, Stdio, Target, load_servers
    from journeyman.mcp.tools import mcp, pin

__all__ = ["Http", "Server", "Stdio", "Target", "load_servers", "mcp", "pin"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"servers": "Http Server Stdio Target load_servers", "tools": "mcp pin"})

"""Agents as servers over MCP, on stdio and over HTTP."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.mcp_server.http import serve_mcp_http
    from journeyman.mcp_server.server import AgentServer, create_mcp_server
    from journeyman.mcp_server.stdio import serve_mcp_stdio

__all__ = ["AgentServer", "create_mcp_server", "serve_mcp_http", "serve_mcp_stdio"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {"http": "serve_mcp_http", "server": "AgentServer create_mcp_server", "stdio": "serve_mcp_stdio"},
        {"mcp": "mcp", "serve": "starlette uvicorn"},
    )

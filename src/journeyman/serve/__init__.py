"""Agents as servers: behind HTTP, for programs and pages; and over MCP, on stdio and HTTP."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.serve.api import AgentApp, Authorize, create_app
    from journeyman.serve.http import serve_mcp_http
    from journeyman.serve.live import ServeLimits
    from journeyman.serve.server import AgentServer, create_mcp_server
    from journeyman.serve.stdio import serve_mcp_stdio

__all__ = [
    "AgentApp",
    "AgentServer",
    "Authorize",
    "ServeLimits",
    "create_app",
    "create_mcp_server",
    "serve_mcp_http",
    "serve_mcp_stdio",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "api": "AgentApp Authorize create_app",
            "http": "serve_mcp_http",
            "live": "ServeLimits",
            "server": "AgentServer create_mcp_server",
            "stdio": "serve_mcp_stdio",
        },
        {"mcp": "mcp", "serve": "ag_ui starlette uvicorn"},
    )

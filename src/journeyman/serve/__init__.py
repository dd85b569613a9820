"""Agents as servers: behind HTTP, for programs and pages; and over MCP, on stdio and HTTP."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.serve.api import AgentApp, Authorize, app
    from journeyman.serve.http import serve_http
    from journeyman.serve.live import ServeLimits
    from journeyman.serve.server import AgentServer, agent_server
    from journeyman.serve.stdio import serve_stdio

__all__ = ["AgentApp", "AgentServer", "Authorize", "ServeLimits", "agent_server", "app", "serve_http", "serve_stdio"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "api": "AgentApp Authorize app",
            "http": "serve_http",
            "live": "ServeLimits",
            "server": "AgentServer agent_server",
            "stdio": "serve_stdio",
        },
        {"mcp": "mcp", "serve": "ag_ui starlette uvicorn"},
    )

"""Agents as servers: over MCP, on stdio and HTTP."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.serve.server import agent_server, serve_http, serve_stdio

__all__ = [
    "agent_server",
    "serve_http",
    "serve_stdio",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "server": "agent_server serve_http serve_stdio",
        },
    )

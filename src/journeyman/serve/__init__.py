"""Agents as servers: over MCP, on stdio and HTTP."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.serve.http import serve_http
    from journeyman.serve.server import AgentServer, agent_server
    from journeyman.serve.stdio import serve_stdio

__all__ = ["AgentServer", "agent_server", "serve_http", "serve_stdio"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__, {"http": "serve_http", "server": "AgentServer agent_server", "stdio": "serve_stdio"}
    )

"""The tools of MCP servers, for agents; and their resources and prompts, for programs."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.mcp.resources import (
        ConnectedServer,
        PromptArgument,
        Resource,
        ResourceContent,
        ResourceTemplate,
        ServerPrompt,
    )
    from journeyman.mcp.servers import Http, OAuth, Sampler, Server, Stdio, Target, TokenProvider, load_servers
    from journeyman.mcp.tools import ServerTools, mcp, pin, sign_in

__all__ = [
    "ConnectedServer",
    "Http",
    "OAuth",
    "PromptArgument",
    "Resource",
    "ResourceContent",
    "ResourceTemplate",
    "Sampler",
    "Server",
    "ServerPrompt",
    "ServerTools",
    "Stdio",
    "Target",
    "TokenProvider",
    "load_servers",
    "mcp",
    "pin",
    "sign_in",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "resources": "ConnectedServer PromptArgument Resource ResourceContent ResourceTemplate ServerPrompt",
            "servers": "Http OAuth Sampler Server Stdio Target TokenProvider load_servers",
            "tools": "ServerTools mcp pin sign_in",
        },
    )

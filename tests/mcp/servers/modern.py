"""An MCP server made with the official SDK, in the newer form of the protocol: over stdio, or HTTP with a port.

python modern.py            over stdio
python modern.py http       over HTTP, at an address that it prints
"""

import asyncio
import socket
import sys
from base64 import b64decode

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import InputRequiredResult
from pydantic import BaseModel

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==")


class Weather(BaseModel):
    town: str
    degrees: list[int]


server = MCPServer("modern-server")


@server.tool()
def weather(town: str) -> Weather:
    """Tell the weather."""
    return Weather(town=town, degrees=[3, 5])


@server.tool()
def towns() -> list[str]:
    """List the towns."""
    return ["Bern", "Basel"]


@server.tool()
def picture() -> list[str | Image]:
    """Draw a picture."""
    return ["a pixel", Image(data=PIXEL, format="png")]


@server.tool()
async def slowly(ctx: Context) -> str:
    """Tell the progress."""
    await ctx.report_progress(1, 2, "half way")
    return "there"


both = asyncio.Barrier(2)


@server.tool()
async def meet() -> str:
    """Wait for another who calls."""
    await both.wait()
    return "met"


@server.tool()
async def forever(ctx: Context) -> str:
    """Never end."""
    await ctx.report_progress(1)
    await asyncio.Event().wait()
    return "no"


@server.tool()
def inquire() -> InputRequiredResult:
    """Ask for something before there is an answer."""
    return InputRequiredResult(request_state="asking")


@server.tool()
async def learn(name: str, ctx: Context) -> str:
    """Become able to do one thing more."""
    server.add_tool(lambda: name, name=name, description=f"Does {name}.")
    await ctx.notify_tools_changed()
    return f"learned {name}"


@server.tool()
async def forget(name: str, ctx: Context) -> str:
    """Become unable to do one thing."""
    server.remove_tool(name)
    await ctx.notify_tools_changed()
    return f"forgot {name}"


def serve_mcp_http() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)  # noqa: T201
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    serve_mcp_http() if sys.argv[1:] == ["http"] else server.run()

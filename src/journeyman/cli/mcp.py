"""`journeyman mcp`: agents served over MCP, until the client leaves or Ctrl-C; `mcp pin`: tools of others, pinned.

What speaks MCP takes long to import, so that is done when it is used: not for `--help`, nor for a wrong command line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from cyclopts import App, Parameter

import journeyman.mcp_server as serving
from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake, describe
from journeyman.cli.ending import TERMINATED_S
from journeyman.cli.load_agent import check_names, explain_servers
from journeyman.cli.options import AgentNames, Flag, GivenOptions, HostNames, Port, SharedOptions, explain
from journeyman.cli.outputs import OutputLost
from journeyman.cli.run import Stdout
from journeyman.cli.serving import check_named, frame_of, listening_told, until_told
from journeyman.mcp.servers import Target, load_servers
from journeyman.mcp.tools import pin as pin_tools
from journeyman.mcp.tools import sign_in

if TYPE_CHECKING:
    from journeyman.mcp_server import AgentServer

TOKEN: Final = "JOURNEYMAN_MCP_TOKEN"
"""The environment variable with the token that HTTP clients must bring."""

_HINTS: Final = {
    "NO_TOKEN": f"Set {TOKEN} to a long random text, or leave out --host.",
    "NO_HOST_NAME": "Say it: --allow-host agents.example.org",
}
_EXAMPLE: Final = "journeyman mcp pin --name git uvx mcp-server-git"
_PINS: Final = Path("mcp-pins.json")
_ADDRESS: Final = "127.0.0.1"
_PORT: Final = 8000
mcp = App(name="mcp", **describe("mcp"))


@mcp.default
def serve(
    *targets: AgentNames,
    http: Annotated[Flag, explain("Serve at http://127.0.0.1:8000/mcp, not over stdio.")] = False,
    host: Annotated[str | None, explain("The address to listen on; JOURNEYMAN_MCP_TOKEN if others reach it.")] = None,
    port: Port = None,
    allow_host: HostNames = None,
    shared: GivenOptions,
) -> int:
    """Serve agents as MCP tools: each is a tool, each call a run.

    Over stdio, for a client that starts this command. What agents print goes to stderr. The client is asked about what
    may not be done unasked, if it can be; else that is denied. A call is a part of its client's trace.
    """
    check_named(targets, "mcp")
    if not http and (host is not None or port is not None or allow_host):
        raise Mistake("--host, --port and --allow-host are for HTTP.", "Add --http, or leave them out.")
    if not http:
        take: Callable[[], AbstractContextManager[Any]] = resolve_name("journeyman.mcp_server.stdio:standard_streams")
        # The streams come first, before files are imported: these may print.
        with take() as streams:
            try:
                return _serve_until_told(targets, shared, partial(serving.serve_mcp_stdio, streams=streams))
            except OSError as error:
                raise OutputLost(error) from error
    Stdout()
    check_names(allow_host or ())
    address = _ADDRESS if host is None else host

    async def serve_at_port(server: AgentServer, *, abort: Abort) -> None:
        with listening_told(address, _HINTS):
            await serving.serve_mcp_http(
                server,
                address=address,
                port=_PORT if port is None else port,
                token=os.environ.get(TOKEN) or None,
                allowed_hosts=allow_host or (),
                abort=abort,
                on_ready=lambda url: _write_notice(f"serving at {url}; Ctrl-C ends it"),
            )

    return _serve_until_told(targets, shared, serve_at_port)


def _serve_until_told(
    targets: Sequence[str], options: SharedOptions, serve_clients: Callable[..., Coroutine[Any, Any, None]]
) -> int:
    """Serve agents until the client leaves, or a signal says that it is enough."""
    with frame_of(options, grace=TERMINATED_S, shows_log=False) as frame:
        agents = [frame.loop.agent(target, mode=options.mode) for target in targets]

        def serve_agents(abort: Abort) -> Coroutine[Any, Any, None]:
            return serve_clients(serving.create_mcp_server(*agents, runtime=frame.runtime, abort=abort), abort=abort)

        notice = partial(_write_notice, "stopping; interrupt again to quit at once")
        return until_told(frame.loop, serve_agents, notice, end=frame.end)


def _write_notice(text: str) -> None:
    sys.stderr.write(f"journeyman: {text}\n")
    sys.stderr.flush()


@mcp.command(**describe("mcp pin"))
def pin(
    *target: Annotated[
        str,
        Parameter(
            name="CONFIG|URL|COMMAND",
            allow_leading_hyphen=True,
            help="A JSON file of servers; or one server: its address, or its command, after all options.",
        ),
    ],
    name: Annotated[str | None, explain("The name of the one server, as your program calls it.")] = None,
    pins: Annotated[Path, explain("The file with the pins (mcp-pins.json); others in it stay.")] = _PINS,
) -> int:
    """Start MCP servers, pin what their tools are now, and print what is new or differs from the pins so far.

    Look at what it prints before you use it: the descriptions of tools are instructions to a model.
    """
    stdout = Stdout()
    with explain_servers(pins, "Fix it, or remove it and pin again."):
        news = asyncio.run(pin_tools(_servers(target, name), path=pins))
    stdout.write_text("\n".join(news) or "Nothing differs.")
    _write_notice(f"pinned in {pins}")
    return 0


@mcp.command(**describe("mcp login"))
def login(
    target: Annotated[str, explain("A JSON file of servers, or the address of one.", name="CONFIG|URL")], /
) -> int:
    """Sign in at MCP servers, in a browser; the tokens are kept for agents that use the servers later."""
    stdout = Stdout()
    is_address = target.startswith(("http://", "https://"))
    if not is_address and not target.endswith(".json"):
        raise Mistake(f"{target!r} is neither a file of servers nor an address.", "Nobody signs in at a program.")
    name = (urlsplit(target).hostname or "server") if is_address else None
    with explain_servers():
        names = asyncio.run(sign_in(_servers((target,), name)))
    stdout.write_text("\n".join(f"signed in: {name}" for name in names) or "No server has an address.")
    return 0


def _servers(target: Sequence[str], name: str | None) -> Mapping[str, Target]:
    if not target:
        raise Mistake("No server is named.", f"Name a file of servers, an address or a command: {_EXAMPLE}")
    if len(target) == 1 and target[0].endswith(".json"):
        if name is not None:
            raise Mistake(f"{target[0]} has names for its servers.", "Leave out --name.")
        return load_servers(target[0])
    if name is None:
        raise Mistake("The server has no name.", f"Give it the one that your program uses: {_EXAMPLE}")
    is_address = len(target) == 1 and target[0].startswith(("http://", "https://"))
    return {name: target[0] if is_address else target}

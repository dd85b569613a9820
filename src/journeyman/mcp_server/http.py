"""An MCP server on a port, over streamable HTTP: any number of clients.

By default only programs of this machine reach it, and no web page does: requests must name a known host and, if they
come from a page, a known origin. An address that others can reach asks for a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from journeyman.cancellation import Abort
from journeyman.errors import DefinitionError
from journeyman.serve.http_guard import (
    HttpGuard,
    address_problems,
    check_encoding,
    in_url,
    known_hosts,
    listen,
    serve_on,
)

PATH: Final = "/mcp"
MAX_SESSIONS: Final = 1_000
"""How many sessions may be open. Further clients are told to come back later (503)."""
SESSION_IDLE_S: Final = 1_800.0
"""How many seconds a session lives while no request of it goes on."""


async def serve_mcp_http(
    server: Server[Any],
    *,
    address: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
    max_sessions: int = MAX_SESSIONS,
    abort: Abort | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve clients at `http://address:port/mcp`, until `abort` fires or this is cancelled.

    Port 0 takes a free port. With a `token`, every request must bring it, as `Authorization: Bearer …`. `allowed_hosts`
    are further names under which clients reach the server. `on_ready` is called with the URL. At most `max_sessions`
    sessions are open at a time; a session ends when its client has asked nothing for half an hour. A connection that
    has not sent a whole request after 5 seconds is closed.

    Raises:
        DefinitionError: other machines could reach the server without a token, or it is unknown under which names they
            reach it.
        OSError: the address cannot be used, or the port is taken.
    """
    if problems := address_problems(address, port, token, allowed_hosts):
        raise DefinitionError("The MCP server", problems)
    app: ASGIApp = server.streamable_http_app(
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        ),  # the guard's rule is stricter
        max_sessions=max_sessions,
        session_idle_timeout=SESSION_IDLE_S,
    )
    hosts = known_hosts(address, allowed_hosts)
    guarded = HttpGuard(app, hosts=hosts, origins=allowed_hosts, token=token, checks=[check_encoding])
    with listen(address, port) as listening:
        if on_ready is not None:
            on_ready(f"http://{in_url(address)}:{listening.getsockname()[1]}{PATH}")
        await serve_on(listening, guarded, abort=abort)

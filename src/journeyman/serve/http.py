"""An MCP server on a port, over streamable HTTP: any number of clients.

By default only programs of this machine reach it, and no web page does: requests must name a known host and, if they
come from a page, a known origin. An address that others can reach asks for a token.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Exchange

from journeyman.cancel import Abort
from journeyman.errors import DefinitionError, Problem, count

PATH: Final = "/mcp"
SHORTEST_TOKEN: Final = 16
"""Characters."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_LAST_WORDS_S: Final = 1
"""How long clients have to take what was answered, once the server closes, in seconds."""


async def serve_http(
    server: Server[Any],
    *,
    address: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
    abort: Abort | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve clients at `http://address:port/mcp`, until `abort` fires or this is cancelled.

    Port 0 takes a free one. With a `token`, every request must bring it, as `Authorization: Bearer …`. `allowed_hosts`
    are further names under which clients reach the server. `on_ready` is called with the URL.

    Raises:
        DefinitionError: others could reach it without a token; or the names under which they do are not known.
        OSError: the address cannot be used, or the port is taken.
    """
    problems = list(_problems(address, token, allowed_hosts))
    if problems:
        raise DefinitionError("The MCP server", problems)
    app: ASGIApp = server.streamable_http_app(transport_security=_security(address, allowed_hosts))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listening:
        if on_ready is not None:
            on_ready(f"http://{_in_url(address)}:{listening.getsockname()[1]}{PATH}")
        await _serve(app if token is None else _asking_for(token, app), listening, abort)


def _problems(address: str, token: str | None, allowed_hosts: Sequence[str]) -> list[Problem]:
    problems: list[Problem] = []
    if token is not None and len(token) < SHORTEST_TOKEN:
        text = f"The token has {count(len(token), 'character')}, fewer than {SHORTEST_TOKEN}."
        problems.append(
            Problem("WEAK_TOKEN", text, "Take a random one: python -c 'import secrets; print(secrets.token_urlsafe())'")
        )
    if _is_loopback(address):
        return problems
    if token is None:
        text = f"Others can reach {address or 'all addresses'}, and could run the agents: no token is asked for."
        problems.append(Problem("NO_TOKEN", text, "Give a token, or stay on 127.0.0.1."))
    if _is_wildcard(address) and not allowed_hosts:
        text = f"{address or 'The empty address'} is every address of this machine, under names that are not known."
        problems.append(Problem("NO_HOST_NAME", text, "Allow the name that clients use, such as agents.example.org."))
    return problems


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def _is_wildcard(address: str) -> bool:
    try:
        return address == "" or ip_address(address).is_unspecified
    except ValueError:
        return False


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _security(address: str, allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    own = _LOOPBACK if _is_loopback(address) else () if _is_wildcard(address) else (_in_url(address),)
    names = [*own, *allowed_hosts]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[
            f"{scheme}://{form}" for scheme in ("http", "https") for name in names for form in (name, f"{name}:*")
        ],
    )


def _asking_for(token: str, app: ASGIApp) -> ASGIApp:
    """Return `app` behind a check of the token."""
    expected = token.encode()

    async def guarded(exchange: Exchange, receive: Receive, send: Send) -> None:
        if exchange["type"] == "http":
            scheme, _, given = Headers(scope=exchange).get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), expected):
                refused = PlainTextResponse("A token is needed.", 401, headers={"WWW-Authenticate": "Bearer"})
                return await refused(exchange, receive, send)
        await app(exchange, receive, send)

    return guarded


async def _serve(app: ASGIApp, listening: socket.socket, abort: Abort | None) -> None:
    # The steps of `uvicorn.Server.serve`, but for its signal handlers: those are the program's.
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )
    config.load()
    http = uvicorn.Server(config)
    http.lifespan = config.lifespan_class(config)

    def stop() -> None:
        http.should_exit = True

    unsubscribe = stop if abort is None else abort.subscribe(stop)
    await http.startup(sockets=[listening])
    try:
        await http.main_loop()
    finally:
        unsubscribe()
        await http.shutdown(sockets=[listening])

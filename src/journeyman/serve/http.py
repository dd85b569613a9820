"""An MCP server on a port, over streamable HTTP: any number of clients.

By default only programs of this machine reach it, and no web page does: requests must name a known host and, if they
come from a page, a known origin. An address that others can reach asks for a token.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, cast

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Exchange
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from journeyman.cancel import Abort
from journeyman.errors import DefinitionError, Problem, count

PATH: Final = "/mcp"
SHORTEST_TOKEN: Final = 16
"""Characters."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_SESSIONS: Final = 1_000
"""How many sessions may be open; a client beyond is told to come back (503)."""
SESSION_IDLE_S: Final = 1_800.0
"""How long a session lives in which no request goes on, in seconds."""
HALF_OPEN_S: Final = 5.0
"""How long a connection may take to send the head of a request, and between two pieces of its body, in seconds."""
_LAST_WORDS_S: Final = 1
"""How long clients have to take what was answered, once the server closes, in seconds."""


async def serve_http(
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

    Port 0 takes a free one. With a `token`, every request must bring it, as `Authorization: Bearer …`. `allowed_hosts`
    are further names under which clients reach the server. `on_ready` is called with the URL. At most `max_sessions`
    are open at a time; one ends when nothing was asked in it for half an hour. A connection that is opened and sends no
    whole request is closed after 5 seconds.

    Raises:
        DefinitionError: others could reach it without a token; or the names under which they do are not known.
        OSError: the address cannot be used, or the port is taken.
    """
    problems = list(_problems(address, token, allowed_hosts))
    if problems:
        raise DefinitionError("The MCP server", problems)
    app: ASGIApp = server.streamable_http_app(
        transport_security=_security(address, allowed_hosts),
        max_sessions=max_sessions,
        session_idle_timeout=SESSION_IDLE_S,
    )
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


class _Impatient(H11Protocol):
    """Closes connections on which no whole request comes."""

    _timer: asyncio.TimerHandle | None = None
    _last_data_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HALF_OPEN_S, self._look)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._last_data_at = self.loop.time()
        if self._timer is None and self._waits():
            self._timer = self.loop.call_later(HALF_OPEN_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _waits(self) -> bool:
        """Tell whether a request, or the rest of one, is still to come."""
        return not self._has_head() or self.cycle.more_body

    def _has_head(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request, whatever is declared
        return cycle is not None and not cycle.response_complete

    def _look(self) -> None:
        self._timer = None
        if not self._waits():
            return
        left_s = self._last_data_at + HALF_OPEN_S - self.loop.time() if self._has_head() else 0.0
        if left_s > 0:
            self._timer = self.loop.call_later(left_s, self._look)
        else:
            self.transport.close()


async def _serve(app: ASGIApp, listening: socket.socket, abort: Abort | None) -> None:
    # The steps of `uvicorn.Server.serve`, but for its signal handlers: those are the program's.
    config = uvicorn.Config(
        app,
        http=_Impatient,
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

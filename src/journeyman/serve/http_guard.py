"""Protects whatever listens on a port: checks its address, host names and token, and cuts off clients that are slow or
silent on purpose.

By default only programs of this machine reach it, and no web page does: requests must name a known host and, if they
come from a page, its origin must be the server's own, or a known one. An address that others can reach asks for a
token.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple, cast

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from journeyman.cancellation import Abort
from journeyman.closing import TimeToEnd
from journeyman.errors import Problem, count

SHORTEST_TOKEN: Final = 16
"""Characters."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
HEAD_BYTES: Final = 32 * 1024
"""How long the head of a request may be."""
HALF_OPEN_S: Final = 5.0
"""How long a connection may take to send the head of a request, and between two pieces of its body, in seconds."""
SLOW_S: Final = 30.0
"""How long a client may leave what it was sent unread, once the buffers are full, in seconds."""
_LAST_WORDS_S: Final = 1
"""How long clients have to take what was answered, once the server closes, in seconds."""


def address_problems(address: str, token: str | None, allowed_hosts: Sequence[str]) -> list[Problem]:
    """Return the problems of an address that it is unsafe to listen on."""
    problems: list[Problem] = []
    if token is not None and len(token) < SHORTEST_TOKEN:
        text = f"The token has {count(len(token), 'character')}, fewer than {SHORTEST_TOKEN}."
        problems.append(
            Problem("WEAK_TOKEN", text, "Take a random one: python -c 'import secrets; print(secrets.token_urlsafe())'")
        )
    if not all(name.strip() for name in allowed_hosts):
        text = "An allowed host name is empty: it would let requests in under every name."
        problems.append(Problem("NO_HOST_NAME", text, "Give the name that clients use, or none."))
    if is_loopback(address):
        return problems
    if token is None:
        text = f"Others can reach {address or 'all addresses'}, and could run the agents: the server asks for no token."
        problems.append(Problem("NO_TOKEN", text, "Give a token, or stay on 127.0.0.1."))
    if is_wildcard(address) and not allowed_hosts:
        every = f"{address or 'The empty address'} is every address of this machine"
        text = f"{every}, and the server does not know under which names clients reach it."
        problems.append(Problem("NO_HOST_NAME", text, "Allow the name that clients use, such as agents.example.org."))
    return problems


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def is_wildcard(address: str) -> bool:
    """Tell whether an address is all addresses of this machine."""
    try:
        return address == "" or ip_address(address).is_unspecified
    except ValueError:
        return False


def in_url(address: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def known_hosts(address: str, allowed_hosts: Sequence[str]) -> list[str]:
    """Return the names under which requests may reach what listens on an address."""
    own = LOOPBACK if is_loopback(address) else () if is_wildcard(address) else (in_url(address),)
    return [*own, *allowed_hosts]


def asking_for(token: str, app: ASGIApp) -> ASGIApp:
    """Return `app` behind a check of the token."""
    expected = token.encode()

    async def guard(exchange: Scope, receive: Receive, send: Send) -> None:
        if exchange["type"] == "http":
            scheme, _, given = Headers(scope=exchange).get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), expected):
                refused = PlainTextResponse("A token is needed.", 401, headers={"WWW-Authenticate": "Bearer"})
                return await refused(exchange, receive, send)
        await app(exchange, receive, send)

    return guard


class Unwelcome(NamedTuple):
    """The reason for which a request is refused."""

    status: int
    message: str
    hint: str
    headers: Mapping[str, str] = MappingProxyType({})
    """What the answer says beside its text."""


def check_page(
    exchange: Scope, hosts: Collection[str], *, pages: Collection[str] = (), may_be_opened: bool = False
) -> Unwelcome | None:
    """Return why a request is refused for the name that it goes to, or for the page that it comes from.

    This is the rule of everything on a port. A page may ask if the server has sent it: its origin is the `Runtime` of
    the request, port included. Pages at other ports of the same machine are other programs.

    Args:
        exchange: The request.
        hosts: The names under which the server is reached, in small letters, without ports, or with one.
        pages: The other places, as in URLs, whose pages may ask.
        may_be_opened: Any page may lead a browser there, as to a page.
    """
    headers = Headers(scope=exchange)
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    if host not in hosts and host.rpartition(":")[0] not in hosts:
        return Unwelcome(
            421, f"This server does not have the host name {host[:100]!r}.", "Allow the name: --allow-host."
        )
    is_anothers = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and not may_be_opened
    if origin is not None:
        scheme, _, place = origin.lower().partition("://")
        is_anothers = scheme not in ("http", "https") or (place != host and place not in pages)
    if is_anothers:
        text = f"Pages of the origin {(origin or 'of another server')[:100]!r} may not use this server."
        return Unwelcome(403, text, "Allow the place, with its port if it has one: --allow-host.")
    return None


def check_type(headers: Headers) -> Unwelcome | None:
    """Return why the body of a request is not taken for what it is said to be: a form of a page is no JSON."""
    given = headers.get("content-type", "application/json")
    if given.partition(";")[0].strip().lower() == "application/json":
        return None
    text = f"The body is said to be {given[:80]!r}, and not JSON."
    return Unwelcome(415, text, "Send Content-Type: application/json.")


def check_encoding(headers: Headers) -> Unwelcome | None:
    """Return why the body of a request is refused for its encoding: nothing here unpacks one, as a few bytes could
    become very many."""
    given = ", ".join(headers.getlist("content-encoding"))
    if {each.strip().lower() for each in given.split(",")} <= {"", "identity"}:
        return None
    text = f"The body is said to be encoded as {given[:80]!r}, and this server decodes nothing."
    hint = "Send it as it is, without Content-Encoding."
    return Unwelcome(415, text, hint, {"Accept-Encoding": "identity"})  # with it, no other 415 is meant


def refusing_encodings(app: ASGIApp) -> ASGIApp:
    """Return `app` behind `check_encoding`."""

    async def guard(exchange: Scope, receive: Receive, send: Send) -> None:
        refused = check_encoding(Headers(scope=exchange)) if exchange["type"] == "http" else None
        if refused is not None:
            text = f"{refused.message} {refused.hint}"
            return await PlainTextResponse(text, refused.status, refused.headers)(exchange, receive, send)
        await app(exchange, receive, send)

    return guard


def naming(hosts: Sequence[str], app: ASGIApp, *, pages: Sequence[str] = ()) -> ASGIApp:
    """Return `app` behind `check_page`."""
    known, others = {host.lower() for host in hosts}, {page.lower() for page in pages}

    async def guard(exchange: Scope, receive: Receive, send: Send) -> None:
        if exchange["type"] == "http":
            is_read = exchange["method"] in ("GET", "HEAD")
            refused = check_page(exchange, known, pages=others, may_be_opened=is_read)
            if refused is not None:
                text = f"{refused.message} {refused.hint}"
                return await PlainTextResponse(text, refused.status)(exchange, receive, send)
        await app(exchange, receive, send)

    return guard


def listening_socket(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Port 0 takes a free one.

    Raises:
        OSError: the address cannot be used, or the port is taken.
    """
    listening = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return listening


class _Impatient(H11Protocol):
    """Closes connections on which no whole request comes, and those on which nobody reads what was sent.

    How long a connection may be idle is counted from the last byte of its last response: whoever asks in time is
    answered, however old the connection is.
    """

    _due_s: float | None = None
    """When the head, or the next piece of the body, has to be there; None: nothing of a request is to come."""
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # asyncio does so only for sockets that were made with the number of the protocol. Without it each response on
        # a kept-alive connection, and each event after the first, waits some 40 ms for the client's acknowledgement.
        if (connection := transport.get_extra_info("socket")) is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_more()

    def data_received(self, data: bytes) -> None:
        if not self.flow.write_paused:
            self._stop_waiting_for_reader()
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request, whatever is declared
        if cycle is None or cycle.response_complete:
            if self._due_s is None:  # the beginning of a head, which does not get more time with each byte
                self._expect_more()
        elif cycle.more_body:
            self._expect_more()
        else:
            self._due_s = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.cycle.response_complete and self.cycle.more_body:  # the next request came behind the last one
            self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting_for_reader()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.is_closing() or not self.transport.get_write_buffer_size():
            super().timeout_keep_alive_handler()
            return
        self._wait_for_reader()  # it is not idle: it still reads the last response
        again = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self.timeout_keep_alive_task = again

    def _wait_for_reader(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(SLOW_S, self.transport.abort)

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_more(self) -> None:
        self._due_s = self.loop.time() + HALF_OPEN_S
        if self._timer is None:
            self._timer = self.loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._due_s is None:
            return
        if self._due_s > self.loop.time():
            self._timer = self.loop.call_at(self._due_s, self._look)
        else:
            self.transport.close()


async def serve_on(
    listening: socket.socket,
    app: ASGIApp,
    *,
    abort: Abort | None = None,
    connections: int | None = None,
    before_closing: Callable[[], Awaitable[object]] | None = None,
    closing: TimeToEnd | None = None,
) -> None:
    """Serve `app` until `abort` fires or this is cancelled. `before_closing` is awaited before, while
    it still serves. `closing`: in which time all has to end."""
    # The steps of `uvicorn.Server.serve`, except for its signal handlers: those are the program's.
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
        limit_concurrency=connections,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    config.load()
    http = uvicorn.Server(config)
    http.lifespan = config.lifespan_class(config)

    ends: set[asyncio.Future[None]] = set()

    async def close() -> None:
        try:
            if before_closing is not None:
                await before_closing()
        finally:
            http.should_exit = True

    def stop() -> None:
        ends.add(asyncio.ensure_future(close()))

    unsubscribe = stop if abort is None else abort.subscribe(stop)
    await http.startup(sockets=[listening])
    try:
        await http.main_loop()
    finally:
        unsubscribe()
        for task in ends:
            task.cancel()
        if closing is not None:
            config.timeout_graceful_shutdown = closing.part_s(_LAST_WORDS_S)  # pyright: ignore[reportAttributeAccessIssue] - uvicorn only hands it to asyncio, which takes parts of a second
        await http.shutdown(sockets=[listening])

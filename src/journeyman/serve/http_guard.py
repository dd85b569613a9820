"""Protects whatever listens on a port: checks its address, host names and token, and cuts off clients that are slow or
silent on purpose.

By default only programs of this machine reach it, and no web page does: requests must name a known host and, if they
come from a page, its origin must be the server's own, or a known one. An address that others can reach asks for a
token.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import hmac
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from secrets import token_urlsafe
from types import MappingProxyType
from typing import Final, NamedTuple, cast
from urllib.parse import urlencode

import uvicorn
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from journeyman.cancellation import Abort, own_task
from journeyman.closing import TimeToEnd
from journeyman.errors import Problem, count

SHORTEST_TOKEN: Final = 16
"""Characters."""
LAST_PORT: Final = 65_535
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
HEAD_BYTES: Final = 32 * 1024
"""How long the head of a request may be."""
HALF_OPEN_S: Final = 5.0
"""How long a connection may take to send the head of a request, and between two pieces of its body, in seconds."""
BODY_S: Final = 30.0
"""How long the body of a request may take to come, in seconds; then the request is refused (408)."""
SLOW_S: Final = 30.0
"""How long a client may leave what it was sent unread, once the buffers are full, in seconds."""
_TRIED: Final = 50
"""How many ports are looked at to name a free one."""
_HINTS: Final = (
    "Allow it, as an address has it, with its port if it has one: --allow-host.",
    "Send it: Authorization: Bearer …",
)
_COLLECTION_OBJECTS: Final = 20_000
"""After so many new objects garbage is collected: more than the runs have that go on at once, which are 160 each."""
_LAST_WORDS_S: Final = 1
"""How long clients have to take what was answered, once the server closes, in seconds."""


def address_problems(address: str, port: int, token: str | None, allowed_hosts: Sequence[str]) -> list[Problem]:
    """Return why nothing is served at an address: it is none, or others could reach it and would not be kept out."""
    problems: list[Problem] = []
    if not 0 <= port <= LAST_PORT:
        hint = f"Give a number from 0 to {LAST_PORT}; 0 takes a free one."
        problems.append(Problem("NO_PORT", f"{port} is no port.", hint))
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
        text = f"Others can reach {address or 'all addresses'}, and could use it: the server asks for no token."
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


class Unwelcome(NamedTuple):
    """The reason for which a request is refused."""

    status: int
    message: str
    hint: str
    headers: Mapping[str, str] = MappingProxyType({})
    """What the answer says beside its text."""


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
    if not given or {each.strip().lower() for each in given.split(",")} <= {"", "identity"}:
        return None
    text = f"The body is said to be encoded as {given[:80]!r}, and this server decodes nothing."
    hint = "Send it as it is, without Content-Encoding."
    return Unwelcome(415, text, hint, {"Accept-Encoding": "identity"})  # with it, no other 415 is meant


async def read_body(receive: Receive, *, most: int) -> bytes | Unwelcome:
    """Return the body of a request, or why it is refused: it has more than `most` bytes, whatever length it was said to
    have, or it does not come in time.

    Raises:
        ClientDisconnect: the client has gone before all of it was there.
    """
    taken, n_bytes, task, is_late = list[bytes](), 0, own_task(), False

    def end_time() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    # What `asyncio.timeout` does, at a third of its cost: every request comes here.
    timer = asyncio.get_running_loop().call_later(BODY_S, end_time)
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            n_bytes += len(piece)
            if n_bytes > most:
                return Unwelcome(413, f"The body has more than {most:,} bytes.", "Send less.")
            taken.append(piece)
            if not message.get("more_body", False):
                break
    except asyncio.CancelledError:
        if not is_late or task.uncancel():
            raise
        return Unwelcome(408, f"The body did not come within {BODY_S:g} s.", "Send it again.")
    finally:
        timer.cancel()
    return b"".join(taken)


def refuse_in_words(status: int, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    """Return the answer to a request that is refused: the reason, and what to do."""
    return PlainTextResponse(f"{message} {hint}", status, headers)


def path_in(exchange: Scope) -> str:
    """Return the path of a request below this application, wherever that is mounted."""
    path, mounted = exchange["path"], exchange.get("root_path", "")
    return path.removeprefix(mounted) if path.startswith(f"{mounted}/") else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The pages of an application: everybody may open them, and what they ask for takes the token, or its cookie."""

    data: str
    """How the paths of what pages ask for begin. All others are pages."""
    cookie: str
    """The name of the cookie, before the port: browsers send the cookies of a machine to each of its ports."""
    headers: Mapping[str, str]
    """What every answer says, unless it says something else itself."""
    session: str = field(default_factory=token_urlsafe, repr=False)
    """The value of the cookie of browsers that have brought the token. It is not the token, and ends with the process:
    browsers send a cookie to whatever listens at another port of the machine, too."""

    def cookie_of(self, headers: Headers) -> str:
        """Return the name of the cookie for the port that a request names."""
        port = headers.get("host", "").rpartition(":")[2]
        return f"{self.cookie}-{port}" if port.isdecimal() else self.cookie

    def token_in(self, exchange: Scope) -> bytes | None:
        """Return the token in the address that a browser opens, if there is one."""
        given = QueryParams(exchange["query_string"]).getlist("token")
        return given[-1].encode() if given and exchange["method"] == "GET" else None

    def sign_in(self, exchange: Scope, headers: Headers) -> Response:
        """Return the answer that takes the token out of the address, into a cookie."""
        query = QueryParams(exchange["query_string"])
        rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
        path = "/" + exchange["path"].lstrip("/")  # two slashes would be another host
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        mounted = exchange.get("root_path", "") or "/"
        answer.set_cookie(self.cookie_of(headers), self.session, httponly=True, samesite="strict", path=mounted)
        return answer

    def has_session(self, headers: Headers) -> bool:
        """Tell whether a request is of a browser that has brought the token."""
        with suppress(CookieError):
            given = SimpleCookie(headers.get("cookie", "")).get(self.cookie_of(headers))
            return given is not None and hmac.compare_digest(given.value.encode(), self.session.encode())
        return False

    def adding_headers(self, send: Send) -> Send:
        """Return a `send` that adds the headers to an answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        return send_with_headers


class HttpGuard:
    """Lets through what may be asked of an application on a port.

    A request must name a known host. If a page has sent it, its origin is the `Host` of the request, port included, or
    a place that is known: pages at other ports of the same machine are other programs. Others may only lead a browser
    to what can be opened. With a token, the request must bring it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        origins: Collection[str] = (),
        token: str | None = None,
        checks: Sequence[Callable[[Headers], Unwelcome | None]] = (),
        pages: Pages | None = None,
        refuse: Callable[[int, str, str, Mapping[str, str]], Response] = refuse_in_words,
        hints: tuple[str, str] = _HINTS,
    ) -> None:
        """Guards `app`.

        Args:
            app: The application.
            hosts: The names under which it is reached, without ports, or with one.
            origins: The other places, as in URLs, whose pages may ask.
            token: The token that requests have to bring; None: no token.
            checks: Further reasons to refuse a request.
            pages: The pages that it has; None: none, and every path takes the token.
            refuse: Makes the answer to a request that is refused.
            hints: What to do about a host or a page that is not known, and about a token that is missing.
        """
        self.app: Final = app
        self._hosts: Final = frozenset(host.lower() for host in hosts)
        self._origins: Final = frozenset(origin.lower() for origin in origins)
        self._token: Final = None if token is None else token.encode()
        self._checks: Final = checks
        self._pages: Final = pages
        self._refuse: Final = refuse
        self._hints: Final = hints

    async def __call__(self, exchange: Scope, receive: Receive, send: Send) -> None:
        if exchange["type"] == "http":
            send = send if self._pages is None else self._pages.adding_headers(send)
            if (answer := self._answer(exchange, Headers(scope=exchange))) is not None:
                return await answer(exchange, receive, send)
        await self.app(exchange, receive, send)

    def _answer(self, exchange: Scope, headers: Headers) -> Response | None:
        """Return the answer to what is not let through; None to what is."""
        is_data = self._pages is None or path_in(exchange).startswith(self._pages.data)
        may_be_opened = exchange["method"] == "GET" and (self._pages is None or not is_data)
        unwelcome = self._check_place(headers, may_be_opened=may_be_opened)
        if unwelcome is None and self._token is not None:
            asked = self._ask_for(self._token, exchange, headers, is_data=is_data)
            if isinstance(asked, Response):
                return asked
            unwelcome = asked
        for check in self._checks:
            unwelcome = unwelcome or check(headers)
        return None if unwelcome is None else self._refuse(*unwelcome)

    def _check_place(self, headers: Headers, *, may_be_opened: bool) -> Unwelcome | None:
        """Return why a request is refused for the name that it goes to, or for the page that it comes from."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if host not in self._hosts and host.rpartition(":")[0] not in self._hosts:
            return Unwelcome(421, f"This server does not have the host name {host[:100]!r}.", self._hints[0])
        is_led_here = may_be_opened and headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_anothers = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and not is_led_here
        if origin is not None:
            scheme, _, place = origin.lower().partition("://")
            is_anothers = scheme not in ("http", "https") or (place != host and place not in self._origins)
        if is_anothers:
            text = f"Pages of the origin {(origin or 'of another server')[:100]!r} may not use this server."
            return Unwelcome(403, text, self._hints[0])
        return None

    def _ask_for(
        self, token: bytes, exchange: Scope, headers: Headers, *, is_data: bool
    ) -> Response | Unwelcome | None:
        """Return the answer to a browser that brings the token in its address, or why it is not let in without."""
        given = None if self._pages is None else self._pages.token_in(exchange)
        if given is not None and self._pages is not None and hmac.compare_digest(given, token):
            return self._pages.sign_in(exchange, headers)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        is_known = scheme.lower() == "bearer" and hmac.compare_digest(bearer.strip().encode(), token)
        is_known = is_known or (self._pages is not None and self._pages.has_session(headers))
        if given is None and (is_known or not is_data):
            return None
        text = "The token is missing or wrong." if given is None else "The token is wrong."
        return Unwelcome(401, text, self._hints[1], {"WWW-Authenticate": "Bearer"})


def spare_collections() -> None:
    """Let garbage be collected seldom, and quickly, in a process that is all a server: clients wait for each time.

    What is there by now lives as long as the server, and is not looked through again. A run leaves no garbage, so that
    collections would find little but the runs that go on.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTION_OBJECTS)


def listen(address: str, port: int, *, tries: int = 1) -> socket.socket:
    """Return a socket that listens at an address: at the port, or at the next free one of `tries`. Port 0 takes a free
    one.

    Raises:
        OSError: the address cannot be used, or the ports are taken; then the text names the next free one.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for number in range(port, min(port + _TRIED, LAST_PORT + 1)):
        try:
            listening = socket.create_server((address, number), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        if number < port + tries:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
            return listening
        listening.close()
        raise OSError(errno.EADDRINUSE, f"the port {port} is taken; the next free one is {number}")
    raise OSError(errno.EADDRINUSE, f"the port {port} is taken, and so are those behind it")


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

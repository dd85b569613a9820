"""HTTP to model providers: connections that are used again, bytes in, server-sent events out, every failure mapped.

With `reuse` and `exchange`, the only module that knows aiohttp. An adapter sends its body with `open_stream`; what goes
wrong before, instead of or within the answer becomes a `ProviderError`, by the class of the exception. While a cassette
is replayed, nobody is asked: see `offline`.

Who owns a connection: the event loop (see `_Connections`), or the block of `async with model:` (see `OverHttp`).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from copy import copy
from dataclasses import field
from functools import cache, partial
from typing import Final, Self, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit
from weakref import WeakKeyDictionary, WeakSet

__all__ = ["Network", "Timeouts"]

try:
    import resource
except ImportError:  # Windows, where descriptors have no such bound
    resource = None

import aiohttp

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.hosts.proxies import VARIABLES, Proxy, ProxyRefused, find_proxy
from journeyman.model import Tap, current_tap
from journeyman.models.exchange import FOREIGN, TRUST, Exchange, OnlyHeartbeats, failure_before, failure_within
from journeyman.models.reuse import PooledConnection, PooledRequest, RequestBody, watch_connections
from journeyman.models.sse import Event, Parser, TooLarge
from journeyman.types import NOTHING_USED

EVENT_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""The largest single event or document that is read."""

_DRAIN_S: Final = 0.25  # an answer is complete, only its connection is at stake
_KEEP_ALIVE_S: Final = 45.0
_READ_BYTES: Final = 16 * 1024
"""How much of a stream is read before others have their turn, in bytes."""
_LOOKED_AT_BYTES: Final = 64  # the first word of a body tells an event stream from JSON and from HTML
_HEADER_BYTES: Final = 64 * 1024  # a company's gateway sends policies and cookies longer than aiohttp's 8 KB
_MOST_HEADERS: Final = 500
_SOCKS_PORT: Final = 1080  # registered for SOCKS with IANA
_UNBOUNDED_REQUESTS: Final = 100_000
_DESCRIPTORS_SHARE: Final = (3, 4)
"""How much of the process's descriptors requests may have: files, databases and idle connections need some, too."""


@lazy_dataclass(frozen=True, kw_only=True)
class Timeouts:
    """The limits on the silence of a request, in seconds. There is no limit on the whole: an answer may take its
    time."""

    connect_s: float = 30.0
    """The time to look up the host, connect and agree on TLS."""
    idle_s: float = 120.0
    """The time between sending the request and the first byte, and between any two pieces of the answer."""
    heartbeats_s: float = 600.0
    """The time in which a stream may bring nothing but heartbeats: comments, pings, empty events or white space. They
    keep a connection open whose other end has forgotten the answer."""


@lazy_dataclass(frozen=True, kw_only=True)
class Network:
    """The way to a service, where the address and the environment do not tell."""

    tls: ssl.SSLContext | None = None
    """Whom to trust, and the client's own certificate (`load_cert_chain`). None: the authorities of the system, or of
    SSL_CERT_FILE."""
    unix_socket: str | None = None
    """The path of the socket on which the service listens, instead of at the address's host and port. No proxy is
    asked then."""

    def __post_init__(self) -> None:
        if self.unix_socket is not None and not hasattr(socket, "AF_UNIX"):
            raise ValueError("This system has no Unix sockets. Leave Network.unix_socket at None, and use an address.")


_USUAL_NETWORK: Final = Network()


@lazy_dataclass(repr=False, eq=False)
class HttpAnswer:
    """An answer whose body is still to be read."""

    _response: aiohttp.ClientResponse
    _exchange: Exchange
    _timeouts: Timeouts
    _proxy: Proxy | None = None
    _tap: Tap | None = None
    _parser: Parser = field(default_factory=lambda: Parser(EVENT_LIMIT_BYTES), init=False)
    _unread: bytes = field(default=b"", init=False)
    """What has arrived and was not taken yet."""
    _is_fast: bool = field(default=False, init=False)
    """Whether something is left because it comes very fast: others have their turn before it."""
    _quiet_since_s: float | None = field(default=None, init=False)
    """When heartbeats began to come alone, by the event loop's clock."""

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in any case."""
        return self._response.headers

    @property
    def media_type(self) -> str:
        """The content type in lower case, without parameters; empty when there is none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def packing(self) -> str:
        """The name of the body's compression, in the server's words; empty if it has none, as it was asked for."""
        encoding = self.headers.get("Content-Encoding", "").strip().lower()
        return "" if encoding == "identity" else encoding

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request, to quote when asking for help."""
        return self.headers.get("request-id") or self.headers.get("x-request-id")

    @property
    def address(self) -> str:
        """The address that was asked, without secrets."""
        return self._exchange.address

    @property
    def target(self) -> str | None:
        """The address to which a redirect leads, without secrets; None for any other answer."""
        to = self.headers.get("Location") if 300 <= self.status < 400 else None
        return None if to is None else Exchange(urljoin(self._exchange.url, to), {}).address

    @property
    def proxy_variable(self) -> str | None:
        """The variable that names the proxy that was asked; None if there was none."""
        return None if self._proxy is None else self._proxy.variable

    async def look_ahead(self) -> bytes:
        """Return how the body begins, after white space, without taking it; empty when it has ended.

        Raises:
            ProviderError: the body broke off or fell silent.
        """
        try:
            while not (start := self._unread[:_LOOKED_AT_BYTES].lstrip()):
                if not self._unread:
                    self._unread = await self._response.content.readany()
                    if not self._unread:
                        break
                    continue
                self._note_heartbeat()
                self._unread = self._unread.lstrip()
        except FOREIGN as error:
            failure = failure_within(error, self._exchange)
        else:
            return start
        raise failure

    async def events(self) -> list[Event]:
        """Return the next events, as many as have arrived: at least one, and none when the stream has ended.

        Raises:
            ProviderError: the stream broke off, fell silent, or holds an event of more than `EVENT_LIMIT_BYTES`.
        """
        try:
            while chunk := await self._next_chunk():
                if not (events := self._parser.feed(chunk)):
                    self._note_heartbeat()
                    continue
                if events[0][0] == b"ping" and all([name == b"ping" for name, _ in events]):
                    self._note_heartbeat()
                else:
                    self._quiet_since_s = None
                if self._tap is not None:
                    self._tap.note_data(events)
                return events
            return self._parser.end()
        except (TooLarge, *FOREIGN) as error:
            failure = failure_within(error, self._exchange)
        raise failure

    async def _next_chunk(self) -> bytes:
        if self._unread:
            if self._is_fast:
                await asyncio.sleep(0)
            chunk, self._unread = self._unread, b""
        else:
            chunk = await self._response.content.readany()
        if len(chunk) > _READ_BYTES:
            chunk, self._unread, self._is_fast = chunk[:_READ_BYTES], chunk[_READ_BYTES:], True
        return chunk

    def _note_heartbeat(self) -> None:
        """Note that nothing has come but a heartbeat, or a part of an event.

        Raises:
            OnlyHeartbeats: that has gone on for too long.
        """
        now_s = asyncio.get_running_loop().time()
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s > self._timeouts.heartbeats_s:
            raise OnlyHeartbeats(f"nothing but heartbeats in {self._timeouts.heartbeats_s:g} s")

    async def body(self, first_bytes: int | None = None) -> bytes:
        """Return the body; with `first_bytes`, the rest is left unread after about so many.

        Raises:
            ProviderError: the body broke off, fell silent, or has more than `EVENT_LIMIT_BYTES`.
        """
        pieces: list[bytes] = [self._unread]
        left_bytes = (EVENT_LIMIT_BYTES if first_bytes is None else first_bytes) - len(self._unread)
        try:
            while left_bytes >= 0 and (chunk := await self._response.content.readany()):
                pieces.append(chunk)
                left_bytes -= len(chunk)
                if chunk.isspace():
                    self._note_heartbeat()
            if left_bytes < 0 and first_bytes is None:
                raise TooLarge(f"a document of more than {EVENT_LIMIT_BYTES:,} bytes")
        except (TooLarge, *FOREIGN) as error:
            failure = failure_within(error, self._exchange)
        else:
            body = b"".join(pieces)
            if self._tap is not None:
                self._tap.note_data(body)
            return body
        raise failure

    async def drain(self) -> None:
        """Read on to the end of a body whose last event has come, so that its connection can be used again."""
        if self._response.content.is_eof():
            return
        try:
            async with asyncio.timeout(_DRAIN_S):
                async for _ in self._response.content.iter_any():
                    pass
        except FOREIGN:
            return  # the answer is complete; only the connection is lost

    def scrub_text(self, text: str) -> str:
        """Return `text` without the keys of the request."""
        return self._exchange.scrub_text(text)

    def failure(self, words: str, kind: ProviderErrorKind, detail: object = "") -> ProviderError:
        """Return the error of an answer that is of no use; `words` go on from the host's name."""
        failure = self._exchange.failure(words, kind, detail)
        failure.status, failure.request_id = self.status, self.request_id
        return failure


def open_stream(
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    timeouts: Timeouts,
    network: Network = _USUAL_NETWORK,
    owner: object = None,
    is_heard: bool = True,
) -> AbstractAsyncContextManager[HttpAnswer]:
    """Post `body`, or get what is there if it is None, and hand out the answer, whatever its status. Leaving the block
    closes the request.

    The connection is one of the `owner`'s; None: one of the event loop's. Where the process may have no more of them,
    the request waits until another one is closed. `is_heard`: it is one to a model, which a tap may hear.

    Raises:
        ProviderError: on entering, there was no answer.
    """
    return _Posted(Exchange(url, headers), body, timeouts, network, owner, is_heard)


@lazy_dataclass(repr=False, eq=False)
class _Posted(AbstractAsyncContextManager[HttpAnswer]):
    """A request that is open as long as the block.

    A class, because a generator costs more for each request: the benchmark `over-http` needs it.
    """

    _exchange: Exchange
    _body: bytes | None
    _timeouts: Timeouts
    _network: Network
    _owner: object
    _is_heard: bool
    _connections: _Connections = field(init=False)
    _pool: _Pool = field(init=False)
    _response: aiohttp.ClientResponse = field(init=False)

    async def __aenter__(self) -> HttpAnswer:
        tap = current_tap() if self._is_heard else None
        if tap is not None:
            tap.note_request(self._exchange.url, self._exchange.headers, self._body or b"")
        self._connections = await _connections()
        self._pool = await self._connections.take(self._exchange, self._network, self._owner)
        try:
            self._response = await self._post()
        except BaseException:
            await self._connections.give_back(self._pool)
            raise
        answer = HttpAnswer(self._response, self._exchange, self._timeouts, self._pool.proxy, tap)
        if tap is not None:
            tap.note_status(answer.status, answer.request_id)
        return answer

    async def __aexit__(self, *raised: object) -> None:
        self._response.close()
        await self._connections.give_back(self._pool)

    async def _post(self) -> aiohttp.ClientResponse:
        """Post the body, and once more where its connection turns out to have been closed while it was idle.

        Many servers close one after each answer, or after some seconds, without a word before. A request that crosses
        that is lost unread, and whoever keeps connections has to send it again, as curl, urllib3 and browsers do. It
        can never be ruled out that the server read it anyway. But an answer has no effect beside its tokens, and what
        is sent again is not counted as a request of its own, because in nearly all cases it is the only one. No idle
        connection is left by then, and a fresh one cannot be lost in this way: the second time is the last.
        """
        if (refused := _find_refusal(self._exchange)) is not None:
            raise refused
        while True:
            body = RequestBody(self._body or b"")
            try:
                return await self._pool.session.request(
                    "GET" if self._body is None else "POST",
                    self._exchange.url,
                    data=None if self._body is None else body,
                    headers=self._exchange.headers,
                    proxy=self._pool.asked_proxy,
                    timeout=_client_timeout(self._timeouts),
                    allow_redirects=False,
                )
            except (*FOREIGN, *self._pool.failures) as error:
                failure = failure_before(error, self._exchange, self._pool.proxy)
                was_lost = body.was_lost(error)
            if not was_lost:
                raise failure  # outside of `except`: aiohttp's exception holds the request's headers, and the key
            self._pool.close_idle()


@cache
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s, sock_read=timeouts.idle_s)


_Environment: TypeAlias = tuple[str | None, ...]

_VARIABLES: Final = (*TRUST, *VARIABLES)


def _environment(variables: tuple[str, ...] = _VARIABLES) -> _Environment:
    return tuple(map(os.environ.get, variables))


_TRUSTED_AT_IMPORT: Final = _environment(TRUST)


class TrustRefused(ValueError):
    """A variable names authorities that are not there."""


@cache
def _tls(trusted: _Environment) -> ssl.SSLContext | bool:
    """Return the TLS context for values of `TRUST`, which are those of now. It takes some 50 ms to make one.

    Raises:
        TrustRefused: they name no authorities. OpenSSL would pass over them, and then trust nobody.
    """
    if not any(trusted) and not any(_TRUSTED_AT_IMPORT):
        return True  # aiohttp made its context when it was imported, when the variables may have had other values
    file, folders = trusted
    context = ssl.create_default_context()
    if file:
        try:
            context.load_verify_locations(file)
        except OSError as error:
            words = f"SSL_CERT_FILE is {file!r}, which holds no certificates ({error.strerror or error})"
            raise TrustRefused(f"{words}. Name a file in PEM form, or take the variable away") from None
    elif folders and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise TrustRefused(f"SSL_CERT_DIR is {folders!r}, which is no folder. Name one, or take the variable away")
    context.set_alpn_protocols(("http/1.1",))
    return context


@lazy_dataclass(repr=False, eq=False)
class _Pool:
    """Connections to one place with one set of headers. Cookies are neither kept nor sent."""

    session: aiohttp.ClientSession
    proxy: Proxy | None
    owner: object
    connections: WeakSet[PooledConnection]
    failures: tuple[type[Exception], ...] = ()
    """What the package for SOCKS raises."""
    n_requests: int = 0
    """How many requests are under way."""
    used_at_s: float = 0.0
    """When the last one ended, by the event loop's clock."""

    @property
    def asked_proxy(self) -> str | None:
        """The proxy that aiohttp is to ask: a SOCKS proxy is asked by the connector."""
        return None if self.proxy is None or self.proxy.is_socks else self.proxy.url

    def close_idle(self) -> None:
        """Close the connections that nobody uses now, so that the next request gets a fresh one."""
        for connection in self.connections:
            if connection.is_idle:
                connection.close()


@lazy_dataclass(repr=False, eq=False)
class _Connections:
    """All connections of one event loop, in pools.

    The rule of ownership: a connection belongs to the event loop, whoever opened it, and the next request to the same
    place with the same headers, and with them the key, may use it. An idle one lives for `_KEEP_ALIVE_S`. All are
    closed when the loop shuts down its asynchronous generators, as `asyncio.run` does at its end: `_until_the_end` is
    one. A request that comes after that closes its connection itself. Nobody else closes anything, except for the
    connections of `async with model:`, which are its own.
    """

    pools: dict[tuple[object, ...], _Pool] = field(default_factory=dict[tuple[object, ...], _Pool])
    owners: Counter[object] = field(default_factory=Counter[object])
    """How many blocks of each owner are open."""
    looked_at_s: float = 0.0
    """When it was last looked for pools of which no connection is left."""
    has_ended: bool = False
    pid: int = field(default_factory=os.getpid)
    """The process that has opened them. A forked child neither uses nor closes them: the parent goes on with them."""
    inherited: _Connections | None = None
    """Those of the parent in the same loop, kept so that nothing closes them."""
    keeper: AsyncGenerator[None] | None = None
    """What the event loop closes at its end."""
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_most_requests()))
    """For requests under way: each has a descriptor, of which a process has only so many."""

    async def take(self, exchange: Exchange, network: Network, owner: object) -> _Pool:
        """Return the pool for a request, which is now under way.

        Raises:
            ProviderError: a variable cannot be followed that names a proxy or authorities (`bad_request`).
        """
        await self.room.acquire()
        scheme, place = urlsplit(exchange.url)[:2]
        key = (owner, scheme, place, frozenset(exchange.headers.items()), _environment(), network)
        pool = self.pools.get(key)
        try:
            if pool is None:
                pool = self.pools[key] = _pool(exchange.url, network, owner)
        except (ProxyRefused, TrustRefused) as error:
            failure = exchange.failure(f"is not asked: {error}", "bad_request", usage=NOTHING_USED)
        else:
            pool.n_requests += 1
            return pool
        self.room.release()
        raise failure

    async def give_back(self, pool: _Pool) -> None:
        self.room.release()
        pool.n_requests -= 1
        pool.used_at_s = asyncio.get_running_loop().time()
        if self.has_ended and pool.n_requests == 0:
            await self._close(pool)

    async def refresh(self) -> None:
        """Forget pools of which no connection is left."""
        if not self.pools:
            return
        now_s = asyncio.get_running_loop().time()
        if self.looked_at_s < now_s - _KEEP_ALIVE_S:
            self.looked_at_s = now_s
            await self._close(*[pool for pool in self.pools.values() if pool.used_at_s < now_s - _KEEP_ALIVE_S])

    async def disown(self, owner: object) -> None:
        """Leave a block of this owner, and with the last one close what is its own."""
        self.owners[owner] -= 1
        if not self.owners[owner]:
            del self.owners[owner]
            for pool in (mine := [pool for pool in self.pools.values() if pool.owner is owner]):
                pool.n_requests = 0
            await self._close(*mine)

    async def end(self) -> None:
        """Close everything, under way or not: the loop ends."""
        if self.pid != os.getpid():
            return
        self.has_ended = True
        self.keeper = None  # it knows the loop, which has to be forgotten
        atexit.unregister(self.end_at_exit)
        for pool in self.pools.values():
            pool.n_requests = 0
        await self._close(*self.pools.values())

    def end_at_exit(self) -> None:
        """Close what a loop has left that was not shut down: one that was closed by hand, or never."""
        if self.pid != os.getpid():
            return
        for reference in _process.connections.keyrefs():
            loop = reference()
            if loop is None or loop.is_running() or _process.connections.get(loop) is not self:
                continue
            if loop.is_closed():
                asyncio.run(self.end())
            elif self.keeper is not None:
                loop.run_until_complete(self.keeper.aclose())

    async def _close(self, *pools: _Pool) -> None:
        closed = [pool for pool in pools if pool.n_requests == 0]
        self.pools = {key: pool for key, pool in self.pools.items() if pool not in closed}
        async with AsyncExitStack() as stack:  # all of them, also when this is cancelled meanwhile
            for pool in closed:
                stack.push_async_callback(pool.session.close)
        if closed:
            await asyncio.sleep(0)  # connections closed before are gone one round later


@lazy_dataclass(frozen=True)
class _Process:
    """The state that all event loops of the process share."""

    connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = field(
        default_factory=WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections]
    )
    silences: list[Silence] = field(default_factory=lambda: [])
    """Here, because a context variable would not reach a test's event loop, which may have been there before."""


_process: Final = _Process()


async def _connections() -> _Connections:
    loop = asyncio.get_running_loop()
    connections = _process.connections.get(loop)
    return await _open_connections(loop) if connections is None or connections.pid != os.getpid() else connections


async def _open_connections(loop: asyncio.AbstractEventLoop) -> _Connections:
    """Return the connections of a loop that had none, and forget those of loops that were closed by hand."""
    connections = _process.connections[loop] = _Connections(inherited=_process.connections.get(loop))
    atexit.register(connections.end_at_exit)
    connections.keeper = _until_the_end(connections)
    await anext(connections.keeper)
    for reference in _process.connections.keyrefs():
        other = reference()
        if other is not None and other.is_closed() and (left := _process.connections.pop(other, None)) is not None:
            await left.end()
    return connections


async def _until_the_end(connections: _Connections) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await connections.end()


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OverHttp:
    """A model whose requests go over this transport: its connections are the event loop's.

    `async with model as own:` gives the same model with connections of its own, which are closed when the block is
    left, in the event loop of the block. Blocks of the same model nest, and the last one closes.
    """

    network: Network = field(default=_USUAL_NETWORK, kw_only=True)
    """How the service is reached, where the address and the environment do not tell."""
    _owner: object = field(init=False, default=None)

    def _posting(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts
    ) -> partial[AbstractAsyncContextManager[HttpAnswer]]:
        """Return a function that posts a `body` over the connections of this model; see `open_stream`."""
        network, owner = self.network, self._owner
        return partial(open_stream, url, headers=headers, timeouts=timeouts, network=network, owner=owner)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Begin a run, a chat or the like, which reads the environment's proxies and authorities again."""
        return _Refreshed()

    async def __aenter__(self) -> Self:
        own = copy(self)
        object.__setattr__(own, "_owner", self)
        (await _connections()).owners[self] += 1
        return own

    async def __aexit__(self, *raised: object) -> None:
        await (await _connections()).disown(self)


@lazy_dataclass(frozen=True)
class _Refreshed(AbstractAsyncContextManager[None]):
    async def __aenter__(self) -> None:
        await (await _connections()).refresh()

    async def __aexit__(self, *raised: object) -> None:
        """Leave everything open: it is the loop's."""


def _most_requests() -> int:
    """Return how many requests one event loop may have under way."""
    if resource is None:
        return _UNBOUNDED_REQUESTS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    part, of = _DESCRIPTORS_SHARE
    return _UNBOUNDED_REQUESTS if soft == resource.RLIM_INFINITY else max(1, soft * part // of)


def _pool(url: str, network: Network, owner: object) -> _Pool:
    """Return a pool for an address, by what the environment says now.

    aiohttp's own `trust_env` would ask again, in two threads, for every request, and read ~/.netrc.

    Raises:
        ProxyRefused: the variable for its proxy cannot be followed.
        TrustRefused: there are no authorities, or TLS is asked for where it is not spoken.
    """
    proxy = None if network.unix_socket is not None else find_proxy(url)
    is_secret = url.startswith("https:") or (proxy is not None and proxy.url.startswith("https:"))
    trust = network.tls or (_tls(_environment(TRUST)) if is_secret else True)
    failures: tuple[type[Exception], ...] = ()
    connector: aiohttp.BaseConnector
    if network.unix_socket is not None:
        if is_secret:
            raise TrustRefused("TLS is not spoken over Network.unix_socket. Write http:// in base_url")
        connector = aiohttp.UnixConnector(network.unix_socket, limit=0, keepalive_timeout=_KEEP_ALIVE_S)
    elif proxy is not None and proxy.is_socks:
        connector, failures = _over_socks(proxy, trust)
    else:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ssl=trust)
    return _Pool(_session(connector), proxy, owner, watch_connections(connector), failures)


def _over_socks(
    proxy: Proxy, trust: ssl.SSLContext | bool
) -> tuple[aiohttp.BaseConnector, tuple[type[Exception], ...]]:
    """Return a connector for a SOCKS proxy, and the exceptions that it raises besides aiohttp's.

    Raises:
        ProxyRefused: the package for it is not installed.
    """
    try:
        import aiohttp_socks
    except ModuleNotFoundError:
        words = f"{proxy.variable} names the SOCKS proxy {proxy.shown}, and the package for SOCKS is not installed"
        raise ProxyRefused(f"{words}. Install it: pip install 'journeyman[socks]'") from None
    parts = urlsplit(proxy.url)
    connector = aiohttp_socks.ProxyConnector(
        parts.hostname or "",
        parts.port or _SOCKS_PORT,
        aiohttp_socks.ProxyType.SOCKS4 if parts.scheme.startswith("socks4") else aiohttp_socks.ProxyType.SOCKS5,
        username=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        rdns=parts.scheme in ("socks4a", "socks5h"),  # the others are told an address, as curl does it
        limit=0,
        keepalive_timeout=_KEEP_ALIVE_S,
        ssl=trust,
    )
    failures = (aiohttp_socks.ProxyError, aiohttp_socks.ProxyConnectionError, aiohttp_socks.ProxyTimeoutError)
    return connector, failures


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        request_class=PooledRequest,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # nobody asked for it, and a small answer may be huge when it is unpacked
        # A proxy that compresses a stream holds its events back.
        headers={"Accept-Encoding": "identity", "User-Agent": "journeyman"},
        timeout=aiohttp.ClientTimeout(total=None),
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
        max_headers=_MOST_HEADERS,
    )


@lazy_dataclass()
class Silence:
    """A time in which nobody may be asked."""

    reason: str
    """Says why, in the error of each request."""
    refused: list[str] = field(default_factory=list[str])
    """The hosts that would have been asked."""


@contextmanager
def offline(reason: str) -> Generator[Silence]:
    """Refuse every request over our transport, in any event loop of this process, until the block ends."""
    silence = Silence(reason)
    _process.silences.append(silence)
    try:
        yield silence
    finally:
        _process.silences.remove(silence)


def note_refusal(host: str) -> str | None:
    """Return why nobody may be asked now, and note who would have been; None when anybody may."""
    for silence in _process.silences:
        silence.refused.append(host)
    if _process.silences:
        return _process.silences[-1].reason
    may = os.environ.get("JOURNEYMAN_MODEL_CALLS", "").strip().lower()
    is_forbidden = may in ("0", "false", "no", "off")
    return f"JOURNEYMAN_MODEL_CALLS={may} forbids it; a test that may is marked live" if is_forbidden else None


ASK_NOBODY: Final = "Give the run a model that asks nobody: a ScriptedModel, or a cassette's."
"""The advice where nobody may be asked."""


def _find_refusal(exchange: Exchange) -> ProviderError | None:
    """Return the error that nobody may be asked now; None when anybody may."""
    reason = note_refusal(exchange.host)
    if reason is None:
        return None
    failure = exchange.failure(f"is not asked: {reason}", "not_recorded", usage=NOTHING_USED)
    failure.hint = ASK_NOBODY
    return failure

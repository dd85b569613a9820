"""HTTP to model providers: connections that are used again, bytes in, server-sent events out, every failure mapped.

The only module that knows aiohttp. An adapter sends its body with `open_stream`; what goes wrong before, instead of
or within the answer becomes a `ProviderError`, by the class of the exception. While a cassette is replayed, nobody is
asked: see `offline`.

Who owns a connection: the event loop (see `_Connections`), or the block of `async with model:` (see `OverHttp`).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import ssl
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from copy import copy
from dataclasses import field
from functools import cache
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from journeyman.data import lazy_dataclass
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import Tap, current_tap
from journeyman.models.sse import Event, Parser, TooLarge
from journeyman.tools.redaction import without_secrets
from journeyman.types import NOTHING_USED, Usage

EVENT_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""The largest single event or document that is read."""

_DRAIN_S: Final = 0.25  # an answer is complete, only its connection is at stake
_KEEP_ALIVE_S: Final = 45.0
_FRESH_S: Final = 1.0  # no server closes a connection so soon
_ROUNDS_TO_NOTICE: Final = 2
"""How often the event loop must look around to notice that a server has closed a connection while it did not run."""
_FIRST_BYTES: Final = 16 * 1024  # aiohttp copies the first piece, to send it with the headers
_READ_BYTES: Final = 16 * 1024
"""How much of a stream is read before others have their turn, in bytes."""
_PIECE_BYTES: Final = 128 * 1024  # what a full socket leaves of a piece is copied once more

_PUBLIC_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version", "anthropic-beta"}
)


@lazy_dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long a request may be silent, in seconds. There is no limit on the whole: an answer may take its time."""

    connect_s: float = 30.0
    """The time to look up the host, connect and agree on TLS."""
    idle_s: float = 120.0
    """The time between sending the request and the first byte, and between any two pieces of the answer."""


# -- one request -------------------------------------------------------------------------------------------------------


@lazy_dataclass(frozen=True, repr=False)
class Exchange:
    """What error messages may say about a request, and what they must not: hence no repr of the headers."""

    url: str
    headers: Mapping[str, str]

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2] or self.url

    def scrubbed(self, text: str) -> str:
        """Return `text` without the keys of the request, and without what looks like another secret."""
        values = [value for name, value in self.headers.items() if name.lower() not in _PUBLIC_HEADERS]
        words = [word for value in [*values, urlsplit(self.url).password or ""] for word in (value, *value.split())]
        for secret in sorted({word for word in words if len(word) > 6}, key=len, reverse=True):
            text = text.replace(secret, "[key]")
        return without_secrets(text)

    def failure(
        self, words: str, kind: ProviderErrorKind, detail: object = "", *, usage: Usage | None = None
    ) -> ProviderError:
        detail = self.scrubbed(str(detail))  # alone, as it was written
        said = f" ({detail})" if detail else ""
        return ProviderError(self.scrubbed(f"{self.host} {words}{said}."), kind=kind, usage=usage)


@lazy_dataclass(repr=False, eq=False)
class HttpAnswer:
    """An answer whose body is still to be read."""

    _response: aiohttp.ClientResponse
    _exchange: Exchange
    _tap: Tap | None = None
    _parser: Parser = field(default_factory=lambda: Parser(EVENT_LIMIT_BYTES), init=False)
    _unread: bytes = field(default=b"", init=False)
    """What has arrived and was not looked at yet, of a stream that comes very fast."""

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
        """How the body is packed, in the server's words; empty if it is not, as it was asked for."""
        encoding = self.headers.get("Content-Encoding", "").strip().lower()
        return "" if encoding == "identity" else encoding

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request, to quote when asking for help."""
        return self.headers.get("request-id") or self.headers.get("x-request-id")

    async def events(self) -> list[Event]:
        """Return the next events, as many as have arrived: at least one, and none when the stream has ended.

        Raises:
            ProviderError: the stream broke off, fell silent, or holds an event of more than `EVENT_LIMIT_BYTES`.
        """
        try:
            while chunk := await self._next_chunk():
                if events := self._parser.feed(chunk):
                    if self._tap is not None:
                        self._tap.received(events)
                    return events
            return self._parser.end()
        except (TooLarge, *FOREIGN) as error:
            failure = failure_within(error, self._exchange)
        raise failure

    async def _next_chunk(self) -> bytes:
        if self._unread:
            await asyncio.sleep(0)
            chunk = self._unread
        else:
            chunk = await self._response.content.readany()
        if len(chunk) > _READ_BYTES:
            chunk, self._unread = chunk[:_READ_BYTES], chunk[_READ_BYTES:]
        elif self._unread:
            self._unread = b""
        return chunk

    async def body(self, first_bytes: int | None = None) -> bytes:
        """Return the body, or not much more than its first bytes.

        Raises:
            ProviderError: the body broke off, fell silent, or has more than `EVENT_LIMIT_BYTES`.
        """
        pieces: list[bytes] = []
        left_bytes = EVENT_LIMIT_BYTES if first_bytes is None else first_bytes
        try:
            async for chunk in self._response.content.iter_any():
                pieces.append(chunk)
                if (left_bytes := left_bytes - len(chunk)) < 0:
                    break
            if left_bytes < 0 and first_bytes is None:
                raise TooLarge(f"a document of more than {EVENT_LIMIT_BYTES:,} bytes")
        except (TooLarge, *FOREIGN) as error:
            failure = failure_within(error, self._exchange)
        else:
            body = b"".join(pieces)
            if self._tap is not None:
                self._tap.received(body)
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

    def scrubbed(self, text: str) -> str:
        """Return `text` without the keys of the request."""
        return self._exchange.scrubbed(text)

    def failure(self, words: str, kind: ProviderErrorKind, detail: object = "") -> ProviderError:
        """Return the error of an answer that is of no use; `words` go on from the host's name."""
        failure = self._exchange.failure(words, kind, detail)
        failure.status, failure.request_id = self.status, self.request_id
        return failure


def open_stream(
    url: str, *, headers: Mapping[str, str], body: bytes, timeouts: Timeouts, owner: object = None
) -> AbstractAsyncContextManager[HttpAnswer]:
    """Post `body` and hand out the answer, whatever its status. Leaving the block closes the request.

    The connection is one of the `owner`'s; None: one of the event loop's.

    Raises:
        ProviderError: on entering, there was no answer.
    """
    return _Posted(Exchange(url, headers), body, timeouts, owner)


@lazy_dataclass(repr=False, eq=False)
class _Posted(AbstractAsyncContextManager[HttpAnswer]):
    """A request that is open as long as the block.

    A class, because a generator costs more for each request: the benchmark `over-http` needs it.
    """

    _exchange: Exchange
    _body: bytes
    _timeouts: Timeouts
    _owner: object
    _connections: _Connections = field(init=False)
    _pool: _Pool = field(init=False)
    _response: aiohttp.ClientResponse = field(init=False)

    async def __aenter__(self) -> HttpAnswer:
        tap = current_tap.get()
        if tap is not None:
            tap.sent(self._exchange.url, self._exchange.headers, self._body)
        self._connections = await _connections()
        self._pool = self._connections.taken(self._exchange, self._owner)
        try:
            self._response = await _post(self._pool, self._exchange, self._body, self._timeouts)
        except BaseException:
            await self._connections.give_back(self._pool)
            raise
        answer = HttpAnswer(self._response, self._exchange, tap)
        if tap is not None:
            tap.answered(answer.status, answer.request_id)
        return answer

    async def __aexit__(self, *raised: object) -> None:
        self._response.close()
        await self._connections.give_back(self._pool)


async def _post(pool: _Pool, exchange: Exchange, body: bytes, timeouts: Timeouts) -> aiohttp.ClientResponse:
    if (refused := _refused(exchange)) is not None:
        raise refused
    try:
        return await pool.session.post(
            exchange.url,
            data=_Body(body),
            headers=exchange.headers,
            proxy=pool.proxy,
            timeout=_client_timeout(timeouts),
            allow_redirects=False,
        )
    except FOREIGN as error:
        failure = failure_before(error, exchange)
    raise failure  # outside of `except`: aiohttp's exception holds the request's headers, and with them the key


class _Body(aiohttp.Payload):
    """A body that is never copied as a whole: aiohttp and the socket see pieces of it, one after the other.

    Late in a long run it has hundreds of kilobytes, and the memory of each copy is fetched from the system and given
    back with every request.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        body: bytes = self._value
        return body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        body, start, size = memoryview(self._value), 0, _FIRST_BYTES
        while start < len(body):
            await writer.write(body[start : start + size])
            start, size = start + size, _PIECE_BYTES


@cache
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s, sock_read=timeouts.idle_s)


# -- whose connections -------------------------------------------------------------------------------------------------

_Environment: TypeAlias = tuple[str | None, ...]

_TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy")
_VARIABLES: Final = (*_TRUST, *_PROXIES, "no_proxy", "REQUEST_METHOD")


def _environment(variables: tuple[str, ...] = _VARIABLES) -> _Environment:
    return tuple(map(os.environ.get, variables))


_TRUSTED_AT_IMPORT: Final = _environment(_TRUST)  # aiohttp made its TLS context by them


@cache
def _tls(trusted: _Environment) -> ssl.SSLContext | bool:
    """Return the TLS context for values of `_TRUST`, which are those of now. It takes some 50 ms to make one."""
    if trusted == _TRUSTED_AT_IMPORT:
        return True
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


@lazy_dataclass(repr=False, eq=False)
class _Pool:
    """Connections to one place with one set of headers. Cookies are neither kept nor sent."""

    session: aiohttp.ClientSession
    proxy: str | None
    owner: object
    n_requests: int = 0
    """How many requests are under way."""
    used_at_s: float = 0.0
    """When the last one ended, by the event loop's clock."""


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
    environment: _Environment = field(default_factory=_environment)
    """What the environment says of proxies and authorities."""
    used_at_s: float = 0.0
    """When the last request ended."""
    looked_at_s: float = 0.0
    """When it was last looked for pools of which no connection is left."""
    has_ended: bool = False
    keeper: AsyncGenerator[None] | None = None
    """What the event loop closes at its end."""

    def taken(self, exchange: Exchange, owner: object) -> _Pool:
        """Return the pool for a request, which is now under way."""
        scheme, place = urlsplit(exchange.url)[:2]
        key = (owner, scheme, place, frozenset(exchange.headers.items()), self.environment)
        pool = self.pools.get(key)
        if pool is None:
            # aiohttp's own trust_env would ask again, in two threads, for every request, and read ~/.netrc.
            bypassed = urllib.request.proxy_bypass(urlsplit(exchange.url).hostname or "")
            proxy = None if bypassed else urllib.request.getproxies().get(scheme)
            pool = self.pools[key] = _Pool(_session(scheme), proxy, owner)
        pool.n_requests += 1
        return pool

    async def give_back(self, pool: _Pool) -> None:
        pool.n_requests -= 1
        pool.used_at_s = self.used_at_s = asyncio.get_running_loop().time()
        if self.has_ended and pool.n_requests == 0:
            await self._close(pool)

    async def refresh(self) -> None:
        """Read the environment again, and forget pools of which no connection is left, and what servers have closed."""
        self.environment = _environment()
        if not self.pools:
            return
        now_s = asyncio.get_running_loop().time()
        if self.looked_at_s < now_s - _KEEP_ALIVE_S:
            self.looked_at_s = now_s
            await self._close(*[pool for pool in self.pools.values() if pool.used_at_s < now_s - _KEEP_ALIVE_S])
        if self.used_at_s < now_s - _FRESH_S:
            for _ in range(_ROUNDS_TO_NOTICE):
                await asyncio.sleep(0)

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
        self.has_ended = True
        self.keeper = None  # it knows the loop, which has to be forgotten
        atexit.unregister(self.end_at_exit)
        for pool in self.pools.values():
            pool.n_requests = 0
        await self._close(*self.pools.values())

    def end_at_exit(self) -> None:
        """Close what a loop has left that was not shut down: one that was closed by hand, or never."""
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
    """What all event loops of the process have together."""

    connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = field(
        default_factory=WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections]
    )
    silences: list[Silence] = field(default_factory=lambda: [])
    """Here, because a context variable would not reach a test's event loop, which may have been there before."""


_process: Final = _Process()


async def _connections() -> _Connections:
    loop = asyncio.get_running_loop()
    connections = _process.connections.get(loop)
    return await _begun(loop) if connections is None else connections


async def _begun(loop: asyncio.AbstractEventLoop) -> _Connections:
    """Return the connections of a loop that had none, and forget those of loops that were closed by hand."""
    connections = _process.connections[loop] = _Connections()
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

    _owner: object = field(init=False, default=None)

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


def _session(scheme: str) -> aiohttp.ClientSession:
    trust = _tls(_environment(_TRUST)) if scheme == "https" else True
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ssl=trust),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # nobody asked for it, and a small answer may be huge when it is unpacked
        # A proxy that compresses a stream holds its events back.
        headers={"Accept-Encoding": "identity", "User-Agent": "journeyman"},
        timeout=aiohttp.ClientTimeout(total=None),
    )


# -- no network --------------------------------------------------------------------------------------------------------


@lazy_dataclass()
class Silence:
    """A time in which nobody may be asked."""

    reason: str
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


def _refused(exchange: Exchange) -> ProviderError | None:
    """Return why nobody may be asked now, and note who would have been; None when anybody may."""
    for silence in _process.silences:
        silence.refused.append(exchange.host)
    if not _process.silences:
        return None
    return exchange.failure(f"is not asked: {_process.silences[-1].reason}", "not_recorded", usage=NOTHING_USED)


# -- failures ----------------------------------------------------------------------------------------------------------

FOREIGN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What aiohttp raises. `TimeoutError` is an `OSError`."""

# The first class that fits: before an answer began. The third column: nothing can have been billed.
_BEFORE: Final[tuple[tuple[type[Exception], ProviderErrorKind, bool, str], ...]] = (
    (aiohttp.ConnectionTimeoutError, "timeout", True, "could not be reached in time"),
    (TimeoutError, "timeout", False, "did not begin to answer in time"),
    (aiohttp.ClientSSLError, "network", True, "could not be reached over TLS; SSL_CERT_FILE names other authorities"),
    (aiohttp.ServerFingerprintMismatch, "network", True, "has another certificate than expected"),
    (aiohttp.ClientHttpProxyError, "network", True, "could not be reached: the proxy refused"),
    (aiohttp.ClientConnectorError, "network", True, "could not be reached"),
    (aiohttp.ClientResponseError, "unknown", False, "did not answer in HTTP"),
    (HttpProcessingError, "unknown", False, "did not answer in HTTP"),
    (aiohttp.NonHttpUrlClientError, "bad_request", True, "has a URL that is not http or https"),
    (ValueError, "bad_request", True, "could not be asked: the URL or a header is invalid"),
)


def failure_before(error: Exception, exchange: Exchange) -> ProviderError:
    """Return what `error` means when there is no answer yet."""
    for kind_of_error, kind, unbilled, words in _BEFORE:
        if isinstance(error, kind_of_error):
            return exchange.failure(words, kind, _said(error), usage=NOTHING_USED if unbilled else None)
    return exchange.failure("closed the connection before answering", "network", _said(error))


def failure_within(error: Exception, exchange: Exchange) -> ProviderError:
    """Return what `error` means when the answer had begun. The use is not known here."""
    match error:
        case TooLarge():
            return exchange.failure("sent more in one piece than can be right", "unknown", error)
        case TimeoutError():
            return exchange.failure("stopped sending in the middle of an answer", "stream_idle", _said(error))
        case _:
            return exchange.failure("broke off in the middle of an answer", "stream_cut", _said(error))


def _said(error: Exception) -> str:
    # The text of a ClientResponseError quotes the whole URL.
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Connections that know what came over them, so that a request is not lost with one that had been closed while idle.

It stands between aiohttp's pool and `transport`, and relies on insides of aiohttp: nothing else can tell a server that
closed before the first byte of an answer from one that closed after it. Where aiohttp changes them, nothing is
repeated.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

_LATEST_STALE_S: Final = 10.0
"""How long after a request was sent the end of its connection may still be that of an idle one, in seconds. That shows
within a few round trips, even to a busy machine; later the server gave up on a request which it had, as load balancers
do after some patience, and its tokens may have been billed."""
_FIRST_BYTES: Final = 16 * 1024  # aiohttp copies the first piece, to send it with the headers
_PIECE_BYTES: Final = 128 * 1024  # what a full socket leaves of a piece is copied once more


class PooledConnection(ResponseHandler):
    """A connection, which knows how often it was used and whether anything of an answer has come."""

    def __init__(self, connections: WeakSet[PooledConnection], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.n_requests = 0
        self.is_answering = False
        """Whether anything has come since the last request."""
        self.is_idle = False
        """Whether it lies in the pool."""
        connections.add(self)

    def set_response_params(self, **params: Any) -> None:
        """Begin a request."""
        self.n_requests += 1
        self.is_answering = self.is_idle = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if data and self.is_idle:
            self.close()  # nobody asked: some say 408 before they close, which aiohttp takes for the next answer
            return
        self.is_answering = True
        super().data_received(data)

    def rest(self) -> None:
        """End a request."""
        self.is_idle = True


def watch_connections(connector: aiohttp.BaseConnector) -> WeakSet[PooledConnection]:
    """Return a set of all connections that `connector` will open and that are not gone."""
    connections: WeakSet[PooledConnection] = WeakSet()
    make: Any = partial(PooledConnection, connections, asyncio.get_running_loop())
    connector._factory = make  # pyright: ignore[reportPrivateUsage] - all connectors have it, and no parameter for it
    return connections


class RequestBody(aiohttp.Payload):
    """A body that is never copied as a whole: aiohttp and the socket see pieces of it, one after the other.

    Late in a long run it has hundreds of kilobytes, and the memory of each copy is fetched from the system and given
    back with every request.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)
        self.connection: PooledConnection | None = None
        """The connection that it went over, once there is one."""
        self._loop = asyncio.get_running_loop()
        self._latest_stale_s = self._loop.time() + _LATEST_STALE_S

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        body: bytes = self._value
        return body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        body, start, size = memoryview(self._value), 0, _FIRST_BYTES
        while start < len(body):
            await writer.write(body[start : start + size])
            start, size = start + size, _PIECE_BYTES

    def was_lost(self, error: Exception) -> bool:
        """Tell whether `error` is that of a used connection which was closed soon, and before anything came of an
        answer."""
        is_closed = isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, TimeoutError)
        used = self.connection is not None and self.connection.n_requests > 1 and not self.connection.is_answering
        return is_closed and used and self._loop.time() <= self._latest_stale_s


class PooledRequest(aiohttp.ClientRequest):
    """A request whose body learns which connection it goes over."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if isinstance(self.body, RequestBody) and isinstance(connection := conn.protocol, PooledConnection):
            self.body.connection = connection
            conn.add_callback(connection.rest)
        return await super().send(conn)

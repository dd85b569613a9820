"""A loopback server that answers with given bytes, for what no proper HTTP server would send."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeAlias

from tests.play import existing

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer: TypeAlias = bytes | Handler
"""Bytes to send, or what to do with the connection instead."""


def http(
    body: bytes = b"",
    *,
    status: int = 200,
    content_type: str = "text/event-stream",
    headers: dict[str, str] | None = None,
) -> bytes:
    """Return an HTTP answer that keeps its connection alive."""
    lines = [f"HTTP/1.1 {status} Reason", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] * bool(content_type)
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def closing_after(data: bytes) -> Answer:
    """Send the bytes, then close the connection."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def hanging_after(data: bytes) -> Answer:
    """Send the bytes, then nothing more until the client goes away."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return answer


def resetting_after(data: bytes) -> Answer:
    """Send the bytes and let them arrive, then reset the connection."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        for _round in range(20):  # a client in this event loop reads them meanwhile
            await asyncio.sleep(0)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return answer


class RawServer:
    """Gives one answer per request, in order; the last one repeats. Connections are kept alive after bytes."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.url = ""
        self.requests: list[bytes] = []
        """The requests, heads and bodies, as they arrived."""
        self.n_connections = 0
        self.n_hung_up = 0
        """Connections that the client closed while an answer was under way."""
        self._answers = answers
        self._tls = tls
        self._changed = asyncio.Event()
        self._handlers: set[asyncio.Task[None]] = set()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition on this server, such as `lambda: server.n_hung_up == 1`."""
        while not ready():
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = existing(asyncio.current_task())
        self._handlers.add(task)
        self.n_connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the server closes
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        self.requests.append(head + body)
        self._changed.set()
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if not isinstance(answer, bytes):
            await answer(reader, writer)
            self.n_hung_up += reader.at_eof()
            self._changed.set()
            return False
        writer.write(answer)
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def listening(handle: Handler) -> AsyncGenerator[int]:
    """Hand out the port of a server, whose connections are closed with it."""
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = existing(asyncio.current_task())
        handlers.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers)


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass bytes on between a client and a port, both ways, until one of them goes."""
    there, back = await asyncio.open_connection("127.0.0.1", port)

    async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            to.write(data)
        to.close()

    try:
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
    finally:
        back.close()

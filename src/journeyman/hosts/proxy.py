"""The only way out of a box: a proxy of this process that lets allowed hosts through.

The box's keeper makes the socket that commands connect to inside of the box, and hands it over; nothing else crosses
the border. A command names a host, never an address: the name is looked up here, and what is connected to is the
address that was checked. One list holds for every way in which a host can be asked for.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Final
from urllib.parse import urlsplit

from journeyman.hosts.addresses import may_be_reached
from journeyman.hosts.names import allows, host_problem

_LONGEST_HEAD: Final = 64 * 1024
_HEAD_S: Final = 30.0
_CONNECT_S: Final = 30.0
_END_S: Final = 5.0
_CHUNK: Final = 64 * 1024
_MOST_REFUSALS: Final = 100
_PLAIN, _TLS = 80, 443
_MOST_CONNECTIONS: Final = 128
_REQUEST: Final = re.compile(rb"([A-Z]{1,32}) ([!-~]+) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[^\x00-\x08\x0a-\x1f\x7f]*")
_OURS: Final = (b"host", b"connection", b"keep-alive", b"upgrade", b"te", b"proxy-connection", b"proxy-authorization")


class RefusedHost(Exception):
    """A connection is not let through; the text says why, and the place is what was asked for."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place


@dataclass(frozen=True, slots=True)
class _HostQuery:
    """The beginning of a request to a proxy."""

    host: str
    port: int
    head: bytes = b""
    """The head that the server is sent; empty, where a tunnel was asked for."""
    n_bytes: int | None = None
    """The length of what follows the head; None: as long as it lasts."""


class HostProxy:
    """The proxy of one box. It serves in a thread, so that it goes on while the program does something else."""

    def __init__(self, listener: socket.socket, hosts: Sequence[str]) -> None:
        """Serve what connects to a socket, which is this object's to close from now on."""
        self._hosts: Final = tuple(hosts)
        self._listener: Final = listener
        self._refused: Final[list[str]] = []
        self._lock: Final = Lock()
        self._connections: Final = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._loop: Final = asyncio.new_event_loop()
        self._stop: Final = asyncio.Event()
        self._thread: Final = Thread(target=self._serve, name="journeyman-proxy", daemon=True)
        self._thread.start()

    def take_refused(self) -> list[str]:
        """Return the hosts and ports that were refused since this was asked last, each once."""
        with self._lock:
            found = [*dict.fromkeys(self._refused)]
            self._refused.clear()
        return found

    def close(self) -> None:
        """Close every connection."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_END_S)

    def _serve(self) -> None:
        async def serve() -> None:
            async with await asyncio.start_server(self._answer, sock=self._listener, limit=_LONGEST_HEAD):
                await self._stop.wait()

        with self._listener, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = read_request(head)
            await self._let_through(request, reader, writer)
        except RefusedHost as refused:
            with self._lock:
                self._refused[:] = [*self._refused[-_MOST_REFUSALS:], refused.place]
            await _reply(writer, 403, f"The sandbox refused to connect to {refused}")
        except ValueError as error:
            await _reply(writer, 400, f"The sandbox did not understand the request: {error}.")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            await _reply(writer, 502, f"The host cannot be reached: {error or type(error).__name__}.")
        finally:
            writer.close()

    async def _let_through(
        self, request: _HostQuery, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not request.head and request.port == _PLAIN:
            raise RefusedHost(
                f"{request.host}:{_PLAIN}", "a tunnel would hide who is asked there; ask for http:// itself."
            )
        if self._connections.locked():
            raise OSError(f"{_MOST_CONNECTIONS} connections are open, and more are not")
        async with self._connections:
            async with asyncio.timeout(_CONNECT_S):
                address = await self._checked_address(request.host, request.port)
                inward, outward = await asyncio.open_connection(address, request.port)
            with closing(outward):
                if request.head:
                    outward.write(request.head)
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    outward.write(await read_hello(request.host, reader) if request.port == _TLS else b"")
                upward = asyncio.create_task(_copy(reader, outward, request.n_bytes))
                try:
                    await _copy(inward, writer)
                finally:
                    upward.cancel()

    async def _checked_address(self, host: str, port: int) -> str:
        """Return an address of a host that may be connected to: one of the internet; a private one only where the host
        is allowed with its port, since any name may lead to it."""
        place = f"{host}:{port}"
        if not allows(self._hosts, host, port):
            raise RefusedHost(place, f"allowed are {', '.join(self._hosts)}.")
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
        is_named = place in self._hosts or (host == "localhost" and allows(self._hosts, host, port))
        good = [each for each in addresses if may_be_reached(each, is_named=is_named)]
        if not good:
            raise RefusedHost(
                place, f"it is {', '.join(dict.fromkeys(addresses))}, which is no address of the internet."
            )
        return good[0]


def read_request(head: bytes) -> _HostQuery:
    """Return what a request asks for.

    Raises:
        ValueError: it is none to a proxy.
        RefusedHost: it does not name a host.
    """
    first, *lines = head[:-4].split(b"\r\n")
    found = _REQUEST.fullmatch(first)
    if found is None or not all(map(_HEADER.fullmatch, lines)):
        raise ValueError("it is no request of HTTP to a proxy")
    method, target = found[1], found[2].decode("ascii")
    if method == b"CONNECT":
        host, colon, port = target.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal():
            raise ValueError("CONNECT names no port")
        return _HostQuery(_host_name(host), int(port))
    parts = urlsplit(target)
    if parts.scheme != "http" or "@" in parts.netloc or "\\" in target:
        raise ValueError("it names no address that begins with http://, without a user")
    host, port = _host_name(parts.hostname or ""), parts.port or _PLAIN
    named = [(name.lower(), text.strip()) for name, _, text in (each.partition(b":") for each in lines)]
    lengths = {text for name, text in named if name == b"content-length"} or {b"0"}
    if any(name == b"transfer-encoding" for name, _ in named) or len(lengths) > 1 or not min(lengths).isdigit():
        raise ValueError("what it sends needs one Content-Length: in chunks, nothing is passed on by plain HTTP")
    kept = [each for each, (name, _) in zip(lines, named, strict=True) if name not in _OURS]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    place = host if port == _PLAIN else f"{host}:{port}"
    ours = [f"Host: {place}".encode(), b"Connection: close"]
    line = method + b" " + path.encode("ascii") + b" HTTP/1.1"
    return _HostQuery(host, port, b"\r\n".join([line, *ours, *kept]) + b"\r\n\r\n", int(min(lengths)))


def _host_name(text: str) -> str:
    name = text.lower().removesuffix(".")
    problem = host_problem(name)
    if problem is not None or ":" in name or "*" in name:
        raise RefusedHost(text[:200], "a host has to be asked for by its name.")
    return name


async def read_hello(host: str, reader: asyncio.StreamReader) -> bytes:
    """Return how a tunnel to the port of TLS begins: at others the server may speak first. It must not ask the server
    for another name than the one that was allowed.

    Raises:
        RefusedHost: it does.
    """
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: names.append(name)
    incoming, raw = ssl.MemoryBIO(), b""
    tls = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    async with asyncio.timeout(_HEAD_S):
        while not names:
            chunk = await reader.read(_CHUNK) if len(raw) < _LONGEST_HEAD else b""
            raw += chunk
            incoming.write(chunk)
            is_tls = bool(chunk)
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:  # after the name was read: it has no certificate
                is_tls = bool(names)
            if not is_tls:
                raise RefusedHost(f"{host}:{_TLS}", "only TLS is spoken at this port.")
    if names[0] is not None and names[0].lower().removesuffix(".") != host:
        raise RefusedHost(f"{names[0][:200]}:{_TLS}", f"the connection was one to {host}.")
    return raw


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, n_bytes: int | None = None) -> None:
    """Copy what comes until it ends; where one side has gone, the other is told that nothing more comes. Of a request
    with a length not more is copied: another one, for another host, could follow."""
    with suppress(OSError):
        while n_bytes != 0 and (chunk := await source.read(_CHUNK if n_bytes is None else min(n_bytes, _CHUNK))):
            n_bytes = None if n_bytes is None else n_bytes - len(chunk)
            target.write(chunk)
            await target.drain()
    if n_bytes is None:
        with suppress(OSError, RuntimeError):
            target.write_eof()


async def _reply(writer: asyncio.StreamWriter, code: int, words: str) -> None:
    body = f"{words}\n".encode("utf-8", "replace")
    head = [f"HTTP/1.1 {code} Refused", "Content-Type: text/plain", f"Content-Length: {len(body)}", "Connection: close"]
    with suppress(OSError):
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await writer.drain()

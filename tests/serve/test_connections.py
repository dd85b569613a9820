"""Connections to a port: kept alive as long as they are used, and answered without delay."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from journeyman.cancellation import Abort
from journeyman.serve.http_guard import HALF_OPEN_S, SLOW_S, listen, serve_on
from tests.play import virtual_clock

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(
    body: bytes = b"ok", *, delays: list[float] | None = None, on: socket.socket | None = None
) -> AsyncGenerator[Connection]:
    """Serve this body, each response after its delay, and connect to it."""

    async def answer(exchange: Scope, receive: Receive, send: Send) -> None:
        if exchange["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await asyncio.sleep(delays.pop(0) if delays else 0)
        await Response(body)(exchange, receive, send)

    abort = Abort()
    with on or listen("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(serve_on(listening, answer, abort=abort))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            abort.abort()
            await serving


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


@virtual_clock
async def test_a_connection_that_is_used_is_never_cut_however_old_it_is() -> None:
    async with connected() as (reader, writer):
        for _ in range(40):
            writer.write(GET)
            assert await read_response(reader) == b"ok"
            await asyncio.sleep(HALF_OPEN_S / 7)


@virtual_clock
async def test_a_connection_may_be_idle_from_its_last_response_on_not_from_its_last_request() -> None:
    async with connected(delays=[0, 3 * HALF_OPEN_S]) as (reader, writer):
        for _ in range(3):
            writer.write(GET)
            assert await read_response(reader) == b"ok"
            await asyncio.sleep(HALF_OPEN_S * 0.9)
        began_s = asyncio.get_running_loop().time()
        assert await reader.read() == b""  # idle for too long
        assert asyncio.get_running_loop().time() - began_s <= HALF_OPEN_S


@virtual_clock
async def test_a_head_that_begins_late_has_its_own_time_and_not_more_with_each_byte() -> None:
    async with connected() as (reader, writer):
        writer.write(GET)
        assert await read_response(reader) == b"ok"
        await asyncio.sleep(HALF_OPEN_S * 0.9)
        writer.write(GET[:10])
        await asyncio.sleep(HALF_OPEN_S * 0.9)
        writer.write(GET[10:])
        assert await read_response(reader) == b"ok"
        reading, n_sent = asyncio.create_task(reader.read()), 0
        while not reading.done() and n_sent < 20:
            writer.write(GET[n_sent : n_sent + 1])
            n_sent += 1
            await asyncio.wait([reading], timeout=HALF_OPEN_S / 10)
        assert n_sent <= 12


@virtual_clock
async def test_a_request_behind_another_is_answered_and_half_of_one_is_not_waited_for() -> None:
    async with connected() as (reader, writer):
        writer.write(GET * 5 + b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert [await read_response(reader) for _ in range(5)] == [b"ok"] * 5
        assert await read_response(reader) == b"ok"  # this one does not read the body
        assert await reader.read() == b""


@virtual_clock
async def test_who_still_reads_the_last_response_is_not_idle() -> None:
    body = bytes(40_000_000)  # more than the buffers of the kernel
    async with connected(body) as (reader, writer):
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200" in head
        await asyncio.sleep(SLOW_S / 2)
        await reader.readexactly(len(body))
        writer.write(GET)
        assert b"200" in await reader.readuntil(b"\r\n\r\n")


async def test_no_response_waits_for_an_acknowledgement_whoever_made_the_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        assert not made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        async with connected(on=made) as (reader, writer):
            took_s: list[float] = []
            for _ in range(60):  # the kernel acknowledges the first ones at once
                began_s = time.perf_counter()
                writer.write(GET)
                assert await read_response(reader) == b"ok"
                took_s.append(time.perf_counter() - began_s)
    assert min(took_s[40:]) < 0.02  # it waits for 40 ms


def test_a_socket_that_listens_passes_on_that_nothing_waits() -> None:
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

"""An MCP server on stdin and stdout: one client, which started this process.

The two streams belong to the protocol alone. Other code that reads stdin finds nothing, and everything else that is
printed goes to stderr. Reading and writing wait in threads that can be left behind, so a client that does neither
cannot keep the server from ending.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from journeyman.cancellation import Abort, Scope

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Streams:
    """The file descriptors of a client."""

    reading: int
    """What is read from."""
    writing: int
    """What is written to."""


@contextmanager
def standard_streams() -> Generator[Streams]:
    """Keep stdin and stdout for the protocol while the block runs."""
    _flush()
    streams = Streams(os.dup(_STDIN), os.dup(_STDOUT))
    _point(_STDIN, os.open(os.devnull, os.O_RDONLY))
    try:
        _point(_STDOUT, os.dup(_STDERR))
    except OSError:  # stderr is closed
        _point(_STDOUT, os.open(os.devnull, os.O_WRONLY))
    _print_at_once(True)  # as stderr does: what is printed there comes in order, and nothing is lost with the process
    try:
        yield streams
    finally:
        _flush()
        _print_at_once(False)
        os.dup2(streams.reading, _STDIN)  # stays open: a thread may still wait for it
        _point(_STDOUT, streams.writing)


def _point(descriptor: int, target: int) -> None:
    os.dup2(target, descriptor)
    os.close(target)


def _print_at_once(is_wanted: bool) -> None:
    reconfigure: Callable[..., object] | None = getattr(sys.stdout, "reconfigure", None)  # a replaced one may have none
    if reconfigure is not None:
        reconfigure(line_buffering=is_wanted)


def _flush() -> None:
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()


async def serve_mcp_stdio(server: Server[Any], *, abort: Abort | None = None, streams: Streams | None = None) -> None:
    """Serve the client at the other end of stdin and stdout, until it closes them or `abort` fires.

    Give `streams` if the program has taken them before, with `standard_streams`.

    Raises:
        OSError: what the client is told cannot be written, as on a full disk. A client that has gone is no error.
    """
    if streams is None:
        with standard_streams() as taken:
            await serve_mcp_stdio(server, abort=abort, streams=taken)
        return
    await Scope(abort).carry(_serve(server, streams))


async def _serve(server: Server[Any], streams: Streams) -> None:
    received, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound, sent = anyio.create_memory_object_stream[SessionMessage](0)
    faults: list[OSError] = []

    async def send() -> None:
        try:
            await _send(streams.writing, sent)
        except OSError as error:
            tasks.cancel_scope.cancel()
            if not isinstance(error, BrokenPipeError):  # the client has gone
                faults.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, streams.reading, received)
        tasks.start_soon(send)
        await server.run(inbound, outbound, server.create_initialization_options())
        tasks.cancel_scope.cancel()
    if faults:
        raise faults[0]


async def _receive(descriptor: int, received: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with received:
        async for line in _read_lines(descriptor):
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                await received.send(error)
            else:
                await received.send(SessionMessage(message))


async def _read_lines(descriptor: int) -> AsyncGenerator[bytes]:
    rest = b""
    with _thread() as wait_for:
        while data := await wait_for(lambda: os.read(descriptor, _READ_BYTES)):
            if b"\n" not in data:
                rest += data
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line


async def _send(descriptor: int, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with _thread() as wait_for:
        async with sent:
            async for message in sent:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                await wait_for(partial(_write_all, descriptor, line))


def _write_all(descriptor: int, data: bytes) -> bytes:
    """Write all of it. Return what is left: nothing."""
    while data:
        data = data[os.write(descriptor, data) :]
    return data


@contextmanager
def _thread() -> Generator[Callable[[Callable[[], bytes]], Awaitable[bytes]]]:
    """Give a function that does jobs in a thread of their own, in turn. The thread may be left behind in a job."""
    jobs: SimpleQueue[tuple[Callable[[], bytes], asyncio.Future[bytes]] | None] = SimpleQueue()
    loop = asyncio.get_running_loop()

    def work() -> None:
        while (job := jobs.get()) is not None:
            do, done = job
            try:
                result: bytes | OSError = do()
            except OSError as error:
                result = error
            with suppress(RuntimeError):  # nobody waits any more: the event loop is closed
                loop.call_soon_threadsafe(_settle, done, result)

    def wait_for(do: Callable[[], bytes]) -> asyncio.Future[bytes]:
        done: asyncio.Future[bytes] = loop.create_future()
        jobs.put((do, done))
        return done

    Thread(target=work, name="journeyman-stdio", daemon=True).start()
    try:
        yield wait_for
    finally:
        jobs.put(None)


def _settle(done: asyncio.Future[bytes], result: bytes | OSError) -> None:
    if done.done():
        return
    if isinstance(result, bytes):
        done.set_result(result)
    else:
        done.set_exception(result)

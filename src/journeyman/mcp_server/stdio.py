"""An MCP server on stdin and stdout: one client, which started this process.

The two streams belong to the protocol alone. Other code that reads stdin finds nothing, and everything else that is
printed goes to stderr. Reading and writing wait in threads that can be left behind, so a client that does neither
cannot keep the server from ending.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from journeyman.cancellation import Abort, Scope
from journeyman.machine.descriptors import (
    STDIN,
    STDOUT,
    LeavableThread,
    iterate_in_thread,
    lines_of,
    take_stdin,
    take_stdout,
    write_all,
)

_THREAD: Final = "journeyman-stdio"


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
    streams = Streams(take_stdin(), take_stdout())
    _print_at_once(True)  # as stderr does: what is printed there comes in order, and nothing is lost with the process
    try:
        yield streams
    finally:
        _flush()
        _print_at_once(False)
        os.dup2(streams.reading, STDIN)  # stays open: a thread may still wait for it
        os.dup2(streams.writing, STDOUT)
        os.close(streams.writing)


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
        async for line in iterate_in_thread(lines_of(descriptor), _THREAD):
            if not line.endswith(b"\n") or not line.strip():  # a message that was cut off is none
                continue
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                await received.send(error)
            else:
                await received.send(SessionMessage(message))


async def _send(descriptor: int, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with closing(LeavableThread(_THREAD)) as thread:
        async with sent:
            async for message in sent:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                await thread.do(partial(write_all, descriptor, line))

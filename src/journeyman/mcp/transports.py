"""The two ways to an MCP server: a program, whose process and lines are ours, and an address, over the SDK's transport.

A program's transport stands in the place of the SDK's own, for what that one leaves open: the server does not get this
process's secrets, a line has a greatest length, what is no message is counted and shown in errors, its last words are
kept, and no process of it is left. Over HTTP there are limits, and a memory for errors; redirects are followed within
the server's origin only, which is the SDK's doing: headers may hold keys. The SDK and its HTTP client are imported only
when a server is called.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urlsplit

from journeyman.cancellation import within
from journeyman.errors import DefinitionError, JourneymanError, count, name_and_words, quoted
from journeyman.mcp.boxed import ServerBox, environment_of
from journeyman.mcp.contents import leave_out_bad_tools, message_fault
from journeyman.mcp.oauth import SignIn
from journeyman.mcp.servers import Http, Stdio
from journeyman.processes.piped import PipedProcess, start_piped
from journeyman.processes.process import SandboxUnavailable
from journeyman.texts import plain, shorten_line, signal_name

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

_log: Final = logging.getLogger("journeyman")
MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""The longest message that is taken from a server."""
MAX_UNASKED: Final = 20_000
"""How many messages in a row a server may send that answer nothing."""
MAX_GARBAGE: Final = 1_000
"""How many lines a server may write that are no messages."""
_LOG: Final = "notifications/message"
"""A line of a server's log: nobody here reads it, and there may be many."""
_KEPT_BYTES: Final = 4_096
_SHOWN: Final = 300
_CHUNK: Final = 64 * 1024
_POLL_S: Final = 0.01
_DRAIN_S: Final = 0.5
_CONNECT_S: Final = 30.0
_PHRASES: Final = {each.value: f" {each.phrase}" for each in HTTPStatus}
_SESSION: Final = "mcp-session-id"
_ENDS_OF_EVENTS: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_LONGEST_END: Final = 3
"""How many bytes of an end may already be there when the rest of it comes."""


class StdioTransport:
    """A transport to a server that is a program: it starts it when it is entered, and leaves no process of it
    behind."""

    def __init__(self, server: Stdio) -> None:
        self._server: Final = server
        self.box: Final = ServerBox(server, environment_of(server))
        """The box that it runs in."""
        self.finished: Final = asyncio.Event()
        """This is set when no more messages come."""
        self._n_garbage = 0
        """How many lines it wrote that are no messages."""
        self._first_garbage = ""
        self._last_words = bytearray()
        self._fault = ""
        """Why the server was ended from here; empty while it was not."""
        self._n_unasked = 0
        self._is_started = False
        self._has_closed = False
        self._exit_code: int | None = None
        """The exit code, if it ended by itself."""

    @property
    def trouble(self) -> str:
        """The reason why the transport does not work, as far as it is known: complete once the transport was left."""
        parts = [self._fault or self._ending]
        if self._n_garbage:
            lines = count(self._n_garbage, "line")
            first = f"the first: {self._first_garbage}"
            parts.append(f"it wrote {lines} to its standard output that are no MCP messages, {first}")
        if words := _printable(bytes(self._last_words), from_end=True):
            parts.append(f"its last words on standard error: {words}")
        return "; ".join(parts)

    @property
    def _ending(self) -> str:
        code = self._exit_code
        if code is None:
            return "it closed its standard output" if self._has_closed else "it did not answer"
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was ended by {signal_name(-code)}"

    def explain_error(self, message: str) -> str:
        """Return the message of a call's error as it is: nothing else is known of it here."""
        return message

    def _explain_start(self, error: OSError) -> str:
        return f"{self._server.command!r} cannot be started: {error.strerror or name_and_words(error)}"

    def find_needs(self, text: str | None = None) -> list[str]:
        """Return the needs that its box has refused, by a text of the server's, or by its last words."""
        return self.box.find_needs(self._last_words.decode("utf-8", "replace") if text is None else text)

    def note(self, error: BaseException) -> None:
        """Remember what went wrong on the way."""
        if not self._is_started and isinstance(error, OSError):
            self._fault = self._explain_start(error)
        elif not self._is_started and isinstance(error, DefinitionError | SandboxUnavailable):
            words = " ".join([each.message for each in getattr(error, "problems", ())]) or str(error)
            told = words.rstrip(".")
            self._fault = f"it cannot be put into a box: {told}; with sandbox=None it does what this process may do"
        elif not self.finished.is_set():
            self._fault = self._fault or f"it could not be asked: {shorten_line(name_and_words(error), _SHOWN)}"

    async def __aenter__(self) -> TransportStreams:
        self._process = await self._start_program()
        self._is_started = True
        self._listening = asyncio.create_task(self._listen())
        streams = _Messages(self)
        return streams, streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        draining = asyncio.create_task(_drain(process.stdout))  # who waits for a reader cannot end
        try:
            process.stdin.close()
            if not await self._has_exited(0 if self._fault else self._server.grace_s) or process.are_left():
                process.send(signal.SIGTERM)
                await self._has_exited(self._server.grace_s)
        finally:
            while process.exit_code is None or process.are_left():  # for certain, until the pipes know it
                process.send(signal.SIGKILL)
                await asyncio.sleep(_POLL_S)
            await within(_DRAIN_S, asyncio.wait({self._listening}))
            draining.cancel()
            self._listening.cancel()
            await asyncio.wait({draining, self._listening})
            await process.close()
            await self._close_box()

    async def _start_program(self) -> PipedProcess:
        """Start the program. A cancellation at this very moment ends what has just been started."""
        starting = asyncio.ensure_future(start_piped(self.box.spawn, limit=MAX_MESSAGE_BYTES))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError, ValueError, JourneymanError):
                await (await starting).close()
            await self._close_box()
            raise
        except BaseException:
            await self._close_box()
            raise

    async def _close_box(self) -> None:
        held = await asyncio.to_thread(self.box.close)
        for file in held:
            _log.warning("An MCP server has made a file: %s", file.describe())

    async def send(self, line: bytes) -> None:
        """Write one message. One that cannot be written any more is lost, as the server is."""
        stdin = self._process.stdin
        try:
            stdin.write(line)
            await stdin.drain()
        except (OSError, RuntimeError):  # RuntimeError: the pipe was closed in the meantime
            self.finished.set()

    async def next_message(self) -> SessionMessage | None:
        """Return the next message; None when there will be no more."""
        stdout = self._process.stdout
        while not self._fault:
            await asyncio.sleep(0)  # whoever floods us does not keep the others waiting
            try:
                line = await stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, OSError) as ended:
                line = ended.partial if isinstance(ended, asyncio.IncompleteReadError) else b""
                if not line:
                    break
            except asyncio.LimitOverrunError:
                self._fault = f"it wrote a line of more than {MAX_MESSAGE_BYTES // 2**20} MB"
                break
            if fault := await message_fault(line):
                self._fault = fault
                break
            if (message := self._read(line)) is not None:
                return message
        await self._note_the_end()
        return None

    def _read(self, line: bytes) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCResponse, jsonrpc_message_adapter

        if not line.strip():
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._n_garbage += 1
            self._first_garbage = self._first_garbage or _printable(line)
            if self._n_garbage > MAX_GARBAGE:
                self._fault = "it does not speak MCP"
            return None
        self._n_unasked = 0 if isinstance(message, JSONRPCResponse | JSONRPCError) else self._n_unasked + 1
        if self._n_unasked > MAX_UNASKED:
            self._fault = f"it sent {MAX_UNASKED:,} messages in a row that nobody asked for"
            return None
        if isinstance(message, JSONRPCNotification) and message.method == _LOG:
            return None
        if isinstance(message, JSONRPCResponse):
            leave_out_bad_tools(message.result)
        return SessionMessage(message)

    async def _note_the_end(self) -> None:
        if not self._fault:
            self._has_closed = True
            await self._has_exited(_DRAIN_S)
            self._exit_code = self._process.exit_code
            if self._process.failure is not None:
                self._fault = self._explain_start(self._process.failure)
        self.finished.set()

    async def _listen(self) -> None:
        """Keep what the server wrote to its standard error last."""
        with suppress(OSError):
            while data := await self._process.stderr.read(_CHUNK):
                self._last_words += data
                del self._last_words[:-_KEPT_BYTES]

    async def _has_exited(self, seconds: float) -> bool:
        # Not by `wait`, which waits for the pipes as well, and others may hold them.
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while self._process.exit_code is None and clock() < until:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return self._process.exit_code is not None


async def _drain(stdout: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await stdout.read(_CHUNK):
            pass


def _printable(data: bytes, *, from_end: bool = False) -> str:
    """Return the beginning or the end of what a server wrote, as one quoted line."""
    text = " ".join(plain(data.decode("utf-8", "replace")).split())
    if not text:
        return ""
    if len(text) <= _SHOWN:
        return quoted(text)
    return f"…{quoted(text[-_SHOWN:])}" if from_end else f"{quoted(text[:_SHOWN])}…"


class _Messages:
    """The messages of the server, and those for it, as the SDK wants them. What is open is closed by the transport."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = await self._transport.next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._transport.send(f"{text}\n".encode())

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Do nothing."""


class HttpTransport:
    """A transport to a server at an address."""

    def __init__(self, server: Http, sign_in: SignIn, *, timeout_s: float) -> None:
        """`timeout_s`: how long the server may be silent in the middle of an answer, in seconds."""
        self._server: Final = server
        self._sign_in: Final = sign_in
        self._timeout_s: Final = timeout_s
        self.finished: Final = asyncio.Event()
        """This is set when no more messages come."""
        self._status = 0
        """The HTTP status that refused the last message; 0 if it was not refused."""
        self._fault = ""
        """Why the server is no longer used; empty while it is."""
        self._noted = ""
        self._is_forgotten = False
        """True when the server does not know the session any more."""
        self._stack: Final = AsyncExitStack()

    @property
    def trouble(self) -> str:
        """The reason why the transport does not work, as far as it is known: complete once the transport was left."""
        if self._fault:
            return self._fault
        if self._is_forgotten:
            return f"{self._server.shown} has ended the session"
        return self._refusal or self._noted or f"{self._server.shown} did not answer as an MCP server does"

    @property
    def _refusal(self) -> str:
        return (
            f"{self._server.shown} answered with HTTP {self._status}{_PHRASES.get(self._status, '')}"
            if self._status
            else ""
        )

    def explain_error(self, message: str) -> str:
        """Return the message of a call's error, with the answer of HTTP that explains it, if there was one."""
        return f"{message} ({self._refusal})" if self._status else message

    def find_needs(self, text: str | None = None) -> list[str]:
        """Return none: a server elsewhere is in no box of ours."""
        return []

    def note(self, error: BaseException) -> None:
        """Remember what went wrong on the way."""
        self._noted = self._noted or f"{self._server.shown} could not be asked: {name_and_words(error)}"

    async def __aenter__(self) -> TransportStreams:
        return await self._stack.enter_async_context(self._open_streams())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _open_streams(self) -> AsyncGenerator[TransportStreams]:
        from httpx2 import AsyncClient, Timeout
        from mcp.client.streamable_http import streamable_http_client

        client = AsyncClient(
            headers={**self._server.headers, "Accept-Encoding": "identity"},  # compressed, a small answer may be huge
            timeout=Timeout(_CONNECT_S, read=self._timeout_s),
            auth=self._sign_in.make_auth(self._give_up),
            event_hooks={"response": [self._look_at]},
        )
        async with (
            client,
            streamable_http_client(self._server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
                messages,
                answers,
            ),
        ):
            yield _Listed(messages), answers

    async def _look_at(self, response: Response) -> None:
        """See each answer before its body is read."""
        if response.request.method == "POST" and response.request.url.path == urlsplit(self._server.url).path:
            self._status = response.status_code if response.status_code >= HTTPStatus.BAD_REQUEST else 0
            if response.status_code == HTTPStatus.NOT_FOUND and _SESSION in response.request.headers:
                self._is_forgotten = True
                self.finished.set()
        if response.headers.get("content-encoding", "identity") != "identity":
            await self._refuse("it sent a compressed answer, which it was asked not to")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _limit_stream(
            cast("AsyncByteStream", response.stream), self, _ENDS_OF_EVENTS if is_stream else None
        )

    def _give_up(self, why: str) -> None:
        self._fault = why
        self.finished.set()

    async def _refuse(self, why: str) -> None:
        self._give_up(why)
        raise _Refused(why)

    async def limit(self, chunks: AsyncIterator[bytes], ends: re.Pattern[bytes] | None) -> AsyncGenerator[bytes]:
        """Give the pieces of an answer as long as none of its messages, which `ends` divide, is too large or too fine.

        A message that is too fine is refused before its last piece is given, so nobody begins to read it.
        """
        message = bytearray()
        async for chunk in chunks:
            n_known = len(message)
            message += chunk
            if ends is not None and (found := [*ends.finditer(message, max(0, n_known - _LONGEST_END))]):
                await self._check(message[: found[-1].end()])
                del message[: found[-1].end()]
            if len(message) > MAX_MESSAGE_BYTES:
                await self._refuse(f"it sent an answer of more than {MAX_MESSAGE_BYTES // 2**20} MB")
            yield chunk
        await self._check(message)

    async def _check(self, message: bytearray) -> None:
        if fault := await message_fault(message):
            await self._refuse(fault)


class _Listed:
    """The messages of a server, without the tools that nobody could take. What is open is closed by the SDK."""

    def __init__(self, messages: ReadStream[SessionMessage | Exception]) -> None:
        self._messages = messages

    async def receive(self) -> SessionMessage | Exception:
        return _leave_out_bad_tools(await self._messages.receive())

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _leave_out_bad_tools(await self._messages.__anext__())

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def __aenter__(self) -> Self:
        await self._messages.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._messages.__aexit__(exc_type, exc_val, exc_tb)


def _leave_out_bad_tools(message: SessionMessage | Exception) -> SessionMessage | Exception:
    from mcp.types import JSONRPCResponse

    if not isinstance(message, Exception) and isinstance(message.message, JSONRPCResponse):
        leave_out_bad_tools(message.message.result)
    return message


class _Refused(Exception):
    """An answer that is not read."""


def _limit_stream(stream: AsyncByteStream, transport: HttpTransport, ends: re.Pattern[bytes] | None) -> AsyncByteStream:
    from httpx2 import AsyncByteStream

    class Limited(AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return transport.limit(aiter(stream), ends)

        async def aclose(self) -> None:
            await stream.aclose()

    return Limited()


if TYPE_CHECKING:
    _transports: tuple[Transport, Transport] = (
        StdioTransport(Stdio("")),
        HttpTransport(Http(""), SignIn(Http("")), timeout_s=1),
    )

"""An MCP server at an address: the SDK's transport over streamable HTTP, with limits, and with a memory for errors.

Redirects are followed within the server's origin only, which is the SDK's doing: headers may hold keys. The SDK
and its HTTP client are imported only when a server is called.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from journeyman.errors import name_and_words
from journeyman.mcp.contents import leave_out_bad_tools, message_fault
from journeyman.mcp.servers import Http

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
"""The longest answer that is taken from a server."""
_CONNECT_S: Final = 30.0
_SESSION: Final = "mcp-session-id"
_ENDS_OF_EVENTS: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_LONGEST_END: Final = 3
"""How many bytes of an end may already be there when the rest of it comes."""


class HttpTransport:
    """A transport to a server at an address."""

    def __init__(self, server: Http, *, timeout_s: float) -> None:
        """`timeout_s`: how long the server may be silent in the middle of an answer, in seconds."""
        self._server: Final = server
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
        return f"{self._server.shown} answered with HTTP {self._status}{_phrase(self._status)}" if self._status else ""

    def explain_error(self, message: str) -> str:
        """Return the message of a call's error, with the answer of HTTP that explains it, if there was one."""
        return f"{message} ({self._refusal})" if self._status else message

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
            event_hooks={"response": [self._look_at]},
        )
        async with (
            client,
            streamable_http_client(self._server.url, http_client=client, max_sse_event_size=MAX_ANSWER_BYTES) as (
                messages,
                answers,
            ),
        ):
            yield _Listed(messages), answers

    async def _look_at(self, response: Response) -> None:
        """See each answer before its body is read."""
        if response.request.method == "POST":
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

    async def _refuse(self, why: str) -> None:
        self._fault = why
        self.finished.set()
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
            if len(message) > MAX_ANSWER_BYTES:
                await self._refuse(f"it sent an answer of more than {MAX_ANSWER_BYTES // 2**20} MB")
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


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


if TYPE_CHECKING:
    _transport: Transport = HttpTransport(Http(""), timeout_s=1)

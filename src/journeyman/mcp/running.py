"""An MCP server while it runs: in the hands of one task, which starts it, holds it and ends it.

The SDK wants it so: what a task has opened, that task must close. Calls come from any task. Imports `mcp_http`,
`mcp_stdio` and `mcp_targets`; the SDK only when a server is started.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from contextvars import Context
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from journeyman.mcp.http import HttpTransport
from journeyman.mcp.servers import Server, Stdio
from journeyman.mcp.stdio import StdioTransport

if TYPE_CHECKING:
    from mcp.client import Client, IncomingMessage

_CLOSE_S: Final = 10.0
_LISTEN_S: Final = 5.0


async def sdk_loaded() -> None:
    """Import the SDK, once, without keeping others waiting."""
    if "mcp.client" not in sys.modules:
        await asyncio.to_thread(_load)


def _load() -> None:
    """Import the SDK, which takes a second; and keep its log, which repeats what servers send, from the screen."""

    log = logging.getLogger("mcp")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


class Running:
    """A server that is started as this is made, in the hands of one task."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        """`timeout_s`: how long the server may be silent in the middle of an answer, in seconds."""
        self.transport: Final = (
            StdioTransport(server) if isinstance(server, Stdio) else HttpTransport(server, timeout_s=timeout_s)
        )
        self.started: Final[asyncio.Future[Client]] = asyncio.get_running_loop().create_future()
        self.is_stale = True
        """True when its tools may not be those that were listed."""
        # With a context of its own: it outlives the run that happens to start it.
        self.task: Final = asyncio.create_task(self._hold(), context=Context())

    @property
    def is_over(self) -> bool:
        return self.transport.over.is_set() or self.task.done()

    @property
    def client(self) -> Client:
        return self.started.result()

    async def _hold(self) -> None:
        """Start the server, hold it until it is over, and end it."""
        from mcp.client import Client  # noqa: PLC0415 - an optional package, and 1.2 s to import
        from mcp.types import Implementation  # noqa: PLC0415

        about = Implementation(name="journeyman", version=version("journeyman"))
        client = Client(self.transport, cache=None, client_info=about, message_handler=self._hear)
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(client)
                await self._subscribe(client, stack)
                self.started.set_result(client)
                await self.transport.over.wait()
        except Exception as error:  # noqa: BLE001 - of the SDK, its HTTP client and the system: told where one waits
            for each in _leaves(error):
                self.transport.note(each)
        finally:
            self.transport.over.set()

    async def _subscribe(self, client: Client, stack: AsyncExitStack) -> None:
        """Ask to be told of changes, where that has to be asked for."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost  # noqa: PLC0415
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415

        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with asyncio.timeout(_LISTEN_S):
                await stack.enter_async_context(client.listen(tools_list_changed=True))
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            return  # an older server tells without being asked, and one that never tells changes nothing here

    async def _hear(self, message: IncomingMessage) -> None:
        from mcp.types import ToolListChangedNotification  # noqa: PLC0415 - an optional package

        if isinstance(message, ToolListChangedNotification):
            self.is_stale = True

    async def end(self, *, at_once: bool = False) -> None:
        """End the server, and let nobody interrupt that."""
        self.task.cancel() if at_once else self.transport.over.set()
        interrupted: asyncio.CancelledError | None = None
        while not self.task.done():
            try:
                if not (await asyncio.wait({self.task}, timeout=_CLOSE_S))[0]:
                    self.task.cancel()
            except asyncio.CancelledError as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in cast("ExceptionGroup[Exception]", error).exceptions:
            yield from _leaves(each)
    else:
        yield error

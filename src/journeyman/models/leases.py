"""The lease on what a model holds open: one thing for each event loop, which the first of its users there opens, and
the last closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_Open: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]


class LoopLeases(Generic[T]):
    """The leases of all event loops that use a model."""

    def __init__(self) -> None:
        self._leases: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lease[T]] = WeakKeyDictionary()

    @asynccontextmanager
    async def hold(self, open: _Open[T]) -> AsyncGenerator[T]:
        """Be one of the users of what `open` opens, as long as the block."""
        held = await self.take(open)
        try:
            yield held
        finally:
            await self.give_back()

    async def take(self, open: _Open[T]) -> T:
        """Begin to be one of the users: `give_back` ends it, on the same event loop."""
        loop = asyncio.get_running_loop()
        if (lease := self._leases.get(loop)) is None:
            lease = self._leases[loop] = _Lease()
        lease.n_users += 1
        try:
            async with lease.opening:
                if not lease.held:
                    lease.held.append(await lease.stack.enter_async_context(open()))
        except BaseException:
            await self.give_back()
            raise
        return lease.held[0]

    async def give_back(self) -> None:
        """End to be one of the users."""
        loop = asyncio.get_running_loop()
        lease = self._leases[loop]
        lease.n_users -= 1
        if not lease.n_users:
            del self._leases[loop]
            await lease.stack.aclose()


class _Lease(Generic[T]):
    """One thing that is open, or is being opened."""

    def __init__(self) -> None:
        self.n_users = 0
        self.held: list[T] = []
        """The thing itself, once it is open."""
        self.opening = asyncio.Lock()
        self.stack = AsyncExitStack()

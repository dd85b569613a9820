"""The common part of the dispatchers on the database of the runs: its connections, patience with it, and names for
queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from journeyman.errors import StoreError

if TYPE_CHECKING:
    from journeyman.durable.postgres.connections import Connection

T = TypeVar("T")

_log = logging.getLogger("journeyman")
# A database that restarts is back in seconds, and all its workers ask.
AGAIN_S: Final = 0.5
"""So long is waited before the database is asked again."""


class Lender(Protocol):
    """The connections to the database of the runs."""

    place: str
    """The database, for messages."""

    async def patiently(self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Do `work` with a connection; again, as long as the database is away for a few seconds."""
        ...

    async def listening(self) -> Connection:
        """Return a connection that hears, which the caller closes."""
        ...


class Patience:
    """Asks the database on behalf of a worker, which a call that fails would end or cripple."""

    def __init__(self, lender: Lender, *, stop: asyncio.Event, lease_s: float) -> None:
        self.lender: Final = lender
        self._stop: Final = stop
        self._lease_s: Final = lease_s
        self.failed_s = float("-inf")
        """When the database was last away, by the clock of the event loop."""

    async def done(self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Do `work` with a connection; again, until it is done. A call that takes longer than a lease is made again.
        `work` is told whether it may have been done before, and only its answer was lost.

        Raises:
            StoreError: it cannot be done; or the database is away while this process is to stop.
        """
        is_again = False

        def tried(connection: Connection, is_tried: bool) -> Awaitable[T]:
            if is_tried or is_again:
                self.failed_s = asyncio.get_running_loop().time()
            return work(connection, is_tried or is_again)

        while True:
            try:
                # A connection may be half open: without a limit, a worker would wait on it forever.
                async with asyncio.timeout(self._lease_s):
                    return await self.lender.patiently(tried)
            except TimeoutError as error:
                late = f"{self.lender.place} has not answered within {self._lease_s:g} s."
                fault, cause = StoreError(late, hint="Look whether it runs.", may_pass=True), error
            except StoreError as error:
                fault, cause = error, error
            if self._stop.is_set() or not fault.may_pass:
                raise fault from cause
            if not is_again:
                _log.warning("The tickets cannot be read or written, which is tried again: %s", fault)
            is_again = True
            await asyncio.sleep(AGAIN_S)


def check_package(name: str, *, extra: str, least: str) -> None:
    """Raise a `StoreError` if a package is not installed, or if its major version is not that of `least`."""
    if find_spec(name) is None:
        raise StoreError(
            f"Durable runs in Postgres need the package {name}, which is not installed.",
            hint=f"Install it: pip install 'journeyman[{extra}]'",
        )
    installed, major = version(name), int(least.partition(".")[0])
    # A new major version may have other tables and other functions, which are used here by name.
    if installed.partition(".")[0] != str(major):
        raise StoreError(
            f"{name} {installed} is installed, and this version of journeyman knows version {major}.",
            hint=f"Install that one: pip install '{name}>={least},<{major + 1}'",
        )


def place_of_queue(agent: str, queue: str) -> str:
    """Return the queue of a dispatcher for an agent and a queue: a channel of Postgres has 63 bytes at most."""
    return f"{places_of(agent)}{blake2b(queue.encode(), digest_size=8).hexdigest()}"


def places_of(agent: str) -> str:
    """Return with what the names of all queues of an agent begin."""
    return f"jm{blake2b(agent.encode(), digest_size=8).hexdigest()}."

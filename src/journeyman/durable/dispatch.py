"""The port behind which an existing queue tells workers what to drive, and when.

A ticket says: drive this run, for this wake-up. It may be lost, repeated, late or out of order: nothing that is true
rests on it. What may be done is decided by the rows alone, and the sweep writes tickets again that are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from journeyman.durable.records import Row

LEASE_S: Final = 10.0
"""Whoever brings tickets takes a worker for dead that was silent for so many seconds."""
SWEEP_S: Final = 30.0
"""So often, in seconds, one of the workers looks for runs that no ticket carries."""
LATE_S: Final = 60.0
"""A run that should have begun so many seconds ago is looked at by the sweep."""


class Ticket(NamedTuple):
    """Brings a run to a worker."""

    run: str
    gen: int
    """That of the run when the ticket was written. It grows with every wake-up: a ticket with an older one is void."""


Driving: TypeAlias = Callable[[Ticket], Awaitable[None]]
"""Drives what a ticket brings. It returns when the ticket has nothing more to do, and raises only when cancelled."""


class HandOver(Protocol):
    """Gives a run to whoever comes next."""

    async def __call__(self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: Any = None) -> bool:  # noqa: ANN401 - of the driver
        """Fence whoever drives the run, and write a new ticket, for `after_s` seconds from now at the earliest.

        Return False if the run has had another wake-up since the ticket was written, or has nothing to do. With a
        `connection` it is a part of the transaction there.
        """
        ...


class Dispatcher(Protocol):
    """An existing queue: it brings each ticket once or more often, to one of the workers that serve its place.

    Raises, from every method:
        StoreError: it cannot be reached.
    """

    lease_s: float
    """A worker that was silent for so many seconds is taken for dead."""
    joins: bool
    """True: `enqueue` is a part of the transaction of its connection. False: it is called once that has ended."""
    drive_s: float | None
    """A run that is driven for longer, in seconds, is given back between two steps, and comes by another ticket; None:
    never. For a queue that brings again what is not done in time, though it is being done."""

    async def setup(self, connection: Any) -> None:  # noqa: ANN401 - of the driver
        """Make its tables, if they are not there. Several processes may do so at once."""
        ...

    async def enqueue(
        self,
        ticket: Ticket,
        *,
        agent: str,
        queue: str,
        priority: int,
        after_s: float,
        connection: Any,  # noqa: ANN401 - of the driver
    ) -> None:
        """Write a ticket, instead of those of the run that nobody has taken. A dispatcher that joins does so in the
        transaction of the connection.

        Higher priority first; not before `after_s` seconds.
        """
        ...

    async def drop(self, run: str, connection: Any) -> None:  # noqa: ANN401 - of the driver
        """Remove the tickets of a run that nobody has taken."""
        ...

    async def unknown(self, tickets: Sequence[Ticket], connection: Any) -> Sequence[Ticket]:  # noqa: ANN401 - of the driver
        """Return those that it has lost: nobody has them, and they will not be brought."""
        ...

    async def serve(
        self,
        drive: Driving,
        hand_over: HandOver,
        *,
        agents: Collection[str],
        queues: Collection[str],
        slots: int,
        grace_s: float,
        stop: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        """Bring tickets of these agents and queues, so many at once, until `stop` is set. No `queues`: of all.

        Then no more are brought, and what is driven has `grace_s` seconds to end before it is cancelled. If this is
        cancelled, it is cancelled at once. What a worker had that was silent for a lease is handed over.
        """
        ...


class Tickets(Protocol):
    """What an engine does whose runs are brought by tickets: it writes them when it makes a run ready, in the same
    transaction."""

    dispatcher: Dispatcher
    """What carries the tickets to workers."""

    async def hand_over(self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: Any = None) -> bool:  # noqa: ANN401 - of the driver
        """Give a run to whoever comes next, as `HandOver` says."""
        ...

    async def rescue(self, *, now: float, agents: Collection[str]) -> int:
        """Hand over the runs of these agents whose owner is dead. Return how many that were."""
        ...

    async def sweep(self, *, now: float) -> int:
        """Hand over the runs that should have begun long ago and that no ticket carries. Return how many that were.
        One process at a time does so, and no sooner than `SWEEP_S` seconds after the last one."""
        ...


def urgency(row: Row) -> int:
    """Return the priority of a run's ticket: what goes on comes before what begins, for the same priority."""
    return 2 * row.priority + (row.lives > 0)


def may_be_handed_over(row: Row) -> bool:
    """Tell whether a run may get another ticket: it is driven, or may begin now or at its moment."""
    return row.status in ("ready", "running") or (row.status == "waiting" and row.wake is not None)

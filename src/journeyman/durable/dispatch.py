"""The port behind which an existing queue tells workers what to drive, and when.

A ticket says: drive this run, for this wake-up. A ticket may be lost, repeated, late or out of order, because nothing
depends on it: the rows alone decide what may be done, and the sweep writes missing tickets again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from journeyman.durable.records import Row

EngineConnection: TypeAlias = Any
"""A connection of the driver of whoever stores the runs: on Postgres psycopg's `AsyncConnection`, in memory none."""

LEASE_S: Final = 10.0
"""A dispatcher treats a worker as dead that was silent for so many seconds. A worker beats five times in it, so that
one beat which is late takes nothing from anybody."""
SWEEP_S: Final = 30.0
"""After so many seconds, one of the workers again looks for runs that have no ticket. It finds only what was lost
with the queue, so it need not look often."""
GIVE_BACK_S: Final = 5.0
"""How long runs that are taken from a worker may wait for a store that is away, to be given back; then their leases
say it."""
LATE_S: Final = 60.0
"""The sweep looks at runs that should have begun so many seconds ago. A ticket that is only late must not be written
twice."""


class Ticket(NamedTuple):
    """Brings a run to a worker."""

    run: str
    gen: int
    """The run's `gen` when the ticket was written. It grows with every wake-up: a ticket with an older one is void."""


ResumeRun: TypeAlias = Callable[[Ticket], Awaitable[None]]
"""Drives what a ticket brings. It returns when the ticket has nothing more to do, and raises only when cancelled."""


class Requeue(Protocol):
    """Gives a run to the next worker that has room."""

    async def __call__(
        self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: EngineConnection = None
    ) -> bool:
        """Take the run from the process that drives it, and write a new ticket, which comes after `after_s` seconds at
        the earliest.

        Return False if the run has had another wake-up since the ticket was written, or has nothing to do. With a
        `connection`, this is a part of the transaction on that connection.
        """
        ...


class Dispatcher(Protocol):
    """An existing queue. It brings each ticket at least once, to one of the workers that serve the ticket's agent and
    queue.

    Raises, from every method:
        StoreError: the queue cannot be reached.
    """

    lease_s: float
    """A worker that was silent for so many seconds is treated as dead."""
    joins: bool
    """True: `enqueue` is a part of its connection's transaction. False: it is called once that transaction has
    ended."""
    drive_s: float | None
    """A run that is driven for more seconds than this is given back between two steps, and comes with another ticket.
    None: never. Meant for a queue that brings a ticket again if it is not done in time, even while somebody works on
    it."""

    async def setup(self, connection: EngineConnection) -> None:
        """Make the dispatcher's tables, if they are not there. Several processes may do this at once."""
        ...

    async def enqueue(
        self, ticket: Ticket, *, agent: str, queue: str, priority: int, after_s: float, connection: EngineConnection
    ) -> None:
        """Write a ticket, which replaces the run's tickets that nobody has taken. A dispatcher that joins writes it in
        the transaction of the connection. On Postgres that is in pipeline mode: a cursor knows how many rows it has
        changed once the transaction has ended, or rows were read.

        Tickets of higher priority come first; no ticket comes before `after_s` seconds have passed.
        """
        ...

    async def drop(self, run: str, connection: EngineConnection) -> None:
        """Remove the tickets of a run that nobody has taken."""
        ...

    async def unknown(self, tickets: Sequence[Ticket], connection: EngineConnection) -> Sequence[Ticket]:
        """Return the tickets that are lost: nobody has them, and the queue will not bring them."""
        ...

    async def serve(
        self,
        drive: ResumeRun,
        hand_over: Requeue,
        *,
        agents: Collection[str],
        queues: Collection[str],
        max_concurrency: int,
        grace_s: float,
        stop: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        """Bring tickets of these agents and queues, at most `max_concurrency` at once, until `stop` is set. No
        `queues`: those of all queues.

        Then no more tickets are brought, and the runs that are driven have `grace_s` seconds to end before they are
        cancelled. If this call is cancelled, they are cancelled at once. When a worker is silent for a lease, its runs
        are handed over.
        """
        ...


class Tickets(Protocol):
    """The share of an engine in runs that tickets bring to workers: it writes the ticket in the transaction that makes
    its run ready."""

    dispatcher: Dispatcher
    """What carries the tickets to workers."""

    async def hand_over(
        self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: EngineConnection = None
    ) -> bool:
        """Give a run to whoever comes next, as `Requeue` says."""
        ...

    async def rescue(self, *, now: float, agents: Collection[str]) -> int:
        """Hand over the runs of these agents whose owner is dead. Return how many there were."""
        ...

    async def sweep(self, *, now: float) -> int:
        """Hand over the runs that should have begun long ago and have no ticket. Return how many there were. One
        process at a time does this, `SWEEP_S` seconds after the last time at the earliest."""
        ...


async def write_ticket(
    dispatcher: Dispatcher, row: Row, *, now: float, after_s: float = 0.0, connection: EngineConnection = None
) -> None:
    """Write a ticket for a run, which comes at its moment, and after `after_s` seconds at the earliest."""
    await dispatcher.enqueue(
        Ticket(row.id, row.gen),
        agent=row.agent,
        queue=row.queue,
        # What goes on comes before what begins, for the same priority: an approval would wait behind all that has not
        # begun yet.
        priority=2 * row.priority + (row.lives > 0),
        after_s=max(after_s, (row.wake or now) - now, 0.0),
        connection=connection,
    )


def may_be_handed_over(row: Row) -> bool:
    """Tell whether a run may get another ticket: it is driven, or may begin now or at its moment."""
    return row.status in ("ready", "running") or (row.status == "waiting" and row.wake is not None)

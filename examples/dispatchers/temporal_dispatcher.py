"""Temporal brings durable runs to workers: an adapter to copy.

    journeyman worker agents.py:clerk --store postgresql://… --dispatcher temporal_dispatcher.py:dispatcher

Whoever starts runs names it, too: `Durable("postgresql://…", dispatcher=dispatcher)`. A ticket is a workflow of one
activity, which beats while the run is driven; the steps of the run stay in its own journal, so that a workflow has
some six events however long the run is. Priorities are not passed on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from journeyman.durable import Dispatcher, Requeue, ResumeRun, Ticket

NAME = "journeyman.drive"
LONGEST = timedelta(days=30)


@workflow.defn(name=NAME, sandboxed=False)
class Drive:
    @workflow.run
    async def run(self, run: str, gen: int, lease_s: float) -> None:
        """Have a run driven; by another worker, if the first is silent for a lease."""
        lease = timedelta(seconds=lease_s)
        await workflow.execute_activity(
            NAME, args=[run, gen], heartbeat_timeout=lease, schedule_to_close_timeout=LONGEST
        )


def beating(drive: ResumeRun, lease_s: float, room: asyncio.Semaphore) -> Callable[[str, int], Awaitable[None]]:
    """Return the activity: it drives a run while there is room, and beats."""

    @activity.defn(name=NAME)
    async def beat(run: str, gen: int) -> None:
        async def driven() -> None:
            async with room:
                await drive(Ticket(run, gen))

        driving = asyncio.ensure_future(driven())
        try:
            while not driving.done():
                activity.heartbeat()
                await asyncio.wait({driving}, timeout=lease_s / 5)
            driving.result()
        finally:
            driving.cancel()
            await asyncio.wait({driving})

    return beat


class TemporalDispatcher:
    joins: bool = False  # its server is not in the transaction: tickets are written when that has ended
    drive_s: float | None = None

    def __init__(self, address: str, *, lease_s: float = 10.0) -> None:
        self.address, self.lease_s = address, lease_s
        self._client: Client | None = None

    async def client(self) -> Client:
        self._client = self._client or await Client.connect(self.address)
        return self._client

    async def setup(self, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        await self.client()

    async def enqueue(
        self,
        ticket: Ticket,
        *,
        agent: str,
        queue: str,
        priority: int,
        after_s: float,
        connection: Any,  # noqa: ANN401 - of psycopg
    ) -> None:
        await (await self.client()).start_workflow(
            NAME,
            args=[*ticket, self.lease_s],
            id=workflow_id(ticket),
            task_queue=place(agent, queue),
            start_delay=timedelta(seconds=after_s) if after_s else None,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    async def drop(self, run: str, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        """Leave it to the workers: a ticket of an older gen is void."""

    async def unknown(self, tickets: Sequence[Ticket], connection: Any) -> Sequence[Ticket]:  # noqa: ANN401 - of psycopg
        lost: list[Ticket] = []
        for each in tickets:
            try:
                told = await (await self.client()).get_workflow_handle(workflow_id(each)).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                lost.append(each)
            else:
                lost += [each] if told.status is not WorkflowExecutionStatus.RUNNING else []
        return lost

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
        activities = [beating(drive, self.lease_s, asyncio.Semaphore(max_concurrency))]
        async with AsyncExitStack() as stack:
            for each in [place(agent, queue) for agent in agents for queue in queues or ("default",)]:
                worker = Worker(
                    await self.client(),
                    task_queue=each,
                    workflows=[Drive],
                    activities=activities,
                    max_concurrent_activities=max_concurrency,
                    graceful_shutdown_timeout=timedelta(seconds=grace_s),
                )
                await stack.enter_async_context(worker)
            await stop.wait()


def place(agent: str, queue: str) -> str:
    return f"journeyman.{agent}.{queue}"


def workflow_id(ticket: Ticket) -> str:
    return f"journeyman-{ticket.run}-{ticket.gen}"


dispatcher = TemporalDispatcher(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))

if TYPE_CHECKING:
    _is_one: Dispatcher = dispatcher

"""Celery brings durable runs to workers: an adapter to copy.

    journeyman worker agents.py:clerk --store postgresql://… --dispatcher celery_dispatcher.py:dispatcher

Whoever starts runs names it, too: `Durable("postgresql://…", dispatcher=dispatcher)`. A ticket is acknowledged when it
has nothing more to do. Brokers bring again what is not acknowledged within 30 to 60 minutes, so a run is given back
before that, between two steps. Only the queues that are named are served, or `default`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from celery import Celery  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from celery.worker import WorkController, state  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from journeyman.durable import Dispatcher, Requeue, ResumeRun, Ticket

TASK = "journeyman.drive"
SOON_S = 60.0  # a worker of Celery keeps what is due later in its memory, so the sweep brings it when it is due
AGAIN_S = 600.0


class CeleryDispatcher:
    joins: bool = False  # a broker is not in the transaction: tickets are sent when that has ended
    lease_s: float = 10.0

    def __init__(self, app: Any, *, drive_s: float = 1_200.0) -> None:  # noqa: ANN401 - of Celery
        self.app = app
        self.drive_s: float | None = drive_s  # less than the visibility timeout, or RabbitMQ's consumer_timeout
        self._sent_s: dict[Ticket, float] = {}

    async def setup(self, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        """There is nothing to make: a queue is there once something is sent to it."""

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
        if after_s > SOON_S:
            return
        given = {"args": list(ticket), "countdown": after_s or None, "priority": min(max(priority, 0), 9)}
        await asyncio.to_thread(self.app.send_task, TASK, queue=place(agent, queue), ignore_result=True, **given)

    async def drop(self, run: str, connection: Any) -> None:  # noqa: ANN401 - of psycopg
        """Leave it to the workers: a ticket of an older gen is void."""

    async def unknown(self, tickets: Sequence[Ticket], connection: Any) -> Sequence[Ticket]:  # noqa: ANN401 - of psycopg
        """Send them again now and then: a broker cannot be asked what it holds, and a second ticket does no harm."""
        now_s = asyncio.get_running_loop().time()
        late = {each.run: each for each in tickets if now_s - self._sent_s.get(each, -AGAIN_S) >= AGAIN_S}
        self._sent_s = {each: self._sent_s.get(each, now_s) for each in tickets} | dict.fromkeys(late.values(), now_s)
        query = "SELECT id, agent, queue, priority FROM jm_runs WHERE id = ANY(%s::text[])"
        for run, agent, queue, priority in await (await connection.execute(query, [list(late)])).fetchall():
            given = {"agent": agent, "queue": queue, "priority": 2 * priority, "connection": connection}
            await self.enqueue(late[run], after_s=0.0, **given)
        return ()

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
        loop, driving = asyncio.get_running_loop(), set[Future[None]]()

        async def carried(ticket: Ticket) -> None:
            await drive(ticket)

        def driven(run: str, gen: int) -> None:  # in a thread of Celery's
            future = asyncio.run_coroutine_threadsafe(carried(Ticket(run, gen)), loop)
            driving.add(future)
            try:
                future.result()
            finally:
                driving.discard(future)

        self.app.task(driven, name=TASK, acks_late=True, ignore_result=True)
        places = [place(agent, queue) for agent in agents for queue in queues or ("default",)]
        worker: Any = WorkController(
            app=self.app,
            pool="threads",
            concurrency=max_concurrency,
            prefetch_multiplier=1,
            queues=places,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        working = asyncio.create_task(asyncio.to_thread(worker.start))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            state.should_stop = os.EX_OK  # it takes nothing more, and waits for what is driven
            await asyncio.wait({working}, timeout=grace_s)
        finally:
            stopping.cancel()
            state.should_stop = os.EX_OK
            for each in list(driving):
                each.cancel()
            await asyncio.wait({working})
            state.should_stop = None


def place(agent: str, queue: str) -> str:
    return f"journeyman.{agent}.{queue}"


dispatcher = CeleryDispatcher(Celery("journeyman", broker=os.environ.get("CELERY_BROKER_URL", "memory://")))

if TYPE_CHECKING:
    _is_one: Dispatcher = dispatcher

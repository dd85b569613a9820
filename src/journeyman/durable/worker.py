"""Doing what was started: a worker claims runs that are ready, and drives several at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.cancel import ended
from journeyman.connect import connect
from journeyman.data import lazy_dataclass
from journeyman.definition import explain_arguments
from journeyman.durable.dispatch import Ticket, Tickets, may_be_handed_over
from journeyman.durable.durable import Durable
from journeyman.durable.journal import Leaving
from journeyman.durable.program import Program
from journeyman.durable.records import Head, Row, load_head
from journeyman.errors import JourneymanError, name_and_words
from journeyman.events import Callbacks, Listener
from journeyman.subagents.tool import crew_of

_log = logging.getLogger("journeyman")
_PATIENCE_S: Final = 1.0
_UNFIT_S: Final = 10.0
"""This worker leaves a run that it must not drive to others for so many seconds."""


@lazy_dataclass(frozen=True, kw_only=True)
class Queue:
    """How a worker serves a queue."""

    at_once: int | None = None
    """How many runs of this queue go on at once in all workers together. None: as many as there are slots."""


@explain_arguments
class Worker:
    """Drives runs of its agents: runs that were started, that no longer wait, or whose process has died.

    The worker gives a run what is not stored, above all its gates, and the deps of its agents:
    `agents=[analyst.with_deps(db)]`. A run that was started with a model of its own (`run --model … --detach`) gets
    that model, unless `host` has one.
    """

    def __init__(
        self,
        durable: Durable,
        *,
        agents: Sequence[Agent[Any, Any, Any]],
        slots: int = 10,
        queues: Mapping[str, Queue] | None = None,
        host: Host | None = None,
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        equip: Callable[[Row, Program], Program] | None = None,
    ) -> None:
        """Does runs of these `agents` that are stored in `durable`. `slots` is how many runs go on here at once.
        Without `queues`, all queues are served. `host`, `callbacks` and `on_event` are given to every run; `equip`
        gives a run what only this run gets.

        Raises:
            ValueError: there is no agent or no slot, two agents have the same name, or a queue's limit is less than 1.
        """
        names = [agent.name for agent in agents]
        double = sorted({name for name in names if names.count(name) > 1})
        if not names:
            raise ValueError("A worker without agents has nothing to do. Pass agents=[…].")
        if double:
            raise ValueError(f"Two agents are called {double[0]!r}, so no run would know which is its own. Rename one.")
        if slots < 1:
            raise ValueError(f"A worker with {slots} slots does nothing. Give it at least one.")
        for name, queue in (queues or {}).items():
            if queue.at_once is not None and queue.at_once < 1:
                raise ValueError(f"Queue {name!r} lets {queue.at_once} runs go on at once. Let at least one.")
        self._hub: Final = durable.hub
        self._agents: Final = {agent.name: agent for agent in agents}
        crew = ["/".join((agent.name, *way)) for agent in agents for way in crew_of(agent)]
        self._served: Final = (*self._agents, *dict.fromkeys(crew))
        """What is served: the agents, and what their runs send out."""
        self._slots: Final = slots
        self._queues: Final = dict(queues or {})
        self._host: Final = NOTHING_AROUND if host is None else host
        self._callbacks: Final = callbacks
        self._on_event: Final = on_event
        self._equip: Final = equip
        self._driving: dict[str, asyncio.Task[bool]] = {}
        self._unfit: set[str] = set()
        """The runs that this worker must not drive, which it has said."""
        self._full: set[str] = set()
        """The queues of which as many runs go on as may. They are asked again when something has changed."""

    async def run(self, *, stop: asyncio.Event | None = None, grace_s: float = 30.0, until_idle: bool = False) -> None:
        """Serve until `stop` is set, or the surrounding task is cancelled.

        Once `stop` is set, no more runs are claimed. Runs that are driven have `grace_s` seconds to end; then they are
        given back, so that another process goes on with them. `until_idle`: return when there is nothing left to drive,
        which includes runs that wait because their queue is full.
        """
        stop, tickets = stop or asyncio.Event(), self._hub.engine.tickets
        if tickets is not None and not until_idle:
            await self._serve(tickets, stop=stop, grace_s=grace_s)
            return
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                mark = self._hub.mark()
                n_begun = await self._claim()
                if until_idle and not n_begun and not self._driving and not self._full:
                    return
                changing = asyncio.ensure_future(self._hub.changed(_PATIENCE_S, since=mark))
                waited = {stopping, changing, *self._driving.values()}
                try:
                    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changing.cancel()
                if changing.done():
                    self._full.clear()
            if self._driving:
                await asyncio.wait(self._driving.values(), timeout=grace_s)
        finally:
            stopping.cancel()
            driving = list(self._driving.values())
            for task in driving:
                task.cancel()
            for task in driving:
                await ended(task)

    async def _claim(self) -> int:
        """Begin to drive what is ready, as far as there are slots. Return how many that are."""
        n_begun = 0
        served = [((name,), queue) for name, queue in self._queues.items()] or [((), Queue())]
        for names, queue in served:
            free = self._slots - len(self._driving)
            if free <= 0:
                break
            if not self._full.isdisjoint(names):
                continue
            try:
                rows = await self._hub.engine.ready(
                    now=self._hub.now(),
                    agents=self._served,
                    queues=names,
                    limit=free + len(self._driving) + len(self._unfit),
                )
            except JourneymanError as error:
                _log.warning("The store of the runs cannot be read. This is tried again: %s", error)
                return n_begun
            new = [(row, program) for row in rows if row.id not in self._driving and (program := self._fit(row))]
            for row, program in new[:free]:
                task = asyncio.create_task(self._drive(row, program, queue.at_once))
                self._driving[row.id] = task
                task.add_done_callback(lambda _, id=row.id: self._driving.pop(id, None))
                n_begun += 1
        return n_begun

    # -- what tickets bring

    async def _serve(self, tickets: Tickets, *, stop: asyncio.Event, grace_s: float) -> None:
        async def drive(ticket: Ticket) -> None:
            try:
                await self._taken(tickets, ticket)
            except JourneymanError as error:  # of one run, and the others go on; nobody acknowledges what was not done
                _log.warning("The run %s was not driven: %s", ticket.run, error)
                await asyncio.sleep(_PATIENCE_S)

        looking = asyncio.create_task(self._look_after(tickets))
        try:
            await tickets.dispatcher.serve(
                drive,
                tickets.hand_over,
                agents=self._served,
                queues=list(self._queues),
                slots=self._slots,
                grace_s=grace_s,
                stop=stop,
                now=self._hub.now,
            )
        finally:
            looking.cancel()
            await ended(looking)

    async def _taken(self, tickets: Tickets, ticket: Ticket) -> None:
        """Drive what a ticket brings, until it has nothing more to do."""
        row = await self._hub.engine.get(ticket.run)
        if row is None or row.gen != ticket.gen or not may_be_handed_over(row) or row.agent not in self._served:
            return
        now = self._hub.now()
        if row.status == "running":
            if not self._hub.drives(row.id):  # it was brought before to somebody who is silent
                await tickets.hand_over(ticket, now=now)
        elif self._hub.drives(row.id):  # that life of it is fenced, or about to end, and here cannot be two
            await tickets.hand_over(ticket, now=now, after_s=_PATIENCE_S)
        elif row.wake is not None and row.wake > now:
            await tickets.hand_over(ticket, now=now)  # the clocks differ
        elif (program := self._fit(row)) is None:
            self._unfit.discard(row.id)
            await tickets.hand_over(ticket, now=now, after_s=_UNFIT_S)
        else:
            drive_s = tickets.dispatcher.drive_s
            loop = asyncio.get_running_loop()
            leaving = None if drive_s is None else loop.call_later(drive_s, self._hub.release, row.id)
            try:
                at_once = self._queues.get(row.queue, Queue()).at_once
                is_driven = await self._drive(row, program, at_once, gen=ticket.gen)
            finally:
                if leaving is not None:
                    leaving.cancel()
            after = None if is_driven else await self._hub.engine.get(ticket.run)
            is_ours = after is not None and (after.status, after.owner) == ("running", self._hub.engine.owner)
            if is_ours and not self._hub.drives(ticket.run):  # its records could not be read or written
                await tickets.hand_over(ticket, now=self._hub.now())

    async def _look_after(self, tickets: Tickets) -> None:
        """Hand over the runs of the dead, and those that no ticket carries."""
        random = Random()
        while True:
            await asyncio.sleep(_PATIENCE_S * random.uniform(0.8, 1.2))
            try:
                await tickets.rescue(now=self._hub.now(), agents=self._served)
                await tickets.sweep(now=self._hub.now())
            except JourneymanError as error:
                _log.warning("Runs that nobody drives cannot be found. This is tried again: %s", error)

    # -- one run

    def _fit(self, row: Row) -> Program | None:
        """Return what a run has of this worker, if that is all the gates and deps that it was begun with."""
        if row.id in self._unfit:
            return None
        try:
            head = load_head(row)
            program = self._program(row, head)
            lacking = program.lacks(head)
        except JourneymanError as error:
            program, lacking = None, str(error)
        if lacking is None:
            return program
        _log.warning("The run %s is left to another worker: %s", row.name or row.id, lacking)
        self._unfit.add(row.id)
        return None

    def _program(self, row: Row, head: Head) -> Program:
        host = self._host
        if host.model is None and head.model:
            host = replace(host, model=connect(head.model))  # what it was started with
        program = Program(
            agent=self._agents[row.agent.partition("/")[0]],
            host=host,
            callbacks=self._callbacks,
            on_event=self._on_event,
            is_worker=True,
        )
        program = program.sent(head)
        return program if self._equip is None else self._equip(row, program)

    async def _drive(self, row: Row, program: Program, at_once: int | None, *, gen: int | None = None) -> bool:
        """Drive a run, and say whether that was done, or was seen not to be needed."""
        try:
            outcome = await self._hub.driven(row.id, program, at_once=at_once, gen=gen, row=row)
            is_held = isinstance(outcome, Leaving) and outcome.how == "held"
            if at_once is not None and is_held:
                self._full.add(row.queue)
        except Exception as error:  # noqa: BLE001 - of one run, and the others go on
            _log.warning("The run %s is not driven: %s", row.name or row.id, name_and_words(error))
            await asyncio.sleep(_PATIENCE_S)
            return False
        return not is_held

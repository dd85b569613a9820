"""Doing what was started: a worker claims runs that are ready, and drives several at once."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.cancellation import cancel_within, wait_until_ended
from journeyman.closing import TimeToEnd, time_of_work
from journeyman.connect import connect
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments, raise_problems
from journeyman.durable.binding import Program
from journeyman.durable.dispatch import GIVE_BACK_S, Ticket, Tickets, may_be_handed_over
from journeyman.durable.durable import Durable
from journeyman.durable.journal import Exit
from journeyman.durable.records import Head, Row, load_head
from journeyman.errors import (
    DefinitionError,
    JourneymanError,
    ModelUnavailable,
    RunBlocked,
    StoreError,
    SubagentMisused,
    name_and_words,
)
from journeyman.events import Callbacks, Listener
from journeyman.subagents.tool import crew_of
from journeyman.tools.check import callback_problems, listener_problems

_HowDriven: TypeAlias = Literal["driven", "held", "unfit", "failed"]
"""What became of a run that a worker took in hand. `driven`: or seen not to need it; `held`: it may not go on now;
`unfit`: this worker must not drive it; `failed`: something was raised."""

_log = logging.getLogger("journeyman")
_PATIENCE_S: Final = 1.0
_UNFIT_S: Final = 10.0
"""This worker leaves a run that it must not drive to others for so many seconds. Others may have what it lacks."""


@lazy_dataclass(frozen=True, kw_only=True)
class Queue:
    """The rule by which a worker serves a queue."""

    max_concurrency: int | None = None
    """The most runs of this queue that go on at once in all workers together. None: as many as the workers do."""


@explain_arguments
class Worker:
    """Drives runs of its agents: runs that were started, that no longer wait, or whose process has died.

    The worker gives a run what is not stored, above all its gates, and the deps of its agents:
    `agents=[analyst.with_deps(db)]`. A run that was started with a model of its own (`run --model … --detach`) gets
    that model, unless `runtime` has one.
    """

    def __init__(
        self,
        durable: Durable,
        *,
        agents: Sequence[Agent[Any, Any, Any]],
        max_concurrency: int = 10,
        queues: Mapping[str, Queue] | None = None,
        runtime: Runtime | None = None,
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        prepare: Callable[[Row, Program], Awaitable[Program | None]] | None = None,
    ) -> None:
        """Does runs of these `agents` that are stored in `durable`. `max_concurrency` is how many runs go on here at
        once. Without `queues`, all queues are served. `runtime`, `callbacks` and `on_event` are given to every run;
        `prepare` gives a run what only this run gets; None from it: the run is driven elsewhere in this program.

        Raises:
            ValueError: there is no agent, `max_concurrency` or a queue's limit is less than 1, or two agents have the
                same name.
            DefinitionError: `callbacks` or `on_event` cannot be called.
        """
        problems = [*callback_problems(callbacks)]
        if on_event is not None:
            problems += listener_problems(on_event)
        raise_problems("The worker", problems)
        names = [agent.name for agent in agents]
        double = sorted({name for name in names if names.count(name) > 1})
        if not names:
            raise ValueError("A worker without agents has nothing to do. Pass agents=[…].")
        if double:
            raise ValueError(f"Two agents are called {double[0]!r}, so no run would know which is its own. Rename one.")
        if max_concurrency < 1:
            raise ValueError(f"A worker with max_concurrency={max_concurrency} does nothing. Give it at least 1.")
        for name, queue in (queues or {}).items():
            if queue.max_concurrency is not None and queue.max_concurrency < 1:
                raise ValueError(f"Queue {name!r} lets {queue.max_concurrency} runs go on at once. Let at least one.")
        self._hub: Final = durable.hub
        self._agents: Final = {agent.name: agent for agent in agents}
        # The runs below are stored under the names of all agents on the way, so a worker asks for these.
        crew = ["/".join((agent.name, *way)) for agent in agents for way in crew_of(agent)]
        self._served: Final = (*self._agents, *dict.fromkeys(crew))
        """What is served: the agents, and what their runs send out."""
        self._max_concurrency: Final = max_concurrency
        self._queues: Final = dict(queues or {})
        self._runtime: Final = DEFAULT_RUNTIME if runtime is None else runtime
        self._callbacks: Final = callbacks
        self._on_event: Final = on_event
        self._equip: Final = prepare
        self._driving: dict[str, asyncio.Task[_HowDriven]] = {}
        self._brought: set[asyncio.Task[Any]] = set()
        """The tasks in which what tickets bring is driven."""
        self._unfit: set[str] = set()
        """The runs that this worker must not drive, which it has said."""
        self._full: set[str] = set()
        """The queues of which as many runs go on as may. They are asked again when something has changed."""

    async def run(self, *, stop: asyncio.Event | None = None, grace_s: float = 30.0, until_idle: bool = False) -> None:
        """Serve until `stop` is set, or the surrounding task is cancelled. Without `stop`: until SIGTERM or Ctrl-C.

        Then no more runs are claimed, and this returns within `grace_s` seconds; within 2 if it has less, as the store
        needs a moment. Runs that are driven have that time to end, except its last quarter, or 5 seconds. After that,
        or at a second signal, they are given back, so that another process goes on with them; a store that does not
        answer is not waited for. A program that handles a signal itself, or serves outside of its main thread, keeps
        it, and passes `stop`. `until_idle`: return when there is nothing left to drive, which includes runs that wait
        because their queue is full.
        """
        at_once = asyncio.Event()
        if stop is not None:
            await self._run_in_time(stop, at_once, grace_s=grace_s, until_idle=until_idle)
            return
        stop = asyncio.Event()

        def heed() -> None:
            if stop.is_set():
                at_once.set()
                return
            has_s = time_of_work(grace_s)
            said = "Stopping within %g s: what is driven has %g s to end. Once more, and it is given back at once."
            _log.warning(said, grace_s, has_s)
            stop.set()

        with stop_signals_heard(heed):
            await self._run_in_time(stop, at_once, grace_s=grace_s, until_idle=until_idle)

    async def _run_in_time(
        self, stop: asyncio.Event, at_once: asyncio.Event, *, grace_s: float, until_idle: bool
    ) -> None:
        """Serve, and end in time whatever the store does."""
        closing = TimeToEnd(clock=asyncio.get_running_loop().time)
        running = asyncio.create_task(self._run(stop, work_s=time_of_work(grace_s), until_idle=until_idle))
        timing = asyncio.create_task(_spend_time_of_work(stop, at_once, closing, grace_s))
        try:
            await asyncio.wait({running, timing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # At the end of an event loop every task is cancelled, perhaps twice: the runs still have this time.
            closing.begin(GIVE_BACK_S)
            await self._leave(running, closing)
            raise
        finally:
            timing.cancel()
            await wait_until_ended(timing)
        if closing.has_begun:
            await self._leave(running, closing)
        if not running.done() or running.cancelled():
            return
        error = running.exception()
        if isinstance(error, StoreError) and closing.has_begun:
            _log.warning("The store could not be used in the end: %s", error)
        elif error is not None:
            raise error

    async def _leave(self, running: asyncio.Task[None], closing: TimeToEnd) -> None:
        """Give back what is driven; once half of the time is up, leave what keeps it. It waits for a store that is
        away, and whoever finds the run later goes on with it."""
        running.cancel()
        await asyncio.wait({running}, timeout=closing.part_s())
        # Again and again: each cancellation ends one wait, and there may be several.
        late = await cancel_within(closing.part_s(), {running, *self._driving.values(), *self._brought})
        if late:
            runs = [id for id, task in self._driving.items() if task in late]
            _log.warning("The store does not answer, so this is left as it is: %s", ", ".join(runs) or "the queue")

    async def _run(self, stop: asyncio.Event, *, work_s: float, until_idle: bool) -> None:
        tickets = self._hub.engine.tickets
        if tickets is not None and not until_idle:
            await self._serve(tickets, stop=stop, work_s=work_s)
            return
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                # The mark before the look: a run that is started in between is found at once.
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
                # Something has changed, so a queue may have room again.
                if changing.done():
                    self._full.clear()
            if self._driving:
                await asyncio.wait(self._driving.values(), timeout=work_s)
        finally:
            stopping.cancel()
            driving = list(self._driving.values())
            for task in driving:
                task.cancel()
            await wait_until_ended(asyncio.gather(*driving, return_exceptions=True), patience_s=GIVE_BACK_S)

    async def _claim(self) -> int:
        """Begin to drive what is ready, as far as `max_concurrency` allows. Return how many that are."""
        n_begun = 0
        served = [((name,), queue) for name, queue in self._queues.items()] or [((), Queue())]
        # Queue by queue where these have limits: a full one must not hide what waits in the others.
        for names, queue in served:
            free = self._max_concurrency - len(self._driving)
            if free <= 0:
                break
            if not self._full.isdisjoint(names):
                continue
            try:
                rows = await self._hub.engine.ready(
                    now=self._hub.now(),
                    agents=self._served,
                    queues=names,
                    # With room for those that this worker knows it cannot begin, which come first each time.
                    limit=free + len(self._driving) + len(self._unfit),
                )
            except Exception as error:  # noqa: BLE001 - of a clock of the user's, too: the others go on
                said = error if isinstance(error, JourneymanError) else name_and_words(error)
                _log.warning("The store of the runs cannot be read. This is tried again: %s", said)
                return n_begun
            new = [row for row in rows if row.id not in self._driving and row.id not in self._unfit]
            for row in new[:free]:
                task = asyncio.create_task(self._drive(row, queue.max_concurrency))
                self._driving[row.id] = task
                task.add_done_callback(lambda _, id=row.id: self._driving.pop(id, None))
                n_begun += 1
        return n_begun

    async def _serve(self, tickets: Tickets, *, stop: asyncio.Event, work_s: float) -> None:
        async def drive(ticket: Ticket) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._brought.add(task)
            try:
                await self._taken(tickets, ticket)
            except JourneymanError as error:  # of one run, and the others go on; nobody acknowledges what was not done
                _log.warning("The run %s was not driven: %s", ticket.run, error)
                await asyncio.sleep(_PATIENCE_S)
            finally:
                self._brought.discard(task)

        looking = asyncio.create_task(self._look_after(tickets))
        try:
            await tickets.dispatcher.serve(
                drive,
                tickets.hand_over,
                agents=self._served,
                queues=list(self._queues),
                max_concurrency=self._max_concurrency,
                grace_s=work_s,
                stop=stop,
                now=self._hub.now,
            )
        finally:
            looking.cancel()
            await wait_until_ended(looking)

    async def _taken(self, tickets: Tickets, ticket: Ticket) -> None:
        """Drive what a ticket brings, until it has nothing more to do."""
        row = await self._hub.engine.get(ticket.run)
        # A ticket may be late, repeated, or of an earlier wake-up: the row alone says what is to be done.
        if row is None or row.gen != ticket.gen or not may_be_handed_over(row) or row.agent not in self._served:
            return
        now = self._hub.now()
        if row.status == "running":
            if not self._hub.has_taken(row.id):  # it was brought before to somebody who is silent
                await tickets.hand_over(ticket, now=now)
        elif self._hub.drives(row.id):  # that life of it is fenced, or about to end, and here cannot be two
            await tickets.hand_over(ticket, now=now, after_s=_PATIENCE_S)
        elif row.wake is not None and row.wake > now:
            await tickets.hand_over(ticket, now=now)  # the clocks differ
        else:
            drive_s = tickets.dispatcher.drive_s
            loop = asyncio.get_running_loop()
            leaving = None if drive_s is None else loop.call_later(drive_s, self._hub.release, row.id)
            try:
                at_once = self._queues.get(row.queue, Queue()).max_concurrency
                outcome = await self._drive(row, at_once, gen=ticket.gen)
            finally:
                if leaving is not None:
                    leaving.cancel()
            if outcome != "driven":
                await self._return(tickets, ticket, outcome)

    async def _return(self, tickets: Tickets, ticket: Ticket, outcome: _HowDriven) -> None:
        """Hand over what a ticket has brought and what was not driven here."""
        if outcome == "unfit":
            self._unfit.discard(ticket.run)
            await tickets.hand_over(ticket, now=self._hub.now(), after_s=_UNFIT_S)
            return
        row = await self._hub.engine.get(ticket.run)
        was_not_begun = row is not None and row.status == "ready" and outcome == "failed"
        is_ours = row is not None and (row.status, row.owner) == ("running", self._hub.engine.owner)
        if was_not_begun or (
            is_ours and not self._hub.has_taken(ticket.run)
        ):  # its records could not be read or written
            await tickets.hand_over(ticket, now=self._hub.now())

    async def _look_after(self, tickets: Tickets) -> None:
        """Hand over the runs of the dead, and those that no ticket carries."""
        random = Random()
        while True:
            # Not all workers in the same moment.
            await asyncio.sleep(_PATIENCE_S * random.uniform(0.8, 1.2))
            try:
                await tickets.rescue(now=self._hub.now(), agents=self._served)
                await tickets.sweep(now=self._hub.now())
            except JourneymanError as error:
                _log.warning("Runs that nobody drives cannot be found. This is tried again: %s", error)

    def reconsider(self, run: str) -> None:
        """Look again at a run, by its id, that this worker was seen not to be able to drive."""
        self._unfit.discard(run)
        self._hub.notify()

    async def _drive(self, row: Row, at_once: int | None, *, gen: int | None = None) -> _HowDriven:
        """Drive a run, if it has of this worker all the gates and deps that it was begun with."""
        name = row.name or row.id
        try:
            try:
                head = load_head(row)
                program = self._program(row, head)
                if self._equip is not None and (program := await self._equip(row, program)) is None:
                    return "driven"
                program = program.sent(head)
                lacking = program.lacks(head)
            except (RunBlocked, DefinitionError, ModelUnavailable, SubagentMisused) as error:
                program, lacking = None, str(error)
            if program is None or lacking is not None:
                _log.warning("The run %s is left to another worker: %s", name, lacking)
                self._unfit.add(row.id)
                return "unfit"
            outcome = await self._hub.driven(row.id, program, at_once=at_once, gen=gen, known=row)
        except Exception as error:  # noqa: BLE001 - of one run, and the others go on
            _log.warning("The run %s is not driven: %s", name, name_and_words(error))
            await asyncio.sleep(_PATIENCE_S)
            return "failed"
        is_held = isinstance(outcome, Exit) and outcome.how == "held"
        if at_once is not None and is_held:
            self._full.add(row.queue)
        return "held" if is_held else "driven"

    def _program(self, row: Row, head: Head) -> Program:
        """Return what a run has of this worker, or the run above all others in whose tree it is."""
        runtime = self._runtime
        if runtime.model is None and head.model:
            runtime = replace(runtime, model=connect(head.model))  # what it was started with
        return Program(
            agent=self._agents[row.agent.partition("/")[0]],
            runtime=runtime,
            callbacks=self._callbacks,
            on_event=self._on_event,
            is_worker=True,
        )


async def _spend_time_of_work(stop: asyncio.Event, at_once: asyncio.Event, closing: TimeToEnd, grace_s: float) -> None:
    """Wait until what is driven has had its time, after the signal to stop, or until there was a second one."""
    await stop.wait()
    closing.begin(grace_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(time_of_work(grace_s)):
            await at_once.wait()
            closing.begin(0.0)


_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals_heard(heed: Callable[[], None]) -> Generator[None]:
    """Call `heed` in the running event loop for each SIGTERM and Ctrl-C while the block runs.

    What the program handles itself, or ignores, is left to it; so is everything where this is not the main thread:
    Python lets nobody handle signals elsewhere. Several blocks at the same time all hear.
    """
    heard = [_Heard(number, heed) for number in _NUMBERS if _is_free(number)]
    try:
        yield
    finally:
        for each in heard:
            each.leave()


def _is_free(number: signal.Signals) -> bool:
    """Tell whether nobody in the program has said what this signal does."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(number)
    if handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(handler, _Heard):
        return True
    # `asyncio.run` turns Ctrl-C into a cancellation of its main task.
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


class _Heard:
    """The handler of one signal in one block."""

    def __init__(self, number: signal.Signals, heed: Callable[[], None]) -> None:
        self._number, self._heed = number, heed
        self._loop = asyncio.get_running_loop()
        self._before = signal.signal(number, self)
        self._is_left = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._is_left:
            # A signal comes between any two instructions: only this may be called there, and it wakes the loop.
            self._loop.call_soon_threadsafe(self._heed)
        if isinstance(self._before, _Heard):
            self._before(number, frame)

    def leave(self) -> None:
        """Hear no more. Whoever has begun to hear later, and hears still, passes on what it hears."""
        self._is_left = True
        handler = self
        while handler._is_left and signal.getsignal(self._number) is handler:
            signal.signal(self._number, handler._before)
            if not isinstance(handler._before, _Heard):
                break
            handler = handler._before

"""Whatever a dispatcher does with tickets, every run ends once: it loses, repeats, delays and reorders them here."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman import Agent
from journeyman.durable import Durable, InMemoryEngine, Memory, Queue, RunHandle, Worker
from journeyman.durable.dispatch import LATE_S, Dispatcher, Requeue, ResumeRun, Ticket, may_be_handed_over, write_ticket
from journeyman.durable.engine import Taken
from journeyman.durable.records import Record, Row
from journeyman.durable.rules import RowRule, hand_over_row, needs_ticket
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.inbox.signals import Signal
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel
from tests.durable.processes import START, Process
from tests.durable.worlds import World, do, done_twice
from tests.play import following, make_gate, n_answers, on_virtual_clock

N_RUNS: Final = 6
N_DEATHS: Final = 3


@dataclass(eq=False)
class Malicious:
    """A queue in memory that keeps no promise but one: what it has lost, it says."""

    random: Random
    losing: float
    """How often a ticket is lost, from 0 to 1."""
    repeating: float
    lease_s: float = 10.0
    joins: bool = True
    drive_s: float | None = None
    jobs: list[tuple[Ticket, float]] = field(default_factory=list[tuple[Ticket, float]])
    """With the moment before which it is not brought, by the event loop."""

    async def setup(self, connection: Any) -> None:  # noqa: ANN401 - there is none
        """Nothing has to be made."""

    async def enqueue(self, ticket: Ticket, *, after_s: float, **_: object) -> None:
        now_s = asyncio.get_running_loop().time()
        while self.random.random() >= self.losing:
            self.jobs.append((ticket, now_s + after_s * self.random.uniform(0.5, 1.5) + self.random.uniform(0, 5)))
            if self.random.random() >= self.repeating:
                return

    async def drop(self, run: str, connection: Any) -> None:  # noqa: ANN401 - there is none
        """Drop nothing: old tickets come back."""

    async def unknown(self, tickets: Sequence[Ticket], connection: Any) -> Sequence[Ticket]:  # noqa: ANN401 - there is none
        return [each for each in tickets if each not in [ticket for ticket, _ in self.jobs]]

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
        driving, loop = set[asyncio.Future[None]](), asyncio.get_running_loop()
        try:
            while not stop.is_set():
                due = [job for job in self.jobs if job[1] <= loop.time()]
                if due and len(driving) < max_concurrency:
                    job = self.random.choice(due)
                    if self.random.random() >= self.repeating:
                        self.jobs.remove(job)
                    task = asyncio.ensure_future(drive(job[0]))
                    driving.add(task)
                    task.add_done_callback(driving.discard)
                await asyncio.sleep(0.2)  # by a clock that jumps
        finally:
            for task in driving:
                task.cancel()
            await asyncio.gather(*driving, return_exceptions=True)


if TYPE_CHECKING:
    _dispatcher: type[Dispatcher] = Malicious


class TicketedEngine(InMemoryEngine):
    """An engine in memory whose runs are brought to workers by tickets."""

    def __init__(self, memory: Memory, dispatcher: Malicious) -> None:
        super().__init__(memory)
        self.dispatcher: Dispatcher = dispatcher
        self.tickets = self

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        stored = await super().add(row, records, is_queued=is_queued)
        if is_queued:
            await write_ticket(self.dispatcher, stored, now=row.created)
        return stored

    async def change(self, id: str, rule: RowRule, *, now: float, **more: Any) -> Row | None:
        before = self.memory.rows[id]
        after = await super().change(id, rule, now=now, **more)
        if after is not None:
            await self._follow(before, after, now=now)
        return after

    async def signal(self, signal: Signal) -> Taken:
        before = self.memory.rows[signal.run]
        taken = await super().signal(signal)
        await self._follow(before, self.memory.rows[signal.run], now=signal.at)
        return taken

    async def _follow(self, before: Row, after: Row, *, now: float, after_s: float = 0.0) -> None:
        if needs_ticket(before, after):
            await write_ticket(self.dispatcher, after, now=now, after_s=after_s)
        if before.status == "running" != after.status:
            for parked in [each for each in self.memory.rows.values() if each.parked and each.status == "ready"][:1]:
                await self.hand_over(Ticket(parked.id, parked.gen), now=now)

    async def hand_over(self, ticket: Ticket, *, now: float, after_s: float = 0.0, connection: object = None) -> bool:
        before, rule = self.memory.rows[ticket.run], RowRule(partial(hand_over_row, gen=ticket.gen))
        after = await super().change(ticket.run, rule, now=now)
        if after is not None:
            await self._follow(before, after, now=now, after_s=after_s)
        return after is not None

    async def rescue(self, *, now: float, agents: Collection[str]) -> int:
        left = [row for row in self.memory.rows.values() if row.status == "running" and row.agent in agents]
        dead = [Ticket(row.id, row.gen) for row in left if row.owner not in self.memory.owners]
        return sum([await self.hand_over(each, now=now) for each in dead])

    async def sweep(self, *, now: float) -> int:
        rows = [row for row in self.memory.rows.values() if row.status != "running" and not row.parked]
        late = [row for row in rows if may_be_handed_over(row) and (row.wake or row.created) < now - LATE_S]
        unknown = await self.dispatcher.unknown([Ticket(row.id, row.gen) for row in late], None)
        return sum([await self.hand_over(each, now=now) for each in unknown])


def _ask_for_pay(request: GateRequest) -> Verdict:
    """Ask about the calls of every other run."""
    what = str(request.arguments.get("what"))
    return Ask("May it?") if what.startswith("pay") and int(what[3:]) % 2 else Allow()


def clerk(world: World) -> Agent[str, str]:
    def answer(request: Request) -> Answer:
        number = n_answers(request)
        block = request.messages[0].content[0]
        name = block.text if block.type == "text" else ""
        return [do("once", f"see{name}"), do("once", f"pay{name}"), "Done."][number]

    return Agent(name="clerk", model=FunctionModel(answer), tools=world.tools(), gate=make_gate(_ask_for_pay))


async def _approve(durable: Durable) -> None:
    while True:
        for info in await durable.list(statuses=["waiting"]):
            for question in info.pending:
                await (await durable.get(info.id)).approve(question.question_id, Allow())
        await durable.hub.changed(1.0)


async def _all_done(handles: Sequence[RunHandle[str]]) -> None:
    for handle in handles:
        await handle.result()


async def _live(seed: int, losing: float, repeating: float) -> None:
    random, memory = Random(seed), Memory()
    dispatcher = Malicious(random, losing, repeating)
    world = World(random=random, slowest_s=0.5)
    loop = asyncio.get_running_loop()

    def now() -> float:
        return START + loop.time()

    def process() -> Process:
        made = Process(TicketedEngine(memory, dispatcher), die=memory.owners.discard)
        made.tickets = made.engine.tickets
        return made

    async def working(of: Process) -> None:
        queues = {"default": Queue(max_concurrency=2)}
        async with Durable(of, now=now, suspend_after_s=0.5) as durable:
            await Worker(durable, agents=[clerk(world)], max_concurrency=3, queues=queues).run()

    async with Durable(process(), now=now) as durable:
        handles = [await durable.start(clerk(world), f"{n}") for n in range(N_RUNS)]
        workers = [(each := process(), asyncio.create_task(working(each))) for _ in range(3)]
        approving = asyncio.create_task(_approve(durable))
        ending = asyncio.create_task(_all_done(handles))
        for _ in range(N_DEATHS):
            await asyncio.wait({ending}, timeout=random.uniform(0.5, 20))
            killed, task = workers.pop(random.randrange(3))
            killed.kill()
            task.cancel()
            await asyncio.wait({task})
            workers.append((each := process(), asyncio.create_task(working(each))))
        await asyncio.wait_for(ending, 3_600)
        approving.cancel()
        for _, task in workers:
            task.cancel()
        await asyncio.wait({approving, *[task for _, task in workers]})
        assert [(await each.info()).status for each in handles] == ["done"] * N_RUNS
    assert done_twice(world) == []


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.5), st.floats(0, 0.4))
def test_every_run_ends_once_whatever_becomes_of_its_tickets(seed: int, losing: float, repeating: float) -> None:  # D9
    on_virtual_clock(lambda: _live(seed, losing, repeating))


def test_a_run_that_is_driven_for_too_long_goes_on_by_another_ticket_between_two_steps() -> None:
    world = World(random=Random(3), slowest_s=2.0)

    async def live() -> None:
        random, memory = Random(3), Memory()
        engine = TicketedEngine(memory, Malicious(random, 0.0, 0.0, drive_s=3.0))
        calls = [do("once", f"{n}") for n in range(8)]
        agent = Agent(name="clerk", model=following(*calls, "Done."), tools=world.tools())
        async with Durable(engine, now=lambda: START + asyncio.get_running_loop().time()) as durable:
            handle = await durable.start(agent, "Go.")
            working = asyncio.create_task(Worker(durable, agents=[agent]).run())
            assert (await asyncio.wait_for(handle.result(), 600)).unwrap() == "Done."
            assert (await handle.info()).leases > 2
            working.cancel()
            await asyncio.wait({working})

    on_virtual_clock(live)
    assert sorted(world.done) == [f"{n}" for n in range(8)]

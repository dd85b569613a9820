"""Anything that can be done to background work, in any order: each task ends once and is told of once, each message is
read or accounted for, waiting always returns, and nothing survives."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman import Tasks
from journeyman.events import Delivery, Event, TaskEnded, TaskKind, TaskStarted
from journeyman.tools.background import TaskContext
from tests.play import Recorder, existing, on_virtual_clock
from tests.tasks.works import Told

KINDS: tuple[TaskKind, ...] = ("tool", "agent", "shell", "member")
ENDINGS = ("return", "raise", "leak")


@dataclass(frozen=True)
class Plan:
    """How one piece of work goes: how long, whether it reads, how it takes a stop, what it starts, how it ends."""

    kind: TaskKind
    steps: int
    reads: bool
    takes_stop: str
    children: int
    ending: str


PLANS = st.builds(
    Plan,
    kind=st.sampled_from(KINDS),
    steps=st.integers(0, 4),
    reads=st.booleans(),
    takes_stop=st.sampled_from(["falls", "heeds", "finishes", "ignores"]),
    children=st.sampled_from([0, 0, 1, 2]),
    ending=st.sampled_from(ENDINGS),
)
ACTS = st.tuples(
    st.sampled_from(["start", "start", "message", "message", "stop", "stop_all", "sleep", "sleep", "wait"]),
    st.integers(0, 5),
    PLANS,
)


@dataclass
class World:
    """Some tasks, and all that was said to them and read by them."""

    tasks: Tasks
    read: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sent: dict[str, dict[str, Delivery]] = field(default_factory=dict[str, dict[str, Delivery]])
    n_sent: int = 0

    def begin(self, plan: Plan) -> None:
        async def work(task: TaskContext) -> str:
            return await self.go_through(plan, task)

        self.tasks.start(work, description="work", kind=plan.kind)

    async def go_through(self, plan: Plan, task: TaskContext) -> str:
        told = asyncio.Event()
        if plan.takes_stop in ("heeds", "finishes"):
            task.abort.subscribe(told.set)
        for step in range(plan.steps):
            await self.one_step(plan, told)
            if told.is_set() and plan.takes_stop == "heeds":
                raise RuntimeError("told to stop")
            if plan.reads:
                self.take(task)
            if step < plan.children:
                self.begin(Plan("tool", 2, True, "falls", 0, "return"))
        if plan.reads and task.inbox.pick_up():
            self.read.setdefault(task.id, []).extend(text.text for text in task.inbox.hand_over())
        if plan.ending == "raise":
            raise ValueError("sand")
        if plan.ending == "leak":
            raise asyncio.CancelledError
        return "done"

    async def one_step(self, plan: Plan, told: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(1):
                await told.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if plan.takes_stop != "ignores":
                raise

    def take(self, task: TaskContext) -> None:
        self.read.setdefault(task.id, []).extend(text.text for text in task.inbox.take_steering())

    async def act(self, verb: str, n: int, plan: Plan) -> None:
        ids = [info.id for info in self.tasks.list()] or ["bg-0"]
        id = ids[n % len(ids)]
        match verb:
            case "start":
                self.begin(plan)
            case "message":
                self.n_sent += 1
                text = f"message {self.n_sent}"
                self.sent.setdefault(id, {})[text] = self.tasks.message(id, text)
            case "stop":
                was_running = id != "bg-0" and self.tasks.get(id).is_running
                assert self.tasks.stop(id) is was_running
            case "stop_all":
                n_running = sum(info.is_running for info in self.tasks.list())
                assert self.tasks.stop_all() == n_running
            case "sleep":
                await asyncio.sleep(n * 0.5)
            case _:
                await self.tasks.wait()
                assert self.tasks.active == ()


@settings(max_examples=150, deadline=None)
@given(acts=st.lists(ACTS, max_size=25), leaves=st.sampled_from(["leaves", "waits", "is cancelled"]))
def test_every_task_ends_once_and_every_message_is_accounted_for(
    acts: list[tuple[str, int, Plan]], leaves: str
) -> None:
    told, recorder = Told(), Recorder()

    async def whole() -> World:
        world = World(Tasks(notify=told, on_event=recorder, grace_s=2))
        async with world.tasks:
            for verb, n, plan in acts:
                await world.act(verb, n, plan)
            if leaves == "waits":
                await world.tasks.wait()
            if leaves == "is cancelled":
                current = existing(asyncio.current_task())
                asyncio.get_running_loop().call_later(1.5, current.cancel)
                try:
                    await asyncio.sleep(3)
                except asyncio.CancelledError:
                    current.uncancel()
        return world

    world = on_virtual_clock(whole)  # no task survives, and nothing waits for ever
    infos = world.tasks.list()
    assert world.tasks.active == ()
    assert all(not info.is_running and info.ended is not None for info in infos)
    assert sorted(told.ids) == sorted(info.id for info in infos)
    assert _told_once(recorder.events, [info.id for info in infos])
    for info in infos:
        assert (info.result is not None) == (info.status == "completed")
        queued = [text for text, delivery in world.sent.get(info.id, {}).items() if delivery == "queued"]
        assert [*world.read.get(info.id, []), *info.undelivered] == queued
        if info.kind == "shell":
            assert queued == []


def _told_once(events: list[Event], ids: list[str]) -> bool:
    started = [event.info.id for event in events if isinstance(event, TaskStarted)]
    ended = [event.info.id for event in events if isinstance(event, TaskEnded)]
    return started == ids and sorted(ended) == sorted(ids)

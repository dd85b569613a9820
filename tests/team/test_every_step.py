"""Whatever happens to a team at whatever step: mail ends delivered or as a dead letter, once, and everything ends."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, Tasks, Team
from journeyman.errors import TeamError
from journeyman.model import Request
from journeyman.team import TeamHooks, TeamSpawnRequest
from journeyman.team.members import LEADER
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.play import Recorder, existing
from tests.properties.examples import examples, patient
from tests.support.counting_loop import on_counting_loop, the_counting_loop
from tests.support.shares import thinned
from tests.team.members import MAIL, fates

NAMES = ("ada", "max", "eve")

What: TypeAlias = Literal["stop", "cancel", "shut down", "shut down at once", "respawn", "write", "delete", "read"]
WHATS: tuple[What, ...] = ("stop", "cancel", "shut down", "shut down at once", "respawn", "write", "delete", "read")

GRACE_S, FORCE_S = 4.0, 2.0
END_S = 60.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens to whom before which step."""

    step: int
    what: What
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the members do: how often each writes to whom, and how long a model call takes."""

    writes: tuple[tuple[str, str], ...]
    """Sender and addressee, in order."""
    slow_s: float
    disturbances: tuple[Disturbance, ...] = ()
    picks_one: bool = False


@dataclass(slots=True)
class Site:
    """One run of a plan, and what was seen of it."""

    plan: Plan
    recorder: Recorder = field(default_factory=Recorder)
    requests: list[Request] = field(default_factory=list[Request])
    failures: list[BaseException] = field(default_factory=list[BaseException])
    acts: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    shutdowns_s: list[float] = field(default_factory=list[float])
    """How long each took."""
    is_over: bool = False
    """True when the steps that follow are the event loop's own."""

    async def run(self) -> None:
        """Let the team work until nobody has anything left to do, or its time is over."""
        loop = existing(the_counting_loop())
        hooks = TeamHooks(pick=(lambda waiting: waiting[:1]) if self.plan.picks_one else None)
        async with Tasks() as tasks, Team("crew", tasks=tasks, hooks=hooks, on_event=self.recorder) as team:
            loop.count_from_here()
            for disturbance in self.plan.disturbances:
                loop.before_step(disturbance.step, self._act(disturbance, team, tasks))
            for name in NAMES:
                await self._join(team, name)
            await self._lead(team)
        while self.acts:
            await self.acts.pop()
        self.is_over = True

    async def _lead(self, team: Team) -> None:
        try:
            async with asyncio.timeout(END_S):
                while await team.news():
                    await team.receive()
        except (TimeoutError, TeamError):  # a team that was deleted has no mail
            return

    async def _join(self, team: Team, name: str) -> None:
        try:
            agent = Agent(name="scout", model=FunctionModel(lambda request: self._answer(name, request)))
            await team.spawn(TeamSpawnRequest(agent=agent, prompt="Begin.", name=name))
        except TeamError:
            return

    async def _answer(self, name: str, request: Request) -> Answer:
        self.requests.append(request)
        await asyncio.sleep(self.plan.slow_s)
        mine = [to for sender, to in self.plan.writes if sender == name]
        said = sum(len(message.tool_uses) for message in request.messages)
        if said < len(mine):
            return call("send_message", id=f"{said}", to=mine[said], message=f"{name} {said}")
        return "Done."

    def _act(self, disturbance: Disturbance, team: Team, tasks: Tasks) -> Callable[[], object]:
        def act() -> None:
            match disturbance.what:
                case _ if self.is_over:
                    return
                case "stop":
                    member = next((each for each in team.roster().members if each.name == disturbance.name), None)
                    if member is not None and member.liveness != "gone":
                        tasks.stop(member.task_id)
                case "cancel":
                    for task in asyncio.all_tasks():
                        if task.get_name() == f"turn of chat {disturbance.name}":
                            task.cancel()
                case _:
                    self.acts.append(asyncio.get_running_loop().create_task(self._later(disturbance, team)))

        return act

    async def _later(self, disturbance: Disturbance, team: Team) -> None:
        try:
            await self._disturb(disturbance, team)
        except TeamError:  # the team was deleted meanwhile, or there is no such member
            return

    async def _disturb(self, disturbance: Disturbance, team: Team) -> None:
        clock, name = asyncio.get_running_loop().time, disturbance.name
        began = clock()
        match disturbance.what:
            case "shut down":
                await team.shutdown(name, grace_s=GRACE_S, force_s=FORCE_S)
                self.shutdowns_s.append(clock() - began)
            case "shut down at once":
                await team.shutdown(grace_s=0.0, force_s=FORCE_S)
                self.shutdowns_s.append(clock() - began)
            case "respawn":
                await team.shutdown(name, grace_s=0.0, force_s=FORCE_S)
                await self._join(team, name)
            case "write":
                team.send(name, "From outside.", incarnation=1)
            case "delete":
                await team.delete()
            case "read":
                await team.receive(timeout_s=1.0) if team.roster().n_waiting else ()
            case _:
                raise AssertionError(disturbance)


def check(site: Site) -> None:
    """Say what must hold, whatever happened."""
    wrong = {id: ends for id, ends in fates(site.recorder).items() if len(ends) != 1}
    assert not wrong, f"Mail that did not end delivered or as a dead letter, exactly once: {wrong}"
    for request in site.requests:
        said = Counter([found[2] for message in request.messages for found in MAIL.finditer(message.text) if found[2]])
        twice = [id for id, n in said.items() if n > 1]
        assert not twice, f"Mail that was said twice in a conversation: {twice}"
    late = [seconds for seconds in site.shutdowns_s if seconds > GRACE_S + FORCE_S + 1e-9]
    assert not late, f"Shutdowns that took longer than they may: {late}"


WRITES: Sequence[tuple[str, str]] = (
    ("ada", "max"),
    ("ada", "*"),
    ("max", "eve"),
    ("ada", LEADER),
    ("ada", "eve"),  # which is idle: this begins a turn
    ("max", "ada"),
)

pytestmark = patient


async def run_checked(plan: Plan) -> int:
    """Run a plan, check it, and return how many steps it had."""
    before = asyncio.all_tasks()
    site = Site(plan)
    await site.run()
    loop = existing(the_counting_loop())
    steps = loop.steps
    check(site)
    left = asyncio.all_tasks() - before
    assert not left, f"Tasks were left behind: {left}"
    timers = [timer for timer in loop.pending_timers() if "Event.set" not in repr(timer)]
    assert not timers, f"Timers were left behind: {timers}"
    return steps


@pytest.mark.fuzz
@pytest.mark.parametrize("what", WHATS)
def test_something_happens_before_every_step(what: What) -> None:  # S3, S16.6
    async def scenario() -> int:
        steps = await run_checked(Plan(writes=tuple(WRITES), slow_s=1.0))
        names, one_in = (NAMES, 25) if what in ("stop", "cancel") else (NAMES[-1:], 16)
        for step, name in thinned([*product(range(1, steps + 1), names)], one_in, first=WHATS.index(what)):
            await run_checked(Plan(writes=tuple(WRITES), slow_s=1.0, disturbances=(Disturbance(step, what, name),)))
        return steps

    assert on_counting_loop(scenario) > 50


addressees = st.sampled_from([*NAMES, "*", LEADER])
disturbances = st.builds(Disturbance, st.integers(1, 100), st.sampled_from(WHATS), st.sampled_from(NAMES))
plans = st.builds(
    Plan,
    writes=st.lists(st.tuples(st.sampled_from(NAMES), addressees), max_size=8).map(tuple),
    slow_s=st.sampled_from([0.0, 1.0]),
    disturbances=st.lists(disturbances, max_size=5).map(tuple),
    picks_one=st.booleans(),
)


@pytest.mark.fuzz
@examples(one_in=2)
@given(plan=plans)
def test_anything_happens_at_any_step(plan: Plan) -> None:
    on_counting_loop(lambda: run_checked(plan))

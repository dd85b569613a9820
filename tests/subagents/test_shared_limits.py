"""However many sub-agents spend at the same time, whatever they cost, and whenever they are stopped: the limit of the
run above holds for all of them together."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from journeyman import Abort, Agent, Limits, ModelSettings, Result, Subagents, Usage, run
from journeyman.model import Request, Response
from journeyman.testing.scripted import FunctionModel, call, say
from tests.play import existing, look
from tests.properties.examples import examples, patient
from tests.support.counting_loop import on_counting_loop

pytestmark = patient

N_CHILDREN = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of a child: how long it takes, and the part of the allowed length that it reports."""

    takes_s: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A lead with a limit, and what its eight children do."""

    limit: int
    max_tokens: int
    concurrency: int
    children: tuple[tuple[Turn, ...], ...]
    seconds: float | None
    aborted_after_s: float | None


@dataclass(slots=True)
class Played:
    """What was reported, kept by hand."""

    usages: list[Usage] = field(default_factory=list[Usage])
    surplus: int = 0

    def report(self, request: Request, share: float) -> Usage:
        """Return what one answer used."""
        allowed = request.max_tokens or 0
        usage = Usage(requests=1, input_tokens=1, output_tokens=max(1, round(allowed * share)))
        self.usages.append(usage)
        self.surplus += max(0, usage.output_tokens - allowed)
        return usage


def worlds(shares: SearchStrategy[float]) -> SearchStrategy[World]:
    turns = st.builds(Turn, st.sampled_from([0.0, 0.1, 0.5, 2.0]), shares)
    child = st.lists(turns, min_size=1, max_size=4).map(tuple)
    moments = st.one_of(st.none(), st.none(), st.sampled_from([0.05, 0.3, 1.0, 3.0]))
    return st.builds(
        World,
        limit=st.integers(600, 20_000),
        max_tokens=st.sampled_from([64, 256, 1_000, 4_000]),
        concurrency=st.sampled_from([1, 4, 8]),
        children=st.lists(child, min_size=N_CHILDREN, max_size=N_CHILDREN).map(tuple),
        seconds=moments,
        aborted_after_s=moments,
    )


def child(number: int, world: World, played: Played) -> Agent:
    """Return a child that looks in every turn but the last."""
    turns = world.children[number]

    async def answer(request: Request) -> Response:
        n = len(request.messages) // 2
        await asyncio.sleep(turns[n].takes_s)
        blocks = ["found"] if n == len(turns) - 1 else [call("look", id=f"look_{n}")]
        return say(*blocks, usage=played.report(request, turns[n].share))

    settings = ModelSettings(max_tokens=world.max_tokens)
    return Agent(name=f"child_{number}", model=FunctionModel(answer), tools=[look], settings=settings)


async def play(world: World) -> tuple[Result[str], Played]:
    """Let a lead send out all children at once."""
    played = Played()

    def answer(request: Request) -> Response:
        tasks = [{"agent": f"child_{number}", "task": "look"} for number in range(N_CHILDREN)]
        blocks = ["done"] if len(request.messages) > 1 else [call("subagent", tasks=tasks, id="s")]
        return say(*blocks, usage=played.report(request, 0.1))

    crew = Subagents(*[child(n, world, played) for n in range(N_CHILDREN)], max_concurrency=world.concurrency)
    limits, settings = Limits(tokens=world.limit, seconds=world.seconds), ModelSettings(max_tokens=100)
    agent = Agent(name="lead", model=FunctionModel(answer), tools=[crew], limits=limits, settings=settings)
    abort = Abort()
    if world.aborted_after_s is not None:
        asyncio.get_running_loop().call_later(world.aborted_after_s, abort.abort)
    before = asyncio.all_tasks()
    result = await run(agent, "Go.", abort=abort)
    assert asyncio.all_tasks() == before
    return result, played


WITHIN, BEYOND = st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 1.0, 1.5, 3.0])


@examples()
@given(worlds(WITHIN) | worlds(BEYOND))
def test_what_exceeds_the_limit_that_eight_children_share_is_at_most_the_reported_surplus_and_is_reported(
    world: World,
) -> None:  # 4.7; without a surplus nothing exceeds it
    result, played = on_counting_loop(lambda: play(world))
    usage = check_exact(result, played)
    assert usage.total_tokens <= world.limit + result.metadata.overshoot_tokens
    assert result.metadata.overshoot_tokens <= played.surplus


def check_exact(result: Result[str], played: Played) -> Usage:
    """What the lead reports is what was reported to it and to its children, no more and no less."""
    usage = existing(result.metadata.usage)
    assert usage.output_tokens == sum(each.output_tokens for each in played.usages)
    in_flight = usage.requests - len(played.usages)  # requests that were stopped before they told anything
    assert in_flight == 0 if usage.exact else in_flight > 0
    return usage

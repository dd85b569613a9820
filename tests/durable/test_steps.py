"""A run lives several times, and comes out as if it had lived once."""

import asyncio
from random import Random
from typing import Any

import pytest

from journeyman import Agent, Limits, ModelSettings, Result, Subagents, Usage
from journeyman.durable import Durable, Worker
from journeyman.durable.records import BEGUN, DONE
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Effect, Price
from tests.durable.processes import Stage, a_cut, found
from tests.durable.worlds import UNKNOWN, World, do, done_twice, nested
from tests.play import existing, failed, following, n_answers, succeeded, texts, virtual_clock


async def lived(stage: Stage, agent: Agent[Any, Any], world: World, *, seed: int, longest_s: float) -> Result[Any]:
    """Let a run die at random moments, until it ends."""
    random = Random(seed)
    for _ in range(60):
        world.lives_on()
        dying = asyncio.get_running_loop().call_later(random.uniform(0.0, longest_s), world.reached.set)
        result = await stage.life(agent, until=world.reached)
        dying.cancel()
        if result is not None:
            return result
    raise AssertionError("the run has not ended after 60 lives")


def without_unknown(told: list[str], expected: list[str]) -> list[str]:
    """Return what a model has read, with what is unknown to it replaced by what it would have read."""
    assert len(told) == len(expected), told
    return [right if UNKNOWN in each else each for each, right in zip(told, expected, strict=True)]


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("seed", range(6))
@virtual_clock
async def test_parallel_calls_are_each_stored_under_their_own_step_however_long_they_take(
    stage: Stage, seed: int
) -> None:
    # K2
    world = World(random=Random(seed), slowest_s=1.0)
    answers: list[Answer] = [
        [do("pure", "p1"), do("once", "o1"), do("idempotent", "i1"), do("once", "o2"), do("pure", "p2")],
        [do("idempotent", "i2"), do("once", "o3"), do("pure", "p3"), do("once", "o4")],
        "Done.",
    ]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    result = succeeded(await lived(stage, agent, world, seed=seed, longest_s=4.0))
    expected = [f"did {what}" for what in ("p1", "o1", "i1", "o2", "p2", "i2", "o3", "p3", "o4")]
    assert without_unknown(texts(result), expected) == expected
    assert [what for what in done_twice(world) if what.startswith("o")] == []


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("seed", range(4))
@virtual_clock
async def test_sub_agents_five_levels_deep_go_on_where_they_were(stage: Stage, seed: int) -> None:
    # K3
    world = World(random=Random(seed), slowest_s=0.5)
    agent = nested(world, 5)
    result = succeeded(await lived(stage, agent, world, seed=seed, longest_s=9.0))
    assert result.output == "Done."
    assert [what for what in done_twice(world) if what.endswith("before")] == []
    undisturbed = World()
    async with stage.durable() as durable:
        alone = succeeded(await durable.run(nested(undisturbed, 5), "Go.", id="undisturbed"))
    assert set(undisturbed.done) >= set(world.done)
    missing = {what for what in undisturbed.done if what not in world.done}
    assert {what for what in missing if not what.endswith("before")} == set(), "only of `once` an effect may be lost"
    assert without_unknown(texts(result), texts(alone)) == texts(alone)


@pytest.mark.parametrize("when", ["before", "after"])
@virtual_clock
async def test_a_call_that_was_begun_is_unknown_in_every_later_life(stage: Stage, when: str) -> None:
    # K4
    world = World(dies_in="A" if when == "before" else "", dies_after="A" if when == "after" else "")
    answers: list[Answer] = [do("once", "A"), do("once", "B"), do("once", "C"), "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    world.dies_in = "C"
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    result = await stage.life(agent)
    told = texts(result)
    assert UNKNOWN in told[0]
    assert told[1] == "did B"
    assert UNKNOWN in told[2]
    assert world.done == ["A", "B"] if when == "after" else ["B"]
    again = existing(await stage.life(agent))
    assert texts(again) == told


@virtual_clock
async def test_what_is_done_is_stored_and_what_is_pure_or_idempotent_is_done_again(stage: Stage) -> None:
    # K4
    world = World(dies_after="P I")
    answers: list[Answer] = [do("once", "A"), [do("pure", "P"), do("idempotent", "I")], "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    assert texts(await stage.life(agent)) == ["did A", "did P", "did I"]
    assert world.done.count("A") == 1
    async with stage.durable() as durable:
        records = await (await durable.get("run")).records()
    kinds = [(each.key, each.state) for each in records if each.effect == "once"]
    assert kinds == [("attempt/1/iteration/1/call/A", BEGUN), ("attempt/1/iteration/1/call/A", DONE)]
    assert [each.state for each in records if each.effect != "once"].count(BEGUN) == 0


@pytest.mark.parametrize("id", ["a/b", "a/state", "x\ny", "../..", "a/approval/1/ff", "é 🎉", "a" * 300])
@virtual_clock
async def test_a_call_may_have_any_id(stage: Stage, id: str) -> None:
    world = World(dies_in="B")
    answers: list[Answer] = [call("once", what="A", id=id), do("idempotent", "B"), "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    assert texts(await stage.life(agent)) == ["did A", "did B"]
    assert world.done == ["A", "B"]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
@virtual_clock
async def test_what_a_fenced_life_writes_late_is_neither_lost_nor_done_twice(stage: Stage, effect: Effect) -> None:
    # K7
    world = World()
    agent = Agent(name="clerk", model=following(do(effect, "A"), do("once", "B"), "Done."), tools=world.tools())
    sleeper = stage.process()
    asleep, wakes = asyncio.Event(), asyncio.Event()

    async def sleep(name: str) -> None:
        if name == "write" and "A" in world.done:
            asleep.set()
            await wakes.wait()

    sleeper.before = sleep
    async with Durable(sleeper, now=stage.now) as durable, stage.durable() as other:
        sleeping = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await asleep.wait()
        result = succeeded(await other.resume("run", agent, steal=True))
        wakes.set()
        late = succeeded(await sleeping)
    assert texts(late) == texts(result), "who was fenced waits for the end, and returns it"
    told = texts(result)
    assert told[1] == "did B"
    assert (UNKNOWN in told[0], world.done.count("A")) == ((True, 1) if effect == "once" else (False, 2))
    assert world.done.count("B") == 1


@virtual_clock
async def test_a_write_whose_answer_was_lost_counts(stage: Stage) -> None:
    """It is written again, is there already, and the call is made once."""
    world, process = World(), stage.process()
    lost = set[str]()
    agent = Agent(name="clerk", model=following(do("once", "A"), do("pure", "B"), "Done."), tools=world.tools())

    async def lose(name: str) -> None:
        records = await process.engine.records((await found(process.engine, "run")).id) if name == "write" else ()
        newest = f"{records[-1].key} {records[-1].state}" if records else ""
        if name == "write" and newest not in lost:
            lost.add(newest)
            raise a_cut()

    process.after = lose
    result = await stage.life(agent, process=process)
    assert texts(result) == ["did A", "did B"]
    assert world.done == ["A", "B"]
    assert len(lost) == 7, "the head, two calls, that one was begun, three answers"


@virtual_clock
async def test_what_was_said_is_said_once_over_five_lives(stage: Stage) -> None:
    # K11
    world = World()
    answers: list[Answer] = [*[do("idempotent", str(n)) for n in range(6)], "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    for n in range(5):
        world.lives_on()
        world.dies_in = str(n)
        assert await stage.life(agent, until=world.reached) is None
        async with stage.durable() as durable:
            await (await durable.get("run")).steer(f"word {n}")
    world.lives_on()
    result = existing(await stage.life(agent))
    said = [block.text for message in result.history for block in message.content if block.type == "text"]
    assert [text for text in said if text.startswith("word")] == [f"word {n}" for n in range(5)]


def a_tired_agent(world: World, **limits: Any) -> Agent[str, str]:
    """Return an agent whose run goes on until a limit ends it."""
    usage = Usage(requests=1, input_tokens=100, output_tokens=50, cost=0.25)

    def answer(request: Any) -> Answer:  # noqa: ANN401 - of a model
        n = n_answers(request)
        return say(do("idempotent", f"c{n}"), usage=usage)

    model = FunctionModel(answer, price=Price(input=1_000.0, output=3_000.0))
    return Agent(name="clerk", model=model, tools=world.tools(), limits=Limits(iterations=30, **limits))


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("n_lives", range(1, 7))
@pytest.mark.parametrize("limits", [{"tokens": 1_700}, {"cost": 2.0}, {"calls": 5}, {}], ids=str)
@virtual_clock
async def test_what_a_run_uses_and_where_its_limits_end_it_is_the_same_in_any_number_of_lives(
    stage: Stage, n_lives: int, limits: dict[str, Any]
) -> None:
    # K14
    world = World()
    async with stage.durable() as durable:
        expected = failed(await durable.run(a_tired_agent(world, **limits), "Go.", id="undisturbed"))
    for n in range(n_lives - 1):
        world.lives_on()
        world.dies_in = f"c{n}"
        assert await stage.life(a_tired_agent(world, **limits), until=world.reached) is None
    world.lives_on()
    result = failed(await stage.life(a_tired_agent(world, **limits)))
    assert (result.code, result.metadata.usage) == (expected.code, expected.metadata.usage)
    assert texts(result) == texts(expected)
    async with stage.durable() as durable:
        row, other = (await durable.get("run")), (await durable.get("undisturbed"))
        seen, right = await row.info(), await other.info()
    assert (seen.tokens, seen.cost, seen.iteration) == (right.tokens, right.cost, right.iteration)
    assert seen.leases == n_lives


class Asked:
    """A model whose calls take a while, in which lives may end."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.used = 0
        """How many tokens its calls use, of which the life that ends in them learns nothing."""

    async def answer(self, request: Request) -> Answer:
        self.used += request.max_tokens or 0
        self.asked.set()
        await asyncio.sleep(5)
        return say("Done.")

    def agent(self, **fields: Any) -> Agent[Any, Any]:
        settings = ModelSettings(max_tokens=1_000)
        given: dict[str, Any] = {"name": "clerk", "model": FunctionModel(self.answer), "settings": settings, **fields}
        return Agent(**given)


@virtual_clock
async def test_a_run_that_dies_again_and_again_in_its_model_calls_overspends_by_one_answer_at_most(
    stage: Stage,
) -> None:
    model = Asked()
    agent, ended, n_deaths = model.agent(limits=Limits(tokens=5_000)), None, -1
    while ended is None:
        n_deaths += 1
        model.asked.clear()
        ended = await stage.life(agent, until=model.asked)
    assert (n_deaths, failed(ended).code) == (6, "BUDGET_EXCEEDED")
    assert 4_000 < model.used <= 6_000
    assert ended.metadata.usage == Usage(requests=5, exact=False), "of all but the first"


@virtual_clock
async def test_a_call_that_was_waited_for_or_has_not_begun_counts_nothing_more(stage: Stage) -> None:
    model = Asked()
    agent, world = model.agent(limits=Limits(tokens=5_000)), World()
    for n in range(3):
        model.asked.clear()
        async with stage.durable() as durable:
            handle = await durable.start(agent, "Go.", id=f"run{n}")
            worker = asyncio.create_task(Worker(durable, agents=[agent]).run(until_idle=True))
            await model.asked.wait()
            await handle.hold()
            await worker
            await handle.release()
            await Worker(durable, agents=[agent]).run(until_idle=True)
            assert succeeded(await handle.result()).metadata.usage == Usage(
                requests=1, input_tokens=10, output_tokens=5
            )
    dying = Agent(name="clerk", model=following(do("pure", "A"), "Done."), tools=world.tools(), limits=agent.limits)
    for _ in range(9):
        world.lives_on()
        world.dies_in = "A"
        assert await stage.life(dying, until=world.reached) is None
    world.lives_on()
    usage = succeeded(await stage.life(dying)).metadata.usage
    assert existing(usage).exact


@virtual_clock
async def test_a_call_below_that_dies_counts_also_where_another_run_gets_on_meanwhile(stage: Stage) -> None:
    world, slow = World(), Asked()
    calls: list[Answer] = [*[do("idempotent", f"c{n}") for n in range(6)], "Done."]
    quick = Agent(name="quick", description="Does.", model=following(*calls), tools=world.tools())
    tasks = [{"agent": name, "task": "Go."} for name in ("quick", "slow")]
    lead = Agent(
        name="lead",
        model=following(call("subagent", tasks=tasks, id="both"), "Done."),
        tools=[Subagents(quick, slow.agent(name="slow", description="Answers."))],
        limits=Limits(tokens=50_000),
    )
    for n in range(6):
        world.lives_on()
        world.dies_in = f"c{n}"
        assert await stage.life(lead, until=world.reached) is None
    world.lives_on()
    usage = existing(succeeded(await stage.life(lead)).metadata.usage)
    async with stage.durable() as durable:
        alone = existing(succeeded(await durable.run(lead, "Go.", id="undisturbed")).metadata.usage)
    assert usage == Usage.total([alone, *[Usage(requests=1, exact=False)] * 5])


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("n_lives", range(1, 7))
@virtual_clock
async def test_a_deadline_counts_the_work_of_all_lives_and_not_the_time_between(stage: Stage, n_lives: int) -> None:
    # K14
    world = World(random=Fives(), slowest_s=5.0)
    agent = a_tired_agent(world, seconds=95)
    for n in range(n_lives - 1):
        world.lives_on()
        world.dies_in = f"c{n}"
        assert await stage.life(agent, until=world.reached) is None
        stage.skipped_s += 5_000
    world.lives_on()
    result = failed(await stage.life(agent))
    assert result.code == "BUDGET_EXCEEDED"
    assert len([text for text in texts(result) if text.startswith("did")]) == 9


class Fives(Random):
    """Every number is the largest that it may be."""

    def uniform(self, a: float, b: float) -> float:
        return b

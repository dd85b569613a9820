"""Budgets: what a run and its attempts may spend, and how a run ends that may spend no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from journeyman import (
    Agent,
    Allowance,
    Budget,
    Exceeded,
    Host,
    Limits,
    Output,
    Price,
    ProviderError,
    Settings,
    Spent,
    run,
    tool,
)
from journeyman.endings import BudgetContext, ModelUnavailableContext
from journeyman.model import Request
from journeyman.models.scripted import Answer, Scripted, call, say
from journeyman.types import Usage
from tests.loop.players import Report, context_of, failed, look, place_of, report, small, succeeded
from tests.support.clock import virtual_clock
from tests.support.recorder import Recorder, calls, check_balance, transcript
from tests.support.stage import Stage

USED_900 = Usage(requests=1, input_tokens=400, output_tokens=500)


# -- tokens ------------------------------------------------------------------------------------------------------------


async def test_a_token_budget_ends_the_run_before_the_next_call(stage: Stage) -> None:  # R79, A39
    model = stage.model([say(call("look", id="a"), usage=USED_900), "never"])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[look], limits=Limits(tokens=1_000))
    result = await run(agent, "Go.", on_event=recorder)
    assert failed(result).code == "BUDGET_EXCEEDED"
    assert (context_of(result, BudgetContext), place_of(result)) == (
        BudgetContext(policy="tokens", limit=1_000, used=900, scope="run"),
        (1, 2),
    )
    assert failed(result).error.message == "The run's tokens budget is used up: 900 of 1000."
    assert failed(result).phase == "iteration"
    assert stage.n_requests == 1
    assert transcript(failed(result).history)[-1] == ("user", "#a: found here")
    check_balance(recorder.events)


async def test_the_answer_may_be_as_long_as_the_budget_allows(stage: Stage) -> None:  # R79, design 4.7
    model = stage.model([say(call("look"), usage=USED_900), "Done."])
    settings, limits = Settings(max_tokens=4_000), Limits(tokens=10_000)
    agent = Agent(name="tester", model=model, tools=[look], limits=limits, settings=settings)
    assert succeeded(await run(agent, "Go."))
    assert stage.requests[0].max_tokens == 4_000
    model = stage.model([say(call("look"), usage=USED_900), "Done."])
    limits = Limits(tokens=2_400)
    agent = Agent(name="tester", model=model, tools=[look], limits=limits, settings=settings)
    assert succeeded(await run(agent, "Go."))
    first, second = (stage.requests[n].max_tokens or 0 for n in (2, 3))
    assert 2_200 < first < 2_400
    assert 500 < second < 2_400 - 900 - 900


async def test_a_last_answer_beyond_the_budget_is_still_validated(stage: Stage) -> None:  # A39
    model = stage.model([say(report(), usage=Usage(requests=1, input_tokens=2_000, output_tokens=500))])
    agent = Agent(name="tester", model=model, output=Output(Report), limits=Limits(tokens=1_000))
    result = succeeded(await run(agent, "Go."))
    assert result.output == Report(total=3)
    assert result.metadata.overshoot_tokens > 0


@pytest.mark.parametrize("per_attempt", [False, True])
async def test_a_budget_is_the_runs_or_each_attempts(stage: Stage, per_attempt: bool) -> None:  # R79
    answers = [say(call("look"), usage=USED_900), say(report(7), usage=USED_900)]
    model = stage.model([*answers, say(call("look"), usage=USED_900), say(report(2, id="o2"), usage=USED_900)])
    limits = Limits(each_attempt=Allowance(tokens=2_400)) if per_attempt else Limits(tokens=2_400)
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), validators=[small], limits=limits)
    result = await run(agent, "Go.")
    if per_attempt:
        assert succeeded(result).output == Report(total=2)
    else:
        assert context_of(result, BudgetContext).scope == "run"
        assert stage.n_requests == 2


async def test_an_attempts_budget_is_named_as_such(stage: Stage) -> None:  # R79
    model = stage.model([say(call("look"), usage=USED_900)], repeat=True)
    limits = Limits(each_attempt=Allowance(tokens=1_000), tokens=1_000_000)
    result = await run(Agent(name="tester", model=model, tools=[look], limits=limits), "Go.")
    assert (context_of(result, BudgetContext), place_of(result)) == (
        BudgetContext(policy="tokens", limit=1_000, used=900, scope="attempt"),
        (1, 2),
    )


@virtual_clock
async def test_failed_requests_count_too() -> None:  # R79, A31
    broke = ProviderError("cut", kind="stream_cut", usage=USED_900)
    model = Scripted([broke, call("look"), "never"])
    agent = Agent(name="tester", model=model, tools=[look], limits=Limits(tokens=1_000), retries=1)
    assert context_of(await run(agent, "Go."), BudgetContext).used == 915


# -- money -------------------------------------------------------------------------------------------------------------


async def test_a_cost_budget_ends_the_run(stage: Stage) -> None:  # R79
    price = Price(input=1_000, output=1_000)  # a tenth of a cent for each token
    model = stage.model([say(call("look"), usage=USED_900)], repeat=True, price=price)
    agent = Agent(name="tester", model=model, tools=[look], limits=Limits(cost=1.0))
    result = await run(agent, "Go.")
    context = context_of(result, BudgetContext)
    assert (context.policy, context.limit, context.scope, failed(result).error.iteration) == ("cost", 1.0, "run", 2)
    assert context.used == pytest.approx(0.9)
    usage = failed(result).metadata.usage
    assert usage is not None
    assert usage.cost == pytest.approx(0.9)


async def test_a_cost_budget_needs_a_price(stage: Stage) -> None:  # R79
    agent = Agent(name="tester", model=stage.model(["Hello."]), limits=Limits(cost=1.0))
    result = await run(agent, "Go.")
    assert context_of(result, ModelUnavailableContext).reason == "its cost is limited, and it has no known price"
    assert stage.n_requests == 0


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_beyond_their_budget_are_answered_and_not_run(stage: Stage) -> None:  # R79, A44
    seen: list[str] = []

    @tool(thread=False)
    def note(word: str) -> str:
        seen.append(word)
        return word

    response = [*(call("note", word=word, id=word) for word in "abc"), call("fly", id="d"), report()]
    model = stage.model([response])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[note], output=Output(Report), limits=Limits(calls=2))
    result = await run(agent, "Go.", on_event=recorder)
    assert succeeded(result).output == Report(total=3)
    assert seen == ["a", "b"]
    assert transcript(result.history)[-1] == (
        "user",
        "#a: a",
        "#b: b",
        "#c! Error: not run: this run may make no more tool calls.",
        "#d! Error: Unknown tool fly",
        "#out: Accepted.",
    )
    check_balance(recorder.events)


async def test_each_attempt_may_have_calls_of_its_own(stage: Stage) -> None:  # R79
    model = stage.model(
        [[call("look", id="a"), call("look", id="b"), report(7)], [call("look", id="c"), report(2, id="o2")]]
    )
    recorder = Recorder()
    agent = Agent(
        name="tester",
        model=model,
        tools=[look],
        output=Output(Report),
        validators=[small],
        limits=Limits(each_attempt=Allowance(calls=1)),
    )
    assert succeeded(await run(agent, "Go.", on_event=recorder))
    finished = [line for line in calls(recorder.events) if line.startswith("look") and not line.endswith("?")]
    assert [line.split(" ")[0] for line in finished] == ["look#a:", "look#b!", "look#c:"]


# -- time --------------------------------------------------------------------------------------------------------------


@tool
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@virtual_clock
async def test_a_time_budget_bounds_a_call_in_flight() -> None:  # R79
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(100)
        return "Done."

    model = Scripted([call("nap", seconds=4), slow])
    start = asyncio.get_running_loop().time()
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[nap], limits=Limits(seconds=10))
    result = await run(agent, "Go.", on_event=recorder)
    assert (context_of(result, BudgetContext), place_of(result)) == (
        BudgetContext(policy="seconds", limit=10, used=10, scope="run"),
        (1, 2),
    )
    assert asyncio.get_running_loop().time() - start == 10
    check_balance(recorder.events)
    assert result.metadata.usage is not None
    assert not result.metadata.usage.exact


@virtual_clock
async def test_a_time_budget_bounds_a_tool() -> None:  # R79
    model = Scripted([call("nap", {"seconds": 100}, id="a"), "never"])
    result = await run(Agent(name="tester", model=model, tools=[nap], limits=Limits(seconds=10)), "Go.")
    assert context_of(result, BudgetContext).used == 10
    assert transcript(failed(result).history)[-1] == (
        "user",
        "#a! Error: the run was stopped before this call finished.",
    )
    assert result.metadata.tools["nap"].errors == {"interrupted": 1}


@virtual_clock
async def test_a_time_budget_bounds_prompts_and_validators() -> None:  # R79
    async def prompt(given: str) -> str:
        await asyncio.sleep(100)
        return given

    async def judge(report: Report) -> None:
        await asyncio.sleep(100)

    prompting = Agent(name="tester", model=Scripted(["Hello."]), prompt=prompt, limits=Limits(seconds=10))
    assert failed(await run(prompting, "Go.")).phase == "prompt_generation"
    judging = Agent(
        name="tester",
        model=Scripted([report()]),
        output=Output(Report),
        validators=[judge],
        limits=Limits(seconds=10),
    )
    result = failed(await run(judging, "Go."))
    assert (result.code, result.phase, result.candidate) == ("BUDGET_EXCEEDED", "validation", {"total": 3})


@virtual_clock
async def test_each_attempt_may_have_time_of_its_own() -> None:  # R79
    model = Scripted(
        [[call("nap", seconds=6), report(7)], [call("nap", seconds=6), report(8)], [call("nap", seconds=20), report(2)]]
    )
    agent = Agent(
        name="tester",
        model=model,
        tools=[nap],
        output=Output(Report),
        validators=[small],
        limits=Limits(each_attempt=Allowance(seconds=10)),
    )
    result = await run(agent, "Go.")
    facts = BudgetContext(policy="seconds", limit=10, used=10, scope="attempt")
    assert (context_of(result, BudgetContext), place_of(result)) == (facts, (3, 1))


@virtual_clock
async def test_time_does_not_run_while_somebody_else_runs() -> None:  # R79
    agent = Agent(name="tester", model=Scripted([call("nap", seconds=9), "Done."]), tools=[nap])
    timed = Agent(
        name="tester", model=Scripted([call("nap", seconds=9), "Done."]), tools=[nap], limits=Limits(seconds=10)
    )
    assert succeeded(await run(agent, "Go."))
    assert succeeded(await run(timed, "Go.")).metadata.latency_s == 9


# -- together, and of one's own ----------------------------------------------------------------------------------------


@dataclass
class Frugal:
    """Allows so many model calls in a run, all attempts together."""

    limit: int
    name: str = "frugal"

    def __post_init__(self) -> None:
        self.seen: list[Spent] = []

    def check(self, spent: Spent) -> Exceeded | None:
        self.seen.append(spent)
        return Exceeded(limit=self.limit, used=spent.iterations) if spent.iterations >= self.limit else None


async def test_a_policy_of_ones_own_is_asked_before_each_call(stage: Stage) -> None:  # R79
    policy = Frugal(3)
    model = stage.model([[call("look"), call("look")], report(7), call("look"), "never"])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), validators=[small], budget=[policy])
    result = await run(agent, "Go.")
    assert (context_of(result, BudgetContext), place_of(result)) == (
        BudgetContext(policy="frugal", limit=3, used=3, scope="run"),
        (2, 2),
    )
    assert [(spent.iterations, spent.calls, spent.attempt) for spent in policy.seen] == [
        (0, 0, 1),
        (1, 2, 1),
        (2, 3, 2),
        (3, 4, 2),
    ]
    assert [spent.usage.requests for spent in policy.seen] == [0, 1, 2, 3]
    assert stage.n_requests == 3


async def test_policies_compose_and_the_first_to_object_is_named(stage: Stage) -> None:  # R79
    model = stage.model([call("look")], repeat=True)
    agent = Agent(
        name="tester",
        model=model,
        tools=[look],
        budget=[Frugal(5, "patient"), Frugal(2, "hasty")],
        limits=Limits(iterations=10, tokens=1_000_000),
    )
    assert context_of(await run(agent, "Go."), BudgetContext).policy == "hasty"
    assert stage.n_requests == 2


async def test_a_budget_from_above_bounds_the_run(stage: Stage) -> None:  # R79, design 4.7
    shared = Budget(Allowance(tokens=1_000), scope="house", now=asyncio.get_running_loop().time())
    model = stage.model([say(call("look"), usage=USED_900)], repeat=True)
    agent = Agent(name="tester", model=model, tools=[look])
    result = await run(agent, "Go.", host=Host(budget=shared))
    assert context_of(result, BudgetContext).scope == "house"
    assert shared.tokens == 900


async def test_the_number_of_iterations_is_a_budget_of_its_own(stage: Stage) -> None:  # R79, R26, A10
    model = stage.model([call("look")], repeat=True)
    limits = Limits(iterations=3, tokens=1_000_000, calls=100)
    result = await run(Agent(name="tester", model=model, tools=[look], limits=limits), "Go.")
    assert failed(result).code == "MAX_ITERATIONS"
    assert stage.n_requests == 3

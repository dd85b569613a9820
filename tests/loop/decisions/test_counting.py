"""What counts as an iteration, an attempt, a call and a token, and what happens when a limit is met exactly."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from journeyman import (
    Abort,
    Agent,
    Allowance,
    ErrorCode,
    Exceeded,
    Limits,
    Observability,
    Output,
    ProviderError,
    Settings,
    Spent,
    Success,
    ToolContext,
    ToolResult,
    Usage,
    run,
    tool,
)
from journeyman import events as of
from journeyman.endings import BudgetContext, IterationsContext
from journeyman.models.scripted import call, say
from tests.loop.pitfalls.players import Report, failed, look, report, shown, small, submit
from tests.support.recorder import Recorder, check_balance
from tests.support.stage import Stage

# -- iterations and attempts -------------------------------------------------------------------------------------------


async def test_iterations_are_counted_from_one_in_each_attempt(stage: Stage) -> None:  # A10
    recorder, seen = Recorder(), list[tuple[int, int]]()

    @tool
    async def where(ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.iteration))
        return "here"

    model = stage.model([call("where"), call("where"), report(99), call("where"), report(98), report(1)])
    agent = Agent(name="a", model=model, tools=[where], output=Output(Report), validators=[small])
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert [(event.attempt, event.iteration) for event in recorder.of(of.IterationStarted)] == [
        *((1, 1), (1, 2), (1, 3)),
        *((2, 1), (2, 2)),
        (3, 1),
    ]
    assert seen == [(1, 1), (1, 2), (2, 1)]
    assert [(record.number, record.iterations) for record in result.metadata.attempts] == [(1, 3), (2, 2), (3, 1)]


async def test_a_run_makes_at_most_attempts_times_iterations_calls(stage: Stage) -> None:  # A10
    model = stage.model([call("look"), report(99)] * 3)
    agent = Agent(
        name="a",
        model=model,
        tools=[look],
        output=Output(Report),
        validators=[small],
        limits=Limits(attempts=3, iterations=2),
    )
    failure = failed(await run(agent, "Go."))
    assert (failure.code, stage.n_requests) == (ErrorCode.MAX_ATTEMPTS_EXCEEDED, 6)


async def test_tool_calls_count_as_no_iterations_however_many_there_are(stage: Stage) -> None:  # A11, A44
    model = stage.model([[*[call("look")] * 40, report(1)]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=1))
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert result.metadata.tools["look"].calls == 40


async def test_running_out_of_iterations_ends_the_run_and_not_the_attempt_alone(stage: Stage) -> None:  # A13
    model = stage.model([report(99), call("look"), call("look")])
    agent = Agent(
        name="a", model=model, tools=[look], output=Output(Report), validators=[small], limits=Limits(iterations=2)
    )
    failure = failed(await run(agent, "Go.", max_attempts=9))
    assert (failure.error.context, failure.error.attempt) == (
        IterationsContext(iteration_count=2, max_iterations=2, has_draft=False),
        2,
    )
    assert (failure.phase, stage.n_requests) == ("iteration", 3)
    assert failure.candidate == {"total": 99}


async def test_requests_that_are_repeated_are_one_iteration(stage: Stage) -> None:  # A42
    recorder = Recorder()
    overloaded = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    model = stage.model([overloaded, call("look"), overloaded, overloaded, report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=2))
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=1)
    assert [record.iterations for record in result.metadata.attempts] == [2]
    assert [(event.iteration, event.request) for event in recorder.of(of.ModelRetried)] == [(1, 1), (2, 1), (2, 2)]
    assert (stage.n_requests, len(recorder.of(of.ModelResponded))) == (5, 2)


async def test_a_call_is_not_repeated_more_often_than_said(stage: Stage) -> None:  # A42, A29
    overloaded = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    for retries, asked in ((None, 3), (0, 1), (5, 6)):
        before = stage.n_requests
        agent = Agent(name="a", model=stage.model([overloaded], repeat=True), retries=retries)
        assert failed(await run(agent, "Go.")).code == ErrorCode.API_ERROR
        assert stage.n_requests - before == asked


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_budget_are_answered_and_the_run_goes_on(stage: Stage) -> None:  # A44, R79
    model = stage.model([[call("look", id=f"c{n}") for n in range(5)], [call("look", id="d"), report(1)]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), limits=Limits(calls=3))
    result = await run(agent, "Go.")
    assert isinstance(result, Success)
    refused = "Error: not run: this run may make no more tool calls."
    assert [answered.content for answered in stage.tool_results(1)] == ["found here"] * 3 + [refused] * 2
    assert result.metadata.tools["look"].errors == {"over_budget": 3}
    assert result.metadata.tools["look"].succeeded == 3


async def test_a_budget_of_calls_for_each_attempt_begins_anew(stage: Stage) -> None:  # A44
    model = stage.model([[call("look"), call("look"), report(99)], [call("look"), call("look"), report(1)]])
    limits = Limits(each_attempt=Allowance(calls=1))
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small], limits=limits)
    result = await run(agent, "Go.")
    assert (result.metadata.tools["look"].succeeded, result.metadata.tools["look"].errors) == (2, {"over_budget": 2})


async def test_neither_output_nor_submit_nor_unknown_tools_use_up_calls(stage: Stage) -> None:  # A44, R77
    model = stage.model([[call("nope"), report(2), report(1), call("look"), submit()]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report, reflection=shown), limits=Limits(calls=1))
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert result.metadata.tools["look"].succeeded == 1
    assert {name: stats.kind for name, stats in result.metadata.tools.items()} == {
        **{"(unknown)": "unknown", "output": "output"},
        **{"look": "tool", "submit": "submit"},
    }


async def test_calls_run_one_after_the_other_unless_they_are_said_to_be_parallel(stage: Stage) -> None:  # A9
    inside, most = 0, list[int]()

    async def busy() -> str:
        nonlocal inside
        inside += 1
        for _ in range(3):
            await asyncio.sleep(0)
        most.append(inside)
        inside -= 1
        return "done"

    one, many = tool(busy, name="one"), tool(busy, name="many", parallel=True)
    model = stage.model([[call("one")] * 3, [call("many")] * 3, [call("many"), call("one"), call("many")], "Done."])
    await run(Agent(name="a", model=model, tools=[one, many]), "Go.")
    assert most == [1, 1, 1, 3, 2, 1, 1, 1, 1]


async def test_a_parallel_tool_may_not_set_state(stage: Stage) -> None:  # A9
    @tool(parallel=True)
    async def write(ctx: ToolContext) -> str:
        ctx.set_run_state(5)
        return "written"

    states: list[object] = []
    agent = Agent(
        name="a",
        model=stage.model([[call("write"), call("write")], "Done."]),
        tools=[write],
        run_state=lambda given: 0,
        project=lambda final: states.append(final.run),
    )
    await run(agent, "Go.")
    assert all(answered.is_error for answered in stage.tool_results(1))
    assert states == [0]


# -- budgets met exactly -----------------------------------------------------------------------------------------------


def used(tokens: int) -> Usage:
    return Usage(requests=1, input_tokens=tokens - 5, output_tokens=5)


async def test_a_token_budget_used_up_exactly_stops_before_the_next_call(stage: Stage) -> None:  # A39
    model = stage.model([say(call("look"), usage=used(5_000)), report(1)])
    agent = Agent(
        name="a",
        model=model,
        tools=[look],
        output=Output(Report),
        limits=Limits(tokens=5_000),
        settings=Settings(max_tokens=1_000),
    )
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        BudgetContext(policy="tokens", limit=5_000, used=5_000, scope="run"),
        1,
        2,
    )
    assert stage.n_requests == 1
    assert failure.history[-1].content == (ToolResult("found here", tool_use_id="call_1_0"),)


@pytest.mark.parametrize("tokens", [5_000, 9_000])
async def test_an_output_that_uses_up_the_token_budget_is_still_validated(stage: Stage, tokens: int) -> None:  # A39
    judged: list[Report] = []
    model = stage.model([say(report(1), usage=used(tokens))])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[judged.append], limits=Limits(tokens=5_000))
    result = await run(agent, "Go.")
    assert (result.unwrap(), judged) == (Report(total=1), [Report(total=1)])
    assert (result.metadata.overshoot_tokens > 0) is (tokens > 5_000)


async def test_a_rejected_output_that_used_up_the_budget_gets_no_further_attempt(stage: Stage) -> None:  # A39
    model = stage.model([say(report(99), usage=used(5_000)), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small], limits=Limits(tokens=5_000))
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.BUDGET_EXCEEDED
    assert (stage.n_requests, failure.candidate) == (1, {"total": 99})
    assert failure.report is not None


@dataclass
class AtMost:
    """A policy of one's own: so many tokens, checked before each call."""

    tokens: int
    name: str = "own"
    asked: list[Spent] = field(default_factory=list[Spent])

    def check(self, spent: Spent) -> Exceeded | None:
        self.asked.append(spent)
        total = spent.usage.total_tokens
        return Exceeded(limit=self.tokens, used=total) if total >= self.tokens else None


async def test_a_policy_is_asked_before_each_call_with_what_was_spent(stage: Stage) -> None:  # A39, R79
    policy = AtMost(30)
    model = stage.model([[call("look"), call("look")], call("look"), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), budget=[policy])
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        BudgetContext(policy="own", limit=30, used=30, scope="run"),
        1,
        3,
    )
    assert [(spent.usage.total_tokens, spent.iterations, spent.calls) for spent in policy.asked] == [
        (0, 0, 0),
        (15, 1, 2),
        (30, 2, 3),
    ]


async def test_a_policy_met_by_the_response_that_hands_in_does_not_matter(stage: Stage) -> None:  # A39
    policy = AtMost(30)
    model = stage.model([call("look"), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), budget=[policy])
    assert (await run(agent, "Go.", abort=Abort())).unwrap() == Report(total=1)


async def test_tokens_that_are_not_reported_still_count_against_the_budget(stage: Stage) -> None:  # A31, R60
    model = stage.model([say(call("look"), usage=used(5_000)), "Done."])
    agent = Agent(
        name="a",
        model=model,
        tools=[look],
        limits=Limits(tokens=5_000),
        observability=Observability(track_tokens=False),
    )
    failure = failed(await run(agent, "Go."))
    assert (failure.code, failure.metadata.usage) == (ErrorCode.BUDGET_EXCEEDED, None)

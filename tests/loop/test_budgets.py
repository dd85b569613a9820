"""Budgets: what a run and its attempts may spend, and how a run ends that may spend no more."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from journeyman import Abort, Agent, Runtime, Subagents, Success, ToolContext, ToolResult, Usage, run, tool
from journeyman.budget import Budget, LimitExceeded, Limits, Spending
from journeyman.endings import BudgetContext, ErrorCode, ModelUnavailableContext
from journeyman.errors import ProviderError
from journeyman.events import ModelResponded, ModelRetried, RunFailed
from journeyman.gate import Allow, Approval, Ask, Decision, GateRequest
from journeyman.journal import InMemoryJournal
from journeyman.model import ModelSettings, Request
from journeyman.testing.scripted import Answer, ScriptedModel, call, say
from journeyman.types import Price
from tests.loop.parts import REFLECTED, STOPPED, end_of
from tests.play import Recorder, Stage, context_of, existing, failed, following, instance_of, succeeded, transcript
from tests.play.agents import Report, report, reporter, submit, talker
from tests.play.tools import look, make_tool
from tests.support.clock import VirtualClock, virtual_clock

USED_900 = Usage(requests=1, input_tokens=400, output_tokens=500)


@pytest.mark.parametrize(("limit", "used"), [(1_000, 900), (5_000, 5_000)], ids=["nearly", "exactly"])
async def test_a_token_budget_that_is_used_up_ends_the_run_before_the_next_call(
    stage: Stage, limit: int, used: int, recorder: Recorder
) -> None:  # R79, A39
    answer = say(call("look", id="a"), usage=Usage(requests=1, input_tokens=used - 500, output_tokens=500))
    agent = talker(
        stage.model([answer, "never"]), limits=Limits(tokens=limit), settings=ModelSettings(max_tokens=1_000)
    )
    failure = failed(await run(agent, "Go.", on_event=recorder))
    assert end_of(failure) == (BudgetContext(policy="tokens", limit=limit, used=used, scope="run"), 1, 2)
    assert failure.error.message.startswith("The run's tokens budget is used up: the next call needs about ")
    assert failure.error.message.endswith(f" tokens, {limit:,} are allowed, {used:,} are used.")
    assert (failure.phase, stage.n_requests) == ("iteration", 1)
    assert transcript(failure.history)[-1] == ("user", "#a: found here")


async def test_the_answer_may_be_as_long_as_the_budget_allows(stage: Stage) -> None:  # R79, design 4.7
    for limit in (10_000, 2_400):
        model = stage.model([say(call("look"), usage=USED_900), "Done."])
        agent = talker(model, limits=Limits(tokens=limit), settings=ModelSettings(max_tokens=4_000))
        assert succeeded(await run(agent, "Go."))
    assert stage.requests[0].max_tokens == 4_000
    first, second = (stage.requests[n].max_tokens or 0 for n in (2, 3))
    assert 2_200 < first < 2_400
    assert 500 < second < 2_400 - 900 - 900


def used(tokens: int) -> Usage:
    return Usage(requests=1, input_tokens=tokens - 5, output_tokens=5)


@pytest.mark.parametrize("tokens", [5_000, 9_000])
async def test_an_output_that_uses_up_the_token_budget_is_still_validated(stage: Stage, tokens: int) -> None:  # A39
    judged: list[Report] = []
    model = stage.model([say(report(1), usage=used(tokens))])
    result = await run(reporter(model, validators=[judged.append], limits=Limits(tokens=5_000)), "Go.")
    assert (result.unwrap(), judged) == (Report(total=1), [Report(total=1)])
    assert (result.metadata.overshoot_tokens > 0) is (tokens > 5_000)


async def test_a_rejected_output_that_used_up_the_budget_gets_no_further_attempt(stage: Stage) -> None:  # A39
    agent = reporter(stage.model([say(report(99), usage=used(5_000)), report(1)]), limits=Limits(tokens=5_000))
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.BUDGET_EXCEEDED
    assert (stage.n_requests, failure.candidate) == (1, {"total": 99})
    assert failure.report is not None


@pytest.mark.parametrize("per_attempt", [False, True])
async def test_a_budget_is_the_runs_or_each_attempts(stage: Stage, per_attempt: bool) -> None:  # R79
    answers = [say(call("look"), usage=USED_900), say(report(7), usage=USED_900)]
    model = stage.model([*answers, say(call("look"), usage=USED_900), say(report(2, id="o2"), usage=USED_900)])
    limits = Limits(per_attempt=Budget(tokens=2_400)) if per_attempt else Limits(tokens=2_400)
    result = await run(reporter(model, limits=limits), "Go.")
    assert stage.n_requests == (4 if per_attempt else 2)
    if per_attempt:
        assert succeeded(result).output == Report(total=2)
    else:
        assert context_of(result, BudgetContext).scope == "run"


async def test_an_attempts_budget_is_named_as_such(stage: Stage) -> None:  # R79
    limits = Limits(per_attempt=Budget(tokens=1_000), tokens=1_000_000)
    result = await run(talker(stage.model([say(call("look"), usage=USED_900)], repeat=True), limits=limits), "Go.")
    assert end_of(result) == (BudgetContext(policy="tokens", limit=1_000, used=900, scope="attempt"), 1, 2)


@virtual_clock
async def test_failed_requests_count_too() -> None:  # R79, A31
    broke = ProviderError("cut", kind="stream_cut", usage=USED_900)
    budget = Budget(tokens=5_000, scope="all")
    await run(
        talker(ScriptedModel([broke, "Done."]), limits=Limits(request_retries=1)), "Go.", runtime=Runtime(budget=budget)
    )
    assert budget.used_tokens == 915
    model = ScriptedModel([broke, "never"])
    agent = talker(model, limits=Limits(tokens=1_000, request_retries=1))
    context = context_of(await run(agent, "Go."), BudgetContext)
    assert (context.used, len(model.requests)) == (900, 1)  # a repetition is paid for like any other request


async def test_a_cost_budget_ends_the_run(stage: Stage) -> None:  # R79
    price = Price(input=1_000, output=1_000)  # a tenth of a cent for each token
    agent = talker(stage.model([say(call("look"), usage=USED_900)], repeat=True, price=price), limits=Limits(cost=1.0))
    result = await run(agent, "Go.")
    context = context_of(result, BudgetContext)
    assert (context.policy, context.limit, context.scope, failed(result).error.iteration) == ("cost", 1.0, "run", 2)
    assert context.used == pytest.approx(0.9)
    usage = existing(failed(result).metadata.usage)
    assert usage.cost == pytest.approx(0.9)


async def test_a_cost_budget_needs_a_price(stage: Stage) -> None:  # R79
    result = await run(talker(stage.model(["Hello."]), limits=Limits(cost=1.0)), "Go.")
    assert context_of(result, ModelUnavailableContext).reason == "its cost is limited, and it has no known price"
    assert stage.n_requests == 0


# R77, R79, A44
async def test_calls_beyond_their_budget_are_answered_and_not_run(stage: Stage, recorder: Recorder) -> None:
    seen: list[str] = []

    note = make_tool("note", "{word}", into=seen)
    first = [*(call("note", word=word, id=word) for word in "abc"), call("fly", id="d")]
    model = stage.model([first, [call("note", word="e", id="e"), report(3, "out")]])
    result = await run(reporter(model, tools=[note], limits=Limits(calls=2)), "Go.", on_event=recorder)
    assert succeeded(result).output == Report(total=3)
    assert seen == ["a", "b"]
    refused = "Error: not run: this run may make no more tool calls."
    assert transcript(result.history)[2::2] == [
        ("user", "#a: a", "#b: b", f"#c! {refused}", "#d! Error: Unknown tool fly"),
        ("user", f"#e! {refused}", "#out: Accepted."),
    ]
    stats = result.metadata.tools["note"]
    assert (stats.calls, stats.succeeded, stats.errors) == (4, 2, {"over_budget": 2})


async def test_a_budget_of_calls_for_each_attempt_begins_anew(stage: Stage) -> None:  # A44, R79
    model = stage.model([[call("look"), call("look"), report(99)], [call("look"), call("look"), report(1)]])
    result = await run(reporter(model, limits=Limits(per_attempt=Budget(calls=1))), "Go.")
    assert (result.metadata.tools["look"].succeeded, result.metadata.tools["look"].errors) == (2, {"over_budget": 2})


async def test_neither_output_nor_submit_nor_unknown_tools_use_up_calls(stage: Stage) -> None:  # A44, R77
    model = stage.model([[call("nope"), report(2), report(1), call("look"), submit()]])
    result = await run(reporter(model, output=REFLECTED, limits=Limits(calls=1)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert result.metadata.tools["look"].succeeded == 1
    kinds = {name: stats.kind for name, stats in result.metadata.tools.items()}
    assert kinds == {"(unknown)": "unknown", "output": "output", "look": "tool", "submit": "submit"}


async def test_a_response_whose_calls_do_not_all_fit_may_be_refused_as_a_whole(stage: Stage) -> None:  # R79, A44
    seen: list[str] = []

    pay = make_tool("pay", "paid {whom}", into=seen, parallel=True)
    first = [call("pay", whom="a", id="a"), call("pay", whom="b", id="b"), report(1, "early")]
    second = [call("pay", whom="c", id="c"), call("nope", id="d"), report(2, "out")]
    model = stage.model([call("pay", whom="z", id="z"), first, second])
    limits = Limits(calls=2, whole_responses=True)
    result = await run(reporter(model, tools=[pay], limits=limits), "Go.")
    assert result.unwrap() == Report(total=2)
    refused = "Error: not run: this run may make 1 more call, and this answer asks for 2: none was made. Ask for fewer."
    assert transcript(result.history)[4::2] == [
        ("user", f"#a! {refused}", f"#b! {refused}", f"#early! {refused}"),
        ("user", "#c: paid c", "#d! Error: Unknown tool nope", "#out: Accepted."),
    ]
    assert seen == ["z", "c"]


async def test_calls_that_were_taken_together_and_not_made_are_left_for_others() -> None:
    budget = Budget(calls=3, scope="team")
    agent = talker(
        ScriptedModel([[call("quit"), call("look")], "Done."]), tools=[look], limits=Limits(whole_responses=True)
    )

    @tool
    async def quit(ctx: ToolContext) -> str:
        ctx.stop("enough")
        return "quit"

    await run(replace(agent, tools=[look, quit]), "Go.", runtime=Runtime(budget=budget))
    assert budget.used_calls == 1


@pytest.mark.parametrize("most", [2, 3])
async def test_a_response_fits_as_a_whole_in_every_life_of_the_run(most: int) -> None:
    def crew(seen: list[str]) -> Agent[str]:
        pay = make_tool("pay", "paid {whom}", into=seen, effect="idempotent", parallel=True)
        model = following([call("pay", whom=each, id=each) for each in "abc"], "Done.")
        limits = Limits(calls=most, whole_responses=True)
        return Agent(name="payer", model=model, tools=[pay], limits=limits)

    whole, all_seen = InMemoryJournal(), list[str]()
    result = await run(crew(all_seen), "Go.", runtime=Runtime(journal=whole))
    assert all_seen == (["a", "b", "c"] if most == 3 else [])
    for n in range(len(whole.finished) + 1):
        rest, seen = InMemoryJournal(finished=dict(list(whole.finished.items())[:n])), list[str]()
        again = await run(crew(seen), "Go.", runtime=Runtime(journal=rest))
        assert again.history == result.history
        assert set(seen) <= set(all_seen)


@tool
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@virtual_clock
async def test_a_time_budget_bounds_a_call_in_flight(recorder: Recorder) -> None:  # R79
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(100)
        return "Done."

    start = asyncio.get_running_loop().time()
    agent = talker(ScriptedModel([call("nap", seconds=4), slow]), tools=[nap], limits=Limits(seconds=10))
    result = await run(agent, "Go.", on_event=recorder)
    assert end_of(result) == (BudgetContext(policy="seconds", limit=10, used=10, scope="run"), 1, 2)
    assert asyncio.get_running_loop().time() - start == 10
    assert not existing(result.metadata.usage).exact


# A45, R79
@virtual_clock
async def test_the_time_of_a_run_stops_a_tool_in_flight_and_keeps_what_was_gathered(recorder: Recorder) -> None:
    @tool
    async def slow() -> str:
        await asyncio.sleep(100)
        return "unreachable"

    model = ScriptedModel([[call("look", id="a"), call("slow", id="b")]])
    agent = talker(model, tools=[look, slow], limits=Limits(seconds=30))
    failure = failed(await run(agent, "Go.", on_event=recorder))
    assert end_of(failure) == (BudgetContext(policy="seconds", limit=30, used=30, scope="run"), 1, 1)
    assert failure.metadata.tools["slow"].errors == {"interrupted": 1}
    assert failure.history[-1].content == (
        ToolResult("found here", tool_use_id="a"),
        ToolResult(STOPPED, is_error=True, tool_use_id="b"),
    )


@virtual_clock
async def test_a_time_budget_bounds_prompts_and_validators() -> None:  # R79
    async def prompt(given: str) -> str:
        await asyncio.sleep(100)
        return given

    async def judge(report: Report) -> None:
        await asyncio.sleep(100)

    prompting = talker(ScriptedModel(["Hello."]), prompt=prompt, limits=Limits(seconds=10))
    assert failed(await run(prompting, "Go.")).phase == "prompt_generation"
    judging = reporter(ScriptedModel([report()]), validators=[judge], limits=Limits(seconds=10))
    result = failed(await run(judging, "Go."))
    assert (result.code, result.phase, result.candidate) == ("BUDGET_EXCEEDED", "validation", {"total": 3})


@virtual_clock
async def test_each_attempt_may_have_time_of_its_own() -> None:  # R79, A10, A45
    model = ScriptedModel([[call("nap", seconds=s), report(total)] for s, total in ((6, 7), (6, 8), (20, 2))])
    result = await run(reporter(model, tools=[nap], limits=Limits(per_attempt=Budget(seconds=10))), "Go.")
    assert len(result.metadata.attempts) == 3
    assert end_of(result) == (BudgetContext(policy="seconds", limit=10, used=10, scope="attempt"), 3, 1)


@virtual_clock
async def test_time_does_not_run_while_somebody_else_runs() -> None:  # R79
    timed = talker(ScriptedModel([call("nap", seconds=9), "Done."]), tools=[nap], limits=Limits(seconds=10))
    assert succeeded(await run(talker(ScriptedModel([call("nap", seconds=9), "Done."]), tools=[nap]), "Go."))
    assert succeeded(await run(timed, "Go.")).metadata.latency_s == 9


def seconds_of(request: GateRequest, name: str) -> float:
    seconds = request.arguments.get(name, 0)
    assert isinstance(seconds, int | float)
    return seconds


class Hesitant:
    """A gate that asks about every call that says how long its answer takes; it may think before it asks."""

    async def decide(self, request: GateRequest) -> Ask | Allow:
        await asyncio.sleep(seconds_of(request, "ask_after_s"))
        return Ask("Go on?") if "answer_s" in request.arguments else Allow()


async def approve(approval: Approval) -> Decision:
    """Answer after as many seconds as the call says."""
    await asyncio.sleep(seconds_of(approval.request, "answer_s"))
    return Allow()


risky = make_tool("risky", "fine", parallel=True)


ASKING = Runtime(gate=Hesitant(), approver=approve)


@pytest.mark.parametrize("scope", ["run", "attempt"])
@virtual_clock
async def test_time_does_not_run_while_somebody_is_asked_and_goes_on_where_it_stood(scope: str) -> None:  # R79
    ten = Limits(seconds=10) if scope == "run" else Limits(per_attempt=Budget(seconds=10))
    overlapping = [call("risky", answer_s=20), call("risky", ask_after_s=15, answer_s=30)]
    turns = [call("nap", seconds=4), overlapping, call("risky", answer_s=60), call("nap", seconds=99)]
    agent = talker(ScriptedModel(turns), tools=[risky, nap], limits=replace(ten, approval_seconds=100))
    start = asyncio.get_running_loop().time()
    result = await run(agent, "Go.", runtime=ASKING)
    assert end_of(result) == (BudgetContext(policy="seconds", limit=10, used=10, scope=scope), 1, 4)
    assert asyncio.get_running_loop().time() - start == 10 + 45 + 60


@virtual_clock
async def test_time_stands_still_for_the_runs_above_too_and_the_one_that_ran_out_is_named() -> None:  # R79
    limits = Limits(seconds=10, approval_seconds=100)
    for below_s, above_s, named in ((10, 20, 10), (20, 12, 12)):
        script = ScriptedModel([call("nap", seconds=4), call("risky", answer_s=60), call("nap", seconds=99)])
        below = replace(talker(script, tools=[risky, nap], limits=replace(limits, seconds=below_s)), name="below")
        lead = ScriptedModel([call("risky", answer_s=50), call("subagent", agent="below", task="Go."), "Done."])
        above = talker(lead, tools=[risky, Subagents(below)], limits=replace(limits, seconds=above_s))
        recorder = Recorder()
        start = asyncio.get_running_loop().time()
        result = await run(above, "Go.", runtime=ASKING, on_event=recorder)
        assert asyncio.get_running_loop().time() - start == 50 + 60 + min(below_s, above_s)
        assert isinstance(result, Success) == (named == below_s)
        (failure, *_) = recorder.of(RunFailed)
        assert failure.error.context == BudgetContext(policy="seconds", limit=named, used=named, scope="run")


@virtual_clock
async def test_who_works_beside_a_run_that_asks_does_not_use_up_the_time_of_the_run_above() -> None:  # R79
    limits = Limits(approval_seconds=100)
    asker = replace(
        talker(ScriptedModel([call("risky", answer_s=60), "Done."]), tools=[risky], limits=limits), name="asker"
    )
    napper = replace(talker(ScriptedModel([call("nap", seconds=30), "Rested."]), tools=[nap]), name="napper")
    tasks = [{"agent": "asker", "task": "Go."}, {"agent": "napper", "task": "Go."}]
    lead = ScriptedModel([call("subagent", tasks=tasks), "Done."])
    above = talker(lead, tools=[Subagents(asker, napper)], limits=Limits(seconds=10))
    assert succeeded(await run(above, "Go.", runtime=ASKING)).output == "Done."


@virtual_clock
async def test_an_approval_is_waited_for_on_the_runs_time_where_the_limits_say_nothing_of_it() -> None:  # R79
    agent = talker(ScriptedModel([call("risky", answer_s=60)]), tools=[risky], limits=Limits(seconds=10))
    result = await run(agent, "Go.", runtime=ASKING)
    assert end_of(result) == (BudgetContext(policy="seconds", limit=10, used=10, scope="run"), 1, 1)


@tool
async def block(seconds: float) -> str:
    """Keep the event loop from doing anything else for so long."""
    loop = instance_of(VirtualClock, asyncio.get_running_loop())
    loop.now_s += seconds
    return "done"


@pytest.mark.parametrize("late", ["run", "attempt", "run above"])
@virtual_clock
async def test_whoever_blocked_the_loop_past_the_deadline_is_followed_by_nothing(late: str) -> None:  # R79
    ran: list[str] = []

    ten = Limits(per_attempt=Budget(seconds=10)) if late == "attempt" else Limits(seconds=10)
    script = ScriptedModel([[call("block", seconds=30), call("act")], "never"])
    agent = talker(script, tools=[block, make_tool("act", into=ran)], limits=Limits() if late == "run above" else ten)
    if late == "run above":
        lead = ScriptedModel([call("subagent", agent="talker", task="Go.")])
        agent = replace(talker(lead, tools=[Subagents(agent)], limits=ten), name="lead")
    result = failed(await run(agent, "Go."))
    scope = "attempt" if late == "attempt" else "run"
    assert result.error.context == BudgetContext(policy="seconds", limit=10, used=30, scope=scope)
    assert (ran, len(script.requests)) == ([], 1)


@dataclass
class Frugal:
    """Allows so many model calls in a run, all attempts together."""

    limit: int
    name: str = "frugal"

    def __post_init__(self) -> None:
        self.seen: list[Spending] = []

    def check(self, spent: Spending) -> LimitExceeded | None:
        self.seen.append(spent)
        return LimitExceeded(limit=self.limit, used=spent.iterations) if spent.iterations >= self.limit else None


async def test_a_policy_of_ones_own_is_asked_before_each_call(stage: Stage) -> None:  # R79, A39
    policy = Frugal(3)
    agent = reporter(
        stage.model([[call("look"), call("look")], report(7), call("look"), "never"]),
        limits=Limits(budget_policies=[policy]),
    )
    result = await run(agent, "Go.")
    assert end_of(result) == (BudgetContext(policy="frugal", limit=3, used=3, scope="run"), 2, 2)
    seen = [(spent.iterations, spent.calls, spent.attempt) for spent in policy.seen]
    assert seen == [(0, 0, 1), (1, 2, 1), (2, 3, 2), (3, 4, 2)]
    used = [(spent.usage.requests, spent.usage.total_tokens) for spent in policy.seen]
    assert used == [(n, 15 * n) for n in range(4)]
    assert stage.n_requests == 3


async def test_a_policy_met_by_the_response_that_hands_in_does_not_matter(stage: Stage) -> None:  # A39
    agent = reporter(stage.model([call("look"), report(1)]), limits=Limits(budget_policies=[Frugal(2)]))
    assert (await run(agent, "Go.", abort=Abort())).unwrap() == Report(total=1)


async def test_policies_compose_and_the_first_to_object_is_named(stage: Stage) -> None:  # R79
    model = stage.model([call("look")], repeat=True)
    policies = [Frugal(5, "patient"), Frugal(2, "hasty")]
    agent = talker(model, limits=Limits(iterations=10, tokens=1_000_000, budget_policies=policies))
    assert context_of(await run(agent, "Go."), BudgetContext).policy == "hasty"
    assert stage.n_requests == 2


async def test_a_budget_from_above_bounds_the_run(stage: Stage) -> None:  # R79, design 4.7
    shared = Budget(tokens=1_000, scope="house")
    agent = talker(stage.model([say(call("look"), usage=USED_900)], repeat=True))
    result = await run(agent, "Go.", runtime=Runtime(budget=shared))
    assert context_of(result, BudgetContext).scope == "house"
    assert shared.used_tokens == 900


@virtual_clock
async def test_the_seconds_of_a_budget_begin_when_the_first_run_draws_on_it() -> None:
    clock, above = asyncio.get_running_loop().time, Budget(seconds=8)
    budget = Budget(seconds=10, scope="house", parent=above)
    begun: list[float | None] = []
    for _ in range(2):
        await asyncio.sleep(5)
        await run(talker(ScriptedModel(["Done."])), "Go.", runtime=Runtime(budget=budget))
        begun += [budget.own_deadline, above.deadline, budget.deadline]
    assert begun == [clock() + 5, clock() + 3, clock() + 3] * 2


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"cost": -1.0}, {"seconds": float("nan")}, {"calls": "3"}])
async def test_a_budget_of_nonsense_is_refused_where_it_is_given(wrong: dict[str, Any]) -> None:
    result = await run(talker(ScriptedModel(["Done."])), "Go.", runtime=Runtime(budget=Budget(**wrong)))
    assert f"Runtime.budget.{next(iter(wrong))} is" in str(result)


async def test_requests_that_are_repeated_are_one_iteration(stage: Stage, recorder: Recorder) -> None:  # A42
    overloaded = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    model = stage.model([overloaded, call("look"), overloaded, overloaded, report(1)])
    result = await run(reporter(model, limits=Limits(iterations=2)), "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=1)
    assert [record.iterations for record in result.metadata.attempts] == [2]
    assert [(event.iteration, event.request) for event in recorder.of(ModelRetried)] == [(1, 1), (2, 1), (2, 2)]
    assert (stage.n_requests, len(recorder.of(ModelResponded))) == (5, 2)


# A42, A29
@pytest.mark.parametrize(("retries", "asked"), [(None, 3), (0, 1), (5, 6)])
async def test_a_call_is_not_repeated_more_often_than_said(stage: Stage, retries: int | None, asked: int) -> None:
    overloaded = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    agent = talker(stage.model([overloaded], repeat=True), limits=Limits(request_retries=retries))
    assert failed(await run(agent, "Go.")).code == ErrorCode.API_ERROR
    assert stage.n_requests == asked

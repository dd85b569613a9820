"""The run above and those below: usage, limits, events, gates, signals, deadlines and depth are those of one tree."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from journeyman import Abort, Agent, Chat, Limits, Runtime, Subagents, ToolContext, run, stream, tool
from journeyman.budget import Budget, LimitExceeded, Spending
from journeyman.endings import BudgetContext, CancelledContext
from journeyman.events import (
    ApprovalRequested,
    Event,
    IterationStarted,
    RunStarted,
    RunSucceeded,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
)
from journeyman.gate import Allow, Ask, Deny, GateRequest, Verdict
from journeyman.journal import InMemoryJournal
from journeyman.loop.state import run_context
from journeyman.loop.watch import Watch
from journeyman.model import ModelSettings, Request
from journeyman.team.spawn import MAX_DEPTH
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Price, Thinking, Usage
from tests.play import Recorder, Stage, cancelled, check_balance, context_of, echo, hang, look, succeeded, virtual_clock
from tests.subagents.leads import errors, lead, play, read, scout

PAIR = {"tasks": [{"agent": "scout", "task": "a"}, {"agent": "scout", "task": "b"}]}
LOOK = {"agent": "scout", "task": "look"}


async def test_the_usage_of_children_is_part_of_their_parents(stage: Stage) -> None:  # 4.6, 4.11
    crew = Subagents(scout(stage, call("look", id="a"), "found"))
    model = stage.model([call("subagent", LOOK, id="m"), "middle done"], repeat=True)
    middle = Agent(name="middle", model=model, tools=[crew])
    result = succeeded(await play(stage, Subagents(middle), {"agent": "middle", "task": "go"}))
    assert result.metadata.usage == Usage(requests=6, input_tokens=60, output_tokens=30)
    [record] = result.metadata.children
    assert (record.path, record.code, record.iterations, record.calls) == (("lead", "middle#1"), None, 2, 1)
    assert record.usage == Usage(requests=4, input_tokens=40, output_tokens=20)
    [below] = record.children
    assert (below.path, below.usage.requests, below.calls) == (("lead", "middle#1", "scout#1"), 2, 1)
    assert sum(attempt.usage.requests for attempt in result.metadata.attempts) == 6


async def test_children_are_recorded_in_the_order_in_which_they_began_also_those_that_failed(stage: Stage) -> None:
    crew = Subagents(scout(stage), scout(stage, say("No.", stop_reason="refusal"), name="no"))
    pair = [{"agent": "no", "task": "a"}, {"agent": "scout", "task": "b"}]
    result = succeeded(await play(stage, crew, {"tasks": pair}, {"agent": "no", "task": "c"}))
    children = [(record.path[-1], record.code) for record in result.metadata.children]
    assert children == [("no#1", "MODEL_REFUSED"), ("scout#2", None), ("no#3", "MODEL_REFUSED")]
    assert result.metadata.usage == Usage(requests=6, input_tokens=60, output_tokens=30)


async def test_a_child_that_never_began_is_recorded_with_nothing_beside_one_that_tried_again(stage: Stage) -> None:
    async def no_prompt(task: str) -> str:
        raise ValueError("no words")

    def judge(answer: str) -> None:
        if answer != "right":
            raise ValueError("wrong")

    never = scout(stage, name="never", prompt=no_prompt)
    trying = scout(stage, call("look"), "false", "right", name="trying", validators=[judge])
    pair = [{"agent": "never", "task": "a"}, {"agent": "trying", "task": "b"}]
    result = succeeded(await play(stage, Subagents(never, trying), {"tasks": pair}))
    records = {each.path[-1]: each for each in result.metadata.children}
    counts = {name: (each.attempts, each.iterations, each.calls, each.usage.requests) for name, each in records.items()}
    assert counts == {"never#1": (0, 0, 0, 0), "trying#2": (2, 3, 1, 3)}
    assert (records["never#1"].code, records["never#1"].children) == ("PROMPT_GENERATION_FAILED", ())


async def test_a_run_in_a_tool_is_a_child_too_under_its_own_name(stage: Stage, recorder: Recorder) -> None:
    inner = scout(stage, name="inner")

    @tool
    async def ask() -> str:
        return (await run(inner, "x")).unwrap()

    outer = Agent(name="outer", model=stage.model([call("ask", id="a"), "done"]), tools=[ask])
    result = await run(outer, "Go.", on_event=recorder)
    assert [record.path for record in result.metadata.children] == [("outer", "inner")]
    assert result.metadata.usage == Usage(requests=3, input_tokens=30, output_tokens=15)
    assert {event.path for event in recorder.of(RunStarted)} == {("outer",), ("outer", "inner")}


async def test_the_usage_of_a_child_can_be_seen_while_it_works(stage: Stage) -> None:
    seen: list[int] = []

    async def policy(request: Request) -> str:
        seen.append(chat.usage.requests)
        return "found"

    crew = Subagents(Agent(name="scout", model=FunctionModel(policy)))
    async with Chat(lead(stage, crew, LOOK, {**PAIR})) as chat:
        await chat.prompt("Go.")
        assert chat.usage.requests == 6
    assert seen == [1, 3, 4]


async def test_a_child_that_finds_too_little_left_fails_and_so_does_its_parent(stage: Stage) -> None:
    answer = say("found", usage=Usage(requests=1, input_tokens=2_900, output_tokens=10))
    crew = Subagents(scout(stage, answer, settings=ModelSettings(max_tokens=300)))
    limits, settings = Limits(tokens=3_000), ModelSettings(max_tokens=300)
    result = await play(stage, crew, {"chain": [LOOK, LOOK]}, limits=limits, settings=settings)
    assert (result.code, bool(context_of(result, BudgetContext))) == ("BUDGET_EXCEEDED", True)
    assert result.metadata.usage == Usage(requests=2, input_tokens=2_910, output_tokens=15)
    assert [record.code for record in result.metadata.children] == [None, "BUDGET_EXCEEDED"]
    assert "The run's tokens budget is used up" in read(result)["error"]
    assert result.metadata.overshoot_tokens > 2_000


async def test_tool_calls_of_children_count_against_the_parents_limit(stage: Stage) -> None:  # 4.7
    crew = Subagents(scout(stage, [call("look", id="a"), call("look", id="b"), call("look", id="c")], "found"))
    result = succeeded(await play(stage, crew, LOOK, limits=Limits(calls=3)))
    [record] = result.metadata.children
    assert record.calls == 3
    refused = [message for message in stage.messages(2) if message.role == "user"][-1]
    assert [block.is_error for block in refused.content if hasattr(block, "is_error")] == [False, False, True]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@dataclass
class AtMost:
    """A policy: so many tool calls."""

    limit: int
    name: str = "calls of mine"

    def check(self, spent: Spending) -> LimitExceeded | None:
        return LimitExceeded(limit=self.limit, used=spent.calls) if spent.calls > self.limit else None


async def test_a_policy_of_the_parents_is_asked_before_every_call_of_the_children(stage: Stage) -> None:
    crew = Subagents(scout(stage, call("look", id="a"), call("look", id="b"), "found"))
    result = await play(stage, crew, LOOK, limits=Limits(budget_policies=[AtMost(1)]))
    assert result.code == "BUDGET_EXCEEDED"
    assert stage.n_requests == 3
    assert [record.code for record in result.metadata.children] == ["BUDGET_EXCEEDED"]


async def test_the_hosts_budget_holds_for_the_tree(stage: Stage) -> None:
    budget = Budget(calls=2, scope="day")
    crew = Subagents(scout(stage, call("look", id="a"), call("look", id="b"), "found"))
    await play(stage, crew, LOOK, runtime=Runtime(budget=budget))
    assert budget.used_calls == 2


async def test_a_price_is_needed_where_the_parent_limits_the_cost(stage: Stage) -> None:
    price = Price(input=1.0, output=1.0)
    unpriced = Agent(name="scout", model=stage.model(["found"]))
    model = stage.model([call("subagent", LOOK, id="a"), "done"], price=price)
    boss = Agent(name="lead", model=model, tools=[Subagents(unpriced)], limits=Limits(cost=1.0))
    assert "MODEL_UNAVAILABLE" in errors(await run(boss, "Go."))[0]


def of_path(events: list[Event], path: tuple[str, ...]) -> list[Event]:
    return [event for event in events if event.path == path]


async def test_children_are_heard_with_their_paths_and_say_who_sent_them(stage: Stage) -> None:  # 4.8, S1.8
    recorder = Recorder()
    crew = Subagents(scout(stage, say(Thinking("hm", "sig"), "I look.", call("look", id="a")), "found"))
    await play(stage, crew, LOOK, {"tasks": [LOOK]}, {"chain": [LOOK]}, on_event=recorder)
    started = {event.path: (event.mode, event.tool_use_id) for event in recorder.of(RunStarted)}
    assert started == {
        ("lead",): (None, None),
        ("lead", "scout#1"): ("single", "c1"),
        ("lead", "scout#2"): ("parallel", "c2"),
        ("lead", "scout#3"): ("chain", "c3"),
    }
    for path in started:
        check_balance(of_path(recorder.events, path))
    kinds = {type(event) for event in of_path(recorder.events, ("lead", "scout#1"))}
    assert {TextDelta, ThinkingDelta, ToolCalled, ToolFinished, IterationStarted, RunSucceeded} <= kinds


async def test_events_of_children_come_between_the_call_and_its_end(stage: Stage, recorder: Recorder) -> None:
    await play(stage, Subagents(scout(stage)), LOOK, on_event=recorder)
    inner = [number for number, event in enumerate(recorder.events) if len(event.path) == 2]
    called = next(number for number, event in enumerate(recorder.events) if isinstance(event, ToolCalled))
    finished = next(number for number, event in enumerate(recorder.events) if isinstance(event, ToolFinished))
    assert called < inner[0] < inner[-1] < finished
    assert inner == [*range(inner[0], inner[-1] + 1)]


async def test_a_stream_shows_children_and_gives_the_parents_result(stage: Stage) -> None:
    async with stream(lead(stage, Subagents(scout(stage)), LOOK), "Go.") as events:
        paths = {event.path async for event in events}
    assert paths == {("lead",), ("lead", "scout#1")}
    assert events.result.unwrap() == "done"


async def test_instances_are_told_apart_over_all_turns_of_a_chat(stage: Stage, recorder: Recorder) -> None:  # S1.8
    crew = Subagents(scout(stage))
    calls = [call("subagent", LOOK, id="a"), "one", call("subagent", LOOK, id="b"), "two"]
    async with Chat(Agent(name="lead", model=stage.model(calls), tools=[crew]), on_event=recorder) as chat:
        await chat.prompt("Go.")
        await chat.prompt("Again.")
    assert [event.path[-1] for event in recorder.of(RunStarted)] == ["lead", "scout#1", "lead", "scout#2"]


async def test_a_listener_that_raises_is_remembered_where_it_listens(stage: Stage) -> None:
    def listener(event: Event) -> None:
        if len(event.path) == 2 and isinstance(event, RunSucceeded):
            raise ValueError("broken listener")

    result = succeeded(await play(stage, Subagents(scout(stage)), LOOK, on_event=listener))
    assert [str(error.error) for error in result.metadata.callback_errors] == ["broken listener"]


async def test_where_nobody_listens_children_make_no_events(stage: Stage) -> None:
    watches: list[Watch | None] = []

    @tool
    async def peek() -> str:
        execution = run_context.get().run
        watches.append(None if execution is None else execution.watch)
        return "ok"

    peeker = Agent(name="scout", model=stage.model([call("peek", id="a"), "found"]), tools=[peek])
    await play(stage, Subagents(peeker), LOOK)
    assert watches == [None]


@dataclass
class Guarding:
    """A gate that keeps what it was asked, and answers."""

    verdict: Verdict
    asked: list[tuple[tuple[str, ...], str]]

    async def decide(self, request: GateRequest) -> Verdict:
        if request.tool_name == "subagent":
            return Allow()
        self.asked.append((request.path, request.tool_name))
        return self.verdict


async def test_a_childs_call_passes_its_own_gate_and_every_ancestors(stage: Stage) -> None:  # 4.11
    asked: list[tuple[tuple[str, ...], str]] = []
    own, above, outermost = (Guarding(Allow(), asked) for _ in range(3))
    crew = Subagents(scout(stage, call("look", id="a"), "found", gate=own))
    await play(stage, crew, LOOK, gate=above, runtime=Runtime(gate=outermost))
    assert asked == [(("lead", "scout#1"), "look")] * 3


async def test_a_childs_own_gate_cannot_allow_what_its_parents_denies(stage: Stage) -> None:  # 4.11
    crew = Subagents(scout(stage, call("look", id="a"), "found", gate=Guarding(Allow(), [])))
    await play(stage, crew, LOOK, gate=Guarding(Deny("not here"), []))
    assert [result.text for result in stage.tool_results(2)] == ["Error: denied: not here"]


async def test_an_approval_of_a_grandchild_is_asked_for_at_the_root(stage: Stage) -> None:  # 4.11
    def answer(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            paths.append(event.path)
            chat.answer(event.id, Allow())

    paths: list[tuple[str, ...]] = []
    inner = scout(stage, call("look", id="a"), "found", gate=Guarding(Ask("Look?"), []))
    middle = Agent(name="middle", model=stage.model([call("subagent", LOOK, id="m"), "ok"]), tools=[Subagents(inner)])
    async with Chat(lead(stage, Subagents(middle), {"agent": "middle", "task": "go"}), on_event=answer) as chat:
        await chat.prompt("Go.")
    assert paths == [("lead", "middle#1", "scout#1")]
    assert [result.text for result in stage.tool_results(3)] == ["found here"]


@pytest.mark.parametrize("arguments", [LOOK, PAIR, {"chain": [LOOK, LOOK]}])
@virtual_clock
async def test_an_abort_stops_the_whole_tree_and_is_no_result(arguments: dict[str, Any]) -> None:  # S1.4, S16.5
    stage = Stage(over_http=False)
    abort = Abort()
    asyncio.get_running_loop().call_later(1, abort.abort, "enough")
    result = await run(lead(stage, Subagents(scout(stage, hang)), arguments), "Go.", abort=abort)
    assert context_of(result, CancelledContext)
    assert errors(result) == ["Error: the run was stopped before this call finished."]
    assert {record.code for record in result.metadata.children} == {"EXECUTION_CANCELLED"}


@pytest.mark.parametrize("arguments", [LOOK, PAIR, {"chain": [LOOK, LOOK]}])
@virtual_clock
async def test_a_cancellation_goes_through(arguments: dict[str, Any]) -> None:  # S1.4, S1.5, S16.5
    stage = Stage(over_http=False)
    task = asyncio.create_task(run(lead(stage, Subagents(scout(stage, hang)), arguments), "Go."))
    await asyncio.sleep(1)
    await cancelled(task)


async def test_tools_of_a_child_know_the_signal_of_its_parent(stage: Stage) -> None:
    seen: list[Abort | None] = []

    @tool
    async def peek(context: ToolContext) -> str:
        seen.append(context.abort)
        return "ok"

    abort = Abort()
    peeker = Agent(name="scout", model=stage.model([call("peek", id="a"), "found"]), tools=[peek])
    await run(lead(stage, Subagents(peeker), LOOK), "Go.", abort=abort)
    assert seen == [abort]


@virtual_clock
async def test_all_children_end_when_the_time_of_their_parent_is_up() -> None:  # 4.7
    stage = Stage(over_http=False)
    clock = asyncio.get_running_loop().time
    ended: list[float] = []

    async def slow(request: Request) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(clock())
        return ""

    crew = Subagents(Agent(name="scout", model=FunctionModel(slow), limits=Limits(seconds=60)), max_concurrency=8)
    began = clock()
    result = await play(stage, crew, {"tasks": [LOOK] * 8}, limits=Limits(seconds=7))
    context = context_of(result, BudgetContext)
    assert (context.policy, context.limit) == ("seconds", 7)
    assert ended == [began + 7] * 8
    assert clock() == began + 7


@virtual_clock
async def test_a_childs_own_time_ends_only_the_child() -> None:
    stage = Stage(over_http=False)
    crew = Subagents(scout(stage, hang, limits=Limits(seconds=3)), scout(stage, name="quick"))
    pair = [LOOK, {"agent": "quick", "task": "x"}]
    result = await play(stage, crew, {"tasks": pair}, limits=Limits(seconds=7))
    assert read(result)["summary"] == "1/2 succeeded"
    assert "The run's seconds budget is used up: 3 of 3" in read(result)["results"][0]["output"]


async def test_a_busy_child_that_never_waits_stops_at_its_parents_deadline() -> None:
    def busy(request: Request) -> Answer:
        return call("look")

    stage = Stage(over_http=False)
    child = Agent(name="scout", model=FunctionModel(busy), tools=[look], limits=Limits(iterations=10_000_000))
    result = await play(stage, Subagents(child), LOOK, limits=Limits(seconds=0.05))
    assert result.code == "BUDGET_EXCEEDED"


@pytest.mark.parametrize("mode", ["single", "parallel", "chain"])
async def test_no_sub_agent_is_deeper_than_five(mode: str) -> None:  # S1.6, S16.11
    deepest: list[int] = []
    arguments: dict[str, Any] = {"single": LOOK, "parallel": {"tasks": [LOOK]}, "chain": {"chain": [LOOK]}}[mode]

    @tool
    async def depth(context: ToolContext) -> int:
        deepest.append(context.depth)
        return context.depth

    agent = Agent(name="scout", model=echo(), tools=[depth])
    for _ in range(MAX_DEPTH + 2):
        answers = [[call("depth", id="d"), call("subagent", arguments, id="s")], "done"]
        agent = Agent(name="scout", model=ScriptedModel(answers), tools=[depth, Subagents(agent)])
    result = await run(agent, "Go.")
    assert deepest == [0, 1, 2, 3, 4, 5]
    assert succeeded(result).output == "done"


async def test_what_children_did_before_a_death_is_not_done_again() -> None:  # 4.9
    asked: list[str] = []
    reached = asyncio.Event()

    def answering(name: str, *, hangs: bool) -> FunctionModel:
        async def answer(request: Request) -> str:
            asked.append(name)
            if hangs:
                reached.set()
                await asyncio.Event().wait()
            return name

        return FunctionModel(answer)

    def boss(*, hangs: bool) -> Agent:
        stuck = {"first": False, "second": hangs}
        agents = [Agent(name=name, model=answering(name, hangs=stuck[name])) for name in stuck]
        steps = [{"agent": "first", "task": "a"}, {"agent": "second", "task": "b {previous}"}]
        answers: list[Answer] = [call("subagent", {"chain": steps}, id="c"), "done"]
        model = FunctionModel(lambda request: answers[len(request.messages) // 2])
        return Agent(name="lead", model=model, tools=[Subagents(*agents)])

    journal = InMemoryJournal()
    task = asyncio.create_task(run(boss(hangs=True), "Go.", runtime=Runtime(journal=journal)))
    await cancelled(task, when=reached)
    result = await run(boss(hangs=False), "Go.", runtime=Runtime(journal=journal))
    assert asked == ["first", "second", "second"]
    assert read(result)["output"] == "second"
    assert succeeded(result).metadata.usage == Usage(requests=4, input_tokens=40, output_tokens=20)

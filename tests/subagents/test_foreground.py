"""Single, parallel and chain: what a sub-agent gets, what comes of it, and what goes wrong in it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from journeyman import Agent, Limits, Output, Result, Subagents, Tasks, Usage, run
from journeyman.agent import MessageContext
from journeyman.compaction import Compaction
from journeyman.errors import ProviderError, SubagentFailed
from journeyman.events import RunFailed, RunSucceeded
from journeyman.model import Request
from journeyman.subagents import ChainResult, ParallelResult, SingleResult
from journeyman.subagents.delegation import fill_task
from journeyman.testing.scripted import Answer, FunctionModel, Policy, ScriptedModel, call, say
from journeyman.types import Message, ToolResult, ToolUse
from tests.play import Recorder, Stage, broken, echo, existing, failed, hang, instance_of, succeeded, transcript
from tests.play.tools import look, make_tool, raising
from tests.subagents.leads import Count, counter, errors, lead, play, read, results, scout
from tests.support.clock import virtual_clock

ONE = {"input": 10, "output": 5, "turns": 1, "tools": 0}
"""The usage of one answer of the stage."""

LOOK = {"agent": "scout", "task": "look"}


def tasks(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"agent": agent, "task": task} for agent, task in pairs]


async def test_a_sub_agent_gets_its_task_and_nothing_of_its_parents_conversation(stage: Stage) -> None:  # S1.1
    result = await play(stage, Subagents(scout(stage, "found", system="Look well.")), LOOK)
    assert transcript(stage.messages(1)) == [("user", "look")]
    assert [text.text for text in stage.requests[1].prefix.system] == ["Look well."]
    assert stage.tool_names(1) == ["look"]
    assert succeeded(result).output == "done"


async def test_a_single_call_returns_output_and_usage(stage: Stage) -> None:  # S1.3
    crew = Subagents(scout(stage, call("look", id="a"), "found"))
    result = await play(stage, crew, LOOK)
    assert read(result) == {"output": "found", "usage": {"input": 20, "output": 10, "turns": 2, "tools": 1}}


async def test_a_typed_output_is_json_for_the_model_and_a_value_for_a_program(stage: Stage) -> None:  # 4.11
    crew = Subagents(counter(stage))
    result = await play(stage, crew, {"agent": "counter", "task": "count"})
    assert read(result) == {"output": {"total": 4, "places": ["attic"]}, "usage": ONE}
    executed = instance_of(SingleResult, await crew.execute({"agent": "counter", "task": "count"}))
    assert executed.value == Count(total=4, places=["attic"])
    assert succeeded(await crew.run("counter", "count")).output == Count(total=4, places=["attic"])


async def test_an_output_that_is_no_object_is_not_wrapped(stage: Stage) -> None:
    lister = Agent(name="lister", model=stage.model([call("output", value=[1, 2])]), output=Output(list[int]))
    result = await play(stage, Subagents(lister), {"agent": "lister", "task": "list"})
    assert read(result)["output"] == [1, 2]


async def test_a_typed_input_is_parsed_from_the_task(stage: Stage) -> None:
    judge: Agent[str, Count] = Agent(name="judge", model=stage.model(["fine"]), input=Count)
    crew = Subagents(judge)
    result = await play(stage, crew, *tasks(("judge", '{"total": 3}'), ("judge", '{"total": "x"}')))
    assert read(result)["output"] == "fine"
    assert transcript(stage.messages(1)) == [("user", '{"total":3,"places":[]}')]
    [error] = errors(result)
    assert error.startswith("Error: The task of 'judge' has to be JSON that fits its input. Invalid arguments")


async def test_a_program_gives_a_typed_input_as_a_value() -> None:
    judge: Agent[str, Count] = Agent(name="judge", model=echo(), input=Count)
    assert (await Subagents(judge).run("judge", Count(total=1))).unwrap() == '<{"total":1,"places":[]}>'


async def test_what_ended_the_run_is_told_apart_and_in_the_output(stage: Stage) -> None:  # S1.3, S16.7
    crew = Subagents(
        scout(stage, say("Looking.", call("look", where="x", id="a")), stop_after=["look"]),
        scout(stage, call("look", id="b"), name="silent", stop_after=["look"]),
    )
    result = await play(stage, crew, {"agent": "scout", "task": "look"}, {"agent": "silent", "task": "look"})
    assert read(result)["output"] == "Looking.\n\nfound x"
    assert read(result)["terminal_result"] == "found x"
    assert read(result, 1)["output"] == "found here"


async def test_a_failure_is_an_error_that_names_the_agent_and_counts_what_it_did(stage: Stage) -> None:  # S1.3
    failing = scout(stage, call("look", id="a"), limits=Limits(iterations=1))
    [error] = errors(await play(stage, Subagents(failing), {"agent": "scout", "task": "look"}))
    assert error.startswith("Error: Sub-agent 'scout' failed (turns=1 tools=1): MAX_ITERATIONS: ")


async def test_a_failure_before_any_turn_counts_nothing(stage: Stage) -> None:  # S1.3
    crew = Subagents(Agent(name="lost", model="nowhere:x"))
    [error] = errors(await play(stage, crew, {"agent": "lost", "task": "x"}))
    assert error.startswith("Error: Sub-agent 'lost' failed: MODEL_UNAVAILABLE: ")


async def test_partial_text_of_a_failure_is_never_an_output(stage: Stage) -> None:  # S1.3, S16.2
    crew = Subagents(scout(stage, say("half of it", stop_reason="max_tokens")))
    with pytest.raises(SubagentFailed, match="TOKEN_LIMIT_EXCEEDED") as raised:
        await crew.execute(LOOK)
    assert failed(raised.value.failure).metadata.usage == Usage(requests=1, input_tokens=10, output_tokens=5)
    assert raised.value.agent == "scout"


async def test_the_cause_of_a_failure_can_be_matched() -> None:  # S1.3
    crew = Subagents(Agent(name="scout", model=FunctionModel(raising(LookupError("lost")))))
    with pytest.raises(SubagentFailed) as raised:
        await crew.execute({"agent": "scout", "task": "look"})
    assert isinstance(raised.value.__cause__, ProviderError)
    assert isinstance(raised.value.__cause__.__cause__, LookupError)


async def test_sub_agents_do_not_retry_unless_they_say_so(stage: Stage) -> None:  # S1.8
    busy = ProviderError("busy", kind="overloaded", retry_after_s=0.0)
    once, twice = (
        scout(stage, busy, "found", name="once"),
        scout(stage, busy, "found", name="twice", limits=Limits(request_retries=1)),
    )
    result = await play(stage, Subagents(once, twice), {"agent": "once", "task": "x"}, {"agent": "twice", "task": "x"})
    assert "API_ERROR" in errors(result)[0]
    assert read(result, 1)["output"] == "found"


async def test_sub_agents_that_a_program_starts_do_not_retry_either(stage: Stage) -> None:  # S1.8
    busy = ProviderError("busy", kind="overloaded", retry_after_s=0.0)

    def crew(retries: int | None = None) -> Subagents:
        return Subagents(scout(stage, busy, "found", limits=Limits(request_retries=retries)))

    look = {"agent": "scout", "task": "look"}
    assert (await crew().run("scout", "look")).code == "API_ERROR"
    assert (await crew(retries=1).run("scout", "look")).unwrap() == "found"
    with pytest.raises(SubagentFailed):
        await crew().execute(look)
    assert (await crew().execute({"tasks": [look]})).to_json().startswith('{"summary":"0/1')
    async with Tasks(notify=lambda text, info: None) as tasks:
        for each in (crew(), crew(retries=1)):
            each.tasks = tasks
            await each.execute({**look, "background": True})
        await tasks.wait()
        assert [info.status for info in tasks.list()] == ["failed", "completed"]


async def test_a_hook_of_two_parameters_is_told_of_whom_every_message_is(stage: Stage) -> None:
    heard, own = list[tuple[str, MessageContext]](), list[MessageContext]()

    def hear(message: Message, context: MessageContext) -> None:
        heard.append((message.text, context))

    crew = Subagents(scout(stage, call("look", id="a"), "found", on_message=hear))

    def hear_own(message: Message, context: MessageContext) -> None:
        own.append(context)

    await play(stage, crew, {"agent": "scout", "task": "look"}, on_message=hear_own)
    whose = MessageContext(path=("lead", "scout#1"), agent="scout", task="look", index=0)
    assert [context for _, context in heard] == [replace(whose, index=index) for index in range(4)]
    assert (heard[0][0], heard[-1][0]) == ("look", "found")
    assert [context.index for context in own] == list(range(len(own)))
    assert {(context.path, context.agent) for context in own} == {(("lead",), "lead")}


async def test_an_optional_second_parameter_of_on_message_is_left_alone(stage: Stage) -> None:
    heard = list[object]()

    def hear(message: Message, mine: str = "mine") -> None:
        heard.append(mine)

    crew = Subagents(scout(stage, "found", on_message=hear))
    await play(stage, crew, {"agent": "scout", "task": "look"})
    assert heard == ["mine", "mine"]


@virtual_clock
async def test_results_come_in_the_order_of_the_tasks_however_they_end() -> None:  # S1.4
    def late(n: int) -> Policy:
        async def answer(request: Request) -> Answer:
            await asyncio.sleep(3 - n)
            return f"answer {n}"

        return answer

    agents = [Agent(name=f"a{n}", model=ScriptedModel([late(n)])) for n in range(3)]
    result = await Subagents(*agents).execute({"tasks": tasks(("a0", "x"), ("a1", "y"), ("a2", "z"))})
    assert isinstance(result, ParallelResult)
    assert result.summary == "3/3 succeeded"
    expected = [("a0", "x", "answer 0"), ("a1", "y", "answer 1"), ("a2", "z", "answer 2")]
    assert [(item.agent, item.task, item.output) for item in result.results] == expected


async def test_one_failure_leaves_the_others_alone(stage: Stage) -> None:  # S1.4
    crew = Subagents(scout(stage), scout(stage, say("No.", stop_reason="refusal"), name="no"))
    result = await play(stage, crew, {"tasks": tasks(("no", "a"), ("scout", "b"), ("nobody", "c"), ("scout", ""))})
    answer = read(result)
    assert answer["summary"] == "1/4 succeeded"
    refused, found, unknown, blank = answer["results"]
    assert refused["is_error"]
    assert "MODEL_REFUSED" in refused["output"]
    assert refused["usage"] == ONE
    assert found == {"agent": "scout", "task": "b", "output": "found", "usage": ONE}
    why, nothing = "There is no sub-agent 'nobody'. There are: no, scout.", dict.fromkeys(ONE, 0)
    assert unknown == {"agent": "nobody", "task": "c", "is_error": True, "output": why, "usage": nothing}
    assert "PROMPT_GENERATION_FAILED" in blank["output"]


@pytest.mark.parametrize(("limit", "most"), [(4, 4), (1, 1), (None, 7)])
def test_only_so_many_run_at_the_same_time(limit: int | None, most: int) -> None:  # S1.4, S1.9
    at_work = [0, 0]

    async def work(request: object) -> str:
        at_work[0] += 1
        at_work[1] = max(at_work)
        await asyncio.sleep(1)
        at_work[0] -= 1
        return "done"

    @virtual_clock
    async def scenario() -> None:
        crew = Subagents(Agent(name="scout", model=FunctionModel(work)), max_concurrency=limit)
        await crew.execute({"tasks": tasks(*[("scout", str(n)) for n in range(7)])})

    scenario()
    assert at_work == [0, most]


async def test_too_many_tasks_are_misuse_and_none_begins(stage: Stage) -> None:  # S1.4
    crew = Subagents(scout(stage), max_tasks=2)
    [error] = errors(await play(stage, crew, {"tasks": tasks(*[("scout", "x")] * 3)}))
    assert error == "Error: These are 3 tasks, and at most 2 may run in one call. Use several calls."
    assert stage.n_requests == 2


async def test_without_a_limit_any_number_of_tasks_will_do() -> None:  # S1.9
    crew = Subagents(Agent(name="scout", model=echo()), max_tasks=None)
    result = instance_of(ParallelResult, await crew.execute({"tasks": tasks(*[("scout", str(n)) for n in range(20)])}))
    assert result.summary == "20/20 succeeded"


async def test_a_chain_hands_on_what_came_before(stage: Stage) -> None:  # S1.5
    crew = Subagents(scout(stage, "{previous} & <x>"), scout(stage, "written", name="writer"))
    steps = tasks(("scout", "look{previous}"), ("writer", "write {previous}, {previous}"))
    result = await play(stage, crew, {"chain": steps})
    task = "write {previous} & <x>, {previous} & <x>"
    first = {"step": 1, "agent": "scout", "task": "look", "output": "{previous} & <x>", "usage": ONE}
    second = {"step": 2, "agent": "writer", "task": task, "output": "written", "usage": ONE}
    assert read(result) == {"output": "written", "results": [first, second]}


async def test_a_field_of_a_typed_output_is_handed_on(stage: Stage) -> None:
    crew = Subagents(counter(stage), scout(stage))
    steps = tasks(("counter", "x"), ("scout", "{previous.total} in {previous.places.0}: {previous.places} {previous}"))
    result = await play(stage, crew, {"chain": steps})
    assert read(result)["results"][1]["task"] == '4 in attic: ["attic"] {"total":4,"places":["attic"]}'


@pytest.mark.parametrize(
    ("field", "there"),
    [
        ("sum", "are the fields total, places"),
        ("places.²", "is a list of 1"),
        (f"places.{'9' * 5_000}", "is a list of 1"),
    ],
)
async def test_a_field_that_is_not_there_stops_the_chain(stage: Stage, field: str, there: str) -> None:
    crew = Subagents(counter(stage), scout(stage))
    steps = tasks(("counter", "x"), ("scout", f"{{previous.{field}}}"), ("scout", "y"))
    answer = read(await play(stage, crew, {"chain": steps}))
    assert answer["error"] == (
        f"Step 2 failed. {{previous.{field}}} means nothing: there {there}. "
        "To go on from there, call again with start_at=2 and previous."
    )
    assert [each.get("is_error", False) for each in answer["results"]] == [False, True]
    assert stage.n_requests == 3


def test_fields_of_a_text_mean_nothing_and_stay() -> None:
    assert fill_task("{previous.total} {previous}", "text", "text") == "{previous.total} text"


async def test_an_unknown_agent_is_found_when_its_step_is_reached(stage: Stage) -> None:  # S1.5
    answer = read(await play(stage, Subagents(scout(stage)), {"chain": tasks(("scout", "a"), ("nobody", "b"))}))
    assert answer["error"].startswith("Step 2 failed. There is no sub-agent 'nobody'.")
    assert answer["results"][0]["output"] == "found"


async def test_a_list_has_elements_and_no_fields(stage: Stage) -> None:
    crew = Subagents(scout(stage))
    for task, told in (
        ("{previous.1}", "b"),
        ("{previous.2}", "there is a list of 2"),
        ("{previous.x}", "a list of 2"),
    ):
        result = await crew.execute({"chain": tasks(("scout", task)), "start_at": 1, "previous": '["a", "b"]'})
        assert isinstance(result, ChainResult)
        assert told in (result.error or result.results[0].task)


async def test_what_only_looks_like_json_is_a_text(stage: Stage) -> None:
    steps = tasks(("scout", "a"), ("scout", "b {previous}, {previous.total}"))
    result = await Subagents(scout(stage)).execute({"chain": steps, "start_at": 2, "previous": '{"total": 3'})
    assert isinstance(result, ChainResult)
    assert [(item.step, item.task) for item in result.results] == [(2, 'b {"total": 3, {previous.total}')]


async def test_a_stopped_chain_goes_on_at_its_step(stage: Stage) -> None:
    crew = Subagents(scout(stage, "found"), counter(stage))
    steps = tasks(("nobody", "a"), ("scout", "b {previous}, {previous.total}"), ("scout", "c {previous}"))
    result = instance_of(ChainResult, await crew.execute({"chain": steps, "start_at": 2, "previous": '{"total": 3}'}))
    assert [(item.step, item.task) for item in result.results] == [(2, 'b {"total": 3}, 3'), (3, "c found")]
    assert (result.output, result.value) == ("found", "found")


async def test_a_chain_with_typed_steps_gives_a_program_the_last_value(stage: Stage) -> None:
    result = instance_of(ChainResult, await Subagents(counter(stage)).execute({"chain": tasks(("counter", "a"))}))
    assert result.value == Count(total=4, places=["attic"])


Make = Callable[[Stage], Agent[Any, Any]]


def faulty(stage: Stage, *answers: Any, **fields: Any) -> Agent[Any, Any]:
    return scout(stage, *answers, name="faulty", **fields)


raises = make_tool("raises", BaseExceptionGroup("several", [ValueError("one"), asyncio.CancelledError("leaked")]))


def with_a_broken_hook(stage: Stage) -> Agent[Any, Any]:
    return faulty(stage, compaction=Compaction(transform_messages=raising(RuntimeError("broken hook"))))


def with_a_tool_that_raises(stage: Stage) -> Agent[Any, Any]:
    model = stage.model([call("raises", id="r"), ProviderError("gone", kind="network")])
    return Agent(name="faulty", model=model, tools=[raises])


def late(stage: Stage) -> Agent[Any, Any]:
    return faulty(stage, hang, limits=Limits(seconds=0.02))


def invalid(stage: Stage) -> Agent[Any, Any]:
    model = stage.model([call("output", total="many")], repeat=True)
    return Agent(name="faulty", model=model, output=Output(Count), limits=Limits(attempts=2))


TOO_LONG = ProviderError("prompt is too long", kind="context_overflow", status=400)

FAULTS: dict[str, tuple[Make, str]] = {
    "raises": (with_a_broken_hook, "INTERNAL_ERROR"),
    "a tool raises, then the network is gone": (with_a_tool_that_raises, "API_ERROR"),
    "hangs": (late, "BUDGET_EXCEEDED"),
    "is refused": (lambda stage: faulty(stage, say("No.", stop_reason="refusal")), "MODEL_REFUSED"),
    "overflows": (lambda stage: faulty(stage, TOO_LONG), "CONTEXT_OVERFLOW"),
    "is cut": (lambda stage: faulty(stage, say("half", stop_reason="max_tokens")), "TOKEN_LIMIT_EXCEEDED"),
    "breaks off": (lambda stage: faulty(stage, broken("half", " of it")), "API_ERROR"),
    "repeats itself": (lambda stage: faulty(stage, call("look"), limits=Limits(iterations=2)), "MAX_ITERATIONS"),
    "exceeds its tokens": (lambda stage: faulty(stage, limits=Limits(tokens=10)), "BUDGET_EXCEEDED"),
    "returns an invalid output": (invalid, "MAX_ATTEMPTS_EXCEEDED"),
    "has no model": (lambda stage: Agent(name="faulty", model="nowhere:x", tools=[look]), "MODEL_UNAVAILABLE"),
}

PAIR = [{"agent": "scout", "task": "a"}, {"agent": "faulty", "task": "b"}, {"agent": "scout", "task": "c"}]
MODES: dict[str, dict[str, Any]] = {"single": PAIR[1], "parallel": {"tasks": PAIR}, "chain": {"chain": PAIR}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_stays_where_it_is(stage: Stage, fault: str, mode: str, recorder: Recorder) -> None:
    make, why = FAULTS[fault]
    crew = Subagents(make(stage), scout(stage, call("look", id="a"), "found"))
    result = await run(lead(stage, crew, MODES[mode]), "Go.", on_event=recorder)
    assert result.code == "SUCCESS"
    check_told(result, mode, why)
    check_usage(result, recorder)
    check_sendable(result)


def check_told(result: Result[Any], mode: str, why: str) -> None:
    """The model reads what went wrong, and what the siblings did."""
    [answer] = results(result)
    assert why in answer.text
    match mode:
        case "single":
            assert answer.is_error
        case "parallel":
            assert [item.get("is_error", False) for item in read(result)["results"]] == [False, True, False]
            assert [read(result)["results"][number]["output"] for number in (0, 2)] == ["found", "found"]
        case _:
            assert [item.get("is_error", False) for item in read(result)["results"]] == [False, True]
            assert read(result)["error"].startswith("Step 2 failed.")


def check_usage(result: Result[Any], recorder: Recorder) -> None:
    """What the parent used is what it used itself, and what its children did; each child has ended once."""
    ended = {event.path: event for event in (*recorder.of(RunSucceeded), *recorder.of(RunFailed))}
    children = {record.path: record.usage for record in result.metadata.children}
    assert {path for path in ended if len(path) > 1} == {*children}
    assert all(ended[path].metadata.usage == usage for path, usage in children.items())
    own = Usage(requests=2, input_tokens=20, output_tokens=10)
    assert result.metadata.usage == Usage.total([own, *[usage for usage in children.values() if usage.requests]])


def check_sendable(result: Result[Any]) -> None:
    """Every call is answered once, in the next message. Over HTTP, the strict server has checked the rest."""
    calls = [block.id for message in result.history for block in message.content if isinstance(block, ToolUse)]
    answers = [block for message in result.history for block in message.content if isinstance(block, ToolResult)]
    assert [answer.tool_use_id for answer in answers] == calls


async def test_a_sub_agent_that_is_cancelled_alone_leaves_its_siblings(stage: Stage) -> None:
    async def suicidal(request: object) -> str:
        task = existing(asyncio.current_task())
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    crew = Subagents(Agent(name="faulty", model=FunctionModel(suicidal)), scout(stage))
    result = await run(lead(stage, crew, {"tasks": PAIR}), "Go.")
    answer = read(result)
    assert answer["summary"] == "2/3 succeeded"
    assert answer["results"][1]["output"] == "Sub-agent 'faulty' was cancelled from outside."
    assert [record.code for record in result.metadata.children] == [None, "EXECUTION_CANCELLED", None]

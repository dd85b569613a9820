"""Many runs of one agent, at the same time or one after the other: nothing of one is seen in another."""

import asyncio
from dataclasses import replace
from random import Random

from journeyman import Abort, Agent, ErrorCode, Failure, Limits, Result, Success, ToolContext, run, run_sync, tool
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call
from journeyman.tools.context import States
from journeyman.types import ToolResult
from tests.loop.parts import REFLECTED
from tests.play import Recorder, Report, Stage, check_balance, n_answers, report, reporter, submit, talker, transcript
from tests.play.results import existing, failed
from tests.support.messages_answers import Raw, Reply, answer, tool_use
from tests.support.messages_json import Json, as_list
from tests.support.servers import MessagesApi


def total(states: States) -> object:
    return states.run


def given(request: Request) -> int:
    """Return the number that a run is about."""
    return int(request.messages[0].text)


def counting(request: Request) -> Answer:
    """Add the run's number up three times, propose too much, then the sum."""
    number = given(request)
    match n_answers(request):
        case 0:
            return [call("add", n=number), call("add", n=number)]
        case 1:
            return [call("add", n=number), report(1_000)]
        case 2:
            return submit()
        case _:
            return [report(3 * number), submit()]


@tool
async def add(n: int, ctx: ToolContext) -> int:
    """Add to the state, slowly."""
    for _ in range(Random(f"{n} {ctx.iteration}").randrange(5)):
        await asyncio.sleep(0)
    total = ctx.run_state(int) + n
    ctx.set_run_state(total)
    return total


def nothing(given: str) -> int:
    return 0


async def test_runs_of_one_agent_at_the_same_time_do_not_meet() -> None:  # A48, D49
    def judge(output: Report) -> None:
        if output.total == 1_000:
            raise ValueError("too large")

    options = {"tools": [add], "validators": [judge], "run_state": nothing, "final_state": total}
    agent = reporter(FunctionModel(counting), output=REFLECTED, **options)
    recorders = [Recorder() for _ in range(50)]
    results = await asyncio.gather(*(run(agent, str(n), on_event=recorder) for n, recorder in enumerate(recorders)))
    assert len(results) == 50
    for n, (result, recorder) in enumerate(zip(results, recorders, strict=True)):
        check_balance(recorder.events)
        assert isinstance(result, Success), result
        assert (result.output, result.state) == (Report(total=3 * n), 3 * n)
        assert result.history[0].text == str(n)
        assert [record.iterations for record in result.metadata.attempts] == [3, 1]
        assert existing(result.metadata.usage).requests == 4
        assert result.metadata.tools["add"].calls == 3


async def test_one_run_that_fails_or_is_stopped_leaves_the_others_alone() -> None:  # A48
    aborts = [Abort() for _ in range(6)]

    @tool
    async def wait(n: int) -> str:
        if n == 1:
            aborts[2].abort("by a neighbour")
        if n == 2:
            await asyncio.Event().wait()
        for _ in range(10):
            await asyncio.sleep(0)
        if n == 3:
            raise ValueError("three")
        return f"waited {n}"

    def ask(request: Request) -> Answer:
        if n_answers(request) == 0:
            return call("wait", n=given(request))
        return "" if given(request) == 4 else f"Done {given(request)}."

    agent = talker(FunctionModel(ask), tools=[wait])
    results: list[Result[str]] = await asyncio.gather(
        *(run(agent, str(n), abort=abort) for n, abort in enumerate(aborts))
    )
    codes = [result.code if isinstance(result, Failure) else None for result in results]
    assert codes == [None, None, ErrorCode.EXECUTION_CANCELLED, None, ErrorCode.INVALID_RESPONSE, None]
    assert [result.unwrap_or("") for result in results] == ["Done 0.", "Done 1.", "", "Done 3.", "", "Done 5."]


async def test_runs_at_the_same_time_over_http_do_not_meet() -> None:  # A48
    def reply(body: Json) -> Reply | Raw:
        messages = as_list(body["messages"])
        number = repr(messages[0]).partition("number ")[2].split("'")[0]
        if len(messages) == 1:
            return answer(tool_use("look", {"where": number}))
        return answer(f"It is {number}.")

    async with MessagesApi(reply) as api:
        agent = talker(Stage(over_http=True, url=api.url).model([]))
        results = await asyncio.gather(*(run(agent, f"number {n}") for n in range(20)))
    assert [result.unwrap() for result in results] == [f"It is {n}." for n in range(20)]
    found = [transcript(result.history)[2][1].partition(": ")[2] for result in results]
    assert found == [f"found {n}" for n in range(20)]


async def test_a_definition_is_the_same_after_a_run_as_before(stage: Stage) -> None:  # A48
    agent = reporter(stage.model([call("look"), report(99), report(1)]))
    before = repr(agent)
    await run(agent, "Go.")
    assert repr(agent) == before


async def test_a_copy_of_a_definition_is_another_agent(stage: Stage) -> None:  # A48
    agent = reporter(stage.model([report(99), report(99)]))
    strict, lax = replace(agent, limits=Limits(attempts=1)), replace(agent, validators=[])
    assert failed(await run(strict, "Go.")).code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert (await run(lax, "Go.")).unwrap() == Report(total=99)


def test_one_agent_may_run_in_one_event_loop_after_the_other() -> None:  # A48, design 4.14
    agent = talker(ScriptedModel(["One.", "Two.", "Three."]), limits=Limits(seconds=60))
    assert [run_sync(agent, "Go.", abort=Abort()).unwrap() for _ in range(3)] == ["One.", "Two.", "Three."]


async def test_a_tool_may_run_the_agent_that_runs_it() -> None:  # A48
    @tool
    async def ask(n: int, ctx: ToolContext) -> str:
        result = await run(agent, str(n))
        return f"{ctx.input} heard {result.unwrap()}"

    def answers(request: Request) -> Answer:
        number = given(request)
        if number == 0 or n_answers(request) == 1:
            last = request.messages[-1].content[-1]
            return last.text if isinstance(last, ToolResult) else "nothing"
        return call("ask", n=number - 1)

    agent: Agent[str, str] = talker(FunctionModel(answers), tools=[ask])
    result = await run(agent, "3")
    assert result.unwrap() == "3 heard 2 heard 1 heard nothing"

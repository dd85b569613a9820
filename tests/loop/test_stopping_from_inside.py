"""A tool ends its own run: in good order, with all that was gathered, and in every life of the run alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from journeyman import Agent, Chat, Failure, Limits, Output, Runtime, Subagents, ToolContext, run, stream, tool
from journeyman.endings import CancelledContext
from journeyman.journal import InMemoryJournal
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.toolbox import deferred_tools
from journeyman.tools.tools import CallNext, MiddlewareCall
from journeyman.types import ToolResult
from tests.loop.parts import end_of
from tests.play import failed, look, make_tool, report, reporter, texts

NOT_RUN = "Error: not run, because an earlier call has stopped the run."


@tool
async def give_up(ctx: ToolContext, why: str = "the page is gone") -> str:
    ctx.stop(why)
    ctx.stop("said too late")
    return "noted"


def quitter(*answers: Answer, **options: Any) -> Agent[str]:
    tools = options.pop("tools", [look, give_up])
    return Agent(name="quitter", model=ScriptedModel(list(answers)), tools=tools, **options)


async def test_a_tool_stops_its_run_with_its_own_result_and_no_call_or_request_follows() -> None:
    agent = quitter([call("look"), call("give_up"), call("look", where="there")], "Never asked.")
    result = await run(agent, "Go.")
    assert end_of(result) == (CancelledContext(reason="the page is gone", doing="running tools"), 1, 1)
    assert texts(result) == ["found here", "noted", NOT_RUN]
    assert result.metadata.tools["give_up"].succeeded == 1
    assert str(result.error if isinstance(result, Failure) else "").endswith("running tools: the page is gone.")


async def test_an_output_of_the_same_response_is_not_taken() -> None:
    model = ScriptedModel([[report(id="out"), call("give_up")]])
    result = failed(await run(reporter(model, tools=[look, give_up]), "Go."))
    assert result.error.context == CancelledContext(reason="the page is gone", doing="running tools")
    assert result.candidate == {"total": 3}


async def test_calls_that_run_together_with_it_end_first() -> None:
    @tool(parallel=True)
    async def quit(ctx: ToolContext) -> str:
        ctx.stop("enough")
        return "quit"

    find = make_tool("find", "found", parallel=True)
    agent = quitter([call("quit"), call("find"), call("find")], tools=[quit, find], limits=Limits(max_concurrency=1))
    assert texts(await run(agent, "Go.")) == ["quit", "found", "found"]


@tool
async def fails(ctx: ToolContext) -> str:
    ctx.stop("enough")
    raise ValueError("broken")


@tool(timeout_s=0.01)
async def is_late(ctx: ToolContext) -> str:
    ctx.stop("enough")
    await asyncio.Event().wait()
    return ""


@tool
def in_a_thread(ctx: ToolContext) -> str:
    """Work in a thread."""
    ctx.stop("enough")
    return "done"


@tool(cache="run", effect="pure")
async def is_cached(ctx: ToolContext) -> str:
    ctx.stop("enough")
    return "done"


@pytest.mark.parametrize("how", [fails, is_late, in_a_thread, is_cached], ids=lambda each: str(each.name))
async def test_the_run_stops_however_the_call_ends(how: Any) -> None:  # noqa: ANN401 - a tool
    result = failed(await run(quitter(call(how.name), tools=[how]), "Go."))
    assert result.error.context == CancelledContext(reason="enough", doing="running tools")


async def test_a_middleware_and_a_deferred_tool_stop_the_run_too() -> None:
    async def quits(called: MiddlewareCall, call_next: CallNext) -> ToolResult:
        called.context.stop("the middleware has had enough")
        return await call_next(called)

    result = failed(await run(quitter(call("look"), tool_middleware=[quits]), "Go."))
    assert texts(result) == ["found here"]
    assert "the middleware has had enough" in str(result.error)

    through = [call("tool_search", query="give_up"), call("call_tool", name="give_up", arguments={"why": "gone"})]
    result = failed(await run(quitter(*through, tools=deferred_tools([give_up])), "Go."))
    assert result.error.context == CancelledContext(reason="gone", doing="running tools")


async def test_a_call_that_has_ended_stops_nothing_and_a_reason_says_something() -> None:
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "kept"

    result = await run(quitter(call("keep"), call("give_up", why=" "), "Done.", tools=[keep, give_up]), "Go.")
    assert "which says nothing. Say why" in texts(result)[1]
    assert result.unwrap() == "Done."
    with pytest.raises(RuntimeError, match="'keep' has ended, so it can no longer stop its run"):
        kept[0].stop("too late")


async def test_the_turn_of_a_chat_ends_and_the_chat_goes_on() -> None:
    async with Chat(quitter(call("give_up"), "Here again.")) as chat:
        assert texts(failed(await chat.prompt("Go."))) == ["noted"]
        assert (await chat.prompt("On.")).unwrap() == "Here again."


async def test_a_stream_gives_the_failure() -> None:
    async with stream(quitter(call("give_up")), "Go.") as events:
        kinds = [type(event).__name__ async for event in events]
    assert isinstance(events.result, Failure)
    assert kinds[-1] == "RunFailed"


async def test_a_sub_agent_stops_itself_and_its_lead_goes_on() -> None:
    helper = quitter(call("give_up"), description="Helps.")
    delegated = call("subagent", agent="quitter", task="Help.")
    lead = Agent(name="lead", model=ScriptedModel([delegated, "Without help."]), tools=[Subagents(helper)])
    result = await run(lead, "Go.")
    assert result.unwrap() == "Without help."
    assert "the page is gone" in texts(result)[0]
    assert [child.code for child in result.metadata.children] == ["EXECUTION_CANCELLED"]


def crew(made: Callable[[], object]) -> Agent[str]:
    @tool(parallel=True)
    async def quit(ctx: ToolContext) -> str:
        made()
        ctx.stop("enough")
        return "quit"

    @tool(parallel=True, effect="once")
    async def find() -> str:
        made()
        return "found"

    def answer(request: Any) -> Answer:  # noqa: ANN401 - of a model
        assert len(request.messages) == 1, "nothing is asked after the stop"
        return say(call("find", id="a"), call("quit", id="b"), call("look", id="c"), call("find", id="d"))

    return Agent(name="quitter", model=FunctionModel(answer), tools=[quit, find, look], output=Output(str))


async def test_a_death_after_any_step_gives_the_same_end() -> None:
    whole, calls = InMemoryJournal(), list[object]()
    result = await run(crew(lambda: calls.append(1)), "Go.", runtime=Runtime(journal=whole))
    assert texts(result) == ["found", "quit", NOT_RUN, NOT_RUN]
    assert len(calls) == 2
    for n in range(len(whole.finished) + 1):
        kept = dict(list(whole.finished.items())[:n])
        rest = InMemoryJournal(finished=dict(kept), started={key for key in whole.started if key in kept})
        again = failed(await run(crew(lambda: None), "Go.", runtime=Runtime(journal=rest)))
        assert isinstance(result, Failure)
        assert (again.error, again.history) == (result.error, result.history), list(kept)

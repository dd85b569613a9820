"""MCP tools in runs: results of all kinds, progress, cancellation, timeouts, names, effects."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Literal

import pytest

from journeyman import Agent, DefinitionError, Image, Text, ToolResult, run
from journeyman.events import Event, ToolProgress
from journeyman.mcp import connection, mcp
from journeyman.mcp.tools import unique_names
from journeyman.mcp.transports import StdioTransport
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.tools.tools import AnyTool
from tests.cli.program import Warm
from tests.mcp.small import MODERN, Small, by_name, outside, progress_in, stopped_at_progress, until
from tests.play import answered

pytestmark = pytest.mark.timeout(60)  # importing the SDK and starting a server made with it take seconds

CUT = "x" * 100 + "\n[Cut: the first 100 of 10,000,000 characters.]"
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


async def test_an_agent_calls_a_tool_that_is_untrusted_and_to_be_called_once_whatever_the_server_says(
    small: Small,
) -> None:
    async with mcp({"small": small.at("server")}) as (echo,):
        model = ScriptedModel([call("echo", {"word": "hello"}), "Done."])
        result = await run(Agent(name="tester", model=model, tools=[echo]), "Go.")
    assert (result.unwrap(), result.history[2].content) == ("Done.", (ToolResult("hello", tool_use_id="call_1_0"),))
    assert (echo.name, echo.description, echo.input_schema) == ("echo", "Does echo.", WORD)
    assert (echo.effect, echo.untrusted, echo.parallel) == ("once", "throughout", False)


async def test_the_user_says_what_calls_do_and_which_tools_are_taken(small: Small) -> None:
    async with mcp({"small": small.at("changing")}, effects={"same": "pure"}, parallel=True) as tools:
        echo, same = [(each.name, each.effect, each.parallel) for each in tools]
        assert (echo, same) == (("echo", "once", True), ("same", "pure", True))
    async with mcp({"small": small.at("changing", only=["same"])}) as tools:
        assert [each.name for each in tools] == ["same"]


async def test_an_effect_of_no_tool_is_refused(small: Small) -> None:
    with pytest.raises(DefinitionError, match=r"There is no tool 'ecko'\. There are: echo\."):
        async with mcp({"small": small.at("server")}, effects={"ecko": "pure"}):
            pass


async def test_arguments_are_checked_before_the_server_sees_them(small: Small) -> None:
    async with mcp({"small": small.at("server")}) as (echo,):
        result = await answered(echo, {"word": 3})
    assert result.is_error
    assert "word: should be of type string" in result.text
    assert not any("tools/call" in line for line in small.lines)


async def test_a_schema_may_name_its_draft(small: Small) -> None:
    async with mcp({"small": small.at("odd", only=["with draft"])}) as (tool,):
        assert tool.name == "with_draft"
        assert "$schema" not in tool.spec.input_schema
        assert (await answered(tool, {"word": "x"})).text == "with draft: x"
        assert (await answered(tool, {"word": 1})).is_error


async def test_progress_is_reported(small: Small) -> None:
    events: list[Event] = []
    async with mcp({"small": small.at("sour")}) as (echo,):
        assert (await answered(echo, {"word": "steps"}, on_event=events.append)).text == "arrived"
    assert progress_in(events) == [("step 1", 0.25), ("step 2", 0.5), ("step 3", 0.75), ("9", None)]


async def test_a_server_that_asks_for_a_model_is_told_that_there_is_none(small: Small) -> None:
    assert (await small.asked("ask")).text == "asked"
    (answer,) = [line for line in small.lines if line.startswith("answer to the question")]
    assert "Sampling not supported" in answer


async def test_a_cancelled_call_is_cancelled_at_the_server_which_goes_on(small: Small) -> None:
    async with mcp({"small": small.at("sour")}) as (echo,):
        result = await stopped_at_progress([echo], call("echo", {"word": "linger"}))
        assert (result.error.code, (await answered(echo, {"word": "ok"})).text) == ("EXECUTION_CANCELLED", "ok")
    asked, *_ = [json.loads(line) for line in small.lines if '"tools/call"' in line]
    (cancelled,) = [json.loads(line) for line in small.lines if "notifications/cancelled" in line]
    assert (cancelled["params"]["requestId"], small.n_starts) == (asked["id"], 1)


async def test_a_call_that_takes_too_long_is_cancelled_and_the_server_goes_on(small: Small) -> None:
    async with mcp({"small": small.at("sour")}, call_timeout_s=0.3) as (echo,):
        assert (await answered(echo, {"word": "hang"})).text == "Error: echo timed out after 0.3s"
        assert (await answered(echo, {"word": "ok"})).text == "ok"
    assert any("notifications/cancelled" in line for line in small.lines)
    assert small.n_starts == 1


@pytest.mark.parametrize(
    ("word", "result"),
    [
        pytest.param("error", ToolResult("no such word", True, "call_1_0"), id="what a server calls an error is one"),
        pytest.param("big", ToolResult(CUT, tool_use_id="call_1_0"), id="a huge result is cut with a note"),
    ],
)
async def test_what_a_model_reads_of_an_answer(word: str, result: ToolResult, small: Small) -> None:
    assert await small.asked(word, max_chars=100) == result


@pytest.mark.parametrize("sandbox", ["auto", None])
async def test_a_server_gets_what_every_program_needs_and_what_it_is_given(
    small: Small, monkeypatch: pytest.MonkeyPatch, sandbox: Literal["auto"] | None
) -> None:
    for name in ("SOME_API_KEY", "PLAIN_VALUE", "KEPT"):
        monkeypatch.setenv(name, "abc")
    monkeypatch.setenv("https_proxy", "http://me:hunter2@proxy.example")
    server = replace(small.at("sour", env={"MY_TOKEN": "given"}), keep=["KEPT"], sandbox=sandbox)
    async with mcp({"small": server}) as (echo,):
        seen = json.loads((await answered(echo, {"word": "environment"})).text)
    assert seen.keys().isdisjoint({"SOME_API_KEY", "PLAIN_VALUE"})
    assert "hunter2" not in seen.get("https_proxy", ""), "a box has a proxy of its own"
    assert (seen["KEPT"], seen["MY_TOKEN"], "PATH" in seen) == ("abc", "given", True)


async def test_the_servers_of_one_block_start_together_and_their_tools_are_told_apart(small: Small) -> None:
    async with mcp({"left": small.at("server"), "right": small.at("changing")}) as tools:
        assert [each.name for each in tools] == ["left_echo", "right_echo", "same"]
        assert (await answered(tools[1], {"word": "hello"})).text == "hello"


def test_names_are_made_fit_and_unique() -> None:
    assert unique_names([("a", "read"), ("b", "write")]) == ["read", "write"]
    assert unique_names([("a", "read"), ("b", "read")]) == ["a_read", "b_read"]
    assert unique_names([("a", "files.read"), ("a", "files/read")]) == ["a_files_read", "a_files_read_46524e9d"]
    assert unique_names([("a", "read"), ("b", "read"), ("c", "a_read")]) == ["a_read", "b_read", "a_read_b17fb896"]
    (long,) = unique_names([("a", "x" * 100)])
    assert (len(long), unique_names([("a", "")])) == (64, ["_"])


async def test_a_block_may_be_left_in_another_task(small: Small) -> None:
    stack = AsyncExitStack()

    async def enter() -> str:
        (echo,) = await stack.enter_async_context(mcp({"small": small.at("server")}))
        return (await answered(echo, {"word": "hello"})).text

    assert await asyncio.create_task(enter()) == "hello"
    await asyncio.create_task(stack.aclose())


async def test_a_tool_is_not_called_when_its_block_was_left(small: Small) -> None:
    async with mcp({"small": small.at("server")}) as (echo,):
        pass
    text = (await answered(echo, {"word": "hello"})).text
    assert text == "Error: not called: the MCP server 'small' was ended with the block that started it."
    assert small.n_starts == 1


async def test_a_call_is_an_error_when_its_block_is_left(small: Small) -> None:
    async with AsyncExitStack() as stack:
        (echo,) = await stack.enter_async_context(mcp({"small": small.at("sour")}))
        has_begun = asyncio.Event()
        agent = Agent(name="tester", model=ScriptedModel([call("echo", {"word": "linger"}), "Done."]), tools=[echo])

        def note(event: Event) -> None:
            if isinstance(event, ToolProgress):
                has_begun.set()

        running = asyncio.create_task(run(agent, "Go.", on_event=note))
        await has_begun.wait()
        await stack.aclose()
        result = await running
        assert "the MCP server 'small': it failed during the call" in str(result.history[2].content)
        assert result.unwrap() == "Done."
    assert small.n_starts == 1


async def test_no_process_is_left(small: Small) -> None:
    async with mcp({"small": small.at("stubborn")}):
        pass
    assert any(line.startswith("processes") for line in small.lines)
    assert small.processes() == []


@pytest.mark.parametrize("n_times", [1, 5])
async def test_no_process_is_left_when_the_start_is_cancelled(n_times: int, small: Small) -> None:
    async def enter() -> None:
        async with mcp({"small": small.at("silent")}):
            pass

    before, entering = asyncio.all_tasks(), asyncio.create_task(enter())
    await until(lambda: small.lines)  # it is another process that starts, and does not answer
    await cancelled(entering, n_times)
    assert asyncio.all_tasks() == before
    assert small.processes() == []


async def test_no_process_is_left_when_whoever_leaves_is_cancelled_again_and_again(small: Small) -> None:
    has_entered, may_leave = asyncio.Event(), asyncio.Event()

    async def enter_and_leave() -> None:
        async with mcp({"small": small.at("stubborn")}):
            has_entered.set()
            await may_leave.wait()

    before, working = asyncio.all_tasks(), asyncio.create_task(enter_and_leave())
    await has_entered.wait()
    may_leave.set()
    await asyncio.sleep(0)
    await cancelled(working, 5)
    assert asyncio.all_tasks() == before
    assert small.processes() == []


async def test_no_process_is_left_at_whatever_step_of_its_start_it_is_cancelled(small: Small) -> None:
    async def enter() -> None:
        async with StdioTransport(small.at("silent")):
            await asyncio.Event().wait()

    for n_steps in range(12):
        entering = asyncio.create_task(enter())
        for _ in range(n_steps):
            await asyncio.sleep(0)
        await cancelled(entering)
        assert small.processes() == []


async def cancelled(work: asyncio.Task[None], n_times: int = 1) -> None:
    """Cancel a task so often, and wait until it has ended by that."""
    for _ in range(n_times):
        work.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_server_whose_listing_was_cancelled_is_listed_before_the_next_call(small: Small) -> None:
    async with mcp({"small": small.at("dawdling")}) as (echo,):
        assert (await answered(echo, {"word": "chatter"})).text == "changed"
        calling = asyncio.create_task(answered(echo, {"word": "hello"}))
        await until(lambda: sum('"tools/list"' in line for line in small.lines) == 2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        text = (await answered(echo, {"word": "hello"})).text
        assert "the MCP server 'small' has changed this tool (description) since it was listed" in text


async def test_a_newer_server_and_its_client_understand_each_other(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PAUSE_S", 0)
    async with mcp({"modern": outside(warm.command(program=MODERN))}, parallel=True) as tools:
        await _results_are_structured_once_and_pictures_are_pictures(by_name(tools))
        await _what_asks_for_input_without_end_is_cut_off_and_goes_on(by_name(tools))
        await _it_is_told_of_a_cancelled_call_and_tells_of_changes(tools)
        assert "fly" not in by_name(tools)


async def _results_are_structured_once_and_pictures_are_pictures(named: Mapping[str, AnyTool]) -> None:
    assert (await answered(named["weather"], {"town": "Bern"})).text == '{"town":"Bern","degrees":[3,5]}'
    assert (await answered(named["towns"], {})).text == "Bern\nBasel"
    assert (await answered(named["slowly"], {})).text == "there"
    words, pixel = (await answered(named["picture"], {})).content
    assert isinstance(pixel, Image)
    assert (words, "image/png" in repr(pixel.source)) == (Text("a pixel"), True)
    twice = say(call("meet", {}, id="a"), call("meet", {}, id="b"))
    result = await run(Agent(name="tester", model=ScriptedModel([twice, "Done."]), tools=[named["meet"]]), "Go.")
    assert [block.text for block in result.history[2].content if isinstance(block, ToolResult)] == ["met", "met"]


async def _what_asks_for_input_without_end_is_cut_off_and_goes_on(named: Mapping[str, AnyTool]) -> None:
    asked = await answered(named["inquire"], {})
    words = "it asked for more input 20 times, and was not asked again."
    assert (asked.is_error, asked.text) == (True, f"Error: the MCP server 'modern': {words}")
    assert (await answered(named["towns"], {})).text == "Bern\nBasel"


async def _it_is_told_of_a_cancelled_call_and_tells_of_changes(tools: list[AnyTool]) -> None:
    named = by_name(tools)
    await stopped_at_progress(tools, call("forever", {}))
    assert (await answered(named["towns"], {})).text == "Bern\nBasel"
    assert (await answered(named["learn"], {"name": "fly"})).text == "learned fly"
    assert (await answered(named["towns"], {})).text == "Bern\nBasel"
    assert (await answered(named["forget"], {"name": "towns"})).text == "forgot towns"
    text = (await answered(named["towns"], {})).text
    assert "the MCP server 'modern' has changed this tool (it is gone) since it was listed" in text
    assert not (await answered(named["weather"], {"town": "Bern"})).is_error

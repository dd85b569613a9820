"""What comes of a call: results, errors, and what handlers are given."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import Agent, Image, Output, Rejected, Text, Tool, ToolContext, run, tool
from journeyman.model import ToolSpec
from journeyman.models.scripted import Scripted, call, say
from journeyman.types import Base64, ToolResult
from tests.loop.players import Report, failed, look, report, succeeded
from tests.support.naming import steady_repr
from tests.support.recorder import Recorder, calls, transcript
from tests.support.stage import Stage


class Place(BaseModel):
    name: str
    depth: int = 0


@dataclass
class Find:
    what: str
    n: int


async def answered(stage: Stage, made: Tool[..., Any], **arguments: object) -> ToolResult:
    """Return what the model reads of one call of a tool."""
    agent = Agent(name="tester", model=stage.model([call(made.name, arguments, id="a"), "Done."]), tools=[made])
    assert succeeded(await run(agent, "Go.")).output == "Done."
    return stage.tool_results(1)[0]


# -- definition and handler --------------------------------------------------------------------------------------------


async def test_a_tool_is_a_definition_and_a_handler(stage: Stage) -> None:  # R18, R69, X7
    def handler(arguments: dict[str, Any]) -> str:
        return f"dug {arguments['depth']}"

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"depth": {"type": "integer", "minimum": 1}},
        "required": ["depth"],
    }
    dig = Tool("dig", "Dig a hole.", schema, handler)
    assert await answered(stage, dig, depth=2) == ToolResult("dug 2", tool_use_id="a")
    assert stage.requests[0].prefix.tools == (ToolSpec(name="dig", description="Dig a hole.", input_schema=schema),)


async def test_a_typed_function_is_a_definition_and_a_handler_too(stage: Stage) -> None:  # R18, X7, X8
    @tool(thread=False)
    def dig(place: Place, depth: int = 1) -> str:
        """Dig a hole.

        Args:
            place: where to dig.
        """
        return f"dug {depth} at {place.name}/{place.depth}"

    assert await answered(stage, dig, place={"name": "garden"}) == ToolResult("dug 1 at garden/0", tool_use_id="a")
    spec = stage.requests[0].prefix.tools[0]
    assert (spec.name, spec.description) == ("dig", "Dig a hole.")
    assert spec.input_schema["required"] == ["place"]


@pytest.mark.parametrize("made_by", ["schema", "types"])
async def test_input_that_does_not_fit_never_reaches_the_handler(stage: Stage, made_by: str) -> None:  # R20, A36, D43
    seen: list[object] = []

    def keep(arguments: dict[str, Any]) -> None:
        seen.append(arguments)

    def dig(depth: int) -> None:
        seen.append(depth)

    schema: dict[str, Any] = {"type": "object", "properties": {"depth": {"type": "integer"}}, "required": ["depth"]}
    made = Tool("dig", "Dig.", schema, keep) if made_by == "schema" else tool(dig, description="Dig.")
    recorder = Recorder()
    model = stage.model([[call("dig", depth="deep", id="a"), call("dig", id="b")], "Done."])
    await run(Agent(name="tester", model=model, tools=[made]), "Go.", on_event=recorder)
    assert seen == []
    assert [(result.is_error, "depth" in result.text) for result in stage.tool_results(1)] == [(True, True)] * 2
    assert [line[:6] for line in calls(recorder.events)] == ["dig#a?", "dig#a!", "dig#b?", "dig#b!"]


async def test_a_tool_sees_its_run(stage: Stage) -> None:  # X1
    facts: list[object] = []

    @tool
    async def ask(context: ToolContext) -> None:
        facts.extend(
            [context.input, context.agent, context.path, context.attempt, context.iteration, context.tool_use_id]
        )

    await answered(stage, ask)
    assert facts == ["Go.", "tester", ("tester",), 1, 1, "a"]


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ('"quoted"', '"quoted"'),
        ("", "(no output)"),
        (None, "(no output)"),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        (1.5, "1.5"),
        ({"städte": ["Köln", 1]}, '{"städte":["Köln",1]}'),
        (Place(name="garden"), '{"name":"garden","depth":0}'),
        (Find("coin", 2), '{"what":"coin","n":2}'),
        ([Find("coin", 2)], '[{"what":"coin","n":2}]'),
    ],
    ids=steady_repr,
)
async def test_whatever_a_tool_returns_becomes_text(
    stage: Stage, value: object, text: str
) -> None:  # R21, A18, D7, D42
    @tool(thread=False)
    def give() -> object:
        return value

    assert await answered(stage, give) == ToolResult(text, tool_use_id="a")


async def test_a_tool_may_return_content_blocks(stage: Stage) -> None:  # R21, A18
    picture = Image(Base64("aGk=", "image/png"))

    @tool(thread=False)
    def draw() -> list[Text | Image]:
        return [Text("A dot."), picture]

    assert await answered(stage, draw) == ToolResult((Text("A dot."), picture), tool_use_id="a")


async def test_a_tool_may_return_an_error_result(stage: Stage) -> None:  # R21, X2
    @tool(thread=False)
    def give() -> ToolResult:
        return ToolResult("Nothing there.", is_error=True)

    assert await answered(stage, give) == ToolResult("Nothing there.", True, "a")


@pytest.mark.parametrize("limited_by", ["tool", "agent"])
async def test_a_long_result_is_cut_with_a_note(stage: Stage, limited_by: str) -> None:  # A19
    @tool(thread=False, max_chars=10 if limited_by == "tool" else None)
    def read() -> str:
        return "x" * 1234

    recorder = Recorder()
    model = stage.model([call("read", id="a"), "Done."])
    agent = Agent(name="tester", model=model, tools=[read], max_result_chars=10 if limited_by == "agent" else 5000)
    await run(agent, "Go.", on_event=recorder)
    text = "xxxxxxxxxx\n[Cut: the first 10 of 1,234 characters.]"
    assert stage.tool_results(1) == [ToolResult(text, tool_use_id="a")]
    assert calls(recorder.events) == ["read#a?", f"read#a: {text}"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such table"), "Error: no such table"),
        (RuntimeError("  "), "Error: RuntimeError"),
        (TimeoutError(), "Error: TimeoutError"),
        (Rejected("Not on Sundays."), "Not on Sundays."),
        (ExceptionGroup("two", [ValueError("one"), KeyError("other")]), "Error: two\n- one\n- KeyError: 'other'"),
    ],
    ids=["raised", "blank", "timeout", "rejected", "group"],
)
@pytest.mark.parametrize("how", ["async", "inline", "in a thread"])
async def test_what_a_tool_raises_becomes_an_error_result(
    stage: Stage, error: Exception, text: str, how: str
) -> None:  # R23, R24, R49, A20, X9
    async def later() -> None:
        raise error

    def now() -> None:
        raise error

    made = tool(later if how == "async" else now, name="give", thread=None if how != "inline" else False)
    assert await answered(stage, made) == ToolResult(text, True, "a")


async def test_an_iteration_goes_on_after_an_error(stage: Stage) -> None:  # R23, R49
    @tool(thread=False)
    def divide(by: int) -> float:
        return 1 / by

    model = stage.model([[call("divide", by=0, id="a"), call("divide", by=2, id="b")], "Done."])
    recorder = Recorder()
    await run(Agent(name="tester", model=model, tools=[divide]), "Go.", on_event=recorder)
    assert calls(recorder.events) == [
        "divide#a?",
        "divide#a! Error: division by zero",
        "divide#b?",
        "divide#b: 0.5",
    ]


async def test_a_result_that_cannot_be_written_is_an_error(stage: Stage) -> None:  # R23, D25
    @tool(thread=False)
    def give() -> object:
        loop: list[object] = []
        loop.append(loop)
        return loop

    result = await answered(stage, give)
    assert result.is_error
    assert result.text.startswith("Error: The result cannot be written as JSON")


async def test_a_coroutine_that_was_not_awaited_is_an_error(stage: Stage) -> None:  # A18, D7
    async def later() -> str:
        return "x"

    @tool(thread=False)
    def give() -> list[object]:
        return [later()]

    result = await answered(stage, give)
    assert result.is_error
    assert "Await it" in result.text


async def test_an_error_result_is_never_empty(stage: Stage) -> None:  # M4
    @tool(thread=False)
    def give() -> ToolResult:
        return ToolResult("", is_error=True)

    assert await answered(stage, give) == ToolResult("(no output)", True, "a")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
async def test_the_end_of_the_program_is_not_an_error_of_a_tool(raised: type[BaseException]) -> None:  # A21
    @tool(thread=False)
    def stop() -> None:
        raise raised

    agent = Agent(name="tester", model=Scripted([call("stop")]), tools=[stop])
    with pytest.raises(raised):
        await run(agent, "Go.")


async def test_a_tool_that_cancels_itself_gets_an_error_result(stage: Stage) -> None:  # A21
    @tool
    async def give_up() -> None:
        raise asyncio.CancelledError

    assert await answered(stage, give_up) == ToolResult("Error: CancelledError", True, "a")


# -- where handlers run ------------------------------------------------------------------------------------------------


async def test_a_sync_tool_runs_in_a_thread_and_an_async_one_does_not(stage: Stage) -> None:  # A17
    @tool
    def blocking() -> str:
        return threading.current_thread().name

    @tool(thread=False)
    def inline() -> str:
        return threading.current_thread().name

    @tool
    async def awaited() -> str:
        return threading.current_thread().name

    model = stage.model([[call("blocking"), call("inline"), call("awaited")], "Done."])
    await run(Agent(name="tester", model=model, tools=[blocking, inline, awaited]), "Go.")
    here = threading.current_thread().name
    assert [result.text for result in stage.tool_results(1)] == ["tool blocking", here, here]


async def test_names_are_looked_up_exactly(stage: Stage) -> None:  # D33, D34, A15
    names = ["Look", "loo", "__class__", "run", "handler"]
    model = stage.model([[call(name) for name in names], "Done."])
    await run(Agent(name="tester", model=model, tools=[look]), "Go.")
    assert [result.text for result in stage.tool_results(1)] == [f"Error: Unknown tool {name}" for name in names]


async def test_a_changed_argument_does_not_change_the_history(stage: Stage) -> None:  # D12
    @tool(thread=False)
    def sort(items: list[int]) -> list[int]:
        items.sort()
        return items

    model = stage.model([call("sort", items=[3, 1, 2], id="a"), report()])
    result = await run(Agent(name="tester", model=model, tools=[sort], output=Output(Report)), "Go.")
    assert succeeded(result)
    assert transcript(stage.messages(1))[1:] == [
        ("assistant", 'sort({"items":[3,1,2]})#a'),
        ("user", "#a: [1,2,3]"),
    ]


async def test_calls_of_a_truncated_response_are_not_run(stage: Stage) -> None:  # R4, M7, D24
    model = stage.model([say(call("look", id="a"), stop_reason="max_tokens")])
    recorder = Recorder()
    result = await run(Agent(name="tester", model=model, tools=[look]), "Go.", on_event=recorder)
    assert failed(result).code == "TOKEN_LIMIT_EXCEEDED"
    assert calls(recorder.events) == []

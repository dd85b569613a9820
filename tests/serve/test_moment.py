"""Agents whose tools depend on the moment, and whose outputs a function makes: over AG-UI and the JSON API, over a
restart, and as the viewer's server shows them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman import Agent, OneOf, Output, Rejected, Runtime, tool
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from journeyman.tools import Toolset, ToolsetContext, toolset
from journeyman.tools.tools import AnyTool
from tests.contracts.test_output_forms import Booking
from tests.serve.http_served import Json, send, serving
from tests.serve.test_agui import answered, asked, told
from tests.serve.test_http_restarts import answer, begun, server
from tests.view.desk import viewing


def only_next(tool: AnyTool, context: ToolsetContext[Any]) -> AnyTool:
    properties = {"number": {"type": "integer", "enum": [context.n_messages, 7]}}
    return replace(tool, input_schema={**tool.input_schema, "properties": properties})


@tool(prepare=only_next)
def reopen(number: int) -> str:
    """Reopen an issue."""
    return f"reopened {number}"


def reopen_only(context: ToolsetContext[Any]) -> list[AnyTool]:
    return [reopen]


CAREFUL = toolset([send]).requiring_approval("May this be sent?")


@toolset(each="iteration")
def until_sent(context: ToolsetContext[Any]) -> list[AnyTool | Toolset[Any]]:
    return [CAREFUL, reopen] if context.n_messages < 3 else [reopen]


SCRIPT = [
    call("send", letter="Dear Ada", id="a"),
    call("send", letter="Again", id="b"),
    call("reopen", number=4, id="c"),
    call("reopen", number=7, id="d"),
    call("book_flight", flight="LH1", id="e"),
    call("book_flight", flight="LH2", id="f"),
]
RESULTS = [
    "sent",
    "Error: Unknown tool send. Now there is: reopen",
    "Error: Invalid arguments for tool 'reopen':\n- number: is not one of 5 or 7, got 4",
    "reopened 7",
]


LAYERS = [("schema", True, ""), ("function", False, "LH1 is full"), ("schema", True, ""), ("function", True, "")]


def layers(events: list[Json]) -> list[tuple[str, bool, str]]:
    """Return the kind of each layer that ended, whether the output passed, and what was said of it."""
    ended = [each["outcome"] for each in events if each.get("type") == "LayerCompleted"]
    return [(each["kind"], each["passed"], each.get("feedback", "")) for each in ended]


def booking_clerk(booked: list[str], seen: list[list[str]]) -> Agent[Any, str]:
    """Return an agent that does what is next in the script by the messages alone, so that a restart changes nothing."""

    def reply(request: Request) -> Answer:
        seen.append([each.name for each in request.prefix.tools])
        return SCRIPT[sum(message.role == "assistant" for message in request.messages)]

    def book_flight(flight: str, seats: int = 1) -> Booking:
        """Book a flight."""
        if flight == "LH1":
            raise Rejected("LH1 is full")
        booked.append(flight)
        return Booking(flight, seats)

    output = OneOf(Output(book_flight, effect="once"), int)
    return Agent(name="clerk", model=FunctionModel(reply), tools=[until_sent], output=output)


def result_texts(events: list[Json]) -> list[str]:
    return [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"]


TOOLS = [["book_flight", "output_int", "send", "reopen"], *[["book_flight", "output_int", "reopen"]] * 5]
MADE = {"flight": "LH2", "seats": 1}


async def test_a_turn_over_ag_ui_goes_on_after_a_restart_with_the_tools_of_each_moment(tmp_path: Path) -> None:
    booked, seen, store = list[str](), list[list[str]](), str(tmp_path / "runs.db")
    async with server(store, booking_clerk(booked, seen)) as served:
        first = await told(served, "clerk", asked("r1", "Go."))
    async with server(store, booking_clerk(booked, seen)) as served:
        resume = answered(first[-1]["outcome"]["interrupts"][0]["id"])
        events = await told(served, "clerk", asked("r2", resume=resume))
        again = await told(served, "clerk", asked("r2", resume=resume), last_event_id=events[0]["id"])
    assert result_texts(events)[:4] == RESULTS
    assert (events[-1]["outcome"]["type"], events[-1]["result"], booked, seen) == ("success", MADE, ["LH2"], TOOLS)
    states = [each for each in events if each["type"].startswith("STATE_")]
    assert [each.get("snapshot", each.get("delta")) for each in states] == [
        {"output": {"flight": "LH1"}},
        [{"op": "replace", "path": "/output/flight", "value": "LH2"}],
        [{"op": "add", "path": "/output/seats", "value": 1}],
    ]
    assert "LH1 is full" in json.dumps([each for each in events if each["type"] == "CUSTOM"])
    assert again == events[1:]


async def test_a_turn_over_the_json_api_goes_on_after_a_restart_with_the_tools_of_each_moment(tmp_path: Path) -> None:
    booked, seen, store = list[str](), list[list[str]](), str(tmp_path / "runs.db")
    async with server(store, booking_clerk(booked, seen)) as served:
        question = await begun(served)
    async with server(store, booking_clerk(booked, seen)) as served:
        following = asyncio.create_task(served.told("GET", "/chats/c/events"))
        assert await answer(served, question) == 202
        events = await following
    finished = [each["tool_result"] for each in events if each["event"] == "ToolFinished"]
    assert (finished[: len(RESULTS)], finished[-1]) == (RESULTS, "Accepted.")
    assert layers(events) == LAYERS
    assert (events[-1]["output"], booked, seen) == (MADE, ["LH2"], TOOLS)


async def test_a_call_whose_tool_is_gone_after_a_restart_is_answered_as_unknown(tmp_path: Path) -> None:
    seen, store = list[list[str]](), str(tmp_path / "runs.db")
    async with server(store, booking_clerk([], [])) as served:
        first = await told(served, "clerk", asked("r1", "Go."))
    async with server(
        store, replace(booking_clerk([], seen), tools=[toolset(reopen_only, each="iteration")])
    ) as served:
        resume = answered(first[-1]["outcome"]["interrupts"][0]["id"])
        events = await told(served, "clerk", asked("r2", resume=resume))
    assert (result_texts(events)[:2], events[-1]["result"]) == ([RESULTS[1]] * 2, MADE)
    assert seen == TOOLS[1:]


async def test_the_viewer_shows_the_tools_of_each_request_and_the_function_as_a_layer(tmp_path: Path) -> None:
    async with serving([booking_clerk([], [])], runtime=Runtime(recorder=tmp_path / "runs.db")) as served:
        first = await told(served, "clerk", asked("r1", "Go."))
        resume = answered(first[-1]["outcome"]["interrupts"][0]["id"])
        await told(served, "clerk", asked("r2", resume=resume))
    async with viewing(tmp_path / "runs.db") as desk:
        [shown] = (await desk.get("/api/runs"))["runs"]
        events = (await desk.get(f"/api/runs/{shown['id']}/events?most=999"))["events"]
        requests = (await desk.get(f"/api/runs/{shown['id']}/requests"))["requests"]
        bodies = [await desk.get(f"/api/runs/{shown['id']}/requests/{each['n']}/body") for each in requests]
    assert (shown["kind"], shown["attempts"], layers(events)) == ("chat", 2, LAYERS)
    asks = [each["tools"] for each in events if each["type"] == "ModelAsked"]
    assert [[each["name"] for each in tools] for tools in asks] == TOOLS
    enums = [tools[-1]["input_schema"]["properties"]["number"]["enum"] for tools in asks]
    assert enums == [[number, 7] for number in (1, 3, 5, 7, 9, 11)]
    assert [body["tools"] for body in bodies] == asks
    assert [each["kind"] for each in events if each["type"] == "ToolCalled"] == [
        *("tool", "unknown", "tool", "tool", "output", "output")
    ]

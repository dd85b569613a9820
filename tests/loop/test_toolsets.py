"""Toolsets in a run: asked once or before each request, checked, journaled; and what comes of one that is wrong."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from journeyman import Abort, Agent, Chat, Limits, Output, Runtime, Subagents, ToolContext, run, run_many, stream, tool
from journeyman.compaction import ClearToolResults
from journeyman.endings import InternalContext
from journeyman.events import Event, ToolCalled, ToolFinished
from journeyman.gate import Allow, Approval, Gate, GateRequest, Seen, Verdict
from journeyman.journal import InMemoryJournal
from journeyman.model import Request
from journeyman.output.output import OneOf
from journeyman.permission import Permission
from journeyman.record import Recordings
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, play_by_history, say
from journeyman.tools import Tool, Toolset, ToolsetContext, toolset
from journeyman.tools.tools import AnyTool
from journeyman.tools.toolsets import ToolSource
from journeyman.window import Compaction
from tests.play import cancelled, context_of, failed, make_gate, make_tool, succeeded, texts, virtual_clock

READ, ERASE = make_tool("read", "page {page}"), make_tool("erase", "gone {page}", effect="once")


def of_user(context: ToolsetContext[str]) -> list[AnyTool]:
    return [READ, ERASE] if context.deps == "admin" else [READ]


def tools_sent(model: ScriptedModel) -> list[list[str]]:
    """Return the names of the tools of each request."""
    return [[spec.name for spec in request.prefix.tools] for request in model.requests]


def both_calls() -> ScriptedModel:
    return ScriptedModel([say(call("read", page=1), call("erase", page=2)), "Done."])


@pytest.mark.parametrize(("deps", "there"), [("admin", ["read", "erase"]), ("guest", ["read"])])
async def test_a_function_of_the_context_says_what_tools_there_are(deps: str, there: list[str]) -> None:
    agent = Agent(name="clerk", model=(model := both_calls()), tools=[of_user], deps=str)
    result = succeeded(await run(agent, "Go.", deps=deps))
    assert tools_sent(model) == [there, there]
    gone = "gone 2" if deps == "admin" else "Error: Unknown tool erase. Now there is: read"
    assert texts(result) == ["page 1", gone]


async def test_a_toolset_is_asked_once_for_each_run_and_learns_the_moment() -> None:
    asked: list[ToolsetContext[str, str]] = []

    async def note(context: ToolsetContext[str, str]) -> list[Tool[..., Any]]:
        asked.append(context)
        return [READ]

    agent = Agent(name="clerk", model=ScriptedModel([call("read", page=1)] * 3 + ["Done."]), tools=[note], deps=str)
    await run(agent, "Go.", deps="me")
    assert asked == [ToolsetContext(agent="clerk", path=("clerk",), deps="me", input="Go.")]


async def test_toolsets_stand_between_the_output_and_submit_in_their_order() -> None:
    class Own(Toolset[str]):
        async def list_tools(self, context: ToolsetContext[str], /) -> Sequence[AnyTool | Toolset[str]]:
            return [toolset(of_user).prefixed("b_"), make_tool("c")]

    model = ScriptedModel([call("output", value=3)])
    tools = [make_tool("a"), Own().filtered(lambda tool, context: tool.name != "b_erase"), make_tool("d")]
    agent = Agent(name="clerk", model=model, tools=tools, output=Output(int), deps=str)
    assert succeeded(await run(agent, "Go.", deps="admin")).output == 3
    assert tools_sent(model) == [["output", "a", "b_read", "c", "d"]]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (Output(int), ["output", "read"]),
        (Output(int, mode="prompted"), ["read"]),
        (OneOf(int, str), ["output_int", "read"]),
    ],
)
async def test_however_the_output_is_handed_in_the_tools_of_the_moment_are_there(
    output: Output[object], shown: list[str]
) -> None:
    model = ScriptedModel([call("read", page=1), "3"])
    tools = [toolset(lambda context: [READ], each="iteration")]
    await run(Agent(name="clerk", model=model, tools=tools, output=output), "Go.")
    assert tools_sent(model)[:2] == [shown] * 2


async def test_a_toolset_that_is_asked_each_time_follows_the_run() -> None:
    """What is not asked again keeps its answer; a request with the same tools has the same prefix: its cache holds."""
    moments: list[tuple[int, int, int]] = []
    n_once = 0

    def once(context: ToolsetContext) -> list[AnyTool]:
        nonlocal n_once
        n_once += 1
        return [make_tool("a")]

    def shrink(context: ToolsetContext) -> list[AnyTool]:
        moments.append((context.attempt, context.iteration, context.n_messages))
        return [READ, ERASE][: 1 + (context.iteration < 3)]

    model = ScriptedModel([call("erase", page=each) for each in (1, 2, 3)] + ["Done."])
    agent = Agent(name="clerk", model=model, tools=[once, toolset(shrink, each="iteration")])
    result = succeeded(await run(agent, "Go."))
    assert moments == [(1, 1, 1), (1, 2, 3), (1, 3, 5), (1, 4, 7)]
    assert (tools_sent(model), n_once) == ([["a", "read", "erase"]] * 2 + [["a", "read"]] * 2, 1)
    assert texts(result) == ["gone 1", "gone 2", "Error: Unknown tool erase. Now there are: a, read"]
    prefixes = [request.prefix for request in model.requests]
    assert (prefixes[0] is prefixes[1], prefixes[1] is prefixes[2], prefixes[2] is prefixes[3]) == (True, False, True)


async def test_when_all_tools_are_gone_the_calls_of_the_history_still_have_some() -> None:
    tools = [toolset(lambda context: [READ][context.iteration - 1 :], each="iteration")]
    model = ScriptedModel([call("read", page=1), "Done."])
    succeeded(await run(Agent(name="clerk", model=model, tools=tools), "Go."))
    assert [spec.description for request in model.requests for spec in request.prefix.tools][1:] == [
        "No longer available."
    ]


async def test_a_tool_is_prepared_for_the_moment() -> None:
    """It changes what the model reads of it and may send, or is not there."""

    def narrow(tool: AnyTool, context: ToolsetContext[int]) -> AnyTool | None:
        if not context.deps:
            return None
        schema: Any = {**tool.input_schema, "properties": {"page": {"type": "integer", "maximum": context.deps}}}
        return replace(tool, description=f"Turn to one of {context.deps}.", input_schema=schema)

    @tool(prepare=narrow)
    def turn(page: int) -> str:
        """Turn."""
        return f"at {page + 1}"

    calls = say(call("turn", page=2), call("turn", page=9), call("turn", page="x"))
    agent = Agent(name="reader", model=ScriptedModel([]), tools=[turn], deps=int)
    model = ScriptedModel([calls, "Done."])
    result = await run(replace(agent, model=model), "Go.", deps=3)
    told = texts(result)
    assert told[0] == "at 3"
    assert "is more than 3" in told[1] or "maximum" in told[1], told
    assert told[2].startswith("Error: Invalid arguments for tool 'turn'"), told
    assert [spec.description for spec in model.requests[0].prefix.tools] == ["Turn to one of 3."]
    model = ScriptedModel([calls, "Done."])
    assert texts(await run(replace(agent, model=model), "Go.", deps=0))[0] == (
        "Error: Unknown tool turn. Now there is: no tool"
    )


def itself(context: ToolsetContext) -> list[Toolset]:
    return [toolset(itself)]


NO_SCHEMA = Tool("odd", "Odd.", {"type": "object", "properties": {"a": {"type": "no type"}}}, print)


@pytest.mark.parametrize("each", ["run", "iteration"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (LookupError("no list"), "The toolset give failed: LookupError: no list"),
        ([READ, READ], "the toolset give gives two tools of the name 'read': rename one"),
        ([make_tool("taken")], "Agent.tools and the toolset give give tools of the name 'taken'"),
        ([make_tool("output")], "the agent's output and the toolset give give tools of the name 'output'"),
        ([3], "it gives 3, which is neither a tool nor a toolset"),
        (None, "it gives None, which is no list of tools"),
        ("read", "it gives 'read', which is no list of tools"),
        ((each for each in [READ]), "which is no list of tools"),
        ([make_tool("a b")], "Providers do not take 'a b' as the name of a tool"),
        ([NO_SCHEMA], "The input schema of tool 'odd' is faulty"),
        (toolset([toolset(itself)]), "more than 16 deep"),
    ],
)
async def test_a_wrong_toolset_ends_the_run_and_is_named(
    given: object, said: str, each: Literal["run", "iteration"]
) -> None:
    def give(context: ToolsetContext) -> Sequence[AnyTool]:
        if isinstance(given, Exception):
            raise given
        return cast("Sequence[AnyTool]", given)

    give.__qualname__ = "give"
    tools = [make_tool("taken"), toolset(give, each=each)]
    agent = Agent(name="clerk", model=(model := ScriptedModel([])), tools=tools, output=Output(int))
    context = context_of(await run(agent, "Go."), InternalContext)
    assert said in str(context)
    assert model.requests == []


@virtual_clock
@pytest.mark.parametrize("each", ["run", "iteration"])
@pytest.mark.parametrize(("aborts", "code"), [(False, "BUDGET_EXCEEDED"), (True, "EXECUTION_CANCELLED")])
async def test_limits_and_the_callers_signal_hold_for_a_toolset_that_hangs(
    each: Literal["run", "iteration"], aborts: bool, code: str
) -> None:
    abort = Abort()

    async def hang(context: ToolsetContext) -> list[AnyTool]:
        if aborts:
            abort.abort()
        await asyncio.Event().wait()
        return []

    agent = Agent(name="clerk", model=ScriptedModel([]), tools=[toolset(hang, each=each)], limits=Limits(seconds=5))
    assert failed(await run(agent, "Go.", abort=abort)).code == code


async def test_what_a_toolset_does_to_its_list_during_a_call_changes_nothing_in_it() -> None:
    """The calls of one answer have the tools that the model was shown; the next request has the others."""
    listed: list[AnyTool] = []

    @tool
    def clear() -> str:
        """Clear."""
        listed[:] = [READ]
        return "cleared"

    listed += [clear, ERASE]
    model = ScriptedModel([say(call("clear"), call("erase", page=1)), call("erase", page=2), "Done."])
    agent = Agent(name="clerk", model=model, tools=[toolset(lambda context: listed, each="iteration")])
    assert texts(await run(agent, "Go.")) == ["cleared", "gone 1", "Error: Unknown tool erase. Now there is: read"]


async def test_a_tool_of_a_toolset_that_asks_for_other_deps_is_refused() -> None:
    @tool
    def pay(context: ToolContext[bytes]) -> str:
        """Pay."""
        return "paid"

    agent = Agent(name="clerk", model=ScriptedModel([]), tools=[toolset(lambda context: [pay])], deps=str)
    assert "asks for deps of type bytes" in str(context_of(await run(agent, "Go.", deps="x"), InternalContext))


def test_an_agent_that_delegates_to_one_with_a_toolset_takes_the_worst_of_its_calls() -> None:
    below = Agent(name="below", description="Works.", model=ScriptedModel([]), tools=[of_user], deps=str)
    made = Subagents(below)
    assert (made.effect, made.untrusted) == ("once", True)


def live_agent(*tools: ToolSource, gate: Sequence[Gate] = ()) -> tuple[Agent, list[Request]]:
    """Return an agent that knows by the conversation how far it is, and what its model is asked."""
    asked: list[Request] = []
    play = play_by_history([call("read", page=1), call("erase", page=2), "Done."])

    def note(request: Request) -> None:
        asked.append(request)

    model = FunctionModel(lambda request: note(request) or play(request))
    return Agent(name="clerk", model=model, tools=tools, gate=gate), asked


@pytest.mark.parametrize("each", ["run", "iteration"])
@pytest.mark.parametrize("later", [["read"], ["erase", "read", "new"], ["read", "erase"]])
async def test_a_run_that_goes_on_is_shown_the_tools_that_it_was_shown(
    each: Literal["run", "iteration"], later: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What was begun and may not be repeated is told unknown, also where its tool is gone; the difference is told."""
    dying = asyncio.Event()
    n_erased = 0

    @tool(effect="once")
    async def erase(page: int) -> str:
        """Erase."""
        nonlocal n_erased
        n_erased += 1
        dying.set()
        await asyncio.Event().wait()
        return "never"

    journal, every = InMemoryJournal(), {"read": READ, "erase": erase, "new": make_tool("new")}
    first, asked = live_agent(toolset(lambda context: [READ, erase], each=each))
    await cancelled(asyncio.ensure_future(run(first, "Go.", runtime=Runtime(journal=journal))), when=dying)
    before = [request.prefix.tools for request in asked]
    second, asked = live_agent(toolset(lambda context: [every[name] for name in later], each=each))
    with caplog.at_level(logging.WARNING, "journeyman"):
        place = str(tmp_path / "runs.db")
        result = succeeded(await run(second, "Go.", runtime=Runtime(journal=journal, recorder=place)))
    assert texts(result)[0] == "page 1"
    assert "effect is unknown" in texts(result)[1] or "unknown" in texts(result)[1], texts(result)
    assert n_erased == 1
    now = [spec.name for request in asked for spec in request.prefix.tools]
    assert now == (["read", "erase"] if each == "run" else later), before
    told = [record.getMessage() for record in caplog.records if "toolsets of the agent 'clerk'" in record.getMessage()]
    assert len(told) == (later != ["read", "erase"])
    if later == ["read"]:
        assert "'erase' is gone" in told[0]
    with Recordings(place) as recordings:
        kinds = [event.kind for event in recordings.all_events(recordings.find("last"))]
    assert kinds.count("ToolsDiffer") == len(told)


async def test_a_call_whose_tool_is_gone_stays_refused_where_the_tool_comes_back() -> None:
    """A person was asked, and had not answered. Who listens hears of the refusal, too."""
    journal, asked, events = InMemoryJournal(), asyncio.Event(), list[Event]()

    async def think(approval: Approval) -> Allow:
        asked.set()
        await asyncio.Event().wait()
        return Allow()

    def agent(tools: list[AnyTool]) -> Agent:
        given = toolset(tools).requiring_approval(lambda call: "Erase it?" if call.tool_name == "erase" else None)
        return live_agent(toolset(lambda context: [given]))[0]

    runtime = Runtime(journal=journal)
    first = asyncio.ensure_future(run(agent([READ, ERASE]), "Go.", runtime=replace(runtime, approver=think)))
    await cancelled(first, when=asked)
    second = succeeded(await run(agent([READ]), "Go.", runtime=runtime, on_event=events.append))
    assert [each.is_error for each in events if isinstance(each, ToolFinished)] == [True]
    third = succeeded(await run(agent([READ, ERASE]), "Go.", runtime=runtime))
    assert texts(third) == texts(second)
    assert texts(third)[1].startswith("Error: Unknown tool erase.")


async def test_the_steps_of_toolsets_are_small_where_nothing_changes() -> None:
    journal = InMemoryJournal()
    agent, _ = live_agent(toolset(lambda context: [READ, ERASE], each="iteration"))
    succeeded(await run(agent, "Go.", runtime=Runtime(journal=journal)))
    steps = {key: value for key, value in journal.finished.items() if key.endswith("/tools")}
    assert list(steps) == [f"attempt/1/iteration/{each}/tools" for each in (1, 2, 3)]
    assert [b'"value":null' in value for value in steps.values()] == [False, True, True]


async def test_gates_and_rules_see_the_calls_of_a_toolset() -> None:
    """A rule may name a tool that only a toolset gives: it is no slip, since nobody can tell before."""
    seen: list[str] = []

    def note(request: GateRequest) -> Verdict:
        seen.append(request.tool_name)
        return Allow()

    permission = Permission(mode="trust", deny=["erase"])
    agent, _ = live_agent(toolset(lambda context: [READ, ERASE]), gate=[make_gate(note), permission])
    result = succeeded(await run(agent, "Go."))
    assert seen == ["read", "erase"]
    assert "denied" in texts(result)[1]


@pytest.mark.parametrize(("each", "code"), [("run", "INVALID_INPUT"), ("iteration", "SUCCESS")])
async def test_a_rule_for_no_tool_is_found_once_the_toolsets_of_the_run_were_asked(
    each: Literal["run", "iteration"], code: str
) -> None:
    """Of one that is asked each time, nobody knows what it will give."""
    agent, _ = live_agent(toolset(lambda context: [READ, ERASE], each=each), gate=[Permission(deny=["erazed"])])
    assert (await run(agent, "Go.")).code == code


def first_read(context: ToolsetContext) -> list[AnyTool]:
    return [READ] if context.iteration == 1 else [ERASE]


def pair() -> ScriptedModel:
    return ScriptedModel([call("read", page=1), call("erase", page=2), "Done."] * 2)


SHOWN = [["read"], ["erase"], ["erase"]]


async def test_a_stream_and_a_chat_have_the_tools_of_each_request() -> None:
    """Each turn of a chat is a run: it begins with the tools of a beginning."""
    agent = Agent(name="clerk", model=(model := pair()), tools=[toolset(first_read, each="iteration")])
    async with stream(agent, "Go.") as events:
        called = [event.tool_name async for event in events if isinstance(event, ToolCalled)]
    assert (called, tools_sent(model)) == (["read", "erase"], SHOWN)
    async with Chat(replace(agent, model=(model := pair()))) as chat:
        for _ in range(2):
            assert (await chat.start("Go.")).unwrap() == "Done."
    assert tools_sent(model) == SHOWN * 2


async def test_runs_of_a_batch_and_below_another_ask_for_themselves() -> None:
    asked: list[tuple[str, ...]] = []

    def note(context: ToolsetContext) -> list[AnyTool]:
        asked.append((*context.path, str(context.input)))
        return [READ]

    below = Agent(
        name="below", description="Reads.", model=ScriptedModel([call("read", page=1), "Read."]), tools=[note]
    )
    script = [call("subagent", agent="below", task="Page 1."), "Done."]
    above = Agent(name="above", model=ScriptedModel(script), tools=[note, Subagents(below)])
    journal = InMemoryJournal()
    succeeded(await run(above, "Go.", runtime=Runtime(journal=journal)))
    assert asked == [("above", "Go."), ("above", "below#1", "Page 1.")]
    assert len([key for key in journal.finished if key.endswith("tools")]) == 2
    asked.clear()
    batch = run_many(replace(below, model=ScriptedModel(["A.", "B."])), ["a", "b"], max_concurrency=1)
    assert [result.unwrap() async for _, result in batch] == ["A.", "B."]
    assert [each[-1] for each in asked] == ["a", "b"]


async def test_a_recording_has_the_tools_of_each_request(tmp_path: Path) -> None:
    place = str(tmp_path / "runs.db")
    agent = Agent(name="clerk", model=pair(), tools=[toolset(first_read, each="iteration")])
    succeeded(await run(agent, "Go.", runtime=Runtime(recorder=place)))
    with Recordings(place) as recordings:
        bodies = [recordings.body(each) or b"" for each in recordings.requests(recordings.find("last"))]
    assert [[name for name in ("read", "erase") if b"The tool %s." % name.encode() in body] for body in bodies] == SHOWN


async def test_a_conversation_that_is_compacted_goes_on_with_other_tools() -> None:
    long = make_tool("read", "word " * 3_000)
    later = [toolset(lambda context: [long] if context.iteration < 4 else [ERASE], each="iteration")]
    model = ScriptedModel([*[call("read", page=each) for each in range(3)], call("erase", page=9), "Done."])
    compaction = Compaction([ClearToolResults(keep=1)], window_tokens=12_000)
    agent = Agent(name="clerk", model=model, tools=later, compaction=compaction)
    succeeded(await run(agent, "Go."))
    assert tools_sent(model) == [["read"]] * 3 + [["erase"]] * 2
    assert any("word" not in str(request.messages[2]) for request in model.requests[3:])


async def test_gates_are_told_what_a_stranger_says_of_a_tool_that_comes_later() -> None:
    told: list[str] = []

    class Memory:
        async def decide(self, request: GateRequest) -> Verdict:
            return Allow()

        def for_run(self, path: tuple[str, ...]) -> "Memory":
            return self

        def hear(self, text: str) -> None: ...

        def see(self, seen: Seen) -> None:
            told.extend([seen.tool_name] * seen.is_description)

    stranger = make_tool("erase", untrusted="throughout")
    tools = [toolset(lambda context: [stranger][: context.iteration - 1], each="iteration"), READ]
    model = ScriptedModel([call("read", page=1), call("read", page=1), "Done."])
    succeeded(await run(Agent(name="clerk", model=model, tools=tools, gate=Memory()), "Go."))
    assert told == ["erase"]

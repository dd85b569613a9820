"""Functions of every kind, sync or async, wherever an agent takes one: what they return is awaited if it can be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from journeyman import (
    Agent,
    CallbackContext,
    Callbacks,
    KeepGoing,
    Output,
    Rejection,
    Stopping,
    Success,
    Tool,
    ToolResult,
    run,
    tool,
)
from journeyman.models.scripted import call
from journeyman.tools.tools import States
from journeyman.types import JsonObject
from tests.loop.pitfalls.players import Report, look, report, submit
from tests.support.stage import Stage

Kind = Callable[[Callable[..., Any]], Callable[..., Any]]


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def later(function: Callable[..., Any]) -> Callable[..., Any]:
    async def called(*given: object) -> object:
        await asyncio.sleep(0)
        return function(*given)

    return called


def awaitable(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: object) -> Awaitable[object]:
        return later(function)(*given)

    return called


def future(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: object) -> Awaitable[object]:
        return asyncio.ensure_future(later(function)(*given))

    return called


def bound(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(nothing: None, *given: object) -> object:
        return function(*given)

    return partial(called, None)


class Object:
    """Something to call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    async def __call__(self, *given: object) -> object:
        return self.function(*given)

    async def method(self, *given: object) -> object:
        return self.function(*given)


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    return Object(function).method


KINDS: list[Kind] = [plain, later, awaitable, future, bound, Object, method]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
async def test_a_handler_with_a_schema_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17
    def find(arguments: JsonObject) -> str:
        return f"found {arguments['n']}"

    used = Tool("find", "Find it.", {"type": "object"}, kind(find), thread=False)
    model = stage.model([call("find", n=1, id="a"), "Done."])
    await run(Agent(name="a", model=model, tools=[used]), "Go.")
    assert stage.tool_results(1) == [ToolResult("found 1", tool_use_id="a")]


@each_kind
async def test_reflections_validators_and_error_prompts_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17
    def show(draft: Report) -> str:
        return f"shown {draft.total}"

    def judge(draft: Report) -> None:
        if draft.total > 10:
            raise ValueError("too large")

    def tell(rejection: Rejection) -> str:
        return f"No: {rejection.feedback}"

    model = stage.model([report(99, "a"), submit("b"), [report(1), submit()]])
    agent = Agent(
        name="a",
        model=model,
        output=Output(Report, reflection=kind(show)),
        validators=[kind(judge)],
        error_prompt=kind(tell),
    )
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [ToolResult("shown 99", tool_use_id="a")]
    assert stage.tool_results(2) == [ToolResult("No: too large", is_error=True, tool_use_id="b")]


@each_kind
async def test_prompts_guards_and_predicates_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17
    def system(given: str) -> str:
        return f"You do {given}."

    def prompt(given: str) -> str:
        return f"Do {given}."

    def guard(stopping: Stopping) -> KeepGoing | None:
        return KeepGoing("More.") if stopping.text == "One." else None

    def predicate(name: str, result: ToolResult) -> bool:
        return False

    agent = Agent(
        name="a",
        model=stage.model([call("look"), "One.", "Two."]),
        system=kind(system),
        prompt=kind(prompt),
        stop_guard=kind(guard),
        stop_after=kind(predicate),
        tools=[look],
    )
    assert (await run(agent, "it")).unwrap() == "Two."
    assert [text.text for text in stage.requests[0].prefix.system] == ["You do it."]
    assert (stage.texts(0), stage.texts(2)) == (["Do it."], ["More."])


@each_kind
async def test_state_functions_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17, X5
    def run_state(given: str) -> str:
        return f"run of {given}"

    def attempt_state(given: str, run_state: str) -> str:
        return f"attempt of {run_state}"

    def final(states: States) -> object:
        return (states.run, states.attempt)

    agent = Agent(
        name="a",
        model=stage.model(["Done."]),
        run_state=kind(run_state),
        attempt_state=kind(attempt_state),
        project=kind(final),
    )
    result = await run(agent, "it")
    assert isinstance(result, Success)
    assert result.state == ("run of it", "attempt of run of it")


@each_kind
async def test_callbacks_may_be_of_any_kind_and_are_awaited_in_place(stage: Stage, kind: Kind) -> None:  # A17
    told: list[str] = []

    def keep(name: str) -> Callable[..., Any]:
        return kind(lambda *given: told.append(name))

    callbacks = Callbacks(on_run_start=keep("start"), on_iteration_start=keep("iteration"), on_success=keep("success"))
    result = await run(Agent(name="a", model=stage.model(["Done."])), "Go.", callbacks=callbacks)
    assert (told, result.metadata.callback_errors) == (["start", "iteration", "success"], ())


# -- threads -----------------------------------------------------------------------------------------------------------

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_sync_tool_runs_in_a_thread_of_its_own_with_the_callers_context(stage: Stage) -> None:  # A17
    WHO.set("somebody")

    @tool
    def where() -> str:
        seen = f"{WHO.get()} {threading.current_thread() is threading.main_thread()}"
        WHO.set("the tool")
        return seen

    @tool(thread=False)
    def inline() -> str:
        return f"{WHO.get()} {threading.current_thread() is threading.main_thread()}"

    model = stage.model([[call("where"), call("where"), call("inline")], "Done."])
    await run(Agent(name="a", model=model, tools=[where, inline]), "Go.")
    assert [answered.content for answered in stage.tool_results(1)] == [
        "somebody False",
        "somebody False",
        "somebody True",
    ]
    assert WHO.get() == "somebody"


async def test_a_sync_tool_that_returns_an_awaitable_is_awaited_in_the_loop(stage: Stage) -> None:  # A17
    homes: list[object] = []

    async def fetch() -> str:
        homes.append(threading.current_thread())
        return "fetched"

    def begin(arguments: JsonObject) -> Awaitable[str]:
        homes.append(threading.current_thread())
        return fetch()

    used = Tool("begin", "Begin.", {"type": "object"}, begin)
    await run(Agent(name="a", model=stage.model([call("begin", id="a"), "Done."]), tools=[used]), "Go.")
    assert stage.tool_results(1) == [ToolResult("fetched", tool_use_id="a")]
    assert [home is threading.main_thread() for home in homes] == [False, True]


async def test_the_loop_goes_on_while_a_sync_tool_blocks(stage: Stage) -> None:  # A17
    released = threading.Event()

    @tool
    def block() -> str:
        return "released" if released.wait(5) else "stuck"

    def on_call(context: CallbackContext, name: str, arguments: object) -> None:
        asyncio.get_running_loop().call_soon(released.set)

    agent = Agent(name="a", model=stage.model([call("block"), "Done."]), tools=[block])
    await run(agent, "Go.", callbacks=Callbacks(on_tool_call=on_call))
    assert stage.tool_results(1)[0].content == "released"

"""Durable runs with tools of a moment, and those that are left as soon as they only wait for somebody."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, tool
from journeyman.chat import ask_user
from journeyman.durable import Durable, InMemoryEngine, Memory
from journeyman.durable.sqlite import SqliteEngine
from journeyman.errors import RunDiffers
from journeyman.gate import Allow, Ask
from journeyman.model import Request
from journeyman.result import AskedQuestion, Pending, PendingCall
from journeyman.testing.scripted import FunctionModel, call, play_by_history, say
from journeyman.tools import ExternalTools, ToolsetContext, toolset
from journeyman.tools.tools import AnyTool
from tests.play import cancelled, following, instance_of, make_gate, make_tool, succeeded, texts

PICK: dict[str, object] = {
    "name": "pick",
    "description": "Let the user pick.",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}


@pytest.fixture(params=["memory", "sqlite"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Durable]:
    """Returns what opens one store as another process would. A run that waits would stay for an hour."""
    memory = Memory()
    if request.param == "memory":
        return lambda: Durable(InMemoryEngine(memory), suspend_after_s=3_600)
    return lambda: Durable(SqliteEngine(tmp_path / "runs.db"), suspend_after_s=3_600)


async def test_a_run_that_only_waits_is_returned_as_pending_and_goes_on(process: Callable[[], Durable]) -> None:
    """Each part in a process of its own: external calls, a gate's question and the model's are all answered by id."""
    paid: list[object] = []
    script = [
        say(call("pick", n=1, id="a"), call("pick", n=2, id="b")),
        call("pay", n=3, id="p"),
        call("ask_user", question="Really?", id="q"),
        "Done.",
    ]
    pay = make_tool("pay", "paid {n}", into=paid, effect="once")
    tools = [pay, ask_user, ExternalTools([PICK])]
    agent = Agent(name="clerk", model=following(*script), tools=tools, gate=make_gate(Ask("Pay?"), "pay"))
    async with process() as durable:
        first = instance_of(Pending, await durable.run(agent, "Go.", id="7", wait=False))
        assert [(each.tool_name, each.arguments) for each in first.calls] == [("pick", {"n": 1}), ("pick", {"n": 2})]
        assert [each.role for each in first.history] == ["user", "assistant"]
        again = instance_of(Pending, await durable.run(agent, "Go.", id="7", wait=False))
        assert again == first
    async with process() as durable:
        handle = await durable.get("7")
        for number, each in enumerate(first.calls):
            await handle.answer(each.id, f"colour {number}")
        second = instance_of(Pending, await durable.run(agent, "Go.", id="7", wait=False))
        (asked,) = second.questions
        assert (asked.kind, asked.question, asked.tool_name, asked.arguments) == ("approve", "Pay?", "pay", {"n": 3})
        await handle.approve(asked.id, Allow())
        third = instance_of(Pending, await durable.run(agent, "Go.", id="7", wait=False))
        assert third.questions == (AskedQuestion(id=third.questions[0].id, kind="answer", question="Really?"),)
        await handle.answer(third.questions[0].id, "Yes.")
    async with process() as durable:
        result = succeeded(await durable.run(agent, "Go.", id="7", wait=False))
    assert (texts(result), paid) == (["colour 0", "colour 1", "paid 3", "Yes."], [3])
    assert first.calls[0] == PendingCall(id=first.calls[0].id, tool_name="pick", arguments={"n": 1}, path=("clerk",))


async def test_a_run_is_not_gone_on_with_without_the_approval_that_its_tools_required(
    process: Callable[[], Durable],
) -> None:
    paid: list[object] = []
    tools = toolset([make_tool("pay", "paid {n}", into=paid, effect="once")])
    agent = Agent(name="payer", model=following(call("pay", n=1), "Done."), tools=[tools.requiring_approval()])
    async with process() as durable:
        assert instance_of(Pending, await durable.run(agent, "Go.", id="7", wait=False)).questions
    async with process() as durable:
        with pytest.raises(RunDiffers, match="RequiredApproval"):
            await durable.run(replace(agent, tools=[tools]), "Go.", id="7", wait=False)
    assert paid == []


@pytest.mark.parametrize("later", [["read", "pay"], ["read"]])
async def test_a_run_whose_toolset_has_changed_is_shown_what_it_was_shown(
    process: Callable[[], Durable], later: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not blocked, as one with another prompt function is not: what was asked is stored. The log tells."""
    begun, n_paid = asyncio.Event(), 0

    @tool(effect="once")
    async def pay(n: int) -> str:
        """Pay."""
        nonlocal n_paid
        n_paid += 1
        begun.set()
        await asyncio.Event().wait()
        return "never"

    every: dict[str, AnyTool] = {"read": make_tool("read"), "pay": pay}
    there, asked = ["read", "pay"], list[Request]()
    play = play_by_history([call("pay", n=1), call("pay", n=2), "Done."])

    def note(request: Request) -> Any:  # noqa: ANN401
        asked.append(request)
        return play(request)

    def of_now(context: ToolsetContext) -> list[AnyTool]:
        return [every[name] for name in there]

    agent = Agent(name="payer", model=FunctionModel(note), tools=[toolset(of_now)])
    async with process() as durable:
        await cancelled(asyncio.create_task(durable.run(agent, "Go.", id="7")), when=begun)
    there[:] = later
    every["pay"] = make_tool("pay", "paid {n}", effect="once")
    async with process() as durable:
        result = succeeded(await durable.run(agent, "Go.", id="7"))
    told = texts(result)
    assert "unknown" in told[0]
    assert told[1] == ("paid 2" if "pay" in later else "Error: Unknown tool pay. Now there is: read")
    assert [[spec.name for spec in request.prefix.tools] for request in asked] == [["read", "pay"]] * 3
    assert n_paid == 1
    assert "The toolsets of the agent 'payer' give other tools" in caplog.text

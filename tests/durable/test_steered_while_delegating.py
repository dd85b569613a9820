"""What the user says while a sub-agent works, in a run whose process then dies."""

import asyncio
from pathlib import Path

from journeyman import Agent, Subagents, Success, tool
from journeyman.durable import Durable
from journeyman.model import Request
from journeyman.models.scripted import Answer, FromFunction, call
from tests.support.players import cancelled


def following(*answers: Answer) -> FromFunction:
    """Return a model that knows by the conversation how far it is."""

    def answer(request: Request) -> Answer:
        return answers[sum([message.role == "assistant" for message in request.messages])]

    return FromFunction(answer)


async def test_a_delegation_that_an_earlier_life_began_goes_on_though_something_was_said(tmp_path: Path) -> None:
    paid, reached, may_end = list[str](), asyncio.Event(), asyncio.Event()

    @tool(effect="once")
    async def pay() -> str:
        paid.append("A")
        return "paid"

    @tool(effect="pure")
    async def look() -> str:
        reached.set()
        await may_end.wait()
        return "seen"

    working = following(call("pay", id="p"), call("look", id="l"), "Paid.")
    child = Agent(name="child", description="Pays.", model=working, tools=[pay, look])
    leading = following(call("subagent", agent="child", task="Pay.", id="s"), "Done.")
    leader = Agent(name="leader", model=leading, tools=[Subagents(child)])
    async with Durable(tmp_path / "runs.db") as durable:
        handle = await durable.start(leader, "Go.", id="1")
        running = asyncio.create_task(durable.run(leader, "Go.", id="1"))
        await reached.wait()
        await handle.steer("Hurry.")
        await cancelled(running)
        may_end.set()
        result = await durable.run(leader, "Go.", id="1")
    assert isinstance(result, Success)
    assert paid == ["A"]
    answered, said = result.history[2].content
    assert (answered.type, "Paid." in str(answered)) == ("tool_result", True), "the model knows what was done"
    assert said.type == "text"
    assert said.text == "Hurry."
    assert [child.usage.requests for child in result.metadata.children] == [3]

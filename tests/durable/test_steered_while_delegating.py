"""What the user says while a sub-agent works, in a run whose process then dies."""

import asyncio
from pathlib import Path

from journeyman import Agent, Subagents
from journeyman.durable import Durable
from journeyman.testing.scripted import call
from tests.play import Door, cancelled, following, make_tool, succeeded


async def test_a_delegation_that_an_earlier_life_began_goes_on_though_something_was_said(tmp_path: Path) -> None:
    paid, door = list[str](), Door()
    tools = [make_tool("pay", "paid", into=paid, effect="once"), door.tool("look", effect="pure")]
    working = following(call("pay", id="p"), call("look", id="l"), "Paid.")
    child = Agent(name="child", description="Pays.", model=working, tools=tools)
    leading = following(call("subagent", agent="child", task="Pay.", id="s"), "Done.")
    leader = Agent(name="leader", model=leading, tools=[Subagents(child)])
    async with Durable(tmp_path / "runs.db") as durable:
        handle = await durable.start(leader, "Go.", id="1")
        running = asyncio.create_task(durable.run(leader, "Go.", id="1"))
        await door.reached.wait()
        await handle.steer("Hurry.")
        await cancelled(running)
        door.opened.set()
        result = succeeded(await durable.run(leader, "Go.", id="1"))
    assert paid == ["pay"]
    answered, said = result.history[2].content
    assert (answered.type, "Paid." in str(answered)) == ("tool_result", True), "the model knows what was done"
    assert said.type == "text"
    assert said.text == "Hurry."
    assert [child.usage.requests for child in result.metadata.children] == [3]

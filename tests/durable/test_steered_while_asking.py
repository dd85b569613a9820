"""What the user says while a question of the run waits, and no process has the run in memory."""

from pathlib import Path

from journeyman import Agent, ask_user
from journeyman.durable import Durable, Worker
from journeyman.gate import Allow
from journeyman.testing.scripted import call
from tests.durable.worlds import AsksAbout, World, payer
from tests.play import following, succeeded


async def test_a_call_that_waits_to_be_approved_is_made_though_something_was_said(tmp_path: Path) -> None:
    world = World()
    agent = payer(world, "A", gate=AsksAbout("A"))
    async with Durable(tmp_path / "runs.db", suspend_after_s=0) as durable:
        handle = await durable.start(agent, "Pay.", id="1")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        await handle.steer("Hurry.")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        [question] = (await handle.info()).pending
        await handle.approve(question.question_id, Allow())
        await Worker(durable, agents=[agent]).run(until_idle=True)
        result = succeeded(await handle.result())
    assert world.done == ["A"]
    answered, said = result.history[2].content
    assert (answered.type, "paid A" in str(answered)) == ("tool_result", True)
    assert (said.type, "Hurry." in str(said)) == ("text", True)


async def test_a_question_that_waits_is_answered_though_something_was_said(tmp_path: Path) -> None:
    model = following(call("ask_user", question="Which year?", id="A"), "Done.")
    agent = Agent(name="asker", model=model, tools=[ask_user])
    async with Durable(tmp_path / "runs.db", suspend_after_s=0) as durable:
        handle = await durable.start(agent, "Ask.", id="1")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        [question] = (await handle.info()).pending
        await handle.steer("Hurry.")
        await handle.answer(question.question_id, "2024")
        await Worker(durable, agents=[agent]).run(until_idle=True)
        result = succeeded(await handle.result())
    answered, said = result.history[2].content
    assert (answered.type, "2024" in str(answered)) == ("tool_result", True)
    assert (said.type, "Hurry." in str(said)) == ("text", True)

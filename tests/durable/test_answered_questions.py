"""A question of the model that was answered in an earlier life of the run."""

import asyncio
from pathlib import Path

from journeyman import Agent, Limits, ask_user
from journeyman.durable import Durable
from journeyman.testing.scripted import call
from tests.play import Door, cancelled, following, succeeded, texts


async def test_an_answered_question_is_counted_as_one_call_in_the_next_life(tmp_path: Path) -> None:
    door = Door()
    model = following(call("ask_user", question="Which year?", id="A"), call("look", id="L"), "Done.")
    agent = Agent(name="asker", model=model, tools=[ask_user, door.tool("look", effect="pure")], limits=Limits(calls=2))
    async with Durable(tmp_path / "runs.db", suspend_after_s=600) as durable:
        handle = await durable.start(agent, "Ask.", id="1")
        running = asyncio.create_task(durable.run(agent, "Ask.", id="1"))
        while not (questions := (await handle.info()).pending):
            await durable.hub.changed(0.01)
        await handle.answer(questions[0].question_id, "2024")
        await cancelled(running, when=door.reached)
        door.opened.set()
        result = succeeded(await durable.run(agent, "Ask.", id="1"))
    assert texts(result) == ["2024", "waited"]

"""A question of the model that was answered in an earlier life of the run."""

import asyncio
from pathlib import Path

from journeyman import Agent, Limits, Success, ask_user, tool
from journeyman.durable import Durable
from journeyman.models.scripted import FromFunction, call
from tests.support.players import cancelled


async def test_an_answered_question_is_counted_as_one_call_in_the_next_life(tmp_path: Path) -> None:
    reached, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def look() -> str:
        reached.set()
        await may_end.wait()
        return "seen"

    answers = [call("ask_user", question="Which year?", id="A"), call("look", id="L"), "Done."]
    model = FromFunction(lambda request: answers[sum([each.role == "assistant" for each in request.messages])])
    agent = Agent(name="asker", model=model, tools=[ask_user, look], limits=Limits(calls=2))
    async with Durable(tmp_path / "runs.db", linger_s=600) as durable:
        handle = await durable.start(agent, "Ask.", id="1")
        running = asyncio.create_task(durable.run(agent, "Ask.", id="1"))
        while not (questions := (await handle.info()).waits_for):
            await durable.hub.changed(0.01)
        await handle.answer(questions[0].digest, "2024")
        await reached.wait()
        await cancelled(running)
        may_end.set()
        result = await durable.run(agent, "Ask.", id="1")
    assert isinstance(result, Success)
    said = [block.text for message in result.history for block in message.content if block.type == "tool_result"]
    assert said == ["2024", "seen"]

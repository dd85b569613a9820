"""A question of the model that was answered in an earlier life of the run."""

import asyncio
from pathlib import Path
from typing import Any

from journeyman import Agent, Limits, Runtime, Subagents, ask_user
from journeyman.durable import Durable
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import call
from journeyman.view.queries import StoreReader
from tests.durable.processes import Stage
from tests.durable.worlds import asked
from tests.play import Door, cancelled, following, succeeded, texts, virtual_clock


async def test_an_answered_question_is_counted_as_one_call_in_the_next_life(tmp_path: Path) -> None:
    door = Door()
    model = following(call("ask_user", question="Which year?", id="A"), call("look", id="L"), "Done.")
    agent = Agent(name="asker", model=model, tools=[ask_user, door.tool("look", effect="pure")], limits=Limits(calls=2))
    async with Durable(tmp_path / "runs.db", suspend_after_s=600) as durable:
        handle = await durable.start(agent, "Ask.", id="1")
        running = asyncio.create_task(durable.run(agent, "Ask.", id="1"))
        await handle.answer((await asked(durable, "1")).pending[0].question_id, "2024")
        await cancelled(running, when=door.reached)
        door.opened.set()
        result = succeeded(await durable.run(agent, "Ask.", id="1"))
    assert texts(result) == ["2024", "waited"]


ITS_PLACE = {"attempt": 1, "iteration": 3, "tool_use_id": "A", "path": ("lead", "clerk#1")}
"""Where the sub-agent asks, in its own run; the call of that one is in another iteration of the run above."""


def leader(door: Door) -> Agent[Any, Any]:
    """Return an agent whose sub-agent asks in its third iteration, while the leader is in its second."""
    look = door.tool("look", effect="pure")
    asks = call("ask_user", question="Which year?", id="A")
    below = following(call("look", id="1"), call("look", id="2"), asks, "Found.")
    clerk = Agent(name="clerk", description="Asks.", model=below, tools=[ask_user, look])
    above = following(call("look", id="L"), call("subagent", agent="clerk", task="Ask.", id="S"), "Done.")
    return Agent(name="lead", model=above, tools=[Subagents(clerk), look])


@virtual_clock
async def test_a_fork_keeps_what_a_sub_agent_was_answered_only_where_its_call_was_before(stage: Stage) -> None:
    # K13
    door = Door()
    door.opened.set()
    agent = leader(door)
    async with stage.durable(suspend_after_s=1e9) as durable:
        handle = await durable.start(agent, "Go.", id="run")
        running = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await handle.answer((await asked(durable)).pending[0].question_id, "2024")
        whole = succeeded(await running)
        for iteration, is_kept in ((1, False), (2, False), (3, True)):
            branch = await durable.fork("run", (1, iteration))
            assert [each.kind for each in await branch.records() if each.kind == "answer"] == ["answer"] * is_kept
            going_on = asyncio.create_task(durable.resume(branch.id, agent))
            if not is_kept:
                await branch.answer((await asked(durable, branch.id)).pending[0].question_id, "2024")
            assert succeeded(await going_on).history == whole.history


async def test_the_question_of_a_sub_agent_stands_at_its_own_place_in_a_list_the_viewer_and_a_recording(
    tmp_path: Path,
) -> None:
    door = Door()
    door.opened.set()
    agent = leader(door)
    seen: dict[str, Any] = {}
    for name, recorder in (("viewer", None), ("recording", Recorder(tmp_path / "recording"))):
        async with Durable(tmp_path / name, suspend_after_s=600) as durable:
            handle = await durable.start(agent, "Go.", id="1")
            running = asyncio.create_task(durable.run(agent, "Go.", id="1", runtime=Runtime(recorder=recorder)))
            [question] = (await asked(durable, "1")).pending
            seen["list"] = {each: getattr(question, each) for each in ITS_PLACE}
            reader = StoreReader(tmp_path / name)
            seen[name] = reader.events(handle.id, after=0, limit=100, most=None)["events"]
            reader.close()
            await handle.answer(question.question_id, "2024")
            succeeded(await running)
        if recorder is not None:
            recorder.close()
            with Recordings(tmp_path / name) as recordings:
                seen[name] = [each.document() for each in recordings.all_events(recordings.find(handle.id))]
    for name in ("viewer", "recording"):
        [seen[name]] = [each for each in seen[name] if each["type"] == "QuestionAsked"]
    for name, told in seen.items():
        assert {each: told[each] for each in ITS_PLACE} == ITS_PLACE, name

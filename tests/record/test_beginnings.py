"""Of long texts only the beginning is read, where that is all that is shown."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from journeyman import Agent, Runtime, run, tool
from journeyman.record import RecordedEvent, Recorder, Recordings
from journeyman.testing.scripted import ScriptedModel, call, say

ALPHABET = ('"', "\\", "\n", "\x00", "é", "\u2028", "𝄞", "a", " ", "\\u00")


def results(events: Sequence[RecordedEvent]) -> list[Any]:
    return [each.facts["tool_result"] for each in events]


async def test_what_is_read_of_a_long_text_is_its_beginning_wherever_it_is_cut(tmp_path: Path) -> None:
    chance = Random(7)
    texts = ["".join(chance.choices(ALPHABET, k=size)) for size in range(1, 4_000, 37)]

    @tool(effect="pure")
    def text(number: int) -> str:
        """Give a text."""
        return texts[number]

    calls = [call("text", number=n) for n in range(len(texts))]
    agent = Agent(name="scout", model=ScriptedModel([say(*calls), "Read."]), tools=[text])
    with Recorder(tmp_path / "runs.db") as recorder:
        (await run(agent, "Read.", runtime=Runtime(recorder=recorder))).unwrap()
    with Recordings(tmp_path / "runs.db") as recordings:
        found = recordings.find("last")
        whole = results(recordings.events(found, kinds=["ToolFinished"]))
        for most in (1, 5, 64, 200, 1_000):
            events = recordings.events(found, kinds=["ToolFinished"], most=most)
            for told, all_of_it in zip(results(events), whole, strict=True):
                if isinstance(told, str):
                    assert told == all_of_it
                    assert len(told) <= 4 * most
                else:
                    assert all_of_it.startswith(told["cut"])
                    assert most // 8 <= len(told["cut"]) <= most
                    assert told["characters"] >= most
                    assert len(all_of_it) > most // 8


@pytest.mark.parametrize("content", [True, False])
async def test_a_text_that_was_not_kept_is_told_by_its_size_either_way(tmp_path: Path, content: bool) -> None:
    agent = Agent(name="scout", model=ScriptedModel([say("word " * 2_000)]))
    with Recorder(tmp_path / "runs.db", content=content) as recorder:
        (await run(agent, "Tell.", runtime=Runtime(recorder=recorder))).unwrap()
    with Recordings(tmp_path / "runs.db") as recordings:
        [told] = recordings.events(recordings.find("last"), kinds=["ModelResponded"], most=100)
    text: Any = told.facts["text"]
    assert abs(text["characters"] - 10_000) < 10
    assert ("cut" in text) is content

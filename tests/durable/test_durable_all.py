"""Every test of the loop and of the crews has a second turn, in which each run has a journal."""

from pathlib import Path

import pytest

from journeyman import Agent, Success
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options
from journeyman.testing.scripted import ScriptedModel
from tests.support.journaled import WITHOUT_JOURNAL, Journals


async def test_a_run_that_is_given_no_journal_gets_one_and_its_steps_are_stored() -> None:
    journals = Journals()
    agent = Agent(name="talker", model=ScriptedModel(["Done."]))
    assert isinstance(await carry_out(journals.begin(agent, "Go.", Options())), Success)
    [steps] = journals.memory.records.values()
    records = steps.values()
    assert [each.key for each in records] == ["head", "attempt/1/iteration/1/model", "end"]


@pytest.mark.parametrize("name", WITHOUT_JOURNAL)
def test_what_has_no_second_turn_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    text = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
    assert f"def {function}(" in text

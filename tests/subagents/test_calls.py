"""Which of the five modes a call means, and what becomes of one that means none."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman import Agent, Subagents
from journeyman.errors import InvalidArguments, SubagentMisused
from journeyman.model import Model
from journeyman.models.scripted import Scripted
from journeyman.models.wrappers import Swappable
from journeyman.subagents.calls import (
    BackgroundCall,
    ChainCall,
    Item,
    ParallelCall,
    SingleCall,
    TeamCall,
    chosen,
    parsed,
)
from tests.subagents.players import echo, errors, play, read, scout
from tests.support.stage import Stage

ITEM = {"agent": "scout", "task": "look"}
ITEMS = (Item(agent="scout", task="look"),)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (ITEM, SingleCall("scout", "look")),
        ({**ITEM, "tasks": [], "chain": []}, SingleCall("scout", "look")),
        ({**ITEM, "tasks": None, "other": 1}, SingleCall("scout", "look")),
        ({"agent": "scout", "tasks": [ITEM]}, ParallelCall(ITEMS)),
        ({"task": "look", "chain": [ITEM]}, ChainCall(ITEMS, 1, "")),
        ({"chain": [ITEM], "start_at": 1, "previous": "x"}, ChainCall(ITEMS, 1, "x")),
        ({**ITEM, "background": True}, BackgroundCall("scout", "look", "look")),
        ({**ITEM, "background": True, "description": "d"}, BackgroundCall("scout", "look", "d")),
        (
            {**ITEM, "name": "ann"},
            TeamCall(agent="scout", task="look", name="ann", team_name="", description="", color=""),
        ),
        (
            {**ITEM, "team_name": "t", "color": "red", "description": "d"},
            TeamCall(agent="scout", task="look", name="scout", team_name="t", description="d", color="red"),
        ),
    ],
)
def test_a_call_means_one_mode(arguments: dict[str, Any], meant: object) -> None:  # S1.2, S1.7
    assert chosen(parsed(arguments), 8) == meant


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "A call has exactly one mode: agent and task, or tasks, or chain; it has none of them."),
        ({"agent": "scout"}, "it has none of them."),
        ({"agent": "", "task": "look"}, "it has none of them."),
        ({**ITEM, "tasks": [ITEM]}, "exactly one mode: agent and task, or tasks, or chain; it has agent with task and"),
        ({"tasks": [ITEM], "chain": [ITEM]}, "it has tasks and chain."),
        ({"tasks": [ITEM] * 9}, "These are 9 tasks, and at most 8 may run in one call. Use several calls."),
        ({"chain": [ITEM], "start_at": 2}, "start_at is 2, and the chain has the steps 1 to 1."),
        ({"task": "look", "background": True}, "Background work needs agent and task. The call has no agent."),
        ({**ITEM, "background": True, "tasks": [ITEM]}, "Background work is one agent with one task."),
        ({"name": "ann"}, "A member of a team needs agent and task. The call has no agent and task."),
        ({**ITEM, "team_name": "t", "background": True}, "name and team_name cannot be combined with background."),
        ({"name": "a", "tasks": [ITEM], "chain": [ITEM]}, "cannot be combined with tasks and chain."),
    ],
)
def test_a_call_that_means_none_is_misuse(arguments: dict[str, Any], why: str) -> None:  # S1.2, S1.7
    with pytest.raises(SubagentMisused, match=why.replace(".", r"\.")):
        chosen(parsed(arguments), 8)


def test_a_long_task_is_cut_where_it_is_the_description() -> None:  # S1.6
    call = chosen(parsed({"agent": "scout", "task": "x" * 81, "background": True}), 8)
    assert isinstance(call, BackgroundCall)
    assert call.description == "x" * 80 + "..."
    assert call.task == "x" * 81


async def test_misuse_reaches_the_model_as_one_error_result(stage: Stage) -> None:  # S1.2
    result = await play(stage, Subagents(scout(stage)), {}, {"agent": "nobody", "task": "look"}, {"tasks": "all"})
    none, unknown, malformed = errors(result)
    assert none.startswith("Error: A call has exactly one mode")
    assert unknown == "Error: There is no sub-agent 'nobody'. There are: scout."
    assert malformed.startswith("Error: Invalid arguments for tool 'subagent':\n- tasks: ")
    assert result.unwrap() == "done"


async def test_a_program_gets_misuse_as_an_exception(stage: Stage) -> None:
    crew = Subagents(scout(stage))
    with pytest.raises(InvalidArguments, match="tasks"):
        await crew.execute({"tasks": "all"})
    with pytest.raises(SubagentMisused, match="exactly one mode"):
        await crew.execute({})
    with pytest.raises(SubagentMisused, match="no sub-agent 'nobody'"):
        await crew.run("nobody", "look")


# -- another model ----------------------------------------------------------------------------------------------------


async def test_another_model_needs_somebody_who_makes_it(stage: Stage) -> None:  # S1.2
    result = await play(stage, Subagents(scout(stage)), {**ITEM, "model": "fast"})
    [error] = errors(result)
    assert error.startswith("Error: Model 'fast' cannot be used: nothing here makes models. Leave out model.")


async def test_a_model_that_cannot_be_made_is_misuse(stage: Stage) -> None:  # S1.2
    def fails(name: str) -> Model:
        raise LookupError(f"no {name}")

    result = await play(stage, Subagents(scout(stage), create_model=fails), {**ITEM, "model": "fast"})
    assert errors(result) == ["Error: Model 'fast' cannot be used: LookupError: no fast"]


async def test_another_model_is_made_once_and_used_for_every_task_of_the_call(stage: Stage) -> None:  # S1.2
    made: list[str] = []

    def make(name: str) -> Model:
        made.append(name)
        return echo()

    crew = Subagents(scout(stage, name="a"), scout(stage, name="b"))
    crew.create_model = make
    tasks = [{"agent": "a", "task": "one"}, {"agent": "b", "task": "two"}]
    result = await play(stage, crew, {"tasks": tasks, "model": "fast"}, {"agent": "a", "task": "three"})
    assert made == ["fast"]
    assert [each["output"] for each in read(result)["results"]] == ["<one>", "<two>"]
    assert read(result, 1)["output"] == "found"


async def test_a_wrong_model_is_told_before_a_wrong_mode() -> None:  # S1.2 the order of decisions

    crew = Subagents(Agent(name="scout", model=Scripted([])))
    with pytest.raises(SubagentMisused, match="Model 'fast'"):
        await crew.execute({"model": "fast"})


async def test_the_model_is_that_of_the_definition_when_the_run_starts(stage: Stage) -> None:  # S1.1

    swappable = Swappable(echo())

    crew = Subagents(Agent(name="scout", model=swappable))
    first = await crew.run("scout", "one")
    swappable.swap(Scripted(["swapped"]))
    second = await crew.run("scout", "two")
    assert (first.unwrap(), second.unwrap()) == ("<one>", "swapped")

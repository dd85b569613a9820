"""What `Subagents` is before anybody calls it: a tool with a stable text and schema, and wiring that may come late."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Subagents, tool
from journeyman.models.scripted import Scripted
from journeyman.subagents.calls import SubagentArguments
from journeyman.types import Effect
from tests.subagents.players import Count


def agent(name: str, **fields: Any) -> Agent[Any, Any]:  # noqa: ANN401 - any field
    return Agent(name=name, model=Scripted([]), **fields)


def test_the_tool_is_called_subagent_and_has_a_label() -> None:  # S1.1
    crew = Subagents(agent("scout"))
    assert (crew.name, crew.label, crew.spec.name) == ("subagent", "Delegate to a sub-agent", "subagent")


def test_agents_are_listed_in_order_of_their_names_so_that_the_prefix_stays_the_same() -> None:  # S1.1
    one = Subagents(agent("writer", description="Writes."), agent("analyst"), agent("scout", description="Looks."))
    other = Subagents(agent("scout", description="Looks."), agent("analyst"), agent("writer", description="Writes."))
    assert one.spec == other.spec
    assert one.description.endswith("Sub-agents:\n- analyst\n- scout (Looks.)\n- writer (Writes.)")
    properties: Any = one.input_schema["properties"]
    assert properties["agent"]["enum"] == ["analyst", "scout", "writer"]
    assert properties["tasks"]["items"]["properties"]["agent"]["enum"] == ["analyst", "scout", "writer"]


def test_the_schema_has_every_argument_and_requires_none() -> None:  # S1.2
    schema: Any = Subagents(agent("scout")).input_schema
    assert [*schema["properties"]] == [*SubagentArguments.model_fields]
    assert "required" not in schema
    assert schema["properties"]["chain"]["items"]["required"] == ["agent", "task"]


def test_the_limit_of_tasks_is_in_the_text_and_in_the_schema() -> None:
    schema: Any = Subagents(agent("scout"), max_parallel=3).input_schema
    assert schema["properties"]["tasks"]["maxItems"] == 3
    unlimited = Subagents(agent("scout"), max_parallel=None)
    assert "at most" not in unlimited.description
    schema = unlimited.input_schema
    assert "maxItems" not in schema["properties"]["tasks"]


def test_a_typed_input_is_described_to_the_model() -> None:
    crew = Subagents(agent("judge", description="Judges.", input=Count))
    assert '- judge (Judges.); its task is JSON of this schema: {"' in crew.description
    assert '"places"' in crew.description


@pytest.mark.parametrize(
    ("agents", "codes"),
    [
        ([], ["NO_AGENTS"]),
        ([agent("scout"), agent("scout")], ["DUPLICATE_AGENT_NAME"]),
        (["scout"], ["INVALID_AGENT"]),
    ],
)
def test_a_crew_that_will_not_do_is_refused(agents: list[Any], codes: list[str]) -> None:  # S1.1, S1.9
    with pytest.raises(DefinitionError) as refused:
        Subagents(*agents)
    assert [problem.code for problem in refused.value.problems] == codes


@pytest.mark.parametrize("limits", [{"max_parallel": 0}, {"max_concurrency": -1}, {"max_parallel": True}])
def test_limits_are_whole_numbers_from_1_or_none(limits: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="INVALID_LIMIT"):
        Subagents(agent("scout"), **limits)


def test_an_agent_is_found_by_its_name_or_absent() -> None:  # S1.1
    scout = agent("scout")
    crew = Subagents(scout)
    assert crew.agent("scout") is scout
    assert crew.agent("nobody") is None


def test_only_what_the_host_gives_may_be_set_later() -> None:  # S17.2
    crew = Subagents(agent("scout"))
    assert [crew.tasks, crew.notify, crew.create_model, crew.background_output, crew.team] == [None] * 5

    def make(name: str) -> Scripted:
        return Scripted([], name=name)

    crew.create_model = make
    assert crew.create_model is make
    with pytest.raises(AttributeError, match="'name' of Subagents cannot be set"):
        crew.name = "other"  # pyright: ignore[reportAttributeAccessIssue] - what is tested
    assert repr(crew) == "<Subagents scout>"


def effects(*given: Effect | None) -> list[Any]:
    return [tool(_nothing, name=f"tool_{number}", effect=effect) for number, effect in enumerate(given)]


async def _nothing() -> str:
    """Do nothing."""
    return ""


@pytest.mark.parametrize(
    ("agents", "effect"),
    [
        ([agent("a")], "pure"),
        ([agent("a", tools=effects("pure")), agent("b", tools=effects("idempotent", "pure"))], "idempotent"),
        ([agent("a", tools=effects("pure", None))], "once"),
        ([agent("a", tools=effects(None), tools_are_idempotent=True)], "idempotent"),
        ([agent("a", tools=[Subagents(agent("b", tools=effects("once")))])], "once"),
    ],
)
def test_its_effect_is_that_of_the_riskiest_tool_behind_it(agents: list[Agent[Any, Any]], effect: str) -> None:
    assert Subagents(*agents).effect == effect


def test_it_is_untrusted_if_a_tool_behind_it_is() -> None:
    fetch = tool(_nothing, name="fetch", untrusted=True)
    inner = Subagents(agent("reader", tools=[fetch]))
    assert inner.untrusted
    assert Subagents(agent("boss", tools=[inner])).untrusted
    assert not Subagents(agent("scout")).untrusted

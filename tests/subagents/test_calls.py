"""What `Subagents` is before anybody calls it, which of the five modes a call means, and what becomes of one that means
none."""

from dataclasses import replace
from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Model, Subagents, tool
from journeyman.errors import InvalidArguments, SubagentMisused
from journeyman.models.wrappers import SwappableModel
from journeyman.subagents import calls
from journeyman.subagents.calls import SingleCall, choose_call, parse_arguments
from journeyman.testing.scripted import ScriptedModel
from journeyman.types import Effect
from tests.play import Stage, echo
from tests.subagents.leads import Count, errors, play, read, scout


def agent(name: str, **fields: Any) -> Agent[Any, Any]:
    return Agent(name=name, model=ScriptedModel([]), **fields)


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
    assert [*schema["properties"]] == [*calls.SubagentArguments.model_fields]
    assert "required" not in schema
    assert schema["properties"]["chain"]["items"]["required"] == ["agent", "task"]


@pytest.mark.parametrize(
    ("modes", "fields", "required"),
    [
        (["single"], ["agent", "task"], ["agent", "task"]),
        (["parallel"], ["tasks"], ["tasks"]),
        (["chain"], ["chain", "start_at", "previous"], ["chain"]),
        (["background"], ["agent", "task", "background", "description"], ["agent", "task", "background"]),
        (["team"], ["agent", "task", "description", "name", "team_name", "color"], ["agent", "task"]),
        (("chain", "single"), ["agent", "task", "chain", "start_at", "previous"], None),
    ],
)
def test_the_schema_has_what_the_modes_that_are_offered_need(
    modes: list[Any], fields: list[str], required: list[str] | None
) -> None:
    schema: Any = Subagents(agent("scout"), modes=modes).input_schema
    assert [*schema["properties"]] == fields
    assert schema.get("required") == required
    both: Any = Subagents(agent("scout"), modes=modes, create_model=lambda name: ScriptedModel([])).input_schema
    assert {*both["properties"]} == {*fields, "model"}


def test_the_text_tells_only_what_is_offered() -> None:
    assert "Use agent and task: one sub-agent does one task.\nSub-agents:\n- scout" in (
        Subagents(agent("scout"), modes=["single"]).description
    )
    text = Subagents(agent("scout"), modes=["parallel", "chain"], max_tasks=2).description
    assert "Use exactly one of these:\n- tasks: several at the same time, at most 2;" in text
    assert "{previous.field} for a field of it" in text
    assert "background" not in text


def test_agents_in_a_list_are_told_how_to_write_it() -> None:
    with pytest.raises(DefinitionError) as caught:
        Subagents([agent("scout")])  # pyright: ignore[reportArgumentType] - as people write it
    [problem] = caught.value.problems
    assert problem.message == "Agents are given one after the other, and not in a list."
    assert problem.hint == "Write Subagents(*agents), or Subagents(analyst, writer)."


def test_the_limit_of_tasks_is_in_the_text_and_in_the_schema() -> None:
    schema: Any = Subagents(agent("scout"), max_tasks=3).input_schema
    assert schema["properties"]["tasks"]["maxItems"] == 3
    unlimited = Subagents(agent("scout"), max_tasks=None)
    assert "at most" not in unlimited.description
    schema = unlimited.input_schema
    assert "maxItems" not in schema["properties"]["tasks"]


def test_a_typed_input_is_described_to_the_model() -> None:
    crew = Subagents(agent("judge", description="Judges.", input=Count))
    assert '- judge (Judges.); its task is JSON of this schema: {"' in crew.description
    assert '"places"' in crew.description


@pytest.mark.parametrize(
    ("agents", "options", "code"),
    [
        ([], {}, "NO_AGENTS"),
        ([agent("scout"), agent("scout")], {}, "DUPLICATE_AGENT_NAME"),
        (["scout"], {}, "INVALID_AGENT"),
        *(([agent("scout")], {"modes": modes}, "INVALID_MODES") for modes in [(), "single", ["alone"], None, [["a"]]]),
        *(([agent("scout")], {"max_tasks": most}, "INVALID_LIMIT") for most in (0, True)),
        ([agent("scout")], {"max_concurrency": -1}, "INVALID_LIMIT"),
    ],
)
def test_a_crew_that_will_not_do_is_refused(agents: list[Any], options: dict[str, Any], code: str) -> None:
    # S1.1, S1.9
    with pytest.raises(DefinitionError) as refused:
        Subagents(*agents, **options)
    assert [problem.code for problem in refused.value.problems] == [code]


def test_an_agent_is_found_by_its_name_or_absent() -> None:  # S1.1
    scout = agent("scout")
    crew = Subagents(scout)
    assert crew.agent("scout") is scout
    assert crew.agent("nobody") is None


def test_only_what_the_host_gives_may_be_set_later() -> None:  # S17.2
    crew = Subagents(agent("scout"))
    assert [crew.tasks, crew.notify, crew.create_model, crew.background_output, crew.team] == [None] * 5

    def make(name: str) -> ScriptedModel:
        return ScriptedModel([], name=name)

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
        ([agent("a", tools=effects(None), default_effect="idempotent")], "idempotent"),
        ([agent("a", tools=[Subagents(agent("b", tools=effects("once")))])], "once"),
    ],
)
def test_its_effect_is_that_of_the_riskiest_tool_behind_it(agents: list[Agent[Any, Any]], effect: str) -> None:
    assert Subagents(*agents).effect == effect


def test_it_is_untrusted_if_a_tool_behind_it_is() -> None:
    inner = Subagents(agent("reader", tools=[tool(_nothing, name="fetch", untrusted=True)]))
    assert inner.untrusted
    assert Subagents(agent("boss", tools=[inner])).untrusted
    assert not Subagents(agent("scout")).untrusted


ITEM = {"agent": "scout", "task": "look"}
ITEMS = (calls.Item(agent="scout", task="look"),)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({**ITEM, "background": True}, "agent, task and background"),
        ({"tasks": [ITEM]}, "tasks"),
        ({"chain": [ITEM]}, "chain"),
        ({**ITEM, "name": "ann"}, "agent, task and name or team_name"),
    ],
)
async def test_a_call_of_what_is_not_offered_is_refused_with_what_is(arguments: dict[str, Any], said: str) -> None:
    crew = Subagents(agent("scout"), modes=["single"])
    with pytest.raises(SubagentMisused, match=f"^Delegating by {said} is not offered here. Use agent and task.$"):
        await crew.execute(arguments)


RED = {"color": "red", "description": "d"}
JOINS = calls.TeamCall(agent="scout", task="look", name="scout", team_name="", description="", color="")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (ITEM, SingleCall("scout", "look")),
        ({**ITEM, "tasks": [], "chain": []}, SingleCall("scout", "look")),
        ({**ITEM, "tasks": None, "other": 1}, SingleCall("scout", "look")),
        ({"agent": "scout", "tasks": [ITEM]}, calls.ParallelCall(ITEMS)),
        ({"task": "look", "chain": [ITEM]}, calls.ChainCall(ITEMS, 1, "")),
        ({"chain": [ITEM], "start_at": 1, "previous": "x"}, calls.ChainCall(ITEMS, 1, "x")),
        ({**ITEM, "background": True}, calls.BackgroundCall("scout", "look", "look")),
        ({**ITEM, "background": True, "description": "d"}, calls.BackgroundCall("scout", "look", "d")),
        ({**ITEM, "name": "ann"}, replace(JOINS, name="ann")),
        ({**ITEM, "team_name": "t", **RED}, replace(JOINS, team_name="t", **RED)),
    ],
)
def test_a_call_means_one_mode(arguments: dict[str, Any], meant: object) -> None:  # S1.2, S1.7
    assert choose_call(parse_arguments(arguments), 8) == meant


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
        choose_call(parse_arguments(arguments), 8)


def test_a_long_task_is_cut_where_it_is_the_description() -> None:  # S1.6
    call = choose_call(parse_arguments({"agent": "scout", "task": "x" * 81, "background": True}), 8)
    assert isinstance(call, calls.BackgroundCall)
    assert call.description == "x" * 80 + "…"
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
    crew = Subagents(Agent(name="scout", model=ScriptedModel([])))
    with pytest.raises(SubagentMisused, match="Model 'fast'"):
        await crew.execute({"model": "fast"})


async def test_the_model_is_that_of_the_definition_when_the_run_starts(stage: Stage) -> None:  # S1.1
    swappable = SwappableModel(echo())
    crew = Subagents(Agent(name="scout", model=swappable))
    first = await crew.run("scout", "one")
    swappable.swap(ScriptedModel(["swapped"]))
    second = await crew.run("scout", "two")
    assert (first.unwrap(), second.unwrap()) == ("<one>", "swapped")


def test_a_task_that_is_sent_as_an_object_is_its_json() -> None:
    assert parse_arguments('{"agent": "clerk", "task": {"n": [1]}}').task == '{"n":[1]}'
    [item] = parse_arguments({"tasks": [{"agent": "clerk", "task": {"n": 1}}]}).tasks or []
    assert item.task == '{"n":1}'

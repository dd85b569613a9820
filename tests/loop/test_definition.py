"""Definitions: what is refused, all at once, and what a good one becomes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from journeyman import Agent, Allowance, DefinitionError, Limits, Output, Reflection, Settings, Submit, Text, Tool, tool
from journeyman.model import ToolSpec
from journeyman.models.scripted import Scripted
from tests.loop.players import Report, fail, look, preview

NOTHING: Any = "x"
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def codes(**fields: Any) -> list[str]:  # noqa: ANN401 - whatever a caller may pass
    """Return the codes of what is wrong with an agent that has these fields."""
    every: dict[str, Any] = {"name": "tester", "model": "anthropic:claude", **fields}
    try:
        Agent[Any, Any](**every)
    except DefinitionError as refused:
        return [problem.code for problem in refused.problems if problem.message and problem.hint]
    return []


# -- what is refused ---------------------------------------------------------------------------------------------------


@tool(name="look", thread=False)
def other_look() -> None: ...


def _raw(name: str, schema: Any = OBJECT, handler: Any = print, **options: Any) -> Tool[..., Any]:  # noqa: ANN401
    return Tool(name, "A tool.", schema, handler, **options)


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no name": ({"name": ""}, ["INVALID_NAME"]),
    "a blank name": ({"name": "  "}, ["INVALID_NAME"]),
    "a name with a space": ({"name": "my agent"}, ["INVALID_NAME"]),
    "a name that is too long": ({"name": "x" * 65}, ["INVALID_NAME"]),
    "no name at all": ({"name": None}, ["INVALID_NAME"]),
    "a model without a provider": ({"model": "claude"}, ["INVALID_MODEL_NAME"]),
    "a blank model": ({"model": "  "}, ["INVALID_MODEL_NAME"]),
    "something that is no model": ({"model": object()}, ["INVALID_MODEL"]),
    "no model": ({"model": None}, ["INVALID_MODEL"]),
    "a blank system prompt": ({"system": " \n"}, ["EMPTY_PROMPT"]),
    "a blank block in the system prompt": ({"system": [Text("a"), Text(" ")]}, ["EMPTY_PROMPT"]),
    "a blank prompt": ({"prompt": " "}, ["EMPTY_PROMPT"]),
    "an error prompt that is no function": ({"error_prompt": "Wrong!"}, ["INVALID_PROMPT"]),
    "a tool twice": ({"tools": [look, fail, other_look]}, ["DUPLICATE_TOOL_NAME"]),
    "something that is no tool": ({"tools": [print]}, ["INVALID_TOOL"]),
    "a tool with a bad name": ({"tools": [_raw("my tool")]}, ["INVALID_TOOL_NAME"]),
    "a tool without a name": ({"tools": [_raw("")]}, ["MISSING_TOOL_NAME"]),
    "a tool without a handler": ({"tools": [_raw("a", handler=None)]}, ["INVALID_HANDLER"]),
    "a tool that takes no object": ({"tools": [_raw("a", {"type": "array"})]}, ["INVALID_INPUT_SCHEMA"]),
    "a tool with a union on top": (
        {"tools": [_raw("a", {"type": "object", "anyOf": [OBJECT, OBJECT]})]},
        ["INVALID_INPUT_SCHEMA"],
    ),
    "a tool with a bad time": ({"tools": [_raw("a", timeout_s=0)]}, ["INVALID_TIMEOUT"]),
    "a tool named like the output": ({"tools": [look], "output": Output(Report, name="look")}, ["RESERVED_TOOL_NAME"]),
    "an output with a bad name": ({"output": Output(Report, name="my output")}, ["INVALID_TOOL_NAME"]),
    "a blank output name": ({"output": Output(Report, name=" ")}, ["INVALID_TOOL_NAME"]),
    "a reflection that is no function": ({"output": Output(Report, reflection=NOTHING)}, ["INVALID_REFLECTION"]),
    "a validator that is no function": ({"validators": ["x"]}, ["INVALID_VALIDATOR"]),
    "a nudge without an output": ({"nudge": True}, ["INVALID_NUDGE"]),
    "negative retries": ({"retries": -1}, ["INVALID_RETRIES"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_it_refuses(what: str) -> None:  # R10, X29, X30, D8, D13, D33, D44, A14, A15
    fields, expected = WRONG[what]
    assert codes(**fields) == expected


@pytest.mark.parametrize("value", [0, -1, True, 1.5, math.nan, math.inf, "3", None])
@pytest.mark.parametrize("name", ["attempts", "iterations", "parallel_calls"])
def test_counts_are_whole_and_positive(name: str, value: Any) -> None:  # R26, X29, X30, A32, D44  # noqa: ANN401
    assert codes(limits=Limits(**{name: value})) == [f"INVALID_MAX_{name.upper()}"]


@pytest.mark.parametrize("value", [0, -1, True, math.nan, math.inf, "3"])
@pytest.mark.parametrize("name", ["tokens", "calls", "seconds", "cost"])
@pytest.mark.parametrize("scope", ["run", "attempt"])
def test_allowances_are_positive_and_finite(scope: str, name: str, value: Any) -> None:  # R79, D44  # noqa: ANN401
    limits = Limits(**{name: value}) if scope == "run" else Limits(each_attempt=Allowance(**{name: value}))
    assert codes(limits=limits) == ["INVALID_LIMIT"]


@pytest.mark.parametrize("value", [0, -5, True, 1.5])
def test_an_answer_has_at_least_one_token(value: Any) -> None:  # X30, D44  # noqa: ANN401
    assert codes(settings=Settings(max_tokens=value)) == ["INVALID_MAX_TOKENS"]


def test_everything_that_is_wrong_is_told_at_once() -> None:  # X29, D44
    with pytest.raises(DefinitionError) as refused:
        Agent(
            name="my agent",
            model="claude",
            system=" ",
            tools=[look, other_look, fail],
            output=Output(Report, name="fail", reflection=Reflection(preview, submit=Submit(name="fail"))),
            limits=Limits(attempts=0, iterations=-1, tokens=0),
            settings=Settings(max_tokens=0),
        )
    assert [problem.code for problem in refused.value.problems] == [
        "INVALID_NAME",
        "INVALID_MODEL_NAME",
        "EMPTY_PROMPT",
        "DUPLICATE_TOOL_NAME",
        "RESERVED_TOOL_NAME",
        "RESERVED_TOOL_NAME",
        "INVALID_MAX_ATTEMPTS",
        "INVALID_MAX_ITERATIONS",
        "INVALID_LIMIT",
        "INVALID_MAX_TOKENS",
    ]
    assert str(refused.value).startswith("Agent 'my agent' has 10 problems:\n  - [INVALID_NAME] ")


def test_a_problem_says_what_to_do() -> None:  # R73
    with pytest.raises(DefinitionError, match=r"Tool 'look' is defined twice\. Rename one, or remove it from Agent"):
        Agent(name="tester", model="anthropic:claude", tools=[look, other_look])


# -- what is accepted --------------------------------------------------------------------------------------------------


def test_names_are_told_apart_by_case() -> None:  # A15
    upper = _raw("Look")
    assert codes(tools=[look, upper]) == []


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_good_names_are_accepted(name: str) -> None:  # X29
    assert codes(name=name) == []


def test_a_blank_description_of_the_output_becomes_an_instruction() -> None:  # X29, R19
    plain = Agent(name="tester", model="anthropic:claude", output=Output(Report, description="  "))
    drafted = Agent(name="tester", model="anthropic:claude", output=Output(Report, reflection=preview))
    own = Agent(name="tester", model="anthropic:claude", output=Output(Report, description="The report."))
    assert [agent.plan.specs[0].description for agent in (plain, drafted, own)] == [
        "Give the final output with this tool.",
        "Propose the output with this tool; you will see it as others would, and may propose it again.",
        "The report.",
    ]


def test_defaults_are_as_documented() -> None:  # R26, R19
    agent = Agent(name="tester", model="anthropic:claude", output=Output(Report))
    assert (agent.limits.attempts, agent.limits.iterations, agent.limits.parallel_calls) == (3, 15, 8)
    assert (agent.output.name, agent.output.reflecting()) == ("output", None)
    assert (agent.tools, agent.validators, agent.feedback, agent.nudge) == ((), (), "result", False)
    assert agent.observability.track_tokens


# -- what a definition becomes -----------------------------------------------------------------------------------------


def test_the_model_sees_output_tools_and_submit_in_this_order() -> None:  # R18, R39, X8
    output = Output(Report, name="answer", description="The report.", reflection=preview)
    agent = Agent(name="tester", model="anthropic:claude", tools=[look, fail], output=output)
    assert [spec.name for spec in agent.plan.specs] == ["answer", "look", "fail", "submit"]
    assert agent.plan.specs[0] == ToolSpec(
        name="answer",
        description="The report.",
        input_schema={"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]},
    )


def test_a_definition_cannot_be_changed() -> None:  # X29, A48
    agent = Agent(name="tester", model="anthropic:claude")
    changes: list[Callable[[Any], None]] = [
        lambda agent: setattr(agent, "name", "other"),
        lambda agent: setattr(agent.limits, "attempts", 9),
        lambda agent: setattr(agent.output, "name", "other"),
    ]
    for change in changes:
        with pytest.raises(FrozenInstanceError):
            change(agent)


def test_a_changed_copy_is_checked_too() -> None:  # X29, D44
    agent = Agent(name="tester", model="anthropic:claude", tools=[look])
    assert [spec.name for spec in replace(agent, tools=[fail]).plan.specs] == ["fail"]
    with pytest.raises(DefinitionError, match="DUPLICATE_TOOL_NAME"):
        replace(agent, tools=[look, other_look])


def test_the_callers_own_list_changes_nothing() -> None:  # A48, D44
    tools: list[Tool[..., Any]] = [look]
    agent = Agent(name="tester", model="anthropic:claude", tools=tools)
    tools.append(fail)
    assert [spec.name for spec in agent.plan.specs] == ["look"]
    assert list(agent.plan.tools) == ["look"]


def test_any_model_object_will_do() -> None:  # X39, D46
    assert codes(model=Scripted([])) == []

"""Definitions: what is refused, all at once, and what a good one becomes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any, cast

import pytest

from journeyman import Agent, Budget, Limits, ModelSettings, Output, Reflection, SubmitTool, Text, Tool, run, tool
from journeyman.errors import DefinitionError, Problem
from journeyman.model import ToolSpec
from journeyman.types import JsonObject
from tests.loop.parts import PLAIN, REFLECTED, fail, preview
from tests.play import Report, Stage, failed, look, reporter, small, talker


@tool(name="look", thread=False)
def other_look() -> None: ...


OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def raw(name: str = "raw", schema: Any = OBJECT, handler: Any = print, **options: Any) -> Tool[..., Any]:  # noqa: ANN401
    return Tool(name, "A tool.", schema, handler, **options)


def submitted_by(name: str) -> Output[Report]:
    return Output(Report, reflection=Reflection(preview, submit=SubmitTool(name=name)))


NOTHING: Any = "x"

WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no name": ({"name": ""}, ["INVALID_NAME"]),
    "a name that is too long": ({"name": "x" * 65}, ["INVALID_NAME"]),
    "no name at all": ({"name": None}, ["INVALID_NAME"]),
    "a model without a provider": ({"model": "claude"}, ["INVALID_MODEL_NAME"]),
    "something that is no model": ({"model": object()}, ["INVALID_MODEL"]),
    "a name that ends a line": ({"name": "end\n"}, ["INVALID_NAME"]),
    "an empty model": ({"model": ""}, ["INVALID_MODEL_NAME"]),
    "no model": ({"model": None}, ["INVALID_MODEL"]),
    "a blank system prompt": ({"system": " \n"}, ["EMPTY_PROMPT"]),
    "a blank block in the system prompt": ({"system": [Text("a"), Text(" ")]}, ["EMPTY_PROMPT"]),
    "a blank prompt": ({"prompt": " "}, ["EMPTY_PROMPT"]),
    "an error prompt that is no function": ({"error_prompt": "Wrong!"}, ["INVALID_PROMPT"]),
    "no error prompt": ({"error_prompt": None}, ["INVALID_PROMPT"]),
    "something that is no tool": ({"tools": [print]}, ["INVALID_TOOL"]),
    "tools by name": ({"tools": {"look": look}}, ["INVALID_SECTION", "INVALID_TOOL"]),
    "a text for tools": ({"tools": "look"}, ["INVALID_SECTION", *["INVALID_TOOL"] * 4]),
    "a tool named like the output": ({"tools": [look], "output": Output(Report, name="look")}, ["RESERVED_TOOL_NAME"]),
    "a tool named output": ({"tools": [raw("output")], "output": PLAIN}, ["RESERVED_TOOL_NAME"]),
    "a tool named like a draft": ({"tools": [raw("output")], "output": REFLECTED}, ["RESERVED_TOOL_NAME"]),
    "a tool named submit": ({"tools": [raw("submit")], "output": REFLECTED}, ["RESERVED_TOOL_NAME"]),
    "a tool named like the submit tool": ({"tools": [look], "output": submitted_by("look")}, ["RESERVED_TOOL_NAME"]),
    "an output named submit": ({"output": Output(Report, name="submit", reflection=preview)}, ["RESERVED_TOOL_NAME"]),
    "a submit tool named output": ({"output": submitted_by("output")}, ["RESERVED_TOOL_NAME"]),
    "a submit tool with a bad name": ({"output": submitted_by("hand in")}, ["INVALID_TOOL_NAME"]),
    "a submit tool without a name": ({"output": submitted_by("")}, ["INVALID_TOOL_NAME"]),
    "a submit tool with a blank description": (
        {"output": Output(Report, reflection=Reflection(preview, submit=SubmitTool(description=" ")))},
        ["EMPTY_DESCRIPTION"],
    ),
    "a blank output name": ({"output": Output(Report, name=" ")}, ["INVALID_TOOL_NAME"]),
    "a reflection that is no function": ({"output": Output(Report, reflection=NOTHING)}, ["INVALID_REFLECTION"]),
    "a reflection of no function": ({"output": Output(Report, reflection=Reflection(NOTHING))}, ["INVALID_REFLECTION"]),
    "an end after tools with an output": ({"output": PLAIN, "stop_after": ["look"]}, ["TEXT_AGENT_ONLY"]),
    "a validator that is no function": ({"validators": ["x"]}, ["INVALID_VALIDATOR"]),
    "a reminder of no tool": ({"output": Output(Report, mode="native", reminder=True)}, ["NATIVE_REMINDER"]),
    "negative retries": ({"limits": Limits(request_retries=-1)}, ["INVALID_RETRIES"]),
    "a truth for retries": ({"limits": Limits(request_retries=True)}, ["INVALID_RETRIES"]),
    "a fraction for retries": ({"limits": Limits(request_retries=1.0)}, ["INVALID_RETRIES"]),  # pyright: ignore[reportArgumentType]
    "a fraction of tokens": ({"limits": Limits(tokens=1e6)}, ["INVALID_LIMIT"]),  # pyright: ignore[reportArgumentType]
}


def codes(**fields: Any) -> list[str]:
    """Return the codes of what is wrong with an agent that has these fields; each problem says what and what to do."""
    every: dict[str, Any] = {"name": "tester", "model": "anthropic:claude", **fields}
    problems: Sequence[Problem] = ()
    try:
        Agent[Any, Any](**every)
    except DefinitionError as refused:
        problems = refused.problems
    assert all(problem.message and problem.hint for problem in problems)
    return [problem.code for problem in problems]


@pytest.mark.parametrize("what", WRONG)
def test_it_refuses(what: str) -> None:  # R10, X29, X30, D8, D13, D33, D44, A14, A15, D11, R78
    fields, expected = WRONG[what]
    assert codes(**fields) == expected


@pytest.mark.parametrize("value", [0, -1, True, False, 1.5, 2.0, math.nan, math.inf, "3", None])
@pytest.mark.parametrize("name", ["attempts", "iterations", "max_concurrency"])
def test_counts_are_whole_and_positive(name: str, value: Any) -> None:  # R26, X29, X30, A32, D44  # noqa: ANN401
    assert codes(limits=Limits(**{name: value})) == [f"INVALID_MAX_{name.removeprefix('max_').upper()}"]


@pytest.mark.parametrize("value", [0, -1, True, math.nan, math.inf, "3"])
@pytest.mark.parametrize("name", ["tokens", "calls", "seconds", "cost"])
@pytest.mark.parametrize("scope", ["run", "attempt"])
def test_budgets_are_positive_and_finite(scope: str, name: str, value: Any) -> None:  # R79, D44  # noqa: ANN401
    limits = Limits(**{name: value}) if scope == "run" else Limits(per_attempt=Budget(**{name: value}))
    assert codes(limits=limits) == ["INVALID_LIMIT"]


@pytest.mark.parametrize("value", [0, -1, True, math.nan, "3"])
@pytest.mark.parametrize("name", ["extended_max_tokens", "tool_failures", "approval_seconds"])
def test_further_limits_are_positive_and_whole_or_none(name: str, value: Any) -> None:  # D44  # noqa: ANN401
    assert codes(limits=Limits(**{name: value})) == ["INVALID_LIMIT"]
    usable: list[Any] = [None, 3]
    assert [codes(limits=Limits(**{name: each})) for each in usable] == [[], []]


def test_only_seconds_can_be_parts_of_one_and_none_are_without_end() -> None:  # D44
    assert codes(limits=Limits(approval_seconds=0.5)) == []
    assert codes(limits=Limits(whole_responses=cast("Any", 1))) == ["INVALID_LIMIT"]
    assert codes(limits=Limits(approval_seconds=math.inf)) == ["INVALID_LIMIT"]
    part: Any = 1.5
    assert codes(limits=Limits(extended_max_tokens=part)) == ["INVALID_LIMIT"]
    assert codes(limits=Limits(tool_failures=part)) == ["INVALID_LIMIT"]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3", "ultra"])
def test_thinking_is_a_level_or_a_whole_number_of_tokens(value: Any) -> None:  # D44  # noqa: ANN401
    assert codes(settings=ModelSettings(thinking=value)) == ["INVALID_THINKING"]
    assert codes(settings=ModelSettings(thinking=1)) == codes(settings=ModelSettings(thinking="low")) == []


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_result_has_at_least_one_character(value: Any) -> None:  # D44  # noqa: ANN401
    assert codes(limits=Limits(result_chars=value)) == ["INVALID_LIMIT"]
    assert codes(limits=Limits(result_chars=1)) == codes(limits=Limits(result_chars=None)) == []


@pytest.mark.parametrize("value", [0, -5, True, 1.5, math.nan])
def test_an_answer_has_at_least_one_token(value: Any) -> None:  # X30, D44  # noqa: ANN401
    assert codes(settings=ModelSettings(max_tokens=value)) == ["INVALID_MAX_TOKENS"]


@pytest.mark.parametrize(
    "section", [*("limits", "settings", "output", "tools", "validators", "system", "track_tokens", "error_prompt")]
)
def test_a_section_that_is_none_is_refused(section: str) -> None:  # D44
    assert codes(**{section: None}) != []


@pytest.mark.parametrize("section", ["tool_middleware", "prompt", "compaction", "stop_after", "description"])
async def test_a_section_that_may_be_none_means_nothing(stage: Stage, section: str) -> None:  # D44
    assert (await run(talker(stage.model(["Done."]), **{section: None}), "Go.")).unwrap() == "Done."


def test_everything_that_is_wrong_is_told_at_once() -> None:  # X29, D44
    with pytest.raises(DefinitionError) as refused:
        Agent(
            name="my agent",
            model="claude",
            system=" ",
            tools=[look, other_look, fail, NOTHING],
            output=Output(Report, name="fail", reflection=Reflection(preview, submit=SubmitTool(name="fail"))),
            limits=Limits(attempts=0, iterations=-1, tokens=0, request_retries=-1),
            settings=ModelSettings(max_tokens=0),
        )
    assert [problem.code for problem in refused.value.problems] == [
        *("INVALID_NAME", "INVALID_MODEL_NAME", "EMPTY_PROMPT", "DUPLICATE_TOOL_NAME"),
        *("INVALID_TOOL", "RESERVED_TOOL_NAME", "RESERVED_TOOL_NAME", "INVALID_MAX_ATTEMPTS"),
        *("INVALID_MAX_ITERATIONS", "INVALID_LIMIT", "INVALID_RETRIES", "INVALID_MAX_TOKENS"),
    ]
    assert str(refused.value).startswith("Agent 'my agent' has 12 problems:\n  - [INVALID_NAME] ")


def test_names_defined_twice_are_each_said_with_what_to_do() -> None:  # A15, R73
    with pytest.raises(DefinitionError) as raised:
        talker("anthropic:claude", tools=[raw(name) for name in "xyxyz"])
    assert [problem.code for problem in raised.value.problems] == ["DUPLICATE_TOOL_NAME"] * 2
    assert "Tool 'x' is defined twice. Rename one, or remove it from Agent" in str(raised.value.problems[0])
    assert "'y'" in raised.value.problems[1].message


NAMELESS = ["two words", "naïve", "a.b", "a/b", "", "x" * 129, "semi;colon", "new\nline", "end\n", 3]


@pytest.mark.parametrize("name", NAMELESS)
def test_a_tool_name_that_providers_refuse_is_refused_at_definition(name: Any) -> None:  # D13  # noqa: ANN401
    assert codes(tools=[raw(name)]) == ["INVALID_TOOL_NAME" if name else "MISSING_TOOL_NAME"]
    assert codes(output=Output(Report, name=name)) == ["INVALID_TOOL_NAME"]


def test_a_function_that_cannot_be_a_tool_is_refused_by_the_decorator() -> None:  # D44
    def useless(*rest: int, where: Callable[[], int], **options: object) -> None: ...

    with pytest.raises(DefinitionError) as refused:
        tool(useless)
    found = [problem.code for problem in refused.value.problems]
    assert found == ["UNSUPPORTED_PARAMETER"] * 2 + ["UNSUPPORTED_TYPE"]


async def test_what_was_never_defined_as_an_agent_cannot_run(stage: Stage) -> None:  # D44
    class Fake:
        name = "fake"
        limits = Limits(attempts=0)

    fake: Any = Fake()
    fake.model = stage.model(["Never asked."])
    assert failed(await run(fake, "Go.")).code == "INVALID_INPUT"
    assert stage.n_requests == 0


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_good_names_are_accepted(name: str) -> None:  # X29
    assert codes(name=name) == []


def test_a_blank_description_of_the_output_becomes_an_instruction() -> None:  # X29, R19
    plain = reporter("anthropic:claude", output=Output(Report, description="  "))
    drafted = reporter("anthropic:claude", output=REFLECTED)
    own = reporter("anthropic:claude", output=Output(Report, description="The report."))
    assert [agent.plan.specs[0].description for agent in (plain, drafted, own)] == [
        "Give the final output with this tool.",
        "Propose the output with this tool; you will see it as others would, and may propose it again.",
        "The report.",
    ]


def test_defaults_are_as_documented() -> None:  # R26, R19
    agent = Agent(name="tester", model="anthropic:claude", output=Output(Report))
    assert (agent.limits.attempts, agent.limits.iterations, agent.limits.max_concurrency) == (3, 15, 8)
    assert [*agent.plan.outputs.members] == ["output"]
    assert agent.plan.outputs.submit is None
    assert isinstance(agent.output, Output)
    assert (agent.tools, agent.validators, agent.output.feedback_role, agent.output.reminder) == (
        (),
        (),
        "result",
        False,
    )
    assert (agent.track_tokens, agent.default_effect, agent.system_mode) == (True, "once", "append")


def test_the_model_sees_output_tools_and_submit_in_this_order() -> None:  # R18, R39, X8, A14
    output = Output(Report, name="answer", description="The report.", reflection=preview)
    agent = reporter("anthropic:claude", tools=[look, fail], output=output)
    assert [spec.name for spec in agent.plan.specs] == ["answer", "look", "fail", "submit"]
    assert agent.plan.specs[0] == ToolSpec(
        name="answer",
        description="The report.",
        input_schema={"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]},
    )


@pytest.mark.parametrize(
    ("of", "name"), [("", "name"), ("", "limits"), ("", "validators"), ("limits", "attempts"), ("output", "name")]
)
def test_a_definition_cannot_be_changed(of: str, name: str) -> None:  # X29, A48
    agent = talker("anthropic:claude")
    with pytest.raises(FrozenInstanceError):
        setattr({"": agent, "limits": agent.limits, "output": agent.output}[of], name, "other")


def test_a_changed_copy_is_checked_too() -> None:  # X29, D44
    agent = talker("anthropic:claude")
    assert [spec.name for spec in replace(agent, tools=[fail]).plan.specs] == ["fail"]
    with pytest.raises(DefinitionError, match="DUPLICATE_TOOL_NAME"):
        replace(agent, tools=[look, other_look])


def test_a_definition_changes_nothing_of_what_it_was_given() -> None:  # D44
    tools: list[Tool[..., Any]] = [look]
    validators = [small]
    extra: JsonObject = {"metadata": {"user_id": "u"}}
    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
    before = repr((tools, validators, extra, schema))
    made = raw(schema=schema)
    reporter("anthropic:claude", tools=tools, validators=validators, settings=ModelSettings(extra=extra))
    talker("anthropic:claude", tools=[made])
    assert repr((tools, validators, extra, schema)) == before

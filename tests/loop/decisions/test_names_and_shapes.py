"""What an agent may be made of: names that clash, outputs of every type, limits of one run, and the least there is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal, NamedTuple, cast

import pytest
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypedDict

from journeyman import (
    Agent,
    DefinitionError,
    ErrorCode,
    Output,
    Reflection,
    Submit,
    Success,
    Tool,
    ToolResult,
    run,
    tool,
)
from journeyman.models.scripted import Scripted, call
from tests.loop.pitfalls.players import Report, failed, look, report, shown, submit
from tests.support.stage import Stage

MODEL = Scripted([])


def named(name: str) -> Tool[..., object]:
    async def act() -> str:
        return name

    return tool(act, name=name)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_tool_may_not_take_the_name_of_output_or_of_the_submit_there_is() -> None:  # A14
    for output, name in (
        (Output(Report), "output"),
        (Output(Report, name="report"), "report"),
        (Output(Report, reflection=shown), "output"),
        (Output(Report, reflection=shown), "submit"),
        (Output(Report, reflection=Reflection(shown, submit=Submit(name="send"))), "send"),
    ):
        with pytest.raises(DefinitionError) as raised:
            Agent(name="a", model=MODEL, tools=[named(name), look], output=output)
        (problem,) = raised.value.problems
        assert problem.code == "RESERVED_TOOL_NAME"
        assert repr(name) in problem.message


async def test_a_tool_may_be_named_submit_where_nothing_else_is(stage: Stage) -> None:  # A14
    renamed = Reflection(shown, submit=Submit(name="send"))
    for output, end in ((Output(Report), []), (Output(Report, reflection=renamed), [call("send")])):
        before = stage.n_requests
        model = stage.model([call("submit", id="a"), [report(1), *end]])
        agent = Agent(name="a", model=model, tools=[named("submit")], output=output)
        assert (await run(agent, "Go.")).unwrap() == Report(total=1)
        assert stage.tool_results(before + 1) == [ToolResult("submit", tool_use_id="a")]


async def test_a_tool_may_be_named_output_or_submit_by_an_agent_that_answers_with_text(stage: Stage) -> None:  # A14
    model = stage.model([[call("output", id="a"), call("submit", id="b")], "Done."])
    result = await run(Agent(name="a", model=model, tools=[named("output"), named("submit")]), "Go.")
    assert result.unwrap() == "Done."
    assert [answered.content for answered in stage.tool_results(1)] == ["output", "submit"]


def test_names_defined_twice_are_each_said() -> None:  # A15
    with pytest.raises(DefinitionError) as raised:
        Agent(name="a", model=MODEL, tools=[named("x"), named("y"), named("x"), named("y"), named("z")])
    assert [problem.code for problem in raised.value.problems] == ["DUPLICATE_TOOL_NAME"] * 2
    assert "'x'" in raised.value.problems[0].message
    assert "'y'" in raised.value.problems[1].message


async def test_names_differ_by_case(stage: Stage) -> None:  # A15
    model = stage.model([[call("Look"), call("look"), call("LOOK")], "Done."])
    await run(Agent(name="a", model=model, tools=[named("look"), named("Look")]), "Go.")
    assert [answered.content for answered in stage.tool_results(1)] == ["Look", "look", "Error: Unknown tool LOOK"]


async def test_tools_are_offered_in_this_order(stage: Stage) -> None:  # A14, X8
    model = stage.model([[report(1), submit()]])
    agent = Agent(
        name="a", model=model, tools=[named("z"), named("a"), named("m")], output=Output(Report, reflection=shown)
    )
    await run(agent, "Go.")
    assert stage.tool_names() == ["output", "z", "a", "m", "submit"]


# -- outputs of every type ---------------------------------------------------------------------------------------------


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Numbers(RootModel[list[int]]): ...


class Anything(RootModel[dict[str, int]]): ...


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    r: float


class Square(BaseModel):
    kind: Literal["square"] = "square"
    side: float


Shape = Annotated[Circle | Square, Field(discriminator="kind")]


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    verbose: bool


@dataclass
class Pair:
    left: int
    right: int


def wrapped(value: object) -> dict[str, object]:
    return {"value": value}


SHAPES: dict[str, tuple[object, dict[str, object], object]] = {
    "a list": (list[int], wrapped([1, 2]), [1, 2]),
    "a scalar": (int, wrapped(5), 5),
    "a text": (str, wrapped("words"), "words"),
    "a union of models": (Circle | Square, wrapped({"kind": "square", "side": 2}), Square(side=2)),
    "a tagged union": (Shape, wrapped({"kind": "circle", "r": 1}), Circle(r=1)),
    "a model or nothing": (Report | None, wrapped(None), None),
    "a model or nothing, given": (Report | None, wrapped({"total": 1}), Report(total=1)),
    "a literal": (Literal["yes", "no"], wrapped("yes"), "yes"),
    "an enum": (Colour, wrapped("red"), Colour.RED),
    "a tuple": (tuple[int, str], wrapped([1, "a"]), (1, "a")),
    "a named tuple": (Point, wrapped([1, 2]), Point(1, 2)),
    "a root model of a list": (Numbers, wrapped([1]), Numbers([1])),
    "a root model of an object": (Anything, {"a": 1}, Anything({"a": 1})),
    "a recursive model": (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")])),
    "a list of recursive models": (list[Tree], wrapped([{"name": "a"}]), [Tree(name="a")]),
    "a mapping": (dict[str, int], {"a": 1}, {"a": 1}),
    "a typed dict": (Options, {"verbose": True}, {"verbose": True}),
    "a dataclass": (Pair, {"left": 1, "right": 2}, Pair(1, 2)),
}


@pytest.mark.parametrize("reflecting", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_an_output_may_be_of_any_type_and_is_asked_for_as_an_object(
    stage: Stage, shape: str, reflecting: bool
) -> None:  # A16
    form, arguments, output = SHAPES[shape]
    drafts, judged = list[object](), list[object]()

    def show(draft: object) -> str:
        drafts.append(draft)
        return "shown"

    agent = Agent(
        name="a",
        model=stage.model([[call("output", arguments), *([submit()] if reflecting else [])]]),
        output=Output(cast("type[object]", form), reflection=show if reflecting else None),
        validators=[judged.append],
    )
    result = await run(agent, "Go.")
    assert isinstance(result, Success), result
    assert (result.output, judged, drafts) == (output, [output], [output] * reflecting)
    assert type(result.output) is type(output)
    assert result.history[1].tool_uses[0].input == arguments
    schema = stage.requests[0].prefix.tools[0].input_schema
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()
    if "value" in arguments:
        assert schema["required"] == ["value"]


@pytest.mark.parametrize("arguments", [{}, {"values": [1]}, {"value": [1], "more": 2}, {"value": "x"}, {"a": 1}])
async def test_a_wrapped_output_without_its_value_is_a_fault_of_the_models(
    stage: Stage, arguments: dict[str, object]
) -> None:  # A16
    model = stage.model([call("output", arguments), call("output", value=[1])])
    result = await run(Agent(name="a", model=model, output=Output(list[int])), "Go.")
    assert result.unwrap() == [1]
    assert stage.tool_results(1)[0].text.startswith("Validation failed: schema")
    assert len(result.metadata.attempts) == 2


async def test_an_output_may_be_a_text_of_its_own_that_is_no_answer(stage: Stage) -> None:  # A16, design 2
    model = stage.model([call("output", value="words")])
    assert (await run(Agent(name="a", model=model, output=Output(str)), "Go.")).unwrap() == "words"
    assert stage.tool_names() == ["output"]


def test_a_type_that_cannot_be_described_is_refused_at_definition() -> None:  # A16, D39
    class Handle: ...

    with pytest.raises(DefinitionError):
        Agent(name="a", model=MODEL, output=Output(Handle))
    with pytest.raises(DefinitionError):
        Agent(name="a", model=MODEL, input=Handle)


# -- limits of one run, and the least there is -------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [0, -1, True, 2.0, "2"])
async def test_an_override_that_is_no_number_of_attempts_fails_before_any_call(
    stage: Stage, attempts: object
) -> None:  # A32
    model = stage.model([report(1)])
    failure = failed(
        await run(Agent(name="a", model=model, output=Output(Report)), "Go.", max_attempts=cast("int", attempts))
    )
    assert (failure.code, failure.phase, stage.n_requests) == (ErrorCode.INVALID_INPUT, "prompt_generation", 0)


async def test_an_agent_of_an_output_alone_needs_nothing_else(stage: Stage) -> None:  # A47, R70
    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report))
    result = await run(agent, "Go.")
    assert (result.unwrap(), stage.tool_names(), stage.requests[0].prefix.system) == (Report(total=1), ["output"], ())


async def test_an_agent_of_a_name_and_a_model_alone_answers(stage: Stage) -> None:  # A47
    result = await run(Agent(name="a", model=stage.model(["Hello."])), "Hi.")
    assert (result.unwrap(), stage.tool_names()) == ("Hello.", [])

"""Which value is returned, whose state is kept, and what becomes of arguments that do not fit."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from journeyman import (
    Agent,
    ErrorCode,
    Limits,
    Output,
    Success,
    Tool,
    ToolContext,
    ToolResult,
    dump_messages,
    load_messages,
    run,
    tool,
)
from journeyman.models.scripted import Scripted, call
from journeyman.tools.tools import States
from journeyman.types import JsonObject, ToolUse
from tests.loop.pitfalls.players import Report, failed, look, report, small
from tests.support.recorder import CallbackLog
from tests.support.stage import Stage


def upper(text: str) -> str:
    return text.upper()


class Named(BaseModel):
    name: Annotated[str, AfterValidator(upper)]
    n: int = Field(default=3, ge=1)


# -- the value that is returned ----------------------------------------------------------------------------------------


async def test_the_output_is_the_value_that_the_schema_made_and_validators_saw(stage: Stage) -> None:  # A34
    seen: list[Named] = []
    model = stage.model([call("output", name="ada", n="5")])
    result = await run(Agent(name="a", model=model, output=Output(Named), validators=[seen.append]), "Go.")
    assert result.unwrap() == Named.model_construct(name="ADA", n=5)
    assert seen == [result.unwrap()]
    assert result.history[1].tool_uses[0].input == {"name": "ada", "n": "5"}


async def test_a_validator_that_returns_another_value_does_not_replace_the_output(stage: Stage) -> None:  # A34, D27
    def replace_it(output: Named) -> None:
        return Named(name="other")  # type: ignore[return-value]

    agent = Agent(
        name="a", model=stage.model([call("output", name="x")]), output=Output(Named), validators=[replace_it]
    )
    assert failed(await run(agent, "Go.")).code == ErrorCode.VALIDATION_FAILED


async def test_a_validator_that_raises_is_a_rejection_and_one_that_meddles_is_a_bug(stage: Stage) -> None:  # A33
    def judge(output: Report) -> None:
        if output.total == 2:
            output.total = 1
        small(output)

    model = stage.model([report(99), report(2), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[judge])
    failure = failed(await run(agent, "Go."))
    assert (failure.code, stage.n_requests) == (ErrorCode.VALIDATION_FAILED, 2)
    assert "'judge'" in failure.error.message
    assert failure.error.hint


# -- state -------------------------------------------------------------------------------------------------------------


class Bag(BaseModel):
    items: list[str] = []


def final(states: States) -> tuple[object, object]:
    return states.run, states.attempt


@tool
async def put(item: str, ctx: ToolContext, then: str = "") -> object:
    """Put an item into both bags; then maybe fail in some way."""
    for state, set_state in ((ctx.run_state(Bag), ctx.set_run_state), (ctx.attempt_state(Bag), ctx.set_attempt_state)):
        state.items.append(item)
        set_state(state)
    match then:
        case "raise":
            raise ValueError("dropped it")
        case "reject":
            return ToolResult("no", is_error=True)
        case "hang":
            await asyncio.Event().wait()
        case "unwritable":
            return (n for n in [1])
        case _:
            return f"put {item}"


async def bags(stage: Stage, *responses: ToolUse | list[ToolUse] | str) -> tuple[list[str], list[str]]:
    def run_state(given: str) -> Bag:
        return Bag(items=[f"run of {given}"])

    def attempt_state(given: str, run_state: Bag) -> Bag:
        return Bag(items=[f"attempt after {len(run_state.items)}"])

    agent = Agent(
        name="a",
        model=stage.model(responses),
        tools=[put],
        output=Output(Report),
        validators=[small],
        run_state=run_state,
        attempt_state=attempt_state,
        project=final,
    )
    result = await run(agent, "it")
    assert isinstance(result, Success), result
    run_bag, attempt_bag = result.state  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert isinstance(run_bag, Bag)
    assert isinstance(attempt_bag, Bag)
    return run_bag.items, attempt_bag.items


@pytest.mark.parametrize("then", ["raise", "reject", "unwritable"])
async def test_new_state_counts_whole_or_not_at_all(stage: Stage, then: str) -> None:  # A35, X3, D25
    states = await bags(
        stage, [call("put", item="a"), call("put", item="b", then=then), call("put", item="c")], report(1)
    )
    assert states == (["run of it", "a", "c"], ["attempt after 1", "a", "c"])
    assert stage.tool_results(1)[1].is_error


async def test_the_state_of_the_run_outlives_a_rejection_and_that_of_the_attempt_does_not(stage: Stage) -> None:
    # A35, X4
    states = await bags(stage, call("put", item="a"), report(99), call("put", item="b"), report(1))
    assert states == (["run of it", "a", "b"], ["attempt after 2", "b"])


async def test_the_state_of_a_call_that_timed_out_does_not_count(stage: Stage) -> None:  # A35, A45
    hasty = tool(put.handler, name="hasty", timeout_s=0.01)
    agent = Agent(
        name="a",
        model=stage.model([call("hasty", item="a", then="hang"), "Done."]),
        tools=[hasty],
        run_state=lambda given: Bag(),
        attempt_state=lambda given, run_state: Bag(),
        project=final,
    )
    result = await run(agent, "it")
    assert isinstance(result, Success)
    assert result.state == (Bag(), Bag())


async def test_a_state_of_another_kind_than_asked_for_is_an_error_of_the_call(stage: Stage) -> None:  # A35
    agent = Agent(name="a", model=stage.model([call("put", item="a"), "Done."]), tools=[put], run_state=lambda given: 5)
    await run(agent, "it")
    assert stage.tool_results(1)[0].text.startswith("Error: The run state is a int, not a Bag.")


# -- arguments that do not fit -----------------------------------------------------------------------------------------


async def test_a_tool_whose_arguments_do_not_fit_is_not_called_and_the_model_reads_every_fault(stage: Stage) -> None:
    # A36, R20
    runs: list[str] = []

    @tool
    async def send(to: str, copies: Annotated[int, Field(le=5)], when: str = "now") -> str:
        runs.append(to)
        return "sent"

    told = CallbackLog()
    model = stage.model([call("send", copies=9, at="noon", id="a"), call("send", to="me", copies=1), "Done."])
    result = await run(Agent(name="a", model=model, tools=[send]), "Go.", callbacks=told.callbacks())
    assert runs == ["me"]
    assert stage.tool_results(1) == [
        ToolResult(
            "Error: Invalid arguments for tool 'send':\n"
            "- to: is required\n"
            "- copies: should be less than or equal to 5, got 9\n"
            "- at: is not a known name",
            is_error=True,
            tool_use_id="a",
        )
    ]
    assert [context.is_error for context, _ in told.of("tool_result")] == [True, False]
    assert len(told.of("tool_call")) == 2
    assert result.metadata.tools["send"].errors == {"invalid_input": 1}


MALFORMED = ['{"where": "up"', "", "[1]", "null", '"up"', "{'where': 'up'}", '{"where": NaN}', "[" * 5_000, "\ud800"]


@pytest.mark.parametrize("written", MALFORMED, ids=[f"{n}" for n in range(len(MALFORMED))])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
async def test_arguments_that_are_no_object_are_faults_of_the_models_and_do_not_spoil_the_history(
    written: str, declared: bool
) -> None:  # A36, A37, M8
    use = ToolUse("a", "look", "{}", malformed=written) if declared else ToolUse("a", "look", written)
    result = await run(Agent(name="a", model=Scripted([use, "Done."]), tools=[look]), "Go.")
    assert isinstance(result, Success)
    assert result.history[1].tool_uses[0].input == {}
    assert load_messages(dump_messages(result.history))
    answered = result.history[2].content[0]
    assert isinstance(answered, ToolResult)
    assert answered.is_error
    assert answered.text.startswith("Error: Invalid arguments for tool 'look':")


HOSTILE: list[JsonObject] = [
    {"where": "x" * 1_000_000},
    {"where": "\x00\x1b[31m\u202e"},
    {"where": "</tool_result>"},
    {"where": "{0.__class__}"},
]


@pytest.mark.parametrize("arguments", HOSTILE, ids=range(len(HOSTILE)))
async def test_odd_texts_reach_the_tool_as_they_are(stage: Stage, arguments: JsonObject) -> None:  # A36
    seen: list[str] = []

    @tool
    async def keep(where: str) -> str:
        seen.append(where)
        return "kept"

    result = await run(Agent(name="a", model=stage.model([call("keep", arguments), "Done."]), tools=[keep]), "Go.")
    assert seen == [arguments["where"]]
    assert result.history[1].tool_uses[0].input == arguments


HOSTILE_NAMES = ["ctx", "self", "__class__", "__proto__", "args", "kwargs", "arguments", "context", "where "]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_an_argument_that_a_tool_does_not_name_is_refused(stage: Stage, name: str) -> None:  # A36, D34
    seen: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext, where: str = "here") -> str:
        seen.append(ctx)
        return "kept"

    model = stage.model([call("keep", {name: {"abort": 1}}), call("keep"), "Done."])
    await run(Agent(name="a", model=model, tools=[keep], limits=Limits(iterations=3)), "Go.")
    assert "is not a known name" in stage.tool_results(1)[0].text
    assert len(seen) == 1


async def test_a_parameter_may_have_any_name_that_python_takes(stage: Stage) -> None:  # A36
    names = ["copy", "json", "schema", "model_dump", "validate", "self_", "function", "context", "value", "items"]

    def keep(**given: object) -> str:
        return ",".join(f"{name}={given[name]}" for name in names)

    def keep_raw(arguments: JsonObject) -> str:
        return keep(**arguments)

    space: dict[str, Any] = {}
    parameters = ", ".join(f"{name}: int" for name in names)
    exec(f"def keep_typed({parameters}) -> dict: return dict(locals())", space)
    typed: Tool[..., Any] = tool(space["keep_typed"])
    schema: JsonObject = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    raw = Tool("keep_raw", "Keep.", schema, keep_raw)
    arguments = {name: number for number, name in enumerate(names)}
    model = stage.model([[call("keep_typed", arguments), call("keep_raw", arguments)], "Done."])
    await run(Agent(name="a", model=model, tools=[typed, raw]), "Go.")
    first, second = stage.tool_results(1)
    assert first.text == "{" + ",".join(f'"{name}":{number}' for name, number in arguments.items()) + "}"
    assert second.text == ",".join(f"{name}={number}" for name, number in arguments.items())

"""What type checkers make of agents: `assert_type` says what they should find, a suppression what they should refuse.

The gate checks this file in strict mode, where a suppression that is not needed is an error; running it proves that the
programs work.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, assert_never, assert_type

import pytest
from pydantic import BaseModel

from journeyman import (
    Agent,
    Callbacks,
    DefinitionError,
    ErrorInfo,
    Event,
    Events,
    Failure,
    Image,
    Model,
    OneOf,
    Output,
    Reflection,
    Result,
    Runtime,
    SubmitTool,
    Success,
    Text,
    Tool,
    ToolContext,
    run,
    run_sync,
    stream,
    tool,
)
from journeyman.endings import IterationsContext
from journeyman.events import CallbackContext, OutputDelta
from journeyman.loop import validation_context
from journeyman.result import Pending
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import Base64, JsonObject


class Report(BaseModel):
    headline: str
    total: float = 0.0


@dataclass
class Question:
    about: str


REPORT = {"headline": "May"}


def preview(report: Report) -> str:
    return report.headline


async def preview_later(report: Report) -> str:
    return report.headline


def matches(report: Report) -> None:
    assert report.headline


async def matches_later(report: Report) -> None:
    assert report.headline


def is_text(text: str) -> None:
    assert text


def scripted(*answers: Any) -> Model:
    return ScriptedModel(answers)


async def test_without_anything_an_agent_takes_and_gives_text() -> None:  # R67
    agent = Agent(name="a", model=scripted("Hello."))
    assert_type(agent, Agent[str, str])
    result = await run(agent, "Go.")
    assert_type(result, Success[str] | Failure)
    assert_type(result.unwrap(), str)


async def test_the_output_flows_from_its_type_to_the_result() -> None:  # R67
    agent = Agent(
        name="a",
        model=scripted(call("output", REPORT), call("submit")),
        output=Output(Report, reflection=preview),
        validators=[matches, matches_later],
    )
    assert_type(agent, Agent[Report, str])
    result = await run(agent, "Go.")
    assert_type(result, Success[Report] | Failure)
    match result:
        case Success(output=report, metadata=metadata):
            assert_type(report, Report)
            assert metadata.latency_s >= 0
        case Failure(error=error):
            assert_type(error, ErrorInfo)
        case _:
            assert_never(result)
    assert_type(result.unwrap(), Report)
    assert_type(result.unwrap_or(None), Report | None)
    assert_type(result.map(preview), Success[str] | Failure)


async def test_the_input_is_the_one_that_was_declared() -> None:  # R67
    def prompt(question: Question) -> str:
        return question.about

    agent = Agent(name="a", model=scripted("Hello.", "Hello."), input=Question, prompt=prompt)
    assert_type(agent, Agent[str, Question])
    assert_type(await run(agent, Question("moles")), Success[str] | Failure)
    await run(agent, "moles")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType] - not a question


async def test_only_a_run_that_does_not_wait_may_be_pending() -> None:
    agent = Agent(name="a", model=scripted(*["Hello."] * 2), input=Question, prompt=lambda question: question.about)
    assert_type(await run(agent, Question("moles")), Success[str] | Failure)
    result = await run(agent, Question("moles"), wait=False)
    assert_type(result, Success[str] | Failure | Pending)
    if isinstance(result, Pending):
        assert_type(await run(agent, result, results={"a": 1}, wait=False), Success[str] | Failure | Pending)


def test_the_same_holds_without_an_event_loop() -> None:
    agent = Agent(name="a", model=scripted(*["Hello."] * 2), input=Question, prompt=lambda question: question.about)
    assert_type(run_sync(agent, Question("moles")), Success[str] | Failure)
    result = run_sync(agent, Question("moles"), wait=False)
    assert_type(result, Success[str] | Failure | Pending)
    if isinstance(result, Pending):
        assert_type(run_sync(agent, result, results={"a": 1}, wait=False), Success[str] | Failure | Pending)


async def test_both_may_be_declared() -> None:  # R67
    agent = Agent(name="a", model=scripted(call("output", value=[1])), input=Question, output=Output(list[int]))
    assert_type(agent, Agent[list[int], Question])
    assert_type((await run(agent, Question("moles"))).unwrap(), list[int])


async def test_any_type_form_is_an_output() -> None:  # R67
    optional = Agent(name="a", model=scripted(call("output", value=None)), output=Output(Report | None))
    assert_type((await run(optional, "Go.")).unwrap(), Report | None)
    mapping = Agent(name="a", model=scripted(call("output", a=1)), output=Output(dict[str, int]))
    assert_type((await run(mapping, "Go.")).unwrap(), dict[str, int])


def test_agents_can_be_declared_by_their_output() -> None:  # R67
    def summary(agent: Agent[Report]) -> Result[Report]:
        return run_sync(agent, "Go.")

    agent: Agent[Report] = Agent(name="a", model=scripted(call("output", REPORT)), output=Output(Report))
    assert_type(summary(agent), Success[Report] | Failure)
    assert_type(
        run_sync(Agent[Report](name="a", model="nobody:x", output=Output(Report)), "Go."), Success[Report] | Failure
    )


async def test_a_stream_gives_events_and_the_result() -> None:  # R67, R74
    agent = Agent(name="a", model=scripted(call("output", REPORT)), output=Output(Report))
    streamed = stream(agent, "Go.")
    assert_type(streamed, Events[Report])
    async with streamed as events:
        async for event in events:
            assert_type(event, Event)
    assert_type(events.result, Success[Report] | Failure)


def test_reflection_and_submit_cannot_be_parted() -> None:  # R10, R17
    assert_type(Reflection(preview, submit=SubmitTool(name="hand_in")), Reflection[Report])
    assert Output(Report, reflection=preview_later).reflecting() is not None
    with pytest.raises(DefinitionError):
        Output(Report, submit=SubmitTool())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue] - no submit without a reflection
    with pytest.raises(DefinitionError):
        Reflection(submit=SubmitTool())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - no reflection without a handler


async def file_report(headline: str) -> Report:
    return Report(headline=headline)


@tool(effect="once")
def count_reports(context: ToolContext[int], headline: str) -> int:
    return context.deps


def test_the_output_is_one_of_several_or_what_a_function_returns() -> None:
    one = Agent(name="a", model="a:b", output=OneOf(Report, Output(list[int], name="numbers"), str))
    said = run_sync(one, "Go.", runtime=Runtime(model=scripted("Hi.")))
    # To mypy, one of several is an object, and what a tool that is not async returns may be anything.
    assert_type(said, Success[Report | list[int] | str] | Failure)  # type: ignore[assert-type]
    made = Agent(name="a", model="a:b", output=Output(file_report, effect="once"))
    assert_type(run_sync(made, "Go.", runtime=Runtime(model=scripted("Hi."))), Success[Report] | Failure)
    counted = Agent(name="a", model="a:b", deps=int, output=Output(count_reports))
    result = run_sync(counted, "Go.", deps=3, runtime=Runtime(model=scripted(call("count_reports", headline="May"))))
    assert_type(result, Success[int] | Failure)  # type: ignore[assert-type]
    assert result.unwrap() == 3


def test_a_reflection_takes_the_output() -> None:  # R10, R22, R67
    Output(Report, reflection=is_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue] - it takes a text
    Output(Report, reflection=len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue] - it gives a number
    Output(str, reflection=is_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue] - it gives nothing


def test_a_validator_takes_the_output_and_gives_nothing() -> None:  # R67
    Agent(name="a", model="a:b", output=Output(Report), validators=[is_text])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent(name="a", model="a:b", output=Output(Report), validators=[preview])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent(name="a", model="a:b", validators=[is_text])


def test_tools_are_tools_and_not_functions() -> None:  # R67
    with pytest.raises(DefinitionError):
        Agent(name="a", model="a:b", tools=[preview])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - not decorated


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(parallel=True, name="fetch")
async def query(sql: str, context: ToolContext) -> list[str]:
    return [sql, context.tool_use_id]


async def test_a_decorated_function_stays_what_it_was() -> None:  # R67
    assert_type(add(1, b=2), int)
    assert add(1) == 2
    with pytest.raises(TypeError):
        add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - not a number
    with pytest.raises(TypeError):
        add()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - no number
    later: Callable[[str, ToolContext], Awaitable[list[str]]] = query
    assert later is query


def test_tools_of_any_signature_go_together() -> None:  # R18, R67
    def dig(arguments: dict[str, Any]) -> str:
        return str(arguments)

    raw = Tool("dig", "Dig.", {"type": "object"}, dig)
    assert_type(raw({}), str)
    agent = Agent(name="a", model="a:b", tools=[add, query, raw])
    assert list(agent.plan.tools) == ["add", "fetch", "dig"]


def test_options_of_a_tool_are_checked() -> None:  # R67
    with pytest.raises(DefinitionError):
        tool(preview, effect="sometimes")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType] - no effect


async def test_state_has_the_type_that_was_asked_for() -> None:  # R67
    seen: list[int] = []

    @tool
    async def count(context: ToolContext) -> None:
        state = context.run_state(dict[str, int])
        assert_type(state, dict[str, int])
        seen.append(len(state))

    agent = Agent(name="a", model=scripted(call("count"), "Done."), tools=[count], run_state=lambda given: {given: 1})
    assert (await run(agent, "Go.")).unwrap() == "Done."
    assert seen == [1]


async def test_callbacks_are_typed() -> None:  # R31, R32, R67
    told: list[str] = []

    def on_tool_call(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        told.append(f"{context.attempt} {name} {arguments}")

    async def on_tool_result(context: CallbackContext, name: str, text: str) -> None:
        told.append(f"{context.is_error} {text}")

    def wrong(context: CallbackContext, name: int) -> None:
        told.append(f"{name}")

    callbacks = Callbacks(on_tool_call=on_tool_call, on_tool_result=on_tool_result)
    agent = Agent(name="a", model=scripted(call("add", a=1), "Done."), tools=[add])
    await run(agent, "Go.", callbacks=callbacks)
    assert told == ["1 add {'a': 1}", "False 2"]
    Callbacks(on_tool_call=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - too few, of another type


def test_what_a_validator_may_know_is_typed() -> None:  # X10
    with pytest.raises(LookupError):
        assert_type(validation_context().attempt, int)


def test_prompts_are_typed() -> None:  # X16
    def system(question: Question) -> list[Text]:
        return [Text(question.about)]

    async def prompt(question: Question) -> str:
        return question.about

    def counted(question: Question) -> int:
        return len(question.about)

    Agent(name="a", model="a:b", input=Question, system=system, prompt=prompt)
    Agent(name="a", model="a:b", input=Question, prompt=counted)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a number
    Agent(name="a", model="a:b", system=system)  # pyright: ignore[reportArgumentType] - of another input


def test_facts_go_with_their_code() -> None:  # X28
    result = run_sync(Agent(name="a", model=scripted("Hello."), output=Output(Report)), "Go.")
    match result:
        case Failure(error=ErrorInfo(context=IterationsContext() as facts)):
            assert_type(facts.max_iterations, int)
        case Failure():
            assert_type(result.candidate, JsonObject | str | None)
        case Success():
            assert_type(result.output, Report)


async def test_a_text_agent_takes_content_and_no_other_does() -> None:
    picture = Image(Base64("iVBORw0KGgo=", "image/png"))
    eyes = Agent(name="eyes", model=ScriptedModel(["A pixel."], repeat=True))
    assert_type(await run(eyes, ["What?", picture]), Result[str])
    assert_type(await run(eyes, picture), Result[str])
    counter = Agent(name="counter", model=ScriptedModel(["1"]), input=int)
    wrong = await run(counter, [picture])  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]
    assert isinstance(wrong, Failure)
    native = Agent(name="native", model=ScriptedModel(['{"headline": "May"}']), output=Output(Report, mode="native"))
    assert_type(await run(native, "What?"), Result[Report])
    delta = OutputDelta(path=(), tool_use_id="", json='{"headline": "Ma')
    assert_type(delta.partial(), JsonObject)
    assert_type(delta.partial(Report), Report | None)

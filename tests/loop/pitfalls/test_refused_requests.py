"""Requests that the Messages API would refuse, and how the loop never comes to send one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from pydantic import BaseModel

from journeyman import (
    Agent,
    DefinitionError,
    ErrorCode,
    Output,
    Reflection,
    Rejected,
    Rejection,
    Settings,
    Submit,
    Success,
    Text,
    Tool,
    ToolResult,
    run,
    tool,
)
from journeyman.endings import InvalidResponseContext, PromptContext
from journeyman.model import Response
from journeyman.models.scripted import Scripted, call, say
from journeyman.tools.tools import MiddlewareCall, Next
from journeyman.types import JsonObject, Opaque
from tests.loop.pitfalls.players import Report, failed, look, report, shown, small, submit
from tests.support.naming import steady_repr
from tests.support.stage import Stage

# -- no empty content --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        say("Let me see.", stop_reason="tool_use"),
        say(stop_reason="tool_use"),
        say(Opaque("anthropic", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}')),
    ],
    ids=["only text", "nothing", "only a call of the provider's own tool"],
)
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
async def test_a_response_that_stops_for_tools_and_calls_none_is_invalid_and_never_answered(
    stage: Stage, response: Response, typed: bool
) -> None:  # D6
    model = stage.model([Response(content=response.content, stop_reason="tool_use"), "Never asked."])
    agent = Agent(name="a", model=model, output=Output(Report)) if typed else Agent(name="a", model=model)
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.INVALID_RESPONSE
    assert isinstance(failure.error.context, InvalidResponseContext)
    assert failure.error.context.stop_reason == "tool_use"
    assert stage.n_requests == 1
    assert all(message.content for message in failure.history)


async def _nothing_awaited() -> None: ...


EMPTY: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "an empty text": lambda: "",
    "a blank text": lambda: " \n\t ",
    "None, awaited": _nothing_awaited,
    "a result without content": lambda: ToolResult(""),
    "a result of blank blocks": lambda: ToolResult((Text(""), Text("  "))),
    "a result without blocks": lambda: ToolResult(()),
    "a blank block": lambda: [Text(" ")],
}


@pytest.mark.parametrize("value", EMPTY.values(), ids=EMPTY)
async def test_a_tool_without_words_still_has_a_result(stage: Stage, value: Callable[[], object]) -> None:  # D7
    def say_nothing(arguments: JsonObject) -> object:
        return value()

    quiet = Tool("quiet", "Say nothing.", {"type": "object"}, say_nothing)
    agent = Agent(name="a", model=stage.model([call("quiet", id="a"), "Done."]), tools=[quiet])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult("(no output)", tool_use_id="a")]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Rejected(" "), "Rejected"),
        (ValueError(""), "Error: ValueError"),
        (ValueError("\n"), "Error: ValueError"),
        (KeyError(), "Error: KeyError: KeyError"),
    ],
    ids=steady_repr,
)
async def test_an_error_without_words_still_has_a_text(stage: Stage, failure: Exception, text: str) -> None:  # D7
    @tool
    async def fail() -> None:
        raise failure

    agent = Agent(name="a", model=stage.model([call("fail", id="a"), "Done."]), tools=[fail])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult(text, is_error=True, tool_use_id="a")]


async def test_an_error_result_without_content_gets_some(stage: Stage) -> None:  # D7
    @tool
    async def fail() -> ToolResult:
        return ToolResult("", is_error=True)

    agent = Agent(name="a", model=stage.model([call("fail", id="a"), "Done."]), tools=[fail])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult("(no output)", is_error=True, tool_use_id="a")]


async def test_a_middleware_that_answers_without_words_still_gives_a_result(stage: Stage) -> None:  # D7
    async def silence(call: MiddlewareCall, proceed: Next) -> ToolResult:
        return ToolResult(" ", is_error=True)

    agent = Agent(name="a", model=stage.model([call("look", id="a"), "Done."]), tools=[look], middlewares=[silence])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult("(no output)", is_error=True, tool_use_id="a")]


async def test_the_work_of_an_async_tool_is_awaited_and_its_result_sent(stage: Stage) -> None:  # D7
    async def fetch(what: str) -> str:
        return f"{what}, fetched"

    def fetch_later(arguments: JsonObject) -> Awaitable[str]:
        return fetch("a book")

    later = Tool("later", "Fetch it.", {"type": "object"}, fetch_later)
    agent = Agent(name="a", model=stage.model([call("later", id="a"), "Done."]), tools=[later])
    await run(agent, "Go.")
    assert stage.tool_results(1) == [ToolResult("a book, fetched", tool_use_id="a")]


@pytest.mark.parametrize("words", ["", "  \n"])
async def test_a_reflection_without_words_still_has_a_result(stage: Stage, words: str) -> None:  # D7
    def silent(report: Report) -> str:
        return words

    agent = Agent(name="a", model=stage.model([report(1, "a"), submit("b")]), output=Output(Report, reflection=silent))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [ToolResult("(no output)", tool_use_id="a")]


# -- tool names --------------------------------------------------------------------------------------------------------


def named(name: str) -> Tool[..., object]:
    def find(arguments: JsonObject) -> str:
        return "found"

    return Tool(name, "A tool.", {"type": "object"}, find)


def problems(make: Callable[[], object]) -> list[str]:
    with pytest.raises(DefinitionError) as raised:
        make()
    return [problem.code for problem in raised.value.problems]


MODEL = Scripted([])


@pytest.mark.parametrize(
    ("output", "tools"),
    [
        (Output(Report), [named("output")]),
        (Output(Report, name="hand_in"), [named("hand_in")]),
        (Output(Report, reflection=shown), [named("submit")]),
        (Output(Report, reflection=Reflection(shown, submit=Submit(name="send"))), [named("send")]),
        (Output(Report, name="submit", reflection=shown), []),
    ],
)
def test_a_tool_named_like_output_or_submit_is_refused(
    output: Output[Report], tools: list[Tool[..., object]]
) -> None:  # D8
    assert problems(lambda: Agent(name="a", model=MODEL, output=output, tools=tools)) == ["RESERVED_TOOL_NAME"]


@pytest.mark.parametrize("name", ["two words", "naïve", "a.b", "", "x" * 129, "semi;colon", "new\nline", "end\n"])
def test_a_tool_name_that_providers_refuse_is_refused_at_definition(name: str) -> None:  # D13
    assert problems(lambda: Agent(name="a", model=MODEL, tools=[named(name)]))
    assert problems(lambda: Agent(name="a", model=MODEL, output=Output(Report, name=name)))


async def test_names_of_any_allowed_form_are_sent_as_they_are(stage: Stage) -> None:  # D13
    names = ["x" * 128, "-", "_", "0", "A-z_9"]
    agent = Agent(name="a", model=stage.model(["Done."]), tools=[named(name) for name in names])
    await run(agent, "Go.")
    assert stage.tool_names() == names


# -- schemas -----------------------------------------------------------------------------------------------------------


class Cat(BaseModel):
    lives: int


class Dog(BaseModel):
    tricks: list[str]


@pytest.mark.parametrize("reflecting", [False, True])
async def test_outputs_that_are_no_objects_are_asked_for_as_objects(stage: Stage, reflecting: bool) -> None:  # D9
    async def hands_in(output: Output[object], value: object) -> object:
        name = output.name
        model = stage.model([[call(name, value=value), *([submit()] if reflecting else [])]])
        result = await run(Agent(name="a", model=model, output=output), "Go.")
        schema = stage.requests[-1].prefix.tools[0].input_schema
        assert schema["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()
        assert schema["required"] == ["value"]
        return result.unwrap()

    def show(value: object) -> str:
        return repr(value)

    reflection = show if reflecting else None
    assert await hands_in(Output[object](list[int], reflection=reflection), [1, 2]) == [1, 2]
    assert await hands_in(Output[object](Cat | Dog, reflection=reflection), {"lives": 9}) == Cat(lives=9)
    assert await hands_in(Output[object](Cat | None, reflection=reflection), None) is None
    assert await hands_in(Output[object](int, reflection=reflection), 7) == 7
    assert await hands_in(Output[object](Literal["yes", "no"], reflection=reflection), "no") == "no"
    assert await hands_in(Output[object](str, reflection=reflection), "") == ""


# -- cache marks -------------------------------------------------------------------------------------------------------


async def test_four_marked_system_texts_leave_no_mark_for_the_history(stage: Stage) -> None:  # D10
    system = [Text(f"Rule {number}.", cache_mark=True) for number in range(4)]
    agent = Agent(name="a", model=stage.model([call("look"), "Done."]), system=system, tools=[look])
    assert isinstance(await run(agent, "Go."), Success)
    assert [repr(body).count("cache_control") for body in stage.bodies] == [4, 4] * stage.over_http


@pytest.mark.parametrize("cache", ["auto", "explicit"])
async def test_many_marks_of_the_callers_never_add_up_to_more_than_four(
    stage: Stage, cache: Literal["auto", "explicit"]
) -> None:  # D10
    system = [Text(f"Rule {number}.", cache_mark=True) for number in range(6)]
    prompt = [Text("One.", cache_mark=True), Text("Two.", cache_mark=True)]
    settings = Settings(cache=cache)
    agent = Agent(
        name="a",
        model=stage.model([call("look"), "Done."]),
        system=system,
        prompt=prompt,
        tools=[look],
        settings=settings,
    )
    assert isinstance(await run(agent, "Go."), Success)
    assert [repr(body).count("cache_control") for body in stage.bodies] == [4, 4] * stage.over_http


@pytest.mark.parametrize("words", ["", " ", "\n"])
async def test_a_blank_error_prompt_is_a_failure_and_nothing_is_sent(stage: Stage, words: str) -> None:  # D10
    def blank(rejection: Rejection) -> str:
        return words

    model = stage.model([report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small], error_prompt=blank)
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt) == (PromptContext(prompt="error", reason="it is blank"), 1)
    assert stage.n_requests == 1


async def test_caching_can_be_switched_off(stage: Stage) -> None:  # D11
    system = [Text("Rule.", cache_mark=True)]
    agent = Agent(
        name="a",
        model=stage.model([call("look"), "Done."]),
        system=system,
        tools=[look],
        settings=Settings(cache="off"),
    )
    await run(agent, "Go.")
    assert "cache_control" not in repr(stage.bodies)


# -- prompts and settings ----------------------------------------------------------------------------------------------


Prompt = Callable[[str], str | Awaitable[str]]


def empty(given: str) -> str:
    return ""


async def blank_later(given: str) -> str:
    return "\t\n"


@pytest.mark.parametrize("blank", [empty, blank_later])
@pytest.mark.parametrize("which", ["system", "user"])
async def test_a_prompt_that_comes_out_blank_is_a_failure_and_nothing_is_sent(
    stage: Stage, which: Literal["system", "user"], blank: Prompt
) -> None:  # D11
    model = stage.model(["Never asked."])
    if which == "system":
        agent = Agent(name="a", model=model, system=blank)
    else:
        agent = Agent(name="a", model=model, prompt=blank)
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt) == (PromptContext(prompt=which, reason="it is blank"), 0)
    assert (failure.phase, stage.n_requests) == ("prompt_generation", 0)


@pytest.mark.parametrize("given", ["", "   ", "\n\t"])
async def test_a_blank_input_without_a_prompt_is_a_failure_and_nothing_is_sent(stage: Stage, given: str) -> None:  # D11
    failure = failed(await run(Agent(name="a", model=stage.model(["Never asked."])), given))
    assert (failure.code, stage.n_requests) == (ErrorCode.PROMPT_GENERATION_FAILED, 0)


@pytest.mark.parametrize("system", [" ", [Text("")], [Text("Rule."), Text("\n")]])
def test_a_blank_system_prompt_is_refused_at_definition(system: str | list[Text]) -> None:  # D11
    assert problems(lambda: Agent(name="a", model=MODEL, system=system)) == ["EMPTY_PROMPT"]


async def test_sampling_settings_are_sent_only_when_somebody_sets_them(stage: Stage) -> None:  # D13
    await run(Agent(name="a", model=stage.model(["Done."]), tools=[look]), "Go.")
    for body in stage.bodies:
        assert not {"temperature", "top_p", "top_k", "tool_choice"} & body.keys()

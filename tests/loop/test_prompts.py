"""Prompts: texts, blocks, or functions of the input; and what is marked for the provider's cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import Agent, Image, Limits, Output, Rejection, Settings, Text, run
from journeyman.endings import PromptContext
from journeyman.models.scripted import call
from journeyman.types import Base64, ToolResult
from tests.loop.players import REJECTED, Report, context_of, failed, look, report, small, succeeded
from tests.support.messages_json import Json, as_list, as_object
from tests.support.recorder import Recorder, check_balance, transcript
from tests.support.stage import Stage, only_over_http


class Question(BaseModel):
    about: str
    depth: int = 1


DOT = Image(Base64("aGk=", "image/png"))


# -- built once --------------------------------------------------------------------------------------------------------


async def test_prompts_are_built_once_from_the_input(stage: Stage) -> None:  # R54, X16, A1
    made: list[str] = []

    async def system(question: Question) -> str:
        await asyncio.sleep(0)
        made.append("system")
        return f"You know all about {question.about}."

    def prompt(question: Question) -> str:
        made.append("prompt")
        return f"Dig {question.depth} deep."

    model = stage.model([call("look"), report(7), report(2, id="o2")])
    agent = Agent(
        name="tester",
        model=model,
        input=Question,
        system=system,
        prompt=prompt,
        tools=[look],
        output=Output(Report),
        validators=[small],
    )
    assert succeeded(await run(agent, Question(about="moles", depth=3)))
    assert made == ["system", "prompt"]
    assert [[text.text for text in request.prefix.system] for request in stage.requests] == [
        ["You know all about moles."]
    ] * 3
    assert [transcript(stage.messages(n))[0] for n in range(3)] == [("user", "Dig 3 deep.")] * 3


async def test_a_text_is_sent_as_it_is_and_any_other_input_as_json(stage: Stage) -> None:  # X16
    await run(Agent(name="tester", model=stage.model(["Hello."])), "  Go\n")
    asking = Agent(name="tester", model=stage.model(["Hello."]), input=Question)
    await run(asking, Question(about="moles"))
    await run(Agent(name="tester", model=stage.model(["Hello."]), prompt="Always this."), "Ignored.")
    assert stage.texts(0) == ["  Go\n"]
    assert stage.texts(1) == ['{"about":"moles","depth":1}']
    assert stage.texts(2) == ["Always this."]


async def test_without_a_system_prompt_none_is_sent(stage: Stage) -> None:  # D11
    await run(Agent(name="tester", model=stage.model(["Hello."])), "Go.")
    assert stage.requests[0].prefix.system == ()
    assert all("system" not in body for body in stage.bodies)


async def test_prompts_may_be_blocks(stage: Stage) -> None:  # X16
    def prompt(given: str) -> Sequence[Text | Image]:
        return [Text("What is this?"), DOT]

    system = [Text("First."), Text("Second.")]
    await run(Agent(name="tester", model=stage.model(["A dot."]), system=system, prompt=prompt), "Go.")
    assert [text.text for text in stage.requests[0].prefix.system] == ["First.", "Second."]
    assert stage.messages(0)[0].content == (Text("What is this?"), DOT)


# -- failures ----------------------------------------------------------------------------------------------------------


def _raises(given: object) -> str:
    raise ValueError("no idea")


async def _raises_later(given: object) -> str:
    await asyncio.sleep(0)
    raise ValueError("no idea")


def _blank(given: object) -> str:
    return " \n"


def _nothing(given: object) -> Any:  # noqa: ANN401 - what a careless function gives
    return None


def _no_blocks(given: object) -> list[Text]:
    return []


BROKEN = {
    "raises": (_raises, "it raised ValueError: no idea"),
    "raises later": (_raises_later, "it raised ValueError: no idea"),
    "blank": (_blank, "it is blank"),
    "nothing": (_nothing, "it gave NoneType, not text or content blocks"),
    "no blocks": (_no_blocks, "it is blank"),
}


@pytest.mark.parametrize("which", ["system", "user"])
@pytest.mark.parametrize("how", BROKEN)
async def test_a_prompt_that_fails_ends_the_run_before_any_call(
    stage: Stage, which: str, how: str
) -> None:  # X16, D11, R66
    function, reason = BROKEN[how]
    options: dict[str, Any] = {"system" if which == "system" else "prompt": function}
    recorder = Recorder()
    result = failed(await run(Agent(name="tester", model=stage.model(["Hello."]), **options), "Go.", on_event=recorder))
    assert result.code == "PROMPT_GENERATION_FAILED"
    assert result.phase == "prompt_generation"
    context = context_of(result, PromptContext)
    assert (context.prompt, context.reason, failed(result).error.attempt) == (which, reason, 0)
    assert stage.n_requests == 0
    check_balance(recorder.events)


@pytest.mark.parametrize("how", BROKEN)
async def test_an_error_prompt_that_fails_ends_the_run(stage: Stage, how: str) -> None:  # X16, D10
    function: Any = BROKEN[how][0]
    recorder = Recorder()
    agent = Agent(
        name="tester",
        model=stage.model([report(7), report(2)]),
        output=Output(Report),
        validators=[small],
        error_prompt=function,
    )
    result = await run(agent, "Go.", on_event=recorder)
    context = context_of(result, PromptContext)
    assert (context.prompt, context.reason, failed(result).error.attempt) == ("error", BROKEN[how][1], 1)
    assert failed(result).report is not None
    assert stage.n_requests == 1
    check_balance(recorder.events)


async def test_on_the_last_attempt_the_error_prompt_is_not_asked(stage: Stage) -> None:  # D32, A1
    agent = Agent(
        name="tester",
        model=stage.model([report(7)]),
        output=Output(Report),
        validators=[small],
        error_prompt=_raises,
        limits=Limits(attempts=1),
    )
    result = failed(await run(agent, "Go."))
    assert result.code == "MAX_ATTEMPTS_EXCEEDED"
    assert transcript(result.history)[-1] == ("user", f"#out! {REJECTED}")


async def test_the_error_prompt_knows_the_rejection(stage: Stage) -> None:  # X15, X16, X17
    seen: list[Rejection] = []

    def explain(rejection: Rejection) -> str:
        seen.append(rejection)
        return "Try again."

    def large(report: Report) -> None:
        """The total is large."""
        if report.total < 5:
            raise ValueError("it is small")

    model = stage.model([report(3), report(9, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[large], error_prompt=explain)
    assert succeeded(await run(agent, "Go."))
    assert stage.tool_results(1) == [ToolResult("Try again.", True, "out")]
    rejection = seen[0]
    assert (rejection.layer, rejection.description, rejection.feedback) == (
        "large",
        "The total is large.",
        "it is small",
    )
    assert (rejection.attempt, rejection.max_attempts) == (1, 3)
    assert [layer.name for layer in rejection.report.layers] == ["schema", "large"]


# -- the provider's cache ----------------------------------------------------------------------------------------------


def marked(body: Json) -> list[str]:
    """Return where a request has cache marks: the part, and the index of the block."""
    places = [f"tools.{n}" for n, tool in enumerate(as_list(body.get("tools"))) if "cache_control" in as_object(tool)]
    system = body.get("system")
    places += [f"system.{n}" for n, block in enumerate(as_list(system)) if "cache_control" in as_object(block)]
    for number, message in enumerate(as_list(body["messages"])):
        content = as_list(as_object(message).get("content"))
        places += [f"messages.{number}.{n}" for n, block in enumerate(content) if "cache_control" in as_object(block)]
    return places


async def sent(stage: Stage, cache: Any, system: Any = "Be brief.") -> list[list[str]]:  # noqa: ANN401 - passed on
    """Return where the requests of a run with three of them have cache marks."""
    model = stage.model([[call("look", id="a"), call("look", id="b")], call("look"), "Done."])
    agent = Agent(name="tester", model=model, system=system, tools=[look], settings=Settings(cache=cache))
    result = succeeded(await run(agent, "Go."))
    assert all(not getattr(block, "cache_mark", False) for message in result.history for block in message.content)
    return [marked(body) for body in stage.bodies]


@only_over_http
async def test_the_last_block_of_every_request_is_marked(stage: Stage) -> None:  # X19, A40
    assert [places[-1] for places in await sent(stage, "auto")] == ["messages.0.0", "messages.2.1", "messages.4.0"]


@only_over_http
async def test_marks_stay_few(stage: Stage) -> None:  # X19, A40, D10, M5
    system = [Text(f"{n}.", cache_mark=True) for n in range(4)]
    assert all(len(places) <= 4 for places in await sent(stage, "auto", system))


@only_over_http
async def test_caching_can_be_switched_off(stage: Stage) -> None:  # X19, A40, D11
    assert await sent(stage, "off") == [[], [], []]


@only_over_http
async def test_only_what_the_user_marked_may_be_marked(stage: Stage) -> None:  # X16, X19
    system = [Text("Always the same.", cache_mark=True), Text("Not always.")]
    assert await sent(stage, "explicit", system) == [["system.0"]] * 3

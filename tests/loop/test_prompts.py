"""Prompts: texts, blocks, or functions of the input; and what is marked for the provider's cache."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from journeyman import Agent, ErrorCode, Image, ModelSettings, Output, Text, dump_messages, run
from journeyman.endings import PromptContext
from journeyman.prompt import ErrorPromptContext
from journeyman.testing.scripted import call
from journeyman.types import Base64
from tests.loop.parts import broken, broken_later, leaking, long_talk, timing_out, unspeakable
from tests.play import Recorder, Stage, context_of, existing, failed, look, only_over_http, succeeded, transcript
from tests.play.agents import Report, report, reporter, small, talker
from tests.support.messages_json import Json, as_list, as_object


class Question(BaseModel):
    about: str
    depth: int = 1


# R54, X16, A1
async def test_system_and_user_prompt_are_built_once_and_the_error_prompt_for_each_retry(stage: Stage) -> None:
    built: list[str] = []

    async def system(question: Question) -> str:
        await asyncio.sleep(0)
        built.append("system")
        return f"You know all about {question.about}."

    def prompt(question: Question) -> str:
        built.append("user")
        return f"Dig {question.depth} deep."

    def tell(rejection: ErrorPromptContext) -> str:
        built.append(f"error {rejection.attempt} of {rejection.max_attempts}")
        return f"No: {rejection.feedback}"

    agent = Agent(
        name="a",
        model=stage.model([call("look"), report(99), call("look"), report(98), report(97)]),
        input=Question,
        system=system,
        prompt=prompt,
        tools=[look],
        output=Output(Report),
        validators=[small],
        error_prompt=tell,
    )
    failed(await run(agent, Question(about="moles", depth=3)))
    assert built == ["system", "user", "error 1 of 3", "error 2 of 3"]
    assert {request.prefix.system for request in stage.requests} == {(Text("You know all about moles."),)}
    assert {request.messages[0] for request in stage.requests} == {stage.messages(0)[0]}
    assert transcript(stage.messages(0)) == [("user", "Dig 3 deep.")]


async def test_a_text_is_sent_as_it_is_and_any_other_input_as_json(stage: Stage) -> None:  # X16
    await run(talker(stage.model(["Hello."])), "  Go\n")
    await run(Agent(name="tester", model=stage.model(["Hello."]), input=Question), Question(about="moles"))
    await run(talker(stage.model(["Hello."]), prompt="Always this."), "Ignored.")
    assert stage.texts(0) == ["  Go\n"]
    assert stage.texts(1) == ['{"about":"moles","depth":1}']
    assert stage.texts(2) == ["Always this."]


async def test_without_a_system_prompt_none_is_sent(stage: Stage) -> None:  # D11
    await run(talker(stage.model(["Hello."])), "Go.")
    assert stage.requests[0].prefix.system == ()
    assert ["system" in body for body in stage.bodies] == [False] * stage.over_http


DOT = Image(Base64("aGk=", "image/png"))


async def test_prompts_may_be_blocks(stage: Stage) -> None:  # X16
    def prompt(given: str) -> list[Text | Image]:
        return [Text("What is this?"), DOT]

    await run(talker(stage.model(["A dot."]), system=[Text("First."), Text("Second.")], prompt=prompt), "Go.")
    assert [text.text for text in stage.requests[0].prefix.system] == ["First.", "Second."]
    assert stage.messages(0)[0].content == (Text("What is this?"), DOT)


async def test_a_system_prompt_is_text_and_nothing_else(stage: Stage) -> None:
    agent = talker(stage.model(["Hello."]), system=_returning([Text("Look."), DOT]))
    context = context_of(failed(await run(agent, "Go.")), PromptContext)
    assert (context.prompt, context.reason, stage.n_requests) == ("system", "it holds more than text", 0)


def _returning(value: object) -> Callable[[object], object]:
    def prompt(given: object) -> object:
        return value

    return prompt


async def _blank_later(given: object) -> str:
    return "\t\n"


BROKEN: dict[str, tuple[Callable[..., object], str]] = {
    "raises": (broken, "it raised LookupError: broken"),
    "raises later": (broken_later, "it raised LookupError: broken"),
    "times out": (timing_out, "it raised TimeoutError"),
    "leaks": (leaking, "it raised CancelledError"),
    "has no words": (unspeakable, "it raised Unspeakable"),
    "empty": (_returning(""), "it is blank"),
    "blank": (_returning(" \n"), "it is blank"),
    "blank later": (_blank_later, "it is blank"),
    "nothing": (_returning(None), "it gave NoneType, not text or content blocks"),
    "no blocks": (_returning([]), "it is blank"),
}


@pytest.mark.parametrize("which", ["system", "user"])
@pytest.mark.parametrize("how", BROKEN)
async def test_a_prompt_that_fails_ends_the_run_before_any_call(
    stage: Stage, which: str, how: str, recorder: Recorder
) -> None:  # X16, D11, R66, D39, A21
    function, reason = BROKEN[how]
    options: dict[str, Any] = {"system" if which == "system" else "prompt": function}
    result = failed(await run(talker(stage.model(["Hello."]), **options), "Go.", on_event=recorder))
    assert (result.code, result.phase) == ("PROMPT_GENERATION_FAILED", "prompt_generation")
    context = context_of(result, PromptContext)
    assert (context.prompt, context.reason, result.error.attempt, stage.n_requests) == (which, reason, 0, 0)


BLANK = ("empty", "blank", "blank later", "nothing", "no blocks")
"""Those of the broken ones that raise nothing."""


@pytest.mark.parametrize("how", [*BLANK, "a picture"])
@pytest.mark.parametrize("feedback", ["result", "text"])
async def test_an_error_prompt_that_gives_no_words_falls_back_to_the_default_with_a_warning(
    stage: Stage, how: str, feedback: Literal["result", "text"], caplog: pytest.LogCaptureFixture
) -> None:
    function: Any = _returning([DOT]) if how == "a picture" else BROKEN[how][0]
    script = stage.model([report(7), report(2)])
    succeeded(await run(reporter(script, output=Output(Report, feedback_role=feedback), error_prompt=function), "Go."))
    told = [getattr(block, "text", "") for block in stage.messages(1)[-1].content]
    assert any("7 is too much\n\nCorrect the output and hand it in again." in text for text in told)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "journeyman"]
    assert [part for part in ("reporter", "the error prompt", "attempt 1") if part not in warning] == []


# X16, D10, D32, D39, A21
@pytest.mark.parametrize("how", [how for how in BROKEN if how not in BLANK])
async def test_an_error_prompt_that_fails_ends_the_run(stage: Stage, how: str, recorder: Recorder) -> None:
    function: Any = BROKEN[how][0]
    result = await run(reporter(stage.model([report(7), report(2)]), error_prompt=function), "Go.", on_event=recorder)
    context = context_of(result, PromptContext)
    assert (context.prompt, context.reason, failed(result).error.attempt) == ("error", BROKEN[how][1], 1)
    assert (failed(result).phase, stage.n_requests) == ("prompt_generation", 1)
    report_of = existing(failed(result).report)
    assert report_of.feedback == "7 is too much"


@pytest.mark.parametrize("given", ["", "   ", "\n\t"])
async def test_a_blank_input_without_a_prompt_is_a_failure_and_nothing_is_sent(stage: Stage, given: str) -> None:  # D11
    failure = failed(await run(talker(stage.model(["Never asked."])), given))
    assert (failure.code, stage.n_requests) == (ErrorCode.PROMPT_GENERATION_FAILED, 0)


@only_over_http
async def test_sampling_settings_are_sent_only_when_somebody_sets_them(stage: Stage) -> None:  # D13
    await run(talker(stage.model(["Done."])), "Go.")
    assert len(stage.bodies) == 1
    assert not {"temperature", "top_p", "top_k", "tool_choice"} & stage.bodies[0].keys()


def marks(body: Json) -> list[str]:
    """Return the places of the cache marks of a request: `tools.1`, `system.0`, `messages.2.0`."""
    places = [f"tools.{n}" for n, each in enumerate(as_list(body.get("tools"))) if "cache_control" in as_object(each)]
    places += [
        f"system.{n}" for n, each in enumerate(as_list(body.get("system"))) if "cache_control" in as_object(each)
    ]
    for n, message in enumerate(as_list(body.get("messages"))):
        content = as_list(as_object(message)["content"])
        places += [f"messages.{n}.{m}" for m, each in enumerate(content) if "cache_control" in as_object(each)]
    return places


@only_over_http
async def test_the_mark_of_the_history_moves_and_is_not_stored(stage: Stage) -> None:  # A40, X19
    history = await long_talk(stage, ModelSettings(), Text("Be brief."))
    assert [[place for place in marks(body) if place.startswith("messages")] for body in stage.bodies] == [
        *(["messages.0.0"], ["messages.2.0"], ["messages.4.1"], ["messages.6.0"])
    ]
    assert all(marks(body)[-1].startswith("messages") for body in stage.bodies)
    assert b'"cache_mark":true' not in dump_messages(history)


@only_over_http
async def test_with_explicit_caching_only_the_callers_marks_are_sent(stage: Stage) -> None:  # A40, X16, X19
    await long_talk(stage, ModelSettings(cache="explicit"), Text("Be brief."), Text("Be kind.", cache_mark=True))
    assert [marks(body) for body in stage.bodies] == [["system.1"]] * 4

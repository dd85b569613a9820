"""What the model reads after its output was rejected: every call answered, once, in one user message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from journeyman import Agent, ErrorCode, Output, Success, Text, ToolResult, dump_messages, run, tool
from journeyman.models.scripted import call
from journeyman.types import ToolUse
from tests.loop.pitfalls.players import SUPERSEDED, TOO_LARGE, Report, failed, look, report, shown, small, submit
from tests.support.recorder import Recorder, check_balance, transcript
from tests.support.stage import Stage


async def test_every_call_of_a_rejected_response_is_answered_in_call_order(stage: Stage) -> None:  # D1
    model = stage.model([[call("look", id="a"), report(99, "b"), call("look", where="there", id="c")], report(1)])
    agent = Agent(name="reporter", model=model, tools=[look], output=Output(Report), validators=[small])
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(1) == [
        ToolResult("found here", tool_use_id="a"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="b"),
        ToolResult("found there", tool_use_id="c"),
    ]


async def test_a_rejection_does_not_run_the_tools_of_its_response_again(stage: Stage) -> None:  # D1
    looks: list[int] = []

    @tool
    async def count() -> int:
        looks.append(len(looks) + 1)
        return looks[-1]

    model = stage.model([[call("count", id="a"), report(99, "b")], report(1)])
    await run(Agent(name="reporter", model=model, tools=[count], output=Output(Report), validators=[small]), "Go.")
    assert looks == [1]
    assert stage.tool_results(1)[0] == ToolResult("1", tool_use_id="a")


async def test_a_rejected_submit_gets_the_feedback_and_its_draft_keeps_its_reflection(stage: Stage) -> None:  # D2
    model = stage.model([report(99, "a"), submit("b"), report(1, "c"), submit("d")])
    agent = Agent(name="reporter", model=model, output=Output(Report, reflection=shown), validators=[small])
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", 'output({"total":99})#a'),
        ("user", "#a: Total: 99"),
        ("assistant", "submit({})#b"),
        ("user", f"#b! {TOO_LARGE}"),
        ("assistant", 'output({"total":1})#c'),
        ("user", "#c: Total: 1"),
        ("assistant", "submit({})#d"),
        ("user", "#d: Accepted."),
    ]


async def test_output_and_submit_of_one_rejected_response_are_both_answered(stage: Stage) -> None:  # D3
    model = stage.model([[report(99, "a"), submit("b")], [report(1, "c"), submit("d")]])
    agent = Agent(name="reporter", model=model, output=Output(Report, reflection=shown), validators=[small])
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [
        ToolResult("Total: 99", tool_use_id="a"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="b"),
    ]


async def test_the_feedback_goes_to_the_output_that_was_validated(stage: Stage) -> None:  # D4
    model = stage.model([[report(5, "a"), report(99, "b")], report(1)])
    agent = Agent(name="reporter", model=model, output=Output(Report), validators=[small])
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.tool_results(1) == [
        ToolResult(SUPERSEDED, is_error=True, tool_use_id="a"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="b"),
    ]


async def test_the_same_output_called_three_times_is_answered_three_times(stage: Stage) -> None:  # D4
    model = stage.model([[report(99, "a"), report(99, "b"), report(99, "c")], report(1)])
    agent = Agent(name="reporter", model=model, output=Output(Report), validators=[small])
    await run(agent, "Go.")
    assert [result.content for result in stage.tool_results(1)] == [SUPERSEDED, SUPERSEDED, TOO_LARGE]


@pytest.mark.parametrize("reflecting", [False, True])
async def test_a_rejection_makes_one_user_message_with_the_feedback_once(stage: Stage, reflecting: bool) -> None:  # D5
    model = stage.model([[report(99), *([submit()] if reflecting else [])], [report(1), *([submit()] * reflecting)]])
    output = Output(Report, reflection=shown if reflecting else None)
    result = await run(Agent(name="reporter", model=model, output=output, validators=[small]), "Go.")
    assert [message.role for message in result.history] == ["user", "assistant", "user", "assistant", "user"]
    assert dump_messages(result.history).count(b"too large") == 1
    assert stage.texts(1) == []
    if stage.over_http:
        assert len(stage.bodies[1]["messages"]) == 3  # pyright: ignore[reportArgumentType] - a list


async def test_feedback_as_a_text_stands_once_after_all_results(stage: Stage) -> None:  # D5
    model = stage.model([[report(99, "a"), call("look", id="b")], report(1)])
    agent = Agent(
        name="reporter", model=model, tools=[look], output=Output(Report), validators=[small], feedback="text"
    )
    result = await run(agent, "Go.")
    answered = result.history[2].content
    assert answered[1:] == (ToolResult("found here", tool_use_id="b"), Text(TOO_LARGE))
    assert isinstance(answered[0], ToolResult)
    assert answered[0].is_error
    assert dump_messages(result.history).count(b"too large") == 1


async def test_a_rejected_text_is_answered_with_the_feedback_and_nothing_else(stage: Stage) -> None:  # D5
    def polite(text: str) -> None:
        if "please" not in text:
            raise ValueError("say please")

    agent = Agent(name="talker", model=stage.model(["Give it.", "Give it, please."]), validators=[polite])
    assert (await run(agent, "Ask.")).unwrap() == "Give it, please."
    assert stage.texts(1) == [
        "Validation failed: polite\nsay please\n\nCorrect the output and hand it in again.",
    ]


# -- every shape of a rejected response --------------------------------------------------------------------------------

SHAPES = [shape for n in (1, 2, 3) for shape in product("hups", repeat=n)]
"""Responses of up to three calls: helper, unknown tool, proposed output, submit."""

CALLS = {"h": call("look"), "u": call("nope"), "p": report(99), "s": submit()}


def called(shape: Sequence[str]) -> list[ToolUse]:
    return [replace(CALLS[letter], id=f"{letter}{number}") for number, letter in enumerate(shape)]


def answered(shape: Sequence[str], *, reflecting: bool) -> list[str]:
    """Say what must answer the calls of the first response."""
    terminator = "s" if reflecting else "p"
    last = max((number for number, letter in enumerate(shape) if letter == terminator), default=-1)
    texts = {
        "h": "found here",
        "u": "Error: Unknown tool nope",
        "p": "Total: 99",
        "s": "Error: Unknown tool submit",
        terminator: SUPERSEDED,
    }
    return [TOO_LARGE if number == last else texts[letter] for number, letter in enumerate(shape)]


@pytest.mark.parametrize("reflecting", [False, True])
async def test_whatever_calls_a_response_holds_each_is_answered_once_and_the_run_goes_on(
    stage: Stage, reflecting: bool
) -> None:  # D1, D2, D3, D4, D17
    output = Output(Report, reflection=shown if reflecting else None)
    end = [report(1), submit()] if reflecting else [report(1)]
    for shape in SHAPES:
        agent = Agent(
            name="reporter", model=stage.model([called(shape), end]), tools=[look], output=output, validators=[small]
        )
        recorder = Recorder()
        result = await run(agent, "Go.", on_event=recorder)
        check_balance(recorder.events)
        if reflecting and "s" in shape and "p" not in shape:
            assert failed(result).code == ErrorCode.SUBMIT_BEFORE_OUTPUT, shape
            continue
        assert result.unwrap() == Report(total=1), shape
        results = stage.tool_results(-1)
        assert [each.tool_use_id for each in results] == [use.id for use in called(shape)], shape
        assert [each.content for each in results] == answered(shape, reflecting=reflecting), shape

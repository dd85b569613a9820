"""Attempts: a rejected output starts another one, in the same conversation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from journeyman import Agent, Limits, Output, Rejection, Text, run
from journeyman.endings import AttemptsContext, InvalidInputContext
from journeyman.models.scripted import call
from journeyman.types import ToolResult, Usage
from tests.loop.players import REJECTED, Report, context_of, fail, failed, look, report, small, succeeded
from tests.support.recorder import Recorder, check_balance, names, transcript
from tests.support.stage import Stage


async def test_a_rejected_output_starts_another_attempt_in_the_same_conversation(
    stage: Stage,
) -> None:  # R2, R6, R28, R29, R30, R53, R54, R55, R56, R57, A24, X40
    model = stage.model([call("look", id="a"), report(7), call("look", id="b"), report(2, id="o2")])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), validators=[small])
    result = await run(agent, "Go.")
    assert succeeded(result).output == Report(total=2)
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", "look({})#a"),
        ("user", "#a: found here"),
        ("assistant", 'output({"total":7})#out'),
        ("user", f"#out! {REJECTED}"),
        ("assistant", "look({})#b"),
        ("user", "#b: found here"),
        ("assistant", 'output({"total":2})#o2'),
        ("user", "#o2: Accepted."),
    ]
    assert transcript(stage.messages(3)) == transcript(result.history)[:7]


async def test_every_request_repeats_the_one_before_and_adds_to_it(stage: Stage) -> None:  # R57, M8
    model = stage.model([call("look"), report(7), call("fail"), report(8, id="o2"), report(2, id="o3")])
    agent = Agent(name="tester", model=model, tools=[look, fail], output=Output(Report), validators=[small])
    assert succeeded(await run(agent, "Go."))
    sent = [stage.messages(n) for n in range(stage.n_requests)]
    assert [len(messages) for messages in sent] == [1, 3, 5, 7, 9]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))


async def test_all_results_of_an_iteration_are_one_user_message(stage: Stage) -> None:  # R29, R30, R58
    response = [call("look", id="a"), call("fail", id="b"), call("fly", id="c"), call("look", where="x", id="d")]
    model = stage.model([response, report()])
    await run(Agent(name="tester", model=model, tools=[look, fail], output=Output(Report)), "Go.")
    assert [(message.role, len(message.content)) for message in stage.messages(1)] == [
        ("user", 1),
        ("assistant", 4),
        ("user", 4),
    ]
    assert stage.tool_results(1) == [
        ToolResult("found here", tool_use_id="a"),
        ToolResult("Error: broken", True, "b"),
        ToolResult("Error: Unknown tool fly", True, "c"),
        ToolResult("found x", tool_use_id="d"),
    ]


async def test_calls_beside_a_rejected_output_keep_their_results(stage: Stage) -> None:  # R30, R58, A2, D1
    model = stage.model([[call("look", id="a"), report(7), call("fail", id="b")], report(2, id="o2")])
    agent = Agent(name="tester", model=model, tools=[look, fail], output=Output(Report), validators=[small])
    assert succeeded(await run(agent, "Go."))
    assert transcript(stage.messages(1))[-1] == ("user", "#a: found here", f"#out! {REJECTED}", "#b! Error: broken")


async def test_the_feedback_may_be_a_text_after_the_results(stage: Stage) -> None:  # R56, A24
    model = stage.model([report(7), report(2, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small], feedback="text")
    assert succeeded(await run(agent, "Go."))
    assert transcript(stage.messages(1))[-1] == (
        "user",
        "#out! Error: the output did not pass validation. The reason follows.",
        REJECTED,
    )


async def test_an_agent_that_answers_with_text_reads_the_feedback_as_text(stage: Stage) -> None:  # R56
    def polite(text: str) -> None:
        if "please" not in text:
            raise ValueError("say please")

    model = stage.model(["Sit down.", "Sit down, please."])
    result = await run(Agent(name="tester", model=model, validators=[polite]), "Go.")
    assert succeeded(result).output == "Sit down, please."
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", "Sit down."),
        ("user", "Validation failed: polite\nsay please\n\nCorrect the output and hand it in again."),
        ("assistant", "Sit down, please."),
    ]


# -- the error prompt --------------------------------------------------------------------------------------------------


async def test_the_error_prompt_is_built_from_the_rejection_once_for_each_attempt_that_follows(
    stage: Stage,
) -> None:  # R56, X16, A1, D32
    rejections: list[Rejection] = []

    async def explain(rejection: Rejection) -> str:
        rejections.append(rejection)
        return f"Attempt {rejection.attempt} of {rejection.max_attempts}: {rejection.feedback}"

    model = stage.model([report(7), report(8, id="o2"), report(9, id="o3")])
    agent = Agent(
        name="tester",
        model=model,
        output=Output(Report),
        validators=[small],
        error_prompt=explain,
        limits=Limits(attempts=3),
    )
    result = await run(agent, "Go.")
    assert failed(result).code == "MAX_ATTEMPTS_EXCEEDED"
    assert [(each.attempt, each.layer, each.feedback) for each in rejections] == [
        (1, "small", "7 is too much"),
        (2, "small", "8 is too much"),
    ]
    assert stage.tool_results(1) == [ToolResult("Attempt 1 of 3: 7 is too much", True, "out")]
    assert stage.tool_results(2) == [ToolResult("Attempt 2 of 3: 8 is too much", True, "o2")]


# -- how many ----------------------------------------------------------------------------------------------------------


async def test_three_attempts_are_the_default(stage: Stage) -> None:  # X36
    model = stage.model([report(7, id="")], repeat=True)
    result = await run(Agent(name="tester", model=model, output=Output(Report), validators=[small]), "Go.")
    assert failed(result).code == "MAX_ATTEMPTS_EXCEEDED"
    assert context_of(result, AttemptsContext) == AttemptsContext(
        attempts=3, max_attempts=3, last_error="7 is too much"
    )
    assert stage.n_requests == 3


async def test_the_last_rejection_carries_all_there_is(stage: Stage) -> None:  # X36, R66, A46, D31
    model = stage.model([report(7), report(8, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small], limits=Limits(attempts=2))
    failure = failed(await run(agent, "Go."))
    assert failure.phase == "validation"
    assert failure.candidate == {"total": 8}
    assert failure.report is not None
    assert [(layer.name, layer.passed) for layer in failure.report.layers] == [("schema", True), ("small", False)]
    assert isinstance(failure.error.cause, ValueError)
    assert transcript(failure.history)[-1] == (
        "user",
        "#o2! Validation failed: small\n8 is too much\n\nCorrect the output and hand it in again.",
    )
    assert [(record.number, record.iterations) for record in failure.metadata.attempts] == [(1, 1), (2, 1)]
    assert [record.usage for record in failure.metadata.attempts] == [
        Usage(requests=1, input_tokens=10, output_tokens=5)
    ] * 2


async def test_attempts_can_be_set_for_one_run(stage: Stage) -> None:  # X31, A32, D49
    model = stage.model([report(7, id="")], repeat=True)
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small], limits=Limits(attempts=3))
    assert context_of(await run(agent, "Go.", max_attempts=2), AttemptsContext).max_attempts == 2
    assert stage.n_requests == 2
    assert context_of(await run(agent, "Go."), AttemptsContext).max_attempts == 3


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, float("nan"), "3"])
async def test_a_wrong_number_of_attempts_ends_the_run_before_any_call(
    stage: Stage, attempts: object
) -> None:  # X31, A32, D45
    agent = Agent(name="tester", model=stage.model([report()]), output=Output(Report))
    result = await run(agent, "Go.", max_attempts=attempts)  # pyright: ignore[reportArgumentType] - this is the test
    assert context_of(result, InvalidInputContext).issues == (
        f"max_attempts is {attempts!r}, not a whole number of at least 1",
    )
    assert stage.n_requests == 0


# -- what listeners see ------------------------------------------------------------------------------------------------


async def test_a_retry_is_told_in_a_fixed_order(stage: Stage) -> None:  # R2, R41, A38
    model = stage.model([report(7), report(2, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small])
    recorder = Recorder()
    await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    attempt = ["MessageCommitted", "IterationStarted", "MessageCommitted", "ModelResponded", "ToolCalled"]
    layers = ["LayerStarted", "LayerCompleted"] * 2
    assert names(recorder.events) == [
        *["RunStarted", "AttemptStarted", *attempt, *layers, "ValidationFailed", "ToolFinished", "AttemptCompleted"],
        *["AttemptStarted", *attempt, *layers, "ToolFinished", "AttemptCompleted"],
        *["MessageCommitted", "RunSucceeded"],
    ]


async def test_a_run_goes_on_from_an_earlier_conversation(stage: Stage) -> None:  # R53, A46
    first = await run(Agent(name="tester", model=stage.model(["Hello."])), "Hi.")
    second = await run(Agent(name="tester", model=stage.model(["Fine."])), "How are you?", history=first.history)
    assert transcript(second.history) == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "How are you?"),
        ("assistant", "Fine."),
    ]
    assert stage.messages(1)[-1].content == (Text("How are you?"),)

"""Attempts: a rejected output starts another one, in the same conversation, where every call is answered once."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import cast

import pytest

from journeyman import ErrorCode, Limits, ToolResult, Usage, dump_messages, run
from journeyman.endings import AttemptsContext, InvalidInputContext, IterationsContext
from journeyman.prompt import ErrorPromptContext
from journeyman.testing.scripted import call
from journeyman.types import ToolUse
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import PLAIN, REFLECTED, SUPERSEDED, end_of, fail, hand_in, rejected
from tests.play import Report, Stage, context_of, failed, look, report, reporter, small, submit, succeeded, talker
from tests.play.recorder import Recorder, calls, check_balance, names, transcript


# R2, R6, R28, R29, R30, R53, R54, R55, R56, R57, A24, X40
async def test_a_rejected_output_starts_another_attempt_in_the_same_conversation(stage: Stage) -> None:
    agent = reporter(stage.model([call("look", id="a"), report(7, "out"), call("look", id="b"), report(2, "o2")]))
    result = await run(agent, "Go.")
    assert succeeded(result).output == Report(total=2)
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", "look({})#a"),
        ("user", "#a: found here"),
        ("assistant", 'output({"total":7})#out'),
        ("user", f"#out! {rejected(7)}"),
        ("assistant", "look({})#b"),
        ("user", "#b: found here"),
        ("assistant", 'output({"total":2})#o2'),
        ("user", "#o2: Accepted."),
    ]
    assert transcript(stage.messages(3)) == transcript(result.history)[:7]


async def test_every_request_repeats_the_one_before_and_adds_to_it(stage: Stage) -> None:  # R57, M8, A1, A41
    model = stage.model([call("look"), report(7), call("fail"), report(8), report(2)])
    assert succeeded(await run(reporter(model, tools=[look, fail]), "Go."))
    sent = [stage.messages(n) for n in range(stage.n_requests)]
    assert [len(messages) for messages in sent] == [1, 3, 5, 7, 9]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))


async def test_running_out_of_iterations_ends_the_run_and_not_the_attempt_alone(stage: Stage) -> None:  # A13
    agent = reporter(stage.model([report(99), call("look"), call("look")]), limits=Limits(iterations=2))
    failure = failed(await run(agent, "Go.", max_attempts=9))
    assert end_of(failure)[:2] == (IterationsContext(iteration_count=2, max_iterations=2, has_draft=False), 2)
    assert (failure.phase, stage.n_requests) == ("iteration", 3)
    assert failure.candidate == {"total": 99}


async def test_a_retry_is_told_in_this_order(stage: Stage, recorder: Recorder) -> None:  # A38, A26, R2, R41
    told = CallbackLog()
    agent = reporter(stage.model([[call("look", id="a"), report(99, "b")], report(1, "c")]), limits=Limits(attempts=2))
    await run(agent, "Go.", on_event=recorder, callbacks=told.callbacks())
    answered = ["IterationStarted", "MessageCommitted", "ModelResponded"]
    layers = ["LayerStarted", "LayerCompleted"] * 2
    assert names(recorder.events) == [
        *("RunStarted", "AttemptStarted", "MessageCommitted"),
        *(*answered, "ToolCalled", "ToolFinished", "ToolCalled"),
        *(*layers, "ValidationFailed", "ToolFinished", "AttemptCompleted"),
        *("AttemptStarted", "MessageCommitted"),
        *(*answered, "ToolCalled", *layers, "ToolFinished", "AttemptCompleted"),
        *("MessageCommitted", "RunSucceeded"),
    ]
    assert calls(recorder.events) == [
        *("look#a?", "look#a: found here"),
        *("output#b?", f"output#b! {rejected(99)}"),
        *("output#c?", "output#c: Accepted."),
    ]
    assert told.names[told.names.index("validation_failure") :] == [
        *("validation_failure", "tool_result", "attempt_complete", "attempt_start", "iteration_start"),
        *("model_response", "tool_call", "layer_start", "layer_complete", "layer_start", "layer_complete"),
        *("tool_result", "attempt_complete", "success"),
    ]
    assert [arguments for _, arguments in told.of("attempt_complete")] == [(False,), (True,)]


@pytest.mark.parametrize(
    ("reflecting", "results"),
    [
        (False, ["#out99! Error: the output did not pass validation. The reason follows."]),
        (True, ["#out99: Total: 99", "#sub99! Error: the output did not pass validation. The reason follows."]),
    ],
)
async def test_the_feedback_may_be_a_text_after_all_results_instead(
    stage: Stage, reflecting: bool, results: list[str]
) -> None:  # R56, A24, D5
    first = [*hand_in(99, reflecting=reflecting), call("look", id="a")]
    model = stage.model([first, hand_in(1, reflecting=reflecting)])
    output = replace(REFLECTED if reflecting else PLAIN, feedback_role="text")
    result = await run(reporter(model, output=output), "Go.")
    assert transcript(stage.messages(1))[-1] == ("user", *results, "#a: found here", rejected(99))
    assert dump_messages(result.history).count(b"99 is too much") == 1


async def test_an_agent_that_answers_with_text_reads_the_feedback_as_text(stage: Stage) -> None:  # R56, D5, X10
    def polite(text: str) -> None:
        if "please" not in text:
            raise ValueError("say please")

    result = await run(talker(stage.model(["Sit down.", "Sit down, please."]), validators=[polite]), "Go.")
    assert succeeded(result).output == "Sit down, please."
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", "Sit down."),
        ("user", "Validation failed: polite\nsay please\n\nCorrect the output and hand it in again."),
        ("assistant", "Sit down, please."),
    ]


SHAPES = [shape for n in (1, 2, 3) for shape in product("hups", repeat=n)]
"""Responses of up to three calls: helper, unknown tool, proposed output, submit."""

CALLS = {"h": call("look"), "u": call("nope"), "p": report(99), "s": submit()}


def called(shape: Sequence[str]) -> list[ToolUse]:
    return [replace(CALLS[letter], id=f"{letter}{number}") for number, letter in enumerate(shape)]


def answered(shape: Sequence[str], *, reflecting: bool) -> list[ToolResult]:
    """Say what must answer the calls of the first response."""
    terminator = "s" if reflecting else "p"
    last = max((number for number, letter in enumerate(shape) if letter == terminator), default=-1)
    texts = {"h": "found here", "u": "Error: Unknown tool nope", "p": "Total: 99", "s": "Error: Unknown tool submit"}
    texts[terminator] = SUPERSEDED
    return [
        ToolResult(rejected(99) if n == last else texts[letter], letter in ("u", "s", terminator), f"{letter}{n}")
        for n, letter in enumerate(shape)
    ]


@pytest.mark.parametrize("reflecting", [False, True])
async def test_whatever_calls_a_response_holds_each_is_run_and_answered_once_and_the_run_goes_on(
    stage: Stage, reflecting: bool
) -> None:  # D1, D2, D3, D4, D17, A2, A3, A24, A25, R30, R58
    for shape in SHAPES:
        model = stage.model([called(shape), hand_in(1, reflecting=reflecting)])
        recorder = Recorder()
        result = await run(reporter(model, output=REFLECTED if reflecting else PLAIN), "Go.", on_event=recorder)
        check_balance(recorder.events)
        assert sum(stats.calls for name, stats in result.metadata.tools.items() if name == "look") == shape.count("h")
        if reflecting and "s" in shape and "p" not in shape:
            assert failed(result).code == ErrorCode.SUBMIT_BEFORE_OUTPUT, shape
        else:
            assert result.unwrap() == Report(total=1), shape
            assert stage.tool_results(-1) == answered(shape, reflecting=reflecting), shape
    assert stage.n_requests > len(SHAPES)


async def test_an_error_prompt_knows_what_was_rejected_and_by_what(stage: Stage) -> None:  # A1, X16, X15, X17
    rejections: list[ErrorPromptContext] = []

    def tell(rejection: ErrorPromptContext) -> str:
        rejections.append(rejection)
        return "Again."

    model = stage.model([call("output", total="x"), report(99), report(1)])

    def modest(report: Report) -> None:
        """Totals stay modest.

        Whatever the table says.
        """
        small(report)

    await run(reporter(model, validators=[modest], error_prompt=tell), "Go.")
    assert [(each.layer, each.description, each.attempt, each.max_attempts) for each in rejections] == [
        ("schema", "The output must fit its type.", 1, 3),
        ("modest", "Totals stay modest.", 2, 3),
    ]
    assert rejections[1].feedback == "99 is too much"
    assert [layer.name for layer in rejections[1].report.layers] == ["schema", "modest"]


# R56, X16, D32, A1
@pytest.mark.parametrize("attempts", [1, 3])
async def test_the_error_prompt_is_built_once_for_each_attempt_that_follows(stage: Stage, attempts: int) -> None:
    told: list[int] = []

    def tell(rejection: ErrorPromptContext) -> str:
        told.append(rejection.attempt)
        if rejection.attempt == rejection.max_attempts:
            raise RuntimeError("never called for the last")
        return f"Attempt {rejection.attempt} of {rejection.max_attempts}: {rejection.feedback}"

    model = stage.model([report(99)], repeat=True)
    failure = failed(await run(reporter(model, error_prompt=tell), "Go.", max_attempts=attempts))
    assert failure.code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert (told, stage.n_requests) == (list(range(1, attempts)), attempts)
    answers = [message.content[0] for message in failure.history[2::2]]
    assert [(answer.text, answer.is_error) for answer in answers if isinstance(answer, ToolResult)] == [
        *((f"Attempt {n} of {attempts}: 99 is too much", True) for n in range(1, attempts)),
        (rejected(99), True),
    ]


async def test_the_last_rejection_carries_all_there_is(stage: Stage) -> None:  # X36, R66, A46, D31, X22
    agent = reporter(stage.model([report(7), report(8, "o2")]), limits=Limits(attempts=2))
    failure = failed(await run(agent, "Go."))
    assert failure.phase == "validation"
    assert failure.candidate == {"total": 8}
    assert failure.report is not None
    assert [(layer.name, layer.passed) for layer in failure.report.layers] == [("schema", True), ("small", False)]
    assert isinstance(failure.error.cause, ValueError)
    assert transcript(failure.history)[-1] == ("user", f"#o2! {rejected(8)}")
    assert [(record.number, record.iterations) for record in failure.metadata.attempts] == [(1, 1), (2, 1)]
    used = Usage(requests=1, input_tokens=10, output_tokens=5)
    assert [record.usage for record in failure.metadata.attempts] == [used, used]
    assert [each.report.passed for each in failure.metadata.attempts if each.report] == [False, False]
    assert failure.metadata.latency_s > 0
    assert (failure.metadata.children, failure.metadata.callback_errors) == ((), ())


@pytest.mark.parametrize(("override", "attempts"), [(None, 2), (1, 1), (4, 4)])
async def test_the_number_of_attempts_of_a_run_counts_instead_of_the_agents(
    stage: Stage, override: int | None, attempts: int
) -> None:  # X31, A32, D45, D49
    agent = reporter(stage.model([report(99)], repeat=True), limits=Limits(attempts=2))
    assert context_of(await run(agent, "Go.", max_attempts=override), AttemptsContext).max_attempts == attempts
    assert stage.n_requests == attempts
    assert context_of(await run(agent, "Go."), AttemptsContext).max_attempts == 2


@pytest.mark.parametrize("attempts", [0, -1, True, False, 1.0, 1.5, float("nan"), float("inf"), "3"])
async def test_a_number_of_attempts_that_is_none_fails_before_any_call(
    stage: Stage, attempts: object, recorder: Recorder
) -> None:  # D45, X31, A32
    agent = talker(stage.model(["Never asked."]))
    told = CallbackLog()
    result = await run(agent, "Go.", max_attempts=cast("int", attempts), callbacks=told.callbacks(), on_event=recorder)
    failure, issue = failed(result), f"max_attempts is {attempts!r}, not a whole number of at least 1"
    assert failure.error.context == InvalidInputContext(issues=(issue,))
    assert (failure.phase, stage.n_requests) == ("prompt_generation", 0)
    assert told.names == ["run_start", "failure"]

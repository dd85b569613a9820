"""When prompts are built, where the feedback goes, which call carries it, and in what order a retry is told."""

from __future__ import annotations

import pytest

from journeyman import Agent, Limits, Output, Rejection, Text, ToolResult, run
from journeyman.models.scripted import call
from tests.loop.pitfalls.players import SUPERSEDED, TOO_LARGE, Report, failed, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, calls, check_balance, names, transcript
from tests.support.stage import Stage

# -- prompts -----------------------------------------------------------------------------------------------------------


async def test_system_and_user_prompt_are_built_once_and_the_error_prompt_for_each_retry(stage: Stage) -> None:  # A1
    built: list[str] = []

    def system(given: str) -> str:
        built.append("system")
        return "Be brief."

    async def prompt(given: str) -> str:
        built.append("user")
        return f"Do this: {given}"

    def tell(rejection: Rejection) -> str:
        built.append(f"error {rejection.attempt} of {rejection.max_attempts}")
        return f"No: {rejection.feedback}"

    model = stage.model([call("look"), report(99), call("look"), report(98), report(97)])
    agent = Agent(
        name="a",
        model=model,
        system=system,
        prompt=prompt,
        tools=[look],
        output=Output(Report),
        validators=[small],
        error_prompt=tell,
    )
    failed(await run(agent, "it"))
    assert built == ["system", "user", "error 1 of 3", "error 2 of 3"]
    assert {request.prefix.system for request in stage.requests} == {(Text("Be brief."),)}
    assert {request.messages[0] for request in stage.requests} == {stage.messages(0)[0]}
    assert transcript(stage.messages(0)) == [("user", "Do this: it")]


async def test_the_conversation_goes_on_over_attempts(stage: Stage) -> None:  # A1, A41, R57
    model = stage.model([report(99, "a"), call("look", id="b"), report(1, "c")])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    await run(agent, "Go.")
    before: list[object] = []
    for request in stage.requests:
        assert list(request.messages[: len(before)]) == before
        before = list(request.messages)


async def test_an_error_prompt_knows_what_was_rejected_and_by_what(stage: Stage) -> None:  # A1, X16
    rejections: list[Rejection] = []

    def tell(rejection: Rejection) -> str:
        rejections.append(rejection)
        return "Again."

    def modest(report: Report) -> None:
        """Totals stay modest.

        Whatever the table says.
        """
        small(report)

    model = stage.model([call("output", total="x"), report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[modest], error_prompt=tell)
    await run(agent, "Go.")
    assert [(each.layer, each.description, each.attempt) for each in rejections] == [
        ("schema", "The output must fit its type.", 1),
        ("modest", "Totals stay modest.", 2),
    ]
    assert rejections[1].feedback == "too large"
    assert [layer.name for layer in rejections[1].report.layers] == ["schema", "modest"]


# -- feedback ----------------------------------------------------------------------------------------------------------


async def test_the_feedback_is_the_error_result_of_the_last_output_call(stage: Stage) -> None:  # A24, A25, A2, A3
    model = stage.model([[report(98, "a"), call("look", id="b"), report(99, "c"), call("nope", id="d")], report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    await run(agent, "Go.")
    assert stage.messages(1)[-1].content == (
        ToolResult(SUPERSEDED, is_error=True, tool_use_id="a"),
        ToolResult("found here", tool_use_id="b"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="c"),
        ToolResult("Error: Unknown tool nope", is_error=True, tool_use_id="d"),
    )


async def test_the_feedback_is_the_error_result_of_the_last_submit_call(stage: Stage) -> None:  # A24, A25
    model = stage.model([[submit("a"), report(99, "b"), submit("c"), call("look", id="d")], [report(1), submit()]])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report, reflection=shown), validators=[small])
    await run(agent, "Go.")
    assert stage.messages(1)[-1].content == (
        ToolResult(SUPERSEDED, is_error=True, tool_use_id="a"),
        ToolResult("Total: 99", tool_use_id="b"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="c"),
        ToolResult("found here", tool_use_id="d"),
    )


@pytest.mark.parametrize("reflecting", [False, True])
async def test_the_feedback_may_be_a_last_text_instead(stage: Stage, reflecting: bool) -> None:  # A24
    model = stage.model(
        [[report(99, "a"), *([submit("b")] if reflecting else [])], [report(1), *([submit()] if reflecting else [])]]
    )
    output = Output(Report, reflection=shown if reflecting else None)
    agent = Agent(name="a", model=model, output=output, validators=[small], feedback="text")
    await run(agent, "Go.")
    *results, last = stage.messages(1)[-1].content
    assert last == Text(TOO_LARGE)
    assert [result.is_error for result in results if isinstance(result, ToolResult)] == [False, True][-len(results) :]
    assert len(results) == 1 + reflecting


async def test_the_schema_speaks_first_and_names_every_fault(stage: Stage) -> None:  # A24, X15
    class Wide(Report):
        name: str

    model = stage.model([call("output", total="many", colour=1), call("output", total=1, name="x")])
    await run(Agent(name="a", model=model, output=Output(Wide), validators=[small]), "Go.")
    text = stage.tool_results(1)[0].text
    assert text.startswith("Validation failed: schema (The output must fit its type.)\n")
    assert "name: is required" in text
    assert "total" in text


# -- the order of a retry ----------------------------------------------------------------------------------------------


async def test_a_retry_is_told_in_this_order(stage: Stage) -> None:  # A38, A26
    recorder, told = Recorder(), CallbackLog()
    model = stage.model([[call("look", id="a"), report(99, "b")], report(1, "c")])
    agent = Agent(
        name="a", model=model, tools=[look], output=Output(Report), validators=[small], limits=Limits(attempts=2)
    )
    await run(agent, "Go.", on_event=recorder, callbacks=told.callbacks())
    check_balance(recorder.events)
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
        *("output#b?", f"output#b! {TOO_LARGE}"),
        *("output#c?", "output#c: Accepted."),
    ]
    assert told.names[told.names.index("validation_failure") :] == [
        *("validation_failure", "tool_result", "attempt_complete", "attempt_start", "iteration_start"),
        *("model_response", "tool_call", "layer_start", "layer_complete", "layer_start", "layer_complete"),
        *("tool_result", "attempt_complete", "success"),
    ]
    assert [arguments for _, arguments in told.of("attempt_complete")] == [(False,), (True,)]

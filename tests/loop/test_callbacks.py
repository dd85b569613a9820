"""Callbacks: when they fire, with what, and that none of them can break a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from journeyman import Abort, Agent, CallbackContext, Callbacks, Ending, Limits, Output, run
from journeyman.events import RunFailed, RunSucceeded, ToolCalled
from journeyman.models.scripted import Scripted, call, say
from journeyman.types import JsonObject, Usage
from tests.loop.players import REJECTED, Report, fail, failed, look, preview, report, small, submit, succeeded
from tests.support.recorder import CallbackLog, Recorder, check_balance, transcript
from tests.support.stage import Stage

ALL = [each.name for each in fields(Callbacks)]


def told(log: CallbackLog) -> list[tuple[object, ...]]:
    """Return name, kind and arguments of each callback about a call."""
    return [
        (name.removeprefix("on_tool_"), context.tool_use_id, context.kind, *arguments)
        for name, context, arguments in log.entries
        if name.startswith("on_tool")
    ]


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_callbacks_fire_before_and_after_each_call(stage: Stage) -> None:  # R31, R32, R33, R34, R64, A26, D41
    model = stage.model(
        [
            [call("look", where="left", id="a"), call("fail", why="no", id="b"), call("fly", to="moon", id="c")],
            report(),
        ]
    )
    log = CallbackLog()
    agent = Agent(name="tester", model=model, tools=[look, fail], output=Output(Report))
    await run(agent, "Go.", callbacks=log.callbacks())
    assert told(log) == [
        ("call", "a", "tool", "look", {"where": "left"}),
        ("result", "a", "tool", "look", "found left"),
        ("call", "b", "tool", "fail", {"why": "no"}),
        ("result", "b", "tool", "fail", "Error: no"),
        ("call", "c", "unknown", "fly", {"to": "moon"}),
        ("result", "c", "unknown", "fly", "Error: Unknown tool fly"),
        ("call", "out", "output", "output", {"total": 3}),
        ("result", "out", "output", "output", "Accepted."),
    ]
    assert [context.is_error for context, _ in log.of("tool_result")] == [False, True, True, False]
    assert [context.is_error for context, _ in log.of("tool_call")] == [None] * 4


async def test_callbacks_fire_for_reflections_and_submit(stage: Stage) -> None:  # R33, R64, X24, A26, D37
    model = stage.model([report(), submit()])
    log = CallbackLog()
    agent = Agent(name="tester", model=model, output=Output(Report, reflection=preview))
    await run(agent, "Go.", callbacks=log.callbacks())
    assert told(log) == [
        ("call", "out", "output", "output", {"total": 3}),
        ("result", "out", "output", "output", "Total: 3"),
        ("call", "sub", "submit", "submit", {}),
        ("result", "sub", "submit", "submit", "Accepted."),
    ]


@pytest.mark.parametrize("reflected", [False, True])
async def test_the_result_of_a_rejected_hand_in_is_the_feedback(stage: Stage, reflected: bool) -> None:  # X25, D37, R34
    answers = [report(7), submit(), report(2, id="o2"), submit("s2")] if reflected else [report(7), report(2, id="o2")]
    output = Output(Report, reflection=preview if reflected else None)
    log = CallbackLog()
    agent = Agent(name="tester", model=stage.model(answers), output=output, validators=[small])
    await run(agent, "Go.", callbacks=log.callbacks())
    terminator = ("sub", "submit", "submit") if reflected else ("out", "output", "output")
    assert ("result", *terminator, REJECTED) in told(log)
    assert len(log.of("tool_call")) == len(log.of("tool_result")) == len(answers)


async def test_the_handler_runs_between_its_two_callbacks() -> None:  # R31, R32, R64
    steps: list[str] = []

    async def reflect(report: Report) -> str:
        await asyncio.sleep(0)
        steps.append("reflection")
        return "seen"

    async def on_tool_call(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        await asyncio.sleep(0)
        steps.append(f"{name} called")

    async def on_tool_result(context: CallbackContext, name: str, text: str) -> None:
        await asyncio.sleep(0)
        steps.append(f"{name} gave {text}")

    agent = Agent(name="tester", model=Scripted([report(), submit()]), output=Output(Report, reflection=reflect))
    callbacks = Callbacks(on_tool_call=on_tool_call, on_tool_result=on_tool_result)
    assert succeeded(await run(agent, "Go.", callbacks=callbacks))
    assert steps == [
        "output called",
        "reflection",
        "output gave seen",
        "submit called",
        "submit gave Accepted.",
    ]


async def test_each_callback_gets_an_input_of_its_own() -> None:  # A27, D12
    def spoil(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        arguments["where"] = "elsewhere"

    recorder = Recorder()
    agent = Agent(name="tester", model=Scripted([call("look", where="left"), "Done."]), tools=[look])
    result = await run(agent, "Go.", callbacks=Callbacks(on_tool_call=spoil), on_event=recorder)
    assert recorder.of(ToolCalled)[0].tool_input == {"where": "left"}
    assert result.history[1].tool_uses[0].input == {"where": "left"}
    assert transcript(result.history)[2] == ("user", "#call_1_0: found left")


# -- where a run stands ------------------------------------------------------------------------------------------------


async def test_callbacks_learn_where_the_run_stands(stage: Stage) -> None:  # X1, A27, X23
    model = stage.model([call("look"), report(7), report(2, id="o2")])
    log = CallbackLog()
    agent = Agent(
        name="tester",
        model=model,
        tools=[look],
        output=Output(Report),
        validators=[small],
        limits=Limits(attempts=2, iterations=4),
    )
    await run(agent, "Go.", callbacks=log.callbacks())
    blank = CallbackContext(path=("tester",), attempt=0, max_attempts=2, iteration=0, max_iterations=4)
    seen = [
        (name.removeprefix("on_"), context.attempt, context.iteration)
        for name, context, _ in log.entries
        if replace(context, attempt=0, iteration=0, tool_use_id=None, kind=None, is_error=None, cached=None) == blank
    ]
    assert seen == [
        ("run_start", 0, 0),
        ("attempt_start", 1, 0),
        ("iteration_start", 1, 1),
        ("model_response", 1, 1),
        ("tool_call", 1, 1),
        ("tool_result", 1, 1),
        ("iteration_start", 1, 2),
        ("model_response", 1, 2),
        ("tool_call", 1, 2),
        ("layer_start", 1, 2),
        ("layer_complete", 1, 2),
        ("layer_start", 1, 2),
        ("layer_complete", 1, 2),
        ("validation_failure", 1, 2),
        ("tool_result", 1, 2),
        ("attempt_complete", 1, 2),
        ("attempt_start", 2, 0),
        ("iteration_start", 2, 1),
        ("model_response", 2, 1),
        ("tool_call", 2, 1),
        ("layer_start", 2, 1),
        ("layer_complete", 2, 1),
        ("layer_start", 2, 1),
        ("layer_complete", 2, 1),
        ("tool_result", 2, 1),
        ("attempt_complete", 2, 1),
        ("success", 2, 1),
    ]


async def test_lifecycle_callbacks_get_what_they_are_about(stage: Stage) -> None:  # R41, X11, X23
    model = stage.model([report(7), report(2, id="o2")])
    log = CallbackLog()
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small])
    await run(agent, "Go.", callbacks=log.callbacks())
    assert [arguments for _, arguments in log.of("layer_start")] == [("schema",), ("small",)] * 2
    outcomes: list[Any] = [arguments[0] for _, arguments in log.of("layer_complete")]
    assert [(outcome.name, outcome.passed, outcome.feedback) for outcome in outcomes] == [
        ("schema", True, ""),
        ("small", False, "7 is too much"),
        ("schema", True, ""),
        ("small", True, ""),
    ]
    assert [arguments for _, arguments in log.of("validation_failure")] == [("7 is too much",)]
    assert [arguments for _, arguments in log.of("attempt_complete")] == [(False,), (True,)]
    assert [arguments for _, arguments in log.of("success")] == [(Report(total=2),)]
    assert log.of("failure") == []


async def test_the_cost_of_each_model_call_is_told(stage: Stage) -> None:  # R61
    usages = [Usage(requests=1, input_tokens=5, output_tokens=1), Usage(requests=1, input_tokens=9, output_tokens=2)]
    model = stage.model([say(call("look"), usage=usages[0]), say("Done.", usage=usages[1])])
    log = CallbackLog()
    await run(Agent(name="tester", model=model, tools=[look]), "Go.", callbacks=log.callbacks())
    responses: list[Any] = [arguments[0] for _, arguments in log.of("model_response")]
    assert [(each.usage, each.stop_reason, each.text) for each in responses] == [
        (usages[0], "tool_use", ""),
        (usages[1], "end_turn", "Done."),
    ]


# -- the end -----------------------------------------------------------------------------------------------------------


def _broken_prompt(given: str) -> str:
    raise ValueError("no prompt")


def _broken_projection(states: object) -> object:
    raise ValueError("no projection")


def _broken_state(given: str) -> object:
    raise ValueError("no state")


def _returning(report: Report) -> Report:
    return report


_echo: Any = _returning
"""Not typed, since no validator may return anything."""


FAILURES: dict[str, Callable[[Agent[Report]], Agent[Report]]] = {
    "MODEL_UNAVAILABLE": lambda agent: replace(agent, model="nobody:nothing"),
    "PROMPT_GENERATION_FAILED": lambda agent: replace(agent, prompt=_broken_prompt),
    "API_ERROR": lambda agent: replace(agent, model=Scripted([])),
    "INVALID_RESPONSE": lambda agent: replace(agent, model=Scripted(["Hello."])),
    "SUBMIT_BEFORE_OUTPUT": lambda agent: replace(
        agent, model=Scripted([submit()]), output=Output(Report, reflection=preview)
    ),
    "MAX_ITERATIONS": lambda agent: replace(agent, model=Scripted([call("look")]), limits=Limits(iterations=1)),
    "MAX_ATTEMPTS_EXCEEDED": lambda agent: replace(agent, model=Scripted([report(7)]), limits=Limits(attempts=1)),
    "BUDGET_EXCEEDED": lambda agent: replace(agent, limits=Limits(tokens=1)),
    "TOKEN_LIMIT_EXCEEDED": lambda agent: replace(agent, model=Scripted([say("Hel", stop_reason="max_tokens")])),
    "MODEL_REFUSED": lambda agent: replace(agent, model=Scripted([say("No.", stop_reason="refusal")])),
    "VALIDATION_FAILED": lambda agent: replace(agent, validators=[_echo]),
    "STATE_PROJECTION_FAILED": lambda agent: replace(agent, project=_broken_projection),
    "INTERNAL_ERROR": lambda agent: replace(agent, run_state=_broken_state),
}


@pytest.mark.parametrize("code", FAILURES)
async def test_every_failure_is_told_once_and_last(code: str) -> None:  # R9, R41, R66, A28, D35, D36
    ready = Agent(name="tester", model=Scripted([report()]), tools=[look], output=Output(Report), validators=[small])
    log, recorder = CallbackLog(), Recorder()
    result = await run(FAILURES[code](ready), "Go.", callbacks=log.callbacks(), on_event=recorder)
    assert failed(result).code == code
    check_balance(recorder.events)
    assert log.names[-1] == "failure"
    assert log.names.count("failure") == 1
    assert "success" not in log.names
    assert log.names.count("attempt_start") == log.names.count("attempt_complete")
    assert log.names.count("tool_call") == log.names.count("tool_result")
    assert log.of("failure")[0][1] == (failed(result).error,)
    assert recorder.of(RunFailed)[0].error == failed(result).error


async def test_a_cancelled_run_is_told_once_and_last() -> None:  # A28, D21, D35
    abort, log, recorder = Abort(), CallbackLog(), Recorder()
    abort.abort()
    agent = Agent(name="tester", model=Scripted([report()]), output=Output(Report))
    await run(agent, "Go.", callbacks=log.callbacks(), on_event=recorder, abort=abort)
    check_balance(recorder.events)
    assert log.names == ["run_start", "failure"]


async def test_success_is_told_once_and_last() -> None:  # A28
    log, recorder = CallbackLog(), Recorder()
    agent = Agent(name="tester", model=Scripted([report()]), output=Output(Report))
    result = await run(agent, "Go.", callbacks=log.callbacks(), on_event=recorder)
    assert log.names.count("success") == 1
    assert log.names[-1] == "success"
    assert recorder.of(RunSucceeded)[0].output == succeeded(result).output


# -- errors of callbacks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ALL if name != "on_failure"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_callback_that_raises_is_recorded_and_breaks_nothing(name: str, kind: str) -> None:  # R35, R63, D38
    error = RuntimeError("callback")

    def now(*_: object) -> None:
        raise error

    async def later(*_: object) -> None:
        await asyncio.sleep(0)
        raise error

    model = Scripted([call("look"), report(7), report(2)])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), validators=[small])
    plain = succeeded(await run(replace(agent, model=Scripted([call("look"), report(7), report(2)])), "Go."))
    callbacks = replace(Callbacks(), **{name: now if kind == "sync" else later})
    recorder = Recorder()
    result = succeeded(await run(agent, "Go.", callbacks=callbacks, on_event=recorder))
    assert result.output == Report(total=2)
    assert result.history == plain.history
    check_balance(recorder.events)
    if name != "on_success":
        assert recorder.of(RunSucceeded)[0].metadata == result.metadata
    assert result.metadata.callback_errors
    assert {(each.callback, each.error) for each in result.metadata.callback_errors} == {(name, error)}


async def test_an_error_of_on_failure_is_recorded_too() -> None:  # R63, A28, D38
    def raising(context: CallbackContext, error: Ending) -> None:
        raise RuntimeError("on failure")

    agent = Agent(name="tester", model=Scripted(["Hello."]), output=Output(Report))
    result = failed(await run(agent, "Go.", callbacks=Callbacks(on_failure=raising)))
    assert result.code == "INVALID_RESPONSE"
    assert [(each.callback, str(each.error)) for each in result.metadata.callback_errors] == [
        ("on_failure", "on failure")
    ]


async def test_a_listener_that_raises_is_recorded_and_told_further_events() -> None:  # R35, R63
    seen: list[str] = []

    def grumble(event: object) -> None:
        seen.append(type(event).__name__)
        raise RuntimeError("listener")

    result = succeeded(await run(Agent(name="tester", model=Scripted(["Hello."])), "Go.", on_event=grumble))
    assert seen[-1] == "RunSucceeded"
    assert len(result.metadata.callback_errors) == len(seen)


async def test_without_errors_nothing_is_recorded() -> None:  # X22
    log = CallbackLog()
    result = await run(Agent(name="tester", model=Scripted(["Hello."])), "Go.", callbacks=log.callbacks())
    assert result.metadata.callback_errors == ()

"""Callbacks and listeners: one pair for each call, snapshots of where the run stands, one last word."""

import asyncio
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

from journeyman import Callbacks, ErrorCode, ErrorInfo, Limits, Output, Success, Usage, run, tool
from journeyman.events import CallbackContext, ModelResponded
from journeyman.result import LayerOutcome
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import JsonObject
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import REFLECTED, STOPPED, SUPERSEDED, fail, meddle, rejected
from tests.play import Report, Stage, failed, look, report, reporter, submit, succeeded, talker


def told_of_calls(log: CallbackLog) -> list[tuple[object, ...]]:
    """Return the callbacks about calls: begin or end, id, kind, whether it is an error, and the other arguments."""
    return [
        (name.removeprefix("on_tool_"), context.tool_use_id, context.kind, context.is_error, *arguments)
        for name, context, arguments in log.entries
        if name.startswith("on_tool_")
    ]


# R31, R32, R33, R34, R64, X25, A26, D37, D41
async def test_without_reflection_every_call_is_told_once_and_its_end_once(stage: Stage) -> None:
    log = CallbackLog()
    calls = [call("look", where="left", id="a"), call("fail", why="no", id="b"), call("fly", to="moon", id="c")]
    model = stage.model([[*calls, report(5, "d"), report(99, "e")], report(1, "f")])
    await run(reporter(model, tools=[look, fail]), "Go.", callbacks=log.callbacks())
    assert told_of_calls(log) == [
        ("call", "a", "tool", None, "look", {"where": "left"}),
        ("result", "a", "tool", False, "look", "found left"),
        ("call", "b", "tool", None, "fail", {"why": "no"}),
        ("result", "b", "tool", True, "fail", "Error: no"),
        ("call", "c", "unknown", None, "fly", {"to": "moon"}),
        ("result", "c", "unknown", True, "fly", "Error: Unknown tool fly"),
        ("call", "d", "output", None, "output", {"total": 5}),
        ("call", "e", "output", None, "output", {"total": 99}),
        ("result", "d", "output", True, "output", SUPERSEDED),
        ("result", "e", "output", True, "output", rejected(99)),
        ("call", "f", "output", None, "output", {"total": 1}),
        ("result", "f", "output", False, "output", "Accepted."),
    ]


# R33, R34, R64, X24, X25, A26, D37
async def test_with_reflection_every_call_is_told_once_and_its_end_once(stage: Stage) -> None:
    log = CallbackLog()
    model = stage.model([[report(99, "a"), submit("b")], [report(1, "c"), submit("d")]])
    await run(reporter(model, output=REFLECTED), "Go.", callbacks=log.callbacks())
    assert told_of_calls(log) == [
        ("call", "a", "output", None, "output", {"total": 99}),
        ("result", "a", "output", False, "output", "Total: 99"),
        ("call", "b", "submit", None, "submit", {}),
        ("result", "b", "submit", True, "submit", rejected(99)),
        ("call", "c", "output", None, "output", {"total": 1}),
        ("result", "c", "output", False, "output", "Total: 1"),
        ("call", "d", "submit", None, "submit", {}),
        ("result", "d", "submit", False, "submit", "Accepted."),
    ]


async def test_a_terminator_that_was_never_judged_has_an_end_too(stage: Stage) -> None:  # A26
    log = CallbackLog()
    failed(await run(reporter(stage.model([report(1, "a")]), validators=[meddle]), "Go.", callbacks=log.callbacks()))
    assert told_of_calls(log) == [
        ("call", "a", "output", None, "output", {"total": 1}),
        ("result", "a", "output", True, "output", STOPPED),
    ]


async def test_the_handler_runs_between_its_two_callbacks() -> None:  # R31, R32, R64, D38
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

    agent = reporter(ScriptedModel([report(), submit()]), output=Output(Report, reflection=reflect))
    callbacks = Callbacks(on_tool_call=on_tool_call, on_tool_result=on_tool_result)
    assert succeeded(await run(agent, "Go.", callbacks=callbacks))
    assert steps == ["output called", "reflection", "output gave seen", "submit called", "submit gave Accepted."]


async def test_callbacks_can_pair_parallel_and_repeated_calls(stage: Stage) -> None:  # D41
    gate = asyncio.Event()

    @tool(parallel=True)
    async def echo(n: int) -> str:
        if n == 1:
            await gate.wait()
        gate.set()
        if n == 3:
            raise ValueError("three")
        return str(n)

    told = CallbackLog()
    model = stage.model([[call("echo", n=1, id="a"), call("echo", n=2, id="b"), call("echo", n=3, id="c")], "Done."])
    await run(talker(model, tools=[echo]), "Go.", callbacks=told.callbacks())
    called = [(context.tool_use_id, rest) for context, rest in told.of("tool_call")]
    assert called == [(id, ("echo", {"n": n})) for n, id in enumerate("abc", start=1)]
    results = {context.tool_use_id: (rest[1], context.is_error) for context, rest in told.of("tool_result")}
    assert results == {"a": ("1", False), "b": ("2", False), "c": ("Error: three", True)}


async def test_each_callback_gets_a_snapshot_of_where_the_run_stands(stage: Stage) -> None:  # A27, X1, X23
    told = CallbackLog()
    agent = reporter(stage.model([call("look"), report(99), report(1)]), limits=Limits(attempts=4, iterations=7))
    await run(agent, "Go.", callbacks=told.callbacks())
    where = [(name.removeprefix("on_"), context.attempt, context.iteration) for name, context, _ in told.entries]
    layers = ["layer_start", "layer_complete"] * 2
    assert where == [
        ("run_start", 0, 0),
        ("attempt_start", 1, 0),
        *[(name, 1, 1) for name in ("iteration_start", "model_response", "tool_call", "tool_result")],
        *[(name, 1, 2) for name in ("iteration_start", "model_response", "tool_call", *layers)],
        *[(name, 1, 2) for name in ("validation_failure", "tool_result", "attempt_complete")],
        ("attempt_start", 2, 0),
        *[(name, 2, 1) for name in ("iteration_start", "model_response", "tool_call", *layers)],
        *[(name, 2, 1) for name in ("tool_result", "attempt_complete", "success")],
    ]
    limits = {(context.max_attempts, context.max_iterations, context.path) for _, context, _ in told.entries}
    assert limits == {(4, 7, ("reporter",))}


async def test_the_limits_that_a_run_overrides_are_those_that_are_told(stage: Stage) -> None:  # A27
    told = CallbackLog()
    await run(talker(stage.model(["Done."])), "Go.", max_attempts=9, callbacks=told.callbacks())
    assert {context.max_attempts for _, context, _ in told.entries} == {9}


async def test_a_snapshot_cannot_be_changed(stage: Stage) -> None:  # A27
    def set_attempt(context: CallbackContext, *given: object) -> None:
        context.attempt = 5  # pyright: ignore[reportAttributeAccessIssue] - this is the test

    callbacks = Callbacks(on_iteration_start=set_attempt)
    result = await run(talker(stage.model(["Done."])), "Go.", callbacks=callbacks)
    (error,) = result.metadata.callback_errors
    assert isinstance(error.error, FrozenInstanceError)


async def test_lifecycle_callbacks_get_what_they_are_about(stage: Stage) -> None:  # R41, X11, X23
    log = CallbackLog()
    await run(reporter(stage.model([report(7), report(2, "o2")])), "Go.", callbacks=log.callbacks())
    assert [arguments for _, arguments in log.of("layer_start")] == [("schema",), ("small",)] * 2
    outcomes: list[Any] = [arguments[0] for _, arguments in log.of("layer_complete")]
    told = [(outcome.name, outcome.passed, outcome.feedback) for outcome in outcomes]
    schema = ("schema", True, "")
    assert told == [schema, ("small", False, "7 is too much"), schema, ("small", True, "")]
    assert [arguments for _, arguments in log.of("validation_failure")] == [("7 is too much",)]
    assert [arguments for _, arguments in log.of("attempt_complete")] == [(False,), (True,)]
    assert [arguments for _, arguments in log.of("success")] == [(Report(total=2),)]
    assert log.of("failure") == []


async def test_callbacks_get_these_arguments(stage: Stage) -> None:  # A27, R67
    kinds: dict[str, tuple[type, ...]] = {}

    def keep(name: str) -> Callable[..., Any]:
        def called(*given: object) -> None:
            kinds[name] = tuple(type(each) for each in given)

        return called

    callbacks = Callbacks(**{each.name: keep(each.name) for each in fields(Callbacks)})
    agent = reporter(stage.model([call("look"), report(99), report(1)]))
    assert failed(await run(agent, "Go.", callbacks=callbacks, max_attempts=1)).code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert isinstance(await run(agent, "Go.", callbacks=callbacks), Success)
    context = CallbackContext
    assert kinds == {
        "on_run_start": (context,),
        "on_attempt_start": (context,),
        "on_attempt_complete": (context, bool),
        "on_iteration_start": (context,),
        "on_model_response": (context, ModelResponded),
        "on_tool_call": (context, str, dict),
        "on_tool_result": (context, str, str),
        "on_layer_start": (context, str),
        "on_layer_complete": (context, LayerOutcome),
        "on_validation_failure": (context, str),
        "on_success": (context, Report),
        "on_failure": (context, ErrorInfo),
    }


async def test_the_cost_of_each_model_call_is_told(stage: Stage) -> None:  # R61
    usages = [Usage(requests=1, input_tokens=5, output_tokens=1), Usage(requests=1, input_tokens=9, output_tokens=2)]
    model = stage.model([say(call("look"), usage=usages[0]), say("Done.", usage=usages[1])])
    log = CallbackLog()
    await run(talker(model), "Go.", callbacks=log.callbacks())
    responses: list[Any] = [arguments[0] for _, arguments in log.of("model_response")]
    told = [(each.usage, each.stop_reason, each.text) for each in responses]
    assert told == [(usages[0], "tool_use", ""), (usages[1], "end_turn", "Done.")]

"""What callbacks are told of calls and of the end: one pair for each call, snapshots of their own, one last word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

from journeyman import (
    Agent,
    CallbackContext,
    Callbacks,
    Ending,
    ErrorCode,
    Limits,
    Output,
    Success,
    run,
    tool,
)
from journeyman.events import ModelResponded
from journeyman.models.scripted import call, say
from journeyman.result import LayerOutcome
from journeyman.types import JsonObject
from tests.loop.pitfalls.players import (
    STOPPED,
    SUPERSEDED,
    TOO_LARGE,
    Report,
    failed,
    look,
    report,
    shown,
    small,
    submit,
)
from tests.support.recorder import CallbackLog
from tests.support.stage import Stage

Told = list[tuple[str, str | None, str | None, str, bool | None]]


def calls_of(told: CallbackLog) -> Told:
    """Return the callbacks about calls: begin or end, id, kind, tool, and whether it was an error."""
    return [
        (name.removeprefix("on_tool_"), context.tool_use_id, context.kind, str(arguments[0]), context.is_error)
        for name, context, arguments in told.entries
        if name.startswith("on_tool_")
    ]


# -- one pair for each call --------------------------------------------------------------------------------------------


async def test_without_reflection_every_call_is_told_once_and_its_end_once(stage: Stage) -> None:  # A26, D37
    told = CallbackLog()
    model = stage.model([[call("look", id="a"), report(5, "b"), call("nope", id="c"), report(99, "d")], report(1, "e")])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    await run(agent, "Go.", callbacks=told.callbacks())
    assert calls_of(told) == [
        ("call", "a", "tool", "look", None),
        ("result", "a", "tool", "look", False),
        ("call", "b", "output", "output", None),
        ("call", "c", "unknown", "nope", None),
        ("result", "c", "unknown", "nope", True),
        ("call", "d", "output", "output", None),
        ("result", "b", "output", "output", True),
        ("result", "d", "output", "output", True),
        ("call", "e", "output", "output", None),
        ("result", "e", "output", "output", False),
    ]
    texts = {context.tool_use_id: rest[1] for context, rest in told.of("tool_result")}
    assert (texts["b"], texts["d"], texts["e"]) == (SUPERSEDED, TOO_LARGE, "Accepted.")


async def test_with_reflection_every_call_is_told_once_and_its_end_once(stage: Stage) -> None:  # A26
    told = CallbackLog()
    model = stage.model([[report(99, "a"), submit("b")], [report(1, "c"), submit("d")]])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown), validators=[small])
    await run(agent, "Go.", callbacks=told.callbacks())
    assert calls_of(told) == [
        ("call", "a", "output", "output", None),
        ("result", "a", "output", "output", False),
        ("call", "b", "submit", "submit", None),
        ("result", "b", "submit", "submit", True),
        ("call", "c", "output", "output", None),
        ("result", "c", "output", "output", False),
        ("call", "d", "submit", "submit", None),
        ("result", "d", "submit", "submit", False),
    ]


async def test_the_end_of_the_terminator_is_told_after_validation(stage: Stage) -> None:  # A26
    for output, responses in (
        (Output(Report), [report(1)]),
        (Output(Report, reflection=shown), [[report(1), submit()]]),
    ):
        told = CallbackLog()
        agent = Agent(name="a", model=stage.model(responses), output=output, validators=[small])
        await run(agent, "Go.", callbacks=told.callbacks())
        layers = len(told.names) - told.names[::-1].index("layer_complete")
        assert told.names[layers:] == ["tool_result", "attempt_complete", "success"]


async def test_a_terminator_that_was_never_judged_has_an_end_too(stage: Stage) -> None:  # A26
    told = CallbackLog()

    def meddle(report: Report) -> None:
        report.total = 0

    agent = Agent(name="a", model=stage.model([report(1, "a")]), output=Output(Report), validators=[meddle])
    failed(await run(agent, "Go.", callbacks=told.callbacks()))
    assert calls_of(told) == [("call", "a", "output", "output", None), ("result", "a", "output", "output", True)]
    assert told.of("tool_result")[0][1] == ("output", STOPPED)


# -- snapshots ---------------------------------------------------------------------------------------------------------


async def test_each_callback_gets_a_snapshot_of_where_the_run_stands(stage: Stage) -> None:  # A27
    told = CallbackLog()
    model = stage.model([call("look"), report(99), report(1)])
    agent = Agent(
        name="a",
        model=model,
        tools=[look],
        output=Output(Report),
        validators=[small],
        limits=Limits(attempts=4, iterations=7),
    )
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
    assert {(context.max_attempts, context.max_iterations, context.path) for _, context, _ in told.entries} == {
        (4, 7, ("a",))
    }


async def test_the_limits_that_a_run_overrides_are_those_that_are_told(stage: Stage) -> None:  # A27
    told = CallbackLog()
    await run(Agent(name="a", model=stage.model(["Done."])), "Go.", max_attempts=9, callbacks=told.callbacks())
    assert {context.max_attempts for _, context, _ in told.entries} == {9}


async def test_a_snapshot_cannot_be_changed(stage: Stage) -> None:  # A27
    def change(context: CallbackContext, *given: object) -> None:
        context.attempt = 5  # type: ignore[misc]

    callbacks = Callbacks(on_iteration_start=change)
    result = await run(Agent(name="a", model=stage.model(["Done."])), "Go.", callbacks=callbacks)
    (error,) = result.metadata.callback_errors
    assert isinstance(error.error, FrozenInstanceError)


async def test_a_callback_gets_arguments_of_its_own(stage: Stage) -> None:  # A27, D12
    seen: list[JsonObject] = []

    @tool
    async def keep(words: list[str]) -> str:
        seen.append({"words": list(words)})
        return "kept"

    def spoil(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        arguments["words"] = "spoilt"

    model = stage.model([call("keep", words=["a"]), "Done."])
    result = await run(Agent(name="a", model=model, tools=[keep]), "Go.", callbacks=Callbacks(on_tool_call=spoil))
    assert seen == [{"words": ["a"]}]
    assert result.history[1].tool_uses[0].input == {"words": ["a"]}


# -- the last word -----------------------------------------------------------------------------------------------------


async def test_success_and_failure_tell_what_the_caller_gets(stage: Stage) -> None:  # A28
    told: list[object] = []

    def on_success(context: CallbackContext, output: object) -> None:
        told.append(output)

    def on_failure(context: CallbackContext, error: Ending) -> None:
        told.append(error)

    callbacks = Callbacks(on_success=on_success, on_failure=on_failure)
    agent = Agent(name="a", model=stage.model([report(1), "Hm."]), output=Output(Report))
    success = await run(agent, "Go.", callbacks=callbacks)
    failure = failed(await run(agent, "Go.", callbacks=callbacks))
    assert told == [success.unwrap(), failure.error]


async def test_an_error_in_the_last_callback_lands_in_the_result(stage: Stage) -> None:  # A28
    def tell(*given: object) -> None:
        raise ValueError("no one listens")

    callbacks = Callbacks(on_attempt_complete=tell, on_success=tell, on_failure=tell)
    for answer in ("Done.", say()):
        result = await run(Agent(name="a", model=stage.model([answer])), "Go.", callbacks=callbacks)
        last = "on_success" if isinstance(result, Success) else "on_failure"
        assert [each.callback for each in result.metadata.callback_errors] == ["on_attempt_complete", last]


async def test_a_callback_that_fails_every_time_is_reported_every_time(stage: Stage) -> None:  # A28, R63
    def tell(*given: object) -> None:
        raise ValueError("always")

    model = stage.model([call("look"), call("look"), "Done."])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.", callbacks=Callbacks(on_iteration_start=tell))
    assert [each.callback for each in result.metadata.callback_errors] == ["on_iteration_start"] * 3


async def test_callbacks_get_these_arguments(stage: Stage) -> None:  # A27, R67
    kinds: dict[str, tuple[type, ...]] = {}

    def keep(name: str) -> Callable[..., Any]:
        def called(*given: object) -> None:
            kinds[name] = tuple(type(each) for each in given)

        return called

    callbacks = Callbacks(**{each.name: keep(each.name) for each in fields(Callbacks)})
    model = stage.model([call("look"), report(99), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
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
        "on_failure": (context, Ending),
    }

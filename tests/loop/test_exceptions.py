"""Exceptions that are no `Exception`, groups and leaks: what is data, and what goes through."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from journeyman import Abort, Agent, Callbacks, ErrorCode, Event, Limits, Output, Tool, ToolResult, run, run_sync, tool
from journeyman.events import ModelResponded, RunStarted
from journeyman.model import Model
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import JsonObject
from tests.loop.callback_log import CallbackLog
from tests.play import Report, Stage, existing, look, report, reporter, small, talker

Options = dict[str, Any]


class Stopped(GeneratorExit):
    """Like `KeyboardInterrupt`, but kind to the test's own event loop."""


class Panic(BaseException):
    """As an extension in Rust raises it."""


def stopping(*given: object) -> Any:  # noqa: ANN401 - stands for a function of any type
    raise Stopped


async def stopping_later(*given: object) -> Any:  # noqa: ANN401 - likewise
    await asyncio.sleep(0)
    raise Stopped


def on(kind: type[Event]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, kind):
            raise Stopped

    return listen


PLACES: dict[str, tuple[Options, Options]] = {
    "system": ({"system": stopping}, {}),
    "prompt": ({"prompt": stopping_later}, {}),
    "error prompt": ({"error_prompt": stopping}, {}),
    "run state": ({"run_state": stopping}, {}),
    "attempt state": ({"attempt_state": stopping}, {}),
    "validator": ({"validators": [stopping]}, {}),
    "validator, later": ({"validators": [stopping_later]}, {}),
    "reflection": ({"output": Output(Report, reflection=stopping)}, {}),
    "tool": ({"tools": [Tool("look", "", {"type": "object"}, stopping_later)]}, {}),
    "tool, inline": ({"tools": [Tool("look", "", {"type": "object"}, stopping, thread=False)]}, {}),
    "tool, in a thread": ({"tools": [Tool("look", "", {"type": "object"}, stopping)]}, {}),
    "middleware": ({"tool_middleware": [stopping_later]}, {}),
    "listener": ({}, {"on_event": on(ModelResponded)}),
    "listener, at the start": ({}, {"on_event": on(RunStarted)}),
    "callback": ({}, {"callbacks": Callbacks(on_tool_call=stopping)}),
    "callback, later": ({}, {"callbacks": Callbacks(on_iteration_start=stopping_later)}),
}


def asked(places: Options, model: Model) -> Agent[Any, Any]:
    options: Options = {"tools": [look], "output": Output(Report), "validators": [small], **places}
    return Agent[Any, Any](name="a", model=model, **options)


@pytest.mark.parametrize("place", PLACES)
async def test_what_is_no_exception_leaves_the_run_and_nothing_is_told_of_its_end(stage: Stage, place: str) -> None:
    # A21
    places, options = PLACES[place]
    told = CallbackLog()
    model = stage.model([[call("look"), report(99)], report(1)])
    before = asyncio.all_tasks()
    given: Options = {"callbacks": told.callbacks(), **options}
    with pytest.raises(Stopped):
        await run(asked(places, model), "Go.", **given)
    assert not {"success", "failure"} & set(told.names)
    assert asyncio.all_tasks() == before or stage.over_http
    task = existing(asyncio.current_task())
    assert task.cancelling() == 0


@pytest.mark.parametrize("error", [SystemExit(2), Panic("2 is out of bounds")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_tool_that_exits_or_panics_is_an_error_result(parallel: bool, thread: bool, error: BaseException) -> None:
    # A21
    @tool(parallel=parallel, thread=thread)
    def leave() -> str:
        raise error

    model = ScriptedModel([[call("leave"), call("leave")], "Done."])
    assert run_sync(talker(model, tools=[leave]), "Go.").unwrap() == "Done."
    results = [block for block in model.requests[1].messages[-1].content if block.type == "tool_result"]
    assert [(each.is_error, "2" in each.text) for each in results] == [(True, True)] * 2


def panic(*given: object) -> Any:  # noqa: ANN401 - stands for a function of any type
    raise Panic("index out of bounds")


class Checked(BaseModel):
    number: Annotated[int, AfterValidator(lambda number: panic(number))]


@pytest.mark.parametrize(
    ("places", "code"),
    [
        pytest.param({"prompt": panic}, ErrorCode.PROMPT_GENERATION_FAILED, id="prompt"),
        pytest.param({"validators": [panic]}, ErrorCode.MAX_ATTEMPTS_EXCEEDED, id="validator"),
        pytest.param({"output": Output(Checked)}, ErrorCode.MAX_ATTEMPTS_EXCEEDED, id="type"),
        pytest.param({"run_state": panic}, ErrorCode.INTERNAL_ERROR, id="state"),
    ],
)
async def test_a_panic_elsewhere_is_as_any_other_exception(places: Options, code: ErrorCode) -> None:  # A21
    answers = [call("output", number=1), report(1)]
    result = await run(
        asked(places, ScriptedModel(answers, repeat=True)), "Go.", callbacks=Callbacks(on_tool_call=panic)
    )
    assert result.code == code


@pytest.mark.parametrize("parallel", [False, True])
def test_an_interrupt_in_a_tool_leaves_the_program_loop_and_all(parallel: bool) -> None:  # A21
    cancelled: list[str] = []

    @tool(parallel=parallel)
    async def interrupt() -> str:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    @tool(parallel=parallel)
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise
        return "unreachable"

    calls = [call("wait"), call("interrupt")] if parallel else [call("interrupt"), call("wait")]
    agent = talker(ScriptedModel([calls]), tools=[interrupt, wait])
    with pytest.raises(KeyboardInterrupt):
        run_sync(agent, "Go.")
    assert cancelled == ["wait"] * parallel


async def leak_from_a_task() -> str:
    inner = asyncio.create_task(asyncio.Event().wait())
    inner.cancel()
    await inner
    return "unreachable"


async def raise_a_cancellation() -> str:
    raise asyncio.CancelledError("mine")


async def time_out() -> str:
    async with asyncio.timeout(0):
        await asyncio.Event().wait()
    return "unreachable"


async def raise_a_timeout() -> str:
    raise TimeoutError("of my own")


async def fail_in_a_group() -> str:
    async def fail(n: int) -> None:
        await asyncio.sleep(0)  # an eager task would fail before the group has the second one
        raise ValueError(f"part {n}")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail(1))
        group.create_task(fail(2))
    return "unreachable"


async def handle_a_group_that_failed() -> str:
    try:
        return await fail_in_a_group()
    except* ValueError as errors:
        failures = len(errors.exceptions)
    raise LookupError(f"{failures} parts failed")


async def group_with_a_cancellation() -> str:
    raise BaseExceptionGroup("mixed", [asyncio.CancelledError(), ValueError("part 1")])


ORDINARY = [
    *(leak_from_a_task, raise_a_cancellation, time_out, raise_a_timeout),
    *(fail_in_a_group, handle_a_group_that_failed, group_with_a_cancellation),
]


async def results(stage: Stage, handler: Callable[[], Coroutine[Any, Any, str]], *, parallel: bool) -> list[ToolResult]:
    """Call a tool twice, and return what the model reads."""

    async def called(arguments: JsonObject) -> str:
        return await handler()

    act = Tool("act", "Act.", {"type": "object"}, called, parallel=parallel)
    model = stage.model([[call("act", id="a"), call("look", id="b"), call("act", id="c")], "Done."])
    result = await run(talker(model, tools=[act, look]), "Go.")
    assert result.unwrap() == "Done."
    return stage.tool_results(1)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("handler", ORDINARY, ids=lambda handler: handler.__name__)
async def test_a_cancellation_or_time_out_of_the_tools_own_is_an_error_result(
    stage: Stage, handler: Callable[[], Coroutine[Any, Any, str]], parallel: bool
) -> None:  # A21
    first, second, third = await results(stage, handler, parallel=parallel)
    assert second == ToolResult("found here", tool_use_id="b")
    assert (first.is_error, third.is_error) == (True, True)
    assert first.text.startswith("Error: ")
    if handler in (fail_in_a_group, group_with_a_cancellation):
        assert "part 1" in first.text
    if handler is raise_a_timeout:
        assert first.text == "Error: of my own"


async def test_validators_and_callbacks_may_recover_from_a_group_that_failed(stage: Stage) -> None:  # A21
    async def recover(*given: object) -> None:
        try:
            await fail_in_a_group()
        except* ValueError:
            pass

    agent = reporter(stage.model([[call("look"), report(1)]]))
    callbacks = Callbacks(on_iteration_start=recover, on_tool_call=recover, on_layer_start=recover)
    assert (await run(replace(agent, validators=[recover]), "Go.", callbacks=callbacks)).unwrap() == Report(total=1)


# A21, A22
async def test_a_signal_that_comes_up_in_a_group_with_failures_still_ends_the_run_with_a_result(stage: Stage) -> None:
    abort = Abort()

    async def stop_and_fail(*given: object) -> None:
        abort.abort("enough")
        await group_with_a_cancellation()

    agent = reporter(stage.model([report(1)]))
    result = await run(agent, "Go.", abort=abort, callbacks=Callbacks(on_layer_complete=stop_and_fail))
    assert (type(result).__name__, getattr(result, "code", None)) == ("Failure", ErrorCode.EXECUTION_CANCELLED)


# A22
async def test_a_signal_is_not_delivered_to_the_caller_when_the_run_leaves_by_an_error_of_its_own(stage: Stage) -> None:
    abort = Abort()

    def stop_and_leak(*given: object) -> None:
        abort.abort("enough")
        raise asyncio.CancelledError

    agent = reporter(stage.model([report(1)]), validators=[stop_and_leak])
    assert getattr(await run(agent, "Go.", abort=abort), "code", None) == ErrorCode.EXECUTION_CANCELLED
    await asyncio.sleep(0)


@pytest.mark.parametrize("moment", ["on_run_start", "on_layer_complete", "on_success"])
async def test_a_cancellation_that_comes_up_in_a_group_with_failures_leaves_as_a_cancellation(
    stage: Stage, moment: str
) -> None:  # A21, A22
    async def cancel_and_fail(*given: object) -> None:
        task = existing(asyncio.current_task())
        task.cancel()
        await group_with_a_cancellation()

    agent = reporter(stage.model([report(1)]))
    running = asyncio.create_task(run(agent, "Go.", callbacks=Callbacks(**{moment: cancel_and_fail})))
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_callback_that_leaks_a_cancellation_is_reported(stage: Stage) -> None:  # A21, R63
    async def on_call(*given: object) -> None:
        await leak_from_a_task()

    result = await run(talker(stage.model([call("look"), "Done."])), "Go.", callbacks=Callbacks(on_tool_call=on_call))
    assert result.unwrap() == "Done."
    assert [each.callback for each in result.metadata.callback_errors] == ["on_tool_call"]


async def test_a_time_out_around_the_run_is_the_callers(stage: Stage) -> None:  # A21, A22
    async def hang(*given: object) -> str:
        await asyncio.Event().wait()
        return "unreachable"

    hanging = Tool("hang", "Hang.", {"type": "object"}, hang)
    told = CallbackLog()
    agent = talker(stage.model([call("hang")]), tools=[hanging], limits=Limits(seconds=60))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run(agent, "Go.", callbacks=told.callbacks(), abort=Abort())
    assert not {"success", "failure"} & set(told.names)

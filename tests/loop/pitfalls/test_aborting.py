"""The caller's signal, fired in a request, in tools, validators and prompts: what still runs, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

import pytest

from journeyman import (
    Abort,
    Agent,
    CallbackContext,
    Callbacks,
    Event,
    Failure,
    Listener,
    Output,
    ProviderError,
    Rejection,
    ToolContext,
    ToolResult,
    run,
    tool,
    validation_context,
)
from journeyman import events as of
from journeyman.endings import CancelledContext
from journeyman.model import Request
from journeyman.models.scripted import call
from tests.loop.pitfalls.players import STOPPED, Report, failed, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, calls, check_balance
from tests.support.stage import Stage, broken


def firing(abort: Abort, kind: type[Event], *, number: int = 1) -> tuple[Recorder, Listener]:
    """Return a recorder, and a listener that also fires the signal at the given event of a class."""
    recorder = Recorder()

    def listen(event: Event) -> None:
        recorder(event)
        if isinstance(event, kind) and len(recorder.of(kind)) == number:
            abort.abort("enough")

    return recorder, listen


def cancelled(failure: Failure) -> tuple[str, int, int]:
    """Return what a run did when it was stopped, its attempt and its iteration."""
    context = failure.error.context
    assert isinstance(context, CancelledContext)
    assert context.reason == "enough"
    return context.doing, failure.error.attempt, failure.error.iteration


# -- in flight ---------------------------------------------------------------------------------------------------------


async def test_an_abort_before_the_answer_begins_is_a_cancellation_and_closes_the_request(stage: Stage) -> None:  # D21
    abort, told, recorder = Abort(), CallbackLog(), Recorder()

    async def hang(request: Request) -> str:
        abort.abort("enough")
        await asyncio.Event().wait()
        return "Never said."

    agent = Agent(name="a", model=stage.model([hang]), output=Output(Report))
    result = await run(agent, "Go.", abort=abort, on_event=recorder, callbacks=told.callbacks())
    failure = failed(result)
    check_balance(recorder.events)
    assert cancelled(failure) == ("calling the model", 1, 1)
    assert failure.phase == "iteration"
    assert told.names == ["run_start", "attempt_start", "iteration_start", "attempt_complete", "failure"]


async def test_an_abort_in_mid_answer_is_a_cancellation_that_counts_what_was_said(stage: Stage) -> None:  # D21, A31
    abort = Abort()
    recorder, listen = firing(abort, of.TextDelta)

    def soon(context: CallbackContext) -> None:
        if not stage.over_http:
            asyncio.get_running_loop().call_soon(abort.abort, "enough")

    model = stage.model([broken("Well, let me think.", "And think.", ending="stall")])
    result = await run(
        Agent(name="a", model=model), "Go.", abort=abort, on_event=listen, callbacks=Callbacks(on_iteration_start=soon)
    )
    failure = failed(result)
    check_balance(recorder.events)
    assert cancelled(failure) == ("calling the model", 1, 1)
    usage = failure.metadata.usage
    assert usage is not None
    assert (usage.requests, usage.input_tokens, usage.exact) == (1, 10, False)
    assert [message.role for message in failure.history] == ["user"]


async def test_an_abort_while_waiting_for_the_next_try_makes_no_further_request(stage: Stage) -> None:  # D21
    abort = Abort()
    recorder, listen = firing(abort, of.ModelRetried)
    model = stage.model([ProviderError("Slow down.", kind="rate_limited", retry_after_s=30), "Never said."])
    failure = failed(await run(Agent(name="a", model=model), "Go.", abort=abort, on_event=listen))
    check_balance(recorder.events)
    assert cancelled(failure) == ("calling the model", 1, 1)
    assert stage.n_requests == 1


# -- in tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "async"])
async def test_after_an_abort_in_a_tool_no_further_tool_runs(stage: Stage, inline: bool) -> None:  # D22
    abort = Abort()

    @tool(thread=False)
    def stop_inline() -> str:
        abort.abort("enough")
        return "stopping"

    @tool
    async def stop_later() -> str:
        abort.abort("enough")
        await asyncio.sleep(0)
        raise AssertionError("not reached")

    stop = stop_inline if inline else stop_later
    model = stage.model([[call(stop.name, id="a"), call("look", id="b"), report(1, "c")], report(1)])
    agent = Agent(name="a", model=model, tools=[stop, look], output=Output(Report))
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    check_balance(recorder.events)
    ended = ": stopping" if inline else f"! {STOPPED}"
    assert calls(recorder.events) == [f"{stop.name}#a?", f"{stop.name}#a{ended}"]
    assert cancelled(failure) == ("running tools", 1, 1)
    first = ToolResult("stopping" if inline else STOPPED, not inline, "a")
    assert failure.history[-1].content == (first, ToolResult(STOPPED, True, "b"), ToolResult(STOPPED, True, "c"))
    assert (stage.n_requests, failure.candidate) == (1, None)


async def test_an_abort_in_the_last_tool_of_a_response_is_of_that_iteration(stage: Stage) -> None:  # D22, R52
    abort = Abort()

    @tool(thread=False)
    def stop() -> str:
        abort.abort("enough")
        return "stopping"

    model = stage.model([call("look"), call("stop"), "Never said."])
    recorder = Recorder()
    failure = failed(await run(Agent(name="a", model=model, tools=[look, stop]), "Go.", abort=abort, on_event=recorder))
    check_balance(recorder.events)
    assert cancelled(failure) == ("running tools", 1, 2)
    assert [record.iterations for record in failure.metadata.attempts] == [2]
    assert stage.n_requests == 2


async def test_a_tool_that_swallows_the_cancellation_does_not_keep_the_run_going(stage: Stage) -> None:  # D22, R36
    abort = Abort()

    @tool
    async def stubborn() -> str:
        abort.abort("enough")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "went on regardless"
        return "unreachable"

    model = stage.model([[call("stubborn", id="a"), call("look", id="b")], "Never said."])
    failure = failed(await run(Agent(name="a", model=model, tools=[stubborn, look]), "Go.", abort=abort))
    assert cancelled(failure) == ("running tools", 1, 1)
    assert failure.history[-1].content == (
        ToolResult("went on regardless", tool_use_id="a"),
        ToolResult(STOPPED, is_error=True, tool_use_id="b"),
    )
    assert stage.n_requests == 1


async def test_tools_and_validators_can_see_the_signal(stage: Stage) -> None:  # D22
    abort, seen = Abort(), list[Abort | None]()

    @tool
    async def see(ctx: ToolContext) -> str:
        seen.append(ctx.abort)
        return "seen"

    def check(report: Report) -> None:
        seen.append(validation_context().abort)

    model = stage.model([[call("see"), report(1)]])
    agent = Agent(name="a", model=model, tools=[see], output=Output(Report), validators=[check])
    assert (await run(agent, "Go.", abort=abort)).unwrap() == Report(total=1)
    assert seen == [abort, abort]


# -- in validators and prompts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 99], ids=["that passes", "that rejects"])
@pytest.mark.parametrize("reflecting", [False, True])
async def test_an_abort_in_the_last_validator_is_no_success_and_asks_for_no_error_prompt(
    stage: Stage, total: int, reflecting: bool
) -> None:  # D22, A23
    abort, told = Abort(), list[Rejection]()

    def stop(report: Report) -> None:
        abort.abort("enough")
        small(report)

    def tell(rejection: Rejection) -> str:
        told.append(rejection)
        return "Again."

    agent = Agent(
        name="a",
        model=stage.model([[report(total), *([submit()] if reflecting else [])], report(1)]),
        output=Output(Report, reflection=shown if reflecting else None),
        validators=[stop],
        error_prompt=tell,
    )
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    check_balance(recorder.events)
    assert cancelled(failure) == ("validating the output", 1, 1)
    assert (failure.phase, failure.candidate) == ("validation", {"total": total})
    assert [completed.succeeded for completed in recorder.of(of.AttemptCompleted)] == [False]
    assert (told, stage.n_requests) == ([], 1)


async def test_an_abort_that_hits_a_waiting_validator_is_no_verdict(stage: Stage) -> None:  # D22
    abort = Abort()

    async def stop(report: Report) -> None:
        abort.abort("enough")
        await asyncio.Event().wait()

    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report), validators=[stop, small])
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    assert cancelled(failure) == ("validating the output", 1, 1)
    assert failure.phase == "validation"
    assert [layer.name for layer in recorder.of(of.LayerStarted)] == ["schema", "stop"]
    completed = [layer.outcome for layer in recorder.of(of.LayerCompleted)]
    assert [(outcome.name, outcome.passed) for outcome in completed] == [("schema", True), ("stop", False)]


class Interrupted(Exception): ...


def raising(abort: Abort) -> Callable[[str], NoReturn]:
    def prompt(given: str) -> NoReturn:
        abort.abort("enough")
        raise Interrupted("the prompt gave up")

    return prompt


def returning(abort: Abort) -> Callable[[str], str]:
    def prompt(given: str) -> str:
        abort.abort("enough")
        return "Go."

    return prompt


@pytest.mark.parametrize("stopping", [raising, returning])
@pytest.mark.parametrize("which", ["system", "user"])
async def test_a_prompt_function_that_stops_at_the_signal_is_a_cancellation(
    stage: Stage, stopping: Callable[[Abort], Callable[[str], str]], which: str
) -> None:  # D22
    abort, model = Abort(), stage.model(["Never asked."])
    prompt = stopping(abort)
    agent = (
        Agent(name="a", model=model, system=prompt)
        if which == "system"
        else Agent(name="a", model=model, prompt=prompt)
    )
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    check_balance(recorder.events)
    assert cancelled(failure) == ("building the prompts", 0, 0)
    assert (failure.phase, stage.n_requests) == ("prompt_generation", 0)


async def test_an_error_prompt_that_stops_at_the_signal_is_a_cancellation(stage: Stage) -> None:  # D22
    abort = Abort()

    async def tell(rejection: Rejection) -> str:
        abort.abort("enough")
        await asyncio.Event().wait()
        return "unreachable"

    model = stage.model([report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small], error_prompt=tell)
    failure = failed(await run(agent, "Go.", abort=abort))
    assert failure.code == "EXECUTION_CANCELLED"
    assert stage.n_requests == 1


# -- what is reported --------------------------------------------------------------------------------------------------


async def test_an_abort_between_attempts_is_of_the_attempt_that_ended(stage: Stage) -> None:  # D23
    abort = Abort()
    recorder, listen = firing(abort, of.AttemptCompleted)
    model = stage.model([report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small])
    failure = failed(await run(agent, "Go.", abort=abort, on_event=listen))
    check_balance(recorder.events)
    assert [started.attempt for started in recorder.of(of.AttemptStarted)] == [1]
    context = failure.error.context
    assert isinstance(context, CancelledContext)
    assert (failure.error.attempt, failure.error.iteration, failure.phase) == (1, 1, "validation")
    assert len(failure.metadata.attempts) == 1


async def test_an_abort_at_the_start_of_an_attempt_begins_no_iteration(stage: Stage) -> None:  # D23, R52
    abort = Abort()
    recorder, listen = firing(abort, of.AttemptStarted, number=2)
    model = stage.model([report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small])
    failure = failed(await run(agent, "Go.", abort=abort, on_event=listen))
    check_balance(recorder.events)
    context = failure.error.context
    assert isinstance(context, CancelledContext)
    assert (failure.error.attempt, failure.error.iteration) == (2, 0)
    assert [record.iterations for record in failure.metadata.attempts] == [1, 0]
    assert stage.n_requests == 1


async def test_an_abort_in_the_second_iteration_of_the_second_attempt_says_so(stage: Stage) -> None:  # D23, R52
    abort = Abort()
    recorder, listen = firing(abort, of.ModelResponded, number=3)
    model = stage.model([report(99), call("look"), call("look"), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    failure = failed(await run(agent, "Go.", abort=abort, on_event=listen))
    check_balance(recorder.events)
    context = failure.error.context
    assert isinstance(context, CancelledContext)
    assert (failure.error.attempt, failure.error.iteration, failure.phase) == (2, 2, "iteration")


async def test_a_signal_fired_before_the_run_stops_it_before_anything(stage: Stage) -> None:  # D21, X32
    abort, told = Abort(), CallbackLog()
    abort.abort("enough")
    prompts: list[str] = []
    agent = Agent(name="a", model=stage.model(["Never asked."]), prompt=prompts.append, run_state=prompts.append)  # pyright: ignore[reportArgumentType] - never called
    failure = failed(await run(agent, "Go.", abort=abort, callbacks=told.callbacks()))
    assert cancelled(failure) == ("building the prompts", 0, 0)
    assert (prompts, stage.n_requests, told.names) == ([], 0, ["run_start", "failure"])

"""The caller's signal, fired at every kind of moment: what runs on, what does not, and what the failure says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from journeyman import (
    Abort,
    Agent,
    CallbackContext,
    Callbacks,
    Event,
    Limits,
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
from journeyman.contexts import CancelledContext
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


def cancelled(doing: str, *, attempt: int, iteration: int) -> CancelledContext:
    return CancelledContext(reason="enough", doing=doing, attempt=attempt, iteration=iteration)


# -- in flight ---------------------------------------------------------------------------------------------------------


async def test_an_abort_in_mid_answer_is_a_cancellation_and_closes_the_request(stage: Stage) -> None:  # D21, A23
    abort, told = Abort(), CallbackLog()
    recorder, listen = firing(abort, of.TextDelta)
    model = stage.model([broken("Well, let me think.", "And think.", ending="stall")])
    agent = Agent(name="a", model=model, output=Output(Report))
    before = asyncio.all_tasks()
    if stage.over_http:
        listen = recorder

        def on_start(context: CallbackContext) -> None:
            asyncio.get_running_loop().call_later(0.05, abort.abort, "enough")

        callbacks = Callbacks(on_iteration_start=on_start, on_failure=told.callbacks().on_failure)
    else:
        callbacks = Callbacks(on_iteration_start=lambda context: hang_up(abort), on_failure=told.callbacks().on_failure)
    failure = failed(await run(agent, "Go.", abort=abort, on_event=listen, callbacks=callbacks))
    check_balance(recorder.events)
    assert failure.error.context == cancelled("calling the model", attempt=1, iteration=1)
    assert (failure.phase, told.names) == ("iteration", ["failure"])
    assert asyncio.all_tasks() - before == set() or stage.over_http


def hang_up(abort: Abort) -> None:
    asyncio.get_running_loop().call_soon(abort.abort, "enough")

"""Every way in which a run can end: balanced events, one last callback, errors of callbacks kept, calls paired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import pytest

from journeyman import (
    Abort,
    Agent,
    CallbackContext,
    Callbacks,
    ErrorCode,
    Escalate,
    Failure,
    Limits,
    Output,
    ProviderError,
    Result,
    Usage,
    dump_messages,
    load_messages,
    run,
    tool,
)
from journeyman.history import History
from journeyman.model import Response
from journeyman.models.scripted import call, say
from journeyman.types import StopReason
from tests.loop.pitfalls.players import Report, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage, Staged

OUTPUT = Output(Report)
REFLECTED = Output(Report, reflection=shown)


def raises(*given: object) -> Any:  # noqa: ANN401 - stands for a function of any type
    raise LookupError("broken")


def escalate(stopping: object) -> Escalate:
    return Escalate("not like this")


def meddle(report: Report) -> None:
    report.total = 0


def cut(reason: StopReason) -> Response:
    return Response(content=say("I").content, stop_reason=reason, usage=say().usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run, and how it ends."""

    answers: Sequence[Staged] = ()
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    input: object = "Go."
    code: ErrorCode | None = None
    attempts: int = 0
    """How many attempts begin."""
    aborted: bool = False

    async def run(self, stage: Stage, **more: Any) -> Result[object]:  # noqa: ANN401 - options of `run`
        abort = Abort()
        if self.aborted:
            abort.abort()
        options: dict[str, Any] = {"name": "a", "model": stage.model(self.answers), "tools": [look], **self.options}
        agent = Agent[Any, Any](**options)
        return await run(agent, self.input, abort=abort, **more)


SMALL: Final[dict[str, Any]] = {"output": OUTPUT, "validators": [small]}

ENDINGS: dict[str, Case] = {
    "text": Case(answers=[call("look"), "Done."], attempts=1),
    "output": Case(answers=[[call("look"), report(1)]], options=SMALL, attempts=1),
    "submitted": Case(answers=[report(1), submit()], options={"output": REFLECTED}, attempts=1),
    "second attempt": Case(answers=[report(99), report(1)], options=SMALL, attempts=2),
    "no model": Case(options={"model": "nobody:nothing"}, code=ErrorCode.MODEL_UNAVAILABLE),
    "no input": Case(input=5, code=ErrorCode.INVALID_INPUT),
    "no system": Case(options={"system": raises}, code=ErrorCode.PROMPT_GENERATION_FAILED),
    "no prompt": Case(options={"prompt": raises}, code=ErrorCode.PROMPT_GENERATION_FAILED),
    "no error prompt": Case(
        answers=[report(99)],
        options={**SMALL, "error_prompt": raises},
        code=ErrorCode.PROMPT_GENERATION_FAILED,
        attempts=1,
    ),
    "no key": Case(answers=[ProviderError("No.", kind="auth")], code=ErrorCode.API_ERROR, attempts=1),
    "error later": Case(
        answers=[report(99), call("look"), ProviderError("No.", kind="bad_request")],
        options=SMALL,
        code=ErrorCode.API_ERROR,
        attempts=2,
    ),
    "rate": Case(
        answers=[ProviderError("No.", kind="rate_limited")],
        options={"retries": 0},
        code=ErrorCode.RATE_LIMIT_ERROR,
        attempts=1,
    ),
    "too long": Case(
        answers=[ProviderError("No.", kind="context_overflow")], code=ErrorCode.CONTEXT_OVERFLOW, attempts=1
    ),
    "cut": Case(answers=[cut("max_tokens")], code=ErrorCode.TOKEN_LIMIT_EXCEEDED, attempts=1),
    "refused": Case(answers=[cut("refusal")], code=ErrorCode.MODEL_REFUSED, attempts=1),
    "no output": Case(answers=["Hm."], options=SMALL, code=ErrorCode.INVALID_RESPONSE, attempts=1),
    "nothing said": Case(answers=[say()], code=ErrorCode.INVALID_RESPONSE, attempts=1),
    "early": Case(
        answers=[[call("look"), submit()]],
        options={"output": REFLECTED},
        code=ErrorCode.SUBMIT_BEFORE_OUTPUT,
        attempts=1,
    ),
    "iterations": Case(
        answers=[call("look"), [call("look"), call("nope")]],
        options={"limits": Limits(iterations=2)},
        code=ErrorCode.MAX_ITERATIONS,
        attempts=1,
    ),
    "iterations with a draft": Case(
        answers=[report(1)],
        options={"output": REFLECTED, "limits": Limits(iterations=1)},
        code=ErrorCode.MAX_ITERATIONS,
        attempts=1,
    ),
    "attempts": Case(
        answers=[report(99), report(98), report(97)],
        options=SMALL,
        code=ErrorCode.MAX_ATTEMPTS_EXCEEDED,
        attempts=3,
    ),
    "schema": Case(
        answers=[call("output", {}), [submit(), call("output", total="x")]],
        options={"output": REFLECTED, "limits": Limits(attempts=1)},
        code=ErrorCode.MAX_ATTEMPTS_EXCEEDED,
        attempts=1,
    ),
    "budget": Case(
        answers=[say(call("look"), usage=Usage(requests=1, input_tokens=300, output_tokens=300))],
        options={"limits": Limits(tokens=800)},
        code=ErrorCode.BUDGET_EXCEEDED,
        attempts=1,
    ),
    "validator": Case(
        answers=[[call("look"), report(1)]],
        options={"output": OUTPUT, "validators": [meddle]},
        code=ErrorCode.VALIDATION_FAILED,
        attempts=1,
    ),
    "projection": Case(
        answers=[report(1)],
        options={"output": OUTPUT, "project": raises},
        code=ErrorCode.STATE_PROJECTION_FAILED,
        attempts=1,
    ),
    "guard": Case(answers=["Done."], options={"stop_guard": escalate}, code=ErrorCode.STOP_GUARD, attempts=1),
    "cancelled": Case(aborted=True, code=ErrorCode.EXECUTION_CANCELLED),
    "no run state": Case(options={"run_state": raises}, code=ErrorCode.INTERNAL_ERROR),
    "no attempt state": Case(options={"attempt_state": raises}, code=ErrorCode.INTERNAL_ERROR, attempts=1),
}

every_ending = pytest.mark.parametrize("case", ENDINGS.values(), ids=ENDINGS)


def test_the_cases_end_in_every_way_there_is() -> None:  # D35
    assert {case.code for case in ENDINGS.values()} == {None, *ErrorCode}


@every_ending
async def test_every_run_ends_as_it_must_with_one_last_callback_and_balanced_events(stage: Stage, case: Case) -> None:
    # D35, D36, D37, A28
    told, recorder = CallbackLog(), Recorder()
    result = await case.run(stage, callbacks=told.callbacks(), on_event=recorder)
    assert (result.code if isinstance(result, Failure) else None) == case.code
    check_balance(recorder.events)
    last = "failure" if case.code else "success"
    assert [name for name in told.names if name in ("success", "failure")] == [last]
    assert told.names[-1] == last
    assert told.names[0] == "run_start"
    assert told.names.count("attempt_start") == told.names.count("attempt_complete") == case.attempts
    assert told.names.count("layer_start") == told.names.count("layer_complete")
    assert len(result.metadata.attempts) == case.attempts
    assert stage.n_left == 0


@every_ending
async def test_every_call_that_was_told_has_its_result_told_once_and_by_its_id(stage: Stage, case: Case) -> None:
    # D37, D41
    told = CallbackLog()
    result = await case.run(stage, callbacks=told.callbacks())
    called = [(context.tool_use_id, context.kind) for context, _ in told.of("tool_call")]
    finished = [(context.tool_use_id, context.kind) for context, _ in told.of("tool_result")]
    assert sorted(called, key=repr) == sorted(finished, key=repr)
    assert len(set(called)) == len(called)
    assert all(context.is_error is not None for context, _ in told.of("tool_result"))
    assert len(called) == sum(stats.calls for stats in result.metadata.tools.values())


@every_ending
async def test_every_history_can_be_sent_and_stored(stage: Stage, case: Case) -> None:  # D46, A46
    result = await case.run(stage)
    history = list(result.history)
    assert History(history).export() == result.history
    assert load_messages(dump_messages(history)) == history
    if history and case.code != ErrorCode.EXECUTION_CANCELLED:
        agent = Agent(name="b", model=stage.model(["Went on."]), tools=[look])
        again = await run(agent, "And now?", history=history)
        assert again.unwrap() == "Went on."


# -- callbacks that fail -----------------------------------------------------------------------------------------------

NAMES = [each.name for each in fields(Callbacks)]


def failing(*, later: bool) -> Callbacks:
    """Return callbacks that all raise, at once or when awaited."""

    def raising(name: str) -> Callable[..., object]:
        def now(*given: object) -> None:
            raise ValueError(f"{name} failed")

        async def then(*given: object) -> None:
            await asyncio.sleep(0)
            raise ValueError(f"{name} failed")

        return then if later else now

    return Callbacks(**{name: raising(name) for name in NAMES})


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
@every_ending
async def test_callbacks_that_all_fail_change_no_ending_and_are_all_reported(
    stage: Stage, case: Case, later: bool
) -> None:  # D38, A28
    told = CallbackLog()
    expected = await case.run(stage, callbacks=told.callbacks())
    result = await case.run(stage, callbacks=failing(later=later))
    assert type(result) is type(expected)
    errors = [(each.callback, str(each.error)) for each in result.metadata.callback_errors]
    told_names = told.names[case.aborted and later :]  # the signal cuts the first one short, which is no error
    assert errors == [(f"on_{name}", f"on_{name} failed") for name in told_names]


async def test_the_error_of_the_last_callback_is_in_the_metadata_that_are_returned(stage: Stage) -> None:  # D38
    def on_success(context: CallbackContext, output: object) -> None:
        raise ValueError("too late?")

    def on_failure(context: CallbackContext, error: object) -> None:
        raise LookupError("too late?")

    callbacks = Callbacks(on_success=on_success, on_failure=on_failure)
    success = await run(Agent(name="a", model=stage.model(["Done."])), "Go.", callbacks=callbacks)
    failure = await run(Agent(name="a", model=stage.model([say()])), "Go.", callbacks=callbacks)
    assert [(each.callback, str(each.error)) for each in success.metadata.callback_errors] == [
        ("on_success", "too late?")
    ]
    assert [each.callback for each in failure.metadata.callback_errors] == ["on_failure"]


async def test_an_async_callback_is_awaited_before_the_run_goes_on(stage: Stage) -> None:  # D38
    order: list[str] = []

    @tool
    async def act() -> str:
        order.append("tool")
        return "acted"

    async def on_tool_call(context: CallbackContext, name: str, arguments: object) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        order.append("told")

    model = stage.model([call("act"), "Done."])
    await run(Agent(name="a", model=model, tools=[act]), "Go.", callbacks=Callbacks(on_tool_call=on_tool_call))
    assert order == ["told", "tool"]


# -- what callbacks learn of a call ------------------------------------------------------------------------------------


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
    await run(Agent(name="a", model=model, tools=[echo]), "Go.", callbacks=told.callbacks())
    assert [(context.tool_use_id, rest) for context, rest in told.of("tool_call")] == [
        ("a", ("echo", {"n": 1})),
        ("b", ("echo", {"n": 2})),
        ("c", ("echo", {"n": 3})),
    ]
    results = {context.tool_use_id: (rest[1], context.is_error) for context, rest in told.of("tool_result")}
    assert results == {"a": ("1", False), "b": ("2", False), "c": ("Error: three", True)}

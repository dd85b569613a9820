"""Functions around the loop that raise, models that break their word, errors of providers: all are values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from journeyman import (
    Agent,
    ErrorCode,
    Failure,
    Host,
    Output,
    ProviderError,
    Reflection,
    Success,
    ToolResult,
    Usage,
    run,
    run_sync,
    tool,
)
from journeyman.endings import ApiErrorContext, InternalContext, ModelUnavailableContext, RateLimitContext
from journeyman.errors import ProviderErrorKind
from journeyman.model import BlockFinished, Part, Request, ResponseFinished, ResponseStarted
from journeyman.models.scripted import FromFunction, Scripted, call
from journeyman.types import Message, Text
from tests.loop.pitfalls.players import Report, failed, look, report, submit
from tests.support.naming import steady_repr
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage

# -- functions of the program ------------------------------------------------------------------------------------------


class Unspeakable(Exception):
    """An error that has no words."""

    def __str__(self) -> str:
        raise Unspeakable


def broken(*given: object) -> Any:  # noqa: ANN401 - stands for a function of any type
    raise LookupError("broken")


async def broken_later(*given: object) -> Any:  # noqa: ANN401 - likewise
    await asyncio.sleep(0)
    raise LookupError("broken")


def unspeakable(*given: object) -> Any:  # noqa: ANN401 - likewise
    raise Unspeakable


def leaking(*given: object) -> Any:  # noqa: ANN401 - likewise
    raise asyncio.CancelledError


class Policy:
    name = "own"

    def __init__(self, check: Callable[..., Any]) -> None:
        self.check = check


FUNCTIONS: dict[str, tuple[ErrorCode | None, Callable[[Callable[..., Any]], dict[str, Any]]]] = {
    "system": (ErrorCode.PROMPT_GENERATION_FAILED, lambda bad: {"system": bad}),
    "prompt": (ErrorCode.PROMPT_GENERATION_FAILED, lambda bad: {"prompt": bad}),
    "run_state": (ErrorCode.INTERNAL_ERROR, lambda bad: {"run_state": bad}),
    "attempt_state": (ErrorCode.INTERNAL_ERROR, lambda bad: {"attempt_state": bad}),
    "project": (ErrorCode.STATE_PROJECTION_FAILED, lambda bad: {"project": bad}),
    "stop_guard": (ErrorCode.STOP_GUARD, lambda bad: {"stop_guard": bad}),
    "stop_after": (ErrorCode.INTERNAL_ERROR, lambda bad: {"stop_after": bad}),
    "convert": (ErrorCode.INTERNAL_ERROR, lambda bad: {"convert": bad}),
    "compaction": (ErrorCode.INTERNAL_ERROR, lambda bad: {"compaction": bad}),
    "budget": (ErrorCode.INTERNAL_ERROR, lambda bad: {"budget": [Policy(bad)]}),
    "middleware": (None, lambda bad: {"middlewares": [bad]}),
    "on_message": (None, lambda bad: {"on_message": bad}),
    "validator": (ErrorCode.MAX_ATTEMPTS_EXCEEDED, lambda bad: {"validators": [bad]}),
}
NEVER_AWAITED = {"convert", "compaction", "budget", "on_message"}


@pytest.mark.parametrize("bad", [broken, broken_later, unspeakable, leaking], ids=lambda bad: bad.__name__)
@pytest.mark.parametrize("where", FUNCTIONS)
async def test_a_function_that_raises_ends_the_run_with_a_failure_at_most(
    stage: Stage, where: str, bad: Callable[..., Any]
) -> None:  # D39, D35, D36, A21
    if bad is broken_later and where in NEVER_AWAITED:
        pytest.skip("a sync function by its contract")
    code, options = FUNCTIONS[where]
    told, recorder = CallbackLog(), Recorder()
    model = stage.model([call("look"), "Done."], repeat=True)
    agent = Agent[Any, Any](name="a", model=model, tools=[look], **options(bad))
    result = await run(agent, "Go.", max_attempts=1, callbacks=told.callbacks(), on_event=recorder)
    assert (result.code if isinstance(result, Failure) else None) == code, result
    check_balance(recorder.events)
    assert told.names[-1] == ("failure" if code else "success")


@pytest.mark.parametrize("bad", [broken, broken_later, unspeakable, leaking], ids=lambda bad: bad.__name__)
async def test_a_reflection_that_raises_is_an_error_result(stage: Stage, bad: Callable[..., Any]) -> None:  # D39, A21
    model = stage.model([report(1, "a"), submit()])
    result = await run(Agent(name="a", model=model, output=Output(Report, reflection=Reflection(bad))), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(1)[0].is_error


@pytest.mark.parametrize("bad", [broken, broken_later, unspeakable, leaking], ids=lambda bad: bad.__name__)
async def test_an_error_prompt_that_raises_is_a_failure(stage: Stage, bad: Callable[..., Any]) -> None:  # D39, A21
    model = stage.model([report(1)], repeat=True)
    agent = Agent(name="a", model=model, output=Output(Report), validators=[broken], error_prompt=bad)
    assert failed(await run(agent, "Go.")).code == ErrorCode.PROMPT_GENERATION_FAILED


@pytest.mark.parametrize("bad", [broken, unspeakable, leaking], ids=lambda bad: bad.__name__)
async def test_a_listener_that_raises_is_reported_and_goes_on_being_told(
    stage: Stage, bad: Callable[..., Any]
) -> None:  # D38, A21
    told: list[object] = []

    def listen(event: object) -> None:
        told.append(event)
        bad()

    result = await run(Agent(name="a", model=stage.model(["Done."])), "Go.", on_event=listen)
    assert isinstance(result, Success)
    assert len(result.metadata.callback_errors) == len(told) > 5


async def test_a_failure_of_a_state_function_names_it_and_carries_its_error(stage: Stage) -> None:  # D39
    failure = failed(await run(Agent(name="a", model=stage.model([]), run_state=broken), "Go."))
    assert isinstance(failure.error.context, InternalContext)
    assert "run_state" in failure.error.context.where
    assert failure.error.context.error == "LookupError: broken"
    assert isinstance(failure.error.cause, LookupError)


# -- models that are not there, or break their word --------------------------------------------------------------------


async def test_a_missing_key_is_a_failure_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:  # D39, M9
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    told = CallbackLog()
    agent = Agent(name="a", model="anthropic:claude-sonnet-5-5")
    failure = failed(await run(agent, "Go.", callbacks=told.callbacks()))
    assert failure.code == ErrorCode.MODEL_UNAVAILABLE
    assert isinstance(failure.error.context, ModelUnavailableContext)
    assert "ANTHROPIC_API_KEY" in failure.error.hint
    assert told.names == ["run_start", "failure"]


class Odd:
    """A model that gives the parts it is told to."""

    provider = "odd"
    name = "odd"

    def __init__(self, *parts: Part | BaseException) -> None:
        self.parts = parts

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        yield self._parts()

    async def _parts(self) -> AsyncIterator[Part]:
        for part in self.parts:
            if isinstance(part, BaseException):
                raise part
            yield part


async def test_a_response_without_usage_is_an_answer_of_unknown_use() -> None:  # D39, A31
    model = Odd(BlockFinished(Text("Done.")), ResponseFinished("end_turn"))
    result = await run(Agent(name="a", model=model), "Go.")
    assert result.unwrap() == "Done."
    assert result.metadata.usage == Usage(requests=1, exact=False)


@pytest.mark.parametrize(
    "error",
    [TypeError("no credentials"), ValueError("streaming is required"), RuntimeError(), Unspeakable(), KeyError("id")],
    ids=lambda error: type(error).__name__,
)
async def test_a_model_that_raises_anything_has_failed_as_a_provider(error: Exception) -> None:  # D39, A29, M9
    seen = Usage(requests=1, input_tokens=7)
    result = await run(Agent(name="a", model=Odd(ResponseStarted("odd", "", seen), error), retries=0), "Go.")
    failure = failed(result)
    assert (failure.code, failure.phase) == (ErrorCode.API_ERROR, "iteration")
    assert isinstance(failure.error.context, ApiErrorContext)
    assert failure.error.context.kind == "unknown"
    assert type(error).__name__ in failure.error.message
    assert failure.metadata.usage == Usage(requests=1, input_tokens=7, exact=False)


async def test_a_model_that_cannot_even_be_asked_has_failed_as_a_provider() -> None:  # D39
    class Closed(Odd):
        def stream(self, request: Request) -> Any:  # noqa: ANN401 - it gives nothing
            raise OSError("closed")

    failure = failed(await run(Agent(name="a", model=Closed()), "Go."))
    assert failure.code == ErrorCode.API_ERROR


async def test_a_model_that_does_not_open_is_a_failure() -> None:  # D39
    class Shut(Odd):
        @asynccontextmanager
        async def open(self) -> AsyncGenerator[None]:
            raise OSError("shut")
            yield

    recorder = Recorder()
    failure = failed(await run(Agent(name="a", model=Shut()), "Go.", on_event=recorder))
    assert failure.code == ErrorCode.INTERNAL_ERROR
    check_balance(recorder.events)


async def test_a_model_given_by_the_host_is_asked_instead_of_the_agents(stage: Stage) -> None:  # D39, D46
    agent = Agent(name="a", model="nobody:nothing")
    assert (await run(agent, "Go.", host=Host(model=stage.model(["Done."])))).unwrap() == "Done."


@pytest.mark.parametrize("history", ["hello", [1], [None], 5, [{"role": "user"}]], ids=steady_repr)
async def test_a_history_that_is_none_is_an_invalid_input(stage: Stage, history: object) -> None:  # D39
    agent = Agent(name="a", model=stage.model([]))
    failure = failed(await run(agent, "Go.", history=cast("Sequence[Message]", history)))
    assert (failure.code, stage.n_requests) == (ErrorCode.INVALID_INPUT, 0)


def test_run_sync_gives_failures_as_values_too() -> None:  # D39
    failure = failed(run_sync(Agent(name="a", model=Scripted([])), "Go."))
    assert failure.code == ErrorCode.API_ERROR


# -- errors of the provider --------------------------------------------------------------------------------------------


async def test_an_api_error_says_all_that_the_provider_said(stage: Stage) -> None:  # D40
    error = ProviderError(
        "Bad field.", kind="bad_request", status=400, type="invalid_request_error", request_id="req_7"
    )
    failure = failed(await run(Agent(name="a", model=stage.model([call("look"), error]), tools=[look]), "Go."))
    context = failure.error.context
    assert isinstance(context, ApiErrorContext)
    assert (context.kind, context.status, context.type) == ("bad_request", 400, "invalid_request_error")
    assert (context.request_id, failure.error.attempt, failure.error.iteration) == ("req_7", 1, 2)
    assert "Bad field." in context.message
    assert failure.error.hint
    assert isinstance(failure.error.cause, ProviderError)


async def test_a_rate_limit_that_holds_on_is_an_error_of_its_own(stage: Stage) -> None:  # D40
    error = ProviderError("Slow down.", kind="rate_limited", status=429, request_id="req_9", retry_after_s=3600)
    failure = failed(await run(Agent(name="a", model=stage.model([error])), "Go."))
    assert failure.code == ErrorCode.RATE_LIMIT_ERROR
    context = failure.error.context
    assert isinstance(context, RateLimitContext)
    assert (context.status, context.request_id, context.retry_after_s) == (429, "req_9", 3600)
    assert (failure.error.attempt, failure.error.iteration, stage.n_requests) == (1, 1, 1)


KINDS: Sequence[ProviderErrorKind] = (
    *("rate_limited", "overloaded", "timeout", "network", "auth", "quota", "content_filtered"),
    *("stream_idle", "stream_cut", "context_overflow", "bad_request", "not_found", "unknown"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_provider_error_has_an_ending_with_a_hint(kind: ProviderErrorKind) -> None:  # D40, R73
    model = Scripted([ProviderError("No.", kind=kind)])
    failure = failed(await run(Agent(name="a", model=model, retries=0), "Go."))
    codes = {"rate_limited": ErrorCode.RATE_LIMIT_ERROR, "context_overflow": ErrorCode.CONTEXT_OVERFLOW}
    assert failure.code == codes.get(kind, ErrorCode.API_ERROR)
    assert failure.error.hint
    assert "No." in failure.error.message


async def test_tokens_used_before_an_api_error_are_kept_and_no_attempt_is_made_again(stage: Stage) -> None:  # D40, A29
    model = stage.model([call("look"), ProviderError("No.", kind="bad_request"), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report))
    failure = failed(await run(agent, "Go.", max_attempts=5))
    usage = failure.metadata.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, stage.n_requests) == (10, 5, 2)
    assert failure.history[-1].content == (ToolResult("found here", tool_use_id="call_1_0"),)


# -- leaks -------------------------------------------------------------------------------------------------------------


async def test_a_tool_that_leaks_a_cancellation_of_its_own_has_failed(stage: Stage) -> None:  # A21
    @tool
    async def leak() -> str:
        inner = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0)
        inner.cancel()
        await inner
        return "unreachable"

    model = stage.model([[call("leak", id="a"), call("look", id="b")], "Done."])
    result = await run(Agent(name="a", model=model, tools=[leak, look]), "Go.")
    assert result.unwrap() == "Done."
    first, second = stage.tool_results(1)
    assert (first.is_error, second) == (True, ToolResult("found here", tool_use_id="b"))


async def test_a_conversion_that_leaves_nothing_to_send_is_a_failure(stage: Stage) -> None:  # D39
    def nothing(messages: Sequence[Message]) -> Sequence[Message]:
        return ()

    model = FromFunction(lambda request: "Done." if request.messages else ProviderError("No.", kind="bad_request"))
    failure = failed(await run(Agent(name="a", model=model, convert=nothing), "Go."))
    assert failure.code == ErrorCode.API_ERROR

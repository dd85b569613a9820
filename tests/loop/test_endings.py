"""How a run fails: each code with its facts, its phase, its words, and what to do about it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import pytest

from journeyman import (
    Agent,
    Ending,
    ErrorCode,
    Failure,
    Limits,
    Output,
    ProviderError,
    RunError,
    Settings,
    run,
    run_sync,
    stream,
)
from journeyman.endings import (
    ApiErrorContext,
    CancelledContext,
    Category,
    Context,
    InternalContext,
    InvalidInputContext,
    InvalidResponseContext,
    ModelUnavailableContext,
    RateLimitContext,
    RefusedContext,
    TruncatedContext,
)
from journeyman.models.scripted import Scripted, call, say
from journeyman.types import StopReason
from tests.loop.players import Report, context_of, failed, look, place_of, report, small, succeeded
from tests.support.recorder import Recorder, calls, check_balance, transcript
from tests.support.stage import Stage

CONTEXTS: list[type[Any]] = list(get_args(Context))


# -- a closed set ------------------------------------------------------------------------------------------------------


def test_every_code_has_facts_of_its_own() -> None:  # R39, X27, X28, A43
    assert sorted(context.code for context in CONTEXTS) == sorted(ErrorCode)
    assert all(is_dataclass(context) and context.__doc__ for context in CONTEXTS)
    assert all(context.category in get_args(Category) for context in CONTEXTS)


def test_the_codes_are_those_of_the_product_document() -> None:  # A43, R27, R44, R52, R65, X35, X36, X37, X38, D16
    assert set(ErrorCode) == {
        "MODEL_UNAVAILABLE",
        "INVALID_INPUT",
        "PROMPT_GENERATION_FAILED",
        "API_ERROR",
        "RATE_LIMIT_ERROR",
        "CONTEXT_OVERFLOW",
        "TOKEN_LIMIT_EXCEEDED",
        "MODEL_REFUSED",
        "INVALID_RESPONSE",
        "SUBMIT_BEFORE_OUTPUT",
        "MAX_ITERATIONS",
        "MAX_ATTEMPTS_EXCEEDED",
        "BUDGET_EXCEEDED",
        "VALIDATION_FAILED",
        "STATE_PROJECTION_FAILED",
        "STOP_GUARD",
        "EXECUTION_CANCELLED",
        "INTERNAL_ERROR",
    }


def _example(context: type[Any]) -> object:
    """Return facts of this class with some value in each field."""
    values: dict[str, Any] = {"issues": ("total: too large",), "kind": "unknown", "hint": "Look for the key."}
    return context(
        **{each.name: values.get(each.name, "3" if "str" in str(each.type) else 3) for each in fields(context)}
    )


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.code)
def test_every_ending_says_what_happened_and_what_to_do(context: type[Any]) -> None:  # R73, X27, X28
    ending = Ending(_example(context))  # pyright: ignore[reportArgumentType] - one of them
    assert ending.code == context.code
    assert str(ending) == f"{ending.code}: {ending.message}"
    assert len(ending.message) > 10
    assert len(ending.hint) > 10
    assert context.__dataclass_params__.frozen


# -- the model fails ---------------------------------------------------------------------------------------------------


async def test_a_failed_model_call_carries_what_the_provider_said(stage: Stage) -> None:  # X37, A29, D40
    error = ProviderError("No such model.", kind="not_found", status=404, type="not_found_error", request_id="req_7")
    recorder = Recorder()
    agent = Agent(name="tester", model=stage.model([call("look"), error]), tools=[look], output=Output(Report))
    result = failed(await run(agent, "Go.", on_event=recorder))
    context = context_of(result, ApiErrorContext)
    assert (context.kind, context.status, context.type, context.request_id) == (
        "not_found",
        404,
        "not_found_error",
        "req_7",
    )
    assert (failed(result).error.attempt, failed(result).error.iteration, result.phase) == (1, 2, "iteration")
    assert "No such model." in result.error.message
    assert result.error.hint == "Check the model's name and the base URL."
    assert isinstance(result.error.cause, ProviderError)
    assert len(result.metadata.attempts) == 1
    check_balance(recorder.events)


async def test_a_rate_limit_that_holds_on_has_a_code_of_its_own(stage: Stage) -> None:  # X38, A29, D40
    error = ProviderError("Slow down.", kind="rate_limited", status=429, retry_after_s=7, request_id="req_9")
    agent = Agent(name="tester", model=stage.model([error]), retries=0)
    result = await run(agent, "Go.")
    assert failed(result).code == "RATE_LIMIT_ERROR"
    context = context_of(result, RateLimitContext)
    assert (context.status, context.retry_after_s, context.request_id) == (429, 7, "req_9")


async def test_a_conversation_that_is_too_long_has_a_code_of_its_own(stage: Stage) -> None:  # A29
    error = ProviderError("prompt is too long", kind="context_overflow")
    result = await run(Agent(name="tester", model=stage.model([error])), "Go.")
    assert failed(result).error.iteration == 1


async def test_a_model_that_breaks_its_contract_ends_the_run_with_an_error_value() -> None:  # A29, D39
    def breaks(request: object) -> str:
        raise TypeError("missing credentials")

    result = await run(Agent(name="tester", model=Scripted([breaks])), "Go.")
    context = context_of(result, ApiErrorContext)
    assert context.kind == "unknown"
    assert "TypeError: missing credentials" in context.message


async def test_a_model_that_nobody_knows_is_unavailable() -> None:  # D39
    result = failed(await run(Agent(name="tester", model="nobody:nothing"), "Go."))
    assert result.phase == "prompt_generation"
    assert context_of(result, ModelUnavailableContext).model == "nobody:nothing"
    assert "anthropic" in result.error.hint


# -- the model stops otherwise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["max_tokens", "context_window"])
async def test_a_truncated_response_runs_no_tools(stage: Stage, reason: StopReason) -> None:  # X38, A30, D24
    model = stage.model([say("I look", call("look", id="a"), stop_reason=reason)])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), settings=Settings(max_tokens=1_000))
    result = await run(agent, "Go.", on_event=recorder)
    assert (context_of(result, TruncatedContext), place_of(result)) == (
        TruncatedContext(stop_reason=reason, max_tokens=1_000),
        (1, 1),
    )
    assert calls(recorder.events) == []
    assert transcript(failed(result).history) == [
        ("user", "Go."),
        ("assistant", "I look", "look({})#a"),
        ("user", f"#a! Error: not run, because the response stopped with '{reason}'."),
    ]


async def test_a_truncated_response_may_be_asked_for_again_once(stage: Stage) -> None:  # A30
    model = stage.model([say("Hel", stop_reason="max_tokens"), "Hello."])
    limits = Limits(extended_max_tokens=4_000)
    agent = Agent(name="tester", model=model, limits=limits, settings=Settings(max_tokens=1_000))
    result = await run(agent, "Go.")
    assert succeeded(result).output == "Hello."
    assert [request.max_tokens for request in stage.requests] == [1_000, 4_000]
    assert transcript(result.history) == [("user", "Go."), ("assistant", "Hello.")]
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 2


async def test_a_refusal_has_a_code_of_its_own(stage: Stage) -> None:  # A30, D24
    refusal = replace(say("I will not.", stop_reason="refusal"), stop_detail="cyber")
    model = stage.model([call("look"), refusal])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert (context_of(result, RefusedContext), place_of(result)) == (
        RefusedContext(refusal="cyber", text="I will not."),
        (1, 2),
    )


async def test_a_paused_turn_is_taken_up_again(stage: Stage) -> None:  # A30, D24
    model = stage.model([say("Wait.", stop_reason="pause_turn"), say("Here: ", call("look", id="a")), "Done."])
    result = await run(Agent(name="tester", model=model, tools=[look]), "Go.")
    assert succeeded(result).output == "Done."
    assert transcript(stage.messages(1)) == [("user", "Go."), ("assistant", "Wait.")]
    assert transcript(stage.messages(2)) == [
        ("user", "Go."),
        ("assistant", "Wait.", "Here: ", "look({})#a"),
        ("user", "#a: found here"),
    ]
    assert [message.continues for message in result.history] == [False, False, True, False, False]


async def test_pauses_count_as_iterations(stage: Stage) -> None:  # A11
    model = stage.model([say("Wait.", stop_reason="pause_turn")], repeat=True)
    agent = Agent(name="tester", model=model, limits=Limits(iterations=3))
    assert failed(await run(agent, "Go.")).code == "MAX_ITERATIONS"
    assert stage.n_requests == 3


async def test_a_stop_reason_of_the_future_is_an_invalid_response(stage: Stage) -> None:  # A30, D24, M7
    strange = replace(say("Hm.", call("look", id="a"), stop_reason="other"), stop_detail="taking_a_walk")
    recorder = Recorder()
    agent = Agent(name="tester", model=stage.model([strange]), tools=[look], output=Output(Report))
    result = await run(agent, "Go.", on_event=recorder)
    assert context_of(result, InvalidResponseContext).stop_detail == "taking_a_walk"
    assert calls(recorder.events) == []


async def test_tool_use_without_a_call_is_an_invalid_response(stage: Stage) -> None:  # D6
    model = stage.model([say("Hm.", stop_reason="tool_use")])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert failed(result).code == "INVALID_RESPONSE"
    assert failed(result).history[-1].role == "assistant"


# -- before any call ---------------------------------------------------------------------------------------------------


async def test_an_input_that_does_not_fit_ends_the_run_before_any_call(stage: Stage) -> None:  # A32
    agent = Agent(name="tester", model=stage.model(["Hello."]), input=Report)
    result = await run(agent, {"total": "many"})  # pyright: ignore[reportArgumentType] - this is the test
    assert failed(result).phase == "prompt_generation"
    assert context_of(result, InvalidInputContext).issues[0].startswith("total")
    assert stage.n_requests == 0


async def test_a_state_function_that_raises_is_an_internal_error(stage: Stage) -> None:  # D39, A43
    def state(given: str) -> object:
        raise ValueError("no state")

    agent = Agent(name="tester", model=stage.model(["Hello."]), run_state=state)
    assert context_of(await run(agent, "Go."), InternalContext) == InternalContext(
        where="Agent.run_state", error="ValueError: no state"
    )
    assert stage.n_requests == 0


# -- results are values ------------------------------------------------------------------------------------------------


async def test_a_success_gives_its_output() -> None:  # X26
    result = succeeded(await run(Agent(name="tester", model=Scripted([report()]), output=Output(Report)), "Go."))
    assert result.unwrap() == Report(total=3)
    assert result.unwrap_or(None) == Report(total=3)
    doubled = result.map(lambda report: report.total * 2)
    assert (doubled.output, doubled.history) == (6, result.history)


async def test_a_failure_gives_the_default_or_raises(stage: Stage) -> None:  # X26
    result = await run(Agent(name="tester", model=stage.model(["Hello."]), output=Output(Report)), "Go.")
    assert isinstance(result, Failure)
    assert result.unwrap_or(None) is None
    assert result.map(str) is result
    with pytest.raises(RunError, match=r"INVALID_RESPONSE: The model stopped .* Say in the system prompt") as raised:
        result.unwrap()
    assert raised.value.failure is result


def test_a_program_without_a_loop_gets_the_same_result() -> None:  # X26
    agent = Agent(name="tester", model=Scripted([report()]), output=Output(Report))
    assert succeeded(run_sync(agent, "Go.")).output == Report(total=3)


async def test_every_run_carries_its_facts(stage: Stage) -> None:  # R66, X22, X36
    model = stage.model([report(7), report(8, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small], limits=Limits(attempts=2))
    metadata = failed(await run(agent, "Go.")).metadata
    assert metadata.latency_s > 0
    assert metadata.callback_errors == ()
    assert [record.report.passed for record in metadata.attempts if record.report] == [False, False]
    assert metadata.children == ()


async def test_latency_is_in_seconds_of_the_loops_clock() -> None:  # X22
    async with stream(Agent(name="tester", model=Scripted(["Hello."])), "Go.") as events:
        async for _ in events:
            pass
    assert 0 <= events.result.metadata.latency_s < 5


def test_a_cancelled_run_says_what_it_was_doing() -> None:  # R52, X33
    context = CancelledContext(reason="enough", doing="running tools")
    assert str(Ending(context)) == "EXECUTION_CANCELLED: Cancelled while running tools: enough."

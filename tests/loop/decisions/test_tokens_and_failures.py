"""What a provider's error becomes, which tokens are counted, and what a failure carries for whoever picks it up."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from journeyman import (
    Agent,
    ErrorCode,
    Failure,
    Limits,
    Observability,
    Output,
    Price,
    ProviderError,
    Result,
    RunError,
    Success,
    Usage,
    dump_messages,
    load_messages,
    run,
)
from journeyman import endings as facts
from journeyman import events as of
from journeyman.endings import Context
from journeyman.errors import ProviderErrorKind
from journeyman.model import Response
from journeyman.models.scripted import Scripted, call, say
from journeyman.types import StopReason, ToolUse
from tests.loop.pitfalls.players import TOO_LARGE, Report, failed, look, report, shown, small, submit
from tests.support.recorder import Recorder, check_balance, transcript
from tests.support.stage import Stage, Staged, broken

# -- errors of the provider --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code", "asked"),
    [
        ("auth", ErrorCode.API_ERROR, 1),
        ("quota", ErrorCode.API_ERROR, 1),
        ("not_found", ErrorCode.API_ERROR, 1),
        ("bad_request", ErrorCode.API_ERROR, 1),
        ("overloaded", ErrorCode.API_ERROR, 3),
        ("timeout", ErrorCode.API_ERROR, 3),
        ("rate_limited", ErrorCode.RATE_LIMIT_ERROR, 3),
        ("context_overflow", ErrorCode.CONTEXT_OVERFLOW, 1),
    ],
)
async def test_an_error_of_the_provider_is_terminal_once_its_retries_are_used_up(
    stage: Stage, kind: ProviderErrorKind, code: ErrorCode, asked: int
) -> None:  # A29
    error = ProviderError("No.", kind=kind, retry_after_s=0)
    recorder = Recorder()
    agent = Agent(name="a", model=stage.model([error], repeat=True), output=Output(Report))
    failure = failed(await run(agent, "Go.", max_attempts=5, on_event=recorder))
    check_balance(recorder.events)
    assert (failure.code, failure.phase, stage.n_requests) == (code, "iteration", asked)
    assert len(failure.metadata.attempts) == 1
    assert [event.request for event in recorder.of(of.ModelRetried)] == list(range(1, asked))
    assert len(recorder.of(of.ModelRestarted)) == asked - 1


async def test_a_provider_that_asks_for_a_long_wait_is_not_asked_again(stage: Stage) -> None:  # A29
    error = ProviderError("Come back tomorrow.", kind="rate_limited", retry_after_s=86_400)
    failure = failed(await run(Agent(name="a", model=stage.model([error])), "Go."))
    context = failure.error.context
    assert isinstance(context, facts.RateLimitContext)
    assert (context.retry_after_s, stage.n_requests) == (86_400, 1)


# -- tokens ------------------------------------------------------------------------------------------------------------


def using(*blocks: ToolUse | str, reason: StopReason | None = None, tokens: int = 10) -> Response:
    return say(*blocks, stop_reason=reason, usage=Usage(requests=1, input_tokens=tokens, output_tokens=1))


ENDS: dict[str, tuple[list[Staged], int, int]] = {
    "refused": ([using(call("look")), using("No.", reason="refusal")], 2, 20),
    "cut": ([using("I", reason="max_tokens")], 1, 10),
    "invalid": ([using(report(99)), using("Hm.")], 2, 20),
    "rejected": ([using(report(99)), using(report(98))], 2, 20),
    "success": ([using(call("look")), using(report(99)), using(call("look")), using(report(1))], 4, 40),
    "early": ([using(submit())], 1, 10),
    "error": ([using(call("look")), ProviderError("No.", kind="bad_request", usage=Usage())], 1, 10),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_response_that_came_is_counted_whatever_it_was(stage: Stage, end: str) -> None:  # A31
    answers, n_responses, tokens = ENDS[end]
    recorder = Recorder()
    output = Output(Report, reflection=shown) if end == "early" else Output(Report)
    agent = Agent(name="a", model=stage.model(answers), tools=[look], output=output, validators=[small])
    result = await run(agent, "Go.", max_attempts=2, on_event=recorder)
    usage = result.metadata.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (tokens, n_responses)
    assert sum((record.usage for record in result.metadata.attempts), Usage()) == usage
    responded = [event.usage.input_tokens for event in recorder.of(of.ModelResponded)]
    assert sum(responded) == tokens
    if end != "error":
        assert usage == Usage(requests=n_responses, input_tokens=tokens, output_tokens=n_responses)


async def test_tokens_that_nobody_reported_stay_unknown_and_are_not_zero(stage: Stage) -> None:  # A31, X20
    model = stage.model([using(call("look")), "Done."])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    usage = result.metadata.usage
    assert usage is not None
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (None, None, None)
    assert usage.cost is None


async def test_the_use_of_a_response_that_broke_off_is_a_lower_bound(stage: Stage) -> None:  # A31
    for ending in ("cut", "error"):
        recorder = Recorder()
        agent = Agent(name="a", model=stage.model([broken("I will", "not say", ending=ending)]), retries=0)
        failure = failed(await run(agent, "Go.", on_event=recorder))
        check_balance(recorder.events)
        usage = failure.metadata.usage
        assert usage is not None
        assert (failure.code, usage.requests, usage.input_tokens) == (ErrorCode.API_ERROR, 1, 10)
        assert not usage.exact


async def test_tokens_that_are_not_tracked_are_not_reported(stage: Stage) -> None:  # A31, R60
    recorder = Recorder()
    agent = Agent(
        name="a",
        model=stage.model([using(call("look")), "Done."], price=Price(input=1, output=1)),
        tools=[look],
        observability=Observability(track_tokens=False),
    )
    result = await run(agent, "Go.", on_event=recorder)
    assert result.metadata.usage is None
    assert [event.usage.requests for event in recorder.of(of.ModelResponded)] == [1, 1]


async def test_what_a_priced_model_used_has_a_cost(stage: Stage) -> None:  # A31
    usage = Usage(requests=1, input_tokens=1_000, output_tokens=100, cache_read_tokens=500, cache_write_tokens=200)
    model = stage.model(
        [say(call("look"), usage=usage), say("Done.", usage=usage)],
        price=Price(input=3, output=15, cache_read=0.3, cache_write=3.75),
    )
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    assert result.metadata.usage is not None
    assert result.metadata.usage.cost == pytest.approx(2 * (3_000 + 1_500 + 150 + 750) / 1_000_000)


# -- names of failures -------------------------------------------------------------------------------------------------


def test_the_names_of_failures_are_these() -> None:  # A43, design 4.4
    assert list(ErrorCode) == [
        *("MODEL_UNAVAILABLE", "INVALID_INPUT", "PROMPT_GENERATION_FAILED", "API_ERROR", "RATE_LIMIT_ERROR"),
        *("CONTEXT_OVERFLOW", "TOKEN_LIMIT_EXCEEDED", "MODEL_REFUSED", "INVALID_RESPONSE", "SUBMIT_BEFORE_OUTPUT"),
        *("MAX_ITERATIONS", "MAX_ATTEMPTS_EXCEEDED", "BUDGET_EXCEEDED", "VALIDATION_FAILED"),
        *("STATE_PROJECTION_FAILED", "STOP_GUARD", "EXECUTION_CANCELLED", "INTERNAL_ERROR"),
    ]


def test_every_name_has_facts_of_its_own_which_cannot_be_changed() -> None:  # A43, R39
    classes: tuple[type[Context], ...] = get_args(Context)
    assert sorted(each.code for each in classes) == sorted(ErrorCode)
    context = facts.ProjectionContext(reason="broken")
    with pytest.raises(FrozenInstanceError):
        context.reason = "mended"  # type: ignore[misc]


# -- what a failure carries --------------------------------------------------------------------------------------------


async def broke_down(stage: Stage) -> Failure:
    """Run into the wall after a draft, a rejection and a tool."""
    model = stage.model([report(99, "a"), call("look", id="b"), ProviderError("No.", kind="bad_request")])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    return failed(await run(agent, "Go."))


async def test_a_failure_carries_all_that_was_gathered(stage: Stage) -> None:  # A46, R66
    failure = await broke_down(stage)
    assert failure.candidate == {"total": 99}
    assert failure.report is not None
    assert failure.report.feedback == "too large"
    assert transcript(failure.history) == [
        ("user", "Go."),
        ("assistant", 'output({"total":99})#a'),
        ("user", f"#a! {TOO_LARGE}"),
        ("assistant", "look({})#b"),
        ("user", "#b: found here"),
    ]
    assert failure.metadata.latency_s >= 0
    assert [record.iterations for record in failure.metadata.attempts] == [1, 2]


async def test_a_run_can_go_on_where_another_failed(stage: Stage) -> None:  # A46, D46
    failure = await broke_down(stage)
    stored = load_messages(dump_messages(failure.history))
    agent = Agent(name="b", model=stage.model([report(1)]), tools=[look], output=Output(Report))
    assert (await run(agent, "Now finish it.", history=stored)).unwrap() == Report(total=1)
    assert transcript(stage.messages(-1)) == [
        *transcript(failure.history)[:-1],
        ("user", "#b: found here", "Now finish it."),
    ]


async def test_a_text_that_was_rejected_is_the_candidate(stage: Stage) -> None:  # A46
    def never(text: str) -> None:
        raise ValueError("no")

    agent = Agent(name="a", model=stage.model(["One.", "Two."]), validators=[never])
    failure = failed(await run(agent, "Go.", max_attempts=2))
    assert failure.candidate == "Two."


async def test_arguments_that_are_no_object_are_the_candidate_as_they_are() -> None:  # A46
    malformed = ToolUse("a", "output", "{}", malformed='{"total": 1')
    agent = Agent(name="a", model=Scripted([malformed]), output=Output(Report), limits=Limits(attempts=1))
    assert failed(await run(agent, "Go.")).candidate == '{"total": 1'


async def test_a_failure_can_be_unwrapped_mapped_or_replaced(stage: Stage) -> None:  # A46, X26
    failure: Result[Report] = await broke_down(stage)
    with pytest.raises(RunError, match="API_ERROR") as raised:
        failure.unwrap()
    assert raised.value.failure is failure
    assert isinstance(raised.value.__cause__, ProviderError)
    assert failure.unwrap_or(None) is None
    assert failure.map(str) is failure
    success = await run(Agent(name="a", model=stage.model([report(1)]), output=Output(Report)), "Go.")
    assert isinstance(success, Success)
    doubled = success.map(lambda output: 2 * output.total)
    assert (doubled.output, doubled.history, doubled.metadata) == (2, success.history, success.metadata)

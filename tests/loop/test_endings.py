"""How a run ends: each code with its facts, its words and what to do; and what every result carries."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass
from typing import Any, Final, cast, get_args

import pytest

from journeyman import Abort, Agent, Callbacks, Failure, Limits, Result, run, run_sync, stream
from journeyman.endings import (
    ApiErrorContext,
    CancelledContext,
    Category,
    Context,
    ErrorCode,
    ErrorInfo,
    InternalContext,
    InvalidInputContext,
    ModelUnavailableContext,
    RateLimitContext,
    UnusableAnswerContext,
)
from journeyman.errors import ProviderError, ProviderErrorKind, RunError
from journeyman.events import ModelRestarted, ModelRetried, RunFailed, RunSucceeded
from journeyman.history import History
from journeyman.model import Request, Response
from journeyman.output import FailRun
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say
from journeyman.types import Message, StopReason, ToolUse, Usage, dump_messages, load_messages
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import PLAIN, REFLECTED, broken, meddle, rejected
from tests.play import Recorder, check_balance, context_of, existing, failed, look, raising, succeeded, transcript
from tests.play.agents import Report, report, reporter, small, submit, talker
from tests.play.stage import Stage, Staged
from tests.support.clock import virtual_clock
from tests.support.naming import steady_repr

CONTEXTS: list[type[Any]] = list(get_args(Context))


def test_every_code_has_facts_of_its_own() -> None:  # R39, X27, X28, A43
    codes = [context.code for context in CONTEXTS if context is not UnusableAnswerContext]
    assert sorted(codes) == sorted(ErrorCode)
    assert UnusableAnswerContext.code == ErrorCode.INVALID_RESPONSE  # the one code with two kinds of facts
    assert all(is_dataclass(context) and context.__doc__ for context in CONTEXTS)
    assert all(context.category in get_args(Category) for context in CONTEXTS)


def test_the_codes_are_those_of_the_product_document() -> None:
    # A43, R27, R44, R52, R65, X35, X36, X37, X38, D16, design 4.4
    assert list(ErrorCode) == [
        *("MODEL_UNAVAILABLE", "INVALID_INPUT", "PROMPT_GENERATION_FAILED", "API_ERROR", "RATE_LIMIT_ERROR"),
        *("CONTEXT_OVERFLOW", "TOKEN_LIMIT_EXCEEDED", "MODEL_REFUSED", "INVALID_RESPONSE", "SUBMIT_BEFORE_OUTPUT"),
        *("MAX_ITERATIONS", "MAX_ATTEMPTS_EXCEEDED", "BUDGET_EXCEEDED", "VALIDATION_FAILED"),
        *("STATE_PROJECTION_FAILED", "STOP_GUARD", "EXECUTION_CANCELLED", "INTERNAL_ERROR"),
    ]


def _example(context: type[Any]) -> object:
    """Return facts of this class with some value in each field."""
    values: dict[str, Any] = {
        "issues": ("total: too large",),
        "kind": "unknown",
        "cut_by": "budget",
        "hint": "Look for the key.",
        "advice": "Ask it later.",
    }
    return context(
        **{each.name: values.get(each.name, "3" if "str" in str(each.type) else 3) for each in fields(context)}
    )


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.code)
def test_every_ending_says_what_happened_and_what_to_do(context: type[Any]) -> None:  # R73, X27, X28, R39
    ending = ErrorInfo(_example(context))  # pyright: ignore[reportArgumentType] - one of them
    assert ending.code == context.code
    assert str(ending) == f"{ending.code}: {ending.message}"
    assert len(ending.message) > 10
    assert len(ending.hint) > 10
    with pytest.raises(FrozenInstanceError):
        setattr(_example(context), fields(context)[0].name, "another")


def test_a_cancelled_run_says_what_it_was_doing() -> None:  # R52, X33
    context = CancelledContext(reason="enough", doing="running tools")
    assert str(ErrorInfo(context)) == "EXECUTION_CANCELLED: Cancelled while running tools: enough."


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

    async def run(self, stage: Stage, by: Callable[..., Any] = run, **more: Any) -> Result[object]:
        abort = Abort()
        if self.aborted:
            abort.abort()
        options: dict[str, Any] = {"name": "a", "model": stage.model(self.answers), "tools": [look], **self.options}
        ended: Any = await by(Agent[Any, Any](**options), self.input, abort=abort, **more)
        return ended


SMALL: Final[dict[str, Any]] = {"output": PLAIN, "validators": [small]}


def escalate(stopping: object) -> FailRun:
    return FailRun("not like this")


def cut(reason: StopReason) -> Response:
    return Response(content=say("I").content, stop_reason=reason, usage=say().usage)


def case(code: str | None, *answers: Staged, attempts: int = 1, **options: Any) -> Case:
    """Return a run that begins an attempt, unless said otherwise; `options` are those of its agent."""
    return Case(code=None if code is None else ErrorCode(code), answers=answers, attempts=attempts, options=options)


REFUSED_KEY, BUSY = ProviderError("No.", kind="auth"), ProviderError("No.", kind="rate_limited")
BAD, TOO_LONG = ProviderError("No.", kind="bad_request"), ProviderError("No.", kind="context_overflow")
DEAR = Usage(requests=1, input_tokens=300, output_tokens=300)
DRAFTING: Final[dict[str, Any]] = {"output": REFLECTED}
FIRST = Limits(attempts=1)

ENDINGS: dict[str, Case] = {
    "text": case(None, call("look"), "Done."),
    "output": case(None, [call("look"), report(1)], **SMALL),
    "submitted": case(None, report(1), submit(), **DRAFTING),
    "second attempt": case(None, report(99), report(1), attempts=2, **SMALL),
    "no model": case("MODEL_UNAVAILABLE", attempts=0, model="nobody:nothing"),
    "no input": Case(input=5, code=ErrorCode.INVALID_INPUT),
    "no system": case("PROMPT_GENERATION_FAILED", attempts=0, system=broken),
    "no prompt": case("PROMPT_GENERATION_FAILED", attempts=0, prompt=broken),
    "no error prompt": case("PROMPT_GENERATION_FAILED", report(99), error_prompt=broken, **SMALL),
    "no key": case("API_ERROR", REFUSED_KEY),
    "error later": case("API_ERROR", report(99), call("look"), BAD, attempts=2, **SMALL),
    "rate": case("RATE_LIMIT_ERROR", BUSY, limits=Limits(request_retries=0)),
    "too long": case("CONTEXT_OVERFLOW", TOO_LONG),
    "cut": case("TOKEN_LIMIT_EXCEEDED", cut("max_tokens")),
    "refused": case("MODEL_REFUSED", cut("refusal")),
    "no output": case("INVALID_RESPONSE", "Hm.", **SMALL),
    "nothing said": case("INVALID_RESPONSE", say()),
    "early": case("SUBMIT_BEFORE_OUTPUT", [call("look"), submit()], **DRAFTING),
    "iterations": case("MAX_ITERATIONS", call("look"), [call("look"), call("nope")], limits=Limits(iterations=2)),
    "iterations with a draft": case("MAX_ITERATIONS", report(1), limits=Limits(iterations=1), **DRAFTING),
    "attempts": case("MAX_ATTEMPTS_EXCEEDED", report(99), report(98), report(97), attempts=3, **SMALL),
    "schema": case(
        "MAX_ATTEMPTS_EXCEEDED", call("output", {}), [submit(), call("output", total="x")], limits=FIRST, **DRAFTING
    ),
    "budget": case("BUDGET_EXCEEDED", say(call("look"), usage=DEAR), limits=Limits(tokens=800)),
    "validator": case("VALIDATION_FAILED", [call("look"), report(1)], output=PLAIN, validators=[meddle]),
    "projection": case("STATE_PROJECTION_FAILED", report(1), output=PLAIN, final_state=broken),
    "guard": case("STOP_GUARD", "Done.", stop_guard=escalate),
    "cancelled": Case(aborted=True, code=ErrorCode.EXECUTION_CANCELLED),
    "no run state": case("INTERNAL_ERROR", attempts=0, run_state=broken),
    "no attempt state": case("INTERNAL_ERROR", attempt_state=broken),
}


def test_the_cases_end_in_every_way_there_is() -> None:  # D35
    assert {case.code for case in ENDINGS.values()} == {None, *ErrorCode}


every_ending = pytest.mark.parametrize("case", ENDINGS.values(), ids=ENDINGS)


@every_ending
async def test_every_run_ends_as_it_must_with_one_last_callback_and_balanced_events(
    stage: Stage, case: Case, recorder: Recorder
) -> None:  # R9, R41, R66, X22, A28, D35, D36, D37, D41
    told = CallbackLog()
    result = await case.run(stage, callbacks=told.callbacks(), on_event=recorder)
    assert (result.code if isinstance(result, Failure) else None) == case.code
    last = "failure" if case.code else "success"
    assert [name for name in told.names if name in ("success", "failure")] == [last]
    assert (told.names[0], told.names[-1]) == ("run_start", last)
    if isinstance(result, Failure):
        assert told.of("failure")[0][1] == (result.error,)
        assert [event.error for event in recorder.of(RunFailed)] == [result.error]
    else:
        assert told.of("success")[0][1] == (result.output,)
        assert [(event.output, event.metadata) for event in recorder.of(RunSucceeded)] == [
            (result.output, result.metadata)
        ]
    assert told.names.count("attempt_start") == told.names.count("attempt_complete") == case.attempts
    assert told.names.count("layer_start") == told.names.count("layer_complete")
    assert len(result.metadata.attempts) == case.attempts
    called = [(context.tool_use_id, context.kind) for context, _ in told.of("tool_call")]
    finished = [(context.tool_use_id, context.kind) for context, _ in told.of("tool_result")]
    assert sorted(called, key=repr) == sorted(finished, key=repr)
    assert len(set(called)) == len(called) == sum(stats.calls for stats in result.metadata.tools.values())
    assert all(context.is_error is not None for context, _ in told.of("tool_result"))
    assert result.metadata.callback_errors == ()
    assert stage.n_left == 0


@every_ending
async def test_every_history_can_be_sent_and_stored(stage: Stage, case: Case) -> None:  # D46, A46
    result = await case.run(stage)
    history = list(result.history)
    assert History(history).export() == result.history
    assert load_messages(dump_messages(history)) == history
    if history and case.code != ErrorCode.EXECUTION_CANCELLED:
        again = await run(talker(stage.model(["Went on."])), "And now?", history=history)
        assert again.unwrap() == "Went on."


NAMES = [each.name for each in fields(Callbacks)]


def failing(*, later: bool) -> Callbacks:
    """Return callbacks that all raise, at once or when awaited."""

    def fails(name: str) -> Callable[..., object]:
        async def then(*given: object) -> None:
            await asyncio.sleep(0)
            raise ValueError(f"{name} failed")

        return then if later else raising(ValueError(f"{name} failed"))

    return Callbacks(**{name: fails(name) for name in NAMES})


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
@every_ending
async def test_callbacks_that_all_fail_change_no_ending_and_are_all_reported(
    stage: Stage, case: Case, later: bool
) -> None:  # R35, R63, D38, A28
    told, recorder = CallbackLog(), Recorder()
    expected = await case.run(stage, callbacks=told.callbacks())
    result = await case.run(stage, callbacks=failing(later=later), on_event=recorder)
    check_balance(recorder.events)
    assert type(result) is type(expected)
    assert result.unwrap_or(None) == expected.unwrap_or(None)
    assert transcript(result.history) == transcript(expected.history)
    errors = [(each.callback, str(each.error)) for each in result.metadata.callback_errors]
    told_names = told.names[case.aborted and later :]  # the signal cuts the first one short, which is no error
    assert errors == [(f"on_{name}", f"on_{name} failed") for name in told_names]


# X37, A29, D40
async def test_a_failed_model_call_carries_what_the_provider_said(stage: Stage, recorder: Recorder) -> None:
    error = ProviderError("No such model.", kind="not_found", status=404, type="not_found_error", request_id="req_7")
    result = failed(await run(reporter(stage.model([call("look"), error])), "Go.", on_event=recorder))
    context = context_of(result, ApiErrorContext)
    facts = (context.kind, context.status, context.type, context.request_id)
    assert facts == ("not_found", 404, "not_found_error", "req_7")
    assert (failed(result).error.attempt, failed(result).error.iteration, result.phase) == (1, 2, "iteration")
    assert "No such model." in result.error.message
    assert result.error.hint == "Check the model's name and the base URL."
    assert isinstance(result.error.cause, ProviderError)
    assert len(result.metadata.attempts) == 1


async def test_a_rate_limit_that_holds_on_is_an_error_of_its_own(stage: Stage) -> None:  # D40, X38, A29
    error = ProviderError("Slow down.", kind="rate_limited", status=429, request_id="req_9", retry_after_s=3600)
    failure = failed(await run(talker(stage.model([error])), "Go."))
    context = context_of(failure, RateLimitContext)
    assert failure.code == ErrorCode.RATE_LIMIT_ERROR
    assert (context.status, context.request_id, context.retry_after_s) == (429, "req_9", 3600)
    assert (failure.error.attempt, failure.error.iteration, stage.n_requests) == (1, 1, 1)


@pytest.mark.parametrize(
    ("kind", "code", "asked"),
    [
        *((kind, ErrorCode.API_ERROR, 1) for kind in ("auth", "quota", "not_found", "bad_request")),
        *((kind, ErrorCode.API_ERROR, 3) for kind in ("overloaded", "timeout")),
        ("rate_limited", ErrorCode.RATE_LIMIT_ERROR, 3),
        ("context_overflow", ErrorCode.CONTEXT_OVERFLOW, 1),
    ],
)
async def test_an_error_of_the_provider_is_terminal_once_its_retries_are_used_up(
    stage: Stage, kind: ProviderErrorKind, code: ErrorCode, asked: int, recorder: Recorder
) -> None:  # A29
    error = ProviderError("No.", kind=kind, retry_after_s=0)
    failure = failed(await run(reporter(stage.model([error], repeat=True)), "Go.", max_attempts=5, on_event=recorder))
    assert (failure.code, failure.phase, stage.n_requests) == (code, "iteration", asked)
    assert len(failure.metadata.attempts) == 1
    assert [event.request for event in recorder.of(ModelRetried)] == list(range(1, asked))
    assert len(recorder.of(ModelRestarted)) == asked - 1


KINDS: Sequence[ProviderErrorKind] = (
    *("rate_limited", "overloaded", "timeout", "network", "auth", "quota", "content_filtered"),
    *("stream_idle", "stream_cut", "context_overflow", "bad_request", "not_found", "unknown"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_provider_error_has_an_ending_with_a_hint(kind: ProviderErrorKind) -> None:  # D40, R73, A29
    failure = failed(
        await run(talker(ScriptedModel([ProviderError("No.", kind=kind)]), limits=Limits(request_retries=0)), "Go.")
    )
    codes = {"rate_limited": ErrorCode.RATE_LIMIT_ERROR, "context_overflow": ErrorCode.CONTEXT_OVERFLOW}
    assert failure.code == codes.get(kind, ErrorCode.API_ERROR)
    assert failure.error.iteration == 1
    assert failure.error.hint
    assert "No." in failure.error.message


async def test_a_model_that_nobody_knows_is_unavailable() -> None:  # D39, R66
    result = failed(await run(Agent(name="a", model="nobody:nothing"), "Go."))
    assert result.phase == "prompt_generation"
    assert context_of(result, ModelUnavailableContext).model == "nobody:nothing"
    assert "anthropic" in result.error.hint
    assert result.metadata.usage == Usage()
    assert result.metadata.latency_s >= 0


async def test_an_input_that_does_not_fit_ends_the_run_before_any_call(stage: Stage) -> None:  # A32
    agent = Agent(name="tester", model=stage.model(["Hello."]), input=Report)
    wrong: Any = {"total": "many"}
    result = await run(agent, wrong)
    assert failed(result).phase == "prompt_generation"
    assert context_of(result, InvalidInputContext).issues[0].startswith("total")
    assert stage.n_requests == 0


@pytest.mark.parametrize("history", ["hello", [1], [None], 5, [{"role": "user"}]], ids=steady_repr)
async def test_a_history_that_is_none_is_an_invalid_input(stage: Stage, history: object) -> None:  # D39
    failure = failed(await run(talker(stage.model([])), "Go.", history=cast("Sequence[Message]", history)))
    assert (failure.code, stage.n_requests) == (ErrorCode.INVALID_INPUT, 0)


async def test_a_state_function_that_raises_is_an_internal_error(stage: Stage) -> None:  # D39, A43
    failure = failed(await run(talker(stage.model(["Hello."]), run_state=broken), "Go."))
    assert failure.error.context == InternalContext(where="Agent.run_state", error="LookupError: broken")
    assert isinstance(failure.error.cause, LookupError)
    assert stage.n_requests == 0


async def test_a_success_gives_its_output() -> None:  # X26
    result = succeeded(await run(reporter(ScriptedModel([report()])), "Go."))
    assert result.unwrap() == Report(total=3)
    assert result.unwrap_or(None) == Report(total=3)
    doubled = result.map(lambda report: report.total * 2)
    assert (doubled.output, doubled.history, doubled.metadata) == (6, result.history, result.metadata)


async def broke_down(stage: Stage) -> Failure:
    """Run into the wall after a draft, a rejection and a tool."""
    model = stage.model([report(99, "a"), call("look", id="b"), ProviderError("No.", kind="bad_request")])
    return failed(await run(reporter(model), "Go."))


async def test_a_failure_can_be_unwrapped_mapped_or_replaced(stage: Stage) -> None:  # A46, X26
    failure: Result[Report] = await broke_down(stage)
    with pytest.raises(RunError, match=r"API_ERROR: .*No\..* ") as raised:
        failure.unwrap()
    assert failed(failure).error.hint in str(raised.value)
    assert raised.value.failure is failure
    assert isinstance(raised.value.__cause__, ProviderError)
    assert failure.unwrap_or(None) is None
    assert failure.map(str) is failure


def test_a_program_without_a_loop_gets_the_same_results() -> None:  # X26, D39
    assert succeeded(run_sync(reporter(ScriptedModel([report()])), "Go.")).output == Report(total=3)
    assert failed(run_sync(reporter(ScriptedModel([])), "Go.")).code == ErrorCode.API_ERROR


@virtual_clock
async def test_latency_is_in_seconds_of_the_loops_clock() -> None:  # X22
    async def hesitate(request: Request) -> str:
        await asyncio.sleep(2.5)
        return "Hello."

    async with stream(talker(FunctionModel(hesitate)), "Go.") as events:
        async for _ in events:
            pass
    assert events.result.metadata.latency_s == 2.5


async def test_a_failure_carries_all_that_was_gathered(stage: Stage) -> None:  # A46, R66
    failure = await broke_down(stage)
    assert failure.candidate == {"total": 99}
    assert existing(failure.report).feedback == "99 is too much"
    assert transcript(failure.history) == [
        ("user", "Go."),
        ("assistant", 'output({"total":99})#a'),
        ("user", f"#a! {rejected(99)}"),
        ("assistant", "look({})#b"),
        ("user", "#b: found here"),
    ]
    assert failure.metadata.latency_s >= 0
    assert [record.iterations for record in failure.metadata.attempts] == [1, 2]


async def test_a_run_can_go_on_where_another_failed(stage: Stage) -> None:  # A46, D46
    failure = await broke_down(stage)
    stored = load_messages(dump_messages(failure.history))
    assert (await run(reporter(stage.model([report(1)])), "Now finish it.", history=stored)).unwrap() == Report(total=1)
    assert transcript(stage.messages(-1)) == [
        *transcript(failure.history)[:-1],
        ("user", "#b: found here", "Now finish it."),
    ]


async def test_a_text_that_was_rejected_is_the_candidate(stage: Stage) -> None:  # A46
    failure = failed(await run(talker(stage.model(["One.", "Two."]), validators=[broken]), "Go.", max_attempts=2))
    assert failure.candidate == "Two."


async def test_arguments_that_are_no_object_are_the_candidate_as_they_are() -> None:  # A46
    malformed = ToolUse("a", "output", "{}", malformed='{"total": 1')
    agent = reporter(ScriptedModel([malformed]), limits=Limits(attempts=1))
    assert failed(await run(agent, "Go.")).candidate == '{"total": 1'

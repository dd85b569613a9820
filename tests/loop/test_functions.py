"""Functions around the loop: of every kind, sync or async; and what comes of those that raise."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from journeyman import Agent, Callbacks, Failure, Limits, Output, Reflection, Runtime, Tool, run
from journeyman.compaction import Compaction
from journeyman.endings import ApiErrorContext, ErrorCode, ModelUnavailableContext
from journeyman.errors import ProviderError
from journeyman.model import BlockFinished, Request, ResponseFinished, ResponseStarted
from journeyman.output import ContinueRun, PerRun, StopContext, StopGuard
from journeyman.prompt import ErrorPromptContext
from journeyman.testing.scripted import FunctionModel, call
from journeyman.tools.context import States
from journeyman.types import JsonObject, Message, Text, ToolResult, Usage
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import Speaking, Unspeakable, broken, broken_later, leaking, unspeakable
from tests.play.agents import Report, report, reporter, submit, talker
from tests.play.recorder import Recorder
from tests.play.results import context_of, failed, succeeded
from tests.play.stage import Stage
from tests.play.tools import look, make_tool

Kind = Callable[[Callable[..., Any]], Callable[..., Any]]


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def later(function: Callable[..., Any]) -> Callable[..., Any]:
    async def called(*given: object) -> object:
        await asyncio.sleep(0)
        return function(*given)

    return called


def awaitable(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: object) -> Awaitable[object]:
        return later(function)(*given)

    return called


def future(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: object) -> Awaitable[object]:
        return asyncio.ensure_future(later(function)(*given))

    return called


def bound(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(nothing: None, *given: object) -> object:
        return function(*given)

    return partial(called, None)


class Object:
    """Something to call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    async def __call__(self, *given: object) -> object:
        return self.function(*given)

    async def method(self, *given: object) -> object:
        return self.function(*given)


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    return Object(function).method


KINDS: list[Kind] = [plain, later, awaitable, future, bound, Object, method]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
async def test_a_handler_with_a_schema_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17
    def find(arguments: JsonObject) -> str:
        return f"found {arguments['n']}"

    used = Tool("find", "Find it.", {"type": "object"}, kind(find), thread=False)
    await run(talker(stage.model([call("find", n=1, id="a"), "Done."]), tools=[used]), "Go.")
    assert stage.tool_results(1) == [ToolResult("found 1", tool_use_id="a")]


# A17, R22
@each_kind
async def test_reflections_validators_and_error_prompts_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:
    def show(draft: Report) -> str:
        return f"shown {draft.total}"

    def judge(draft: Report) -> None:
        if draft.total > 10:
            raise ValueError("too large")

    def tell(rejection: ErrorPromptContext) -> str:
        return f"No: {rejection.feedback}"

    model = stage.model([report(99, "a"), submit("b"), [report(1), submit()]])
    agent = reporter(
        model, output=Output(Report, reflection=kind(show)), validators=[kind(judge)], error_prompt=kind(tell)
    )
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [ToolResult("shown 99", tool_use_id="a")]
    assert stage.tool_results(2) == [ToolResult("No: too large", is_error=True, tool_use_id="b")]


@each_kind
async def test_prompts_guards_and_predicates_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17
    def system(given: str) -> str:
        return f"You do {given}."

    def prompt(given: str) -> str:
        return f"Do {given}."

    def guard(stopping: StopContext) -> ContinueRun | None:
        return ContinueRun("More.") if stopping.text == "One." else None

    def predicate(name: str, result: ToolResult) -> bool:
        return False

    agent = talker(
        stage.model([call("look"), "One.", "Two."]),
        system=kind(system),
        prompt=kind(prompt),
        stop_guard=kind(guard),
        stop_after=kind(predicate),
    )
    assert (await run(agent, "it")).unwrap() == "Two."
    assert [text.text for text in stage.requests[0].prefix.system] == ["You do it."]
    assert (stage.texts(0), stage.texts(2)) == (["Do it."], ["More."])


@each_kind
async def test_state_functions_may_be_of_any_kind(stage: Stage, kind: Kind) -> None:  # A17, X5
    def run_state(given: str) -> str:
        return f"run of {given}"

    def attempt_state(given: str, run_state: str) -> str:
        return f"attempt of {run_state}"

    def final(states: States) -> object:
        return (states.run, states.attempt)

    agent = talker(
        stage.model(["Done."]), run_state=kind(run_state), attempt_state=kind(attempt_state), final_state=kind(final)
    )
    assert succeeded(await run(agent, "it")).state == ("run of it", "attempt of run of it")


@each_kind
async def test_callbacks_may_be_of_any_kind_and_are_awaited_in_place(stage: Stage, kind: Kind) -> None:  # A17
    told: list[str] = []

    def keep(name: str) -> Callable[..., Any]:
        return kind(lambda *given: told.append(name))

    callbacks = Callbacks(on_run_start=keep("start"), on_iteration_start=keep("iteration"), on_success=keep("success"))
    result = await run(talker(stage.model(["Done."])), "Go.", callbacks=callbacks)
    assert (told, result.metadata.callback_errors) == (["start", "iteration", "success"], ())


class Policy:
    name = "own"

    def __init__(self, check: Callable[..., Any]) -> None:
        self.check = check


FUNCTIONS: dict[str, tuple[ErrorCode | None, Callable[[Callable[..., Any]], dict[str, Any]]]] = {
    "system": (ErrorCode.PROMPT_GENERATION_FAILED, lambda bad: {"system": bad}),
    "prompt": (ErrorCode.PROMPT_GENERATION_FAILED, lambda bad: {"prompt": bad}),
    "run_state": (ErrorCode.INTERNAL_ERROR, lambda bad: {"run_state": bad}),
    "attempt_state": (ErrorCode.INTERNAL_ERROR, lambda bad: {"attempt_state": bad}),
    "final_state": (ErrorCode.STATE_PROJECTION_FAILED, lambda bad: {"final_state": bad}),
    "stop_guard": (ErrorCode.STOP_GUARD, lambda bad: {"stop_guard": bad}),
    "stop_after": (ErrorCode.INTERNAL_ERROR, lambda bad: {"stop_after": bad}),
    "transform_messages": (ErrorCode.INTERNAL_ERROR, lambda bad: {"compaction": Compaction(transform_messages=bad)}),
    "compaction": (ErrorCode.INTERNAL_ERROR, lambda bad: {"compaction": bad}),
    "budget_policies": (ErrorCode.INTERNAL_ERROR, lambda bad: {"limits": Limits(budget_policies=[Policy(bad)])}),
    "middleware": (None, lambda bad: {"tool_middleware": [bad]}),
    "on_message": (None, lambda bad: {"on_message": bad}),
    "validator": (ErrorCode.MAX_ATTEMPTS_EXCEEDED, lambda bad: {"validators": [bad]}),
}


RAISING = (broken, broken_later, unspeakable, leaking)
NEVER_AWAITED = {"transform_messages", "compaction", "budget_policies", "on_message"}
"""These are sync by their contract, so `broken_later` is none of them."""


@pytest.mark.parametrize(
    ("where", "bad"),
    [(where, bad) for where in FUNCTIONS for bad in RAISING if bad is not broken_later or where not in NEVER_AWAITED],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
async def test_a_function_that_raises_ends_the_run_with_a_failure_at_most(
    stage: Stage, where: str, bad: Callable[..., Any], recorder: Recorder
) -> None:  # D39, D35, D36, A21
    code, options = FUNCTIONS[where]
    told = CallbackLog()
    model = stage.model([call("look"), "Done."], repeat=True)
    agent = Agent[Any, Any](name="a", model=model, tools=[look], **options(bad))
    result = await run(agent, "Go.", max_attempts=1, callbacks=told.callbacks(), on_event=recorder)
    assert (result.code if isinstance(result, Failure) else None) == code, result
    assert told.names[-1] == ("failure" if code else "success")


# D39, A21, A6
@pytest.mark.parametrize("bad", RAISING, ids=lambda bad: bad.__name__)
async def test_a_reflection_that_raises_is_an_error_result(stage: Stage, bad: Callable[..., Any]) -> None:
    model = stage.model([report(1, "a"), submit()])
    result = await run(reporter(model, output=Output(Report, reflection=Reflection(bad))), "Go.")
    assert result.unwrap() == Report(total=1)
    assert stage.tool_results(1)[0].is_error


# D38, A21, R35, R63
@pytest.mark.parametrize("bad", [broken, unspeakable, leaking], ids=lambda bad: bad.__name__)
async def test_a_listener_that_raises_is_reported_and_goes_on_being_told(stage: Stage, bad: Callable[..., Any]) -> None:
    told: list[object] = []

    def listen(event: object) -> None:
        told.append(event)
        bad()

    result = succeeded(await run(talker(stage.model(["Done."])), "Go.", on_event=listen))
    assert len(result.metadata.callback_errors) == len(told) > 5
    assert type(told[-1]).__name__ == "RunSucceeded"


async def test_a_missing_key_is_a_failure_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:  # D39, M9
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    told = CallbackLog()
    failure = failed(await run(talker("anthropic:claude-sonnet-5-5"), "Go.", callbacks=told.callbacks()))
    assert context_of(failure, ModelUnavailableContext).code == ErrorCode.MODEL_UNAVAILABLE
    assert "ANTHROPIC_API_KEY" in failure.error.hint
    assert told.names == ["run_start", "failure"]


async def test_a_response_without_usage_is_an_answer_of_unknown_use() -> None:  # D39, A31
    result = await run(talker(Speaking(BlockFinished(Text("Done.")), ResponseFinished("end_turn"))), "Go.")
    assert result.unwrap() == "Done."
    assert result.metadata.usage == Usage(requests=1, input_tokens=42, output_tokens=2, exact=False)


# D39, A29, M9
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TypeError("no credentials"), "TypeError: no credentials"),
        (ValueError("streaming is required"), "ValueError: streaming is required"),
        (RuntimeError(), "RuntimeError"),
        (Unspeakable(), "Unspeakable"),
        (KeyError("id"), "KeyError: 'id'"),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_a_model_that_raises_anything_has_failed_as_a_provider(error: Exception, said: str) -> None:
    seen = Usage(requests=1, input_tokens=7)
    failure = failed(
        await run(talker(Speaking(ResponseStarted("odd", "", seen), error), limits=Limits(request_retries=0)), "Go.")
    )
    context = context_of(failure, ApiErrorContext)
    assert (context.kind, failure.phase) == ("unknown", "iteration")
    assert said in context.message
    assert said in failure.error.message
    assert failure.metadata.usage == Usage(requests=1, input_tokens=7, exact=False)


async def test_a_model_that_cannot_even_be_asked_has_failed_as_a_provider() -> None:  # D39
    class Closed(Speaking):
        def stream(self, request: Request) -> Any:  # noqa: ANN401 - it gives nothing
            raise OSError("closed")

    assert failed(await run(talker(Closed()), "Go.")).code == ErrorCode.API_ERROR


async def test_a_model_that_does_not_open_is_a_failure(recorder: Recorder) -> None:  # D39
    class Shut(Speaking):
        @asynccontextmanager
        async def open(self) -> AsyncGenerator[None]:
            raise OSError("shut")
            yield

    assert failed(await run(talker(Shut()), "Go.", on_event=recorder)).code == ErrorCode.INTERNAL_ERROR


async def test_a_model_given_by_the_host_is_asked_instead_of_the_agents(stage: Stage) -> None:  # D39, D46
    assert (
        await run(talker("nobody:nothing"), "Go.", runtime=Runtime(model=stage.model(["Done."])))
    ).unwrap() == "Done."


async def test_a_conversion_that_leaves_nothing_to_send_is_a_failure(stage: Stage) -> None:  # D39
    def nothing(messages: Sequence[Message]) -> Sequence[Message]:
        return ()

    model = FunctionModel(lambda request: "Done." if request.messages else ProviderError("No.", kind="bad_request"))
    assert (
        failed(await run(talker(model, compaction=Compaction(transform_messages=nothing)), "Go.")).code
        == ErrorCode.API_ERROR
    )


async def test_a_guard_made_per_run_shares_nothing_between_runs_and_knows_its_task(stage: Stage) -> None:
    made: list[tuple[str, str]] = []

    async def factory(agent: str, task: str) -> StopGuard:
        made.append((agent, task))
        asked = 0

        def guard(stopping: StopContext) -> ContinueRun | None:
            nonlocal asked
            asked += 1
            return ContinueRun(f"{stopping.path} {stopping.agent}: {stopping.task}") if asked == 1 else None

        return guard

    agent = talker(stage.model(["One.", "Two.", "Three.", "Four."]), stop_guard=PerRun(factory))
    assert [(await run(agent, task)).unwrap() for task in ("a", "b")] == ["Two.", "Four."]
    assert made == [("talker", "a"), ("talker", "b")]
    assert stage.texts(1)[-1] == "('talker',) talker: a"


async def test_a_guard_is_told_a_typed_task_as_json(stage: Stage) -> None:
    tasks: list[str] = []

    def guard(stopping: StopContext) -> None:
        tasks.append(stopping.task)

    model = stage.model(["Done."])
    succeeded(await run(Agent(name="typed", model=model, input=Report, stop_guard=guard), Report(total=3)))
    assert tasks == ['{"total":3}']


def no_guard(agent: str, task: str) -> int:
    return 3


def no_factory(agent: str, task: str) -> float:
    return 1 / 0


@pytest.mark.parametrize(("made", "said"), [(no_factory, "ZeroDivisionError"), (no_guard, "made 3")])
async def test_a_factory_that_makes_no_guard_fails_the_run_before_any_request(
    stage: Stage, made: Callable[[str, str], Any], said: str
) -> None:
    failure = failed(await run(talker(stage.model(["Never."]), stop_guard=PerRun(made)), "Go."))
    assert (failure.code, stage.n_requests) == ("INTERNAL_ERROR", 0)
    assert said in failure.error.message


async def test_a_factory_may_make_no_guard_for_a_run(stage: Stage) -> None:
    agent = talker(stage.model(["Done."]), stop_guard=PerRun(lambda agent, task: None))
    assert (await run(agent, "Go.")).unwrap() == "Done."


@pytest.mark.parametrize("name", ["one", "two"])
async def test_names_and_rules_may_end_a_run_together(stage: Stage, name: str) -> None:
    def is_two(name: str, result: ToolResult) -> bool:
        return result.text == "two"

    tools = [make_tool(each, each) for each in ("one", "two", "three")]
    agent = talker(stage.model([call("three"), call(name)]), tools=tools, stop_after=["one", is_two])
    assert succeeded(await run(agent, "Go.")).terminal_result == name

"""What a user's code raises and no run raises is logged: once for each run and place, and without content."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast

import pytest
from pydantic import AfterValidator, BaseModel

from journeyman import Agent, Callbacks, Chat, DefinitionError, Limits, Output, Rejected, Runtime, ToolResult, run, tool
from journeyman.endings import InvalidInputContext, ValidationContext
from journeyman.errors import ProviderError
from journeyman.journal import InMemoryJournal
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.window import Compaction
from tests.play import Report, Stage, context_of, failed, make_tool, report, reporter, submit, succeeded, talker
from tests.support.naming import steady_repr

SECRET = "what a customer wrote"


def raising(error: BaseException) -> Callable[..., Any]:
    def broken(*given: object) -> None:
        raise error

    return broken


def line_of(function: Callable[..., Any], after: int = 1) -> str:
    """Return the place of a line of a function of this file, as it is logged."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + after}"


BROKEN_AT = line_of(raising(KeyError()))


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return what was logged at a level: the sentence before the advice."""
    said = [each.getMessage() for each in caplog.records if each.name == "journeyman" and each.levelno == level]
    return [each.partition(". Set the logger")[0] for each in said]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "journeyman")


async def test_a_broken_listener_is_logged_once_in_each_run(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    broken = raising(KeyError(SECRET))
    for times in (1, 2):
        result = await run(talker(stage.model([call("look"), call("look"), "Done."])), "Go.", on_event=broken)
        assert len(result.metadata.callback_errors) > 10
        said = f"The listener raising.<locals>.broken raised KeyError at {BROKEN_AT}"
        assert lines(caplog, logging.WARNING) == [said] * times


async def test_words_and_traceback_are_for_debugging_only(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await run(talker(stage.model(["Done."])), "Go.", callbacks=Callbacks(on_success=raising(ValueError(SECRET))))
    warning, debug = [each for each in caplog.records if each.name == "journeyman"]
    assert (warning.levelno, debug.levelno) == (logging.WARNING, logging.DEBUG)
    told = f"The callback on_success raised ValueError at {BROKEN_AT}. Set the logger 'journeyman' to DEBUG"
    assert warning.getMessage().startswith(told)
    assert SECRET not in warning.getMessage()
    assert f"ValueError: {SECRET}" in debug.getMessage()
    assert debug.exc_info is not None


async def test_a_listener_that_breaks_in_a_library_is_logged_with_its_own_line(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def parse(event: object) -> None:
        Report.model_validate_json("{")

    await run(talker(stage.model(["Done."])), "Go.", on_event=parse)
    assert lines(caplog, logging.WARNING)[0].endswith(f"raised ValidationError at {line_of(parse)}")


async def test_what_raises_where_it_is_called_is_logged_without_a_line(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await run(talker(stage.model(["Done."])), "Go.", on_event=cast("Any", int))
    assert lines(caplog, logging.WARNING) == ["The listener int raised TypeError"]


class Nosy:
    def decide(self, request: object) -> Any:  # noqa: ANN401 - it decides nothing
        raise LookupError(SECRET)


async def test_a_gate_that_raises_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await run(talker(stage.model([call("look"), "Done."])), "Go.", runtime=Runtime(gate=Nosy()))
    assert lines(caplog, logging.WARNING) == [f"The gate Nosy raised LookupError at {line_of(Nosy.decide)}"]


class Strategy:
    name = "mine"

    async def view(self, messages: Any, *, excess_tokens: int) -> Any:  # noqa: ANN401 - it raises
        raise LookupError(SECRET)


async def test_a_compaction_strategy_that_raises_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    compaction = Compaction(strategies=[cast("Any", Strategy())], window_tokens=10)
    agent = talker(stage.model([call("look"), "Done."]), compaction=compaction)
    await run(agent, "Go.")
    assert [each.partition(" at ")[0] for each in lines(caplog, logging.WARNING)] == [
        "The compaction strategy 'mine' raised LookupError"
    ]


FATAL: dict[str, tuple[dict[str, Any], str]] = {
    "run_state": (
        {"run_state": raising(KeyError(SECRET))},
        "a: the run ended as INTERNAL_ERROR, since Agent.run_state",
    ),
    "system": (
        {"system": raising(KeyError(SECRET))},
        "a: the run ended as PROMPT_GENERATION_FAILED, since the system prompt",
    ),
    "prompt": (
        {"prompt": raising(KeyError(SECRET))},
        "a: the run ended as PROMPT_GENERATION_FAILED, since the user prompt",
    ),
    "final_state": (
        {"final_state": raising(KeyError(SECRET))},
        "a: the run ended as STATE_PROJECTION_FAILED, since Agent.final_state",
    ),
    "stop_guard": ({"stop_guard": raising(KeyError(SECRET))}, "The stop guard, which ends the run,"),
}


@pytest.mark.parametrize(("changes", "said"), FATAL.values(), ids=FATAL)
async def test_what_ends_the_run_is_logged_as_an_error(
    stage: Stage, changes: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed(await run(Agent(name="a", model=stage.model(["Done."]), **changes), "Go."))
    assert lines(caplog, logging.ERROR) == [f"{said} raised KeyError at {BROKEN_AT}"]
    assert lines(caplog, logging.WARNING) == []


async def test_a_tool_that_raises_is_logged_for_debugging_only(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def dig() -> None:
        raise KeyError(SECRET)

    model = stage.model([call("dig"), call("refuse"), "Done."])
    succeeded(await run(talker(model, tools=[dig, make_tool("refuse", Rejected("Not on Sundays."))]), "Go."))
    assert {each.levelno for each in caplog.records if each.name == "journeyman"} == {logging.DEBUG}
    assert lines(caplog, logging.DEBUG)[0].startswith(f"The tool dig raised KeyError at {__file__}:")
    assert not any("refuse" in each for each in lines(caplog, logging.DEBUG))


async def test_a_reflection_that_raises_is_a_bug_and_the_model_may_submit(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    output = Output(Report, reflection=raising(ValueError("no table")))
    succeeded(await run(reporter(stage.model([report(1, "a"), submit()]), output=output), "Go."))
    told = "Error: no table\nNo preview can be made; submit or revise."
    assert stage.tool_results(1) == [ToolResult(told, is_error=True, tool_use_id="a")]
    assert lines(caplog, logging.ERROR) == [f"The reflection raised ValueError at {BROKEN_AT}"]


async def test_a_reflection_that_rejects_is_no_bug(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    output = Output(Report, reflection=raising(Rejected("No.")))
    succeeded(await run(reporter(stage.model([report(1, "a"), submit()]), output=output), "Go."))
    assert stage.tool_results(1) == [ToolResult("No.", is_error=True, tool_use_id="a")]
    assert lines(caplog, logging.ERROR) == []


GROUPED = NameError("name 'limit' is not defined")
BROKEN: list[Exception] = [
    NameError("name 'limit' is not defined"),
    ModuleNotFoundError("No module named 'tables'"),
    NotImplementedError("later"),
    ExceptionGroup("both", [ValueError("small"), GROUPED]),
]


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
async def test_a_broken_validator_ends_the_run_at_once(
    stage: Stage, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:  # A33
    def check(report: Report) -> None:
        raise error

    failure = failed(await run(reporter(stage.model([report(1)], repeat=True), validators=[check]), "Go."))
    context = context_of(failure, ValidationContext)
    bug = GROUPED if error is BROKEN[-1] else error
    assert (context.layer, stage.n_requests) == ("check", 1)
    assert failure.error.message == f"Validator 'check' raised {type(bug).__name__}: {bug}, at {line_of(check)}."
    assert failure.error.cause is error
    said = "reporter: the run ended as VALIDATION_FAILED, since the validator check raised "
    assert lines(caplog, logging.ERROR) == [f"{said}{type(error).__name__} at {line_of(check)}"]


def misses_a_name(value: int) -> int:
    raise NameError("name 'limit' is not defined")


def adds_a_text(value: int) -> int:
    return value if value < 10 else value + cast("int", "")


class Broken(BaseModel):
    total: Annotated[int, AfterValidator(misses_a_name)]


class Doubtful(BaseModel):
    total: Annotated[int, AfterValidator(adds_a_text)]


@pytest.mark.parametrize("reflection", [None, steady_repr], ids=["direct", "draft"])
async def test_a_broken_validator_inside_the_output_type_ends_the_run(
    stage: Stage, reflection: Callable[[Any], str] | None
) -> None:  # A33
    output = Output(Broken) if reflection is None else Output(Broken, reflection=reflection)
    failure = failed(await run(Agent(name="a", model=stage.model([report(1)], repeat=True), output=output), "Go."))
    said = f"Validator 'schema' raised NameError: name 'limit' is not defined, at {line_of(misses_a_name)}."
    assert (failure.error.message, failure.code, stage.n_requests) == (said, "VALIDATION_FAILED", 1)


@pytest.mark.parametrize("error", [TypeError, AttributeError, RecursionError])
async def test_what_may_be_a_bug_is_told_once_and_ends_the_run_the_second_time(
    stage: Stage, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:  # A33
    def check(report: Report) -> None:
        raise error("odd")

    agent = reporter(stage.model([report(1)], repeat=True), validators=[check], limits=Limits(attempts=9))
    failure = failed(await run(agent, "Go."))
    assert (failure.code, stage.n_requests) == ("VALIDATION_FAILED", 2)
    assert failure.error.message == f"Validator 'check' raised {error.__name__}: odd again, at {line_of(check)}."
    assert "odd" in stage.tool_results(1)[0].text
    place = f"raised {error.__name__} at {line_of(check)}"
    assert lines(caplog, logging.WARNING) == [f"reporter: the validator check {place}"]
    assert len(lines(caplog, logging.ERROR)) == 1


async def test_what_may_be_a_bug_inside_the_output_type_is_told_once(stage: Stage) -> None:  # A33
    agent = Agent(name="a", model=stage.model([report(10), report(1)]), output=Output(Doubtful))
    assert succeeded(await run(agent, "Go.")).output == Doubtful(total=1)
    agent = Agent(name="a", model=stage.model([report(10), report(11)]), output=Output(Doubtful))
    assert failed(await run(agent, "Go.")).error.message.endswith(f" again, at {line_of(adds_a_text)}.")


async def test_two_lines_that_may_be_bugs_are_told_one_after_the_other(stage: Stage) -> None:  # A33
    def check(report: Report) -> None:
        if report.total == 1:
            raise TypeError("one")
        if report.total == 2:
            raise TypeError("two")

    agent = reporter(stage.model([report(1), report(2), report(3)]), validators=[check])
    assert (await run(agent, "Go.")).unwrap() == Report(total=3)


async def test_a_run_that_goes_on_from_its_journal_knows_which_line_raised_before() -> None:  # A33
    def check(report: Report) -> None:
        raise TypeError("odd")

    journal = InMemoryJournal()
    cut = ScriptedModel([report(1), ProviderError("gone", kind="auth")])
    failed(await run(reporter(cut, validators=[check]), "Go.", runtime=Runtime(journal=journal)))
    model = ScriptedModel([report(1)], repeat=True)
    failure = failed(await run(reporter(model, validators=[check]), "Go.", runtime=Runtime(journal=journal)))
    assert (failure.code, len(model.requests)) == ("VALIDATION_FAILED", 1)


class Later:
    async def __call__(self, event: object) -> None: ...


async def listen(event: object) -> None: ...


@pytest.mark.parametrize("listener", [listen, Later(), partial(listen)], ids=["function", "object", "partial"])
async def test_an_async_listener_is_refused_when_it_is_given(stage: Stage, listener: Any) -> None:  # noqa: ANN401 - wrong
    context = context_of(
        failed(await run(talker(stage.model(["Done."])), "Go.", on_event=listener)), InvalidInputContext
    )
    assert "is an async function. It is called, and not awaited: pass a plain function (def)." in context.issues[0]
    agent = talker(ScriptedModel(["Done."]))
    with pytest.raises(DefinitionError, match=r"\[INVALID_ARGUMENT\] on_event, .* is an async function"):
        Chat(agent, on_event=listener)
    async with Chat(agent) as chat:
        with pytest.raises(DefinitionError, match="is an async function"):
            chat.subscribe(listener)
    with pytest.raises(DefinitionError, match=r"\[INVALID_FUNCTION\] on_message, .* is an async function"):
        talker(ScriptedModel(["Done."]), on_message=listener)

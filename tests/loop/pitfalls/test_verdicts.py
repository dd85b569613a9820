"""Schemas that say what is required, and validators of every behaviour: what is a verdict, and what is a bug."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, cast

import pytest
from pydantic import AfterValidator, BaseModel, Field, field_serializer

from journeyman import Agent, ErrorCode, Output, Rejected, Rejection, Result, Success, Tool, ToolResult, run, tool
from journeyman.endings import AttemptsContext, PromptContext, ValidationContext
from journeyman.models.scripted import call
from journeyman.types import JsonObject
from tests.loop.pitfalls.players import TOO_LARGE, Report, failed, report, shown, small, submit
from tests.support.naming import steady_repr
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage

# -- schemas -----------------------------------------------------------------------------------------------------------


def doubled(n: int) -> int:
    return 2 * n


class Order(BaseModel):
    item: str
    amount: int = 1
    notes: list[str] = Field(default_factory=list)
    price: Annotated[int, AfterValidator(doubled)] = 5


async def test_fields_with_a_default_are_not_required_of_the_model(stage: Stage) -> None:  # D26
    result = await run(Agent(name="a", model=stage.model([call("output", item="pear")]), output=Output(Order)), "Go.")
    assert result.unwrap() == Order(item="pear")
    schema = stage.requests[0].prefix.tools[0].input_schema
    assert schema["required"] == ["item"]


async def test_a_type_that_transforms_its_values_may_be_an_output(stage: Stage) -> None:  # D26
    model = stage.model([call("output", item="pear", price=7)])
    result = await run(Agent(name="a", model=model, output=Output(Order)), "Go.")
    assert result.unwrap().price == 14


async def test_parameters_with_a_default_are_not_required_of_the_model(stage: Stage) -> None:  # D26
    @tool
    async def order(item: str, amount: int = 1) -> str:
        return f"{amount} {item}"

    model = stage.model([call("order", item="pear"), "Done."])
    await run(Agent(name="a", model=model, tools=[order]), "Go.")
    assert stage.requests[0].prefix.tools[0].input_schema["required"] == ["item"]
    assert stage.tool_results(1)[0].content == "1 pear"


# -- the arguments of tools, and drafts --------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "with a schema"])
async def test_a_tool_is_not_called_with_arguments_that_do_not_fit(stage: Stage, raw: bool) -> None:  # D43
    runs: list[object] = []

    async def order(item: str, amount: int) -> str:
        runs.append(item)
        return "ordered"

    def order_raw(arguments: JsonObject) -> str:
        runs.append(arguments)
        return "ordered"

    typed = tool(order)
    used = Tool("order", "Order.", typed.input_schema, order_raw) if raw else typed
    model = stage.model([call("order", amount="many", colour="red", id="a"), "Done."])
    told = CallbackLog()
    await run(Agent(name="a", model=model, tools=[used]), "Go.", callbacks=told.callbacks())
    (answered,) = stage.tool_results(1)
    assert answered.is_error
    for word in ("Error: Invalid arguments for tool 'order':", "item", "amount", "colour"):
        assert word in answered.text
    assert runs == []
    assert [arguments for _, arguments in told.of("tool_result")] == [("order", answered.text)]


async def test_a_draft_that_does_not_fit_is_answered_with_its_faults_and_not_reflected(stage: Stage) -> None:  # D43
    drafts: list[Report] = []

    def show(draft: Report) -> str:
        drafts.append(draft)
        return shown(draft)

    model = stage.model([call("output", totl=1), report(1), submit()])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=show))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    (answered,) = stage.tool_results(1)
    assert answered.is_error
    assert "total: is required" in answered.text
    for word in ("Traceback", "ValidationError", "pydantic", "KeyError"):
        assert word not in answered.text
    assert drafts == [Report(total=1)]


# -- validators that are wrong themselves ------------------------------------------------------------------------------


def returning(value: object) -> Callable[[Report], None]:
    def check(report: Report) -> None:
        return cast("None", value)

    return check


@pytest.mark.parametrize(
    "value", [True, False, 0, "", "too large", [], Report(total=0), ValueError("no")], ids=steady_repr
)
async def test_a_validator_that_returns_a_value_is_a_bug_of_the_program(stage: Stage, value: object) -> None:  # D27
    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report), validators=[returning(value)])
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.VALIDATION_FAILED
    context = failure.error.context
    assert isinstance(context, ValidationContext)
    assert (context.layer, failure.error.attempt) == ("check", 1)
    assert type(value).__name__ in context.reason
    assert (failure.phase, stage.n_requests) == ("validation", 1)


async def test_an_async_validator_that_returns_a_value_is_a_bug_too(stage: Stage) -> None:  # D27
    async def check(report: Report) -> None:
        await asyncio.sleep(0)
        return cast("None", report.model_copy(update={"total": 0}))

    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report), validators=[check])
    assert failed(await run(agent, "Go.")).code == ErrorCode.VALIDATION_FAILED


async def test_an_output_that_passed_may_be_changed_by_its_owner(stage: Stage) -> None:  # D27
    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report), validators=[small])
    output = (await run(agent, "Go.")).unwrap()
    output.total = 2
    assert output == Report(total=2)


class Line(BaseModel):
    name: str
    tags: dict[str, list[int]] = {}


class Invoice(BaseModel):
    lines: list[Line]
    total: float = 0.0
    secret: int = Field(default=0, exclude=True)

    @field_serializer("total")
    def rounded(self, total: float) -> str:
        return f"{total:.0f}"


INVOICE = call("output", lines=[{"name": "pear", "tags": {"a": [1]}}], total=5)


def change_a_field(invoice: Invoice) -> None:
    invoice.total = 9


def change_deep_inside(invoice: Invoice) -> None:
    invoice.lines[0].tags["a"].append(2)


def drop_a_line(invoice: Invoice) -> None:
    invoice.lines.clear()


def change_and_reject(invoice: Invoice) -> None:
    invoice.total = 9
    raise ValueError("and rejected")


async def change_later(invoice: Invoice) -> None:
    await asyncio.sleep(0)
    invoice.lines[0].name = "fig"


def change_what_is_not_dumped(invoice: Invoice) -> None:
    invoice.secret = 1


def change_less_than_is_dumped(invoice: Invoice) -> None:
    invoice.total = 5.25


MEDDLERS = [
    change_a_field,
    change_deep_inside,
    drop_a_line,
    change_and_reject,
    change_later,
    change_what_is_not_dumped,
    change_less_than_is_dumped,
]


@pytest.mark.parametrize("meddler", MEDDLERS, ids=lambda meddler: meddler.__name__)
async def test_a_validator_that_changes_the_output_is_named_and_no_attempt_is_made_again(
    stage: Stage, meddler: Callable[[Invoice], Any]
) -> None:  # D47, A33
    later: list[Invoice] = []
    model = stage.model([INVOICE, INVOICE])
    agent = Agent(name="a", model=model, output=Output(Invoice), validators=[meddler, later.append])
    failure = failed(await run(agent, "Go."))
    assert failure.code == ErrorCode.VALIDATION_FAILED
    context = failure.error.context
    assert isinstance(context, ValidationContext)
    assert (context.layer, later, stage.n_requests) == (meddler.__name__, [], 1)
    assert "changed the output" in context.reason


@pytest.mark.parametrize(
    "error",
    [
        TypeError("Cannot assign to read only property 'total' of object"),
        TypeError("'Report' object does not support item assignment"),
        TypeError("cannot change frozen instance"),
        AttributeError("mutation"),
    ],
    ids=str,
)
async def test_an_error_that_speaks_of_mutation_is_an_ordinary_rejection(stage: Stage, error: Exception) -> None:  # D47
    def check(report: Report) -> None:
        if report.total > 10:
            raise error

    agent = Agent(name="a", model=stage.model([report(99), report(1)]), output=Output(Report), validators=[check])
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert str(error) in stage.tool_results(1)[0].text


# -- what a rejection says ---------------------------------------------------------------------------------------------


class Odd(Exception):
    """An error with words of its own."""

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        return " and ".join(f"{name} is {value}" for name, value in self.facts.items())


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS: list[tuple[Exception, str]] = [
    (ValueError("x" * 5_000), "x" * 5_000),
    (Odd(total=5, limit=3), "total is 5 and limit is 3"),
    (Odd(), "Odd"),
    (ValueError(""), "ValueError"),
    (AssertionError(), "AssertionError"),
    (Rejected("too large", path=("lines", 0, "total")), "lines[0].total: too large"),
    (ExceptionGroup("both", [ValueError("one"), Rejected("two", path=("b",))]), "one\nb: two"),
    (TimeoutError(), "TimeoutError"),
    (Unspeakable(), "Unspeakable"),
]


@pytest.mark.parametrize(("error", "said"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_the_last_error_holds_all_that_the_validator_said(stage: Stage, error: Exception, said: str) -> None:
    # D31, A33
    def check(report: Report) -> None:
        raise error

    agent = Agent(name="a", model=stage.model([report(1)], repeat=True), output=Output(Report), validators=[check])
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", max_attempts=2, on_event=recorder))
    check_balance(recorder.events)
    assert failure.error.context == AttemptsContext(attempts=2, max_attempts=2, last_error=said)
    assert said in stage.tool_results(1)[0].text
    assert failure.error.cause is error
    assert failure.report is not None
    assert failure.report.layers[-1].error is error


# -- the error prompt --------------------------------------------------------------------------------------------------


async def ended(stage: Stage, tell: Callable[[Rejection], str], attempts: int) -> Result[Report]:
    model = stage.model([report(99)], repeat=True)
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small], error_prompt=tell)
    return await run(agent, "Go.", max_attempts=attempts)


@pytest.mark.parametrize("attempts", [1, 3])
async def test_the_error_prompt_is_not_built_after_the_last_attempt(stage: Stage, attempts: int) -> None:  # D32, A1
    told: list[int] = []

    def tell(rejection: Rejection) -> str:
        told.append(rejection.attempt)
        if rejection.attempt == rejection.max_attempts:
            raise RuntimeError("never called for the last")
        return f"Attempt {rejection.attempt} of {rejection.max_attempts}: {rejection.feedback}"

    failure = failed(await ended(stage, tell, attempts))
    assert failure.code == ErrorCode.MAX_ATTEMPTS_EXCEEDED
    assert told == list(range(1, attempts))
    assert stage.n_requests == attempts


async def test_an_error_prompt_that_raises_is_a_failure_of_its_attempt(stage: Stage) -> None:  # D32
    def tell(rejection: Rejection) -> str:
        raise LookupError("no template")

    failure = failed(await ended(stage, tell, 2))
    assert (failure.error.context, failure.error.attempt) == (
        PromptContext(prompt="error", reason="it raised LookupError: no template"),
        1,
    )
    assert (failure.phase, stage.n_requests) == ("prompt_generation", 1)
    assert failure.report is not None
    assert failure.report.feedback == "too large"


async def test_the_history_after_the_last_attempt_holds_the_usual_feedback(stage: Stage) -> None:  # D32
    def tell(rejection: Rejection) -> str:
        return "Again."

    failure = failed(await ended(stage, tell, 2))
    answers = [message.content[0] for message in failure.history[2::2]]
    texts = [answer.content for answer in answers if isinstance(answer, ToolResult)]
    assert texts == ["Again.", TOO_LARGE]


async def test_validators_stop_at_the_first_that_rejects_and_run_only_after_the_schema(stage: Stage) -> None:  # X10
    seen: list[str] = []

    def first(report: Report) -> None:
        seen.append("first")
        small(report)

    def second(report: Report) -> None:
        seen.append("second")

    model = stage.model([call("output", total="x"), report(99), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), validators=[first, second])
    assert isinstance(await run(agent, "Go."), Success)
    assert seen == ["first", "first", "second"]

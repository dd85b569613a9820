"""Validation: the schema first, then the validators in order, up to the first that rejects."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast

import pytest
from pydantic import AfterValidator, BaseModel, Field, field_serializer

from journeyman import Agent, ErrorCode, Limits, Output, Rejected, ToolResult, run
from journeyman.endings import AttemptsContext, ValidationContext
from journeyman.events import LayerCompleted, LayerStarted
from journeyman.loop import validation_context, validator_from
from journeyman.testing.scripted import call
from tests.loop.parts import Unspeakable, end_of
from tests.play import Recorder, Report, Stage, context_of, existing, failed, raising, report, reporter, succeeded
from tests.support.naming import steady_repr


class BillLine(BaseModel):
    amount: int
    note: str = ""


class Bill(BaseModel):
    lines: list[BillLine]
    total: int = Field(ge=0)
    paid: bool = False


BILL: dict[str, Any] = {"lines": [{"amount": 1}, {"amount": 2}], "total": 3}


def bill(**changes: object) -> Any:  # noqa: ANN401 - a block of a script
    return call("output", {**BILL, **changes}, id="out")


async def test_layers_are_run_in_order_and_told(stage: Stage, recorder: Recorder) -> None:  # X10, X11
    def adds_up(bill: Bill) -> None:
        """The total is the sum of the lines.

        More than one line of text is not told.
        """

    async def is_open(bill: Bill) -> None:
        await asyncio.sleep(0)

    agent = Agent(name="clerk", model=stage.model([bill()]), output=Output(Bill), validators=[adds_up, is_open])
    result = succeeded(await run(agent, "Go.", on_event=recorder))
    assert result.output == Bill(lines=[BillLine(amount=1), BillLine(amount=2)], total=3)
    assert [(event.name, event.kind, event.description) for event in recorder.of(LayerStarted)] == [
        ("schema", "schema", "The output must fit its type."),
        ("adds_up", "validator", "The total is the sum of the lines."),
        ("is_open", "validator", ""),
    ]
    assert [event.outcome.passed for event in recorder.of(LayerCompleted)] == [True, True, True]


async def test_after_the_first_rejection_no_layer_is_run(stage: Stage, recorder: Recorder) -> None:  # X10, X11
    judged: list[str] = []
    error = ValueError("closed")

    def first(bill: Bill) -> None:
        judged.append("first")

    def second(bill: Bill) -> None:
        judged.append("second")
        raise error

    def third(bill: Bill) -> None:
        judged.append("third")

    agent = Agent(name="clerk", model=stage.model([bill()]), output=Output(Bill), validators=[first, second, third])
    result = failed(await run(agent, "Go.", on_event=recorder, max_attempts=1))
    assert judged == ["first", "second"]
    outcomes = [event.outcome for event in recorder.of(LayerCompleted)]
    told = [(outcome.name, outcome.passed, outcome.feedback) for outcome in outcomes]
    assert told == [("schema", True, ""), ("first", True, ""), ("second", False, "closed")]
    assert outcomes[-1].error is error
    assert result.error.cause is error


async def feedback(stage: Stage, first: object, *validators: Any) -> str:
    """Return what the model reads after handing in `first`."""
    model = stage.model([first, call("output", BILL, id="o2")])  # pyright: ignore[reportArgumentType] - passed on
    agent = Agent(name="clerk", model=model, output=Output(Bill), validators=validators, limits=Limits(attempts=2))
    await run(agent, "Go.")
    result = stage.tool_results(1)[0]
    assert result.is_error
    return result.text


async def test_an_output_that_does_not_fit_never_reaches_a_validator(stage: Stage) -> None:  # X10, A24, X15
    judged: list[object] = []
    text = await feedback(stage, bill(total=-1, lines=[{"amount": "x"}, {}]), judged.append)
    assert len(judged) == 1
    lines = text.splitlines()
    assert lines[0] == "Validation failed: schema (The output must fit its type.)"
    assert {line.split(":")[0] for line in lines[1:4]} == {"- lines[0].amount", "- lines[1].amount", "- total"}
    assert "- lines[1].amount: is required" in lines
    assert lines[-1] == "Correct the output and hand it in again."


async def test_validators_may_be_async_partial_or_objects(stage: Stage, recorder: Recorder) -> None:  # X10, A17
    seen: list[str] = []

    class Judge:
        async def __call__(self, bill: Bill) -> None:
            seen.append("object")

    def at_most(limit: int, bill: Bill) -> None:
        seen.append(f"at most {limit}")

    validators: list[Any] = [Judge(), partial(at_most, 5), lambda bill: seen.append("lambda")]  # pyright: ignore[reportUnknownLambdaType]
    agent = Agent(name="clerk", model=stage.model([bill()]), output=Output(Bill), validators=validators)
    assert succeeded(await run(agent, "Go.", on_event=recorder))
    assert seen == ["object", "at most 5", "lambda"]
    assert [event.name for event in recorder.of(LayerStarted)] == ["schema", "Judge", "at_most", "<lambda>"]


async def test_a_validator_may_know_its_run(stage: Stage) -> None:  # X10
    known: list[tuple[object, int, int]] = []

    def judge(report: Report) -> None:
        facts = validation_context()
        known.append((facts.input, facts.attempt, facts.max_attempts))
        if report.total > 5:
            raise ValueError("no")

    agent = reporter(stage.model([report(7), report(2, id="o2")]), validators=[judge], limits=Limits(attempts=2))
    assert succeeded(await run(agent, "Go."))
    assert known == [("Go.", 1, 2), ("Go.", 2, 2)]
    with pytest.raises(LookupError):
        validation_context()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_that_returns_or_raises_can_be_made_a_validator(stage: Stage, kind: str) -> None:  # X14
    def check(bill: Bill) -> Bill:
        """The total is small."""
        if bill.total > 5:
            raise ValueError("large")
        return bill.model_copy(update={"total": 0})

    async def check_later(bill: Bill) -> Bill:
        """The total is small."""
        return check(bill)

    validator = validator_from(check if kind == "sync" else check_later)
    name = "check" if kind == "sync" else "check_later"
    text = await feedback(stage, bill(total=9), validator)
    assert text.startswith(f"Validation failed: {name} (The total is small.)\nlarge\n")


class Odd(Exception):
    """An error with words of its own."""

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        return " and ".join(f"{name} is {value}" for name, value in self.facts.items())


class Quiet(ValueError):
    def __bool__(self) -> bool:
        return False


ERRORS: list[tuple[Exception, str]] = [
    (ValueError("does not add up"), "does not add up"),
    (Rejected("does not add up"), "does not add up"),
    (ValueError("x" * 5_000), "x" * 5_000),
    (Odd(total=5, limit=3), "total is 5 and limit is 3"),
    (Odd(), "Odd"),
    (ValueError(""), "ValueError"),
    (ZeroDivisionError(), "ZeroDivisionError"),
    (AssertionError("half"), "half"),
    (AssertionError(), "AssertionError"),
    (Rejected("too large", path=("lines", 0, "total")), "lines[0].total: too large"),
    (ExceptionGroup("both", [ValueError("one"), Rejected("two", path=("b",))]), "one\nb: two"),
    (TimeoutError(), "TimeoutError"),
    (Unspeakable(), "Unspeakable"),
    (Quiet("still no"), "still no"),
]


@pytest.mark.parametrize(("error", "said"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_the_last_error_holds_all_that_the_validator_said(
    stage: Stage, error: Exception, said: str, recorder: Recorder
) -> None:  # X13, X15, A33, D20, D31
    agent = reporter(stage.model([report(1, "out")], repeat=True), validators=[raising(error)])
    failure = failed(await run(agent, "Go.", max_attempts=2, on_event=recorder))
    assert failure.error.context == AttemptsContext(attempts=2, max_attempts=2, last_error=said)
    read = f"Validation failed: fail\n{said}\n\nCorrect the output and hand it in again."
    assert stage.tool_results(1) == [ToolResult(read, True, "out")]
    assert failure.error.cause is error
    assert existing(failure.report).layers[-1].error is error


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
    *(change_a_field, change_deep_inside, drop_a_line, change_and_reject),
    *(change_later, change_what_is_not_dumped, change_less_than_is_dumped),
]

INVOICE = call("output", lines=[{"name": "pear", "tags": {"a": [1]}}], total=5)


@pytest.mark.parametrize("meddler", MEDDLERS, ids=lambda meddler: meddler.__name__)
async def test_a_validator_that_changes_the_output_is_named_and_no_attempt_is_made_again(
    stage: Stage, meddler: Callable[[Invoice], Any], recorder: Recorder
) -> None:  # D47, A33, X12
    later: list[Invoice] = []
    model = stage.model([INVOICE, INVOICE])
    agent = Agent(name="a", model=model, output=Output(Invoice), validators=[meddler, later.append])
    failure = failed(await run(agent, "Go.", on_event=recorder))
    context = context_of(failure, ValidationContext)
    assert (context.layer, later, stage.n_requests) == (meddler.__name__, [], 1)
    assert "changed the output" in context.reason
    assert repr(meddler.__name__) in failure.error.message
    assert failure.error.hint


def returning(value: object) -> Callable[[Report], None]:
    def check(report: Report) -> None:
        return cast("None", value)

    return check


# D27, A34
@pytest.mark.parametrize(
    "value", [True, False, 0, "", "too large", [], Report(total=0), ValueError("no")], ids=steady_repr
)
async def test_a_validator_that_returns_a_value_is_a_bug_of_the_program(stage: Stage, value: object) -> None:
    failure = failed(await run(reporter(stage.model([report(1)]), validators=[returning(value)]), "Go."))
    reason = f"returned {type(value).__name__}; it must raise to reject, and return nothing"
    assert end_of(failure)[:2] == (ValidationContext(layer="check", reason=reason), 1)
    assert (failure.phase, stage.n_requests) == ("validation", 1)


async def test_an_async_validator_that_returns_a_value_is_a_bug_too(stage: Stage) -> None:  # D27
    async def check(report: Report) -> None:
        await asyncio.sleep(0)
        return cast("None", report.model_copy(update={"total": 0}))

    agent = reporter(stage.model([report(1)]), validators=[check])
    assert failed(await run(agent, "Go.")).code == ErrorCode.VALIDATION_FAILED


def upper(text: str) -> str:
    return text.upper()


class Named(BaseModel):
    name: Annotated[str, AfterValidator(upper)]
    n: int = Field(default=3, ge=1)


async def test_the_output_is_the_value_that_the_schema_made_and_validators_saw(stage: Stage) -> None:  # A34
    seen: list[Named] = []
    model = stage.model([call("output", name="ada", n="5")])
    result = await run(Agent(name="a", model=model, output=Output(Named), validators=[seen.append]), "Go.")
    assert result.unwrap() == Named.model_construct(name="ADA", n=5)
    assert seen == [result.unwrap()]
    assert result.history[1].tool_uses[0].input == {"name": "ada", "n": "5"}


class Order(BaseModel):
    item: str
    amount: int = 1
    notes: list[str] = Field(default_factory=list)
    price: Annotated[int, AfterValidator(lambda n: 2 * n)] = 5


async def test_fields_with_a_default_are_not_required_of_the_model(stage: Stage) -> None:  # D26, X8
    result = await run(Agent(name="a", model=stage.model([call("output", item="pear")]), output=Output(Order)), "Go.")
    assert result.unwrap() == Order(item="pear")
    assert stage.requests[0].prefix.tools[0].input_schema["required"] == ["item"]

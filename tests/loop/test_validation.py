"""Validation: the schema first, then the validators in order, up to the first that rejects."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from journeyman import Agent, Limits, Output, Rejected, run, validation_context
from journeyman.endings import ValidationContext
from journeyman.events import LayerCompleted, LayerStarted
from journeyman.loop.validation import from_checker
from journeyman.models.scripted import call
from journeyman.types import ToolResult
from tests.loop.players import Report, context_of, failed, place_of, report, small, succeeded
from tests.support.recorder import Recorder, check_balance
from tests.support.stage import Stage


class Line(BaseModel):
    amount: int
    note: str = ""


class Bill(BaseModel):
    lines: list[Line]
    total: int = Field(ge=0)
    paid: bool = False


BILL: dict[str, Any] = {"lines": [{"amount": 1}, {"amount": 2}], "total": 3}


def bill(**changes: object) -> Any:  # noqa: ANN401 - a block of a script
    return call("output", {**BILL, **changes}, id="out")


async def feedback(stage: Stage, first: object, *validators: Any) -> str:  # noqa: ANN401 - passed on
    """Return what the model reads after handing in `first`."""
    model = stage.model([first, call("output", BILL, id="o2")])  # pyright: ignore[reportArgumentType] - passed on
    agent = Agent(name="clerk", model=model, output=Output(Bill), validators=validators, limits=Limits(attempts=2))
    await run(agent, "Go.")
    result = stage.tool_results(1)[0]
    assert result.is_error
    return result.text


# -- layers ------------------------------------------------------------------------------------------------------------


async def test_layers_are_run_in_order_and_told(stage: Stage) -> None:  # X10, X11
    def adds_up(bill: Bill) -> None:
        """The total is the sum of the lines.

        More than one line of text is not told.
        """

    async def is_open(bill: Bill) -> None:
        await asyncio.sleep(0)

    recorder = Recorder()
    agent = Agent(name="clerk", model=stage.model([bill()]), output=Output(Bill), validators=[adds_up, is_open])
    result = succeeded(await run(agent, "Go.", on_event=recorder))
    assert result.output == Bill(lines=[Line(amount=1), Line(amount=2)], total=3)
    assert [(event.name, event.kind, event.description) for event in recorder.of(LayerStarted)] == [
        ("schema", "schema", "The output must fit its type."),
        ("adds_up", "validator", "The total is the sum of the lines."),
        ("is_open", "validator", ""),
    ]
    assert [event.outcome.passed for event in recorder.of(LayerCompleted)] == [True, True, True]
    check_balance(recorder.events)


async def test_after_the_first_rejection_no_layer_is_run(stage: Stage) -> None:  # X10, X11
    judged: list[str] = []
    error = ValueError("closed")

    def first(bill: Bill) -> None:
        judged.append("first")

    def second(bill: Bill) -> None:
        judged.append("second")
        raise error

    def third(bill: Bill) -> None:
        judged.append("third")

    recorder = Recorder()
    agent = Agent(
        name="clerk",
        model=stage.model([bill()]),
        output=Output(Bill),
        validators=[first, second, third],
        limits=Limits(attempts=1),
    )
    result = failed(await run(agent, "Go.", on_event=recorder))
    assert judged == ["first", "second"]
    outcomes = [event.outcome for event in recorder.of(LayerCompleted)]
    assert [(outcome.name, outcome.passed, outcome.feedback) for outcome in outcomes] == [
        ("schema", True, ""),
        ("first", True, ""),
        ("second", False, "closed"),
    ]
    assert outcomes[-1].error is error
    assert result.error.cause is error
    check_balance(recorder.events)


async def test_an_output_that_does_not_fit_never_reaches_a_validator(stage: Stage) -> None:  # X10
    judged: list[object] = []
    text = await feedback(stage, bill(total=-1, lines=[{"amount": "x"}, {}]), judged.append)
    assert len(judged) == 1
    lines = text.splitlines()
    assert lines[0] == "Validation failed: schema (The output must fit its type.)"
    assert {line.split(":")[0] for line in lines[1:4]} == {"- lines[0].amount", "- lines[1].amount", "- total"}
    assert lines[-1] == "Correct the output and hand it in again."


# -- what a validator says ---------------------------------------------------------------------------------------------


def _rejects(error: BaseException) -> Any:  # noqa: ANN401 - a validator that knows the first bill by its total
    def judge(bill: Bill) -> None:
        if bill.total == 9:
            raise error

    return judge


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("does not add up"), "does not add up"),
        (Rejected("does not add up"), "does not add up"),
        (Rejected("too small", path=("lines", 1, "amount")), "lines[1].amount: too small"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (AssertionError("half"), "half"),
        (ExceptionGroup("two", [Rejected("one", path=("total",)), ValueError("two")]), "total: one\ntwo"),
        (ValueError("x" * 5_000), "x" * 5_000),
    ],
    ids=["raised", "rejected", "with a path", "without a message", "asserted", "many", "long"],
)
async def test_the_feedback_says_what_was_raised(
    stage: Stage, error: BaseException, said: str
) -> None:  # X13, X15, A33, D31
    text = await feedback(stage, bill(total=9), _rejects(error))
    assert text == f"Validation failed: judge\n{said}\n\nCorrect the output and hand it in again."


async def test_the_feedback_is_headed_by_the_layers_name_and_description(stage: Stage) -> None:  # X15
    def adds_up(bill: Bill) -> None:
        """The total is the sum of the lines."""
        if bill.total != sum(line.amount for line in bill.lines):
            raise ValueError(f"it is {sum(line.amount for line in bill.lines)}")

    text = await feedback(stage, bill(total=9), adds_up)
    assert text.startswith("Validation failed: adds_up (The total is the sum of the lines.)\nit is 3\n")


async def test_a_validators_own_exceptions_are_kept_as_they_are(stage: Stage) -> None:  # X13, D31
    class Overdrawn(Exception):
        def __init__(self, by: int) -> None:
            super().__init__(f"by {by}")
            self.by = by

    agent = Agent(
        name="clerk",
        model=stage.model([bill(total=9)]),
        output=Output(Bill),
        validators=[_rejects(Overdrawn(7))],
        limits=Limits(attempts=1),
    )
    cause = failed(await run(agent, "Go.")).error.cause
    assert isinstance(cause, Overdrawn)
    assert cause.by == 7


async def test_validators_may_be_async_partial_or_objects(stage: Stage) -> None:  # X10, A17
    seen: list[str] = []

    class Judge:
        async def __call__(self, bill: Bill) -> None:
            seen.append("object")

    def at_most(limit: int, bill: Bill) -> None:
        seen.append(f"at most {limit}")

    validators: list[Any] = [Judge(), partial(at_most, 5), lambda bill: seen.append("lambda")]  # pyright: ignore[reportUnknownLambdaType]
    recorder = Recorder()
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

    model = stage.model([report(7), report(2, id="o2")])
    agent = Agent(name="clerk", model=model, output=Output(Report), validators=[judge], limits=Limits(attempts=2))
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

    validator = from_checker(check if kind == "sync" else check_later)
    name = "check" if kind == "sync" else "check_later"
    text = await feedback(stage, bill(total=9), validator)
    assert text.startswith(f"Validation failed: {name} (The total is small.)\nlarge\n")


# -- validators judge, and do nothing else -----------------------------------------------------------------------------


async def test_a_validator_that_changes_the_output_fails_the_run(stage: Stage) -> None:  # X12, A33, D47
    def tidy(bill: Bill) -> None:
        bill.lines.clear()

    recorder = Recorder()
    agent = Agent(name="clerk", model=stage.model([bill(), bill()]), output=Output(Bill), validators=[tidy])
    result = failed(await run(agent, "Go.", on_event=recorder))
    assert result.code == "VALIDATION_FAILED"
    assert context_of(result, ValidationContext).layer == "tidy"
    assert "changed the output" in context_of(result, ValidationContext).reason
    assert stage.n_requests == 1
    check_balance(recorder.events)


async def test_a_validator_that_changes_the_output_and_raises_fails_the_run_too(stage: Stage) -> None:  # X12, D47
    def tidy(bill: Bill) -> None:
        bill.lines[0].note = "x"
        raise ValueError("untidy")

    agent = Agent(name="clerk", model=stage.model([bill(), bill()]), output=Output(Bill), validators=[tidy])
    assert failed(await run(agent, "Go.")).code == "VALIDATION_FAILED"


async def test_a_validator_that_returns_a_value_fails_the_run(stage: Stage) -> None:  # A34, D27
    def better(report: Report) -> Report:
        return Report(total=report.total + 1)

    validators: list[Any] = [better]
    agent = Agent(name="clerk", model=stage.model([report()]), output=Output(Report), validators=validators)
    result = await run(agent, "Go.")
    assert (context_of(result, ValidationContext), place_of(result)[0]) == (
        ValidationContext(layer="better", reason="returned Report; it must raise to reject, and return nothing"),
        1,
    )


async def test_the_output_is_what_the_schema_made_of_it_and_can_be_changed_by_its_owner(stage: Stage) -> None:  # A34
    agent = Agent(name="clerk", model=stage.model([call("output", BILL, total="3")]), output=Output(Bill))
    result = succeeded(await run(agent, "Go."))
    assert result.output.total == 3
    assert not result.output.paid
    result.output.lines.append(Line(amount=9))
    assert '"amount":9' not in str(result.history)


# -- what counts as an output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "handed_in", "expected"),
    [
        (list[int], [], []),
        (int, 0, 0),
        (bool, False, False),
        (str, "", ""),
        (dict[str, int], {}, {}),
        (Report | None, None, None),
        (int | str, "x", "x"),
    ],
    ids=str,
)
async def test_an_empty_output_is_an_output(
    stage: Stage,
    form: Any,  # noqa: ANN401 - a type form
    handed_in: object,
    expected: object,
) -> None:  # A16, D9, D20
    arguments = handed_in if form == dict[str, int] else {"value": handed_in}
    model = stage.model([call("output", arguments)])  # pyright: ignore[reportArgumentType] - an object
    result = await run(Agent[Any](name="clerk", model=model, output=Output(form)), "Go.")
    assert succeeded(result).output == expected
    assert stage.requests[0].prefix.tools[0].input_schema["type"] == "object"


async def test_a_missing_value_is_told_as_such(stage: Stage) -> None:  # A16
    model = stage.model([call("output", total=3, id="out"), call("output", value=[1])])
    result = await run(Agent(name="clerk", model=model, output=Output(list[int])), "Go.")
    assert succeeded(result).output == [1]
    assert "- value: " in stage.tool_results(1)[0].text


async def test_an_output_with_defaults_need_not_be_complete(stage: Stage) -> None:  # X8, D26
    result = await run(Agent(name="clerk", model=stage.model([bill()]), output=Output(Bill)), "Go.")
    assert succeeded(result)
    spec = stage.requests[0].prefix.tools[0]
    assert spec.input_schema["required"] == ["lines", "total"]


async def test_a_rejected_text_is_read_by_the_model(stage: Stage) -> None:  # X10
    def short(text: str) -> None:
        if len(text) > 5:
            raise Rejected("too long")

    result = await run(Agent(name="poet", model=stage.model(["A long poem.", "Poem."]), validators=[short]), "Go.")
    assert succeeded(result).output == "Poem."
    assert stage.texts(1) == ["Validation failed: short\ntoo long\n\nCorrect the output and hand it in again."]
    assert stage.tool_results(1) == list[ToolResult]()


async def test_a_validator_judges_a_passing_output_once(stage: Stage) -> None:  # X10
    judged: list[int] = []

    def judge(report: Report) -> None:
        judged.append(report.total)
        small(report)

    model = stage.model([report(7), report(2, id="o2")])
    assert succeeded(await run(Agent(name="clerk", model=model, output=Output(Report), validators=[judge]), "Go."))
    assert judged == [7, 2]

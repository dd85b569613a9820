"""Outputs in every form: one of several, and what a function makes of what was handed in."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from journeyman import (
    Agent,
    DefinitionError,
    Limits,
    OneOf,
    Output,
    Reflection,
    Rejected,
    Result,
    Runtime,
    SubmitTool,
    ToolContext,
    run,
    tool,
)
from journeyman.events import Event, LayerCompleted, OutputDelta, TextDelta
from journeyman.gate import Allow, Deny, GateRequest, Verdict
from journeyman.journal import InMemoryJournal
from journeyman.model import Facts, Part, Request
from journeyman.models import WrapperModel
from journeyman.record import Recordings
from journeyman.testing import Answer, ScriptedModel, StreamedAnswer, call, say
from journeyman.tools import CallNext, MiddlewareCall
from journeyman.types import ToolResult, ToolUse
from tests.play import cancelled, failed, following, make_gate, succeeded, texts


class Report(BaseModel):
    title: str
    n: int = 1


class Refund(BaseModel):
    order: str


@dataclass
class Booking:
    flight: str
    seats: int


@dataclass
class Desk:
    """An airline: it knows what was booked."""

    booked: list[str] = field(default_factory=list[str])
    full: tuple[str, ...] = ()
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    hangs: bool = False

    def output(self, **options: Any) -> Output[Booking]:
        async def book_flight(flight: str, seats: int = 1) -> Booking:
            """Book a flight.

            Args:
                flight: its number.
                seats: how many.
            """
            if flight in self.full:
                raise Rejected(f"{flight} is full")
            self.booked.append(flight)
            if self.hangs:
                self.reached.set()
                await asyncio.Event().wait()
            return Booking(flight, seats)

        return Output(book_flight, **options)


def positive(report: Report) -> None:
    """Reports have rows."""
    if report.n < 1:
        raise ValueError(f"there are {report.n} rows")


def book(flight: str, **more: object) -> ToolUse:
    return call("book_flight", {"flight": flight, **more})


async def test_each_member_has_a_tool_with_its_own_name_description_and_validators() -> None:
    """A text ends the run where `str` is among them."""
    output = OneOf(Output(Report, name="report", description="Say it.", validators=[positive]), Refund, str)
    answers = [call("report", title="a", n=0), call("output_Refund", order="o7")]
    agent = Agent(name="a", model=ScriptedModel(answers), output=output)
    assert [(each.name, each.description) for each in agent.plan.specs] == [
        ("report", "Say it."),
        ("output_Refund", "Give the final output with this tool."),
    ]
    result = succeeded(await run(agent, "Go."))
    assert result.output == Refund(order="o7")
    assert "there are 0 rows" in texts(result)[0]
    assert (
        await run(agent, "Go.", runtime=Runtime(model=ScriptedModel(["Nothing to do."])))
    ).unwrap() == "Nothing to do."


async def test_a_member_is_reflected_on_while_another_ends_the_run_at_once() -> None:
    output = OneOf(Output(Report, name="report", reflection=lambda report: f"It reads {report.title}."), Refund)
    model = ScriptedModel([call("report", title="a"), call("report", title="b"), call("submit")])
    result = succeeded(await run(Agent(name="a", model=model, output=output), "Go."))
    assert (result.output, texts(result)[:2]) == (Report(title="b"), ["It reads a.", "It reads b."])
    model = ScriptedModel([call("report", title="a"), call("output_Refund", order="o7")])
    assert (await run(Agent(name="a", model=model, output=output), "Go.")).unwrap() == Refund(order="o7")
    early = failed(await run(Agent(name="a", model=ScriptedModel([call("submit")]), output=output), "Go."))
    assert (early.code, "proposed anything with 'report'" in early.error.message) == ("SUBMIT_BEFORE_OUTPUT", True)


async def test_of_several_in_one_response_the_last_counts() -> None:
    calls = [call("output_Report", title="a"), call("output_Refund", order="o7")]
    result = succeeded(await run(Agent(name="a", model=ScriptedModel([calls]), output=OneOf(Report, Refund)), "Go."))
    assert (result.output, "superseded" in texts(result)[0]) == (Refund(order="o7"), True)


async def test_a_model_that_stops_without_any_is_told_all_that_would_do() -> None:
    output = OneOf(Output(Report, reminder=True), Refund)
    model = ScriptedModel(["Hello.", call("output_Refund", order="o7")])
    result = succeeded(await run(Agent(name="a", model=model, output=output), "Go."))
    assert "hand in the result with 'output_Report' or 'output_Refund'." in result.history[2].text
    silent = failed(await run(Agent(name="a", model=ScriptedModel(["Hi."]), output=OneOf(Report, Refund)), "Go."))
    assert "without calling 'output_Report' or 'output_Refund'" in silent.error.message


async def test_a_growing_output_says_whose_it_is() -> None:
    events: list[Event] = []
    answer = StreamedAnswer(say("I write.", call("output_Report", title="Rain", n=2)), size=12)
    agent = Agent(name="a", model=ScriptedModel([answer]), output=OneOf(Report, Output(list[int], name="numbers"), str))
    assert (await run(agent, "Go.", on_event=events.append)).unwrap() == Report(title="Rain", n=2)
    deltas = [each for each in events if isinstance(each, OutputDelta)]
    assert {(each.tool_name, each.is_wrapped) for each in deltas} == {("output_Report", False)}
    assert deltas[-1].partial(Report) == Report(title="Rain", n=2)
    assert "".join([each.text for each in events if isinstance(each, TextDelta)]) == "I write."


async def test_two_types_of_one_name_are_one_tool_in_a_union_and_need_names_as_members() -> None:
    def other() -> type[BaseModel]:
        class Report(BaseModel):
            pages: int

        return Report

    short = other()
    union: Any = Report | short
    agent = Agent(name="a", model=ScriptedModel([call("output", value={"pages": 3})]), output=Output(union))
    assert (await run(agent, "Go.")).unwrap() == short.model_validate({"pages": 3})
    with pytest.raises(DefinitionError, match="2 members of OneOf are named 'output_Report'"):
        Agent(name="a", model="a:b", output=OneOf(Report, short))


async def test_a_function_gets_the_arguments_that_passed_and_makes_the_output() -> None:
    desk, events = Desk(full=("LH1",)), list[Event]()

    def known(arguments: dict[str, Any]) -> None:
        """Flights are of Lufthansa."""
        if not arguments["flight"].startswith("LH"):
            raise ValueError(f"{arguments['flight']} is not known")

    model = ScriptedModel([book("X"), book("LH1"), book("LH2", seats="many"), book("LH2", seats=2)])
    agent = Agent(name="a", model=model, output=desk.output(validators=[known]), limits=Limits(attempts=4))
    [spec] = agent.plan.specs
    assert (spec.name, spec.description) == ("book_flight", "Book a flight.")
    assert spec.input_schema["required"] == ["flight"]
    result = succeeded(await run(agent, "Go.", on_event=events.append))
    assert (result.output, desk.booked) == (Booking("LH2", 2), ["LH2"])
    assert ["X is not known" in texts(result)[0], "LH1 is full" in texts(result)[1]] == [True, True]
    assert "The output was not made" in texts(result)[1]
    layers = [(each.outcome.kind, each.outcome.passed) for each in events if isinstance(each, LayerCompleted)]
    assert layers[2:5] == [("schema", True), ("validator", True), ("function", False)]


async def test_a_function_runs_once_after_submit() -> None:
    desk = Desk()
    output = desk.output(reflection=lambda arguments: f"To be booked: {arguments['flight']}")  # pyright: ignore[reportUnknownLambdaType]
    model = ScriptedModel([book("LH1"), book("LH2"), call("submit")])
    result = succeeded(await run(Agent(name="a", model=model, output=output), "Go."))
    assert (desk.booked, result.output, texts(result)[1]) == (["LH2"], Booking("LH2", 1), "To be booked: LH2")


@pytest.mark.parametrize("mode", ["native", "prompted", "auto"])
async def test_a_function_makes_the_output_of_an_answer_without_a_tool(
    mode: Literal["native", "prompted", "auto"],
) -> None:
    desk = Desk(full=("LH1",))
    answers: list[Answer] = [book("LH1"), book("LH2")]
    if mode != "auto":
        answers = ['{"flight": "LH1"}', '{"flight": "LH2"}']
    agent = Agent(name="a", model=ScriptedModel(answers), output=desk.output(mode=mode))
    assert ((await run(agent, "Go.")).unwrap(), desk.booked) == (Booking("LH2", 1), ["LH2"])


async def test_a_function_is_a_tool_as_far_as_gates_middlewares_deps_and_time_are_concerned() -> None:
    seen: list[str] = []

    @tool(effect="once", timeout_s=0.01)
    async def slow(context: ToolContext[str], n: int) -> int:
        await asyncio.sleep(0 if n else 60)
        context.progress(context.deps)
        return n

    async def note(call: MiddlewareCall, call_next: CallNext) -> ToolResult:
        seen.append(call.tool_name)
        return await call_next(call) if call.arguments["n"] != 2 else ToolResult("no")

    def no_threes(request: GateRequest) -> Verdict:
        seen.append(f"{request.tool_name} {request.effect}")
        return Deny("no threes") if request.arguments == {"n": 3} else Allow()

    answers = [call("slow", n=n) for n in (0, 2, 3, 4)]
    agent = Agent(
        name="a",
        model=ScriptedModel(answers),
        output=Output(slow),
        deps=str,
        gate=make_gate(no_threes),
        tool_middleware=[note],
        limits=Limits(attempts=4),
    )
    result = succeeded(await run(agent, "Go.", deps="db"))
    assert result.output == 4
    told = texts(result)
    assert ["timed out" in told[0], "was not called" in told[1], "denied: no threes" in told[2]] == [True] * 3
    assert (seen.count("slow"), seen.count("slow once")) == (3, 4)
    assert result.metadata.n_calls == 0


async def test_a_function_that_returns_another_type_than_it_declares_ends_the_run() -> None:
    def broken(n: int) -> Report:
        return {"n": n}  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - the point of the test

    result = failed(
        await run(Agent(name="a", model=ScriptedModel([call("broken", n=1)]), output=Output(broken)), "Go.")
    )
    assert (result.code, "made no such output as it declares" in result.error.message) == ("VALIDATION_FAILED", True)


async def live(desk: Desk, agent: Agent[Any], journal: InMemoryJournal) -> Result[Any] | None:
    """Let a run live until it ends, or until it is in the middle of the function; None: it died there."""
    living = asyncio.create_task(run(agent, "Go.", runtime=Runtime(journal=journal)))
    dying = asyncio.create_task(desk.reached.wait())
    await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    await asyncio.wait({dying})
    if living.done():
        return living.result()
    await cancelled(living)
    desk.hangs, desk.reached = False, asyncio.Event()
    return None


@pytest.mark.parametrize("submits", [True, False])
async def test_a_function_that_died_in_the_middle_is_told_as_unknown_and_not_repeated(submits: bool) -> None:
    desk, journal = Desk(hangs=True), InMemoryJournal()
    ends = [call("submit")] if submits else []
    output = desk.output(effect="once", reflection=str if submits else None)
    agent = Agent(name="a", model=following(book("LH1"), *ends, book("LH2"), *ends), output=output)
    assert await live(desk, agent, journal) is None
    result = succeeded(await live(desk, agent, journal))
    assert (desk.booked, result.output) == (["LH1", "LH2"], Booking("LH2", 1))
    told = [each for each in texts(result) if "whether it took effect is unknown" in each]
    assert len(told) == 1
    assert "The output was not made" in told[0]


async def test_an_idempotent_function_that_died_is_called_again() -> None:
    desk, journal = Desk(hangs=True), InMemoryJournal()
    agent = Agent(name="a", model=following(book("LH1")), output=desk.output(effect="idempotent"))
    assert await live(desk, agent, journal) is None
    assert (succeeded(await live(desk, agent, journal)).output, desk.booked) == (Booking("LH1", 1), ["LH1", "LH1"])


async def test_a_run_that_is_read_again_has_the_same_output_and_calls_nothing() -> None:
    desk, journal = Desk(), InMemoryJournal()
    agent = Agent(name="a", model=following(book("LH1", seats=3)), output=OneOf(Report, desk.output()))
    first = succeeded(await live(desk, agent, journal))
    agent = Agent(name="a", model=following(), output=OneOf(Report, desk.output()))
    assert (succeeded(await live(desk, agent, journal)).output, desk.booked) == (first.output, ["LH1"])
    assert first.output == Booking("LH1", 3)


class Limited(WrapperModel):
    """A model of which something is known."""

    def __init__(self, answers: list[Answer], facts: Facts, learned: Facts | None = None) -> None:
        super().__init__(ScriptedModel(answers))
        self.told, self.learned = facts, learned

    @property
    def facts(self) -> Facts:
        return self.told

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        self.told = self.learned or self.told
        yield

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        return self._inner.stream(request)


NO_TOOLS, JSON = Facts(sees_tools=False), '{"title": "Rain"}'
CHOICES: dict[str, tuple[Facts, Facts | None, Answer, str]] = {
    "nothing is known": (Facts(), None, call("output", title="Rain"), "tool"),
    "it sees no tools, and answers natively": (Facts(sees_tools=False, native_output=True), None, JSON, "native"),
    "it sees no tools": (NO_TOOLS, None, f"So: {JSON}", "prompted"),
    "its server says so when it is opened": (Facts(), NO_TOOLS, f"So: {JSON}", "prompted"),
}


@pytest.mark.parametrize("what", CHOICES)
async def test_the_mode_is_what_the_model_can_and_is_said(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts, learned, answer, mode = CHOICES[what]
    caplog.set_level("INFO", "journeyman")
    agent = Agent(name="a", model=Limited([answer], facts, learned), output=Output(Report, mode="auto"))
    result = succeeded(await run(agent, "Go.", runtime=Runtime(recorder=tmp_path / "runs.db")))
    assert result.output == Report(title="Rain")
    assert f"hands in by mode='{mode}'" in caplog.text
    with Recordings(tmp_path / "runs.db") as recordings:
        [recorded] = recordings.runs()
        said = [each.facts for each in recordings.all_events(recorded) if each.kind == "OutputModeChosen"]
    assert said == [{"mode": mode}]


async def test_a_run_that_goes_on_with_another_model_keeps_its_mode() -> None:
    journal, output = InMemoryJournal(), Output(Report, mode="auto", validators=[positive])
    wrong = '{"title": "Rain", "n": 0}'
    agent = Agent(name="a", model=Limited([wrong], NO_TOOLS), output=output)
    assert failed(await run(agent, "Go.", max_attempts=2, runtime=Runtime(journal=journal))).code == "API_ERROR"
    again = Runtime(journal=journal, model=Limited([JSON], Facts()))
    assert (await run(agent, "Go.", max_attempts=2, runtime=again)).unwrap() == Report(title="Rain")


def unsure(n: int):  # type: ignore[no-untyped-def]  # the point of the test
    return n


def sure(n: int) -> int:
    return n


@tool(cache="run", effect="pure")
def cached(n: int) -> int:
    return n


@tool
def asking(context: ToolContext[Desk], n: int) -> int:
    return n


OTHER = Reflection(str, submit=SubmitTool(name="send"))
REFUSED: dict[str, tuple[Any, str]] = {
    "NO_CHOICE": (OneOf(Report), "OneOf has 1 member"),
    "NO_CHOICE of words": (OneOf(str), "OneOf has 1 member"),
    "DUPLICATE_OUTPUT_NAME": (OneOf(Report, Output(Refund, name="output_Report")), "2 members"),
    "DUPLICATE_OUTPUT_NAME of none": (OneOf(list[int], list[str]), "2 members of OneOf have no name"),
    "INVALID_TOOL_NAME": (OneOf(Report, list[int]), "output tool's name ''"),
    "RESERVED_TOOL_NAME": (OneOf(Report, Output(Refund, name="look")), "as another tool is"),
    "DIFFERENT_SUBMITS": (OneOf(Output(Report, reflection=str), Output(Refund, reflection=OTHER)), "2 different"),
    "CHOICE_WITHOUT_TOOLS": (OneOf(Report, Output(Refund, mode="native")), "nothing tells which"),
    "TEXT_REMINDER": (OneOf(Output(Report, reminder=True), str), "nothing to remind"),
    "NATIVE_REFLECTION": (Output(Report, mode="auto", reflection=str), "may be native or prompted"),
    "PROMPTED_STRICT": (Output(Report, mode="auto", strict=True), "may be native or prompted"),
    "INVALID_OUTPUT_MODE": (Output(Report, mode="json"), "'json'"),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "INVALID_EFFECT": (Output(Report, effect="once"), "no function"),
    "INVALID_EFFECT of none": (Output(sure, effect="twice"), "'twice'"),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "NO_RETURN_TYPE": (Output(unsure), "'unsure' does not say"),
    "INVALID_OUTPUT_FUNCTION": (Output(cached), "cache='run'"),
    "MISSING_DEPS": (Output(asking), "asks for deps of type Desk"),
    "MISSING_ANNOTATION": (Output(lambda n: n), "no type"),  # type: ignore[misc]  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    "INVALID_VALIDATOR": (Output(Report, validators=[lambda: None]), "A validator"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_cannot_be_is_refused_when_it_is_defined(code: str) -> None:
    output, told = REFUSED[code]

    @tool
    def look(n: int) -> int:
        return n

    with pytest.raises(DefinitionError) as refused:
        Agent(name="a", model="a:b", tools=[look], output=output)
    assert code.split()[0] in [each.code for each in refused.value.problems]
    assert told in str(refused.value)


def test_the_validators_of_an_agent_would_come_too_late_for_a_function() -> None:
    with pytest.raises(DefinitionError, match=r"VALIDATORS_AFTER_FUNCTION.*would judge what 'sure' returns"):
        Agent(name="a", model="a:b", output=Output(sure), validators=[print])


def test_what_other_libraries_call_an_output_type_is_told_as_it_is_written_here() -> None:
    for given, told in (([Report, str], r"OneOf\(Report, str\)"), (sure, r"Output\(sure\)")):
        with pytest.raises(DefinitionError, match=rf"Write output={told}\."):
            Agent(name="a", model="a:b", output=given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

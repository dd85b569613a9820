"""Limits met exactly, outputs that look like nothing, and the name `submit`: what decides how a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from pydantic import BaseModel

from journeyman import Agent, ErrorCode, Limits, Output, Reflection, Submit, Success, ToolResult, run, tool
from journeyman.endings import InvalidInputContext, InvalidResponseContext, IterationsContext
from journeyman.models.scripted import call
from journeyman.types import ToolUse
from tests.loop.pitfalls.players import Report, failed, look, report, shown, small, submit
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage

# -- the limit of iterations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 15])
async def test_an_output_in_the_last_allowed_iteration_is_a_success(stage: Stage, limit: int) -> None:  # D14, A13
    model = stage.model([*[call("look")] * (limit - 1), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=limit))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.n_requests == limit


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_submit_in_the_last_allowed_iteration_is_a_success(stage: Stage, limit: int) -> None:  # D14
    responses: dict[int, list[ToolUse | list[ToolUse]]] = {
        1: [[report(1), submit()]],
        2: [report(1), submit()],
        3: [report(2), report(1), submit()],
    }
    model = stage.model(responses[limit])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown), limits=Limits(iterations=limit))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)


@pytest.mark.parametrize("limit", [1, 3])
async def test_an_answer_in_the_last_allowed_iteration_is_a_success(stage: Stage, limit: int) -> None:  # D14
    model = stage.model([*[call("look")] * (limit - 1), "Done."])
    agent = Agent(name="a", model=model, tools=[look], limits=Limits(iterations=limit))
    assert (await run(agent, "Go.")).unwrap() == "Done."


async def test_an_output_that_is_rejected_in_the_last_iteration_burns_an_attempt_not_the_run(
    stage: Stage,
) -> None:  # D14
    model = stage.model([call("look"), report(99), call("look"), report(1)])
    agent = Agent(
        name="a", model=model, tools=[look], output=Output(Report), validators=[small], limits=Limits(iterations=2)
    )
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert [record.iterations for record in result.metadata.attempts] == [2, 2]


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_a_run_that_only_calls_tools_makes_exactly_as_many_calls_as_allowed_and_runs_them_all(
    stage: Stage, limit: int
) -> None:  # D15
    runs: list[int] = []

    @tool
    async def work() -> str:
        runs.append(1)
        return "worked"

    agent = Agent(
        name="a",
        model=stage.model([call("work")], repeat=True),
        tools=[work],
        output=Output(Report),
        limits=Limits(iterations=limit, attempts=3),
    )
    recorder = Recorder()
    failure = failed(await run(agent, "Go.", on_event=recorder))
    check_balance(recorder.events)
    assert failure.code == "MAX_ITERATIONS"  # D16
    assert (failure.error.context, failure.error.attempt) == (
        IterationsContext(iteration_count=limit, max_iterations=limit, has_draft=False),
        1,
    )
    assert (stage.n_requests, len(runs)) == (limit, limit)
    assert failure.history[-1].content[0] == ToolResult("worked", tool_use_id=failure.history[-2].tool_uses[0].id)


async def test_without_a_limit_of_ones_own_there_are_fifteen_iterations(stage: Stage) -> None:  # D15, R26
    agent = Agent(name="a", model=stage.model([call("look")], repeat=True), tools=[look], output=Output(Report))
    assert failed(await run(agent, "Go.")).code == "MAX_ITERATIONS"
    assert stage.n_requests == 15


async def test_a_draft_that_was_never_submitted_does_not_become_the_output(stage: Stage) -> None:  # D15, A13
    agent = Agent(
        name="a",
        model=stage.model([report(1)], repeat=True),
        output=Output(Report, reflection=shown),
        limits=Limits(iterations=2),
    )
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt) == (
        IterationsContext(iteration_count=2, max_iterations=2, has_draft=True),
        1,
    )
    assert failure.candidate == {"total": 1}


async def test_stopping_without_a_tool_is_an_invalid_response_by_that_name(stage: Stage) -> None:  # D16
    agent = Agent(name="a", model=stage.model(["I would rather talk."]), output=Output(Report))
    failure = failed(await run(agent, "Go."))
    assert failure.code == "INVALID_RESPONSE"
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        InvalidResponseContext(stop_reason="end_turn", stop_detail=None, expected_tool="output", has_draft=False),
        1,
        1,
    )


# -- the name `submit` -------------------------------------------------------------------------------------------------


async def test_without_reflection_a_tool_may_be_named_submit(stage: Stage) -> None:  # D17
    forms: list[str] = []

    @tool(name="submit")
    async def submit_form(form: str) -> str:
        forms.append(form)
        return "sent"

    model = stage.model([call("submit", form="A1", id="a"), report(1)])
    agent = Agent(name="a", model=model, tools=[submit_form], output=Output(Report))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert (forms, stage.tool_results(1)) == (["A1"], [ToolResult("sent", tool_use_id="a")])


async def test_without_reflection_the_output_tool_may_be_named_submit(stage: Stage) -> None:  # D17
    model = stage.model([call("submit", total=1)])
    agent = Agent(name="a", model=model, output=Output(Report, name="submit"))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)


@pytest.mark.parametrize("typed", [True, False])
async def test_without_reflection_a_call_of_submit_is_one_of_an_unknown_tool(stage: Stage, typed: bool) -> None:  # D17
    if typed:
        agent = Agent(name="a", model=stage.model([submit("a"), report(1)]), output=Output(Report))
        assert isinstance(await run(agent, "Go."), Success)
    else:
        model = stage.model([submit("a"), "Done."])
        assert isinstance(await run(Agent(name="a", model=model, tools=[look]), "Go."), Success)
    assert stage.tool_results(1) == [ToolResult("Error: Unknown tool submit", is_error=True, tool_use_id="a")]


async def test_with_a_submit_of_another_name_the_usual_name_is_free(stage: Stage) -> None:  # D17, R78
    @tool(name="submit")
    async def ordinary() -> str:
        return "ordinary"

    model = stage.model([[submit("a"), report(1, "b")], call("send")])
    reflection = Reflection(shown, submit=Submit(name="send", description="Send it off."))
    agent = Agent(name="a", model=model, tools=[ordinary], output=Output(Report, reflection=reflection))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1)[0] == ToolResult("ordinary", tool_use_id="a")


# -- outputs that look like nothing ------------------------------------------------------------------------------------


class Defaults(BaseModel):
    words: list[str] = []


@dataclass
class Falsy:
    n: int

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


NOTHINGS: list[tuple[object, dict[str, object], object]] = [
    (str, {"value": ""}, ""),
    (int, {"value": 0}, 0),
    (bool, {"value": False}, False),
    (float, {"value": 0.0}, 0.0),
    (list[int], {"value": []}, []),
    (int | None, {"value": None}, None),
    (dict[str, int], {}, {}),
    (Defaults, {}, Defaults()),
    (Falsy, {"n": 0}, Falsy(0)),
]


@pytest.mark.parametrize("reflecting", [False, True])
@pytest.mark.parametrize(("form", "arguments", "output"), NOTHINGS, ids=[str(form) for form, _, _ in NOTHINGS])
async def test_an_output_that_is_false_empty_or_none_is_an_output(
    stage: Stage, form: object, arguments: dict[str, object], output: object, reflecting: bool
) -> None:  # D20
    seen: list[object] = []
    told = CallbackLog()
    agent = Agent(
        name="a",
        model=stage.model([[call("output", arguments), *([submit()] if reflecting else [])]]),
        output=Output(cast("type[object]", form), reflection=(lambda draft: "shown") if reflecting else None),
        validators=[seen.append],
    )
    result = await run(agent, "Go.", callbacks=told.callbacks())
    assert isinstance(result, Success), result
    assert (result.output, seen) == (output, [output])
    assert type(result.output) is type(output)
    assert told.of("success")[0][1] == (output,)


async def test_an_answer_that_reads_as_false_is_an_answer(stage: Stage) -> None:  # D20
    assert (await run(Agent(name="a", model=stage.model(["0"])), "Go.")).unwrap() == "0"


async def test_an_error_that_is_false_rejects_all_the_same(stage: Stage) -> None:  # D20, D31
    class Quiet(ValueError):
        def __bool__(self) -> bool:
            return False

    def never(report: Report) -> None:
        raise Quiet("still no")

    agent = Agent(name="a", model=stage.model([report(1)]), output=Output(Report), validators=[never])
    assert failed(await run(agent, "Go.", max_attempts=1)).code == ErrorCode.MAX_ATTEMPTS_EXCEEDED


# -- the limit of attempts, for one run --------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [0, -1, True, False, 1.0, 1.5, float("nan"), float("inf"), "3"])
async def test_a_number_of_attempts_that_is_none_fails_before_any_call(stage: Stage, attempts: object) -> None:  # D45
    agent = Agent(name="a", model=stage.model(["Never asked."]))
    told, recorder = CallbackLog(), Recorder()
    result = await run(agent, "Go.", max_attempts=cast("int", attempts), callbacks=told.callbacks(), on_event=recorder)
    failure = failed(result)
    check_balance(recorder.events)
    assert failure.error.context == InvalidInputContext(
        issues=(f"max_attempts is {attempts!r}, not a whole number of at least 1",)
    )
    assert (stage.n_requests, told.names) == (0, ["run_start", "failure"])


async def test_the_number_of_attempts_of_a_run_counts_instead_of_the_agents(stage: Stage) -> None:  # D45, D49
    agent = Agent(
        name="a",
        model=stage.model([report(99)], repeat=True),
        output=Output(Report),
        validators=[small],
        limits=Limits(attempts=2),
    )
    for override, asked in ((None, 2), (1, 1), (4, 4)):
        before = stage.n_requests
        failure = failed(await run(agent, "Go.", max_attempts=override))
        assert (failure.code, stage.n_requests - before) == (ErrorCode.MAX_ATTEMPTS_EXCEEDED, asked)

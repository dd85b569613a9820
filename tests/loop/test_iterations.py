"""Iterations without reflection: calls are run and answered until the output tool is called."""

from __future__ import annotations

import pytest

from journeyman import Agent, Limits, Output, Text, run, tool
from journeyman.endings import InvalidResponseContext, IterationsContext
from journeyman.models.scripted import call, say
from journeyman.types import ToolResult
from tests.loop.players import Report, context_of, fail, failed, look, place_of, preview, report, submit, succeeded
from tests.support.recorder import Recorder, calls, check_balance, names, transcript
from tests.support.stage import Stage


async def test_a_response_with_calls_is_run_and_continued(stage: Stage) -> None:  # R1, R3, R4, R5, R7, R40
    model = stage.model([call("look", where="left", id="a"), call("look", where="right", id="b"), report()])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert transcript(result.history) == [
        ("user", "Go."),
        ("assistant", 'look({"where":"left"})#a'),
        ("user", "#a: found left"),
        ("assistant", 'look({"where":"right"})#b'),
        ("user", "#b: found right"),
        ("assistant", 'output({"total":3})#out'),
        ("user", "#out: Accepted."),
    ]
    assert stage.n_requests == 3


async def test_an_output_at_once_needs_one_call_only(stage: Stage) -> None:  # R15, R42, R70
    result = await run(Agent(name="tester", model=stage.model([report()]), output=Output(Report)), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert [record.iterations for record in result.metadata.attempts] == [1]
    assert stage.n_requests == 1


async def test_an_agent_with_an_output_only_offers_nothing_else(stage: Stage) -> None:  # R70, A47
    await run(Agent(name="tester", model=stage.model([report()]), output=Output(Report)), "Go.")
    assert stage.tool_names() == ["output"]


async def test_without_reflection_there_is_no_submit_tool(stage: Stage) -> None:  # R12, R15, D17
    model = stage.model([submit(), report()])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert succeeded(result).output == Report(total=3)
    assert stage.tool_names() == ["output", "look"]
    assert stage.tool_results(1) == [ToolResult("Error: Unknown tool submit", True, "sub")]


async def test_all_calls_of_a_response_are_run_before_the_output_ends_it(stage: Stage) -> None:  # R45, A2
    seen: list[str] = []

    @tool(thread=False)
    def note(word: str) -> None:
        seen.append(word)

    model = stage.model([[call("note", word="before"), report(), call("note", word="after")]])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[note], output=Output(Report))
    result = await run(agent, "Go.", on_event=recorder)
    assert succeeded(result).output == Report(total=3)
    assert seen == ["before", "after"]
    check_balance(recorder.events)
    assert calls(recorder.events) == [
        "note#call_1_0?",
        "note#call_1_0: (no output)",
        "output#out?",
        "note#call_1_2?",
        "note#call_1_2: (no output)",
        "output#out: Accepted.",
    ]


async def test_the_last_output_of_a_response_is_the_output(stage: Stage) -> None:  # R47, A3
    model = stage.model([[report(1, id="first"), report(2, id="second")]])
    result = await run(Agent(name="tester", model=model, output=Output(Report)), "Go.")
    assert succeeded(result).output == Report(total=2)
    assert transcript(result.history)[-1] == (
        "user",
        "#first! Error: superseded by a later call in the same response.",
        "#second: Accepted.",
    )


async def test_an_unknown_tool_is_answered_with_an_error(stage: Stage) -> None:  # R25, R48, D42
    model = stage.model([call("fly", to="moon", id="a"), report()])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert succeeded(result)
    assert stage.tool_results(1) == [ToolResult("Error: Unknown tool fly", True, "a")]


async def test_text_beside_calls_is_kept_and_ends_nothing(stage: Stage) -> None:  # R28, M8
    model = stage.model([say("I look first.", call("look", id="a")), report()])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert succeeded(result)
    assert transcript(stage.messages(1))[1] == ("assistant", "I look first.", "look({})#a")


# -- the limit ---------------------------------------------------------------------------------------------------------


async def test_fifteen_iterations_are_the_default(stage: Stage) -> None:  # R26
    model = stage.model([call("look")], repeat=True)
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert context_of(result, IterationsContext).max_iterations == 15
    assert stage.n_requests == 15


async def test_a_run_out_of_iterations_says_so_with_its_facts(stage: Stage) -> None:  # R27, R50, A13, D15
    model = stage.model([call("look")], repeat=True)
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=2))
    result = await run(agent, "Go.")
    assert failed(result).code == "MAX_ITERATIONS"
    assert (context_of(result, IterationsContext), place_of(result)[0]) == (
        IterationsContext(iteration_count=2, max_iterations=2, has_draft=False),
        1,
    )
    assert failed(result).error.message == "The attempt used all its 2 iterations without an output."


async def test_the_calls_of_the_last_iteration_are_still_run_and_answered(stage: Stage) -> None:  # A13, R50
    model = stage.model([call("look", id="a")])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=1))
    recorder = Recorder()
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert calls(recorder.events) == ["look#a?", "look#a: found here"]
    assert transcript(failed(result).history)[-1] == ("user", "#a: found here")


async def test_out_of_iterations_is_not_validated_and_not_attempted_again(stage: Stage) -> None:  # R51, A13
    judged: list[Report] = []
    model = stage.model([call("look")], repeat=True)
    agent = Agent(
        name="tester",
        model=model,
        tools=[look],
        output=Output(Report),
        validators=[judged.append],
        limits=Limits(iterations=2, attempts=3),
    )
    recorder = Recorder()
    result = await run(agent, "Go.", on_event=recorder)
    assert judged == []
    assert names(recorder.events)[-3:] == ["MessageCommitted", "AttemptCompleted", "RunFailed"]
    assert [record.iterations for record in result.metadata.attempts] == [2]
    assert result.metadata.usage is not None
    assert result.metadata.usage.input_tokens == 20
    assert failed(result).report is None


@pytest.mark.parametrize("iterations", [1, 3])
async def test_an_output_in_the_last_iteration_counts(stage: Stage, iterations: int) -> None:  # R26, D14
    model = stage.model([*[call("look")] * (iterations - 1), report()])
    limits = Limits(iterations=iterations)
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report), limits=limits), "Go.")
    assert succeeded(result).output == Report(total=3)


async def test_iterations_are_counted_anew_in_each_attempt(stage: Stage) -> None:  # R26, A10
    def even(report: Report) -> None:
        if report.total % 2:
            raise ValueError("odd")

    model = stage.model([call("look"), report(1), call("look"), report(2)])
    agent = Agent(
        name="tester", model=model, tools=[look], output=Output(Report), validators=[even], limits=Limits(iterations=2)
    )
    result = await run(agent, "Go.")
    assert succeeded(result).output == Report(total=2)
    assert [record.iterations for record in result.metadata.attempts] == [2, 2]


async def test_many_calls_in_one_response_are_one_iteration(stage: Stage) -> None:  # R3, A11, A44
    model = stage.model([[call("look") for _ in range(20)], report()])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), limits=Limits(iterations=2))
    result = await run(agent, "Go.")
    assert succeeded(result)
    assert len(stage.tool_results(1)) == 20


# -- no call -----------------------------------------------------------------------------------------------------------


async def test_a_reply_without_calls_is_an_invalid_response(stage: Stage) -> None:  # R65, A12, D16
    model = stage.model([call("look"), "All done!"])
    result = await run(Agent(name="tester", model=model, tools=[look], output=Output(Report)), "Go.")
    assert failed(result).code == "INVALID_RESPONSE"
    assert (context_of(result, InvalidResponseContext), place_of(result)) == (
        InvalidResponseContext(stop_reason="end_turn", stop_detail=None, expected_tool="output", has_draft=False),
        (1, 2),
    )
    assert transcript(failed(result).history)[-1] == ("assistant", "All done!")
    assert failed(result).candidate is None


async def test_calls_are_run_only_if_the_model_stopped_for_them(stage: Stage) -> None:  # R4, M7, A30
    seen: list[str] = []

    @tool(thread=False)
    def note(word: str) -> None:
        seen.append(word)

    model = stage.model([say(call("note", word="x", id="a"), stop_reason="end_turn")])
    result = await run(Agent(name="tester", model=model, tools=[note], output=Output(Report)), "Go.")
    assert failed(result).code == "INVALID_RESPONSE"
    assert seen == []
    assert transcript(failed(result).history)[-1] == (
        "user",
        "#a! Error: not run, because the response stopped with 'end_turn'.",
    )


async def test_an_unsubmitted_draft_is_flagged(stage: Stage) -> None:  # A12, A13, R65
    output = Output(Report, reflection=preview)
    talked = await run(Agent(name="tester", model=stage.model([report(), "Fine!"]), output=output), "Go.")
    assert context_of(talked, InvalidResponseContext).has_draft
    assert context_of(talked, InvalidResponseContext).expected_tool == "submit"
    model = stage.model([report()], repeat=True)
    looped = await run(Agent(name="tester", model=model, output=output, limits=Limits(iterations=2)), "Go.")
    assert context_of(looped, IterationsContext).has_draft
    assert failed(looped).candidate == {"total": 3}


async def test_a_nudged_model_goes_on(stage: Stage) -> None:  # A12
    model = stage.model(["All done!", report()])
    agent = Agent(name="tester", model=model, output=Output(Report), nudge=True)
    result = await run(agent, "Go.")
    assert succeeded(result).output == Report(total=3)
    assert transcript(stage.messages(1))[1:] == [
        ("assistant", "All done!"),
        ("user", "Nothing was handed in yet. Go on, and hand in the result with 'output'."),
    ]


async def test_a_failing_tool_costs_no_attempt(stage: Stage) -> None:  # R24, R49
    model = stage.model([call("fail", id="a"), report()])
    result = await run(Agent(name="tester", model=model, tools=[fail], output=Output(Report)), "Go.")
    assert succeeded(result)
    assert [record.number for record in result.metadata.attempts] == [1]


# -- agents that answer with text --------------------------------------------------------------------------------------


async def test_an_agent_without_output_answers_with_text(stage: Stage) -> None:  # R4, R5
    model = stage.model([say("Let me see. ", call("look", id="a")), say("It is ", "here.")])
    result = await run(Agent(name="tester", model=model, tools=[look]), "Where?")
    assert succeeded(result).output == "It is here."
    assert stage.tool_names() == ["look"]


@pytest.mark.parametrize("said", ["", "  \n"])
async def test_an_empty_answer_is_an_invalid_response(stage: Stage, said: str) -> None:  # R65
    answer = say(Text(said)) if said else say()
    result = await run(Agent(name="tester", model=stage.model([answer])), "Where?")
    assert context_of(result, InvalidResponseContext).expected_tool is None

"""Replies that call nothing, and the reasons for which a response stops: what is resumed, reminded, or the end."""

from __future__ import annotations

import pytest

from journeyman import (
    Agent,
    Callbacks,
    ErrorCode,
    Failure,
    Limits,
    Output,
    Settings,
    Success,
    Text,
    ToolResult,
    run,
)
from journeyman.endings import InvalidResponseContext, RefusedContext, TruncatedContext
from journeyman.model import Response
from journeyman.models.scripted import call, say
from journeyman.types import Opaque, StopReason, Thinking, ToolUse
from tests.loop.pitfalls.players import Report, failed, look, report, shown, small, submit
from tests.support.recorder import Recorder, check_balance, transcript
from tests.support.stage import Stage


def stopped(*blocks: ToolUse | str, reason: StopReason, detail: str | None = None) -> Response:
    return Response(content=say(*blocks).content, stop_reason=reason, stop_detail=detail, usage=say().usage)


NUDGE = "Nothing was handed in yet. Go on, and hand in the result with 'output'."

# -- replies that only talk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iteration", [1, 3])
async def test_a_reply_that_only_talks_ends_the_run_at_once(stage: Stage, iteration: int) -> None:  # A12, R65
    model = stage.model([*[call("look")] * (iteration - 1), "The total is one.", report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report))
    failure = failed(await run(agent, "Go.", max_attempts=5))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        InvalidResponseContext(stop_reason="end_turn", stop_detail=None, expected_tool="output", has_draft=False),
        1,
        iteration,
    )
    assert (failure.phase, stage.n_requests) == ("iteration", iteration)
    assert transcript(failure.history)[-1] == ("assistant", "The total is one.")


async def test_a_draft_that_was_forgotten_is_told(stage: Stage) -> None:  # A12
    model = stage.model([report(1), "Looks fine to me."])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown))
    failure = failed(await run(agent, "Go."))
    context = failure.error.context
    assert isinstance(context, InvalidResponseContext)
    assert (context.expected_tool, context.has_draft) == ("submit", True)
    assert failure.candidate == {"total": 1}


async def test_a_reply_that_calls_only_unknown_tools_is_no_reply_that_only_talks(stage: Stage) -> None:  # A12
    model = stage.model([call("nope"), call("nada"), report(1)])
    assert isinstance(await run(Agent(name="a", model=model, output=Output(Report)), "Go."), Success)


async def test_a_model_may_be_reminded_and_each_reminder_is_an_iteration(stage: Stage) -> None:  # A12
    recorder = Recorder()
    model = stage.model(["Hm.", stopped("Hm, hm.", reason="stop_sequence", detail="###"), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), nudge=True, limits=Limits(iterations=3))
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=1)
    assert transcript(stage.messages(2)) == [
        ("user", "Go."),
        ("assistant", "Hm."),
        ("user", NUDGE),
        ("assistant", "Hm, hm."),
        ("user", NUDGE),
    ]
    assert [record.iterations for record in result.metadata.attempts] == [3]


async def test_reminders_end_with_the_iterations(stage: Stage) -> None:  # A12
    model = stage.model(["Hm."], repeat=True)
    agent = Agent(name="a", model=model, output=Output(Report), nudge=True, limits=Limits(iterations=4))
    assert failed(await run(agent, "Go.")).code == ErrorCode.MAX_ITERATIONS
    assert stage.n_requests == 4


async def test_the_reminder_names_submit_when_that_is_what_is_missing(stage: Stage) -> None:  # A12
    model = stage.model([report(1), "Done, I think.", submit()])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=shown), nudge=True)
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert "'submit'" in stage.texts(2)[0]


@pytest.mark.parametrize("reason", ["max_tokens", "context_window", "refusal", "other", "tool_use"])
async def test_only_a_normal_end_is_worth_a_reminder(stage: Stage, reason: StopReason) -> None:  # A12
    model = stage.model([stopped("I", reason=reason), report(1)])
    agent = Agent(name="a", model=model, output=Output(Report), nudge=True)
    assert isinstance(await run(agent, "Go."), Failure)
    assert stage.n_requests == 1


async def test_a_reminder_follows_the_results_of_calls_that_were_not_run(stage: Stage) -> None:  # A12, M2
    model = stage.model([stopped("Here.", call("look", id="a"), reason="end_turn"), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), nudge=True)
    assert isinstance(await run(agent, "Go."), Success)
    not_run = "Error: not run, because the response stopped with 'end_turn'."
    assert stage.messages(1)[-1].content == (ToolResult(not_run, is_error=True, tool_use_id="a"), Text(NUDGE))


@pytest.mark.parametrize("words", ["", "  \n"])
async def test_an_answer_without_words_is_invalid(stage: Stage, words: str) -> None:  # A12, design 2
    failure = failed(await run(Agent(name="a", model=stage.model([say(words)])), "Go."))
    context = failure.error.context
    assert isinstance(context, InvalidResponseContext)
    assert (context.expected_tool, context.stop_reason) == (None, "end_turn")


async def test_an_answer_is_the_text_of_the_last_message_alone(stage: Stage) -> None:  # design 2
    model = stage.model([say("Let me look.", call("look")), say(Thinking("hm", "c2ln"), "It is ", "here.")])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    assert result.unwrap() == "It is here."


# -- reasons to stop ---------------------------------------------------------------------------------------------------


async def test_a_paused_turn_goes_on_and_its_calls_run_when_it_stops_for_them(stage: Stage) -> None:  # A30
    recorder = Recorder()
    searching = Opaque("anthropic", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}')
    paused = Response(content=(Text("Let me search."), searching), stop_reason="pause_turn", usage=say().usage)
    model = stage.model([paused, say("Found it.", call("look", id="a")), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report))
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=1)
    assert [message.role for message in stage.messages(1)] == ["user", "assistant"]
    assert stage.messages(1)[1].content == (Text("Let me search."), searching)
    assert stage.tool_results(2) == [ToolResult("found here", tool_use_id="a")]
    assert [message.continues for message in result.history if message.role == "assistant"] == [False, True, False]


async def test_a_pause_in_the_last_iteration_is_the_end(stage: Stage) -> None:  # A30, A11
    model = stage.model([stopped("Hm.", reason="pause_turn")])
    failure = failed(await run(Agent(name="a", model=model, limits=Limits(iterations=1)), "Go."))
    assert failure.code == ErrorCode.MAX_ITERATIONS


@pytest.mark.parametrize("reason", ["max_tokens", "context_window"])
async def test_a_response_that_was_cut_says_how_and_at_what_length(stage: Stage, reason: StopReason) -> None:  # A30
    model = stage.model([call("look"), stopped("I", reason=reason)])
    agent = Agent(name="a", model=model, tools=[look], settings=Settings(max_tokens=1_000))
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        TruncatedContext(stop_reason=reason, max_tokens=1_000),
        1,
        2,
    )
    assert failure.metadata.usage is not None
    assert failure.metadata.usage.requests == 2


async def test_a_response_that_was_cut_may_be_repeated_once_with_more_room(stage: Stage) -> None:  # A30
    cut = stopped("I will", call("look", id="x"), reason="max_tokens")
    recorder = Recorder()
    model = stage.model([cut, report(1)])
    agent = Agent(
        name="a",
        model=model,
        tools=[look],
        output=Output(Report),
        settings=Settings(max_tokens=1_000),
        limits=Limits(extended_max_tokens=4_000, iterations=1),
    )
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == Report(total=1)
    assert [request.max_tokens for request in stage.requests] == [1_000, 4_000]
    assert transcript(stage.messages(1)) == [("user", "Go.")]
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 2
    assert "look" not in result.metadata.tools


async def test_a_response_that_is_cut_twice_is_the_end(stage: Stage) -> None:  # A30
    model = stage.model([stopped("I", reason="max_tokens")], repeat=True)
    agent = Agent(name="a", model=model, settings=Settings(max_tokens=1_000), limits=Limits(extended_max_tokens=4_000))
    failure = failed(await run(agent, "Go."))
    assert (failure.code, stage.n_requests) == (ErrorCode.TOKEN_LIMIT_EXCEEDED, 2)


async def test_a_refusal_in_a_later_iteration_keeps_what_was_gathered(stage: Stage) -> None:  # A30, A31, A46
    model = stage.model([report(99), call("look", id="a"), stopped("No more.", reason="refusal", detail="bio")])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    failure = failed(await run(agent, "Go."))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        RefusedContext(refusal="bio", text="No more."),
        2,
        2,
    )
    assert failure.metadata.usage is not None
    assert failure.metadata.usage.requests == 3
    assert failure.candidate == {"total": 99}
    assert transcript(failure.history)[-2:] == [("user", "#a: found here"), ("assistant", "No more.")]


async def test_a_stop_that_this_library_does_not_know_is_invalid_and_told_by_its_own_name(stage: Stage) -> None:  # A30
    seen: list[str] = []
    callbacks = Callbacks(on_model_response=lambda context, response: seen.append(response.stop_reason))
    model = stage.model([stopped("Hm.", report(1), reason="other", detail="coffee_break")])
    failure = failed(await run(Agent(name="a", model=model, output=Output(Report)), "Go.", callbacks=callbacks))
    assert (failure.error.context, failure.error.attempt, failure.error.iteration) == (
        InvalidResponseContext(
            stop_reason="other", stop_detail="coffee_break", expected_tool="output", has_draft=False
        ),
        1,
        1,
    )
    assert "coffee_break" in failure.error.message
    assert seen == ["other"]


async def test_an_answer_may_end_at_a_stop_sequence(stage: Stage) -> None:  # A30, design 2
    model = stage.model([stopped("It is one.", reason="stop_sequence", detail="###")])
    assert (await run(Agent(name="a", model=model), "Go.")).unwrap() == "It is one."

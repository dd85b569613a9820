"""Iterations: calls are run and answered until an output is handed in, or the limit is met, or the model stops."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from journeyman import Agent, ErrorCode, Failure, Limits, ModelSettings, Output, Success, ToolContext, run, tool
from journeyman.endings import InvalidResponseContext, IterationsContext, RefusedContext, TruncatedContext
from journeyman.events import IterationStarted
from journeyman.model import Facts, Part, Request, Response
from journeyman.models.wrappers import WrapperModel
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import Opaque, StopReason, Text, Thinking, ToolResult, ToolUse, Usage
from tests.loop.parts import PLAIN, REFLECTED, end_of
from tests.play import Report, context_of, existing, failed, make_tool, report, reporter, submit, succeeded, talker
from tests.play.recorder import Recorder, calls, check_balance, transcript
from tests.play.stage import Stage, Staged


async def test_a_response_with_calls_is_run_and_continued(stage: Stage) -> None:  # R1, R3, R4, R5, R7, R40
    model = stage.model([call("look", where="left", id="a"), call("look", where="right", id="b"), report(id="out")])
    result = await run(reporter(model), "Go.")
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


async def test_an_agent_of_an_output_alone_needs_nothing_else(stage: Stage) -> None:  # A47, R15, R42, R70
    result = await run(Agent(name="a", model=stage.model([report(1)]), output=Output(Report)), "Go.")
    assert (result.unwrap(), stage.tool_names(), stage.requests[0].prefix.system) == (Report(total=1), ["output"], ())
    assert ([record.iterations for record in result.metadata.attempts], stage.n_requests) == ([1], 1)


async def test_an_agent_of_a_name_and_a_model_alone_answers(stage: Stage) -> None:  # A47
    result = await run(Agent(name="a", model=stage.model(["Hello."])), "Hi.")
    assert (result.unwrap(), stage.tool_names()) == ("Hello.", [])


async def test_iterations_are_counted_from_one_in_each_attempt(stage: Stage, recorder: Recorder) -> None:  # A10
    seen = list[tuple[int, int]]()

    @tool
    async def where(ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.iteration))
        return "here"

    model = stage.model([call("where"), call("where"), report(99), call("where"), report(98), report(1)])
    result = await run(reporter(model, tools=[where]), "Go.", on_event=recorder)
    began = [(event.attempt, event.iteration) for event in recorder.of(IterationStarted)]
    assert began == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]
    assert seen == [(1, 1), (1, 2), (2, 1)]
    assert [(record.number, record.iterations) for record in result.metadata.attempts] == [(1, 3), (2, 2), (3, 1)]


async def test_tool_calls_count_as_no_iterations_however_many_there_are(stage: Stage) -> None:  # A11, A44, R3
    result = await run(reporter(stage.model([[*[call("look")] * 40, report(1)]]), limits=Limits(iterations=1)), "Go.")
    assert result.unwrap() == Report(total=1)
    assert result.metadata.tools["look"].calls == 40


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_a_run_that_only_calls_tools_makes_exactly_as_many_calls_as_allowed_and_runs_them_all(
    stage: Stage, limit: int, recorder: Recorder
) -> None:  # D15, R27, R50, R79, A13
    runs: list[int] = []

    @tool
    async def work() -> str:
        runs.append(1)
        return "worked"

    limits = Limits(iterations=limit, attempts=3, calls=100)
    agent = reporter(stage.model([call("work")], repeat=True), tools=[work], limits=limits)
    failure = failed(await run(agent, "Go.", on_event=recorder))
    assert failure.code == "MAX_ITERATIONS"  # D16
    assert end_of(failure)[:2] == (IterationsContext(iteration_count=limit, max_iterations=limit, has_draft=False), 1)
    assert (stage.n_requests, len(runs)) == (limit, limit)
    assert failure.history[-1].content[0] == ToolResult("worked", tool_use_id=failure.history[-2].tool_uses[0].id)
    used = "its only iteration" if limit == 1 else f"all its {limit} iterations"
    assert failure.error.message == f"The attempt used {used} without an output."


ENOUGH: dict[str, tuple[list[Staged], bool]] = {
    "an output in iteration 1": ([report(1)], False),
    "an output in iteration 2": ([call("look"), report(1)], False),
    "an output in iteration 3": ([call("look"), call("look"), report(1)], False),
    "an output in iteration 15": ([*[call("look")] * 14, report(1)], False),
    "a submit in iteration 1": ([[report(1), submit()]], True),
    "a submit in iteration 2": ([report(1), submit()], True),
    "a submit in iteration 3": ([report(2), report(1), submit()], True),
}


@pytest.mark.parametrize(("responses", "reflecting"), ENOUGH.values(), ids=ENOUGH)
async def test_a_hand_in_in_the_last_allowed_iteration_is_a_success(  # D14, A13, R26
    stage: Stage, responses: list[Staged], reflecting: bool
) -> None:
    output, limits = REFLECTED if reflecting else PLAIN, Limits(iterations=len(responses))
    agent = reporter(stage.model(responses), output=output, limits=limits)
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.n_requests == len(responses)


@pytest.mark.parametrize("limit", [1, 3])
async def test_an_answer_in_the_last_allowed_iteration_is_a_success(stage: Stage, limit: int) -> None:  # D14
    agent = talker(stage.model([*[call("look")] * (limit - 1), "Done."]), limits=Limits(iterations=limit))
    assert (await run(agent, "Go.")).unwrap() == "Done."


# D14, R26, A10
async def test_an_output_that_is_rejected_in_the_last_iteration_burns_an_attempt_not_the_run(stage: Stage) -> None:
    agent = reporter(stage.model([call("look"), report(99), call("look"), report(1)]), limits=Limits(iterations=2))
    result = await run(agent, "Go.")
    assert result.unwrap() == Report(total=1)
    assert [record.iterations for record in result.metadata.attempts] == [2, 2]


async def test_a_draft_that_was_never_submitted_does_not_become_the_output(stage: Stage) -> None:  # D15, A13
    agent = reporter(stage.model([report(1)], repeat=True), output=REFLECTED, limits=Limits(iterations=2))
    failure = failed(await run(agent, "Go."))
    assert end_of(failure)[:2] == (IterationsContext(iteration_count=2, max_iterations=2, has_draft=True), 1)
    assert failure.candidate == {"total": 1}


def invalid(reason: StopReason, detail: str | None) -> InvalidResponseContext:
    """Return the facts of a response without an output, and without a draft before it."""
    return InvalidResponseContext(stop_reason=reason, stop_detail=detail, expected_tool="output", has_draft=False)


@pytest.mark.parametrize("iteration", [1, 3])
async def test_a_reply_that_only_talks_ends_the_run_at_once(stage: Stage, iteration: int) -> None:  # A12, R65, D16
    agent = reporter(stage.model([*[call("look")] * (iteration - 1), "The total is one.", report(1)]))
    failure = failed(await run(agent, "Go.", max_attempts=5))
    assert end_of(failure) == (invalid("end_turn", None), 1, iteration)
    assert (failure.phase, stage.n_requests) == ("iteration", iteration)
    assert failure.candidate is None
    assert transcript(failure.history)[-1] == ("assistant", "The total is one.")


async def test_a_draft_that_was_forgotten_is_told(stage: Stage) -> None:  # A12, A13, R16, R42, R65
    agent = reporter(stage.model([report(1), call("look"), "Looks fine to me."]), output=REFLECTED)
    failure = failed(await run(agent, "Go."))
    context = context_of(failure, InvalidResponseContext)
    assert (context.expected_tool, context.has_draft) == ("submit", True)
    assert (failure.candidate, failure.report) == ({"total": 1}, None)


def stopped(*blocks: ToolUse | str, reason: StopReason, detail: str | None = None) -> Response:
    usage = Usage(requests=1, input_tokens=10, output_tokens=1_000) if reason == "max_tokens" else say().usage
    return Response(content=say(*blocks).content, stop_reason=reason, stop_detail=detail, usage=usage)


REMINDED = Output(Report, reminder=True)
NUDGE = "Nothing was handed in yet. Go on, and hand in the result with 'output'."


# A12
async def test_a_model_may_be_reminded_and_each_reminder_is_an_iteration(stage: Stage, recorder: Recorder) -> None:
    model = stage.model(["Hm.", stopped("Hm, hm.", reason="stop_sequence", detail="###"), report(1)])
    result = await run(reporter(model, output=REMINDED, limits=Limits(iterations=3)), "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=1)
    said = [("user", "Go."), ("assistant", "Hm."), ("user", NUDGE), ("assistant", "Hm, hm."), ("user", NUDGE)]
    assert transcript(stage.messages(2)) == said
    assert [record.iterations for record in result.metadata.attempts] == [3]


async def test_the_reminder_names_submit_when_that_is_what_is_missing(stage: Stage) -> None:  # A12
    agent = reporter(stage.model([report(1), "Done, I think.", submit()]), output=replace(REFLECTED, reminder=True))
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert "'submit'" in stage.texts(2)[0]


@pytest.mark.parametrize("reason", ["max_tokens", "context_window", "refusal", "other", "tool_use"])
async def test_only_a_normal_end_is_worth_a_reminder(stage: Stage, reason: StopReason) -> None:  # A12
    agent = reporter(stage.model([stopped("I", reason=reason), report(1)]), output=REMINDED)
    assert isinstance(await run(agent, "Go."), Failure)
    assert stage.n_requests == 1


async def test_a_reminder_follows_the_results_of_calls_that_were_not_run(stage: Stage) -> None:  # A12, M2
    agent = reporter(
        stage.model([stopped("Here.", call("look", id="a"), reason="end_turn"), report(1)]), output=REMINDED
    )
    assert isinstance(await run(agent, "Go."), Success)
    not_run = "Error: not run, because the response stopped with 'end_turn'."
    assert stage.messages(1)[-1].content == (ToolResult(not_run, is_error=True, tool_use_id="a"), Text(NUDGE))


@pytest.mark.parametrize("words", ["", "  \n", None])
async def test_an_answer_without_words_is_invalid(stage: Stage, words: str | None) -> None:  # A12, design 2, R65
    result = await run(talker(stage.model([say() if words is None else say(words)])), "Go.")
    context = context_of(result, InvalidResponseContext)
    assert (context.expected_tool, context.stop_reason) == (None, "end_turn")


async def test_an_answer_is_the_text_of_the_last_message_alone(stage: Stage) -> None:  # design 2, R4, R5
    model = stage.model([say("Let me look.", call("look")), say(Thinking("hm", "c2ln"), "It is here.", "Look.")])
    result = await run(talker(model), "Go.")
    assert stage.tool_names() == ["look"]
    assert result.unwrap() == "It is here.\n\nLook."


async def ran(stage: Stage, response: Response, *, typed: bool = True) -> tuple[Failure, list[str]]:
    """Run a response that calls a tool and hands in; return the failure and the tools that ran."""
    runs: list[str] = []

    act = make_tool("act", "acted", into=runs)
    recorder = Recorder()
    agent = reporter if typed else talker
    play: Agent[Any] = agent(stage.model([response]), tools=[act], settings=ModelSettings(max_tokens=1_000))
    result = await run(play, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert calls(recorder.events) == []
    return failed(result), runs


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
@pytest.mark.parametrize("reason", ["max_tokens", "context_window"])
async def test_the_calls_of_a_response_that_was_cut_do_not_run(stage: Stage, reason: StopReason, typed: bool) -> None:
    # R4, X38, A30, D24, M7
    response = stopped("I will act.", call("act", id="a"), report(1, "b"), reason=reason)
    failure, runs = await ran(stage, response, typed=typed)
    context = context_of(failure, TruncatedContext)
    by = "window" if reason == "context_window" else "max_tokens"
    assert (context.stop_reason, context.max_tokens, context.cut_by, context.calls) == (reason, 1_000, by, 2)
    assert (runs, failure.candidate) == ([], None)
    not_run = f"Error: not run, because the response stopped with {reason!r}."
    assert transcript(failure.history) == [
        ("user", "Go."),
        ("assistant", "I will act.", "act({})#a", 'output({"total":1})#b'),
        ("user", f"#a! {not_run}", f"#b! {not_run}"),
    ]


# A30
async def test_a_response_that_was_cut_may_be_repeated_once_with_more_room(stage: Stage, recorder: Recorder) -> None:
    model = stage.model([stopped("I will", call("look", id="x"), reason="max_tokens"), report(1)])
    agent = reporter(
        model, settings=ModelSettings(max_tokens=1_000), limits=Limits(extended_max_tokens=4_000, iterations=1)
    )
    result = await run(agent, "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=1)
    assert [request.max_tokens for request in stage.requests] == [1_000, 4_000]
    assert transcript(stage.messages(1)) == [("user", "Go.")]
    assert existing(result.metadata.usage).requests == 2
    assert "look" not in result.metadata.tools


async def test_a_response_that_is_cut_twice_is_the_end(stage: Stage) -> None:  # A30
    model = stage.model([stopped("I", reason="max_tokens")], repeat=True)
    agent = talker(model, settings=ModelSettings(max_tokens=1_000), limits=Limits(extended_max_tokens=4_000))
    assert (failed(await run(agent, "Go.")).code, stage.n_requests) == (ErrorCode.TOKEN_LIMIT_EXCEEDED, 2)


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
async def test_a_refusal_is_one_with_its_category_and_its_words(stage: Stage, typed: bool) -> None:  # A30, D24
    response = stopped("I will not.", call("act"), report(1), reason="refusal", detail="cyber")
    failure, runs = await ran(stage, response, typed=typed)
    assert end_of(failure) == (RefusedContext(refusal="cyber", text="I will not."), 1, 1)
    assert runs == []


@pytest.mark.parametrize(("reason", "detail"), [("end_turn", None), ("stop_sequence", "###"), ("other", "on_strike")])
async def test_any_other_stop_leaves_the_calls_alone_and_is_invalid(
    stage: Stage, reason: StopReason, detail: str | None
) -> None:  # R4, D24, A30, M7
    response = stopped("Here it is.", call("act", id="a"), report(1, "b"), reason=reason, detail=detail)
    failure, runs = await ran(stage, response)
    context = context_of(failure, InvalidResponseContext)
    assert (context.stop_reason, context.expected_tool, runs) == (reason, "output", [])
    assert reason != "other" or context.stop_detail == "on_strike"
    told = "stop_sequence: ###" if reason == "stop_sequence" else detail or reason
    not_run = f"Error: not run, because the response stopped with {told!r}."
    assert transcript(failure.history)[-1] == ("user", f"#a! {not_run}", f"#b! {not_run}")


SEARCHING = Opaque("anthropic", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}')


@pytest.mark.parametrize(
    "blocks",
    [("Let me see.",), (), (SEARCHING,)],
    ids=["only text", "nothing", "only a call of the provider's own tool"],
)
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
async def test_a_response_that_stops_for_tools_and_calls_none_is_invalid_and_never_answered(
    stage: Stage, blocks: tuple[str | Opaque, ...], typed: bool
) -> None:  # D6
    model = stage.model([Response(content=say(*blocks).content, stop_reason="tool_use"), "Never asked."])
    failure = failed(await run(reporter(model) if typed else talker(model), "Go."))
    assert context_of(failure, InvalidResponseContext).stop_reason == "tool_use"
    assert stage.n_requests == 1
    assert all(message.content for message in failure.history)


async def test_an_answer_may_end_at_a_stop_sequence(stage: Stage) -> None:  # A30, design 2
    model = stage.model([stopped("It is one.", reason="stop_sequence", detail="###")])
    assert (await run(talker(model), "Go.")).unwrap() == "It is one."


# A30, D24
async def test_a_paused_turn_goes_on_and_its_calls_run_when_it_stops_for_them(stage: Stage, recorder: Recorder) -> None:
    paused = Response(content=(Text("Let me search."), SEARCHING), stop_reason="pause_turn", usage=say().usage)
    agent = reporter(stage.model([paused, say("Found it.", call("look", id="a")), report(1)]))
    result = await run(agent, "Go.", on_event=recorder)
    assert result.unwrap() == Report(total=1)
    assert [message.role for message in stage.messages(1)] == ["user", "assistant"]
    assert stage.messages(1)[1].content == (Text("Let me search."), SEARCHING)
    assert transcript(stage.messages(2)) == [
        ("user", "Go."),
        ("assistant", "Let me search.", "Opaque", "Found it.", "look({})#a"),
        ("user", "#a: found here"),
    ]
    assert [message.continues for message in result.history if message.role == "assistant"] == [False, True, False]


async def test_an_answer_of_several_pauses_is_one_text(stage: Stage) -> None:  # D24, A30
    model = stage.model([stopped("One, ", reason="pause_turn"), stopped("two, ", reason="pause_turn"), "three."])
    assert (await run(talker(model), "Go.")).unwrap() == "One, two, three."


@pytest.mark.parametrize("iterations", [1, 3])
async def test_pauses_count_as_iterations(stage: Stage, iterations: int) -> None:  # A11, D24, A30
    model = stage.model([say("Wait.", stop_reason="pause_turn")], repeat=True)
    agent = talker(model, limits=Limits(iterations=iterations))
    assert failed(await run(agent, "Go.")).code == "MAX_ITERATIONS"
    assert stage.n_requests == iterations


def cut_after(output_tokens: int, *, input_tokens: int = 100, exact: bool = True, calls: int = 0) -> Response:
    usage = Usage(requests=1, input_tokens=input_tokens, output_tokens=output_tokens, exact=exact)
    return say("I", *[call("look", id=f"{n}") for n in range(calls)], stop_reason="max_tokens", usage=usage)


class InWindow(WrapperModel):
    """A model with a window of 2,048 tokens."""

    @property
    def facts(self) -> Facts:
        return Facts(context_window=2_048)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        return self._inner.stream(request)


@pytest.mark.parametrize(
    ("answer", "options", "cut_by", "told"),
    [
        (cut_after(1_000), {}, "max_tokens", "was cut (max_tokens) at 1,000 tokens."),
        (cut_after(990, calls=1), {}, "max_tokens", "was cut (max_tokens) at 1,000 tokens; its call was not run."),
        (cut_after(3, exact=False), {}, "max_tokens", "was cut (max_tokens) at 1,000 tokens."),  # nobody counted
        (say("I", stop_reason="max_tokens"), {}, "max_tokens", "was cut (max_tokens) at 1,000 tokens."),
        (
            cut_after(120, input_tokens=1_928),
            {"window": True},
            "window",
            "model's window of 2,048 tokens is full: 1,928 tokens of input and 120 of the answer.",
        ),
        (
            cut_after(120),
            {"window": True},
            "service",
            "before max_tokens (1000): 100 tokens of input and 120 of the answer.",
        ),
        (cut_after(120, calls=2), {}, "service", "and 120 of the answer; its 2 calls were not run."),
        (cut_after(560), {"tokens": 600}, "budget", "tokens, because the budget left no more."),
        (cut_after(1_000), {"tokens": 9_000}, "max_tokens", "at 1,000 tokens."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_cut_response_tells_what_cut_it_and_is_repeated_only_where_that_helps(
    answer: Response, options: dict[str, int], cut_by: str, told: str
) -> None:
    model = ScriptedModel([answer, answer])
    limits = Limits(extended_max_tokens=1_500, tokens=options.get("tokens"))
    agent = talker(
        InWindow(model) if "window" in options else model, settings=ModelSettings(max_tokens=1_000), limits=limits
    )
    result = await run(replace(agent, limits=replace(limits, extended_max_tokens=None)), "Go.")
    context = context_of(result, TruncatedContext)
    assert (context.cut_by, failed(result).error.message.endswith(told)) == (cut_by, True), failed(result).error
    assert ("max_tokens=…" in failed(result).error.hint) is (cut_by == "max_tokens")
    model = ScriptedModel([answer, "Done."])
    agent = replace(agent, model=InWindow(model) if "window" in options else model, limits=limits)
    await run(agent, "Go.")
    assert len(model.requests) == (2 if cut_by == "max_tokens" else 1)

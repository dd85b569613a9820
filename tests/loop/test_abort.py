"""Stopping a run: the caller's signal ends it with a failure that carries everything gathered."""

from __future__ import annotations

import asyncio

import pytest

from journeyman import Abort, Agent, Event, Limits, Output, ProviderError, Rejection, ToolContext, run, tool
from journeyman import validation_context as facts
from journeyman.endings import CancelledContext
from journeyman.events import AttemptCompleted, IterationStarted
from journeyman.model import Request
from journeyman.models.scripted import Answer, Scripted, call, say
from journeyman.types import Message, Text, Usage
from tests.loop.players import Report, context_of, failed, look, place_of, preview, report, small
from tests.support.clock import virtual_clock
from tests.support.recorder import Recorder, calls, check_balance, names, transcript
from tests.support.stage import Stage, broken


async def test_the_signal_is_checked_before_each_model_call(stage: Stage) -> None:  # R36, R40, R52
    abort = Abort()

    @tool(thread=False)
    def stop() -> str:
        abort.abort("enough")
        return "stopping"

    model = stage.model([call("look"), call("stop", id="a"), report()])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[look, stop], output=Output(Report))
    result = await run(agent, "Go.", abort=abort, on_event=recorder)
    assert failed(result).code == "EXECUTION_CANCELLED"
    assert failed(result).phase == "iteration"
    context = context_of(result, CancelledContext)
    assert (context.reason, failed(result).error.attempt, failed(result).error.iteration) == ("enough", 1, 2)
    assert stage.n_requests == 2
    check_balance(recorder.events)


@pytest.mark.parametrize("reflected", [False, True])
async def test_the_signal_stops_a_request_in_flight(stage: Stage, reflected: bool) -> None:  # R52, X34, D21
    abort = Abort()

    async def hang(request: Request) -> Answer:
        abort.abort()
        await asyncio.Event().wait()
        return "never"

    answers = [report(id="draft"), hang] if reflected else [call("look"), hang]
    output = Output(Report, reflection=preview if reflected else None)
    recorder = Recorder()
    agent = Agent(name="tester", model=stage.model(answers), tools=[look], output=output)
    result = await run(agent, "Go.", abort=abort, on_event=recorder)
    assert (context_of(result, CancelledContext), place_of(result)) == (
        CancelledContext(reason="aborted by the caller", doing="calling the model"),
        (1, 2),
    )
    assert failed(result).phase == "iteration"
    assert [record.iterations for record in result.metadata.attempts] == [2]
    check_balance(recorder.events)
    assert names(recorder.events)[-3:] == ["IterationStarted", "AttemptCompleted", "RunFailed"]
    if stage.api is not None:
        api = stage.api
        await api.until(lambda: api.in_flight == 0)
        assert [request.hung_up for request in api.requests] == [False, True]


async def test_the_signal_stops_an_answer_half_way(stage: Stage) -> None:  # R74, R36, D21
    abort = Abort()
    recorder = Recorder()

    def stop_at_the_second_answer(event: object) -> None:
        recorder(event)  # pyright: ignore[reportArgumentType] - every event comes here
        if type(event).__name__ == "TextDelta" and len(recorder.of(IterationStarted)) == 2:
            abort.abort()

    model = stage.model([call("look", id="a"), broken("Hello", "world", ending="stall")])
    result = await run(
        Agent(name="tester", model=model, tools=[look]), "Go.", abort=abort, on_event=stop_at_the_second_answer
    )
    assert failed(result).code == "EXECUTION_CANCELLED"
    assert result.metadata.usage == Usage(requests=2, input_tokens=20, output_tokens=6, exact=False)
    assert transcript(failed(result).history)[-1] == ("user", "#a: found here")
    check_balance(recorder.events)


async def test_calls_that_have_not_begun_are_not_run_and_all_are_answered(stage: Stage) -> None:  # A23, D22, A46
    abort = Abort()

    @tool
    async def stop() -> str:
        abort.abort()
        await asyncio.Event().wait()
        return "never"

    model = stage.model([[call("look", id="a"), call("stop", id="b"), call("look", id="c")]])
    recorder = Recorder()
    agent = Agent(name="tester", model=model, tools=[look, stop])
    result = await run(agent, "Go.", abort=abort, on_event=recorder)
    interrupted = "Error: the run was stopped before this call finished."
    assert calls(recorder.events) == ["look#a?", "look#a: found here", "stop#b?", f"stop#b! {interrupted}"]
    assert transcript(failed(result).history)[-1] == (
        "user",
        "#a: found here",
        f"#b! {interrupted}",
        f"#c! {interrupted}",
    )
    assert context_of(result, CancelledContext).doing == "running tools"


async def test_the_signal_is_checked_before_each_call_too(stage: Stage) -> None:  # A23, D22
    abort = Abort()

    @tool(thread=False)
    def stop() -> str:
        abort.abort()
        return "stopping"

    model = stage.model([[call("stop", id="a"), call("look", id="b")]])
    recorder = Recorder()
    result = await run(Agent(name="tester", model=model, tools=[look, stop]), "Go.", abort=abort, on_event=recorder)
    assert calls(recorder.events) == ["stop#a?", "stop#a: stopping"]
    assert transcript(failed(result).history)[-1] == (
        "user",
        "#a: stopping",
        "#b! Error: the run was stopped before this call finished.",
    )


async def test_a_signal_fired_before_the_run_stops_it_before_the_prompts(stage: Stage) -> None:  # X32, A23
    abort = Abort()
    abort.abort("too late")
    asked: list[str] = []

    def prompt(given: str) -> str:
        asked.append(given)
        return given

    agent = Agent(name="tester", model=stage.model(["Hello."]), prompt=prompt)
    result = await run(agent, "Go.", abort=abort)
    assert failed(result).phase == "prompt_generation"
    assert (context_of(result, CancelledContext), place_of(result)) == (
        CancelledContext(reason="too late", doing="building the prompts"),
        (0, 0),
    )
    assert asked == []
    assert stage.n_requests == 0
    assert failed(result).history == ()


async def test_a_run_that_is_stopped_as_it_begins_keeps_the_conversation_it_was_given(stage: Stage) -> None:  # A23, R66
    abort = Abort()
    earlier = (Message("user", (Text("Hello."),)), Message("assistant", (Text("Hi."),)))

    def stop(event: Event) -> None:
        abort.abort()

    agent = Agent(name="tester", model=stage.model([]))
    result = failed(await run(agent, "Go.", abort=abort, on_event=stop, history=earlier))
    assert (result.code, result.history) == ("EXECUTION_CANCELLED", earlier)


async def test_a_signal_stops_a_prompt_function(stage: Stage) -> None:  # X16, X32, X33, D22
    abort = Abort()

    async def prompt(given: str) -> str:
        abort.abort()
        await asyncio.Event().wait()
        return given

    result = await run(Agent(name="tester", model=stage.model(["Hello."]), prompt=prompt), "Go.", abort=abort)
    assert failed(result).code == "EXECUTION_CANCELLED"
    assert failed(result).phase == "prompt_generation"


async def test_a_signal_during_the_calls_stops_the_run_before_validation(stage: Stage) -> None:  # X32
    abort = Abort()
    judged: list[object] = []

    @tool(thread=False)
    def stop() -> None:
        abort.abort()

    model = stage.model([[call("stop"), report()]])
    agent = Agent(name="tester", model=model, tools=[stop], output=Output(Report), validators=[judged.append])
    result = await run(agent, "Go.", abort=abort)
    assert failed(result).code == "EXECUTION_CANCELLED"
    assert judged == []


async def test_a_signal_stops_validation(stage: Stage) -> None:  # X10, X32, X33, D22
    abort, judged = Abort(), list[str]()

    async def stop(report: Report) -> None:
        judged.append("stop")
        abort.abort()
        await asyncio.Event().wait()

    def after(report: Report) -> None:
        judged.append("after")

    agent = Agent(name="tester", model=stage.model([report()]), output=Output(Report), validators=[stop, after])
    result = await run(agent, "Go.", abort=abort)
    assert failed(result).phase == "validation"
    assert (context_of(result, CancelledContext), place_of(result)) == (
        CancelledContext(reason="aborted by the caller", doing="validating the output"),
        (1, 1),
    )
    assert judged == ["stop"]
    assert failed(result).candidate == {"total": 3}


async def test_a_signal_in_the_last_validator_is_no_success(stage: Stage) -> None:  # D22
    abort = Abort()

    def stop(report: Report) -> None:
        abort.abort()

    recorder = Recorder()
    agent = Agent(name="tester", model=stage.model([report()]), output=Output(Report), validators=[stop])
    result = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    assert (result.code, result.phase) == ("EXECUTION_CANCELLED", "validation")
    assert [event.succeeded for event in recorder.of(AttemptCompleted)] == [False]
    assert transcript(result.history)[-1] == ("user", "#out! Error: the run was stopped before this call finished.")


async def test_a_signal_between_attempts_names_the_attempt_that_was(stage: Stage) -> None:  # A23, D23
    abort = Abort()

    def stop(rejection: Rejection) -> str:
        abort.abort()
        return rejection.feedback

    model = stage.model([report(7), report(2, id="o2")])
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small], error_prompt=stop)
    recorder = Recorder()
    result = await run(agent, "Go.", abort=abort, on_event=recorder)
    assert stage.n_requests == 1
    assert failed(result).error.attempt == 1
    check_balance(recorder.events)


async def test_the_signal_reaches_tools_and_validators(stage: Stage) -> None:  # X10, X16, D22
    abort = Abort()
    seen: list[Abort | None] = []

    @tool(thread=False)
    def ask(context: ToolContext) -> None:
        seen.append(context.abort)

    def judge(report: Report) -> None:
        seen.append(facts().abort)

    model = stage.model([[call("ask"), report()]])
    agent = Agent(name="tester", model=model, tools=[ask], output=Output(Report), validators=[judge])
    await run(agent, "Go.", abort=abort)
    assert seen == [abort, abort]


async def test_what_a_cancelled_run_gathered_is_kept(stage: Stage) -> None:  # R38, R66, A46
    abort = Abort()

    async def stop(request: Request) -> Answer:
        abort.abort()
        await asyncio.Event().wait()
        return "never"

    usage = Usage(requests=1, input_tokens=30, output_tokens=8)
    model = stage.model([say(call("look", id="a"), report(7), usage=usage), stop])
    agent = Agent(name="tester", model=model, tools=[look], output=Output(Report), validators=[small])
    result = failed(await run(agent, "Go.", abort=abort))
    assert result.candidate == {"total": 7}
    assert result.report is not None
    assert not result.report.passed
    assert result.metadata.usage is not None
    assert (result.metadata.usage.input_tokens, result.metadata.usage.output_tokens) == (30, 8)
    assert not result.metadata.usage.exact
    assert result.metadata.tools["look"].calls == 1
    assert [record.number for record in result.metadata.attempts] == [1, 2]


async def test_a_cancelled_task_leaves_the_run_as_cancelled(stage: Stage) -> None:  # A22
    begun = asyncio.Event()

    async def hang(request: Request) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(name="tester", model=stage.model([hang]))
    task = asyncio.create_task(run(agent, "Go."))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@virtual_clock
async def test_the_signal_stops_the_wait_before_another_request() -> None:  # R36, X34
    abort = Abort()
    agent = Agent(name="tester", model=Scripted([ProviderError("busy", kind="overloaded")], repeat=True), retries=5)
    asyncio.get_running_loop().call_later(0.25, abort.abort)
    start = asyncio.get_running_loop().time()
    assert failed(await run(agent, "Go.", abort=abort)).code == "EXECUTION_CANCELLED"
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.25)


async def test_one_signal_stops_many_runs(stage: Stage) -> None:  # A48
    abort = Abort()

    async def hang(request: Request) -> Answer:
        if stage.n_requests == 3:
            abort.abort()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(name="tester", model=stage.model([hang], repeat=True), limits=Limits(attempts=1))
    results = await asyncio.gather(*(run(agent, f"{n}", abort=abort) for n in range(3)))
    assert [failed(result).code for result in results] == ["EXECUTION_CANCELLED"] * 3

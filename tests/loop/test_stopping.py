"""Stopping a run: the caller's signal ends it with a failure that carries all that was gathered."""

import asyncio
import threading
from dataclasses import replace

import pytest

from journeyman import Abort, Agent, Limits, Runtime, Subagents, Tool, ToolContext, run, tool
from journeyman.cancellation import within
from journeyman.endings import CancelledContext, ErrorCode
from journeyman.errors import ProviderError
from journeyman.events import (
    AttemptCompleted,
    CallAbandoned,
    Callbacks,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    Listener,
    TextDelta,
)
from journeyman.loop import validation_context
from journeyman.model import Request
from journeyman.prompt import ErrorPromptContext
from journeyman.result import Failure, Result
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Message, Text, ToolResult, Usage
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import PLAIN, REFLECTED, STOPPED, end_of, hand_in
from tests.play import Report, context_of, existing, failed, look, report, reporter, small, talker
from tests.play.recorder import Recorder, calls, names, transcript
from tests.play.stage import Stage, broken
from tests.support.clock import virtual_clock


# R52, X34, D21
@pytest.mark.parametrize("reflected", [False, True])
async def test_the_signal_stops_a_request_in_flight(stage: Stage, reflected: bool, recorder: Recorder) -> None:
    abort, told = Abort(), CallbackLog()

    async def hang(request: Request) -> Answer:
        abort.abort()
        await asyncio.Event().wait()
        return "never"

    answers = [report(id="draft"), hang] if reflected else [call("look"), hang]
    agent = reporter(stage.model(answers), output=REFLECTED if reflected else PLAIN)
    result = await run(agent, "Go.", abort=abort, on_event=recorder, callbacks=told.callbacks())
    assert end_of(result) == (CancelledContext(reason="aborted by the caller", doing="calling the model"), 1, 2)
    assert failed(result).phase == "iteration"
    assert [record.iterations for record in result.metadata.attempts] == [2]
    assert told.names[-3:] == ["iteration_start", "attempt_complete", "failure"]
    assert names(recorder.events)[-3:] == ["IterationStarted", "AttemptCompleted", "RunFailed"]
    if stage.api is not None:
        api = stage.api
        await api.until(lambda: api.in_flight == 0)
        assert [request.hung_up for request in api.requests] == [False, True]


async def test_the_signal_stops_an_answer_half_way(stage: Stage, recorder: Recorder) -> None:  # R74, R36, D21, A31
    abort = Abort()

    def stop_at_the_second_answer(event: Event) -> None:
        recorder(event)
        if isinstance(event, TextDelta) and len(recorder.of(IterationStarted)) == 2:
            abort.abort()

    model = stage.model([call("look", id="a"), broken("Hello", "world", ending="stall")])
    result = await run(talker(model), "Go.", abort=abort, on_event=stop_at_the_second_answer)
    assert context_of(result, CancelledContext).doing == "calling the model"
    assert result.metadata.usage == Usage(requests=2, input_tokens=20, output_tokens=6, exact=False)
    assert transcript(failed(result).history)[-1] == ("user", "#a: found here")


@virtual_clock
async def test_the_signal_stops_the_wait_before_another_request() -> None:  # R36, X34, D21
    abort = Abort()
    model = ScriptedModel([ProviderError("busy", kind="overloaded")], repeat=True)
    asyncio.get_running_loop().call_later(0.25, abort.abort)
    start = asyncio.get_running_loop().time()
    result = await run(talker(model, limits=Limits(request_retries=5)), "Go.", abort=abort)
    assert end_of(result) == (CancelledContext(reason="aborted by the caller", doing="calling the model"), 1, 1)
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.25)
    assert len(model.requests) == 1


def stopped_at(failure: Failure) -> tuple[str, int, int]:
    """Return what a run did when it was stopped, its attempt and its iteration."""
    context = context_of(failure, CancelledContext)
    assert context.reason == "enough"
    return context.doing, failure.error.attempt, failure.error.iteration


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "async"])
async def test_after_an_abort_in_a_tool_no_further_tool_runs_and_nothing_is_validated(
    stage: Stage, inline: bool, recorder: Recorder
) -> None:  # X32, A23, A46, D22
    abort, judged = Abort(), list[Report]()

    @tool(thread=False)
    def stop_inline() -> str:
        abort.abort("enough")
        return "stopping"

    @tool
    async def stop_later() -> str:
        abort.abort("enough")
        await asyncio.sleep(0)
        raise AssertionError("not reached")

    stop = stop_inline if inline else stop_later
    response = [call("look", id="a"), call(stop.name, id="b"), call("look", id="c"), report(1, "d")]
    agent = reporter(stage.model([response, report(1)]), tools=[stop, look], validators=[judged.append])
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    ended = ": stopping" if inline else f"! {STOPPED}"
    assert calls(recorder.events) == ["look#a?", "look#a: found here", f"{stop.name}#b?", f"{stop.name}#b{ended}"]
    assert stopped_at(failure) == ("running tools", 1, 1)
    last = ("user", "#a: found here", f"#b{ended}", f"#c! {STOPPED}", f"#d! {STOPPED}")
    assert transcript(failure.history)[-1] == last
    assert (stage.n_requests, failure.candidate, judged) == (1, None, [])


async def test_a_tool_that_swallows_the_cancellation_does_not_keep_the_run_going(stage: Stage) -> None:  # D22, R36
    abort = Abort()

    @tool
    async def stubborn() -> str:
        abort.abort("enough")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "went on regardless"
        return "unreachable"

    model = stage.model([[call("stubborn", id="a"), call("look", id="b")], "Never said."])
    failure = failed(await run(talker(model, tools=[stubborn, look]), "Go.", abort=abort))
    assert stopped_at(failure) == ("running tools", 1, 1)
    assert failure.history[-1].content == (
        ToolResult("went on regardless", tool_use_id="a"),
        ToolResult(STOPPED, is_error=True, tool_use_id="b"),
    )
    assert stage.n_requests == 1


async def test_tools_and_validators_can_see_the_signal(stage: Stage) -> None:  # D22, X10, X16
    abort, seen = Abort(), list[Abort | None]()

    @tool
    async def see(ctx: ToolContext) -> str:
        seen.append(ctx.abort)
        return "seen"

    def check(report: Report) -> None:
        seen.append(validation_context().abort)

    agent = reporter(stage.model([[call("see"), report(1)]]), tools=[see], validators=[check])
    assert (await run(agent, "Go.", abort=abort)).unwrap() == Report(total=1)
    assert seen == [abort, abort]


async def test_a_thread_that_cannot_be_stopped_is_left_behind_and_its_result_dropped(
    stage: Stage, recorder: Recorder
) -> None:
    # A21, A22, design 4.5
    abort, inside, released = Abort(), threading.Event(), threading.Event()

    @tool
    def block() -> str:
        inside.set()
        released.wait(5)
        return "too late"

    def on_call(*given: object) -> None:
        threading.Thread(target=lambda: (inside.wait(5), abort.abort("enough"))).start()

    agent = talker(stage.model([call("block", id="b")]), tools=[block])
    result = await run(agent, "Go.", abort=abort, on_event=recorder, callbacks=Callbacks(on_tool_call=on_call))
    released.set()
    assert failed(result).history[-1].content == (ToolResult(STOPPED, is_error=True, tool_use_id="b"),)
    assert [(event.tool_name, event.tool_use_id) for event in recorder.of(CallAbandoned)] == [("block", "b")]


def elapsed_s() -> float:
    return asyncio.get_running_loop().time() - 1_000  # where the virtual clock begins


class Stubborn:
    """Swallows every cancellation until it is released. May be a tool, and what a model waits for."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.n_swallowed = 0

    async def __call__(self, *given: object) -> str:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.n_swallowed += 1
        return "too late"


async def stopped_by(how: str, agent: Agent[str], runtime: Runtime, listener: Listener) -> Result[str] | None:
    """Run the agent, stop it after 5 seconds, and return its result; None if it was left as cancelled."""
    abort = Abort()
    limits = Limits(seconds=5) if how == "its time" else Limits()
    going = asyncio.create_task(
        run(replace(agent, limits=limits), "Go.", abort=abort, runtime=runtime, on_event=listener)
    )
    stop = {"the signal": lambda: abort.abort("enough"), "its time": lambda: None, "its task": going.cancel}[how]
    asyncio.get_running_loop().call_later(5, stop)
    try:
        return await going
    except asyncio.CancelledError:
        return None


WAYS = ["the signal", "its time", "its task"]


@pytest.mark.parametrize("how", WAYS)
@virtual_clock
async def test_a_tool_that_swallows_every_cancellation_is_left_behind_after_the_grace(how: str) -> None:  # D22, A22
    recorder, later, stubborn = Recorder(), list[str](), Stubborn()
    script = ScriptedModel([[call("dig", id="d"), call("look", id="l")], "Never said."])
    tools = [Tool("dig", "", {"type": "object"}, stubborn), Tool("look", "", {"type": "object"}, later.append)]
    result = await stopped_by(how, talker(script, tools=tools), Runtime(grace_s=3), recorder)
    assert elapsed_s() == pytest.approx(8)
    assert [(event.tool_name, event.tool_use_id) for event in recorder.of(CallAbandoned)] == [("dig", "d")]
    if result is not None:
        stopped = (
            ToolResult(STOPPED, is_error=True, tool_use_id="d"),
            ToolResult(STOPPED, is_error=True, tool_use_id="l"),
        )
        assert failed(result).history[-1].content == stopped
    told = len(recorder.events)
    stubborn.released.set()
    await asyncio.sleep(100)
    assert (stubborn.n_swallowed, later, len(script.requests), len(recorder.events)) == (1, [], 1, told)


@pytest.mark.parametrize("how", WAYS)
@virtual_clock
async def test_a_client_that_swallows_every_cancellation_is_left_behind_after_the_grace(how: str) -> None:  # D22, A22
    recorder, dug, stubborn = Recorder(), list[str](), Stubborn()

    async def answer(request: Request) -> Answer:
        await stubborn()
        return call("dig")

    model = FunctionModel(answer)
    agent = talker(model, tools=[Tool("dig", "", {"type": "object"}, dug.append)])
    result = await stopped_by(how, agent, Runtime(grace_s=3), recorder)
    assert elapsed_s() == pytest.approx(8)
    assert [(event.tool_name, event.tool_use_id) for event in recorder.of(CallAbandoned)] == [(None, None)]
    if result is not None:
        usage = existing(failed(result).metadata.usage)
        assert not usage.exact
    stubborn.released.set()
    await asyncio.sleep(100)
    assert dug == []


@virtual_clock
async def test_a_tool_that_swallows_the_end_of_its_time_is_left_behind_and_the_run_goes_on() -> None:  # A22
    recorder, stubborn = Recorder(), Stubborn()
    script = ScriptedModel([call("dig", id="d"), "Done."])
    agent = talker(script, tools=[Tool("dig", "", {"type": "object"}, stubborn, timeout_s=5)])
    result = await run(agent, "Go.", runtime=Runtime(grace_s=3), on_event=recorder)
    assert result.unwrap() == "Done."
    assert elapsed_s() == pytest.approx(8)
    assert result.history[2].content == (ToolResult("Error: dig timed out after 5s", is_error=True, tool_use_id="d"),)
    assert [event.tool_use_id for event in recorder.of(CallAbandoned)] == ["d"]
    stubborn.released.set()
    await asyncio.sleep(1)


@virtual_clock
async def test_work_whose_time_is_up_has_ended_before_whoever_waits_for_it_goes_on() -> None:
    ended: list[float] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(10)
            ended.append(elapsed_s())

    waiting = asyncio.create_task(within(5, work()))
    await asyncio.sleep(6)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(1)
        assert not waiting.done()
    await asyncio.wait([waiting])
    assert (ended, elapsed_s(), waiting.cancelled()) == ([15], 15, True)


@virtual_clock
async def test_what_a_sub_agent_left_behind_is_told_by_it_and_the_runs_above_end_well() -> None:  # D22
    recorder, abort, stubborn = Recorder(), Abort(), Stubborn()
    inner = talker(ScriptedModel([call("dig", id="d")]), tools=[Tool("dig", "", {"type": "object"}, stubborn)])
    inner = replace(inner, name="inner", description="Digs.")
    script = ScriptedModel([call("subagent", agent="inner", task="Dig.", id="s")])
    lead = talker(script, tools=[Subagents(inner)])
    asyncio.get_running_loop().call_later(5, abort.abort)
    failure = failed(await run(lead, "Go.", runtime=Runtime(grace_s=3), abort=abort, on_event=recorder))
    assert failure.code is ErrorCode.EXECUTION_CANCELLED
    assert elapsed_s() == pytest.approx(8, abs=1.1)
    assert [event.path[-1] for event in recorder.of(CallAbandoned)] == ["inner#1"]
    stubborn.released.set()
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("where", "how"),
    [("after the stop", "its task"), ("shielded from it", "its task"), ("shielded from it", "the signal")],
)
@virtual_clock
async def test_a_run_that_the_stop_did_not_reach_is_cancelled_before_anything_is_left_behind(
    where: str, how: str
) -> None:  # A21, A22
    recorder, raised = Recorder(), list[str]()

    async def hang(request: Request) -> Answer:
        await asyncio.Event().wait()
        return "never"

    @tool
    async def clean_up() -> None:
        inner = talker(FunctionModel(hang))
        shielded = asyncio.create_task(run(inner, "Go.")) if where == "shielded from it" else None
        try:
            await (asyncio.shield(shielded) if shielded else asyncio.Event().wait())
        except asyncio.CancelledError:
            try:
                await (shielded or run(inner, "Clean up."))
            except BaseException as error:
                raised.append(type(error).__name__)
                raise

    lead = talker(ScriptedModel([call("clean_up")]), tools=[clean_up])
    await stopped_by(how, lead, Runtime(grace_s=3), recorder)
    assert raised == ["CancelledError"]
    assert recorder.of(CallAbandoned) == []


@pytest.mark.parametrize("total", [1, 99], ids=["that passes", "that rejects"])
@pytest.mark.parametrize("reflecting", [False, True])
async def test_an_abort_in_the_last_validator_is_no_success_and_asks_for_no_error_prompt(
    stage: Stage, total: int, reflecting: bool, recorder: Recorder
) -> None:  # D22, A23
    abort, told = Abort(), list[ErrorPromptContext]()

    def stop(report: Report) -> None:
        abort.abort("enough")
        small(report)

    def tell(rejection: ErrorPromptContext) -> str:
        told.append(rejection)
        return "Again."

    model, output = stage.model([hand_in(total, reflecting=reflecting), report(1)]), REFLECTED if reflecting else PLAIN
    agent = reporter(model, output=output, validators=[stop], error_prompt=tell)
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    assert stopped_at(failure) == ("validating the output", 1, 1)
    assert (failure.phase, failure.candidate) == ("validation", {"total": total})
    assert [completed.succeeded for completed in recorder.of(AttemptCompleted)] == [False]
    last = f"#sub{total}" if reflecting else f"#out{total}"
    assert transcript(failure.history)[-1][-1] == f"{last}! {STOPPED}"
    assert (told, stage.n_requests) == ([], 1)


# D22, X10, X32, X33
async def test_an_abort_that_hits_a_waiting_validator_is_no_verdict(stage: Stage, recorder: Recorder) -> None:
    abort = Abort()

    async def stop(report: Report) -> None:
        abort.abort("enough")
        await asyncio.Event().wait()

    agent = reporter(stage.model([report(1)]), validators=[stop, small])
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    assert stopped_at(failure) == ("validating the output", 1, 1)
    assert (failure.phase, failure.candidate) == ("validation", {"total": 1})
    assert [layer.name for layer in recorder.of(LayerStarted)] == ["schema", "stop"]
    completed = [layer.outcome for layer in recorder.of(LayerCompleted)]
    assert [(outcome.name, outcome.passed) for outcome in completed] == [("schema", True), ("stop", False)]


@pytest.mark.parametrize("how", ["raises", "returns", "hangs"])
@pytest.mark.parametrize("which", ["system", "prompt"])
async def test_a_prompt_function_that_stops_at_the_signal_is_a_cancellation(
    stage: Stage, how: str, which: str, recorder: Recorder
) -> None:  # X16, X32, X33, D22
    abort = Abort()

    async def prompt(given: str) -> str:
        abort.abort("enough")
        if how == "hangs":
            await asyncio.Event().wait()
        if how == "raises":
            raise LookupError("the prompt gave up")
        return "Go."

    agent = talker(stage.model(["Never asked."]), **{which: prompt})
    failure = failed(await run(agent, "Go.", abort=abort, on_event=recorder))
    assert stopped_at(failure) == ("building the prompts", 0, 0)
    assert (failure.phase, stage.n_requests) == ("prompt_generation", 0)


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_error_prompt_that_stops_at_the_signal_is_a_cancellation_of_its_attempt(
    stage: Stage, hangs: bool, recorder: Recorder
) -> None:  # A23, D22, D23
    abort = Abort()

    async def tell(rejection: ErrorPromptContext) -> str:
        abort.abort("enough")
        if hangs:
            await asyncio.Event().wait()
        return rejection.feedback

    agent = reporter(stage.model([report(99), report(1)]), error_prompt=tell)
    result = await run(agent, "Go.", abort=abort, on_event=recorder)
    assert (failed(result).error.attempt, stage.n_requests) == (1, 1)


# D21, X32, A23, A28, D35
async def test_a_signal_fired_before_the_run_stops_it_before_anything(stage: Stage, recorder: Recorder) -> None:
    abort, told = Abort(), CallbackLog()
    abort.abort("enough")
    prompts: list[str] = []
    agent = talker(stage.model(["Never asked."]), prompt=prompts.append, run_state=prompts.append)  # never called
    failure = failed(await run(agent, "Go.", abort=abort, callbacks=told.callbacks(), on_event=recorder))
    assert stopped_at(failure) == ("building the prompts", 0, 0)
    assert (failure.phase, failure.history) == ("prompt_generation", ())
    assert (prompts, stage.n_requests, told.names) == ([], 0, ["run_start", "failure"])


async def test_a_run_that_is_stopped_as_it_begins_keeps_the_conversation_it_was_given(stage: Stage) -> None:  # A23, R66
    abort = Abort()
    earlier = (Message("user", (Text("Hello."),)), Message("assistant", (Text("Hi."),)))

    def stop(event: Event) -> None:
        abort.abort()

    result = failed(await run(talker(stage.model([])), "Go.", abort=abort, on_event=stop, history=earlier))
    assert (result.code, result.history) == ("EXECUTION_CANCELLED", earlier)


async def test_what_a_cancelled_run_gathered_is_kept(stage: Stage) -> None:  # R38, R66, A46
    abort = Abort()

    async def stop(request: Request) -> Answer:
        abort.abort()
        await asyncio.Event().wait()
        return "never"

    usage = Usage(requests=1, input_tokens=30, output_tokens=8)
    agent = reporter(stage.model([say(call("look", id="a"), report(7), usage=usage), stop]))
    result = failed(await run(agent, "Go.", abort=abort))
    assert result.candidate == {"total": 7}
    assert not existing(result.report).passed
    assert result.metadata.usage is not None
    assert (result.metadata.usage.input_tokens, result.metadata.usage.output_tokens) == (30, 8)
    assert not result.metadata.usage.exact
    assert result.metadata.tools["look"].calls == 1
    assert [record.number for record in result.metadata.attempts] == [1, 2]


@pytest.mark.parametrize("signal_first", [True, False])
async def test_a_cancellation_from_outside_wins_over_the_signal(stage: Stage, signal_first: bool) -> None:  # A22
    abort = Abort()

    @tool
    async def stop() -> str:
        fire = [abort.abort, tasks[0].cancel]
        for each in fire if signal_first else reversed(fire):
            each()
        await asyncio.Event().wait()
        return "unreachable"

    async def work() -> None:
        tasks.append(existing(asyncio.current_task()))  # here, since tasks may be eager
        await run(talker(stage.model([call("stop")]), tools=[stop]), "Go.", abort=abort)

    tasks: list[asyncio.Task[object]] = []
    task = asyncio.create_task(work())
    await asyncio.wait([task])
    assert task.cancelled()


async def test_one_signal_ends_many_runs_and_stays_fired(stage: Stage) -> None:  # A22, A48
    abort, waiting = Abort(), list[asyncio.Event]()

    @tool
    async def wait() -> str:
        waiting.append(asyncio.Event())
        if len(waiting) == 3:
            asyncio.get_running_loop().call_soon(abort.abort, "all of you")
        await waiting[-1].wait()
        return "unreachable"

    agents = [Agent(name=f"a{n}", model=stage.model([call("wait")]), tools=[wait]) for n in range(3)]
    results = await asyncio.gather(*(run(agent, "Go.", abort=abort) for agent in agents))
    stopped = (CancelledContext(reason="all of you", doing="running tools"), 1, 1)
    assert [end_of(result) for result in results] == [stopped] * 3
    abort.abort("again")
    assert (abort.aborted, abort.reason) == (True, "all of you")
    assert isinstance(await run(agents[0], "Go.", abort=abort), Failure)


async def test_a_signal_that_never_fires_changes_nothing_and_keeps_nothing(stage: Stage) -> None:  # A22
    abort = Abort()
    for _ in range(3):
        result = await run(reporter(stage.model([call("look"), report(1)])), "Go.", abort=abort)
        assert result.unwrap() == Report(total=1)
    assert repr(abort) == "<Abort>"
    abort.abort()  # nobody listens any more
    await asyncio.sleep(0)

"""What stops a run ends those that it started, too: each tells of its own end, before that of the one above."""

import asyncio
from typing import Any, Literal

import pytest

from journeyman import Abort, Agent, Budget, Chat, Limits, Output, Subagents, Tasks, Team, run, tool
from journeyman.events import AttemptCompleted, RunFailed, RunStarted
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from tests.play import Recorder, cancelled, check_balance, hang, raising, virtual_clock
from tests.subagents.leads import Count
from tests.team.members import wanted

Where = Literal["model", "tool", "validator", "error prompt", "project"]

TASK = {"agent": "slow", "task": "Go."}
MODES: dict[str, dict[str, Any]] = {
    "single": TASK,
    "parallel": {"tasks": [TASK, TASK]},
    "chain": {"chain": [TASK, TASK]},
}


async def forever(*_: object) -> Any:  # noqa: ANN401 - whatever is wanted, it never comes
    await asyncio.Event().wait()


def slow(where: Where = "model") -> Agent[Any]:
    """Return an agent that never ends, and the place where it hangs."""

    @tool(name="wait")
    async def wait() -> str:
        return await forever()

    reject = raising(ValueError("no"))
    output, hand_in = Output(Count), call("output", total=1)
    match where:
        case "model":
            return Agent(name="slow", model=FunctionModel(hang))
        case "tool":
            return Agent(name="slow", model=ScriptedModel([call("wait")]), tools=[wait])
        case "validator":
            return Agent(name="slow", model=ScriptedModel([hand_in]), output=output, validators=[forever])
        case "error prompt":
            rejecting = ScriptedModel([hand_in], repeat=True)
            return Agent(name="slow", model=rejecting, output=output, validators=[reject], error_prompt=forever)
        case "project":
            return Agent(name="slow", model=ScriptedModel([hand_in]), output=output, final_state=forever)


def lead_of(arguments: dict[str, Any], *agents: Agent[Any], **fields: Any) -> Agent:
    return Agent(name="lead", model=ScriptedModel([call("subagent", arguments)]), tools=[Subagents(*agents)], **fields)


def check_each_run(recorder: Recorder) -> None:
    """Fail if any of the runs breaks a promise of order."""
    events = [event for event in recorder.events if type(event).__module__ == RunStarted.__module__]
    for path in {event.path for event in events}:
        check_balance([event for event in events if event.path == path])


def failures(recorder: Recorder) -> list[tuple[str, str]]:
    """Return which runs failed, in order, and why; every pair of events must be closed."""
    check_each_run(recorder)
    begun = [event.path for event in recorder.of(RunStarted)]
    assert sorted(event.path for event in recorder.of(RunFailed)) == sorted(begun)
    completed = [event.path for event in recorder.of(AttemptCompleted)]
    assert set(completed) == set(begun)
    return [(event.path[-1], str(event.error.code)) for event in recorder.of(RunFailed)]


async def stopped_after(seconds: float, abort: Abort) -> None:
    await asyncio.sleep(seconds)
    abort.abort("enough")


@pytest.mark.parametrize("mode", MODES)
@virtual_clock
async def test_children_tell_of_their_end_when_the_run_above_is_aborted(mode: str, recorder: Recorder) -> None:
    abort = Abort()
    stopping = asyncio.create_task(stopped_after(1, abort))
    await run(lead_of(MODES[mode], slow()), "Go.", abort=abort, on_event=recorder)
    await stopping
    assert {code for _, code in failures(recorder)} == {"EXECUTION_CANCELLED"}
    assert failures(recorder)[-1][0] == "lead"
    assert {str(event.error.context) for event in recorder.of(RunFailed)} == {
        "Cancelled while calling the model: enough.",
        "Cancelled while running tools: enough.",
    }


@pytest.mark.parametrize("where", ["model", "tool", "validator", "error prompt", "project"])
@pytest.mark.parametrize("limits", [Limits(seconds=2), Limits(per_attempt=Budget(seconds=2))], ids=["run", "attempt"])
@virtual_clock
async def test_children_tell_of_their_end_when_the_run_above_is_out_of_time(
    limits: Limits, where: Where, recorder: Recorder
) -> None:
    result = await run(lead_of(TASK, slow(where), limits=limits), "Go.", on_event=recorder)
    assert failures(recorder) == [("slow#1", "BUDGET_EXCEEDED"), ("lead", "BUDGET_EXCEEDED")]
    assert [record.code for record in result.metadata.children] == ["BUDGET_EXCEEDED"]


@virtual_clock
async def test_a_run_in_a_tool_call_that_takes_too_long_tells_of_its_end(recorder: Recorder) -> None:
    @tool(timeout_s=3)
    async def ask() -> str:
        return str((await run(slow(), "Go.")).unwrap_or("nothing"))

    lead = Agent(name="lead", model=ScriptedModel([call("ask"), "It took too long."]), tools=[ask])
    result = await run(lead, "Go.", on_event=recorder)
    assert result.unwrap() == "It took too long."
    check_each_run(recorder)
    [failed] = recorder.of(RunFailed)
    assert (failed.path, failed.error.code) == (("lead", "slow"), "EXECUTION_CANCELLED")
    assert "took too long" in str(failed.error)


@virtual_clock
async def test_a_chat_in_a_tool_tells_of_its_end_when_the_run_above_is_out_of_time(recorder: Recorder) -> None:
    @tool
    async def ask() -> str:
        async with Chat(slow()) as chat:
            return str((await chat.prompt("Go.")).unwrap_or("nothing"))

    lead = Agent(name="lead", model=ScriptedModel([call("ask")]), tools=[ask], limits=Limits(seconds=2))
    await run(lead, "Go.", on_event=recorder)
    assert failures(recorder) == [("slow", "BUDGET_EXCEEDED"), ("lead", "BUDGET_EXCEEDED")]


@virtual_clock
async def test_a_grandchild_tells_before_the_child(recorder: Recorder) -> None:
    middle = Agent(name="middle", model=ScriptedModel([call("subagent", TASK)]), tools=[Subagents(slow())])
    lead = lead_of({"agent": "middle", "task": "Go."}, middle, limits=Limits(seconds=2))
    await run(lead, "Go.", on_event=recorder)
    assert [name for name, _ in failures(recorder)] == ["slow#1", "middle#1", "lead"]


@pytest.mark.parametrize("stop", ["shut down", "stopped", "left"])
@virtual_clock
async def test_a_member_that_is_stopped_tells_of_its_end(stop: str, recorder: Recorder) -> None:
    async with Tasks() as tasks, Team("crew", tasks=tasks, on_event=recorder) as team:
        made = await team.spawn(wanted(slow("tool"), name="ada"))
        await asyncio.sleep(1)
        if stop == "shut down":
            await team.shutdown("ada", grace_s=0)
        elif stop == "stopped":
            tasks.stop(made.task_id)
            await tasks.wait(made.task_id)
    assert tasks.get(made.task_id).status == "killed"
    assert failures(recorder) == [("ada", "EXECUTION_CANCELLED")]


@pytest.mark.parametrize("stop", ["stopped", "left"])
@virtual_clock
async def test_a_sub_agent_in_the_background_that_is_stopped_tells_of_its_end(stop: str, recorder: Recorder) -> None:
    crew = Subagents(slow("tool"))
    lead = Agent(name="lead", model=ScriptedModel([call("subagent", TASK, background=True), "Begun."]), tools=[crew])
    async with Tasks(notify=lambda text, info: None) as tasks:
        crew.tasks = tasks
        await run(lead, "Go.", on_event=recorder)
        await asyncio.sleep(1)
        if stop == "stopped":
            tasks.stop("bg-1")
            await tasks.wait()
    check_each_run(recorder)
    assert [(event.path, event.error.code) for event in recorder.of(RunFailed)] == [
        (("lead", "slow#1"), "EXECUTION_CANCELLED")
    ]


@virtual_clock
async def test_a_cancellation_from_outside_tells_of_no_end(recorder: Recorder) -> None:
    running = asyncio.create_task(run(lead_of(TASK, slow()), "Go.", on_event=recorder))
    await asyncio.sleep(1)
    await cancelled(running)
    assert recorder.of(RunFailed) == []

"""The life of a background task: registered at once, one final status, one notification, gone when its owner leaves."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Literal

import pytest

from journeyman import Abort, Agent, Failure, Rejected, Runtime, Tasks, ToolContext, Usage, run, tool
from journeyman.cancellation import current_scope
from journeyman.events import Event, Identity, TaskEnded, TaskInfo, TaskKind, TaskMessaged, TaskStarted
from journeyman.gate import Allow, Approval, Ask, Decision, Stop
from journeyman.loop.state import run_context
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.background import TaskContext
from tests.play import Door, Recorder, cancelled, make_gate, make_tool, on_virtual_clock, raising, virtual_clock
from tests.tasks.works import Told, ended, giving, heeding, sleeping, stubborn


@virtual_clock
async def test_a_task_can_be_seen_before_start_returns() -> None:
    async with Tasks() as tasks:
        info = tasks.get(tasks.start(sleeping, description="sleep"))
        assert (info.id, info.status, info.description, info.depth) == ("bg-1", "running", "sleep", 0)
        assert tasks.list() == (info,)


@virtual_clock
async def test_ids_of_every_kind_share_one_counter() -> None:
    kinds: tuple[TaskKind, ...] = ("agent", "shell", "member", "tool")
    async with Tasks() as tasks:
        ids = [tasks.start(giving("x"), description=kind, kind=kind) for kind in kinds]
        assert ids == ["bg-1", "sh-2", "tm-3", "bg-4"]
        assert [info.kind for info in tasks.list()] == [*kinds]


async def test_nothing_starts_outside_the_block() -> None:
    tasks = Tasks()
    with pytest.raises(RuntimeError, match="not open"):
        tasks.start(giving("x"), description="early")
    async with tasks:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        tasks.start(giving("x"), description="late")
    with pytest.raises(RuntimeError, match="Make another"):
        await tasks.__aenter__()


async def test_a_thread_may_start_write_to_and_stop_a_task(told: Told) -> None:
    async with Tasks(notify=told) as tasks:
        answers: list[object] = []

        def elsewhere() -> None:
            id = tasks.start(sleeping, description="sleep")
            answers.extend((id, tasks.get(id).status, tasks.message(id, "hello"), tasks.stop(id)))

        await asyncio.to_thread(elsewhere)
        await tasks.wait()
        assert answers == ["bg-1", "running", "queued", True]
    assert told.ended == [("bg-1", "killed")]


@virtual_clock
async def test_a_detached_task_keeps_the_variables_of_its_caller_but_not_its_end() -> None:
    folder = ContextVar("folder", default="/")
    seen: list[object] = []

    @tool
    async def begin(ctx: ToolContext) -> str:
        folder.set("/project")
        assert ctx.tasks is not None

        async def work(task: TaskContext) -> None:
            seen.extend((folder.get(), run_context.get().path, current_scope.get(), run_context.get().task is task))
            await asyncio.sleep(100)
            seen.append("outlived it")

        return ctx.tasks.start(work, description="dig")

    agent = Agent(name="lead", model=ScriptedModel([call("begin"), "Done."]), tools=[begin])
    async with Tasks() as tasks:
        abort = Abort()
        result = await run(agent, "Go.", runtime=Runtime(tasks=tasks), abort=abort)
        assert result.unwrap() == "Done."
        assert tasks.list()[0].depth == 1
        assert tasks.list()[0].path == ("lead",)
        abort.abort()
        await tasks.wait()
    assert seen == ["/project", ("lead",), None, True, "outlived it"]


@virtual_clock
async def test_a_task_outlives_the_run_that_was_cancelled(door: Door) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        assert ctx.tasks is not None
        ctx.tasks.start(door.work, description="wait")
        await asyncio.sleep(3_600)
        return "never"

    agent = Agent(name="lead", model=ScriptedModel([call("begin")]), tools=[begin])
    async with Tasks() as tasks:
        running = asyncio.create_task(run(agent, "Go.", runtime=Runtime(tasks=tasks)))
        await cancelled(running, when=door.reached)
        assert running.cancelled()
        door.opened.set()
        await tasks.wait("bg-1")
        assert tasks.get("bg-1").result == "let go"


@pytest.mark.parametrize(
    ("value", "result"), [("text", "text"), ({"n": 1}, '{"n":1}'), (None, "(no output)"), ("", "")]
)
async def test_what_the_work_returns_is_the_result(value: object, result: str) -> None:
    async with Tasks() as tasks:
        info = await ended(tasks, giving(value))
        assert (info.status, info.result, info.value, info.error) == ("completed", result, value, None)
        assert info.ended is not None
        assert info.ended >= info.started


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such month"), "ValueError: no such month"),
        (Rejected("no such month"), "no such month"),
        (asyncio.CancelledError(), "it cancelled something of its own, and let the error leak"),
        (KeyError(), "KeyError"),
    ],
)
async def test_what_the_work_raises_is_why_the_task_failed(error: BaseException, text: str) -> None:
    async with Tasks() as tasks:
        info = await ended(tasks, giving(error))
        assert (info.status, info.error, info.result) == ("failed", text, None)


async def test_a_result_that_cannot_be_told_makes_the_task_fail() -> None:
    async with Tasks() as tasks:
        info = await ended(tasks, giving(iter([1, 2])))
        assert (info.status, info.value) == ("failed", None)
        assert (info.error or "").startswith("TypeError: ")


@pytest.mark.parametrize("kind", ["tool", "agent", "shell", "member"])
@virtual_clock
async def test_a_stop_ends_every_kind_as_killed(kind: TaskKind, told: Told) -> None:  # S16.6
    async with Tasks(notify=told) as tasks:
        id = tasks.start(sleeping, description="sleep", kind=kind)
        await asyncio.sleep(1)
        assert tasks.stop(id) is True
        await tasks.wait()
        info = tasks.get(id)
        assert (info.status, info.error, info.duration_s) == ("killed", None, 1.0)
        assert tasks.stop(id) is False
    assert told.ended == [(id, "killed")]


@virtual_clock
async def test_work_that_heeds_the_signal_ends_by_itself() -> None:
    async with Tasks() as tasks:
        id = tasks.start(heeding, description="work")
        await asyncio.sleep(1)
        tasks.stop(id)
        await tasks.wait()
        info = tasks.get(id)
        assert (info.status, info.error, info.n_calls) == ("killed", "RuntimeError: it had to stop", 3)


@virtual_clock
async def test_a_run_that_ended_although_a_stop_raced_in_is_completed() -> None:
    async def work(task: TaskContext) -> str:
        told = asyncio.Event()
        task.abort.subscribe(told.set)
        await told.wait()
        return "finished all the same"

    async with Tasks() as tasks:
        id = tasks.start(work, description="work")
        await asyncio.sleep(1)
        assert tasks.stop(id)
        await tasks.wait()
        assert (tasks.get(id).status, tasks.get(id).result) == ("completed", "finished all the same")


@virtual_clock
async def test_a_task_that_is_stopped_before_it_began_never_begins(told: Told) -> None:
    begun = list[str]()

    async def work(task: TaskContext) -> None:
        begun.append(task.id)

    async with Tasks(notify=told) as tasks:
        assert tasks.stop(tasks.start(work, description="work"))
    assert (begun, told.ended) == ([], [("bg-1", "killed")])


@virtual_clock
async def test_who_ignores_the_signal_is_cancelled_when_the_grace_is_over_and_again_after_that() -> None:
    async def deaf(task: TaskContext) -> str:
        task.abort.subscribe(lambda: None)
        return await stubborn(task)

    async with Tasks(grace_s=2) as tasks:
        for work in (stubborn, deaf):
            tasks.start(work, description="work")
        await asyncio.sleep(1)
        assert tasks.stop_all() == 2
        await tasks.wait()
        assert [(info.status, info.duration_s) for info in tasks.list()] == [("killed", 5.0), ("killed", 7.0)]


@virtual_clock
async def test_a_task_that_somebody_else_cancels_is_killed_and_told_of(told: Told) -> None:
    async with Tasks(notify=told) as tasks:
        tasks.start(sleeping, description="sleep")
        tasks.start(sleeping, description="never begins")
        for id in ("bg-2", "bg-1"):
            (found,) = [each for each in asyncio.all_tasks() if each.get_name() == f"background task {id}"]
            found.cancel()
            await asyncio.sleep(1)
        await tasks.wait()
    assert sorted(told.ended) == [("bg-1", "killed"), ("bg-2", "killed")]


@virtual_clock
async def test_a_stop_in_the_last_step_of_the_work_does_not_hit_the_notification() -> None:
    order: list[str] = []

    async def work(task: TaskContext) -> str:
        assert tasks.stop(task.id)
        return "done all the same"

    async def notify(text: str, info: TaskInfo) -> None:
        await asyncio.sleep(1)
        order.append(info.status)

    async with Tasks(notify=notify) as tasks:
        await ended(tasks, work)
    assert (order, tasks.errors) == (["completed"], ())


def test_work_that_ends_the_program_leaves_no_task_running_and_is_told_of() -> None:
    made, told = list[Tasks](), list[str]()

    async def whole() -> None:
        async with Tasks(notify=lambda text, info: told.append(info.id)) as tasks:
            made.append(tasks)
            tasks.start(giving(SystemExit(3)), description="exit")
            await ended(tasks, sleeping)

    with pytest.raises(SystemExit):
        on_virtual_clock(whole)
    assert ([info.status for info in made[0].list()], told) == (["killed", "killed"], ["bg-1", "bg-2"])


@virtual_clock
async def test_leaving_because_of_an_error_stops_everything_as_well() -> None:
    tasks = Tasks()

    async def failing() -> None:
        async with tasks:
            tasks.start(sleeping, description="sleep")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert tasks.get("bg-1").status == "killed"


@virtual_clock
async def test_who_is_cancelled_while_leaving_still_waits_for_the_end() -> None:
    tasks = Tasks(grace_s=3_600)

    async def whole() -> None:
        async with tasks:
            tasks.start(heeding_slowly, description="work")
            await asyncio.sleep(1)

    async def heeding_slowly(task: TaskContext) -> None:
        task.abort.subscribe(lambda: None)
        await asyncio.sleep(1_000)

    running = asyncio.create_task(whole())
    await asyncio.sleep(5)
    assert tasks.get("bg-1").status == "running"
    await cancelled(running)
    assert running.cancelled()
    assert (tasks.get("bg-1").status, tasks.get("bg-1").duration_s) == ("killed", 5.0)


@virtual_clock
async def test_work_that_is_being_left_starts_nothing_more() -> None:
    async def work(task: TaskContext) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            tasks.start(sleeping, description="one more")

    async with Tasks() as tasks:
        tasks.start(work, description="work")
        await asyncio.sleep(1)
    assert [(info.id, info.status) for info in tasks.list()] == [("bg-1", "killed")]
    assert "not open" in (tasks.get("bg-1").error or "")


@virtual_clock
async def test_waiting_covers_work_that_is_started_meanwhile() -> None:
    async def work(task: TaskContext) -> None:
        await asyncio.sleep(1)
        if len(tasks.list()) < 4:
            tasks.start(work, description="the next one")

    async with Tasks() as tasks:
        await ended(tasks, work)
        assert [info.status for info in tasks.list()] == ["completed"] * 4


@virtual_clock
async def test_waiting_covers_the_notification() -> None:
    order: list[str] = []

    async def notify(text: str, info: TaskInfo) -> None:
        order.append(f"{info.status}, still {tasks.active}")
        await asyncio.sleep(5)
        order.append("told")

    async with Tasks(notify=notify) as tasks:
        tasks.start(giving("x"), description="work")
        await tasks.wait("bg-1")
        order.append("waited")
    assert order == ["completed, still ('bg-1',)", "told", "waited"]


@virtual_clock
async def test_waiting_for_one_does_not_wait_for_others() -> None:
    async with Tasks() as tasks:
        tasks.start(sleeping, description="sleep")
        await tasks.wait(tasks.start(giving("x"), description="give"))
        assert tasks.active == ("bg-1",)


async def test_waiting_for_what_is_not_there_names_what_is() -> None:
    async with Tasks() as tasks:
        tasks.start(giving("x"), description="give")
        with pytest.raises(KeyError, match=r"There is no task 'bg-9'. The tasks are: bg-1."):
            await tasks.wait("bg-9")
        with pytest.raises(KeyError, match="bg-1"):
            tasks.get("bg-9")


@pytest.mark.parametrize("where", ["work", "notification"])
@virtual_clock
async def test_a_task_cannot_wait_for_itself(where: Literal["work", "notification"]) -> None:
    caught: list[str] = []

    async def waiting(*_: object) -> None:
        try:
            await tasks.wait()
        except RuntimeError as error:
            caught.append(str(error))

    async with Tasks(notify=waiting if where == "notification" else None) as tasks:
        tasks.start(waiting if where == "work" else giving("x"), description="wait")
        await tasks.wait()
    assert caught == ["Task bg-1 cannot wait for its own end: that would never come."]


@virtual_clock
async def test_counts_grow_while_it_runs_and_stay_when_it_has_ended() -> None:
    async def work(task: TaskContext) -> None:
        task.count(n_calls=1, usage=Usage(requests=1, input_tokens=10))
        await asyncio.sleep(2)
        task.count(n_calls=2)
        task.exited(0)
        contexts.append(task)

    contexts: list[TaskContext] = []
    async with Tasks() as tasks:
        id = tasks.start(work, description="work", agent="scout")
        await asyncio.sleep(1)
        info = tasks.get(id)
        assert (info.n_calls, info.usage.input_tokens, info.duration_s, info.agent) == (1, 10, 1.0, "scout")
        await tasks.wait()
        contexts[0].count(n_calls=99)  # too late
        assert (tasks.get(id).n_calls, tasks.get(id).usage.input_tokens, tasks.get(id).duration_s) == (2, 10, 2.0)


@virtual_clock
async def test_a_member_shows_who_it_is_and_what_it_does() -> None:
    async def work(task: TaskContext) -> None:
        await asyncio.sleep(2)
        task.sign("idle")
        await asyncio.sleep(2)

    async with Tasks() as tasks:
        id = tasks.start(work, description="scout", kind="member", identity=Identity("ann", "crew"))
        seen = [(tasks.get(id).liveness, tasks.get(id).last_sign)]
        await asyncio.sleep(3)
        seen.append((tasks.get(id).liveness, tasks.get(id).last_sign))
        await tasks.wait()
        info = tasks.get(id)
        assert info.identity is not None
        assert info.identity.id == "ann@crew"
        assert [seen[0][0], seen[1][0], info.liveness] == ["working", "idle", "gone"]
        assert None not in (seen[0][1], seen[1][1])


@virtual_clock
async def test_events_tell_of_start_messages_and_end_before_the_notification(recorder: Recorder) -> None:
    order = list[str]()

    def on_event(event: Event) -> None:
        recorder(event)
        order.append(type(event).__name__)

    async with Tasks(on_event=on_event, notify=lambda text, info: order.append("told")) as tasks:
        id = tasks.start(Door().work, description="wait")
        assert tasks.message(id, "hello") == "queued"
        tasks.stop(id)
        await tasks.wait()
        assert tasks.message(id, "late") == "gone"
        assert tasks.message("bg-9", "lost") == "unknown"
    assert order == ["TaskStarted", "TaskMessaged", "TaskEnded", "told", "TaskMessaged", "TaskMessaged"]
    assert [event.delivery for event in recorder.of(TaskMessaged)] == ["queued", "gone", "unknown"]
    assert recorder.of(TaskStarted)[0].info.status == "running"
    assert recorder.of(TaskEnded)[0].info == tasks.get(id)


@virtual_clock
async def test_what_listeners_and_notifications_raise_is_kept_and_logged_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    angry = raising(ValueError("not now"))
    async with Tasks(on_event=angry, notify=angry) as tasks:
        await ended(tasks, giving("x"))
        assert tasks.get("bg-1").status == "completed"
    assert [error.callback.rpartition(".")[2] for error in tasks.errors] == ["fail", "fail", "notify"]
    listener, callback = [record.getMessage().partition(" at ")[0] for record in caplog.records]
    assert listener.startswith("The listener ")
    assert listener.endswith(".fail raised ValueError")
    assert callback == "The callback notify raised ValueError"


@virtual_clock
async def test_work_that_raises_is_logged_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    async def work(context: TaskContext) -> str:
        raise LookupError("a secret")

    async with Tasks() as tasks:
        await ended(tasks, work)
        assert tasks.get("bg-1").error == "LookupError: a secret"
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith(f"Background work of bg-1 raised LookupError at {__file__}:")
    assert "secret" not in logged


@virtual_clock
async def test_a_notification_that_hangs_is_cut_short_when_the_tasks_are_left() -> None:
    async def hang(text: str, info: TaskInfo) -> None:
        await asyncio.Event().wait()

    async with Tasks(notify=hang, grace_s=3) as tasks:
        tasks.start(giving("x"), description="give")
        tasks.start(sleeping, description="sleep")
        await asyncio.sleep(1)
        assert (tasks.active, tasks.stop_all()) == (("bg-1", "bg-2"), 1)
        left = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - left == 3
    assert [error.callback for error in tasks.errors] == ["notify", "notify"]


@virtual_clock
async def test_a_task_ends_after_its_notification_however_often_it_is_cancelled() -> None:
    n_swallowed = 0

    async def tell(text: str, info: TaskInfo) -> None:
        nonlocal n_swallowed
        while n_swallowed < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                n_swallowed += 1

    async with Tasks(notify=tell) as tasks:
        tasks.start(giving("x"), description="give")
        await asyncio.sleep(1)
        (notifying,) = [each for each in asyncio.all_tasks() if each.get_name() == "notification of bg-1"]
        for n in range(3):
            assert (tasks.active, n_swallowed) == (("bg-1",), n)
            notifying.cancel()
            await asyncio.sleep(1)
        assert (tasks.active, n_swallowed, tasks.get("bg-1").status) == ((), 3, "completed")


async def test_a_task_in_a_thread_that_reports_is_seen() -> None:
    reported, go_on = threading.Event(), threading.Event()

    async def work(task: TaskContext) -> str:
        def dig() -> str:
            task.write("half of it")
            reported.set()
            go_on.wait(10)
            return "dug"

        return await asyncio.to_thread(dig)

    async with Tasks() as tasks:
        id = tasks.start(work, description="dig")
        await asyncio.to_thread(reported.wait, 10)
        assert tasks.output(id) == "half of it"
        go_on.set()
        await tasks.wait()
        assert tasks.get(id).result == "dug"


async def test_a_stop_by_a_gate_ends_the_task_and_not_the_run_that_started_it() -> None:
    @tool(effect="once")
    async def begin(ctx: ToolContext) -> str:
        assert ctx.tasks is not None

        async def work(task: TaskContext) -> object:
            inner = Agent(name="digger", model=ScriptedModel([call("dig"), "Dug."]), tools=[make_tool("dig", "dug")])
            return (await run(inner, "Dig.", abort=task.abort)).unwrap()

        id = ctx.tasks.start(work, description="dig", kind="agent", agent="digger")
        await tasks.wait(id)
        return tasks.get(id).status

    async def approve(approval: Approval) -> Decision:
        n_asked.append(1)
        return Allow() if len(n_asked) == 1 else Stop("no more of this")

    n_asked: list[int] = []
    lead = Agent(name="lead", model=ScriptedModel([call("begin"), "Done."]), tools=[begin])
    async with Tasks() as tasks:
        result = await run(lead, "Go.", runtime=Runtime(tasks=tasks, gate=make_gate(Ask("May it?")), approver=approve))
        assert not isinstance(result, Failure), result
        assert (result.output, tasks.get("bg-1").status) == ("Done.", "killed")

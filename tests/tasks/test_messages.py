"""What is said to a task, by a program or by a model with its tools: read, refused, or told of as unread."""

import asyncio

import pytest

from journeyman import Agent, Tasks, Usage, run
from journeyman.events import Event, Identity, TaskEnded
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.background import TaskContext
from tests.play import answered, virtual_clock
from tests.tasks.works import Told, ended, giving, sleeping


@virtual_clock
async def test_a_message_after_the_inbox_was_closed_is_refused() -> None:  # S16.6
    async def work(task: TaskContext) -> str:
        assert task.inbox.pick_up() is False
        closed.set()
        await asyncio.sleep(10)  # still running, but it reads no more
        return "done"

    closed = asyncio.Event()
    async with Tasks() as tasks:
        id = tasks.start(work, description="work", kind="agent")
        await closed.wait()
        assert tasks.get(id).is_running
        assert tasks.message(id, "too late") == "gone"
        await tasks.wait()
        assert tasks.get(id).undelivered == ()


@virtual_clock
async def test_what_was_queued_and_never_read_is_told(told: Told) -> None:
    async with Tasks(notify=told) as tasks:
        id = tasks.start(sleeping, description="sleep")
        assert [tasks.message(id, text) for text in ("one", "two")] == ["queued", "queued"]
        tasks.stop(id)
        assert tasks.message(id, "three") == "gone"
        await tasks.wait()
        assert tasks.get(id).undelivered == ("one", "two")
    assert "<unread-message>one</unread-message>\n<unread-message>two</unread-message>" in told.notes[0][0]


@virtual_clock
async def test_the_inbox_is_closed_in_the_step_in_which_the_task_ends() -> None:  # S16.6
    contexts: list[TaskContext] = []

    async def work(task: TaskContext) -> None:
        contexts.append(task)

    def on_event(event: Event) -> None:
        if isinstance(event, TaskEnded):  # what another thread would find that had just seen the task running
            assert contexts[0].inbox.offer("too late", "steering") is None

    async with Tasks(on_event=on_event) as tasks:
        await ended(tasks, work)
        assert (len(contexts), tasks.errors) == (1, ())


@virtual_clock
async def test_a_message_goes_where_the_task_wants_it() -> None:
    mail: list[str] = []

    def receive(text: str) -> bool:
        mail.append(text)
        return text != "spam"

    async with Tasks() as tasks:
        id = tasks.start(sleeping, description="member", kind="member", receive=receive)
        assert [tasks.message(id, text) for text in ("hello", "spam")] == ["queued", "gone"]
    assert mail == ["hello", "spam"]


async def test_a_blank_message_is_refused() -> None:
    async with Tasks() as tasks:
        tasks.start(sleeping, description="sleep")
        with pytest.raises(ValueError, match="blank"):
            tasks.message("bg-1", " \n")


async def asked(tasks: Tasks, name: str, **arguments: object) -> str:
    """Call a tool of the tasks as a model does, and return what it reads; errors in front of what they say."""
    (found,) = [each for each in tasks.tools() if each.name == name]
    result = await answered(found, arguments)
    return f"Error: {result.text}" if result.is_error else result.text


def test_there_are_four_tools_and_only_the_output_is_untrusted() -> None:
    tools = Tasks().tools()
    assert [(each.name, each.effect, each.parallel, each.untrusted) for each in tools] == [
        ("task_list", "pure", True, False),
        ("task_output", "pure", True, True),
        ("task_message", "once", False, False),
        ("task_stop", "idempotent", False, False),
    ]


@virtual_clock
async def test_a_model_sees_all_tasks_in_the_order_of_their_start() -> None:
    async with Tasks() as tasks:
        assert await asked(tasks, "task_list") == "There are no background tasks."
        tasks.start(giving("x"), description="read\nthe mail", kind="agent", agent="scout")
        tasks.start(sleeping, description="make", kind="shell", command="make")
        tasks.start(sleeping, description="look around", kind="member", identity=Identity("ann", "crew"))
        await asyncio.sleep(12)
        assert (await asked(tasks, "task_list")).splitlines() == [
            "bg-1 agent completed (0 s) scout: read the mail",
            "sh-2 shell running (12 s) make",
            "tm-3 member running (working, 12 s) ann@crew: look around",
        ]


@virtual_clock
async def test_a_model_reads_the_output_while_a_task_runs_and_the_result_when_it_has_ended() -> None:
    async def work(task: TaskContext) -> str:
        task.write("half of it")
        task.count(usage=Usage(requests=1))
        await asyncio.sleep(10)
        return "all of it"

    async with Tasks() as tasks:
        tasks.start(work, description="dig")
        await asyncio.sleep(1)
        assert await asked(tasks, "task_output", id="bg-1") == "[bg-1 tool running (1 s) dig]\nhalf of it"
        await tasks.wait()
        assert await asked(tasks, "task_output", id="bg-1") == "[bg-1 tool completed (10 s) dig]\nall of it"


@virtual_clock
async def test_a_model_can_wait_for_the_end_of_a_task_for_a_while() -> None:
    async with Tasks() as tasks:
        tasks.start(sleeping, description="sleep")
        text = await asked(tasks, "task_output", id="bg-1", wait_s=60)
        assert text == "[bg-1 tool running (60 s) sleep]\n(no output)"
        for _ in range(5):
            await asked(tasks, "task_output", id="bg-1", wait_s=600)
        text = await asked(tasks, "task_output", id="bg-1", wait_s=600)
        assert text == "[bg-1 tool completed (3600 s) sleep]\nslept"
        assert "less than or equal to 600" in await asked(tasks, "task_output", id="bg-1", wait_s=601)


@virtual_clock
async def test_a_model_reads_why_a_task_failed_and_where_its_output_is() -> None:
    class Paper:
        def write(self, text: str, /) -> None: ...
        def close(self) -> None: ...

    async with Tasks(output=lambda id, subject: (Paper(), f"/out/{id}")) as tasks:
        await ended(tasks, giving(ValueError("sand")))
        assert await asked(tasks, "task_output", id="bg-1") == (
            "[bg-1 tool failed (0 s) work]\n[failed: ValueError: sand]\n[All of its output is in /out/bg-1.]"
        )


@virtual_clock
async def test_a_model_that_writes_to_a_command_or_to_what_is_ending_reads_why_not() -> None:
    async def closing(task: TaskContext) -> None:
        task.inbox.close()
        await asyncio.sleep(10)

    async with Tasks() as tasks:
        tasks.start(sleeping, description="make", kind="shell")
        tasks.start(closing, description="close")
        await asyncio.sleep(1)
        assert await asked(tasks, "task_message", id="sh-1", text="Hurry.") == (
            "Error: Task sh-1 is a command, and reads no messages. Use task_stop to end it."
        )
        assert await asked(tasks, "task_message", id="bg-2", text="Hurry.") == (
            "Error: Task bg-2 is about to end, and reads no more. You will be told when it has."
        )


@virtual_clock
async def test_a_scripted_call_passes_an_id_on_to_a_tool_that_takes_one() -> None:
    async with Tasks() as tasks:
        tasks.start(sleeping, description="sleep")
        script = ScriptedModel(
            [call("task_message", id="bg-1", text="Hurry."), call("task_stop", {"id": "bg-1"}, id="b"), "ok"]
        )
        result = await run(Agent(name="lead", model=script, tools=tasks.tools()), "Go.")
        assert [use.input for message in result.history for use in message.tool_uses] == [
            {"id": "bg-1", "text": "Hurry."},
            {"id": "bg-1"},
        ]
        assert result.history[3].tool_uses[0].id == "b"


@pytest.mark.parametrize("name", ["task_output", "task_message", "task_stop"])
@virtual_clock
async def test_an_id_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    given = {"text": "hello"} if name == "task_message" else {}
    async with Tasks() as tasks:
        text = await asked(tasks, name, id="bg-7", **given)
        assert text == "Error: There is no task 'bg-7'. There are no background tasks."
        tasks.start(giving("x"), description="give")
        tasks.start(giving("x"), description="give", kind="shell")
        text = await asked(tasks, name, id="bg-7", **given)
        assert text == "Error: There is no task 'bg-7'. The tasks are: bg-1, sh-2."

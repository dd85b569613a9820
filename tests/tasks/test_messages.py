"""Messages to a task: read before its next model call, or refused, or told of as unread. None is lost unseen."""

from __future__ import annotations

import asyncio

import pytest

from journeyman import Agent, Success, Tasks, tool
from journeyman.events import Event, TaskEnded
from journeyman.history import History
from journeyman.loop.attempts import carry_out
from journeyman.loop.prepare import begin
from journeyman.loop.record import Options
from journeyman.models.scripted import Scripted, call
from journeyman.tools.background import TaskContext
from tests.support.clock import virtual_clock
from tests.support.recorder import transcript
from tests.tasks.players import Gate, Told, giving, sleeping


async def agent_work(task: TaskContext, agent: Agent, history: History) -> str:
    """Run an agent as a delegated run does: it reads what is said to the task, also at its natural stop."""
    options = Options(history=history, inbox=task.inbox, abort=task.abort)
    result = await carry_out(begin(agent, "Dig.", options))
    while isinstance(result, Success) and task.inbox.pick_up():
        going_on = Options(history=history, inbox=task.inbox, abort=task.abort, going_on=task.inbox.hand_over)
        result = await carry_out(begin(agent, "Dig.", going_on))
    return str(result.unwrap())


@virtual_clock
async def test_a_message_is_read_before_the_next_model_call() -> None:
    gate = Gate()

    @tool
    async def dig() -> str:
        """Dig."""
        gate.reached.set()
        await gate.opened.wait()
        return "sand"

    agent = Agent(name="digger", model=Scripted([call("dig"), "Dug."]), tools=[dig])
    history = History()
    async with Tasks() as tasks:
        id = tasks.start(lambda task: agent_work(task, agent, history), description="dig", kind="agent")
        await gate.reached.wait()
        assert tasks.message(id, "Deeper.") == "queued"
        gate.opened.set()
        await tasks.wait()
        assert (tasks.get(id).result, tasks.get(id).undelivered) == ("Dug.", ())
    assert transcript(history.export()) == [
        ("user", "Dig."),
        ("assistant", "dig({})#call_1_0"),
        ("user", "#call_1_0: sand", "Deeper."),
        ("assistant", "Dug."),
    ]


@virtual_clock
async def test_a_message_that_comes_with_the_last_answer_starts_one_more_round() -> None:  # S16.6
    history = History()
    async with Tasks() as tasks:

        async def answer(task: TaskContext) -> str:
            agent = Agent(name="digger", model=Scripted([answering, "Both done."]))
            return await agent_work(task, agent, history)

        async def answering(request: object) -> str:
            assert tasks.message("bg-1", "And the garden.") == "queued"
            return "Done."

        tasks.start(answer, description="dig", kind="agent")
        await tasks.wait()
        info = tasks.get("bg-1")
        assert (info.result, info.undelivered) == ("Both done.", ())


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
async def test_what_was_queued_and_never_read_is_told() -> None:
    told = Told()
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
        tasks.start(work, description="work")
        await tasks.wait()
        assert (len(contexts), tasks.errors) == (1, ())


@virtual_clock
async def test_a_message_to_what_has_ended_or_never_was_is_refused_by_name() -> None:
    async with Tasks() as tasks:
        tasks.start(giving("x"), description="give")
        await tasks.wait()
        assert (tasks.message("bg-1", "hello"), tasks.message("bg-2", "hello")) == ("gone", "unknown")


@virtual_clock
async def test_a_command_takes_no_messages() -> None:
    async with Tasks() as tasks:
        id = tasks.start(sleeping, description="sleep", kind="shell")
        assert tasks.message(id, "hello") == "gone"


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

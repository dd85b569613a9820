"""What any thread may call, called from threads that are switched between any two steps: nothing is lost, doubled, or
left waiting."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman import Abort, Agent, Chat, Subagents, Tasks, Usage, ask_user, run, tool
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine
from journeyman.events import Event, QuestionAsked, TaskInfo
from journeyman.inbox import Receipt
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from journeyman.tools.background import TaskContext
from tests.support.busy import busy_threads
from tests.support.shares import IS_WHOLE
from tests.tasks.works import Told, giving, sleeping

pytestmark = pytest.mark.fuzz

N_TRIES = 40 if IS_WHOLE else 20


def talker() -> Agent:
    return Agent(name="talker", model=FunctionModel(lambda request: "Well."))


async def in_threads(act: Callable[[int], object], n: int = 3) -> None:
    """Let each of some threads act, with its number, while the event loop never rests."""
    acting = asyncio.gather(*[asyncio.to_thread(act, number) for number in range(n)])
    while not acting.done():  # noqa: ASYNC110 - it is to be in every step while the threads act
        await asyncio.sleep(0)
    await acting


async def test_a_task_that_a_thread_starts_and_stops_at_once_is_told_of_once() -> None:
    told = Told()

    async def notify(text: str, info: TaskInfo) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        told(text, info)

    def act(number: int) -> None:
        for _ in range(5 * N_TRIES):
            id = tasks.start(giving("x") if number == 0 else sleeping, description="work")
            tasks.message(id, "Hello.")
            tasks.stop(id)

    with busy_threads():
        async with Tasks(notify=notify) as tasks:
            await in_threads(act)
            await tasks.wait()
    assert sorted(id for id, _ in told.ended) == sorted(info.id for info in tasks.list())
    assert len(told.ended) == 15 * N_TRIES
    assert tasks.errors == ()


async def test_a_task_that_a_thread_starts_while_the_tasks_are_left_is_refused_or_told_of() -> None:
    def act(tasks: Tasks, started: list[str], begun: threading.Event) -> None:
        while True:
            try:
                started.append(tasks.start(sleeping, description="work"))
            except RuntimeError:
                return
            begun.set()

    with busy_threads():
        for _ in range(N_TRIES // 4):
            told, started, begun = Told(), list[str](), threading.Event()
            async with Tasks(notify=told) as tasks:
                acting = asyncio.create_task(asyncio.to_thread(act, tasks, started, begun))
                await asyncio.to_thread(begun.wait)
            await acting
            assert sorted(told.ended) == sorted((id, "killed") for id in started)


async def test_work_that_listens_to_its_signal_has_its_time_also_when_a_thread_stops_it() -> None:
    results: list[str] = []

    async def work(task: TaskContext) -> None:
        ended = await run(Agent(name="w", model=FunctionModel(_never)), "Go.", abort=task.abort)
        results.append(ended.unwrap_or("aborted"))

    def act(number: int) -> None:
        for _ in range(N_TRIES):
            tasks.stop(tasks.start(work, description="work"))

    with busy_threads():
        async with Tasks() as tasks:
            await in_threads(act)
            await tasks.wait()
    assert {info.status for info in tasks.list()} <= {"killed", "completed"}
    assert set(results) <= {"aborted"}


async def _never(request: object) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_what_threads_count_and_write_undoes_no_end_and_loses_no_line() -> None:
    async def work(task: TaskContext) -> None:
        def act(number: int) -> None:
            for line in range(N_TRIES):
                task.write(f"{number}.{line}")
                task.count(n_calls=line, usage=Usage(requests=line))

        late.append(asyncio.create_task(in_threads(act)))
        await asyncio.sleep(0)

    late: list[asyncio.Task[None]] = []
    with busy_threads():
        async with Tasks() as tasks:
            ids = [tasks.start(work, description="work") for _ in range(5)]
            await tasks.wait()
            await asyncio.gather(*late)
    assert {info.status for info in tasks.list()} == {"completed"}
    for id in ids:
        assert sorted(tasks.output(id).split()) == sorted(f"{n}.{line}" for n in range(3) for line in range(N_TRIES))


@pytest.mark.parametrize("is_kept", [False, True], ids=["in memory", "in a file"])
async def test_what_threads_say_to_a_chat_is_said_once_or_withdrawn(is_kept: bool, tmp_path: Path) -> None:
    receipts: list[Receipt] = []
    withdrawn: list[str] = []

    def act(chat: Chat[str, str], number: int) -> None:
        for line in range(N_TRIES // 4):
            say = chat.steer if line % 2 else chat.follow_up
            receipts.append(say(f"<{number}.{line}>"))
            if line % 7 == 6:
                withdrawn.extend(chat.clear())

    async def talk(chat: Chat[str, str]) -> None:
        acting = asyncio.create_task(in_threads(lambda number: act(chat, number)))
        while not acting.done():
            await chat.prompt("Go on.")
        await acting
        await chat.prompt("Is that all?")
        said = "".join(message.text for message in chat.messages if message.role == "user")
        delivered = [receipt.text for receipt in receipts if receipt.status == "delivered"]
        assert {text: said.count(text) for text in delivered} == dict.fromkeys(delivered, 1)
        assert sorted(receipt.text for receipt in receipts if receipt.status == "withdrawn") == sorted(withdrawn)
        assert len(delivered) + len(withdrawn) == len(receipts)

    with busy_threads():
        if is_kept:
            async with Chat.open(talker(), tmp_path / "chats.db") as chat:
                await talk(chat)
        else:
            async with Chat(talker()) as chat:
                await talk(chat)


async def test_what_a_thread_injects_is_never_left_waiting_at_a_natural_stop() -> None:
    with busy_threads():
        async with Chat(talker()) as chat:
            await chat.prompt("Hello.")
            for _ in range(N_TRIES):
                injecting = asyncio.create_task(in_threads(lambda number: chat.inject(f"Inject {number}.")))
                while not injecting.done():
                    await (chat.wait_idle() if chat.state.is_running else chat.prompt("Go on."))
                await injecting
                while chat.state.is_running:
                    await chat.wait_idle()
                assert chat.state.steering == ()


async def test_a_thread_may_answer_and_abort_at_any_step() -> None:
    def answering(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            answers.append(asyncio.create_task(asyncio.to_thread(answer, event.id)))

    def answer(id: str) -> None:
        try:
            chat.answer(id, "Blue.")
        except KeyError:
            too_late.append(id)

    answers: list[asyncio.Task[None]] = []
    too_late: list[str] = []
    ended: list[str] = []
    ask = call("ask_user", question="Which colour?")
    with busy_threads():
        for number in range(N_TRIES):
            agent = Agent(name="asker", model=ScriptedModel([ask, "Blue it is."]), tools=[ask_user])
            async with Chat(agent, on_event=answering) as chat:
                turn = chat.start("Paint.")
                stopping = asyncio.create_task(asyncio.to_thread(turn.abort)) if number % 2 else None
                result = await turn
                ended.append(result.unwrap_or("aborted"))
                await asyncio.gather(*answers, *([stopping] if stopping else []))
    assert set(ended[::2]) == {"Blue it is."}
    assert set(ended[1::2]) <= {"Blue it is.", "aborted"}
    assert len(too_late) <= ended.count("aborted")


def test_a_signal_of_a_thread_that_comes_as_the_loop_closes_raises_nothing() -> None:
    async def once(abort: Abort) -> str:
        firing = asyncio.get_running_loop().run_in_executor(None, abort.abort)
        result = await run(talker(), "Go.", abort=abort)
        firing.cancel()
        return result.unwrap_or("aborted")

    with busy_threads():
        ended = {asyncio.run(once(Abort())) for _ in range(N_TRIES)}
    assert ended <= {"Well.", "aborted"}


@pytest.mark.parametrize("how", ["run", "durable run", "sub-agent", "tool that runs an agent"])
async def test_an_abort_that_a_tool_has_seen_is_followed_by_no_model_request(how: str) -> None:
    """Though the event loop has not been told of it yet."""
    abort, model = Abort(), ScriptedModel([call("poll"), "never"])

    @tool(thread=False)
    def poll() -> str:
        """See the signal of another thread."""
        firing = threading.Thread(target=abort.abort)
        firing.start()
        firing.join()
        return f"seen: {abort.aborted}"

    @tool
    async def ask() -> str:
        """Ask an agent."""
        return str((await run(poller, "Go.")).code)

    poller = Agent(name="poller", description="Polls.", model=model, tools=[poll])
    delegate = call("subagent", agent="poller", task="Go.")
    lead = Agent(name="lead", model=ScriptedModel([delegate, "never"]), tools=[Subagents(poller)])
    asker = Agent(name="asker", model=ScriptedModel([call("ask"), "never"]), tools=[ask])
    if how == "durable run":
        async with Durable(InMemoryEngine()) as durable:
            result = await durable.run(poller, "Go.", abort=abort)
    else:
        result = await run({"run": poller, "sub-agent": lead}.get(how, asker), "Go.", abort=abort)
    assert (result.code, len(model.requests)) == ("EXECUTION_CANCELLED", 1)

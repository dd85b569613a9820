"""A conversation that outlives its process: kept in a session, or loaded again after it was cut off in mid-call."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from journeyman import Agent, Chat, Output, Runtime, dump_messages, load_messages, tool
from journeyman.chat.turn import ABORTED
from journeyman.chat.writer import SessionWriter
from journeyman.events import Event, MessageCommitted
from journeyman.inbox import Inbox, Queue, Receipt
from journeyman.journal import InMemoryJournal
from journeyman.model import Response
from journeyman.session import Session, Snapshot
from journeyman.store import Store
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, Message, Text, Thinking, ToolResult, ToolUse
from tests.play import Door, Report, Stage, cancelled, chatting, existing, make_tool, script_of, transcript
from tests.support.invariants_history import history_faults
from tests.support.kept import Kept


def acting(name: str, effect: Effect | None) -> AnyTool:
    """Return a tool with this effect."""

    return make_tool(name, name, effect=effect)


read, put, send = acting("read", "pure"), acting("put", "idempotent"), acting("send", "once")
plain = acting("plain", None)


PURE = "Error: interrupted before it finished. It changes nothing, so it may be called again."
IDEMPOTENT = "Error: interrupted before it finished. It may be called again with the same arguments."
ONCE = "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again."


def session_of(chat: Chat[object]) -> Session:
    return existing(chat.session)


def on_disk(kept: Kept, id: str) -> list[Message]:
    """Return what another process would find now, not closed."""
    with kept.stored() as store:
        return list(store.snapshot(id).messages)


async def test_a_message_is_on_disk_before_the_model_is_asked_and_before_a_call_begins(kept: Kept) -> None:
    seen: list[list[str]] = []

    def roles() -> None:
        seen.append([message.role for message in on_disk(kept, session_of(chat).id)])

    @tool
    async def act() -> str:
        roles()
        return "done"

    def answer(request: object) -> Answer:
        roles()
        return call("act", id="a") if len(seen) == 1 else "Done."

    async with Chat.open(Agent(name="tester", model=FunctionModel(answer), tools=[act]), kept.place) as chat:
        await chat.prompt("Go.")
        roles()
    assert seen == [["user"], ["user", "assistant"], ["user", "assistant", "user"], ["user", "assistant"] * 2]


async def test_the_result_of_a_call_is_on_disk_before_the_next_call_begins(kept: Kept, stage: Stage) -> None:
    door = Door()
    model = stage.model([[call("read", id="a"), call("wait", id="b")], "Done."])
    async with Chat.open(Agent(name="tester", model=model, tools=[read, door.tool()]), kept.place) as chat:
        chat.start("Go.")
        await door.reached.wait()
        with kept.stored() as store:
            results = store.messages(session_of(chat).id)[-1].content
        told = [(each.text, each.is_error) for each in results if isinstance(each, ToolResult)]
        unknown = "Error: interrupted before it finished. Whether it took effect is unknown."
        assert told == [("read", False), (unknown, True)]
        door.opened.set()
        await chat.wait_idle()
        assert on_disk(kept, session_of(chat).id) == list(chat.messages)


async def test_what_waits_is_kept_when_the_chat_is_left_and_its_receipt_says_so(kept: Kept) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["Hello."], repeat=True))
    async with Chat.open(agent, kept.place) as chat:
        await chat.prompt("Hi.")
        steering, follow_up = chat.steer("One."), chat.follow_up("Two.")
        gone = chat.follow_up("Three.")
        chat.follow_up("Four.")
        assert chat.clear("follow_ups") == ("Two.", "Three.", "Four.")
        last = chat.follow_up("Five.")
        id = session_of(chat).id
    assert [await each.outcome() for each in (steering, follow_up, gone, last)] == [
        "kept",
        "withdrawn",
        "withdrawn",
        "kept",
    ]
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert (chat.state.steering, chat.state.follow_ups) == (("One.",), ("Five.",))
        await chat.continue_()
        assert script_of(chat)[2::2] == [("user", "One."), ("user", "Five.")]
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert (chat.state.steering, chat.state.follow_ups) == ((), ())


async def test_texts_from_other_threads_are_kept_each_once(kept: Kept) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["Hello."], repeat=True))
    async with Chat.open(agent, kept.place) as chat:

        def talk(name: str) -> None:
            for number in range(20):
                chat.follow_up(f"{name} {number}.")

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for number in range(5):
            await chat.prompt(f"prompt {number}.")
        for thread in threads:
            thread.join()
        await chat.prompt("last.")
        id, said = session_of(chat).id, chat.messages
    users = [message for message in said if message.role == "user"]
    texts = [block.text for message in users for block in message.content if isinstance(block, Text)]
    assert sorted(texts) == sorted({*texts})
    assert len(texts) == 60 + 6
    for name in "abc":
        assert [text for text in texts if text.startswith(name)] == [f"{name} {number}." for number in range(20)]
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert chat.messages == said
        assert chat.state.follow_ups == ()


class MeetingInbox(Inbox):
    """An inbox in which one text is put and others are taken out at the same moment."""

    __slots__ = ("taking_out",)

    def put(self, text: str, queue: Queue, *, is_kept: bool = False) -> Receipt:
        if (keep := self.on_put) is not None:

            def meet(receipt: Receipt, queue: Queue) -> None:
                assert self.taking_out.wait(10)
                keep(receipt, queue)

            self.on_put = meet
        return super().put(text, queue, is_kept=is_kept)

    def take_out(self, receipts: Collection[Receipt]) -> None:
        self.taking_out.set()
        super().take_out(receipts)


def test_a_text_of_another_thread_and_a_turn_that_comes_back_do_not_wait_for_each_other(path: Path) -> None:
    inbox = MeetingInbox()
    inbox.taking_out = threading.Event()
    with Store(path) as store, closing(store.session("chat", agent="a", any_agent=True, create=True)) as session:
        writer = SessionWriter(session, inbox)
        works: list[Callable[[], object]] = [lambda: inbox.put("Hurry.", "steering"), lambda: writer.read(Snapshot())]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [thread.is_alive() for thread in threads] == [False, False]
    assert inbox.waiting("steering") == ("Hurry.",)


async def test_usage_goes_on_exactly_and_is_there_in_mid_turn(kept: Kept, door: Door) -> None:
    agent = Agent(name="tester", model=ScriptedModel([call("wait", id="a"), "Done."]), tools=[door.tool()])
    async with Chat.open(agent, kept.place) as chat:
        chat.start("Go.")
        await door.reached.wait()
        used = chat.usage
        with kept.stored() as store:
            assert store.sessions()[0].usage == used
        door.opened.set()
        await chat.wait_idle()
        whole, id = chat.usage, session_of(chat).id
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert chat.usage == whole
        assert whole.requests == 2


async def test_an_aborted_turn_is_kept_with_its_note(kept: Kept, door: Door) -> None:
    agent = Agent(name="tester", model=ScriptedModel([call("wait", id="a"), "I see."]), tools=[door.tool()])
    async with Chat.open(agent, kept.place) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.abort()
        assert (await turn).code == "EXECUTION_CANCELLED"
        id, said = session_of(chat).id, chat.messages
    assert said[-1].content[-1] == Text(ABORTED)
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert chat.messages == said


async def test_a_reset_and_a_replaced_conversation_are_kept(kept: Kept) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["Hello."], repeat=True))
    async with Chat.open(agent, kept.place) as chat:
        await chat.prompt("Hi.")
        chat.follow_up("Later.")
        await chat.reset()
        id = session_of(chat).id
        with kept.stored() as store:
            assert (store.messages(id), store.sessions()[0].usage.requests) == ([], 0)
            assert store.snapshot(id).waiting == ()
        chat.replace([Message("user", (Text("Other."),)), Message("assistant", (ToolUse("a", "look"),))])
        said = chat.messages
    async with Chat.open(agent, kept.place, id=id) as chat:
        assert chat.messages == said
        assert len(said) == 3
    with kept.stored() as store:
        assert store.sessions()[0].title == "Other."


async def test_the_runs_of_a_resumed_chat_do_not_take_each_others_place_in_a_journal(kept: Kept) -> None:
    runtime = Runtime(journal=InMemoryJournal())
    agent = Agent(name="tester", model=ScriptedModel(["One.", "Two."]))
    async with Chat.open(agent, kept.place, runtime=runtime) as chat:
        assert (await chat.prompt("Hi.")).unwrap() == "One."
        await chat.reset()
        id = session_of(chat).id
    async with Chat.open(agent, kept.place, id=id, runtime=runtime) as chat:
        assert (await chat.prompt("Hi.")).unwrap() == "Two."


async def test_opening_and_leaving_writes_nothing(path: Path) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["Hello."]))
    async with Chat.open(agent, path) as chat:
        await chat.prompt("Hi.")
        id = session_of(chat).id
    before = path.read_bytes()
    async with Chat.open(agent, path, id=id):
        pass
    assert path.read_bytes() == before


async def test_a_place_may_name_its_kind_of_store(path: Path) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["Hello."]))
    async with Chat.open(agent, f"sqlite:{path}") as chat:
        await chat.prompt("Hi.")
    assert path.exists()


async def test_a_session_takes_space_in_proportion_to_its_messages(path: Path) -> None:
    agent = Agent(name="tester", model=FunctionModel(lambda request: "word " * 100), tools=[read])
    sizes: list[int] = []
    async with Chat.open(agent, path) as chat:
        id = session_of(chat).id
        for n in range(200):
            await chat.prompt(f"prompt {n}. " + "word " * 100)
            if n in (99, 199):
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                sizes.append(path.stat().st_size)
        said = chat.messages
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[1] < 2 * sum(len(message.text) for message in said) + 100_000
    async with Chat.open(agent, path, id=id) as chat:
        assert chat.messages == said
        assert len(said) == 400


NAMES = ("read", "put", "send", "plain", "gone", "output")


def cut(*names: str) -> list[Message]:
    """Return a conversation whose last calls have no results."""
    uses = tuple(ToolUse(f"{name}_1", name) for name in names)
    return [Message("user", (Text("Go."),)), Message("assistant", uses)]


@pytest.mark.parametrize(("effect", "plain_closed"), [("once", ONCE), ("idempotent", IDEMPOTENT), ("pure", PURE)])
async def test_open_calls_are_closed_by_the_declared_effect(stage: Stage, effect: str, plain_closed: str) -> None:
    fields: dict[str, Any] = {"tools": [read, put, send, plain], "default_effect": effect}
    model = stage.model([call("output", total=1)])
    async with chatting(model, history=cut(*NAMES), output=Output(Report), **fields) as chat:
        expected = (PURE, IDEMPOTENT, ONCE, plain_closed, ONCE, PURE)
        lines = (f"#{name}_1! {text}" for name, text in zip(NAMES, expected, strict=True))
        assert script_of(chat)[-1] == ("user", *lines)
        assert list(history_faults(chat.messages)) == []
        await chat.continue_()
    assert transcript(stage.messages(0))[-1][0] == "user"


async def test_a_prompt_follows_the_closed_calls_in_the_same_message(stage: Stage) -> None:
    async with chatting(stage.model(["Checking."]), tools=[send], history=cut("send")) as chat:
        await chat.prompt("Did it go out?")
    assert transcript(stage.messages(0))[-1] == ("user", f"#send_1! {ONCE}", "Did it go out?")


@pytest.mark.parametrize(("effect", "closed"), [("pure", PURE), ("idempotent", IDEMPOTENT), ("once", ONCE)])
async def test_a_chat_that_was_killed_in_mid_call_goes_on_from_its_log(
    stage: Stage, effect: Literal["pure", "idempotent", "once"], closed: str
) -> None:
    log: dict[int, Message] = {}

    def store(event: Event) -> None:
        if isinstance(event, MessageCommitted):
            log[event.index] = event.message

    door = Door()
    agent = Agent(name="tester", model=stage.model([call("wait", id="a"), "I see."]), tools=[door.tool(effect=effect)])
    async with Chat(agent, on_event=store) as chat:
        chat.start("Go.")
        await door.reached.wait()
        stored = dump_messages(list(log.values()))  # what there is when the process dies here
    async with Chat(agent, history=load_messages(stored)) as chat:
        assert (await chat.continue_()).unwrap() == "I see."
    assert transcript(stage.messages(1)) == [("user", "Go."), ("assistant", "wait({})#a"), ("user", f"#a! {closed}")]


@pytest.mark.parametrize(("effect", "closed"), [("pure", PURE), ("once", ONCE)])
async def test_a_turn_that_is_cancelled_in_mid_call_keeps_what_had_finished(effect: Effect, closed: str) -> None:
    door = Door()
    model = ScriptedModel([[call("read", id="a"), call("wait", id="b"), call("read", id="c")], "I see."])
    async with chatting(model, tools=[read, door.tool(effect=effect)]) as chat:
        prompting = asyncio.create_task(chat.prompt("Go."))
        await cancelled(prompting, when=door.reached)
        assert script_of(chat)[-1] == ("user", "#a: read", f"#b! {closed}", f"#c! {PURE}")
        assert (await chat.continue_()).unwrap() == "I see."


async def test_loading_the_same_log_again_changes_nothing() -> None:
    agent = Agent(name="tester", model=ScriptedModel([]), tools=[read, put, send, plain])
    once_loaded = Chat(agent, history=cut(*NAMES)).messages
    assert Chat(agent, history=once_loaded).messages == once_loaded


async def test_a_replaced_conversation_is_closed_in_the_same_way() -> None:
    async with chatting(ScriptedModel([]), tools=[read]) as chat:
        chat.replace(cut("read"))
        assert script_of(chat)[-1] == ("user", f"#read_1! {PURE}")


@pytest.mark.parametrize("answer", [say(" "), say(Thinking("Hm.", "c2lnbmVk"), "\n\n")], ids=["blank", "thinking"])
async def test_a_chat_goes_on_after_a_blank_answer_also_from_its_session(
    path: Path, stage: Stage, answer: Response
) -> None:
    agent = Agent(name="tester", model=stage.model(["Hello.", answer, "Here.", answer, "Back."]))
    async with Chat.open(agent, path) as chat:
        await chat.prompt("Hi.")
        assert (await chat.prompt("Are you there?")).code == "INVALID_RESPONSE"
        assert (await chat.prompt("Hello?")).unwrap() == "Here."
        assert (await chat.prompt("And now?")).code == "INVALID_RESPONSE"
        id, kept = session_of(chat).id, chat.messages
    async with Chat.open(agent, path, id=id) as chat:
        assert chat.messages == kept
        assert (await chat.prompt("Again.")).unwrap() == "Back."

"""A conversation that was cut off in mid-call: loaded again, every open call is closed by what it may have done."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from journeyman import Agent, Chat, Output, dump_messages, load_messages, tool
from journeyman.events import Event, MessageCommitted
from journeyman.models.scripted import Scripted, call
from journeyman.types import Effect, Message, Text, ToolUse
from tests.chat.players import Door, Report, script_of
from tests.support.invariants_history import history_faults
from tests.support.recorder import transcript
from tests.support.stage import Stage

PURE = "Error: interrupted before it finished. It changes nothing, so it may be called again."
IDEMPOTENT = "Error: interrupted before it finished. It may be called again with the same arguments."
ONCE = "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again."


@tool(effect="pure")
async def read() -> str:
    """Read."""
    return "read"


@tool(effect="idempotent")
async def put() -> str:
    """Put."""
    return "put"


@tool(effect="once")
async def send() -> str:
    """Send."""
    return "sent"


@tool
async def plain() -> str:
    """Do something."""
    return "done"


NAMES = ("read", "put", "send", "plain", "gone", "output")


def cut() -> list[Message]:
    """Return a conversation whose last calls have no results."""
    uses = tuple(ToolUse(f"{name}_1", name) for name in NAMES)
    return [Message("user", (Text("Go."),)), Message("assistant", uses)]


@pytest.mark.parametrize(("are_idempotent", "plain_closed"), [(False, ONCE), (True, IDEMPOTENT)])
async def test_open_calls_are_closed_by_the_declared_effect(
    stage: Stage, are_idempotent: bool, plain_closed: str
) -> None:
    agent = Agent(
        name="tester",
        model=stage.model([call("output", total=1)]),
        tools=[read, put, send, plain],
        tools_are_idempotent=are_idempotent,
        output=Output(Report),
    )
    async with Chat(agent, history=cut()) as chat:
        expected = (PURE, IDEMPOTENT, ONCE, plain_closed, ONCE, PURE)
        lines = (f"#{name}_1! {text}" for name, text in zip(NAMES, expected, strict=True))
        assert script_of(chat)[-1] == ("user", *lines)
        assert list(history_faults(chat.messages)) == []
        await chat.continue_()
    assert transcript(stage.messages(0))[-1][0] == "user"


async def test_a_prompt_follows_the_closed_calls_in_the_same_message(stage: Stage) -> None:
    history = [Message("user", (Text("Go."),)), Message("assistant", (ToolUse("a", "send"),))]
    async with Chat(Agent(name="tester", model=stage.model(["Checking."]), tools=[send]), history=history) as chat:
        await chat.prompt("Did it go out?")
    assert transcript(stage.messages(0))[-1] == ("user", f"#a! {ONCE}", "Did it go out?")


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
    model = Scripted([[call("read", id="a"), call("wait", id="b"), call("read", id="c")], "I see."])
    async with Chat(Agent(name="tester", model=model, tools=[read, door.tool(effect=effect)])) as chat:
        prompting = asyncio.create_task(chat.prompt("Go."))
        await door.reached.wait()
        prompting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompting
        assert script_of(chat)[-1] == ("user", "#a: read", f"#b! {closed}", f"#c! {PURE}")
        assert (await chat.continue_()).unwrap() == "I see."


async def test_loading_the_same_log_again_changes_nothing() -> None:
    agent = Agent(name="tester", model=Scripted([]), tools=[read, put, send, plain])
    once_loaded = Chat(agent, history=cut()).messages
    assert Chat(agent, history=once_loaded).messages == once_loaded


async def test_a_replaced_conversation_is_closed_in_the_same_way() -> None:
    async with Chat(Agent(name="tester", model=Scripted([]), tools=[read])) as chat:
        chat.replace([Message("user", (Text("Go."),)), Message("assistant", (ToolUse("a", "read"),))])
        assert script_of(chat)[-1] == ("user", f"#a! {PURE}")

"""Programs that are killed in the middle: `python -m tests.store.mortal WHAT STORE`. They print what they reached."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from journeyman import Agent, Chat, Host, run, tool
from journeyman.errors import SessionInUse
from journeyman.models.scripted import FromFunction, Scripted, call
from journeyman.store.store import Store


def tell(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def for_ever() -> str:
    await asyncio.Event().wait()
    return "never"


@tool(effect="pure")
async def read() -> str:
    tell("read")
    return "the letter"


@tool(effect="once")
async def send() -> str:
    tell("send")
    return await for_ever()


@tool(effect="pure")
async def look() -> str:
    tell("look")
    return await for_ever()


@tool(effect="once")
async def pay(invoice: str) -> str:
    """Pay an invoice. The second one hangs."""
    tell(f"pay {invoice}")
    return await for_ever() if invoice == "B" else f"paid {invoice}"


def letters() -> Agent:
    """Return an agent that reads and sends a letter, and one that only looks."""
    script = Scripted([[call("read", id="r"), call("send", id="s"), call("look", id="l")]])
    return Agent(name="clerk", model=script, tools=[read, send, look])


def payments() -> Agent:
    script = [call("pay", invoice="A", id="a"), call("pay", invoice="B", id="b"), "Ask whether B was paid."]
    return Agent(name="payer", model=Scripted(script), tools=[pay])


def echo() -> Agent:
    return Agent(name="echo", model=FromFunction(lambda request: f"answer to {request.messages[-1].text}"))


async def chat(place: str) -> None:
    """Hang in the second of three calls, with two texts in the queues."""
    async with Chat.open(letters(), place) as chat:
        chat.follow_up("And then?")
        tell(chat.session.id if chat.session else "")
        await chat.prompt("Send the letter.")


async def journal(place: str) -> None:
    """Hang in the second payment."""
    with Store(place) as store:
        await run(payments(), "Pay A and B.", host=Host(journal=store.journal("job 7")))


async def hammer(place: str) -> None:
    """Say one thing after the other, and tell what was answered or queued."""
    async with Chat.open(echo(), place) as chat:
        tell(chat.session.id if chat.session else "")
        for number in count():
            await chat.prompt(f"prompt {number}.")
            tell(f"prompt {number}.")
            if number % 3 == 0:
                chat.follow_up(f"text {number}.")
                tell(f"text {number}.")


async def claim(place: str) -> None:
    """Begin a session that others begin, too, and hold it until the standard input ends."""
    try:
        async with Chat.open(echo(), place, id="user-42", create=True):
            tell("mine")
            sys.stdin.read()
    except SessionInUse:
        tell("in use")


if __name__ == "__main__":
    what = {"chat": chat, "journal": journal, "hammer": hammer, "claim": claim}[sys.argv[1]]
    asyncio.run(what(sys.argv[2]))

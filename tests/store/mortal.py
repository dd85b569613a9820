"""Programs that are killed in the middle: `python -m tests.store.mortal WHAT STORE`. They print what they reached."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from journeyman import Agent, Chat, Limits, Runtime, run, tool
from journeyman.durable import Durable
from journeyman.errors import SessionInUse
from journeyman.record import Recorder
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say


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
    script = ScriptedModel([[call("read", id="r"), call("send", id="s"), call("look", id="l")]])
    return Agent(name="clerk", model=script, tools=[read, send, look])


def payments() -> Agent:
    script = [call("pay", invoice="A", id="a"), call("pay", invoice="B", id="b"), "Ask whether B was paid."]
    return Agent(name="payer", model=ScriptedModel(script), tools=[pay])


def echo() -> Agent:
    return Agent(name="echo", model=FunctionModel(lambda request: f"answer to {request.messages[-1].text}"))


async def chat(place: str) -> None:
    """Hang in the second of three calls, with two texts in the queues."""
    async with Chat.open(letters(), place) as chat:
        chat.follow_up("And then?")
        tell(chat.session.id if chat.session else "")
        await chat.prompt("Send the letter.")


async def turn(place: str) -> None:
    """Hang in the second payment of a turn that is a durable run, with a text in a queue."""
    async with Durable(place) as durable, Chat.open(payments(), durable, id="user-42", create=True) as chat:
        chat.follow_up("And C?")
        await chat.prompt("Pay A and B.")


async def recorded(place: str) -> None:
    """Hang in a call, for ever or until somebody writes to the pipe beside the store; what came before is recorded."""
    with Recorder(place) as recorder:

        @tool
        async def hang() -> str:
            await recorder.flush()
            tell("written")
            pipe = Path(f"{place}.pipe")
            return await (asyncio.to_thread(pipe.read_text) if pipe.exists() else for_ever())

        agent = Agent(name="scout", model=ScriptedModel([say(call("hang")), say("It was let go.")]), tools=[hang])
        await run(agent, "Look.", runtime=Runtime(recorder=recorder))


async def recording(place: str) -> None:
    """Call a tool again and again, and tell each time what is written."""
    with Recorder(place) as recorder:

        @tool
        async def step(n: int) -> str:
            await recorder.flush()
            tell(str(n))
            return f"{n} " + "word " * n

        answers = [say(call("step", {"n": n}, id=f"c{n}")) for n in range(1, 2_000)]
        agent = Agent(name="scout", model=ScriptedModel(answers), tools=[step], limits=Limits(iterations=5_000))
        await run(agent, "Look.", runtime=Runtime(recorder=recorder))


class Deaths:
    """Kills the process before or after a statement that writes into a store."""

    def __init__(self, n: int) -> None:
        self.n_left = n

    def begins(self, statement: object) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def ended(self, statement: object, *, n_rows: int) -> None:
        self.begins(statement)

    def committed(self, statements: object, *, is_synced: bool) -> None: ...


async def talk(place: str, how: str, n: str) -> None:
    """Say two things and queue a third, and tell what was answered or queued, until the statement of this number."""
    sys.path.append(str(Path.cwd()))
    import_module("tests.durable.statements").hear_statements(Deaths(int(n)))
    async with AsyncExitStack() as stack:
        where = place if how == "chat" else await stack.enter_async_context(Durable(place))
        chat = await stack.enter_async_context(Chat.open(echo(), where, id="user-42", create=True))
        for text in ("One.", "Two."):
            await chat.prompt(text)
            tell(text)
        chat.follow_up("Three.")
        tell("Three.")
    tell("end")


async def claim(place: str) -> None:
    """Begin a session that others begin, too, and hold it until the standard input ends."""
    try:
        async with Chat.open(echo(), place, id="user-42", create=True):
            tell("mine")
            sys.stdin.read()
    except SessionInUse:
        tell("in use")


if __name__ == "__main__":
    what: dict[str, Any] = {"chat": chat, "claim": claim, "turn": turn, "talk": talk}
    what |= {"recorded": recorded, "recording": recording}
    asyncio.run(what[sys.argv[1]](*sys.argv[2:]))

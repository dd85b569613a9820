"""The agents of the command line's tests. This file and its tools print, as users' files do."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from threading import Event

from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Subagents, tool
from journeyman.errors import ProviderError
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.toolbox import todo_tool
from journeyman.types import Price

print("the file prints")  # noqa: T201 - users' files do


class Trip(BaseModel):
    city: str
    days: int


def long_enough(trip: Trip) -> None:
    """A trip takes two days at least."""
    if trip.days < 2:
        raise ValueError(f"{trip.days} day is too short")


def drop(message: object) -> None:
    raise KeyError("what the user wrote")


def poster(trip: Trip) -> str:
    return f"To {trip.city}!\nDays: {trip.days}"


@tool
def talk() -> str:
    """Print in every way there is."""
    print("a tool prints")  # noqa: T201
    os.write(1, b"a tool writes\n")
    subprocess.run(["echo", "a program prints"], check=True)
    return "said"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("\x1b[31mno such thing\x1b[0m")


@tool(parallel=True, effect="pure", cache="run")
async def look(city: str) -> str:
    """Look at the weather."""
    return f"rain in {city}"


@tool
def sleep() -> str:
    """Sleep in a thread, and never wake up."""
    Event().wait()
    return "awake"


@tool(thread=False)
def block() -> str:
    """Sleep in the event loop."""
    Event().wait()
    return "awake"


@tool
async def wait() -> str:
    """Wait as async tools do."""
    await asyncio.Event().wait()
    return "awake"


@tool
async def leave_behind() -> str:
    """Wait for a thread that nobody can stop."""
    await asyncio.to_thread(Event().wait)
    return "awake"


async def fall_silent(request: Request) -> AsyncGenerator[str]:
    """Begin to speak and fall silent."""
    yield "It was a dark and stormy night, and"
    await asyncio.Event().wait()


greeter = Agent(name="greeter", model=ScriptedModel(["Good morning!\nHow are you?"]))
echo = Agent(name="echo", model=ScriptedModel([lambda request: f"<{request.messages[0].text}>"]))
square = Agent(name="square", model=ScriptedModel(["ok"]), input=int, prompt=lambda number: f"{number * number}")
planner = Agent(
    name="planner",
    model=ScriptedModel(
        [
            say("Off we go.", call("output", city="Oslo", days=1)),
            say("Longer, then.", call("output", city="Oslo", days=2)),
            call("submit"),
        ],
        price=Price(input=3, output=15),
    ),
    input=Trip,
    output=Output(Trip, reflection=poster),
    validators=[long_enough],
)
hopeless = Agent(
    name="hopeless",
    model=ScriptedModel([call("output", city="Oslo", days=1)], repeat=True),
    output=Output(Trip),
    validators=[long_enough],
    limits=Limits(attempts=2),
)
talker = Agent(name="talker", model=ScriptedModel([call("talk"), "done"]), tools=[talk])
buggy = Agent(name="buggy", model=ScriptedModel(["done"]), on_message=drop)
busy = Agent(
    name="busy",
    model=ScriptedModel(
        [
            say("I look at \x1b[2Jtwo cities.", call("look", city="Oslo"), call("look", city="Rome")),
            say(call("look", city="Oslo"), call("fail"), call("fly", to="Mars", fast=True)),
            "Rain.",
        ]
    ),
    tools=[look, fail],
)
work = [{"text": "Read it.", "status": "done"}, {"text": "Write it.", "status": "in_progress"}]
lister = Agent(name="lister", model=ScriptedModel([call("todo", items=work), "Done."]), tools=[todo_tool()])
unlucky = Agent(
    name="unlucky", model=ScriptedModel([ProviderError("Try later.", kind="overloaded", retry_after_s=0.2), "At last."])
)
sleeper = Agent(name="sleeper", model=ScriptedModel([say("Good night.", call("sleep"))]), tools=[sleep])
blocker = Agent(name="blocker", model=ScriptedModel([say("I block.", call("block"))]), tools=[block])
waiter = Agent(name="waiter", model=ScriptedModel([say("I wait.", call("wait"))]), tools=[wait])
leaver = Agent(name="leaver", model=ScriptedModel([say("I leave.", call("leave_behind"))]), tools=[leave_behind])
silent = Agent(name="silent", model=FunctionModel(fall_silent, name="silent"))
claude = Agent(name="claude", model="anthropic:claude-sonnet-5-5", limits=Limits(request_retries=0))


def explore(request: Request) -> Answer:
    """Look at the city that the task names, and say what it is like there."""
    city = request.messages[0].text
    return f"{city}: rain." if len(request.messages) > 1 else say(f"I look at {city}.", call("look", city=city))


def stand_about(request: Request) -> Answer:
    return say("I wait.", call("wait"))


PRICE = Price(input=3, output=15)
scout = Agent(name="scout", description="Looks.", model=FunctionModel(explore, price=PRICE), tools=[look])
guide = Agent(
    name="guide",
    model=ScriptedModel([call("subagent", agent="scout", task="Bergen"), "Bergen it is."], price=PRICE),
    tools=[Subagents(scout)],
)
ill = Agent(name="ill", model=ScriptedModel([ProviderError("No more.", kind="quota")], price=PRICE))
SENT = [("scout", "Oslo"), ("ill", "Paris"), ("scout", "Rome")]
chief = Agent(
    name="chief",
    model=ScriptedModel(
        [
            say("I send three.", call("subagent", tasks=[{"agent": who, "task": city} for who, city in SENT])),
            say("And a guide.", call("subagent", agent="guide", task="Where to?")),
            "Rain everywhere.",
        ],
        price=PRICE,
    ),
    tools=[Subagents(scout, guide, ill)],
)
stander = Agent(name="stander", model=FunctionModel(stand_about), tools=[wait])
crowd = Agent(
    name="crowd",
    model=ScriptedModel([call("subagent", tasks=[{"agent": "stander", "task": f"Stand {n}."} for n in range(8)])]),
    tools=[Subagents(stander, max_concurrency=None)],
)

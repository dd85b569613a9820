"""The agents of the terminal chat's tests. The model does as it is told, so that each test writes its own script."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from threading import Event

from pydantic import BaseModel

from journeyman import Agent, Output, ask_user, tool
from journeyman.errors import ProviderError
from journeyman.gate import Allow, Ask, GateRequest
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.toolbox import Workspace
from journeyman.types import Base64, Image, Text, ToolResult


@tool(effect="pure")
def wait() -> str:
    """Wait until the test opens the door: a pipe, or a file if it is open already."""
    Path("door").read_bytes()
    return "waited"


@tool(effect="once")
def sleep() -> str:
    """Sleep in a thread, and never wake up."""
    Event().wait()
    return "awake"


@tool(thread=False, effect="pure")
def block() -> str:
    """Sleep in the event loop."""
    Event().wait()
    return "awake"


@tool(effect="pure")
def printing() -> str:
    """Print."""
    print("\x1b[2Ja tool prints")  # noqa: T201 - users' tools do
    return "printed"


REPORT = """\
# What I found

There are *two* problems in `src/app.py`, and **one** of them matters:

1. `total` adds texts.
   It should add numbers.
2. Nothing tests it.

```python
def total(rows: list[int]) -> int:
    return sum(rows)  # all
```

| file | lines |
|---|---:|
| app.py | 120 |

> Shall I fix it?
"""


def obey(request: Request) -> Answer:
    """Make the call that the user's last words name, or say what was said."""
    content = request.messages[-1].content
    said = [block.text for block in content if isinstance(block, Text)]
    results = [block.text for block in content if isinstance(block, ToolResult)]
    word, _, rest = said[-1].partition(" ") if said else ("", "", "")
    word = word.partition("\n")[0]
    match word:
        case "bash":
            return say("I run that.", call("bash", command=rest))
        case "ask_user":
            return call("ask_user", question="Which one?", options=["Grand", "Harbour"])
        case "wait" | "sleep" | "block" | "printing":
            return say(f"I {word}.", call(word))
        case "report" | "count" | "pictures":
            images = [block.source for block in content if isinstance(block, Image)]
            types = [image.media_type for image in images if isinstance(image, Base64)]
            return {
                "report": REPORT,
                "count": f"{said[-1].count(chr(10))} line breaks",
                "pictures": f"{len(images)} of {types}",
            }[word]
        case "lines":
            return "one\n\n    two\n" + "three " * 30
        case _:
            return f"heard {said}, read {results}"


obedient = FunctionModel(obey)
tools = [wait, sleep, block, printing, ask_user, *Workspace(".").tools("read", "bash")]


async def never_end(request: Request) -> AsyncGenerator[str]:
    """Begin, and never come to an end."""
    yield "It was a dark night"
    await asyncio.Event().wait()


endless = Agent(name="endless", model=FunctionModel(never_end, name="endless"))
EDIT = call("edit", path="greet.py", old_text="Hello", new_text="Hi")
editor = Agent(
    name="editor",
    model=ScriptedModel([call("read", path="greet.py"), EDIT, "It is done."]),
    tools=Workspace(".").tools("read", "edit"),
)
helper = Agent(name="helper", model=obedient, tools=tools)


class Trip(BaseModel):
    city: str


class AskAlways:
    """A gate of the agent's own."""

    async def decide(self, request: GateRequest) -> Allow | Ask:
        return Ask("its own gate asks") if request.tool_name == "wait" else Allow()


guarded = Agent(name="guarded", model=obedient, tools=tools, gate=AskAlways())
planner = Agent(name="planner", model=FunctionModel(lambda _: call("output", city="Oslo")), output=Output(Trip))
failing = Agent(name="failing", model="anthropic:no-such-model")


async def pick(request: Request) -> Answer:
    """Answer what is not bad."""
    last = request.messages[-1].text.split()[-1]
    if last == "bad":
        raise ProviderError("The provider does not want it.", kind="bad_request")
    return say(f"heard {last}")


picky = Agent(name="picky", model=FunctionModel(pick))
adder = Agent(name="adder", model=FunctionModel(pick), input=int)

"""The agents of the chat's main screens: a lead that sends out two scouts, with a model of known window and price."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from journeyman import Agent, Subagents, Text, Usage, tool
from journeyman.model import Facts, Part, Request
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.toolbox import Workspace
from journeyman.types import Price

FACTS = Facts(context_window=200_000, price=Price(input=3, output=15))
USED = Usage(requests=1, input_tokens=9_000, output_tokens=400)
TASKS = {"prices": "Read the price list.", "stock": "Count what is in stock."}
ANSWER = """\
## Order 40 bolts

| part | in stock | price |
|---|---:|---:|
| bolt | 12 | 0.30 |
| nut | 80 | 0.10 |

Only the **bolts** run out. Order them with `order("bolt", 40)`.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A function that plays a model, of which the window and the price are known."""

    policy: FunctionModel
    name: str = "sonnet"
    provider: str = "scripted"
    facts: Facts = FACTS

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        return self.policy.stream(request)


@tool(parallel=True, effect="pure")
def read_list(name: str) -> str:
    """Read one of the lists.

    Args:
        name: which one.
    """
    Path(name).read_bytes()  # a pipe: the test writes to it when the screen has been looked at
    return f"{name}: 12 rows"


def scouted(request: Request) -> Answer:
    """Read the list that the task names, and say what is in it."""
    name = next(name for name, task in TASKS.items() if task in request.messages[0].text)
    return say(f"All of {name} read." if len(request.messages) > 1 else call("read_list", name=name), usage=USED)


def led(request: Request) -> Answer:
    """Send out two scouts, run the command that was asked for, or answer."""
    content = request.messages[-1].content
    said = next((block.text for block in content if isinstance(block, Text)), "")
    if said.startswith("Run "):
        return say(call("bash", command=said.removeprefix("Run ")), usage=USED)
    if said.startswith("What"):
        tasks = [{"agent": "scout", "task": task} for task in TASKS.values()]
        return say("Two scouts look at the lists.", call("subagent", tasks=tasks), usage=USED)
    return say(ANSWER, usage=USED)


scout = Agent(
    name="scout", description="Reads lists.", model=Known(FunctionModel(scouted), name="haiku"), tools=[read_list]
)
lead = Agent(name="lead", model=Known(FunctionModel(led)), tools=[Subagents(scout), *Workspace(".").tools("bash")])

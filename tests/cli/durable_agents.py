"""The agents of the tests of durable runs. Their models read the conversation, so any process may go on with it.

Tools note what they do in the current folder; a call of `pay` for the invoice B never ends while `stuck` is there.
"""

import asyncio
from pathlib import Path

from journeyman import Agent, ask_user, tool
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call, say

_CALLS = (
    say("I look first.", call("look", invoice="A", id="look")),
    call("pay", invoice="A", id="a"),
    call("pay", invoice="B", id="b"),
)


def _pays(request: Request) -> Answer:
    number = sum(message.role == "assistant" for message in request.messages)
    said = [text.text for text in request.prefix.system]
    return _CALLS[number] if number < len(_CALLS) else f"All is paid. {' '.join(said)}".strip()


def _asks(request: Request) -> Answer:
    last = request.messages[-1]
    asked = any(message.role == "assistant" for message in request.messages)
    return f"You said: {last.content[0].text}" if asked else call("ask_user", question="In \x1b[31mred?", id="q")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - it is a tool's result


async def do(words: str, *, ends: bool = True) -> None:
    with Path("done.log").open("a", encoding="utf-8") as file:
        file.write(f"{words}\n")
    if not ends:
        print(f"stuck in: {words}", flush=True)  # noqa: T201 - users' tools do
        await asyncio.Event().wait()


@tool(effect="pure")
async def look(invoice: str) -> str:
    """Look at an invoice."""
    await do(f"look {invoice}")
    return f"Invoice {invoice}"


@tool(effect="once")
async def pay(invoice: str) -> str:
    """Pay an invoice."""
    await do(f"pay {invoice}", ends=invoice != "B" or not Path("stuck").exists())
    return f"paid {invoice}"


class AsksForB:
    """Asks before the second invoice is paid."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask("May it be \x1b[2Jpaid?") if request.arguments == {"invoice": "B"} else Allow()


clerk = Agent(name="clerk", model=FunctionModel(_pays), tools=[look, pay])
stern = Agent(name="clerk", model=FunctionModel(_pays), tools=[look, pay], system="Be stern.")
careful = Agent(name="careful", model=FunctionModel(_pays), tools=[look, pay], gate=AsksForB())
asker = Agent(name="asker", model=FunctionModel(_asks), tools=[ask_user])

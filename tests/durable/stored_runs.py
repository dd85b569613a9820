"""A run with a step of nearly every kind, which can be stored again as another one: it is read, and not made."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman import Agent, Output, Rejected, ToolContext, ask_user, tool
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.durable.records import Record, dump_head, load_head
from journeyman.gate import Allow, Ask
from journeyman.testing.scripted import Answer, call
from tests.durable.worlds import Letter
from tests.play import existing, following, make_gate

RUN = "run"
"""The name of the run that is stored."""


@dataclass
class Item:
    name: str


def writer(*, is_live: bool) -> Agent[Any, Any]:
    """Return an agent whose run has steps of many kinds. One that is not live makes none of them."""

    def check() -> None:
        assert is_live, "this was done before, and is stored"

    @tool(effect="once")
    def pay(invoice: str, context: ToolContext) -> str:
        """Pay an invoice."""
        check()
        context.set_run_state([*context.run_state(list[Item]), Item(invoice)])
        return f"paid {invoice}"

    def system(_: str) -> str:
        check()
        return "Write letters."

    def prompt(input: str) -> str:
        check()
        return f"A letter: {input}"

    def nothing(_: str) -> list[Item]:
        check()
        return []

    def is_long(letter: Letter) -> None:
        """It must be long."""
        check()
        if len(letter.text) < 5:
            raise Rejected("too short")

    def longer(*_: object) -> str:
        check()
        return "Longer!"

    answers: list[Answer] = [
        call("pay", invoice="é🎉", id="p1"),
        [call("ask_user", question="Formal?", options=["yes", "no"], id="q1"), call("pay", invoice="B", id="p2")],
        call("output", text="Hi", id="o1"),
        call("output", text="Hello, all. " * 200, id="o2"),
    ]
    return Agent(
        name="writer",
        model=following(*(answers if is_live else [])),
        system=system,
        prompt=prompt,
        tools=[pay, ask_user],
        gate=make_gate(Ask("May it pay?"), "pay"),
        run_state=nothing,
        output=Output(Letter),
        validators=[is_long],
        error_prompt=longer,
    )


async def _answering(durable: Durable) -> None:
    """Answer whatever is asked, and say something after the first answer."""
    answered = set[str]()
    while True:
        await durable.hub.changed(0.05)
        for info in await durable.list():
            handle = await durable.get(info.id)
            for question in info.pending:
                if question.key in answered:
                    continue
                answered.add(question.key)
                if question.kind == "answer":
                    await handle.answer(question.question_id, "Formal.", who="ann")
                else:
                    await handle.steer(f"Said with {len(answered)}.", who="ann")
                    await handle.approve(question.question_id, Allow(), who="ann")


async def stored_run() -> tuple[bytes, Sequence[Record]]:
    """Let such a run live. Return what it was begun with, as of a run whose answers somebody has accepted, and its
    steps."""
    engine = InMemoryEngine(Memory())
    async with Durable(engine, suspend_after_s=1e9) as durable:
        answering = asyncio.create_task(_answering(durable))
        await durable.run(writer(is_live=True), "to all", id=RUN)
        answering.cancel()
        row = existing(await engine.get(RUN))
        return dump_head(replace(load_head(row), accepts=True)), await engine.records(row.id)

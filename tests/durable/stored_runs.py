"""A run with a step of nearly every kind, whose records are kept as they were written: they are read for ever.

`python -m tests.durable.stored_runs` prints those of the newest format. What is in `fixtures` is never changed.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from journeyman import Agent, Output, Rejected, ToolContext, ask_user, tool
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.durable.records import Record, dump_head, load_head
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.testing.scripted import Answer, call
from tests.durable.worlds import Letter
from tests.play import existing, following

RUN = "run"
"""The name of the run that is stored."""


@dataclass
class Item:
    name: str


class AskingForPay:
    """A gate that asks about payments."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Ask("May it pay?") if request.tool_name == "pay" else Allow()


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
        gate=AskingForPay(),
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


async def _stored() -> Iterator[str]:
    engine = InMemoryEngine(Memory())
    async with Durable(engine, suspend_after_s=1e9) as durable:
        answering = asyncio.create_task(_answering(durable))
        await durable.run(writer(is_live=True), "to all", id=RUN)
        answering.cancel()
        handle = await durable.get(RUN)
        row = existing(await engine.get(RUN))
        head = dump_head(replace(load_head(row), accepts=True))
        lines = [{"f": row.f, "head": b64encode(head).decode()}]
        lines += [packed_line(each) for each in await handle.records()]
    return iter([json.dumps(line) for line in lines])


def packed_line(each: Record) -> dict[str, Any]:
    """Return a record as JSON."""
    plain = each._asdict()
    return plain | {
        name: None if plain[name] is None else b64encode(plain[name]).decode() for name in ("about", "body")
    }


def records_of(lines: Iterable[str]) -> Iterator[Record]:
    """Return the records that are stored as lines of JSON."""
    for line in lines:
        plain = json.loads(line)
        for name in ("about", "body"):
            plain[name] = None if plain[name] is None else b64decode(plain[name])
        yield Record(**plain)


if __name__ == "__main__":
    for each in asyncio.run(_stored()):
        print(each)  # noqa: T201 - what it is for

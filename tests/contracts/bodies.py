"""The last request of one rich conversation, as each adapter sends it: what the files in `bodies/` hold.

    python -m tests.contracts.bodies

writes them anew; a change of a file is a change of what providers are sent. `test_request_bodies.py` compares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from journeyman import Agent, Settings, run, tool
from journeyman.model import Model, Response
from journeyman.models.scripted import call, say
from journeyman.types import Block, Image, Text, Thinking, ToolUse, Url, UserContent
from tests.contracts.carriers import CARRIERS, Carrier
from tests.contracts.conversations import NOTE, PAPER, PIXEL, draw, fail
from tests.support.loopback import Recorded

FOLDER: Final = Path(__file__).parent / "bodies"

WRITTEN: Final = (
    "anthropic-events",
    "openai-chat-events",
    "openai-responses-events",
    "openrouter-events",
    "vllm-events",
)
"""The adapters with a file. The others send the same, but for the flag that asks for a stream."""


@tool(parallel=True, strict=True)
async def query(sql: str, unit: Literal["pieces", "euros"], limit: Annotated[int, Field(ge=1)] | None) -> str:
    """Run one read-only query.

    Args:
        sql: a single SELECT statement.
        unit: what to count in.
        limit: how many rows at most; null for all.
    """
    return f"{sql}: 12 {unit}"


def _prompt(input: str) -> Sequence[UserContent]:
    return [Text(input), PIXEL, Image(Url("https://example.com/a.png")), PAPER, NOTE]


def _agent(model: Model) -> Agent:
    return Agent(
        name="analyst",
        model=model,
        system=[Text("You are a careful analyst."), Text("Query before you claim.")],
        tools=[query, fail, draw],
        prompt=_prompt,
        settings=Settings(max_tokens=2_000, thinking="low"),
        retries=0,
    )


_ANSWERS: Final = (
    say(
        Thinking("A query will do."),
        "Let me look.",
        call("query", sql="select 1", unit="pieces", limit=None, id="call_a"),
        call("fail", reason="no “chart” yet", id="call_b"),
        call("draw", title="sales 🦜", id="call_c"),
    ),
    say(ToolUse("call_d", "query", malformed='{"sql": "sel'), call("draw", title="costs", id="call_e")),
    say("Umbrellas."),
)


def _answers(*, malformed: bool) -> Sequence[Response]:
    """Return what the model says, without the malformed call if it cannot be said."""
    return [
        replace(answer, content=tuple([block for block in answer.content if malformed or not _is_malformed(block)]))
        for answer in _ANSWERS
    ]


def _is_malformed(block: Block) -> bool:
    return isinstance(block, ToolUse) and block.malformed is not None


async def requests_of(carrier: Carrier, *, malformed: bool = True) -> list[Recorded]:
    """Return the requests of the conversation, as the adapter sent them; one call is malformed where that can be."""
    async with carrier.play(_answers(malformed=malformed and "malformed" not in carrier.lacks)) as played:
        result = await run(_agent(played.model), "What sold best in May?")
    assert result.unwrap() == "Umbrellas."
    return list(played.requests)


async def body_of(carrier: Carrier, *, malformed: bool = True) -> str:
    """Return the body of the last request, readable, its fields in the order in which they are sent."""
    *_, last = await requests_of(carrier, malformed=malformed)
    return json.dumps(last.body, indent=2, ensure_ascii=False) + "\n"


async def _write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for carrier in CARRIERS:
        if carrier.name in WRITTEN:
            (FOLDER / f"{carrier.name}.json").write_text(await body_of(carrier), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_write())

"""What each adapter sends, to the byte: against a file, against the official SDKs' types, and from call to call.

It is the last request of one rich conversation. `python -m tests.contracts.test_request_bodies` writes the files in
`bodies/` anew; a change of a file is a change of what providers are sent.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pytest
from pydantic import Field

from journeyman import Agent, Limits, ModelSettings, run, tool
from journeyman.model import Model, Response
from journeyman.testing.scripted import call, say
from journeyman.types import Image, Text, Thinking, ToolUse, Url
from tests.contracts.carriers import CARRIERS, Carrier
from tests.contracts.conversations import NOTE, PAPER, PIXEL, draw, fail
from tests.support import strict_schema
from tests.support.loopback import Recorded
from tests.support.messages_json import Json, as_object

FOLDER: Final = Path(__file__).parent / "bodies"

_SERVICES: Final = ("anthropic", "google", "openai-chat", "openai-responses", "openrouter", "vllm")
WRITTEN: Final = tuple([f"{service}-events" for service in _SERVICES])
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


def _agent(model: Model) -> Agent:
    return Agent(
        name="analyst",
        model=model,
        system=[Text("You are a careful analyst."), Text("Query before you claim.")],
        tools=[query, fail, draw],
        prompt=lambda input: [Text(input), PIXEL, Image(Url("https://example.com/a.png")), PAPER, NOTE],
        settings=ModelSettings(max_tokens=2_000, thinking="low"),
        limits=Limits(request_retries=0),
    )


_MALFORMED: Final = ToolUse("call_d", "query", malformed='{"sql": "sel')
_ANSWERS: Final = (
    say(
        Thinking("A query will do."),
        "Let me look.",
        call("query", sql="select 1", unit="pieces", limit=None, id="call_a"),
        call("fail", reason="no “chart” yet", id="call_b"),
        call("draw", title="sales 🦜", id="call_c"),
    ),
    say(_MALFORMED, call("draw", title="costs", id="call_e")),
    say("Umbrellas."),
)


def _answers(*, malformed: bool) -> Sequence[Response]:
    """Return what the model says, without the malformed call if it cannot be said."""
    return [
        replace(answer, content=tuple([block for block in answer.content if malformed or block != _MALFORMED]))
        for answer in _ANSWERS
    ]


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


CARRIER = {carrier.name: carrier for carrier in CARRIERS if not carrier.name.startswith("bridge")}
"""Those whose bodies are ours; what goes over the bridge is worded by pydantic-ai."""

MARK = b',"cache_control":{"type":"ephemeral"}'

_ABOUT_STREAMS = ("stream", "stream_options")


def sdk_type_errors(name: str, body: Json) -> list[str]:
    """Return what the official SDK's types have against a body. What only vLLM and OpenRouter know is not theirs."""
    if name.startswith("anthropic"):
        return strict_schema.messages_type_errors(body)
    if "google" in name or "gemini" in name:
        return strict_schema.gemini_type_errors(body)
    api: strict_schema.Api = "responses" if name.startswith("openai-responses") else "chat"
    if name.startswith("openrouter"):
        body = as_object(strict_schema.without_marks(body))
    extensions = frozenset({"reasoning", "usage"} if name.startswith("openrouter") else ())
    echoed = ("reasoning",) if name.startswith(("openrouter", "vllm")) else ()
    return strict_schema.openai_type_errors(api, body, echoed=echoed, extensions=extensions)


def messages_of(body: Any) -> list[object]:  # noqa: ANN401 - a request of any provider
    return body.get("messages") or body.get("contents") or body["input"]


@pytest.mark.parametrize("name", WRITTEN)
async def test_a_request_is_what_its_file_says(name: str) -> None:
    assert await body_of(CARRIER[name]) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CARRIER)
async def test_every_request_has_the_type_of_the_official_sdk(name: str) -> None:
    requests = await requests_of(CARRIER[name])
    assert requests
    for request in requests:
        assert sdk_type_errors(name, request.body) == []


@pytest.mark.parametrize("name", [name for name in CARRIER if name.endswith("document")])
async def test_asking_for_a_document_changes_no_more_than_that(name: str) -> None:
    malformed = "malformed" not in CARRIER[name].lacks
    document, streamed = [
        {key: value for key, value in json.loads(body).items() if key not in _ABOUT_STREAMS}
        for each in (name, name.replace("document", "events"))
        for body in [await body_of(CARRIER[each], malformed=malformed)]
    ]
    assert document == streamed


async def test_the_official_client_is_given_the_same_body() -> None:
    assert await body_of(CARRIER["anthropic-client-events"]) == await body_of(CARRIER["anthropic-events"])


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.startswith("anthropic")])
async def test_a_request_is_the_beginning_of_the_next(name: str) -> None:  # what providers cache by
    bodies = [request.raw.replace(MARK, b"") for request in await requests_of(CARRIER[name])]
    assert len(bodies) > 1
    for before, after in pairwise(bodies):
        assert before.endswith(b"]}")
        assert after.startswith(before[:-2] + b",")


@pytest.mark.parametrize("name", WRITTEN)
async def test_what_was_said_is_never_said_otherwise(name: str) -> None:
    histories = [messages_of(request.body) for request in await requests_of(CARRIER[name])]
    assert len(histories) > 1
    for before, after in pairwise(histories):
        if not name.startswith(("anthropic", "openrouter")):  # their cache marks move on
            assert after[: len(before)] == before
        assert len(after) > len(before)


if __name__ == "__main__":
    asyncio.run(_write())

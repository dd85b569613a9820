"""What each adapter sends, to the byte: against a file, against the official SDKs' types, and from call to call."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.contracts.bodies import FOLDER, WRITTEN, body_of, requests_of
from tests.contracts.carriers import CARRIERS
from tests.support import messages_schema, openai_schema
from tests.support.messages_json import Json, as_object

CARRIER = {carrier.name: carrier for carrier in CARRIERS if not carrier.name.startswith("bridge")}
"""Those whose bodies are ours; what goes over the bridge is worded by pydantic-ai."""

MARK = b',"cache_control":{"type":"ephemeral"}'

_ABOUT_STREAMS = ("stream", "stream_options")


def sdk_type_errors(name: str, body: Json) -> list[str]:
    """Return what the official SDK's types have against a body. What only vLLM and OpenRouter know is not theirs."""
    if name.startswith("anthropic"):
        return messages_schema.type_errors(body)
    api: openai_schema.Api = "responses" if name.startswith("openai-responses") else "chat"
    if name.startswith("openrouter"):
        body = as_object(openai_schema.without_marks(body))
    extensions = frozenset({"reasoning", "usage"} if name.startswith("openrouter") else ())
    echoed = ("reasoning",) if name.startswith(("openrouter", "vllm")) else ()
    return openai_schema.type_errors(api, body, echoed=echoed, extensions=extensions)


def messages_of(body: Any) -> list[object]:  # noqa: ANN401 - a request of any provider
    return body.get("messages") or body["input"]


@pytest.mark.parametrize("name", WRITTEN)
async def test_a_request_is_what_its_file_says(name: str) -> None:
    assert await body_of(CARRIER[name]) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CARRIER)
async def test_every_request_has_the_type_of_the_official_sdk(name: str) -> None:
    for request in await requests_of(CARRIER[name]):
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
    for before, after in pairwise(bodies):
        assert before.endswith(b"]}")
        assert after.startswith(before[:-2] + b",")


@pytest.mark.parametrize("name", WRITTEN)
async def test_what_was_said_is_never_said_otherwise(name: str) -> None:
    histories = [messages_of(request.body) for request in await requests_of(CARRIER[name])]
    for before, after in pairwise(histories):
        if not name.startswith(("anthropic", "openrouter")):  # their cache marks move on
            assert after[: len(before)] == before
        assert len(after) > len(before)

"""The adapter against a strict Responses API: whole exchanges, every fault, and the official SDK as oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import openai
import orjson
import pytest
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

from journeyman.model import Collector, Response, collect
from journeyman.models.openai.endpoint import AZURE, OPENAI
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.transport import Timeouts
from journeyman.types import JsonObject, Message, Opaque, Text, Thinking, ToolResult, ToolUse, Usage
from tests.models.asking import HELLO, QUERY, ask, everything_said_by, failure_of, request
from tests.models.raw_server import RawServer, hanging_after
from tests.support.messages_answers import cut, insert
from tests.support.openai_answers import Counted, Reply, answer, broken_off, call, fault, item, reasoning, refusal, text
from tests.support.openai_api import OpenAiApi

KEY = "sk-proj-very-secret"
HASTY = Timeouts(idle_s=1.0)  # long enough for a busy machine: only tests that wait for it take that long


def model(api: OpenAiApi | RawServer, **more: Any) -> OpenAIModel:  # noqa: ANN401 - as OpenAIModel
    arguments: dict[str, Any] = {"api_key": KEY, "base_url": api.url + "/v1", **more}
    return OpenAIModel("gpt-5.2", **arguments)


# -- whole exchanges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False], ids=["events", "document"])
async def test_a_conversation_of_tools_and_reasoning_is_one_that_the_api_takes(streaming: bool) -> None:
    search = item(type="web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "x"})
    script: Sequence[Reply] = [
        answer(reasoning("Hm."), call("query", {"sql": "ü"}), call("query", '{"sql": ')),
        answer(
            reasoning("So."),
            search,
            reasoning(""),
            "I look.",
            text("Here.", annotations=[CITED]),
            call("query", {"sql": ""}),
        ),
        answer(reasoning(""), "It is 9."),
        answer("You are welcome."),
    ]
    messages = [HELLO]
    responses: list[Response] = []
    async with OpenAiApi(script) as api:
        for _ in script:
            responses.append(await ask(model(api, streaming=streaming), *messages))
            results = [ToolResult("1", tool_use_id=use.id) for use in responses[-1].content if isinstance(use, ToolUse)]
            messages += [Message("assistant", responses[-1].content), Message("user", (*results, Text("And?")))]
    assert [response.stop_reason for response in responses] == ["tool_use", "tool_use", "end_turn", "end_turn"]
    assert [type(block) for block in responses[1].content] == [Thinking, Opaque, Thinking, Text, Text, ToolUse]
    assert responses[3].content == (Text("You are welcome."),)
    assert api.n_unserved == 0


CITED: dict[str, object] = {
    "type": "url_citation",
    "url": "https://example.com",
    "title": "t",
    "start_index": 0,
    "end_index": 4,
}


async def test_events_and_a_document_give_the_same_answer() -> None:
    reply = answer(reasoning("Hm."), "I look.", call("query", {"sql": "ü"}), usage=Counted(cached=7, reasoning=3))
    async with OpenAiApi(lambda _: reply) as api:
        whole = await ask(model(api, streaming=False))
        pieces = await ask(model(api))
    assert [request.body["stream"] for request in api.requests] == [False, True]
    assert as_values(whole) == as_values(pieces)
    assert whole.usage == Usage(requests=1, input_tokens=18, output_tokens=9, cache_read_tokens=7, reasoning_tokens=3)


def as_values(response: Response) -> object:
    """Return what a response means, without the number of the request that is in its ids."""
    said = [getattr(block, "text", "") or getattr(block, "input_json", "") for block in response.content]
    return [type(block) for block in response.content], said, response.stop_reason, response.usage, response.model


# -- addresses, headers and keys ---------------------------------------------------------------------------------------


async def test_the_key_goes_where_the_endpoint_wants_it() -> None:
    async with OpenAiApi(lambda _: answer("Hi.")) as api:
        await ask(model(api))
        await ask(model(api, headers={"OpenAI-Project": "p", "X-Gateway": "y"}))
        await ask(model(api, endpoint=AZURE, base_url=api.url))
        await ask(model(api, base_url=None, endpoint=replace(OPENAI, base_url=f"{api.url}/v1/")))
    first, second, third, _ = (request.headers for request in api.requests)
    assert (first["authorization"], first["content-type"]) == (f"Bearer {KEY}", "application/json")
    assert (second["openai-project"], second["x-gateway"]) == ("p", "y")
    assert (third["api-key"], third.get("authorization")) == (KEY, None)
    paths = [request.path for request in api.requests]
    assert paths == ["/v1/responses", "/v1/responses", "/openai/v1/responses", "/v1/responses"]


# -- faults ------------------------------------------------------------------------------------------------------------

HI = answer("Hi there.", usage=Counted(25, 40))
OVERFLOW = "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens"


@pytest.mark.parametrize(
    ("reply", "kind", "status", "type", "retry_after_s"),
    [
        pytest.param(
            fault(400, code="context_length_exceeded"),
            "context_overflow",
            400,
            "context_length_exceeded",
            None,
            id="too long",
        ),
        pytest.param(
            fault(400, message=OVERFLOW), "context_overflow", 400, "invalid_request_error", None, id="without a code"
        ),
        pytest.param(fault(400, code="invalid_prompt"), "content_filtered", 400, "invalid_prompt", None, id="filtered"),
        pytest.param(
            fault(429, code="insufficient_quota", error_type="insufficient_quota"),
            "quota",
            429,
            "insufficient_quota",
            None,
            id="429 that is about money",
        ),
        pytest.param(fault(503), "overloaded", 503, "server_is_overloaded", None, id="503"),
    ],
)
async def test_a_refusal_is_mapped_and_costs_nothing(
    reply: Reply, kind: str, status: int, type: str | None, retry_after_s: float | None
) -> None:  # D40
    async with OpenAiApi([reply]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.status, error.type, error.retry_after_s) == (kind, status, type, retry_after_s)
    assert error.request_id == "req_1"
    assert error.usage == Usage()
    assert KEY not in everything_said_by(error)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(cut(HI, after_bytes=2_700, ending="end"), "stream_cut", id="ended within an event"),
        pytest.param(cut(HI, after_bytes=30), "stream_cut", id="closed before anything was said"),
        pytest.param(
            broken_off(HI, after_events=4, code="rate_limit_exceeded"), "rate_limited", id="another error event"
        ),
    ],
)
async def test_what_an_answer_that_breaks_off_has_used_is_not_known(reply: Reply, kind: str) -> None:
    collector = Collector()
    async with OpenAiApi([reply], judging=False) as api:
        error = await failure_of(model(api, timeouts=HASTY), collector)
    assert (error.kind, error.usage, error.status, error.request_id) == (kind, None, 200, "req_1")
    assert collector.used() == Usage(requests=1, exact=False)
    assert KEY not in everything_said_by(error)


async def test_a_failed_answer_keeps_the_use_that_it_told() -> None:
    failed: JsonObject = {
        "type": "response.failed",
        "response": {
            "status": "failed",
            "error": {"code": "server_error", "message": "Oops"},
            "usage": {"input_tokens": 25, "output_tokens": 4},
            "output": [],
        },
    }
    last = b"data: " + orjson.dumps(failed) + b"\n\n"
    async with OpenAiApi([insert(HI, last, after_events=4)], judging=False) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.type) == ("overloaded", "server_error")
    assert error.usage == Usage(requests=1, input_tokens=25, output_tokens=4, exact=False)


ENDED: JsonObject = {"output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
LAST = b"".join(
    b"data: " + orjson.dumps(event) + b"\n\n"
    for event in (
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.completed", "response": ENDED},
    )
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


async def test_a_server_that_says_no_more_after_the_last_event_is_not_waited_for() -> None:
    async with RawServer(hanging_after(HEAD + b"\r\n" + LAST)) as server:
        assert (await ask(model(server))).stop_reason == "end_turn"


async def test_a_refusal_of_the_model_is_an_answer() -> None:
    async with OpenAiApi([answer(refusal("I cannot.")), answer("So", ending="content_filter")]) as api:
        first, second = await ask(model(api)), await ask(model(api))
    assert (first.stop_reason, first.stop_detail) == ("refusal", None)
    assert (second.stop_reason, second.stop_detail) == ("refusal", "content_filter")


# -- the official SDK as oracle ----------------------------------------------------------------------------------------

THOUGHT: JsonObject = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2ln"}
CONVERSATION = [
    HELLO,
    Message(
        "assistant",
        (
            Thinking("", orjson.dumps(THOUGHT).decode() + "\nfunction_call fc_1", "openai"),
            ToolUse("call_1", "query", '{"sql": "ü", "n": 1.5}'),
        ),
    ),
    Message("user", (ToolResult("9", tool_use_id="call_1"), Text("And?"))),
]


async def test_the_official_sdk_sends_the_same_request() -> None:
    async with OpenAiApi(lambda _: answer("Hi.")) as api:
        async with model(api).stream(request(*CONVERSATION)) as parts:
            await collect(parts)
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{api.url}/v1") as client:
            await client.responses.create(
                model="gpt-5.2",
                max_output_tokens=1_000,
                stream=True,
                store=False,
                include=["reasoning.encrypted_content"],
                instructions="Be brief.",
                tools=[
                    {
                        "type": "function",
                        "name": QUERY.name,
                        "description": QUERY.description,
                        "parameters": dict(QUERY.input_schema),
                        "strict": False,
                    }
                ],
                input=[
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2ln"},
                    {
                        "type": "function_call",
                        "id": "fc_1",
                        "call_id": "call_1",
                        "name": "query",
                        "arguments": '{"sql": "ü", "n": 1.5}',
                    },
                    {"type": "function_call_output", "call_id": "call_1", "output": "9"},
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
                ],
            )
    ours, theirs = api.requests
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    for name in ("authorization", "content-type"):
        assert ours.headers[name] == theirs.headers[name]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("Grüße 😀"), id="text"),
        pytest.param(
            answer(
                reasoning("Hm."),
                item(type="web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "ü"}),
                text("I look.", annotations=[CITED]),
                call("query", {"sql": 'a "quoted" ü😀', "deep": [1, {"x": None}]}, id="call_1"),
                call("query", {}, id="call_2"),
                usage=Counted(cached=7, reasoning=3),
            ),
            id="items",
        ),
        pytest.param(answer("Cut", ending="length"), id="a limit"),
    ],
)
async def test_the_official_sdk_reads_the_same_answer(reply: Reply) -> None:
    async with OpenAiApi(lambda _: reply) as api:
        ours = await ask(model(api))
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{api.url}/v1") as client:
            events = await client.responses.create(
                model="gpt-5.2", input="Hello", store=False, stream=True, include=["reasoning.encrypted_content"]
            )
            last = [event async for event in events][-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    theirs = cast("dict[str, Any]", last.response.to_dict(mode="json"))
    sent = as_sent(ours)
    assert [item["type"] for item in sent] == [item["type"] for item in theirs["output"]]
    for mine, other in zip(sent, theirs["output"], strict=True):
        assert meaning_of(mine) == meaning_of(other)
    details = theirs["usage"]["input_tokens_details"]
    assert ours.usage.total_tokens == theirs["usage"]["total_tokens"]
    assert ours.usage.cache_read_tokens == details["cached_tokens"]
    assert ours.usage.reasoning_tokens == theirs["usage"]["output_tokens_details"]["reasoning_tokens"]


def as_sent(response: Response) -> list[dict[str, Any]]:
    """Return the items of an answer as our encoder sends them back."""
    body = OpenAIModel("gpt-5.2").body(request(HELLO, Message("assistant", response.content)))
    return orjson.loads(body)["input"][1:]


def meaning_of(item: dict[str, Any]) -> object:
    """Return what an item says, in whichever of its forms; the ids are those of different requests."""
    content = item.get("content")
    if item["type"] == "message":
        parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else [{"text": content}]
        return [(part["text"], part.get("annotations", [])) for part in parts]
    left_out = ("id", "status", "content") if item["type"] != "web_search_call" else ()
    return {key: value for key, value in item.items() if key not in left_out}

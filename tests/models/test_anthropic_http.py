"""The adapter against a strict Messages API: whole exchanges, every fault, and the official SDK as oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import anthropic
import orjson
import pytest

from journeyman.model import Collector, ResponseFinished, collect
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.transport import Timeouts
from journeyman.types import Message, Opaque, Text, Thinking, ToolResult, ToolUse, Usage
from tests.models.asking import HELLO, QUERY, ask, everything_said_by, failure_of, request
from tests.models.raw_server import RawServer, hanging_after, http
from tests.support.messages_answers import (
    Reply,
    answer,
    broken_off,
    cut,
    fault,
    raw,
    redacted_thinking,
    refusal,
    server_tool_use,
    thinking,
    tool_use,
    web_search_tool_result,
)
from tests.support.messages_api import MessagesApi

KEY = "sk-ant-api03-very-secret"
HASTY = Timeouts(idle_s=1.0)  # long enough for a busy machine: only tests that wait for it take that long


def model(api: MessagesApi | RawServer, **more: Any) -> AnthropicModel:  # noqa: ANN401 - as AnthropicModel
    arguments: dict[str, Any] = {"api_key": KEY, "base_url": api.url, **more}
    return AnthropicModel("claude-sonnet-5-5", **arguments)


# -- whole exchanges ---------------------------------------------------------------------------------------------------


async def test_a_conversation_of_tools_and_thinking_is_one_that_the_api_takes() -> None:
    script: Sequence[Reply] = [
        answer(
            thinking("Hm."),
            redacted_thinking(),
            "I look.",
            tool_use("query", {"sql": "ü"}),
            tool_use("query", {"sql": ""}),
        ),
        answer(
            "Let me search.", server_tool_use("web_search", {"query": "x"}, id="srvtoolu_1"), stop_reason="pause_turn"
        ),
        answer(web_search_tool_result("srvtoolu_1", "A"), "It is 9."),
        answer("You are welcome."),
    ]
    async with MessagesApi(script, bind_thinking=True) as api:
        messages = [HELLO]
        first = await ask(model(api), *messages)
        results = [ToolResult("1", tool_use_id=call.id) for call in first.content if isinstance(call, ToolUse)]
        messages += [Message("assistant", first.content), Message("user", (*results, Text("And?")))]
        second = await ask(model(api), *messages)
        messages += [Message("assistant", second.content)]
        third = await ask(model(api), *messages)
        messages += [Message("assistant", third.content, continues=True), Message("user", (Text("Thanks."),))]
        last = await ask(model(api), *messages)
    assert [r.stop_reason for r in (first, second, third, last)] == ["tool_use", "pause_turn", "end_turn", "end_turn"]
    assert [type(block) for block in third.content] == [Opaque, Text]
    assert last.content == (Text("You are welcome."),)
    assert api.n_unserved == 0


# -- headers and keys --------------------------------------------------------------------------------------------------


async def test_a_key_and_a_token_are_sent_in_their_own_headers() -> None:
    async with MessagesApi(lambda _: answer("Hi.")) as api:
        await ask(model(api))
        await ask(model(api, api_key=None, auth_token="token-1"))
        await ask(model(api, version="2023-06-01", headers={"anthropic-beta": "x", "X-Gateway": "y"}))
    first, second, third = (request.headers for request in api.requests)
    assert (first["x-api-key"], first.get("authorization"), first["anthropic-version"]) == (KEY, None, "2026-10-21")
    assert (second.get("x-api-key"), second["authorization"]) == (None, "Bearer token-1")
    assert (third["anthropic-version"], third["anthropic-beta"], third["x-gateway"]) == ("2023-06-01", "x", "y")
    assert first["content-type"] == "application/json"


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_in_any_way(end: str) -> None:
    async with MessagesApi([answer("Hi.")]) as api:
        await ask(AnthropicModel("claude-sonnet-5-5", api_key=KEY, base_url=api.url + end))
    assert api.requests[0].path == "/v1/messages"


# -- faults ------------------------------------------------------------------------------------------------------------

HI = answer("Hi there.", usage={"input_tokens": 25, "output_tokens": 40})
SEEN = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0, exact=False)
OVERFLOW = "prompt is too long: 205668 tokens > 200000 maximum"
LIMITS = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease one"


@pytest.mark.parametrize(
    ("reply", "kind", "status", "type", "retry_after_s"),
    [
        pytest.param(
            fault(400, message=OVERFLOW), "context_overflow", 400, "invalid_request_error", None, id="too long"
        ),
        pytest.param(
            fault(400, message=LIMITS), "context_overflow", 400, "invalid_request_error", None, id="with max_tokens"
        ),
        pytest.param(fault(402), "quota", 402, "billing_error", None, id="402"),
        pytest.param(
            fault(413, message=OVERFLOW), "context_overflow", 413, "request_too_large", None, id="413 with text"
        ),
        pytest.param(fault(504), "timeout", 504, "timeout_error", None, id="504"),
        pytest.param(
            fault(529, headers={"retry-after-ms": "500"}), "overloaded", 529, "overloaded_error", 0.5, id="529"
        ),
    ],
)
async def test_a_refusal_is_mapped_and_costs_nothing(
    reply: Reply, kind: str, status: int, type: str | None, retry_after_s: float | None
) -> None:  # D40
    async with MessagesApi([reply]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.status, error.type, error.retry_after_s) == (kind, status, type, retry_after_s)
    assert error.request_id == "req_1"
    assert error.usage == Usage()
    assert KEY not in everything_said_by(error)


async def test_a_spending_limit_is_told_from_a_rate_limit_by_its_code() -> None:
    details = {"type": "rate_limit_error", "message": "m", "details": {"error_code": "enforced_spend_limit_reached"}}
    async with MessagesApi([raw(orjson.dumps({"type": "error", "error": details}), status=429)]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.type) == ("quota", "enforced_spend_limit_reached")


@pytest.mark.parametrize(
    ("reply", "kind", "usage"),
    [
        pytest.param(cut(HI, after_bytes=700, ending="end"), "stream_cut", SEEN, id="ended within an event"),
        pytest.param(cut(HI, after_bytes=30), "stream_cut", None, id="closed before anything was counted"),
        pytest.param(
            broken_off(HI, after_events=4, error_type="rate_limit_error"),
            "rate_limited",
            SEEN,
            id="another error event",
        ),
    ],
)
async def test_an_answer_that_breaks_off_keeps_the_use_it_reported(
    reply: Reply, kind: str, usage: Usage | None
) -> None:
    collector = Collector()
    async with MessagesApi([reply], judging=False) as api:
        error = await failure_of(model(api, timeouts=HASTY), collector)
    assert (error.kind, error.usage, error.status, error.request_id) == (kind, usage, 200, "req_1")
    assert collector.used() == (usage or Usage(requests=1, exact=False))
    assert KEY not in everything_said_by(error)


LAST = b"".join(
    b"data: " + orjson.dumps(event) + b"\n\n"
    for event in (
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


async def test_a_server_that_says_no_more_after_the_last_event_is_not_waited_for() -> None:
    async with RawServer(hanging_after(HEAD + b"\r\n" + LAST)) as server:
        assert (await ask(model(server))).stop_reason == "end_turn"


async def test_a_connection_is_used_again_even_if_the_end_of_an_answer_comes_late() -> None:
    finished = asyncio.Event()

    async def in_two_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(LAST), LAST))
        await finished.wait()
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"]}]}")
        writer.write(http(LAST))

    async with RawServer(in_two_pieces) as server, model(server).open():
        async with model(server).stream(request()) as parts:
            async for part in parts:
                if isinstance(part, ResponseFinished):
                    finished.set()
        await ask(model(server))
        assert server.n_connections == 1


async def test_a_refusal_of_the_model_is_an_answer() -> None:
    async with MessagesApi([refusal("I", category="cyber")]) as api:
        response = await ask(model(api))
    assert (response.stop_reason, response.stop_detail) == ("refusal", "cyber")


# -- the official SDK as oracle ----------------------------------------------------------------------------------------

CONVERSATION = [
    HELLO,
    Message(
        "assistant", (Thinking("Hm.", "c2ln"), Text("I look."), ToolUse("toolu_1", "query", '{"sql": "ü", "n": 1.5}'))
    ),
    Message("user", (ToolResult("9", tool_use_id="toolu_1"), Text("And?"))),
]


async def test_the_official_sdk_sends_the_same_request() -> None:
    async with MessagesApi(lambda _: answer("Hi.")) as api:
        async with model(api).stream(request(*CONVERSATION, cache="off")) as parts:
            await collect(parts)
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url) as client:
            await client.messages.create(
                model="claude-sonnet-5-5",
                max_tokens=1_000,
                stream=True,
                system=[{"type": "text", "text": "Be brief."}],
                tools=[
                    {"name": QUERY.name, "description": QUERY.description, "input_schema": dict(QUERY.input_schema)}
                ],
                messages=[
                    {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                            {"type": "text", "text": "I look."},
                            {"type": "tool_use", "id": "toolu_1", "name": "query", "input": {"sql": "ü", "n": 1.5}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "9"},
                            {"type": "text", "text": "And?"},
                        ],
                    },
                ],
            )
    ours, theirs = api.requests
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    for name in ("anthropic-version", "content-type"):
        assert ours.headers[name] == theirs.headers[name]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("Grüße 😀"), id="text"),
        pytest.param(
            answer(
                thinking("Hm."),
                redacted_thinking(),
                "I look.",
                server_tool_use("web_search", {"query": "ü"}, id="srvtoolu_1"),
                web_search_tool_result("srvtoolu_1", "A"),
                tool_use("query", {"sql": 'a "quoted" ü😀', "deep": [1, {"x": None}]}, id="toolu_1"),
                tool_use("query", {}, id="toolu_2"),
                usage={"cache_read_input_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
            ),
            id="blocks",
        ),
        pytest.param(answer("Cut", stop_reason="max_tokens"), id="a limit"),
        pytest.param(answer("A", stop_reason="stop_sequence", stop_sequence="END"), id="a stop sequence"),
        pytest.param(refusal("No.", category="bio"), id="a refusal"),
    ],
)
async def test_the_official_sdk_reads_the_same_answer(reply: Reply) -> None:
    async with MessagesApi(lambda _: reply) as api:
        ours = await ask(model(api))
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url)
        async with (
            client,
            client.messages.stream(
                model="claude-sonnet-5-5", max_tokens=1_000, messages=[{"role": "user", "content": "Hello"}]
            ) as stream,
        ):
            theirs = cast("dict[str, Any]", (await stream.get_final_message()).to_dict(mode="json"))
    assert [as_sent(block) for block in ours.content] == theirs["content"]
    assert ours.stop_reason == theirs["stop_reason"]
    counted = theirs["usage"]
    assert ours.usage == Usage(
        requests=1,
        input_tokens=counted["input_tokens"],
        output_tokens=counted["output_tokens"],
        cache_read_tokens=counted["cache_read_input_tokens"],
        cache_write_tokens=counted["cache_creation_input_tokens"],
        reasoning_tokens=counted.get("output_tokens_details", {}).get("thinking_tokens"),
    )


def as_sent(block: object) -> dict[str, Any]:
    """Return one block as our encoder sends it back."""
    message = Message("assistant", (cast("Text", block), Text("x")))
    body = AnthropicModel("claude-sonnet-5-5").body(request(HELLO, message, HELLO, cache="off"))
    return orjson.loads(body)["messages"][1]["content"][0]

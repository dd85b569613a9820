"""The adapter against a strict Messages API: whole exchanges, every fault, and the official SDK as oracle."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from typing import Any, cast

import anthropic
import orjson
import pytest

from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import (
    BlockFinished,
    CachePolicy,
    Collector,
    Prefix,
    Request,
    Response,
    ResponseFinished,
    Settings,
    TextPart,
    ToolSpec,
    collect,
)
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.transport import Timeouts
from journeyman.types import Message, Opaque, Price, Text, Thinking, ToolResult, ToolUse, Usage
from tests.models.raw_server import Answer as RawAnswer
from tests.models.raw_server import RawServer, closing_after, hanging_after, http
from tests.support.messages_answers import (
    Reply,
    answer,
    broken_off,
    cut,
    enormous_line,
    fault,
    html_page,
    insert,
    late,
    raw,
    redacted_thinking,
    refusal,
    server_tool_use,
    stall,
    text,
    thinking,
    tool_use,
    web_search_tool_result,
)
from tests.support.messages_api import MessagesApi

KEY = "sk-ant-api03-very-secret"
HASTY = Timeouts(idle_s=1.0)  # long enough for a busy machine: only tests that wait for it take that long
QUERY = ToolSpec(
    name="query",
    description="Run a query.",
    input_schema={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
HELLO = Message("user", (Text("Hello"),))


def model(api: MessagesApi | RawServer, **more: Any) -> AnthropicModel:  # noqa: ANN401 - as AnthropicModel
    arguments: dict[str, Any] = {"api_key": KEY, "base_url": api.url, **more}
    return AnthropicModel("claude-sonnet-5-5", **arguments)


def request(*messages: Message, cache: CachePolicy = "auto") -> Request:
    prefix = Prefix(system=(Text("Be brief."),), tools=(QUERY,))
    return Request(prefix=prefix, messages=messages or (HELLO,), settings=Settings(cache=cache, max_tokens=1_000))


async def ask(model: AnthropicModel, *messages: Message, into: Collector | None = None) -> Response:
    collector = into or Collector()
    async with model.stream(request(*messages)) as parts:
        async for part in parts:
            collector.add(part)
    return collector.response()


async def failure_of(model: AnthropicModel, collector: Collector | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(model, into=collector)
    return caught.value


def everything_said_by(error: BaseException) -> str:
    """Return all texts that a log, a debugger or an error tracker would show of an exception."""
    chain: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in chain:
            chain.append(one)
            left += [one.__cause__, one.__context__]
    return "\n".join(f"{one} {one!r} {one.args} {vars(one)}" for one in chain)


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


async def test_parts_come_while_the_answer_is_still_being_written() -> None:
    async with MessagesApi([stall(answer("Hello there", delta_chars=5), after_events=4)]) as api:
        async with model(api).stream(request()) as parts:
            async for part in parts:
                if part == TextPart("Hello"):
                    break
        await api.until(lambda: api.requests[0].hung_up)


async def test_a_closed_request_stops_the_server() -> None:
    async with MessagesApi([stall(answer("Hello"), after_events=2)]) as api:
        task = asyncio.create_task(ask(model(api)))
        await api.until(lambda: len(api.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await api.until(lambda: api.requests[0].hung_up)


async def test_an_answer_in_one_piece_is_read_too() -> None:
    document = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [text("Hi."), tool_use("query", {"sql": "x"}, id="t")],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    async with MessagesApi([raw(orjson.dumps(document))]) as api:
        response = await ask(model(api))
    assert response.content == (Text("Hi."), ToolUse("t", "query", '{"sql":"x"}'))
    assert response.usage == Usage(requests=1, input_tokens=3, output_tokens=4)


async def test_a_price_gives_every_answer_its_cost() -> None:
    async with MessagesApi([answer("Hi.", usage={"input_tokens": 10, "output_tokens": 2})]) as api:
        response = await ask(model(api, price=Price(input=3, output=15)))
    assert response.usage.cost == pytest.approx((10 * 3 + 2 * 15) / 1_000_000)


async def test_two_hundred_streams_run_at_once_over_one_client() -> None:
    async with MessagesApi(lambda _: answer("Hello " * 50)) as api:
        one = model(api)
        async with one.open():
            responses = await asyncio.gather(*(ask(one) for _ in range(200)))
    assert {response.content for response in responses} == {(Text("Hello " * 50),)}
    assert api.peak_in_flight > 20


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


@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        AnthropicModel("claude-sonnet-5-5", api_key=key)
    assert not key or key not in everything_said_by(caught.value)


async def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with MessagesApi([fault(401, message=f"the key {KEY} is bad")]) as api:
        one = model(api, auth_token="bearer-secret")
        error = await failure_of(one)
    said = everything_said_by(error) + repr(one) + str(one) + caplog.text
    assert "the key [key] is bad" in said
    assert KEY not in said
    assert "bearer-secret" not in said


# -- faults ------------------------------------------------------------------------------------------------------------

HI = answer("Hi there.", usage={"input_tokens": 25, "output_tokens": 40})
SEEN = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0, exact=False)
OVERFLOW = "prompt is too long: 205668 tokens > 200000 maximum"
LIMITS = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease one"


@pytest.mark.parametrize(
    ("reply", "kind", "status", "type", "retry_after_s"),
    [
        pytest.param(fault(400), "bad_request", 400, "invalid_request_error", None, id="400"),
        pytest.param(
            fault(400, message=OVERFLOW), "context_overflow", 400, "invalid_request_error", None, id="too long"
        ),
        pytest.param(
            fault(400, message=LIMITS), "context_overflow", 400, "invalid_request_error", None, id="with max_tokens"
        ),
        pytest.param(fault(401), "auth", 401, "authentication_error", None, id="401"),
        pytest.param(fault(402), "quota", 402, "billing_error", None, id="402"),
        pytest.param(fault(403), "auth", 403, "permission_error", None, id="403"),
        pytest.param(fault(404), "not_found", 404, "not_found_error", None, id="404"),
        pytest.param(fault(408, error_type="timeout_error"), "timeout", 408, "timeout_error", None, id="408"),
        pytest.param(fault(413), "context_overflow", 413, "request_too_large", None, id="413"),
        pytest.param(
            fault(413, message=OVERFLOW), "context_overflow", 413, "request_too_large", None, id="413 with text"
        ),
        pytest.param(
            fault(429, headers={"retry-after": "7"}), "rate_limited", 429, "rate_limit_error", 7.0, id="429 with a wait"
        ),
        pytest.param(fault(429), "rate_limited", 429, "rate_limit_error", None, id="429 without a wait"),
        pytest.param(fault(500), "overloaded", 500, "api_error", None, id="500"),
        pytest.param(fault(504), "timeout", 504, "timeout_error", None, id="504"),
        pytest.param(
            fault(529, headers={"retry-after-ms": "500"}), "overloaded", 529, "overloaded_error", 0.5, id="529"
        ),
        pytest.param(html_page(502), "overloaded", 502, None, None, id="a proxy's page"),
    ],
)
async def test_a_refusal_is_mapped_and_costs_nothing(
    reply: Reply, kind: str, status: int, type: str | None, retry_after_s: float | None
) -> None:  # D40
    async with MessagesApi([reply]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.status, error.type, error.retry_after_s) == (kind, status, type, retry_after_s)
    assert error.request_id == (None if status == 502 else "req_1")
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
        pytest.param(cut(HI, after_events=4), "stream_cut", SEEN, id="closed between events"),
        pytest.param(cut(HI, after_events=4, ending="reset"), "stream_cut", SEEN, id="reset between events"),
        pytest.param(cut(HI, after_events=4, ending="end"), "stream_cut", SEEN, id="ended as if all were well"),
        pytest.param(cut(HI, after_bytes=700, ending="end"), "stream_cut", SEEN, id="ended within an event"),
        pytest.param(cut(HI, after_bytes=700), "stream_cut", SEEN, id="closed within an event"),
        pytest.param(cut(HI, after_bytes=30), "stream_cut", None, id="closed before anything was counted"),
        pytest.param(cut(HI, after_bytes=0, ending="end"), "stream_cut", None, id="an empty stream"),
        pytest.param(stall(HI, after_events=4), "stream_idle", SEEN, id="silence"),
        pytest.param(broken_off(HI, after_events=4), "overloaded", SEEN, id="an error event"),
        pytest.param(
            broken_off(HI, after_events=4, error_type="rate_limit_error"),
            "rate_limited",
            SEEN,
            id="another error event",
        ),
        pytest.param(insert(HI, b'data: {"type": "\xff"}\n\n', after_events=4), "stream_cut", SEEN, id="invalid UTF-8"),
        pytest.param(insert(HI, b"data: <html>\n\n", after_events=4), "stream_cut", SEEN, id="no JSON"),
        pytest.param(
            insert(HI, enormous_line(33 * 1024 * 1024), after_events=4), "unknown", SEEN, id="an enormous line"
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


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        pytest.param(html_page(200), "unknown", "text/html, '<html><head><title>200", id="a page"),
        pytest.param(raw(b"", content_type="text/plain"), "unknown", "an empty body", id="nothing"),
        pytest.param(raw(b"\xff\x00" * 300, content_type="image/png"), "unknown", "image/png", id="garbage"),
        pytest.param(raw(b"", content_type="application/json"), "stream_cut", "cannot be read", id="empty JSON"),
        pytest.param(raw(b"[]", content_type="application/json"), "unknown", "it is no message", id="other JSON"),
        pytest.param(
            raw(b"garbage\n\n", content_type="text/event-stream"), "stream_cut", "it is empty", id="no events"
        ),
    ],
)
async def test_what_is_no_answer_is_quoted(reply: Reply, kind: str, said: str) -> None:
    async with MessagesApi([reply]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.status, error.usage) == (kind, 200, None)
    assert said in str(error)


@pytest.mark.parametrize(
    ("reply", "kind", "usage"),
    [
        pytest.param(closing_after(b""), "network", None, id="closed before the answer"),
        pytest.param(hanging_after(b""), "timeout", None, id="silence before the answer"),
        pytest.param(closing_after(b"\x16\x03\x01 what\r\n\r\n"), "unknown", None, id="no HTTP"),
        pytest.param(http(status=307, headers={"Location": "/"}), "unknown", Usage(), id="a redirect"),
    ],
)
async def test_no_answer_at_all_is_mapped(reply: RawAnswer, kind: str, usage: Usage | None) -> None:
    async with RawServer(reply) as server:
        error = await failure_of(model(server, timeouts=HASTY))
    assert (error.kind, error.usage) == (kind, usage)
    assert KEY not in everything_said_by(error)


async def test_late_headers_are_a_timeout_and_may_have_cost_something() -> None:
    async with MessagesApi([late(HI, until=asyncio.Event())]) as api:
        error = await failure_of(model(api, timeouts=HASTY))
    assert (error.kind, error.usage) == ("timeout", None)


async def test_a_refused_connection_costs_nothing() -> None:
    async with MessagesApi([]) as api:
        pass
    error = await failure_of(model(api))
    assert (error.kind, error.usage) == ("network", Usage())


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


async def test_failures_leave_no_garbage_behind() -> None:
    async with MessagesApi([cut(HI, after_events=4)]) as api:
        await failure_of(model(api))
    gc.collect()  # an unclosed connection or generator would warn, and warnings are errors


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


async def test_the_parts_of_an_answer_add_up_to_its_blocks() -> None:
    said: list[str] = []
    blocks: list[object] = []
    script = [answer("Grüße 😀 an alle", delta_chars=3)]
    async with MessagesApi(script) as api, model(api).stream(request()) as parts:
        async for part in parts:
            match part:
                case TextPart(words):
                    said.append(words)
                case BlockFinished(block):
                    blocks.append(block)
                case _:
                    pass
    assert len(said) > 3
    assert blocks == [Text("".join(said))]

"""The adapter against a strict Chat Completions server: whole exchanges, every fault, the official SDK as oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import openai
import orjson
import pytest

from journeyman.errors import ModelUnavailable
from journeyman.model import Collector, collect
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import AZURE, LLAMA_CPP, OLLAMA, OPENROUTER, VLLM, Endpoint
from journeyman.models.transport import Timeouts
from journeyman.types import Message, Price, Text, Thinking, ToolResult, ToolUse, Usage
from tests.models.asking import HELLO, QUERY, ask, everything_said_by, failure_of, request
from tests.models.raw_server import RawServer, hanging_after, http
from tests.support.messages_answers import cut, raw
from tests.support.openai_answers import Counted, Reply, answer, broken_off, call, fault, reasoning, refusal
from tests.support.openai_api import OpenAiApi, Service

KEY = "sk-proj-very-secret"
HASTY = Timeouts(idle_s=1.0)  # long enough for a busy machine: only tests that wait for it take that long


def model(api: OpenAiApi | RawServer, **more: Any) -> OpenAIChatModel:  # noqa: ANN401 - as OpenAIChatModel
    arguments: dict[str, Any] = {"api_key": KEY, "base_url": f"{api.url}/v1", **more}
    return OpenAIChatModel("gpt-4.1", **arguments)


def message_of(api: OpenAiApi, *, request: int, number: int) -> dict[str, Any]:
    """Return one message of a request, counted from 1, as the server got it."""
    return cast("list[dict[str, Any]]", api.requests[request - 1].body["messages"])[number]


# -- whole exchanges ---------------------------------------------------------------------------------------------------

SERVICES: dict[str, tuple[Endpoint, Service]] = {
    "ollama": (OLLAMA, Service(reasoning_field="reasoning")),
    "vllm": (VLLM, Service(reasoning_field="reasoning")),
    "llama-cpp": (LLAMA_CPP, Service(reasoning_field="reasoning_content")),
    "openrouter": (OPENROUTER, Service(reasoning_field="reasoning", extensions=frozenset({"usage"}))),
}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", SERVICES)
async def test_a_conversation_of_tools_and_reasoning_is_one_that_the_server_takes(name: str, streaming: bool) -> None:
    endpoint, service = SERVICES[name]
    script: Sequence[Reply] = [
        answer(reasoning("Hm."), "I look.", call("query", {"sql": "ü"}), call("query", {"sql": ""})),
        answer("It is 9."),
        answer("You are welcome."),
    ]
    async with OpenAiApi(script, service=service) as api:
        one = model(api, endpoint=endpoint, streaming=streaming)
        messages = [HELLO]
        first = await ask(one, *messages)
        results = [ToolResult("1", tool_use_id=use.id) for use in first.content if isinstance(use, ToolUse)]
        messages += [Message("assistant", first.content), Message("user", (*results, Text("And?")))]
        second = await ask(one, *messages)
        messages += [Message("assistant", second.content), Message("user", (Text("Thanks."),))]
        last = await ask(one, *messages)
    assert first.content == (
        Thinking("Hm.", None, name),
        Text("I look."),
        ToolUse("call_1_1", "query", '{"sql":"ü"}'),
        ToolUse("call_1_2", "query", '{"sql":""}'),
    )
    assert [r.stop_reason for r in (first, second, last)] == ["tool_use", "end_turn", "end_turn"]
    assert first.usage == Usage(
        requests=1, input_tokens=25, output_tokens=9, cache_read_tokens=0, reasoning_tokens=0, exact=True
    )
    assert (first.id, first.model) == ("chatcmpl-1", "gpt-4.1")
    assert message_of(api, request=2, number=2)[endpoint.reasoning_field] == "Hm."
    assert api.n_unserved == 0


async def test_a_server_that_answers_in_one_piece_although_asked_to_stream_is_read_too() -> None:
    async with OpenAiApi([answer("Hi.")], streaming=False) as api:
        response = await ask(model(api))
    assert response.content == (Text("Hi."),)
    assert response.usage.exact


async def test_a_price_gives_every_answer_its_cost() -> None:
    counted = Counted(input=100, cached=60, written=30, output=50, reasoning=20)
    async with OpenAiApi([answer("Hi.", usage=counted)]) as api:
        usage = (await ask(model(api, price=Price(input=2, output=10, cache_read=1, cache_write=3)))).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (10, 60, 30)
    assert usage.cost == pytest.approx((10 * 2 + 50 * 10 + 60 * 1 + 30 * 3) / 1_000_000)


@pytest.mark.parametrize("streaming", [True, False])
async def test_openrouter_tells_what_an_answer_cost(streaming: bool) -> None:
    service = Service(extensions=frozenset({"usage"}))
    bills = [Counted(cost=0.0015), Counted(cost=0.0001, upstream_cost=0.002), Counted()]
    async with OpenAiApi([answer("Hi.", usage=bill) for bill in bills], service=service) as api:
        one = model(api, endpoint=OPENROUTER, streaming=streaming, price=Price(input=1_000, output=1_000))
        costs = [(await ask(one)).usage.cost for _ in bills]
    assert costs == [pytest.approx(0.0015), pytest.approx(0.0021), pytest.approx(34 / 1_000)]
    assert api.requests[0].body["usage"] == {"include": True}


async def test_a_server_that_does_not_count_leaves_the_use_unknown() -> None:
    async with OpenAiApi([answer("Hi.", usage=None)]) as api:
        assert (await ask(model(api))).usage == Usage(requests=1, exact=False)


async def test_a_refusal_of_the_model_is_an_answer() -> None:
    async with OpenAiApi([refused := answer(refusal("I cannot.")), answer("Hi.")]) as api:
        response = await ask(model(api))
        await ask(model(api), HELLO, Message("assistant", response.content), HELLO)
    assert (response.stop_reason, refused.ending) == ("refusal", "stop")
    assert message_of(api, request=2, number=2)["content"] == [{"type": "refusal", "refusal": "I cannot."}]


async def test_a_server_that_says_no_more_after_the_last_event_is_not_waited_for() -> None:
    last = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    stream = head + b"data: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n"
    async with RawServer(hanging_after(stream)) as server:
        assert (await ask(model(server))).stop_reason == "end_turn"


# -- addresses, headers and keys ---------------------------------------------------------------------------------------


async def test_a_key_is_sent_as_the_endpoint_wants_it() -> None:
    async with OpenAiApi(lambda _: answer("Hi.")) as api:
        await ask(model(api))
        await ask(model(api, endpoint=AZURE, base_url=api.url))
        await ask(model(api, headers={"X-Title": "journeyman"}))
    first, second, third = api.requests
    assert (first.path, first.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (second.path, second.headers["api-key"]) == ("/openai/v1/chat/completions", KEY)
    assert "authorization" not in second.headers
    assert third.headers["x-title"] == "journeyman"
    assert first.headers["content-type"] == "application/json"


async def test_a_server_without_keys_is_asked_without_one() -> None:
    async with RawServer(http(b'{"error": "none"}', status=400)) as server:
        await failure_of(model(server, api_key=None, endpoint=OLLAMA))
    assert b"authorization" not in server.requests[0].lower()


async def test_the_path_and_the_query_are_the_endpoints() -> None:
    older = replace(
        AZURE, chat_path="/openai/deployments/{model}/chat/completions", query={"api-version": "2024-10-21"}
    )
    async with RawServer(http(status=404)) as server:
        await failure_of(OpenAIChatModel("my model", endpoint=older, base_url=server.url + "/", api_key=KEY))
    line = server.requests[0].partition(b"\r\n")[0]
    assert line == b"POST /openai/deployments/my%20model/chat/completions?api-version=2024-10-21 HTTP/1.1"


def test_a_model_without_an_address_is_not_made() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        OpenAIChatModel("m", endpoint=AZURE)
    assert "There is no address for the model 'm'." in str(caught.value)


# -- faults ------------------------------------------------------------------------------------------------------------

HI = answer("Hi there.", delta_chars=3)
VLLM_OVERFLOW = {
    "message": "This model's maximum context length is 8192 tokens.",
    "type": "BadRequestError",
    "code": 400,
}
LLAMA_OVERFLOW = {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 4096}


def body(error: object, status: int) -> Reply:
    return raw(orjson.dumps({"error": error}), status=status)


@pytest.mark.parametrize(
    ("reply", "kind", "status", "type"),
    [
        pytest.param(
            fault(400, code="context_length_exceeded"),
            "context_overflow",
            400,
            "context_length_exceeded",
            id="too long",
        ),
        pytest.param(body(VLLM_OVERFLOW, 400), "context_overflow", 400, "BadRequestError", id="too long for vLLM"),
        pytest.param(
            body(LLAMA_OVERFLOW, 400), "context_overflow", 400, "exceed_context_size_error", id="too long for llama.cpp"
        ),
        pytest.param(fault(400, code="content_filter"), "content_filtered", 400, "content_filter", id="filtered"),
        pytest.param(body({"message": "No credits", "code": 402}, 402), "quota", 402, None, id="402"),
        pytest.param(body("model 'x' not found, try pulling it", 404), "not_found", 404, None, id="404 with a text"),
        pytest.param(raw(b'{"detail":"Not Found"}', status=404), "not_found", 404, None, id="404 of another form"),
        pytest.param(
            fault(429, error_type="insufficient_quota", code="insufficient_quota"),
            "quota",
            429,
            "insufficient_quota",
            id="no credit",
        ),
        pytest.param(fault(503), "overloaded", 503, "server_is_overloaded", id="503"),
    ],
)
async def test_a_refusal_is_mapped_and_costs_nothing(reply: Reply, kind: str, status: int, type: str | None) -> None:
    async with OpenAiApi([reply]) as api:
        error = await failure_of(model(api))
    assert (error.kind, error.status, error.type) == (kind, status, type)
    assert error.usage == Usage()
    assert KEY not in everything_said_by(error)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(cut(HI, after_bytes=400, ending="end"), "stream_cut", id="ended within an event"),
        pytest.param(broken_off(HI, after_events=3, code="rate_limit_exceeded"), "rate_limited", id="another one"),
    ],
)
async def test_an_answer_that_breaks_off_counts_as_one_of_unknown_use(reply: Reply, kind: str) -> None:
    collector = Collector()
    async with OpenAiApi([reply], judging=False) as api:
        error = await failure_of(model(api, timeouts=HASTY), collector)
    assert (error.kind, error.usage, error.status, error.request_id) == (kind, None, 200, "req_1")
    assert collector.used() == Usage(requests=1, exact=False)
    assert KEY not in everything_said_by(error)


async def test_an_answer_that_breaks_off_after_its_usage_keeps_it() -> None:
    usage = {"prompt_tokens": 25, "completion_tokens": 2}
    first = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}}], "usage": usage}
    async with RawServer(http(b"data: " + orjson.dumps(first) + b"\n\n")) as server:
        error = await failure_of(model(server))
    assert error.kind == "stream_cut"
    assert error.usage == Usage(requests=1, input_tokens=25, output_tokens=2, exact=False)


# -- the official SDK as oracle ----------------------------------------------------------------------------------------

CONVERSATION = [
    HELLO,
    Message("assistant", (Text("I look."), ToolUse("call_1", "query", '{"sql": "ü", "n": 1.5}'))),
    Message("user", (ToolResult("9", tool_use_id="call_1"), Text("And?"))),
]


async def test_the_official_sdk_sends_the_same_request() -> None:
    async with OpenAiApi(lambda _: answer("Hi.")) as api:
        async with model(api).stream(request(*CONVERSATION)) as parts:
            await collect(parts)
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{api.url}/v1") as client:
            stream = await client.chat.completions.create(
                model="gpt-4.1",
                max_completion_tokens=1_000,
                store=False,
                stream=True,
                stream_options={"include_usage": True},
                tools=[
                    {
                        "type": "function",
                        "function": {
                            "name": QUERY.name,
                            "description": QUERY.description,
                            "parameters": dict(QUERY.input_schema),
                        },
                    }
                ],
                messages=[
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hello"},
                    {
                        "role": "assistant",
                        "content": "I look.",
                        "tool_calls": [
                            {
                                "id": "call_1",
                                "type": "function",
                                "function": {"name": "query", "arguments": '{"sql": "ü", "n": 1.5}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "call_1", "content": "9"},
                    {"role": "user", "content": "And?"},
                ],
            )
            async for _ in stream:
                pass
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
                "I look.",
                call("query", {"sql": 'a "quoted" ü😀', "deep": [1, {"x": None}]}, id="call_1"),
                call("query", {}, id="call_2"),
                usage=Counted(cached=7, reasoning=3),
            ),
            id="calls",
        ),
        pytest.param(answer("Cut", ending="length"), id="a limit"),
        pytest.param(answer("Hm", ending="content_filter"), id="filtered"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_official_sdk_reads_the_same_answer(reply: Reply, streaming: bool) -> None:
    async with OpenAiApi(lambda _: reply) as api:
        ours = await ask(model(api, streaming=streaming))
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{api.url}/v1") as client:
            completion = await client.chat.completions.create(
                model="gpt-4.1", messages=[{"role": "user", "content": "Hello"}]
            )
    theirs = cast("dict[str, Any]", completion.to_dict(mode="json"))
    [choice] = theirs["choices"]
    said = choice["message"]
    assert "".join(block.text for block in ours.content if isinstance(block, Text)) == said["content"]
    calls = [(use.id, use.name, use.input_json) for use in ours.content if isinstance(use, ToolUse)]
    assert calls == [
        (use["id"], use["function"]["name"], use["function"]["arguments"]) for use in said.get("tool_calls", [])
    ]
    assert ours.stop_reason == {
        "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"
    }[choice["finish_reason"]]  # fmt: skip
    counted = theirs["usage"]
    cached = counted["prompt_tokens_details"]["cached_tokens"]
    assert ours.usage == Usage(
        requests=1,
        input_tokens=counted["prompt_tokens"] - cached,
        output_tokens=counted["completion_tokens"],
        cache_read_tokens=cached,
        reasoning_tokens=counted["completion_tokens_details"]["reasoning_tokens"],
    )

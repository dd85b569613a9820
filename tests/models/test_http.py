"""The adapters over HTTP, each against the strict server of its API: what is its own, and its official SDK as oracle.

What all of them must do alike is in `tests/contracts`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import anthropic
import openai
import orjson
import pytest
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

from journeyman.errors import ModelUnavailable
from journeyman.model import Collector, Model, Response, ResponseFinished, collect, opened
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.openai import AZURE, LLAMA_CPP, OLLAMA, OPENROUTER, VLLM, Endpoint, OpenAIChatModel, OpenAIModel
from journeyman.types import Block, JsonObject, Message, Opaque, Price, Text, Thinking, ToolResult, ToolUse, Usage
from tests.contracts.test_exchanges import ANTHROPIC, CHAT, CLIENT, KEY, RESPONSES, Examined, each
from tests.models.asking import HELLO, ask, everything_said_by, failure_of, request
from tests.models.raw_server import RawServer, hanging_after, http
from tests.support import messages_answers as anthropic_says
from tests.support import openai_answers as openai_says
from tests.support.messages_answers import cut, raw
from tests.support.openai_answers import Counted, answer, call, item, reasoning, text
from tests.support.servers import OpenAiApi, Service

SOURCE: dict[str, object] = {"type": "url_citation", "url": "https://example.com", "title": "t"}
CITED = {**SOURCE, "start_index": 0, "end_index": 4}
DEEP: dict[str, object] = {"sql": 'a "quoted" ü😀', "deep": [1, {"x": None}]}


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


SERVICES: dict[str, tuple[Endpoint, Service]] = {
    "ollama": (OLLAMA, Service(reasoning_field="reasoning")),
    "vllm": (VLLM, Service(reasoning_field="reasoning")),
    "llama-cpp": (LLAMA_CPP, Service(reasoning_field="reasoning_content")),
    "openrouter": (OPENROUTER, Service(reasoning_field="reasoning", extensions=frozenset({"usage"}))),
}


async def conversation(model: Model, n_answers: int) -> list[Response]:
    """Let a model answer as often, with a result for every call."""
    messages = [HELLO]
    responses: list[Response] = []
    for _ in range(n_answers):
        responses.append(await ask(model, *messages))
        results = [ToolResult("1", tool_use_id=use.id) for use in responses[-1].content if isinstance(use, ToolUse)]
        messages += [Message("assistant", responses[-1].content), Message("user", (*results, Text("And?")))]
    return responses


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", SERVICES)
async def test_a_conversation_of_tools_and_reasoning_is_one_that_the_server_takes(name: str, streaming: bool) -> None:
    endpoint, service = SERVICES[name]
    looks = answer(reasoning("Hm."), "I look.", call("query", {"sql": "ü"}), call("query", {"sql": ""}))
    async with (
        OpenAiApi([looks, answer("It is 9."), answer("You are welcome.")], service=service) as api,
        CHAT.model(api.url, endpoint=endpoint, streaming=streaming) as model,
    ):
        responses = await conversation(model, 3)
    calls = (ToolUse("call_1_1", "query", '{"sql":"ü"}'), ToolUse("call_1_2", "query", '{"sql":""}'))
    assert responses[0].content == (Thinking("Hm.", None, name), Text("I look."), *calls)
    assert [response.stop_reason for response in responses] == ["tool_use", "end_turn", "end_turn"]
    assert responses[0].usage == Usage(
        requests=1, input_tokens=25, output_tokens=9, cache_read_tokens=0, reasoning_tokens=0, exact=True
    )
    assert (responses[0].id, responses[0].model) == ("chatcmpl-1", "gpt-4.1")
    sent = cast("list[dict[str, Any]]", api.requests[1].body["messages"])
    assert sent[2][endpoint.reasoning.message_field] == "Hm."
    assert api.n_unserved == 0


@pytest.mark.parametrize("streaming", [True, False], ids=["events", "document"])
async def test_a_conversation_of_tools_and_reasoning_is_one_that_the_api_takes(streaming: bool) -> None:
    search = item(type="web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "x"})
    here = text("Here.", annotations=[CITED])
    script = [
        answer(reasoning("Hm."), call("query", {"sql": "ü"}), call("query", '{"sql": ')),
        answer(reasoning("So."), search, reasoning(""), "I look.", here, call("query", {"sql": ""})),
        answer(reasoning(""), "It is 9."),
        answer("You are welcome."),
    ]
    async with OpenAiApi(script) as api, RESPONSES.model(api.url, streaming=streaming) as model:
        responses = await conversation(model, len(script))
    assert [response.stop_reason for response in responses] == ["tool_use", "tool_use", "end_turn", "end_turn"]
    assert [type(block) for block in responses[1].content] == [Thinking, Opaque, Thinking, Text, Text, ToolUse]
    assert responses[3].content == (Text("You are welcome."),)
    assert [request.body["stream"] for request in api.requests] == [streaming] * 4
    assert api.n_unserved == 0


async def test_a_server_that_answers_in_one_piece_although_asked_to_stream_is_read_too() -> None:
    async with OpenAiApi([answer("Hi.")], streaming=False) as api, CHAT.model(api.url) as model:
        response = await ask(model)
    assert (response.content, response.usage.exact) == ((Text("Hi."),), True)


@pytest.mark.parametrize("streaming", [True, False])
async def test_openrouter_tells_what_an_answer_cost(streaming: bool) -> None:
    bills = [Counted(cost=0.0015), Counted(cost=0.0001, upstream_cost=0.002), Counted()]
    more = {"endpoint": OPENROUTER, "streaming": streaming, "price": Price(input=1_000, output=1_000)}
    service = Service(extensions=frozenset({"usage"}))
    async with (
        OpenAiApi([answer("Hi.", usage=bill) for bill in bills], service=service) as api,
        CHAT.model(api.url, **more) as model,
    ):
        costs = [(await ask(model)).usage.cost for _ in bills]
    assert costs == [pytest.approx(0.0015), pytest.approx(0.0021), pytest.approx(34 / 1_000)]
    assert api.requests[0].body["usage"] == {"include": True}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNK = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
ENDED: JsonObject = {"output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
LAST = {
    ANTHROPIC.name: sse(
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ),
    CHAT.name: sse(CHUNK) + b"data: [DONE]\n\n",
    RESPONSES.name: sse(
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.completed", "response": ENDED},
    ),
}


@each(ANTHROPIC, CHAT, RESPONSES)
async def test_a_server_that_says_no_more_after_the_last_event_is_not_waited_for(carrier: Examined) -> None:
    answer = hanging_after(HEAD + b"\r\n" + LAST[carrier.name])
    async with RawServer(answer) as server, carrier.model(server.url) as model:
        assert (await ask(model)).stop_reason == "end_turn"


async def test_a_connection_is_used_again_even_if_the_end_of_an_answer_comes_late() -> None:
    finished = asyncio.Event()
    last = LAST[ANTHROPIC.name]

    async def in_two_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(last), last))
        await finished.wait()
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"]}]}")
        writer.write(http(last))

    async with RawServer(in_two_pieces) as server, ANTHROPIC.model(server.url) as model, opened(model):
        async with model.stream(request()) as parts:
            async for part in parts:
                if isinstance(part, ResponseFinished):
                    finished.set()
        await ask(model)
        assert server.n_connections == 1


TOKEN = {"api_key": None, "auth_token": "token-1"}
BY_HAND = {"version": "2023-06-01", "headers": {"anthropic-beta": "x", "X-Gateway": "y"}}
BEARER = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
BY_KEY = {"x-api-key": KEY, "authorization": None, "anthropic-version": "2026-10-21"}
SENT_BY_HAND = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-gateway": "y"}


@pytest.mark.parametrize(
    ("carrier", "end", "more", "path", "headers"),
    [
        (ANTHROPIC, "", {}, "/v1/messages", {**BY_KEY, "content-type": "application/json"}),
        (ANTHROPIC, "/", TOKEN, "/v1/messages", {"x-api-key": None, "authorization": "Bearer token-1"}),
        (ANTHROPIC, "/v1", BY_HAND, "/v1/messages", SENT_BY_HAND),
        (ANTHROPIC, "/v1/", {}, "/v1/messages", {}),
        (CHAT, "/v1", {"headers": {"X-Title": "journeyman"}}, "/v1/chat/completions", {"x-title": "journeyman"}),
        (CHAT, "/v1", {}, "/v1/chat/completions", BEARER),
        (CHAT, "", {"endpoint": AZURE}, "/openai/v1/chat/completions", {"api-key": KEY, "authorization": None}),
        (RESPONSES, "/v1", {}, "/v1/responses", BEARER),
        (RESPONSES, "/v1/", {"headers": {"OpenAI-Project": "p"}}, "/v1/responses", {**BEARER, "openai-project": "p"}),
        (RESPONSES, "", {"endpoint": AZURE}, "/openai/v1/responses", {"api-key": KEY, "authorization": None}),
    ],
)
async def test_address_key_and_headers_are_as_the_service_wants_them(
    carrier: Examined, end: str, more: dict[str, Any], path: str, headers: dict[str, str | None]
) -> None:
    server = carrier.server([carrier.says.answer("Hi.")])
    async with server as api, carrier.model(api.url, **{"base_url": api.url + end, **more}) as model:
        await ask(model)
    [sent] = api.requests
    assert sent.path == path
    assert {name: sent.headers.get(name) for name in headers} == headers


async def test_a_server_without_keys_is_asked_without_one() -> None:
    server = RawServer(http(b'{"error": "none"}', status=400))
    async with server, CHAT.model(server.url, api_key=None, endpoint=OLLAMA) as model:
        await failure_of(model)
    assert b"authorization" not in server.requests[0].lower()


@pytest.mark.parametrize("adapter", [OpenAIChatModel, OpenAIModel])
def test_a_model_without_an_address_is_not_made(adapter: type[OpenAIChatModel | OpenAIModel]) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        adapter("m", endpoint=AZURE)
    assert "There is no address for the model 'm'." in str(caught.value)


OVERFLOW = "prompt is too long: 205668 tokens > 200000 maximum"
LIMITS = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease one"
SPENT = {"type": "rate_limit_error", "message": "m", "details": {"error_code": "enforced_spend_limit_reached"}}
OPENROUTER_OVERFLOW = "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens"
VLLM_SAYS = "This model's maximum context length is 8192 tokens."
VLLM_OVERFLOW = {"message": VLLM_SAYS, "type": "BadRequestError", "code": 400}
LLAMA_OVERFLOW = {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 4096}


def body(error: object, status: int = 200) -> object:
    return raw(orjson.dumps(error), status=status, headers={"request-id": "req_1"})


Refusal = tuple[str, object, str, int, str | None]
_fault = openai_says.fault
MESSAGES_REFUSALS: Sequence[Refusal] = (
    ("too long", anthropic_says.fault(400, message=OVERFLOW), "context_overflow", 400, "invalid_request_error"),
    ("with max_tokens", anthropic_says.fault(400, message=LIMITS), "context_overflow", 400, "invalid_request_error"),
    ("402", anthropic_says.fault(402), "quota", 402, "billing_error"),
    ("413 with text", anthropic_says.fault(413, message=OVERFLOW), "context_overflow", 413, "request_too_large"),
    ("504", anthropic_says.fault(504), "timeout", 504, "timeout_error"),
    ("a spending limit", body({"type": "error", "error": SPENT}, 429), "quota", 429, "enforced_spend_limit_reached"),
)
LLAMA_LACK = {"code": 500, "message": "image input is not supported - hint: mmproj", "type": "server_error"}
OLLAMA_LACK = "this model is missing data required for image input"
OPENAI_REFUSALS: Sequence[Refusal] = (
    ("too long", _fault(400, code="context_length_exceeded"), "context_overflow", 400, "context_length_exceeded"),
    ("no code", _fault(400, message=OPENROUTER_OVERFLOW), "context_overflow", 400, "invalid_request_error"),
    ("vLLM", body({"error": VLLM_OVERFLOW}, 400), "context_overflow", 400, "BadRequestError"),
    ("llama.cpp", body({"error": LLAMA_OVERFLOW}, 400), "context_overflow", 400, "exceed_context_size_error"),
    ("filtered", _fault(400, code="content_filter"), "content_filtered", 400, "content_filter"),
    ("an invalid prompt", _fault(400, code="invalid_prompt"), "content_filtered", 400, "invalid_prompt"),
    ("402", body({"error": {"message": "No credits", "code": 402}}, 402), "quota", 402, None),
    ("404 with a text", body({"error": "model 'x' not found, try pulling it"}, 404), "not_found", 404, None),
    ("404 of another form", body({"detail": "Not Found"}, 404), "not_found", 404, None),
    ("no credit", _fault(429, code="insufficient_quota", error_type="x"), "quota", 429, "insufficient_quota"),
    ("503", _fault(503), "overloaded", 503, "server_is_overloaded"),
    ("a lack, of llama.cpp", body({"error": LLAMA_LACK}, 500), "bad_request", 500, "server_error"),
    ("a lack, of Ollama", body({"error": OLLAMA_LACK}, 500), "bad_request", 500, None),
    ("another 500", body({"error": {**LLAMA_LACK, "message": "x"}}, 500), "overloaded", 500, "server_error"),
)


@pytest.mark.parametrize(
    ("carrier", "reply", "kind", "status", "type"),
    [
        pytest.param(carrier, *row, id=f"{carrier.name}: {name}")
        for carriers, rows in (((ANTHROPIC, CLIENT), MESSAGES_REFUSALS), ((CHAT, RESPONSES), OPENAI_REFUSALS))
        for carrier in carriers
        for name, *row in rows
    ],
)
async def test_a_refusal_is_mapped_and_costs_nothing(
    carrier: Examined, reply: object, kind: str, status: int, type: str | None
) -> None:  # D40
    async with carrier.server([reply]) as api, carrier.model(api.url) as model:
        error = await failure_of(model)
    assert (error.kind, error.status, error.type, error.usage) == (kind, status, type, Usage())
    assert error.request_id == "req_1"
    assert KEY not in everything_said_by(error)
    assert (error.__cause__, error.__context__) == (None, None)


async def test_what_the_provider_behind_a_gateway_said_is_told() -> None:  # OpenRouter's
    raw = '{"error": {"message": "Use at most 3 images.", "type": "invalid_request_error"}}'
    said = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "Groq"}}
    async with CHAT.server([body({"error": said}, 400)]) as api, CHAT.model(api.url) as model:
        error = await failure_of(model)
    assert error.kind == "bad_request"
    assert "Provider returned error (Groq: Use at most 3 images.)" in str(error)


SEEN = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0, exact=False)
_said = anthropic_says.answer("Hi there.", usage={"input_tokens": 25, "output_tokens": 40})
_pieces, _whole = answer("Hi there.", delta_chars=3), answer("Hi there.", usage=Counted(25, 40))


def _broken(type: str) -> object:
    return anthropic_says.broken_off(_said, after_events=4, error_type=type)


Break = tuple[str, object, str, Usage | None]
BREAKS: dict[tuple[Examined, ...], Sequence[Break]] = {
    (ANTHROPIC, CLIENT): (
        ("ended within an event", cut(_said, after_bytes=700, ending="end"), "stream_cut", SEEN),
        ("closed before anything was counted", cut(_said, after_bytes=30), "stream_cut", None),
        ("an error event about the rate", _broken("rate_limit_error"), "rate_limited", SEEN),
        ("an error event about the request", _broken("invalid_request_error"), "bad_request", SEEN),
        ("empty JSON", raw(b"", headers={"request-id": "req_1"}), "stream_cut", None),
        ("other JSON", body([]), "unknown", None),
    ),
    (CHAT,): (
        ("ended within an event", cut(_pieces, after_bytes=400, ending="end"), "stream_cut", None),
        ("an error", openai_says.broken_off(_pieces, after_events=3, code="rate_limit_exceeded"), "rate_limited", None),
    ),
    (RESPONSES,): (
        ("ended within an event", cut(_whole, after_bytes=2_700, ending="end"), "stream_cut", None),
        ("closed before anything was said", cut(_whole, after_bytes=30), "stream_cut", None),
        ("an error", openai_says.broken_off(_whole, after_events=4, code="rate_limit_exceeded"), "rate_limited", None),
    ),
}


@pytest.mark.parametrize(
    ("carrier", "reply", "kind", "usage"),
    [
        pytest.param(carrier, *row, id=f"{carrier.name}: {name}")
        for carriers, rows in BREAKS.items()
        for carrier in carriers
        for name, *row in rows
    ],
)
async def test_an_answer_that_breaks_off_keeps_the_use_it_reported(
    carrier: Examined, reply: object, kind: str, usage: Usage | None
) -> None:
    collector = Collector()
    async with carrier.server([reply], judging=False) as api, carrier.model(api.url) as model:
        error = await failure_of(model, collector)
    assert (error.kind, error.usage, error.status, error.request_id) == (kind, usage, 200, "req_1")
    assert collector.sum_usage() == (usage or Usage(requests=1, exact=False))
    assert KEY not in everything_said_by(error)
    assert (error.__cause__, error.__context__) == (None, None)


async def test_an_answer_that_breaks_off_after_its_usage_keeps_it() -> None:
    usage = {"prompt_tokens": 25, "completion_tokens": 2}
    first = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}}], "usage": usage}
    async with RawServer(http(sse(first))) as server, CHAT.model(server.url) as model:
        error = await failure_of(model)
    seen = Usage(requests=1, input_tokens=25, output_tokens=2, exact=False)
    assert (error.kind, error.usage) == ("stream_cut", seen)


# What a body holds is in `tests/contracts/bodies` and in the files about encoding; here the SDK sends it on.

THOUGHT = '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"c2ln"}'
ASKED = ToolUse("call_1", "query", '{"sql": "ü", "n": 1.5}')
ANSWERED = Message("user", (ToolResult("9", tool_use_id="call_1"), Text("And?")))
SAID: dict[str, tuple[Block, ...]] = {
    ANTHROPIC.name: (Thinking("Hm.", "c2ln"), Text("I look."), ASKED),
    CHAT.name: (Text("I look."), ASKED),
    RESPONSES.name: (Thinking("", f"{THOUGHT}\nfunction_call fc_1", "openai"), ASKED),
}


async def by_the_sdk(carrier: Examined, url: str, **body: Any) -> Any:  # noqa: ANN401 - a body of any API
    """Return what the official SDK makes of an answer, having sent this body."""
    if carrier is ANTHROPIC:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as client:
            return cast("object", await cast("Any", client.messages).create(**body))
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1") as client:
        api = client.chat.completions if carrier is CHAT else client.responses
        made: Any = await cast("Any", api).create(**body)
        return [event async for event in made] if body.get("stream") else made


@each(ANTHROPIC, CHAT, RESPONSES)
async def test_the_official_sdk_sends_the_same_request(carrier: Examined) -> None:
    async with carrier.server([carrier.says.answer("Hi.")] * 2) as api:
        asked = request(HELLO, Message("assistant", SAID[carrier.name]), ANSWERED)
        async with carrier.model(api.url) as model, model.stream(asked) as parts:
            await collect(parts)
        await by_the_sdk(carrier, api.url, **api.requests[0].body)
    ours, theirs = api.requests
    assert (ours.body, ours.path) == (theirs.body, theirs.path)
    for name in ("content-type", "anthropic-version" if carrier is ANTHROPIC else "authorization"):
        assert ours.headers[name] == theirs.headers[name]


PLAIN_QUESTION = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(anthropic_says.answer("Grüße 😀"), id="text"),
        pytest.param(
            anthropic_says.answer(
                anthropic_says.thinking("Hm."),
                anthropic_says.redacted_thinking(),
                "I look.",
                anthropic_says.server_tool_use("web_search", {"query": "ü"}, id="srvtoolu_1"),
                anthropic_says.web_search_tool_result("srvtoolu_1", "A"),
                anthropic_says.tool_use("query", DEEP, id="toolu_1"),
                anthropic_says.tool_use("query", {}, id="toolu_2"),
                usage={"cache_read_input_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
            ),
            id="blocks",
        ),
        pytest.param(anthropic_says.answer("Cut", stop_reason="max_tokens"), id="a limit"),
        pytest.param(anthropic_says.answer("A", stop_reason="stop_sequence", stop_sequence="END"), id="a sequence"),
        pytest.param(anthropic_says.refusal("No.", category="bio"), id="a refusal"),
    ],
)
async def test_the_official_sdk_reads_the_same_message(reply: object) -> None:
    async with ANTHROPIC.server([reply] * 2) as api, ANTHROPIC.model(api.url) as model:
        ours = await ask(model)
        asked = {"model": "claude-sonnet-5-5", "max_tokens": 1_000, "messages": PLAIN_QUESTION}
        async with (
            anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url) as client,
            client.messages.stream(**cast("Any", asked)) as stream,
        ):
            theirs = cast("dict[str, Any]", (await stream.get_final_message()).to_dict(mode="json"))
    sent = [sent_back(AnthropicModel("m"), block)["messages"][1]["content"][0] for block in ours.content]
    assert sent == theirs["content"]
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


def sent_back(model: AnthropicModel | OpenAIModel, *blocks: Block) -> dict[str, Any]:
    """Return the request in which an encoder sends blocks back."""
    return orjson.loads(model.body(request(HELLO, Message("assistant", (*blocks, Text("x"))), HELLO, cache="off")))


CALLS = (call("query", DEEP, id="call_1"), call("query", {}, id="call_2"))
FEW = Counted(cached=7, reasoning=3)
SEARCH = item(type="web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "ü"})


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("Grüße 😀"), id="text"),
        pytest.param(answer("I look.", *CALLS, usage=FEW), id="calls"),
        pytest.param(answer("Cut", ending="length"), id="a limit"),
        pytest.param(answer("Hm", ending="content_filter"), id="filtered"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_official_sdk_reads_the_same_completion(reply: openai_says.Answer, streaming: bool) -> None:
    async with OpenAiApi(lambda _: reply) as api, CHAT.model(api.url, streaming=streaming) as model:
        ours = await ask(model)
        completion = await by_the_sdk(CHAT, api.url, model="gpt-4.1", messages=PLAIN_QUESTION)
    theirs = completion.to_dict(mode="json")
    [choice] = theirs["choices"]
    said = choice["message"]
    assert "".join(block.text for block in ours.content if isinstance(block, Text)) == said["content"]
    calls = [(use.id, use.name, use.input_json) for use in ours.content if isinstance(use, ToolUse)]
    told = [(use["id"], use["function"]) for use in said.get("tool_calls", [])]
    assert calls == [(id, function["name"], function["arguments"]) for id, function in told]
    stops = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    assert ours.stop_reason == stops[choice["finish_reason"]]
    counted = theirs["usage"]
    cached = counted["prompt_tokens_details"]["cached_tokens"]
    assert ours.usage == Usage(
        requests=1,
        input_tokens=counted["prompt_tokens"] - cached,
        output_tokens=counted["completion_tokens"],
        cache_read_tokens=cached,
        reasoning_tokens=counted["completion_tokens_details"]["reasoning_tokens"],
    )


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("Grüße 😀"), id="text"),
        pytest.param(answer(reasoning("Hm."), SEARCH, text("I.", annotations=[CITED]), *CALLS, usage=FEW), id="items"),
        pytest.param(answer("Cut", ending="length"), id="a limit"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_official_sdk_reads_the_same_response(reply: openai_says.Answer, streaming: bool) -> None:
    asked = {"model": "m", "input": "Hello", "store": False, "include": ["reasoning.encrypted_content"]}
    async with OpenAiApi(lambda _: reply) as api, RESPONSES.model(api.url, streaming=streaming) as model:
        ours = await ask(model)
        last = (await by_the_sdk(RESPONSES, api.url, **asked, stream=True))[-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    theirs = cast("dict[str, Any]", last.response.to_dict(mode="json"))
    sent = sent_back(OpenAIModel("gpt-5.2"), *ours.content)["input"][1:-2]
    assert [meaning_of(mine) for mine in sent] == [meaning_of(other) for other in theirs["output"]]
    counted = theirs["usage"]
    assert ours.usage.total_tokens == counted["total_tokens"]
    assert ours.usage.cache_read_tokens == counted["input_tokens_details"]["cached_tokens"]
    assert ours.usage.reasoning_tokens == counted["output_tokens_details"]["reasoning_tokens"]


def meaning_of(item: dict[str, Any]) -> object:
    """Return what an item says, in whichever of its forms; the ids are those of different requests."""
    content = item.get("content")
    if item["type"] == "message":
        parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else [{"text": content}]
        return "message", [(part["text"], part.get("annotations", [])) for part in parts]
    left_out = ("id", "status", "content") if item["type"] != "web_search_call" else ()
    return {key: value for key, value in item.items() if key not in left_out}

"""Services that send to stall the program or to fill its memory: what they send is bounded."""

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TypeAlias

import orjson
import pytest

from journeyman import Agent, Model, ModelSettings, run
from journeyman.connect import connect
from journeyman.endings import UnusableAnswerContext
from journeyman.errors import ProviderError, UnusableAnswer
from journeyman.model import (
    LEAST_TEXT_CHARS,
    MAX_BLOCKS,
    MAX_OTHER_CHARS,
    TEXT_CHARS_PER_TOKEN,
    BlockFinished,
    Collector,
    Part,
    Response,
    ResponseFinished,
    ResponseStarted,
    TextPart,
    UsageSeen,
)
from journeyman.models.anthropic.decode import AnthropicDecoder as ByMessages
from journeyman.models.decoding import Decoder
from journeyman.models.google.decode import GoogleDecoder as ByGemini
from journeyman.models.openai.chat_decode import ChatDecoder as ByChat
from journeyman.models.openai.responses_decode import ResponsesDecoder as ByResponses
from journeyman.types import Opaque, Text, Thinking, ToolUse, Usage
from tests.models.asking import Json, ask
from tests.models.raw_server import RawServer, http
from tests.play import existing, failed
from tests.support.stopwatch import STALL_S, longest_stall

PIECE = "x" * 20_000
Sent: TypeAlias = Iterable[Json]


def messages(block: Json, delta: Json, *, usage: Json | None = None) -> Iterator[Json]:
    yield {"type": "message_start", "message": {"id": "m", "model": "m", "usage": usage or {}}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield from repeat({"type": "content_block_delta", "index": 0, "delta": delta}, 2_000)


def many_messages() -> Iterator[Json]:
    yield {"type": "message_start", "message": {"id": "m", "model": "m"}}
    for index in range(1_500):
        yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": "a"}}


def chat(**delta: object) -> Iterator[Json]:
    yield from repeat({"id": "c", "choices": [{"index": 0, "delta": delta}]}, 2_000)


def many_calls() -> Iterator[Json]:
    for index in range(1_500):
        call = {"index": index, "id": f"c{index}", "function": {"name": "query", "arguments": "{}"}}
        yield {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


def responses(kind: str, item: Json) -> Iterator[Json]:
    yield {"type": "response.created", "response": {"id": "r"}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield from repeat({"type": f"response.{kind}.delta", "output_index": 0, "delta": PIECE}, 2_000)


def items(item: Json, n: int = 2_000) -> Iterator[Json]:
    yield {"type": "response.created", "response": {"id": "r"}}
    for index in range(n):
        yield {"type": "response.output_item.done", "output_index": index, "item": {**item, "id": f"i{index}"}}


def gemini(*parts: Json, n: int = 2_000) -> Iterator[Json]:
    yield from repeat({"candidates": [{"content": {"parts": [*parts]}}]}, n)


GEMINI_PARTS: dict[str, Json] = {
    "text": {"text": PIECE},
    "thoughts": {"text": PIECE, "thought": True},
    "arguments": {"functionCall": {"name": "query", "args": {"x": PIECE}}},
    "calls": {"functionCall": {"name": "query"}},
    "of a kind that is not known": {"strange": {"data": PIECE}},
    "signatures": {"text": "", "thoughtSignature": PIECE},
}
CALL: Json = {"type": "tool_use", "id": "t", "name": "query"}
STRANGE: Json = {"type": "strange", "data": ""}
CALLED = [{"index": 0, "function": {"name": "query", "arguments": PIECE}}]
CITED: Json = {"type": "citations_delta", "citation": {"cited_text": PIECE}}
DECODERS: dict[str, Callable[..., Decoder]] = {
    "messages": ByMessages,
    "chat": partial(ByChat, "x"),
    "responses": partial(ByResponses, "x"),
    "gemini": partial(ByGemini, "google:m"),
}
ENDLESS: dict[str, dict[str, Callable[[], Sent]]] = {
    "messages": {
        "text": lambda: messages({"type": "text"}, {"type": "text_delta", "text": PIECE}),
        "thinking": lambda: messages({"type": "thinking"}, {"type": "thinking_delta", "thinking": PIECE}),
        "arguments": lambda: messages(CALL, {"type": "input_json_delta", "partial_json": PIECE}),
        "of a kind that is not known": lambda: messages(STRANGE, {"type": "data_delta", "data": PIECE}),
        "citations": lambda: messages({"type": "text"}, CITED),
        "blocks": many_messages,
    },
    "chat": {
        "text": lambda: chat(content=PIECE),
        "reasoning": lambda: chat(reasoning=PIECE),
        "refusal": lambda: chat(refusal=PIECE),
        "arguments": lambda: chat(tool_calls=CALLED),
        "details": lambda: chat(reasoning_details=[{"type": "reasoning.text", "text": PIECE}]),
        "annotations": lambda: chat(annotations=[{"url": PIECE}]),
        "calls": many_calls,
    },
    "responses": {
        "text": lambda: responses("output_text", {"type": "message", "id": "i"}),
        "arguments": lambda: responses("function_call_arguments", {**CALL, "type": "function_call"}),
        "items": lambda: items({"type": "strange", "data": PIECE}),
        "small items": lambda: items({"type": "reasoning"}),
    },
    "gemini": {name: partial(gemini, part) for name, part in GEMINI_PARTS.items()},
}
WAYS = [(api, name) for api, sent in ENDLESS.items() for name in sent]
UNSEEN = {("responses", "text"), ("responses", "arguments")}
"""Nothing is kept of pieces that nobody wants to see."""


def read(decoder: Decoder, sent: Sent) -> Response:
    collector = Collector()
    for event in sent:
        for part in decoder.parts([(b"message", orjson.dumps(event))]):
            collector.add(part)
    return collector.response()


@pytest.mark.parametrize(
    ("api", "name", "deltas"),
    [(*each, deltas) for each in WAYS for deltas in (True, False) if deltas or each not in UNSEEN],
)
def test_an_answer_without_end_is_given_up_before_it_fills_the_memory(api: str, name: str, deltas: bool) -> None:
    with pytest.raises(UnusableAnswer, match=r"^The answer was not accepted: it has more than [\d,]+ ") as caught:
        read(DECODERS[api](deltas=deltas), ENDLESS[api][name]())
    assert caught.value.limit in (LEAST_TEXT_CHARS, MAX_OTHER_CHARS, MAX_BLOCKS, 300)


def collected(parts: Iterable[Part], max_tokens: int | None = None) -> Response:
    collector = Collector(max_tokens)
    for part in parts:
        collector.add(part)
    return collector.response()


LONG = "x" * (LEAST_TEXT_CHARS // 2)
DONE = ResponseFinished("end_turn")


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        (repeat(TextPart(LONG), 3), LEAST_TEXT_CHARS),
        (repeat(BlockFinished(Text(LONG)), 3), LEAST_TEXT_CHARS),
        (repeat(BlockFinished(Thinking(LONG)), 3), LEAST_TEXT_CHARS),
        (repeat(BlockFinished(ToolUse("t", "query", malformed=LONG)), 3), LEAST_TEXT_CHARS),
        (repeat(BlockFinished(Opaque("x", LONG)), 65), MAX_OTHER_CHARS),
        (repeat(BlockFinished(Text("x")), MAX_BLOCKS + 1), MAX_BLOCKS),
    ],
)
def test_any_model_is_held_to_what_an_answer_may_hold(parts: Iterable[Part], limit: int) -> None:
    with pytest.raises(UnusableAnswer) as caught:
        collected([*parts, DONE])
    assert caught.value.limit == limit


def test_a_long_answer_that_was_asked_for_is_taken() -> None:
    n_chars = 3 * LEAST_TEXT_CHARS
    parts: list[Part] = [*repeat(TextPart(LONG), 6), BlockFinished(Text(LONG * 6)), DONE]
    assert len(collected(parts, n_chars // TEXT_CHARS_PER_TOKEN).content) == 1
    with pytest.raises(UnusableAnswer):
        collected(parts, n_chars // TEXT_CHARS_PER_TOKEN - 1)


@pytest.mark.parametrize("n", range(6))
def test_a_negative_use_is_refused(n: int) -> None:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost")
    usage = Usage(requests=1, **{names[n]: -1})  # pyright: ignore[reportArgumentType]  # one of them is a float
    for part in (UsageSeen(usage), ResponseStarted("m", "i", usage), ResponseFinished("end_turn", usage=usage)):
        collector = Collector()
        with pytest.raises(UnusableAnswer, match="reports a negative use"):
            collector.add(part)
        assert min(collector.sum_usage().total_tokens, collector.sum_usage().cost or 0) >= 0


def model_at(url: str) -> Model:
    return connect("anthropic:claude-sonnet-5-5", api_key="key", base_url=url)


def stream_of(sent: Sent) -> bytes:
    return b"".join([b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in sent])


NEGATIVE = [
    {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": -1_000_000}}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    ("sent", "reason", "limit"),
    [
        (lambda: messages({"type": "text"}, {"type": "text_delta", "text": PIECE}), "1,048,576 characters", 1_048_576),
        (lambda: NEGATIVE, "a negative use", None),
    ],
)
async def test_a_run_says_why_an_answer_was_not_taken(sent: Callable[[], Sent], reason: str, limit: int | None) -> None:
    async with RawServer(http(stream_of(sent()))) as server:
        agent = Agent(name="a", model=model_at(server.url), settings=ModelSettings(max_tokens=1_000))
        result = failed(await run(agent, "Hello"))
    assert isinstance(result.error.context, UnusableAnswerContext)
    assert (result.error.code, result.error.context.limit) == ("INVALID_RESPONSE", limit)
    assert reason in result.error.message
    assert existing(result.metadata.usage).total_tokens >= 0
    assert len(server.requests) == 1  # it is not asked for again


async def test_a_packed_answer_that_nobody_asked_for_is_refused_unread() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    for status, said in ((200, "packed its answer (gzip), which it was asked not to"), (500, "answered 500")):
        answer = http(bomb, status=status, content_type="application/json", headers={"Content-Encoding": "gzip"})
        async with RawServer(answer) as server:
            with pytest.raises(ProviderError, match=r"127\.0\.0\.1") as caught:
                await ask(model_at(server.url))
            assert said in str(caught.value)
            assert b"Accept-Encoding: identity" in server.requests[0]


START = stream_of([{"type": "message_start", "message": {"id": "m", "model": "m"}}])
FLOODS = {
    "comments": b":\n\n" * 500_000,
    "comments that look like events": (b": " + b"event: " * 9_000 + b"\n\n") * 24,
    "lines without an end": b"\n:aaaaaa" * 200_000,
    "very small events": b"data: {}\n\n" * 150_000,
    "one event of very many values": b'data: {"a": [' + b"1," * 8_000_000 + b"1]}\n\n",
    "one event of very many lists": b'data: {"a": [' + b"[]," * 5_000_000 + b"1]}\n\n",
    "one event of a long text": b'data: {"a": "' + b"a" * 8_000_000 + b'"}\n\n',
    "one event of many lines": b"data: 1\n" * 200_000 + b"\n\n",
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_leaves_others_their_turn(flood: bytes) -> None:
    async with RawServer(http(START + flood)) as server:
        model = model_at(server.url)

        async def flooded() -> None:
            with suppress(ProviderError):
                await ask(model)

        await flooded()
        assert await longest_stall(flooded) < STALL_S

"""Answers of the Messages API as parts, from events and from whole documents."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from journeyman.model import BlockFinished, InputPart, ResponseFinished, ResponseStarted, TextPart, ThinkingPart
from journeyman.models.anthropic.decode import AnthropicDecoder
from journeyman.models.sse import Parser
from journeyman.types import Block, Opaque, RedactedThinking, Text, Thinking, ToolUse, Usage
from tests.models.decoding import Json, Part, Response, UsageSeen, fed, summed
from tests.support import messages_answers as says
from tests.support.messages_sse import body_parts


def start(usage: Json | None = None, **more: Any) -> Json:
    counted = {"input_tokens": 25, "output_tokens": 1} if usage is None else usage
    return {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": counted, **more}}


def block(index: int, first: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": first},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_delta(text: str) -> Json:
    return {"type": "text_delta", "text": text}


def stop(reason: str | None = "end_turn", usage: Json | None = None, **delta: object) -> list[Json]:
    counted = {"output_tokens": 9} if usage is None else usage
    last = {"type": "message_delta", "delta": {"stop_reason": reason, **delta}, "usage": counted}
    return [last, {"type": "message_stop"}]


def decoded(events: Iterable[Json | bytes], decoder: AnthropicDecoder | None = None) -> list[Part]:
    return fed(decoder or AnthropicDecoder(), events)


def content_of(*events: Json) -> tuple[Block, ...]:
    return summed(decoded([start(), *events, *stop()])).content


def stream_of(reply: says.Answer) -> bytes:
    return b"".join(body_parts(reply, stream=True, model="claude-x", seed=1, serial=1))


def streamed(reply: says.Answer) -> Response:
    return summed(decoded(data for _, data in Parser(1_000_000).feed(stream_of(reply))))


def test_an_answer_becomes_parts_in_order() -> None:
    events = [
        start({"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 3}),
        {"type": "ping"},
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hm."}),
        *block(1, {"type": "text", "text": ""}, text_delta("Hel"), text_delta("lo")),
        {"type": "new_event", "index": 7},
        *block(
            2,
            {"type": "tool_use", "id": "toolu_1", "name": "query", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"sql":'},
            {"type": "input_json_delta", "partial_json": ' "x"}'},
        ),
        *stop("tool_use"),
    ]
    used = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=3)
    assert decoded(events) == [
        ResponseStarted("claude-x", "msg_1", used),
        ThinkingPart("Hm."),
        BlockFinished(Thinking("Hm.", None, "anthropic")),
        TextPart("Hel"),
        TextPart("lo"),
        BlockFinished(Text("Hello")),
        InputPart("toolu_1", "query", '{"sql":'),
        InputPart("toolu_1", "query", ' "x"}'),
        BlockFinished(ToolUse("toolu_1", "query", '{"sql": "x"}')),
        UsageSeen(Usage(requests=1, input_tokens=25, output_tokens=9, cache_read_tokens=3)),
        ResponseFinished("tool_use"),
    ]


EVERYTHING = says.answer(
    says.thinking("Hm, let me see."),
    says.redacted_thinking("x9=="),
    says.text("I look. Grüße 😀"),
    says.server_tool_use("web_search", {"query": "may"}, id="srvtoolu_1"),
    says.web_search_tool_result("srvtoolu_1", "First", "Second"),
    {"type": "text", "text": "So it is.", "citations": [{"type": "char_location", "cited_text": "it"}]},
    says.tool_use("query", {"sql": 'select "ü😀"', "deep": {"list": [1, 2.5, None]}}),
    says.tool_use("ping", {}),
)


def test_every_kind_of_block_is_read_whole() -> None:  # A41
    content = streamed(EVERYTHING).content
    searched = orjson.loads(content[3].json) if isinstance(content[3], Opaque) else None
    results = orjson.loads(content[4].json) if isinstance(content[4], Opaque) else None
    calls = [block for block in content if isinstance(block, ToolUse)]
    assert isinstance(content[0], Thinking)
    assert (content[0].text, bool(content[0].signature)) == ("Hm, let me see.", True)
    assert content[1] == RedactedThinking("x9==", "anthropic")
    assert content[2] == Text("I look. Grüße 😀")
    assert searched == says.server_tool_use("web_search", {"query": "may"}, id="srvtoolu_1")
    assert results == says.web_search_tool_result("srvtoolu_1", "First", "Second")
    assert content[5] == Text("So it is.", extra={"citations": [{"type": "char_location", "cited_text": "it"}]})
    assert [(call.id, call.name, call.input) for call in calls] == [
        ("toolu_1_1", "query", {"sql": 'select "ü😀"', "deep": {"list": [1, 2.5, None]}}),
        ("toolu_1_2", "ping", {}),
    ]


@pytest.mark.parametrize("empty", [{"type": "text", "text": ""}, {"type": "thinking", "thinking": "", "signature": ""}])
def test_an_empty_block_is_dropped(empty: Json) -> None:
    assert content_of(*block(0, empty)) == ()


def test_thinking_without_text_keeps_its_signature() -> None:
    signed = block(0, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "sig"})
    assert content_of(*signed) == (Thinking("", "sig", "anthropic"),)


def test_what_a_block_brings_along_is_kept() -> None:
    assert content_of(
        *block(0, {"type": "text", "text": "Hi", "citations": None, "mood": "good"}),
        *block(1, {"type": "thinking", "thinking": "Hm", "signature": "sig"}),
        *block(2, {"type": "tool_use", "id": "t", "name": "query", "input": {"sql": 1}}),
    ) == (Text("Hi", extra={"mood": "good"}), Thinking("Hm", "sig", "anthropic"), ToolUse("t", "query", '{"sql":1}'))


def test_deltas_of_a_block_that_is_not_known_are_applied() -> None:
    [kept] = content_of(
        *block(
            0,
            {"type": "compaction", "content": None, "input": {}},
            {"type": "compaction_delta", "content": "The story "},
            {"type": "compaction_delta", "content": "so far."},
            {"type": "input_json_delta", "partial_json": '{"n":'},
            {"type": "input_json_delta", "partial_json": "1.0}"},
        )
    )
    assert isinstance(kept, Opaque)
    assert (kept.provider, kept.kind) == ("anthropic", "compaction")
    assert kept.json == '{"type":"compaction","content":"The story so far.","input":{"n":1.0}}'


def test_blocks_that_were_not_stopped_are_finished_with_the_message() -> None:
    events = [start(), *block(0, {"type": "text", "text": "Hi"})[:-1], *stop()]
    assert summed(decoded(events)).content == (Text("Hi"),)


def test_a_refusal_keeps_what_was_said_before() -> None:
    response = streamed(says.refusal("Well,", category="cyber", explanation="No."))
    assert (response.content, response.stop_reason, response.stop_detail) == ((Text("Well,"),), "refusal", "cyber")


TEXT = block(0, {"type": "text", "text": ""}, text_delta("Hi"))

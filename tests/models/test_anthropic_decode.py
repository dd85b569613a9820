"""Answers of the Messages API as parts, from events and from whole documents."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pytest

from journeyman.errors import ProviderError
from journeyman.model import BlockFinished, InputPart, ResponseFinished, ResponseStarted, TextPart, ThinkingPart
from journeyman.models.anthropic.decode import Decoder
from journeyman.models.sse import Parser
from journeyman.types import Block, Opaque, Price, RedactedThinking, Text, Thinking, ToolUse, Usage
from tests.models.decoding import Json, Part, Response, UsageSeen, failed, fed, summed
from tests.support import messages_answers as says
from tests.support.messages_sse import body_parts


def start(usage: Json | None = None, **more: Any) -> Json:  # noqa: ANN401 - JSON
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


def decoded(events: Iterable[Json | bytes], decoder: Decoder | None = None) -> list[Part]:
    return fed(decoder or Decoder(), events)


def content_of(*events: Json) -> tuple[Block, ...]:
    return summed(decoded([start(), *events, *stop()])).content


def usage_of(first: Json, last: Json, price: Price | None = None) -> Usage:
    return summed(decoded([start(first), *stop(usage=last)], Decoder(price))).usage


def stream_of(reply: says.Answer) -> bytes:
    return b"".join(body_parts(reply, stream=True, model="claude-x", seed=1, serial=1))


def streamed(reply: says.Answer) -> Response:
    return summed(decoded(data for _, data in Parser(1_000_000).feed(stream_of(reply))))


# -- the parts of an answer --------------------------------------------------------------------------------------------


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


def test_pieces_that_nobody_looks_at_are_left_out() -> None:
    events = [
        start(),
        *block(0, {"type": "text", "text": "H"}, text_delta("i")),
        *block(1, {"type": "tool_use", "id": "t", "name": "n"}, {"type": "input_json_delta", "partial_json": "{}"}),
        *stop(),
    ]
    kinds = [type(part) for part in decoded(events, Decoder(deltas=False))]
    assert kinds == [ResponseStarted, BlockFinished, BlockFinished, UsageSeen, ResponseFinished]
    assert summed(decoded(events, Decoder(deltas=False))) == summed(decoded(events))


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


def as_value(block: Block) -> object:
    """Return what the block means, so that white space in its JSON does not matter."""
    match block:
        case ToolUse():
            return (block.id, block.name, block.input)
        case Opaque():
            return orjson.loads(block.json)
        case _:
            return block


def test_an_answer_in_one_piece_means_the_same_as_a_stream() -> None:
    [document] = body_parts(EVERYTHING, stream=False, model="claude-x", seed=1, serial=1)
    response, expected = summed(Decoder().document(document)), streamed(EVERYTHING)
    assert [as_value(block) for block in response.content] == [as_value(block) for block in expected.content]
    assert (response.stop_reason, response.usage, response.model, response.id) == (
        expected.stop_reason,
        expected.usage,
        expected.model,
        expected.id,
    )


# -- blocks ------------------------------------------------------------------------------------------------------------


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


# -- stop reasons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "delta", "expected"),
    [
        ("end_turn", {}, ResponseFinished("end_turn")),
        ("tool_use", {}, ResponseFinished("tool_use")),  # D6: no answer, since it has no call
        ("max_tokens", {}, ResponseFinished("max_tokens")),
        ("pause_turn", {}, ResponseFinished("pause_turn")),
        ("model_context_window_exceeded", {}, ResponseFinished("context_window")),
        ("stop_sequence", {"stop_sequence": "END"}, ResponseFinished("stop_sequence", "END")),
        ("refusal", {"stop_details": {"type": "refusal", "category": "bio"}}, ResponseFinished("refusal", "bio")),
        ("refusal", {"stop_details": {"type": "refusal", "category": None}}, ResponseFinished("refusal")),
        ("refusal", {"stop_details": None}, ResponseFinished("refusal")),
        ("brand_new", {}, ResponseFinished("other", "brand_new")),
        (None, {}, ResponseFinished("other")),
    ],
)
def test_a_stop_reason_is_translated(reason: str | None, delta: Json, expected: ResponseFinished) -> None:  # M7, A30
    assert decoded([start(), *stop(reason, **delta)])[-1] == expected


def test_a_refusal_keeps_what_was_said_before() -> None:
    response = streamed(says.refusal("Well,", category="cyber", explanation="No."))
    assert (response.content, response.stop_reason, response.stop_detail) == ((Text("Well,"),), "refusal", "cyber")


# -- usage -------------------------------------------------------------------------------------------------------------


def test_counts_are_totals_and_those_left_out_stand() -> None:
    usage = usage_of(
        {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2},
        {"output_tokens": 90, "input_tokens": 30, "output_tokens_details": {"thinking_tokens": 40}},
    )
    assert usage == Usage(
        requests=1, input_tokens=30, output_tokens=90, cache_read_tokens=7, cache_write_tokens=2, reasoning_tokens=40
    )


def test_what_was_never_reported_is_unknown_and_not_zero() -> None:  # X20
    usage = usage_of({"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": None}, {"output_tokens": 9})
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (None, None, None)
    assert usage.exact
    assert usage_of({"cache_read_input_tokens": 0, "output_tokens": 1}, {}).cache_read_tokens == 0
    assert not usage_of({}, {"output_tokens": 9}).exact
    assert not usage_of({"input_tokens": 25, "output_tokens": 1}, {}).exact
    assert not usage_of({}, {}).exact


def test_a_price_gives_the_cost() -> None:
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    first = {"input_tokens": 1_000_000, "output_tokens": 1, "cache_read_input_tokens": 1_000_000}
    assert usage_of(first, {"output_tokens": 1_000_000}, price).cost == pytest.approx(18.3)
    assert usage_of(first, {"output_tokens": 1_000_000}).cost is None


# -- failures ----------------------------------------------------------------------------------------------------------


def failure_of(events: Sequence[Json | bytes], decoder: Decoder | None = None) -> ProviderError:
    return failed(decoder or Decoder(), events)


TEXT = block(0, {"type": "text", "text": ""}, text_delta("Hi"))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param([], "it is empty", id="nothing"),
        pytest.param([start(), *TEXT], "ended before it was complete", id="no stop reason"),
        pytest.param([start(), *TEXT[:2], stop()[0]], "ended before it was complete", id="an open block"),
        pytest.param([start(), b'{"type": "content_bl'], "cannot be read", id="cut JSON"),
        pytest.param([start(), b'{"type": "\xff"}'], "cannot be read", id="invalid UTF-8"),
        pytest.param([start(), TEXT[1]], "block 0 goes on without having begun", id="a delta without its block"),
        pytest.param([start(), {**TEXT[1], "index": {"a": 1}}], "goes on without", id="a delta of no block"),
        pytest.param(TEXT, "it has no beginning", id="a block without its message"),
        pytest.param(stop()[1:], "it has no beginning", id="an end without its message"),
    ],
)
def test_an_answer_that_is_not_whole_is_a_cut_stream(events: list[Json | bytes], said: str) -> None:
    error = failure_of(events)
    assert error.kind == "stream_cut"
    assert said in str(error)


def test_an_answer_whose_stop_reason_has_come_is_complete_without_its_last_event() -> None:
    assert decoded([start(), *TEXT, stop()[0]])[-1] == ResponseFinished("end_turn")


@pytest.mark.parametrize(
    "event", [b"[]", b"3", b'{"type": 3}', b"{}", b'{"type": "message_delta", "delta": 3, "usage": []}']
)
def test_events_of_other_forms_are_ignored(event: bytes) -> None:
    assert summed(decoded([start(), event, *TEXT, *stop()])).content == (Text("Hi"),)


@pytest.mark.parametrize(
    ("type", "code", "kind"),
    [
        ("overloaded_error", None, "overloaded"),
        ("api_error", None, "overloaded"),
        ("rate_limit_error", None, "rate_limited"),
        ("rate_limit_error", "enforced_spend_limit_reached", "quota"),
        ("rate_limit_error", "ramp_limit_exceeded", "rate_limited"),
        ("authentication_error", None, "auth"),
        ("permission_error", None, "auth"),
        ("billing_error", None, "quota"),
        ("not_found_error", None, "not_found"),
        ("timeout_error", None, "timeout"),
        ("invalid_request_error", None, "bad_request"),
        ("request_too_large", None, "context_overflow"),
        ("brand_new_error", None, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_an_error_within_an_answer_has_its_kind(type: str | None, code: str | None, kind: str) -> None:
    details = {"details": {"error_code": code}} if code else {}
    event = {"type": "error", "error": {"type": type, "message": "Sorry.", **details}, "request_id": "req_7"}
    decoder = Decoder()
    error = failure_of([start(), *TEXT, event], decoder)
    assert (error.kind, error.type, error.request_id) == (kind, code or type, "req_7")
    assert "Sorry." in str(error)
    assert decoder.usage() == Usage(requests=1, input_tokens=25, output_tokens=1)

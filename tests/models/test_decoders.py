"""One exam of the decoders, wire by property: however an API says it, an answer, its end and its faults mean the same.

What only one API has is in the file of its decoder, which also says how the events of this exam are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.errors import ProviderError
from journeyman.model import BlockFinished, InputPart, Part, ResponseFinished, ResponseStarted, TextPart, ThinkingPart
from journeyman.models.anthropic import decode as anthropic
from journeyman.models.google import decode as google
from journeyman.models.openai import chat_decode as chat
from journeyman.models.openai import responses_decode as responses
from journeyman.models.sse import Parser
from journeyman.types import Block, Opaque, Price, Text, ToolUse, Usage
from tests.models import test_anthropic_decode as by_anthropic
from tests.models import test_google_decode as by_google
from tests.models import test_openai_chat_decode as by_chat
from tests.models import test_openai_responses_decode as by_responses
from tests.models.decoding import Json, UsageSeen, failed, fed, summed
from tests.support import gemini_answers, openai_answers
from tests.support.messages_sse import body_parts
from tests.support.openai_sse import chat_parts, responses_parts

Events = Sequence["Json | bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How one API says what all of them say."""

    new: Callable[..., Any]
    """Makes its decoder."""
    begin: Events
    text: Events
    """One text, `Hi`."""
    end: Events
    seen: Usage | None
    """What the beginning and the text report as used."""
    bodies: Callable[[bool], list[bytes]]
    """Returns an answer with blocks of every kind, as a stream if that is asked for."""

    def usage(self, *events: Json, price: Price | None = None) -> Usage:
        return summed(fed(self.new(price=price), events)).usage

    def read(self, *, stream: bool, **options: Any) -> list[Part]:
        data = b"".join(self.bodies(stream))
        if not stream:
            return self.new(**options).document(data)
        return fed(self.new(**options), [event for _, event in Parser(1_000_000).feed(data)])


_SAID: Final = openai_answers.answer(
    openai_answers.reasoning("Hm."), "Grüße 😀", openai_answers.call("query", {"sql": 'select "ü😀"'}, id="a")
)
_PARTS: Final = gemini_answers.answer(
    *(gemini_answers.thought("Hm."), "Grüße 😀", gemini_answers.call("query", {"sql": 'select "ü😀"'}, id="a"))
)
_TOLD: Final = {"promptTokenCount": 25, "candidatesTokenCount": 1, "totalTokenCount": 26}
_UNKNOWN: Final = Usage(requests=1, exact=False)
WIRES: Final = {
    "anthropic": Wire(
        new=anthropic.AnthropicDecoder,
        begin=[by_anthropic.start()],
        text=by_anthropic.TEXT,
        end=by_anthropic.stop(),
        seen=Usage(requests=1, input_tokens=25, output_tokens=1),
        bodies=lambda stream: body_parts(by_anthropic.EVERYTHING, stream=stream, model="m", seed=1, serial=1),
    ),
    "chat": Wire(
        new=partial(chat.ChatDecoder, "openai"),
        begin=[by_chat.chunk({"role": "assistant", "content": ""}, usage=by_chat.USAGE)],
        text=[by_chat.chunk({"content": "Hi"})],
        end=[by_chat.chunk(reason="stop")],
        seen=Usage(requests=1, input_tokens=25, output_tokens=9),
        bodies=lambda stream: chat_parts(
            _SAID, stream=stream, usage=True, model="m", seed=1, reasoning_field="reasoning"
        ),
    ),
    "responses": Wire(
        new=partial(responses.ResponsesDecoder, "openai"),
        begin=[by_responses.created()],
        text=by_responses.TEXT,
        end=[by_responses.over()],
        seen=None,
        bodies=lambda stream: responses_parts(
            by_responses.EVERYTHING, stream=stream, encrypted=True, model="m", seed=1
        ),
    ),
    "google": Wire(
        new=partial(google.GoogleDecoder, by_google.OWNER),
        begin=[],
        text=[by_google.chunk(by_google.text("Hi"), usageMetadata=_TOLD)],
        end=[by_google.chunk(finish="STOP")],
        seen=Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=0, reasoning_tokens=0),
        bodies=lambda stream: gemini_answers.body_parts(_PARTS, stream=stream, model="m", seed=1),
    ),
}
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


def rows(table: "dict[str, list[tuple[Any, ...]]]") -> list[object]:
    """Return the rows of a table by wires, each with its wire."""
    return [pytest.param(WIRES[name], *row, id=f"{name}-{n}") for name in table for n, row in enumerate(table[name])]


def as_value(block: Block) -> object:
    """Return what a block means, so that white space in its JSON does not matter."""
    match block:
        case ToolUse():
            return (block.id, block.name, block.input)
        case Opaque():
            return orjson.loads(block.json)
        case _:
            return block


@every_wire
def test_an_answer_in_one_piece_means_the_same_as_a_stream(wire: Wire) -> None:
    parts = [wire.read(stream=stream) for stream in (False, True)]
    assert by_responses.shown(parts[0])[:2] == by_responses.shown(parts[1])[:2]
    whole, streamed = map(summed, parts)
    assert [as_value(block) for block in whole.content] == [as_value(block) for block in streamed.content]
    assert (whole.stop_reason, whole.usage, whole.model) == (streamed.stop_reason, streamed.usage, streamed.model)
    assert (whole.id, whole.stop_reason) == (streamed.id, "tool_use")


@every_wire
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
def test_pieces_that_nobody_looks_at_are_left_out(wire: Wire, stream: bool) -> None:
    for_display = {TextPart, ThinkingPart, InputPart}
    parts = wire.read(stream=stream, deltas=False)
    assert {type(part) for part in parts} == {ResponseStarted, BlockFinished, UsageSeen, ResponseFinished}
    assert parts == [part for part in wire.read(stream=stream) if type(part) not in for_display]


@pytest.mark.parametrize("name", WIRES)
@given(places=st.lists(st.integers(0, 12_000), max_size=8))
def test_an_answer_means_the_same_wherever_its_bytes_are_cut(name: str, places: list[int]) -> None:
    wire = WIRES[name]
    stream = b"".join(wire.bodies(True))
    cuts = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    parser, decoder = Parser(1_000_000), wire.new()
    parts: list[Part] = []
    for first, last in pairwise(cuts):
        parts += decoder.parts(parser.feed(stream[first:last]))
    assert decoder.complete
    assert summed(parts) == summed(wire.read(stream=True))


def _hosted(stop_reason: object) -> list[Json]:  # vLLM's
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop", "stop_reason": stop_reason}
    return [by_chat.chunk(choices=[choice])]


def _refused(details: Json | None) -> list[Json]:
    return by_anthropic.stop("refusal", stop_details=details)


def _words(say: "Callable[[Any], Events]", **words: str) -> list[tuple[Any, ...]]:
    """Return a row for each word of the API's that says by itself why the model stopped."""
    return [(say(word), reason) for word, reason in words.items()]


def _said(word: str) -> list[Json]:
    return [by_chat.chunk({"content": "Hi"}, word)]


def _incomplete(reason: str) -> list[Json]:
    return [by_responses.over("incomplete", incomplete_details={"reason": reason})]


def _finished(word: object) -> list[Json]:
    return [by_google.chunk(finish=word)]


_CALL: Final = by_chat.A_CALL
STOPS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "anthropic": [  # M7, A30; D6: no answer, since it has no call
        *_words(by_anthropic.stop, end_turn="end_turn", tool_use="tool_use", max_tokens="max_tokens"),
        *_words(by_anthropic.stop, pause_turn="pause_turn", model_context_window_exceeded="context_window"),
        (by_anthropic.stop("stop_sequence", stop_sequence="END"), "stop_sequence", "END"),
        (_refused({"type": "refusal", "category": "bio"}), "refusal", "bio"),
        (_refused({"type": "refusal", "category": None}), "refusal"),
        (_refused(None), "refusal"),
        (by_anthropic.stop("brand_new"), "other", "brand_new"),
        (by_anthropic.stop(None), "other"),
        (by_anthropic.stop()[:1], "end_turn"),  # complete without its last event
    ],
    "chat": [
        *_words(_said, stop="end_turn", length="max_tokens", tool_calls="end_turn"),
        *_words(_said, eos="end_turn", model_length="context_window"),
        (_said("content_filter"), "refusal", "content_filter"),
        (_said("repetition"), "other", "repetition"),
        *[([_CALL, by_chat.chunk(reason=reason)], "tool_use") for reason in ("stop", "tool_calls", "function_call")],
        ([by_chat.calls(by_chat.piece("a", "{", index=0, id="1")), by_chat.chunk(reason="length")], "max_tokens"),
        ([by_chat.chunk({"refusal": "No."}), by_chat.chunk(reason="stop")], "refusal"),
        (_hosted("END"), "stop_sequence", "END"),
        (_hosted(2), "end_turn"),
    ],
    "responses": [  # M7, A30
        ([by_responses.over()], "end_turn"),
        (_incomplete("max_output_tokens"), "max_tokens"),
        (_incomplete("content_filter"), "refusal", "content_filter"),
        (_incomplete("steered"), "other", "steered"),
        ([by_responses.over("incomplete", incomplete_details=None)], "other", "incomplete"),
    ],
    "google": [
        *_words(_finished, STOP="end_turn", MAX_TOKENS="max_tokens"),
        (_finished(1), "end_turn"),
        *[(_finished(word), "refusal", word) for word in ("SAFETY", "PROHIBITED_CONTENT")],
        *[(_finished(word), "other", str(word)) for word in ("MALFORMED_FUNCTION_CALL", "BRAND_NEW", 99)],
    ],
}


@pytest.mark.parametrize(("wire", "end", "stop"), rows({k: [(row[0], row[1:]) for row in v] for k, v in STOPS.items()}))
def test_why_it_stopped_is_translated(wire: Wire, end: Events, stop: tuple[Any, ...]) -> None:  # M7, A30, D6
    assert fed(wire.new(), [*wire.begin, *wire.text, *end])[-1] == ResponseFinished(*stop)


_OPEN: Final = by_anthropic.TEXT[:2]
CUT: Final[dict[str, list[tuple[Any, ...]]]] = {
    name: [
        ([], "it is empty"),
        ([*wire.begin, *wire.text], "ended before it was complete"),
        ([*wire.begin, b'{"type": "content_bl'], "cannot be read"),
        ([*wire.begin, b'{"type": "\xff"}'], "cannot be read"),
    ]
    for name, wire in WIRES.items()
}
CUT["anthropic"] += [
    ([by_anthropic.start(), *_OPEN, by_anthropic.stop()[0]], "ended before it was complete"),
    ([by_anthropic.start(), _OPEN[1]], "block 0 goes on without having begun"),
    ([by_anthropic.start(), {**_OPEN[1], "index": {"a": 1}}], "goes on without"),
    (by_anthropic.TEXT, "it has no beginning"),
    (by_anthropic.stop()[1:], "it has no beginning"),
]
CUT["chat"] += [
    ([by_chat.chunk({"content": "Hi"}, "")], "it ended before it was complete"),
    ([by_chat.USAGE_ONLY, b"[DONE]"], "it is empty"),
]
CUT["responses"] += [
    ([b"[DONE]"], "it is empty"),
    ([by_responses.created(), *by_responses.TEXT, b"[DONE]"], "ended before it was complete"),
    ([by_responses.created(), *by_responses.TEXT[:2], by_responses.over()], "item 0 was begun and never finished"),
    (by_responses.TEXT, "it has no beginning"),
    ([by_responses.done(0, by_responses.message("Hi"))], "it has no beginning"),
    ([by_responses.over()], "it has no beginning"),
]
CUT["google"] += [  # section 7, faults 1, 2 and 17
    ([{}], "it has no candidates, and does not say why"),
    ([{"candidates": []}], "it has no candidates"),
    ([{"candidates": [{}]}], "it has no candidates"),
    ([by_google.chunk(by_google.call())], "it ended before it was complete"),
]


@pytest.mark.parametrize(("wire", "events", "said"), rows(CUT))
def test_an_answer_that_is_not_whole_is_a_cut_stream(wire: Wire, events: Events, said: str) -> None:
    error = failed(wire.new(), events)
    assert error.kind == "stream_cut"
    assert said in str(error)


STRANGE: Final[dict[str, list[bytes]]] = {
    "anthropic": [b'{"type": 3}', b'{"type": "message_delta", "delta": 3, "usage": []}'],
    "chat": [b'{"choices": 3}', b'{"choices": [null]}'],
    "responses": [
        b'{"type": 3}',
        b'{"type": "response.output_text.delta", "delta": 3}',
        b'{"type": "response.function_call_arguments.delta", "delta": "x", "output_index": []}',
        b'{"type": "response.new.delta", "delta": "x"}',
    ],
    "google": [b'{"candidates": {}}', b'{"candidates": [{"content": {"parts": ["x", null]}}]}'],
}


@pytest.mark.parametrize(
    ("wire", "event"), rows({k: [(e,) for e in (b"[]", b"3", b"null", b'"x"', b"{}", *v)] for k, v in STRANGE.items()})
)
def test_events_of_other_forms_are_ignored(wire: Wire, event: bytes) -> None:
    assert summed(fed(wire.new(), [*wire.begin, event, *wire.text, *wire.end])).content == (Text("Hi"),)


def _anthropic(first: Json, last: Json) -> list[Json]:
    return [by_anthropic.start(first), *by_anthropic.stop(usage=last)]


def _chat(usage: Json) -> list[Json]:
    return [by_chat.chunk(reason="stop"), by_chat.chunk(choices=[], usage=usage)]


def _responses(usage: Json) -> list[Json]:
    return [by_responses.created(), by_responses.over(usage=usage)]


def _google(*told: Json) -> list[Json]:
    said = [by_google.chunk(by_google.text("x"), usageMetadata=each) for each in told]
    return [*said, by_google.chunk(finish="STOP")]


def _used(input: int = 0, output: int = 0, *, exact: bool = True, **more: Any) -> Usage:
    return Usage(requests=1, input_tokens=input, output_tokens=output, exact=exact, **more)


_ONCE: Final = {"input_tokens": 25, "output_tokens": 1}
_TWICE: Final = {"cached_tokens": 80, "cache_write_tokens": 60}
_CACHED: Final = {"cached_tokens": 60, "cache_write_tokens": 30, "audio_tokens": 0}
_REASONED: Final = {"completion_tokens_details": {"reasoning_tokens": 20}}
_THOUGHT: Final = {"output_tokens_details": {"reasoning_tokens": 40}}
_NONE: Final[Json] = {"cache_read_tokens": 0, "reasoning_tokens": 0}
_TEN: Final = {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14}
_LOW: Final = {"candidatesTokenCount": 18, "thoughtsTokenCount": 58}
_READ: Final = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5}
_COUNTED_ONCE: Final = _used(0, 5, cache_read_tokens=80, cache_write_tokens=20, exact=False)
USED: Final[dict[str, list[tuple[Any, ...]]]] = {
    "anthropic": [
        (  # Counts are totals, and those that are left out stand.
            _anthropic(
                {**_ONCE, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2},
                {"output_tokens": 90, "input_tokens": 30, "output_tokens_details": {"thinking_tokens": 40}},
            ),
            _used(30, 90, cache_read_tokens=7, cache_write_tokens=2, reasoning_tokens=40),
        ),
        (_anthropic({**_ONCE, "cache_read_input_tokens": None}, {"output_tokens": 9}), _used(25, 9)),  # X20
        (
            _anthropic({"cache_read_input_tokens": 0, "output_tokens": 1}, {}),
            _used(0, 1, exact=False, cache_read_tokens=0),
        ),
        (_anthropic({}, {"output_tokens": 9}), _used(0, 9, exact=False)),
        (_anthropic(_ONCE, {}), _used(25, 1, exact=False)),
        (_anthropic({}, {}), _UNKNOWN),
    ],
    "chat": [
        (
            _chat({"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": _CACHED, **_REASONED}),
            _used(10, 50, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=20),
        ),
        (_chat(by_chat.USAGE), _used(25, 9)),
        (_chat({"prompt_tokens": 25, "prompt_tokens_details": None}), _used(25, exact=False)),
        ([by_chat.chunk({"content": "Hi"}, "stop")], _UNKNOWN),
        ([by_chat.chunk(reason="stop", x_groq={"id": "req_1", "usage": by_chat.USAGE})], _used(25, 9)),
        (  # What every chunk tells replaces what was told before.
            [by_chat.chunk({"content": "Hi"}, usage={**by_chat.USAGE, "completion_tokens": 1}), *_chat(by_chat.USAGE)],
            _used(25, 9),
        ),
        (  # What cannot be makes no count negative.
            _chat({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}),
            _used(0, 1, cache_read_tokens=9, exact=False),
        ),
        (_chat({"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": _TWICE}), _COUNTED_ONCE),
    ],
    "responses": [
        (
            _responses({"input_tokens": 100, "output_tokens": 50, "input_tokens_details": _CACHED, **_THOUGHT}),
            _used(10, 50, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=40),
        ),
        (_responses({**_ONCE, "input_tokens_details": {"cached_tokens": None}}), _used(25, 1)),  # X20
        (
            _responses({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}),
            _used(5, exact=False, cache_read_tokens=0),
        ),
        (_responses({"input_tokens": 25}), _used(25, exact=False)),
        (_responses({}), _UNKNOWN),
        (_responses({"input_tokens": 100, "output_tokens": 5, "input_tokens_details": _TWICE}), _COUNTED_ONCE),
    ],
    "google": [
        (  # section 5: 665 totals, 19 caches
            _google({**_READ, "thoughtsTokenCount": 7, "toolUsePromptTokenCount": 9, "totalTokenCount": 121}),
            _used(49, 12, cache_read_tokens=60, reasoning_tokens=7),
        ),
        (_google({**_TEN, "promptTokenCount": 169}, _TEN), _used(10, 4, **_NONE)),  # section 5: 12 streams
        (_google({"promptTokenCount": 10, "totalTokenCount": 15}), _used(10, 5, **_NONE)),
        (_google(_TEN, {"promptTokenCount": 10, "totalTokenCount": 10}), _used(10, 4, **_NONE)),
        (_google(_TEN, {"trafficType": "ON_DEMAND"}), _used(10, 4, **_NONE)),
        (_google({}), _UNKNOWN),
        (_google({"trafficType": "ON_DEMAND"}), _UNKNOWN),
        (_google({"promptTokenCount": 10}), _used(10, exact=False, **_NONE)),
        (_google({"totalTokenCount": 10}), _used(0, 10, exact=False, **_NONE)),
        (_google(_LOW), _used(0, 76, exact=False, cache_read_tokens=0, reasoning_tokens=58)),
        (
            _google({"promptTokenCount": 7, "totalTokenCount": 7}, _LOW),
            _used(7, 76, exact=False, cache_read_tokens=0, reasoning_tokens=58),
        ),
    ],
}


@pytest.mark.parametrize(("wire", "events", "used"), rows(USED))
def test_what_was_used_is_told_and_what_is_not_told_is_unknown_and_not_zero(  # X20
    wire: Wire, events: list[Json], used: Usage
) -> None:
    assert wire.usage(*events) == used


_M: Final = 1_000_000
_READ_M: Final = {"cached_tokens": _M}
PRICED: Final[dict[str, list[tuple[Any, ...]]]] = {
    "anthropic": [(_anthropic({"input_tokens": _M, "cache_read_input_tokens": _M}, {"output_tokens": _M}),)],
    "chat": [(_chat({"prompt_tokens": 2 * _M, "completion_tokens": _M, "prompt_tokens_details": _READ_M}),)],
    "responses": [(_responses({"input_tokens": 2 * _M, "output_tokens": _M, "input_tokens_details": _READ_M}),)],
    "google": [(_google({"promptTokenCount": 2 * _M, "cachedContentTokenCount": _M, "candidatesTokenCount": _M}),)],
}


@pytest.mark.parametrize(("wire", "events"), rows(PRICED))
def test_a_price_gives_the_cost(wire: Wire, events: list[Json]) -> None:
    assert wire.usage(*events, price=Price(input=3, output=15, cache_read=0.3)).cost == pytest.approx(18.3)
    assert wire.usage(*events).cost is None


def _error(type: str | None, code: str | None = None) -> Json:
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": type, "message": "Sorry.", **details}, "request_id": "req_7"}


def _passed_on(raw: object) -> Json:
    metadata = {"provider_name": "Groq", "raw": raw}
    return {"error": {"message": "Provider returned error", "code": 502, "metadata": metadata}}


def _failed(error: Json | None) -> Json:
    return by_responses.over("failed", usage={}, error=error)


_SLOW: Final = {"code": "rate_limit_exceeded", "message": "Slow"}
_FLAT: Final = {"type": "error", "code": "server_error", "message": "Oops", "param": None}
_NESTED: Final = {"type": "error", "error": {"type": "tokens", **_SLOW}}
_TOO_LONG: Final = {"message": "This model's maximum context length is 8192.", "type": "BadRequestError", "code": 400}
_OVERLOADED: Final = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
_KINDS: Final[dict[str, tuple[str | None, ...]]] = {
    "overloaded": ("overloaded_error", "api_error"),
    "rate_limited": ("rate_limit_error",),
    "auth": ("authentication_error", "permission_error"),
    "quota": ("billing_error",),
    "not_found": ("not_found_error",),
    "timeout": ("timeout_error",),
    "bad_request": ("invalid_request_error",),
    "context_overflow": ("request_too_large",),
    "unknown": ("brand_new_error", None),
}
_OF_VLLM: Final = {"object": "error", "message": "Bad", "type": "BadRequestError", "code": 400}
ERRORS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "anthropic": [
        *[(_error(type), kind, type, "Sorry.") for kind, types in _KINDS.items() for type in types],
        (_error("rate_limit_error", "enforced_spend_limit_reached"), "quota", "enforced_spend_limit_reached", "Sorry."),
        (_error("rate_limit_error", "ramp_limit_exceeded"), "rate_limited", "ramp_limit_exceeded", "Sorry."),
    ],
    "chat": [
        ({"error": {"message": "Busy", "type": "server_error", "code": None}}, "overloaded", "server_error", "Busy"),
        ({"error": _SLOW}, "rate_limited", "rate_limit_exceeded", "Slow"),
        ({"error": {"message": "No more", "code": 402}}, "quota", None, "402: No more"),
        ({"error": {"message": "Upstream", "code": 502, "metadata": {}}}, "overloaded", None, "502: Upstream"),
        (_passed_on("Out of GPUs"), "overloaded", None, "502: Provider returned error (Groq: Out of GPUs)"),
        (_passed_on('{"error": {"message": "Busy"}}'), "overloaded", None, "error (Groq: Busy)"),
        (_passed_on('{"message": "Bye", "type": "insufficient_quota"}'), "quota", "insufficient_quota", "(Groq: Bye)"),
        (_passed_on({"detail": [3]}), "overloaded", None, 'error (Groq: {"detail":[3]})'),
        (_passed_on(" "), "overloaded", None, "Provider returned error"),
        ({"error": {"message": "", "type": "invalid_request_error"}}, "bad_request", "invalid_request_error", ""),
        ({"error": _TOO_LONG}, "context_overflow", "BadRequestError", "maximum context length"),
        ({"error": "out of memory"}, "unknown", None, "an error: out of memory"),
        ({"error": {"code": "odd"}}, "unknown", "odd", "no message"),
        (_OF_VLLM, "bad_request", "BadRequestError", "Bad"),
    ],
    "responses": [
        (_FLAT, "overloaded", "server_error", "broke off with server_error: Oops"),
        (_NESTED, "rate_limited", "rate_limit_exceeded", "broke off with rate_limit_exceeded: Slow"),
        ({"error": {"message": "Oops", "code": 502}}, "overloaded", None, "broke off with 502: Oops"),
        ({"type": "error", "code": None, "message": "Oops"}, "unknown", None, "broke off with an error: Oops"),
        (_failed(_SLOW), "rate_limited", "rate_limit_exceeded", "Slow"),
        (_failed({"code": "invalid_prompt", "message": "No"}), "content_filtered", "invalid_prompt", "No"),
        (_failed(None), "unknown", None, "no message"),
    ],
    "google": [  # section 7, fault 4
        ({"error": _OVERLOADED}, "overloaded", "UNAVAILABLE", "The model is overloaded."),
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, "rate_limited", "RESOURCE_EXHAUSTED", "no message"),
        ({"error": {"message": "?"}}, "unknown", None, "?"),
    ],
}


@pytest.mark.parametrize(("wire", "event", "kind", "type", "said"), rows(ERRORS))
def test_an_error_within_an_answer_has_its_kind_and_what_was_used_stays_known(
    wire: Wire, event: Json, kind: str, type: str | None, said: str
) -> None:
    decoder = wire.new()
    error = failed(decoder, [*wire.begin, *wire.text, event])
    assert (error.kind, error.type, error.request_id) == (kind, type, event.get("request_id"))
    assert said in str(error)
    assert decoder.usage() == wire.seen


def test_a_failed_answer_tells_what_it_used() -> None:
    decoder = responses.ResponsesDecoder("openai")
    failed(decoder, [by_responses.created(), by_responses.over("failed", error=None)])
    assert decoder.usage() == _used(25, 9)


_NO_CHOICES: Final[list[list[Json | None]]] = [[], [None], [{}], [{"message": None}]]
NO_ANSWERS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "anthropic": [
        (orjson.dumps(_error("overloaded_error")), "overloaded", "Sorry."),
        (b'{"object": "chat.completion"}', "unknown", "it is not a message"),
        (b"[]", "unknown", "it is not a message"),
        (b"", "stream_cut", "cannot be read"),
        (b"<html>", "stream_cut", "cannot be read"),
    ],
    "chat": [
        *[
            (orjson.dumps({"object": "chat.completion", "choices": choices}), "unknown", "it is not a chat completion")
            for choices in _NO_CHOICES
        ],
        (b"{}", "unknown", "it is not a chat completion"),
        (b"<html>", "stream_cut", "<html>"),
        (b'{"error": {"message": "Busy", "type": "server_error"}}', "overloaded", "Busy"),
        (b'{"error": "model not loaded"}', "unknown", "model not loaded"),
    ],
    "google": [
        (b"", "stream_cut", "cannot be read"),
        (b"<html>", "stream_cut", "cannot be read"),
        (b"[]", "unknown", "it is not an answer of generateContent"),
        (b'{"object": "chat.completion"}', "unknown", "it is not an answer of generateContent"),
        (b'{"candidates": []}', "stream_cut", "it has no candidates, and does not say why"),
        (orjson.dumps({"error": _OVERLOADED}), "overloaded", "The model is overloaded."),
        (orjson.dumps([{"error": _OVERLOADED}]), "overloaded", "The model is overloaded."),
    ],
    "responses": [
        (b"", "stream_cut", "cannot be read"),
        (b"[]", "unknown", "it is not a response"),
        (b'{"object": "chat.completion"}', "unknown", "it is not a response"),
        (b'{"error": {"code": "server_error", "message": "Oops"}}', "overloaded", "Oops"),
        (b'{"status": "failed", "output": [], "error": {"code": "server_error"}}', "overloaded", "no message"),
    ],
}


@pytest.mark.parametrize(("wire", "document", "kind", "said"), rows(NO_ANSWERS))
def test_a_document_that_is_no_answer_is_an_error(wire: Wire, document: bytes, kind: str, said: str) -> None:
    with pytest.raises(ProviderError) as caught:
        wire.new().document(document)
    assert caught.value.kind == kind
    assert said in str(caught.value)


def test_a_document_that_is_not_an_answer_yet_says_so() -> None:
    document = orjson.dumps({"object": "response", "status": "queued", "output": [], "usage": None})
    assert responses.ResponsesDecoder("openai").document(document)[-1] == ResponseFinished("other", "queued")

"""How each provider writes an answer, a refusal, and an answer that breaks off: bytes, and what they report as used.

Pure data; `faults.py` says what can go wrong with these bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import orjson

from journeyman.types import Usage
from tests.contracts.makers import KEY

EVENTS = "text/event-stream"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One way of answering."""

    content_type: str
    begun: bytes
    """The beginning of an answer; of a stream, up to the end of an event."""
    rest: bytes
    seen: Usage | None
    """What the beginning reports as used; None if nothing."""
    used: Usage
    """What the whole answer reports."""
    refusal: Callable[[int, str], bytes]
    """The body of an answer with a failure status, from the status and the message."""
    labels: Mapping[int, str | None]
    """The provider's own label in such a body."""
    event_name: bytes = b""
    """The name of the events that texts come in."""
    overload: bytes
    """What says, in a stream or in place of a document, that the service is overloaded."""
    seen_with_overload: Usage | None = None
    """What that reports as used, if the beginning did not."""

    @property
    def is_stream(self) -> bool:
        return self.content_type == EVENTS

    @property
    def whole(self) -> bytes:
        return self.begun + self.rest


def events(*documents: dict[str, object], named: bool = False) -> bytes:
    """Return a stream of these events; `named` events bear their type as a name."""
    return b"".join(
        (f"event: {document['type']}\n".encode() if named else b"") + b"data: " + orjson.dumps(document) + b"\n\n"
        for document in documents
    )


def _as_a_document(wire: Wire, document: dict[str, object], *, overload: dict[str, object]) -> Wire:
    """Return how the same service writes the same answer in one piece."""
    data = orjson.dumps(document)
    parts = {"begun": data[:120], "rest": data[120:], "overload": orjson.dumps(overload)}
    return replace(wire, content_type=JSON, seen=None, event_name=b"", **parts)


_ANTHROPIC_LABELS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def _anthropic_error(label: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": label, "message": message}, "request_id": "req_7"}


_MESSAGE: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "a-model",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0},
}
_BLOCK = {"type": "text", "text": ""}
_ENDED = {"stop_reason": "end_turn", "stop_sequence": None}

ANTHROPIC_EVENTS = Wire(
    content_type=EVENTS,
    begun=events(
        {"type": "message_start", "message": _MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": _BLOCK},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        named=True,
    ),
    rest=events(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " there."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": _ENDED, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
        named=True,
    ),
    seen=Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=3, cache_write_tokens=0, exact=False),
    used=Usage(requests=1, input_tokens=25, output_tokens=6, cache_read_tokens=3, cache_write_tokens=0),
    refusal=lambda status, message: orjson.dumps(_anthropic_error(_ANTHROPIC_LABELS[status], message)),
    labels=_ANTHROPIC_LABELS,
    event_name=b"content_block_delta",
    overload=events(_anthropic_error("overloaded_error", f"Overloaded {KEY}"), named=True),
)

_USAGE = {"input_tokens": 25, "output_tokens": 6, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
ANTHROPIC_DOCUMENT = _as_a_document(
    ANTHROPIC_EVENTS,
    {**_MESSAGE, **_ENDED, "content": [{"type": "text", "text": "Hello there."}], "usage": _USAGE},
    overload=_anthropic_error("overloaded_error", f"Overloaded {KEY}"),
)


# By status: type, code, and which of them is the more precise.
_OPENAI_ERRORS: Mapping[int, tuple[str | None, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "model_not_found"),
    408: ("timeout_error", None),
    413: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    529: (None, None),
}
_OPENAI_LABELS = {status: code or type for status, (type, code) in _OPENAI_ERRORS.items()}


def _openai_refusal(status: int, message: str) -> bytes:
    type, code = _OPENAI_ERRORS[status]
    return orjson.dumps({"error": {"message": message, "type": type, "param": None, "code": code}})


_OPENAI_OVERLOAD: dict[str, object] = {
    "error": {"message": f"Overloaded {KEY}", "type": "server_error", "param": None, "code": None}
}


def _chunk(delta: dict[str, object], *, tokens: int, finish_reason: str | None = None) -> dict[str, object]:
    """Return a chunk as of a server that counts in every one of them; one without `tokens` tells no use."""
    usage = {"usage": _chat_usage(tokens)} if tokens else {}
    return {**_bare_chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}]), **usage}


def _bare_chunk(choices: list[dict[str, object]]) -> dict[str, object]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "a-model", "choices": choices}


def _chat_usage(tokens: int) -> dict[str, object]:
    counts = {"prompt_tokens": 28, "completion_tokens": tokens, "total_tokens": 28 + tokens}
    return {**counts, "prompt_tokens_details": {"cached_tokens": 3}}


CHAT_EVENTS = Wire(
    content_type=EVENTS,
    begun=events(_chunk({"role": "assistant", "content": ""}, tokens=1), _chunk({"content": "Hello"}, tokens=1)),
    rest=events(_chunk({"content": " there."}, tokens=6), _chunk({}, finish_reason="stop", tokens=6))
    + b"data: [DONE]\n\n",
    seen=Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=3, exact=False),
    used=Usage(requests=1, input_tokens=25, output_tokens=6, cache_read_tokens=3),
    refusal=_openai_refusal,
    labels=_OPENAI_LABELS,
    overload=events(_OPENAI_OVERLOAD),
)

BRIDGED_CHAT_EVENTS = replace(
    CHAT_EVENTS,
    begun=events(_chunk({"role": "assistant", "content": ""}, tokens=0), _chunk({"content": "Hello"}, tokens=0)),
    rest=events(
        _chunk({"content": " there."}, tokens=0),
        _chunk({}, finish_reason="stop", tokens=0),
        {**_bare_chunk([]), "usage": _chat_usage(6)},
    )
    + b"data: [DONE]\n\n",
    seen=None,
    labels={status: type or code for status, (type, code) in _OPENAI_ERRORS.items()},
)
"""Counted once, at the end; and the label that pydantic-ai puts first."""

_SAID = {"role": "assistant", "content": "Hello there."}
CHAT_DOCUMENT = _as_a_document(
    CHAT_EVENTS,
    {
        **_bare_chunk([{"index": 0, "message": _SAID, "finish_reason": "stop"}]),
        "object": "chat.completion",
        "usage": _chat_usage(6),
    },
    overload=_OPENAI_OVERLOAD,
)


_GOOGLE_LABELS: Mapping[int, str | None] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    529: "UNAVAILABLE",
}


def _google_refusal(status: int, message: str) -> bytes:
    return orjson.dumps({"error": {"code": status, "message": message, "status": _GOOGLE_LABELS[status]}})


def _gemini_chunk(text: str, tokens: int, **more: object) -> dict[str, object]:
    counts = {"promptTokenCount": 28, "cachedContentTokenCount": 3, "candidatesTokenCount": tokens}
    return {
        "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}],
        "usageMetadata": {**counts, "totalTokenCount": 28 + tokens},
        "modelVersion": "a-model",
        "responseId": "resp_1",
    }


_GEMINI_OVERLOAD: dict[str, object] = {
    "error": {"code": 503, "message": f"The model is overloaded. {KEY}", "status": "UNAVAILABLE"}
}
_GEMINI_SEEN = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=3, reasoning_tokens=0, exact=False)

GEMINI_EVENTS = Wire(
    content_type=EVENTS,
    begun=events(_gemini_chunk("Hello", 1)),
    rest=events(_gemini_chunk(" there.", 6), _gemini_chunk("", 6, finishReason="STOP")),
    seen=_GEMINI_SEEN,
    used=replace(_GEMINI_SEEN, output_tokens=6, exact=True),
    refusal=_google_refusal,
    labels=_GOOGLE_LABELS,
    overload=events(_GEMINI_OVERLOAD),
)

GEMINI_DOCUMENT = _as_a_document(
    GEMINI_EVENTS, _gemini_chunk("Hello there.", 6, finishReason="STOP"), overload=_GEMINI_OVERLOAD
)


def _response(status: str, **more: object) -> dict[str, object]:
    return {"id": "resp_1", "object": "response", "model": "a-model", "status": status, "output": [], **more}


_TEXT: dict[str, object] = {"type": "output_text", "text": "Hello there.", "annotations": []}
_SPEAKER: dict[str, object] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
_ITEM = {**_SPEAKER, "content": [_TEXT]}
_RESPONSES_USAGE = {
    "input_tokens": 28,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 34,
}
_RESPONSES_USED = Usage(requests=1, input_tokens=25, output_tokens=6, cache_read_tokens=3, reasoning_tokens=0)
_FAILED = _response("failed", error={"code": "server_error", "message": f"Overloaded {KEY}"}, usage=_RESPONSES_USAGE)


def _delta(text: str) -> dict[str, object]:
    return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}


RESPONSES_EVENTS = Wire(
    content_type=EVENTS,
    begun=events(
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": {**_ITEM, "content": []}},
        _delta("Hello"),
        named=True,
    ),
    rest=events(
        _delta(" there."),
        {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
        {"type": "response.completed", "response": _response("completed", output=[_ITEM], usage=_RESPONSES_USAGE)},
        named=True,
    ),
    seen=None,
    used=_RESPONSES_USED,
    refusal=_openai_refusal,
    labels=_OPENAI_LABELS,
    event_name=b"response.output_text.delta",
    overload=events({"type": "response.failed", "response": _FAILED}, named=True),
    seen_with_overload=replace(_RESPONSES_USED, exact=False),
)

RESPONSES_DOCUMENT = _as_a_document(
    RESPONSES_EVENTS, _response("completed", output=[_ITEM], usage=_RESPONSES_USAGE), overload=_FAILED
)

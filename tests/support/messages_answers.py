"""What the server says: content blocks, answers made of them, and every way in which an answer can go wrong.

Pure data, no server: `messages_sse.py` turns it into bytes and `servers.py` sends them.
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Literal, TypeAlias, TypeVar

import orjson

from tests.support.messages_json import Json, as_list, as_object

SERIAL = "__serial__"
"""Stands in an id for the number of the request, so that an answer that is served twice has two ids."""

Ending: TypeAlias = Literal["end", "close", "reset", "stall"]
"""How a body stops: in order, by closing or resetting the connection, or when the client goes away."""

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Twist:
    """A fault inside a body: where it happens, what is put in, and how the body goes on."""

    after_events: int | None = None
    """Number of events that are still whole; a JSON answer is one event."""
    after_bytes: int | None = None
    """Number of bytes that are still sent; used when `after_events` is None."""
    insert: bytes = b""
    goes_on: bool = False
    """Whether the rest of the body follows."""
    ending: Ending = "end"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnyAnswer:
    """What an answer of the model has in every API."""

    content: tuple[Json, ...]
    model: str | None
    """None echoes the model of the request."""
    id: str
    headers: Mapping[str, str]
    delta_chars: int | None
    """Characters per delta; None cuts at seeded arbitrary places."""
    twist: Twist | None = None
    wait: "float | asyncio.Event" = 0.0
    encoded: dict[object, list[bytes]] = field(default_factory=dict[object, list[bytes]], init=False, repr=False)
    """Cache of the encoders, by all that changes what they write."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer(AnyAnswer):
    """One message of the Messages API."""

    stop_reason: str | None
    stop_sequence: str | None
    stop_details: Json | None
    usage: Json


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw:
    """A response that is no message: an error, a page, or anything else as bytes."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    wait: "float | asyncio.Event" = 0.0


Reply: TypeAlias = Answer | Raw
Policy: TypeAlias = Callable[[Json], Reply | Awaitable[Reply]]
AnyReply = TypeVar("AnyReply", bound=AnyAnswer | Raw)


def text(value: str) -> Json:
    """Return a text block."""
    return {"type": "text", "text": value}


def tool_use(name: str, arguments: Json | str, *, id: str | None = None) -> Json:
    """Return a call of a client's tool; without an id it gets one like toolu_2_1: request 2, call 1.

    In a stream, arguments that are a string are written as they are, broken or not.
    """
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def thinking(value: str, *, signature: str | None = None) -> Json:
    """Return a thinking block; the signature defaults to one made from the text."""
    return {"type": "thinking", "thinking": value, "signature": sealed(value) if signature is None else signature}


def redacted_thinking(data: str = "EmwKAhgBEgy3va3pzix/LafPsn4=") -> Json:
    """Return a thinking block that only the provider can read."""
    return {"type": "redacted_thinking", "data": data}


def server_tool_use(name: str, arguments: Json, *, id: str) -> Json:
    """Return a call of a tool that the provider runs, such as web_search."""
    return {"type": "server_tool_use", "id": id, "name": name, "input": arguments}


def web_search_tool_result(tool_use_id: str, *titles: str) -> Json:
    """Return the result of a web search: one hit per title."""
    hits = [
        {
            "type": "web_search_result",
            "title": title,
            "url": f"https://example.com/{index}",
            "encrypted_content": "EqgfCioIARgB",
            "page_age": None,
        }
        for index, title in enumerate(titles)
    ]
    return {"type": "web_search_tool_result", "tool_use_id": tool_use_id, "content": hits}


def answer(
    *blocks: Json | str,
    stop_reason: str | None = "",
    stop_sequence: str | None = None,
    stop_details: Json | None = None,
    usage: Mapping[str, object] | None = None,
    model: str | None = None,
    id: str = f"msg_{SERIAL}",
    headers: Mapping[str, str] | None = None,
    delta_chars: int | None = None,
) -> Answer:
    """Return an answer of these blocks (a string is a text block).

    An empty stop reason means: refusal if there are stop details, tool_use if there is a call, else end_turn.
    `usage` is laid over the defaults; its fields are those of the API.
    """
    made = (text(block) if isinstance(block, str) else block for block in blocks)
    content = with_ids(made, kind="tool_use", prefix="toolu")
    return Answer(
        content=content,
        stop_reason=_stop_reason(content, stop_details) if stop_reason == "" else stop_reason,
        stop_sequence=stop_sequence,
        stop_details=stop_details,
        usage=_usage(content) | dict(usage or {}),
        model=model,
        id=id,
        headers={"request-id": f"req_{SERIAL}", **(headers or {})},
        delta_chars=delta_chars,
    )


def refusal(*blocks: Json | str, category: str | None = None, explanation: str | None = None) -> Answer:
    """Return an answer that ends in a refusal, after what was said before."""
    details: Json = {"type": "refusal", "category": category, "explanation": explanation}
    return answer(*blocks, stop_details=details)


def fault(
    status: int = 529,
    *,
    error_type: str | None = None,
    message: str = "ScriptedModel fault",
    headers: Mapping[str, str] | None = None,
) -> Raw:
    """Return an error as the API words it; the type follows from the status."""
    error = {"type": error_type or _ERROR_TYPES.get(status, "api_error"), "message": message}
    body = orjson.dumps({"type": "error", "error": error, "request_id": f"req_{SERIAL}"})
    return raw(body, status=status, headers={"request-id": f"req_{SERIAL}", **(headers or {})})


def raw(
    body: bytes, *, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> Raw:
    """Return any bytes as a response: nothing, garbage, invalid UTF-8, the wrong content type."""
    return Raw(status=status, body=body, headers={"content-type": content_type, **(headers or {})})


def html_page(status: int = 502) -> Raw:
    """Return an error page as a proxy on the way writes it."""
    page = f"<html><head><title>{status}</title></head><body><h1>{status} Bad Gateway</h1></body></html>"
    return raw(page.encode(), status=status, content_type="text/html")


def cut(
    whole: AnyReply, *, after_events: int | None = None, after_bytes: int | None = None, ending: Ending = "close"
) -> AnyReply:
    """Send only the first events or bytes; then close, reset, end as if all were well, or stall."""
    return replace(whole, twist=Twist(after_events=after_events, after_bytes=after_bytes, ending=ending))


def stall(whole: AnyReply, *, after_events: int) -> AnyReply:
    """Send only the first events, then nothing more until the client goes away."""
    return cut(whole, after_events=after_events, ending="stall")


def insert(whole: AnyReply, data: bytes, *, after_events: int) -> AnyReply:
    """Put bytes between two events; the rest follows."""
    return replace(whole, twist=Twist(after_events=after_events, insert=data, goes_on=True))


def broken_off(
    whole: Answer, *, after_events: int, error_type: str = "overloaded_error", message: str = "Overloaded"
) -> Answer:
    """Send the first events, then an error event, with which the stream ends."""
    event = sse({"type": "error", "error": {"type": error_type, "message": message}})
    return replace(whole, twist=Twist(after_events=after_events, insert=event))


def late(reply: AnyReply, *, until: asyncio.Event | None = None, seconds: float = 0.0) -> AnyReply:
    """Hold back even the headers, until the event is set or for some seconds."""
    return replace(reply, wait=seconds if until is None else until)


def by_turn(script: Sequence[AnyReply]) -> Callable[[Json], AnyReply]:
    """Let every conversation walk through the script on its own: the n-th turn gets the n-th reply."""

    def reply(request: Json) -> AnyReply:
        lists = [as_list(request.get(name)) for name in ("messages", "input", "contents")]
        items = [as_object(each) for items in lists for each in items]
        models = [item.get("role") in ("assistant", "model") for item in items]
        kinds = [item.get("type") in ("function_call", "reasoning") for item in items]
        said = [one or other for one, other in zip(models, kinds, strict=True)]
        n_answers = sum(now and not before for before, now in pairwise([False, *said]))
        if n_answers >= len(script):
            raise LookupError(f"the conversation has {n_answers} answers, the script has {len(script)}")
        return script[n_answers]

    return reply


def sealed(value: str) -> str:
    """Return what only the provider can read or write, made from a text."""
    return base64.b64encode(hashlib.sha256(value.encode()).digest()).decode()


def sse(event: Json) -> bytes:
    """Return an event of a stream that bears its type as its name."""
    return f"event: {event['type']}\ndata: ".encode() + orjson.dumps(event) + b"\n\n"


def with_ids(blocks: Iterable[Json], *, kind: str, prefix: str) -> tuple[Json, ...]:
    """Give the calls, which are blocks of this `kind`, an id where they have none."""
    numbers = count(1)
    return tuple(
        {**block, "id": f"{prefix}_{SERIAL}_{next(numbers)}"}
        if block.get("type") == kind and block.get("id") is None
        else block
        for block in blocks
    )


def _stop_reason(content: Sequence[Json], stop_details: Json | None) -> str:
    if stop_details is not None:
        return "refusal"
    return "tool_use" if any(block.get("type") == "tool_use" for block in content) else "end_turn"


def _usage(content: Sequence[Json]) -> Json:
    return {
        "input_tokens": 25,
        "output_tokens": 1 + len(orjson.dumps(content)) // 4,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "service_tier": "standard",
    }

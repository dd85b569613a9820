"""An answer as bytes: one JSON document, or the events of a stream.

Where deltas are cut is arbitrary but seeded: inside words, inside numbers and inside the escapes of tool input.
"""

import json
from collections.abc import Iterator
from random import Random

import orjson

from tests.support.messages_answers import SERIAL, Answer, Twist, sse
from tests.support.messages_json import Json, as_list, as_object, as_text

_LONGEST_DELTA = 24
_COUNTED_AT_THE_END = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "server_tool_use",
    "output_tokens_details",
)


def body_parts(answer: Answer, *, stream: bool, model: str, seed: int, serial: int) -> list[bytes]:
    """Return the body as whole parts: one per event, or the JSON document alone."""
    key = (stream, answer.model or model, seed)
    parts = answer.encoded.get(key)
    if parts is None and stream:
        answer.encoded[key] = parts = [*map(sse, _events(answer, key[1], Random(seed)))]
    elif parts is None:
        answer.encoded[key] = parts = [orjson.dumps(_message(answer, key[1]))]
    return [with_serial(part, serial) for part in parts]


def body_bytes(parts: list[bytes], twist: Twist | None) -> tuple[bytes, int]:
    """Return what is sent of a body, and how long it claims to be, according to the answer's twist."""
    whole = b"".join(parts)
    if twist is None:
        return whole, len(whole)
    at = len(b"".join(parts[: twist.after_events])) if twist.after_events is not None else twist.after_bytes
    sent = whole[:at] + twist.insert + (whole[at:] if twist.goes_on else b"")
    return sent, len(sent) if twist.ending == "end" else len(whole) + len(twist.insert)


def with_serial(data: bytes, serial: int) -> bytes:
    """Put the number of the request into the ids."""
    return data.replace(SERIAL.encode(), str(serial).encode())


def _message(answer: Answer, model: str) -> Json:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": answer.content,
        "stop_reason": answer.stop_reason,
        "stop_sequence": answer.stop_sequence,
        "stop_details": answer.stop_details,
        "usage": answer.usage,
    }


def _events(answer: Answer, model: str, random: Random) -> Iterator[Json]:
    yield {"type": "message_start", "message": _first_message(answer, model)}
    yield {"type": "ping"}
    for index, block in enumerate(answer.content):
        yield {"type": "content_block_start", "index": index, "content_block": _first_block(block)}
        for delta in _deltas(block, random, answer.delta_chars):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {name: getattr(answer, name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    usage = {name: answer.usage[name] for name in _COUNTED_AT_THE_END if name in answer.usage}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _first_message(answer: Answer, model: str) -> Json:
    counted = {**answer.usage, "output_tokens": 1} if "output_tokens" in answer.usage else answer.usage
    nothing_yet: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    return {**_message(answer, model), **nothing_yet, "usage": counted}


def _first_block(block: Json) -> Json:
    match block.get("type"):
        case "text" if "citations" in block:
            return {**block, "text": "", "citations": []}
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
        case _:
            return block


def _deltas(block: Json, random: Random, chars: int | None) -> Iterator[Json]:
    match block.get("type"):
        case "text":
            for citation in as_list(block.get("citations")):
                yield {"type": "citations_delta", "citation": as_object(citation)}
            for piece in pieces(as_text(block["text"]), random, chars):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in pieces(as_text(block["thinking"]), random, chars):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            # Escaped on purpose: a cut may fall inside an escape, or between the two of a surrogate pair.
            given = block["input"]
            written = given if isinstance(given, str) else json.dumps(given) if given else ""
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in pieces(written, random, chars):
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            return


def pieces(value: str, random: Random, chars: int | None) -> Iterator[str]:
    """Cut a text into pieces of this many characters, or at seeded arbitrary places."""
    start = 0
    while start < len(value):
        end = start + (chars or random.randint(1, _LONGEST_DELTA))
        yield value[start:end]
        start = end

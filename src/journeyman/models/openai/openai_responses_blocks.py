"""The blocks that the items of a Responses API answer become, once they are done.

Items of unknown kinds are kept as they are. Imports `model`, `types` and `untrusted`. Read
`openai_responses_decode.py` next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import orjson

from journeyman.model import InputPart, Part, TextPart, ThinkingPart
from journeyman.models.untrusted import as_list, as_object, as_text, is_object
from journeyman.types import Block, JsonObject, Opaque, Text, Thinking, ToolUse

BETWEEN_THOUGHTS: Final = "\n\n"
"""What stands between the texts of one reasoning item."""

_ID_CHARACTERS: Final = 64  # the longest id of an item that the API takes back
_PAIRED: Final = ("message", "function_call")
_KEPT_WITH_TEXT: Final = ("annotations", "logprobs")


@dataclass(slots=True)
class Call:
    """What the block and the pieces of one call go by."""

    id: str
    name: str
    wire_id: str | None


def open_call(item: JsonObject, ids: set[str]) -> Call:
    """Return the call that begins, with an id that is not among `ids`, and add that."""
    wire_id = as_text(item.get("call_id"))
    id = wire_id if wire_id and wire_id not in ids else f"call_{uuid4().hex[:24]}"
    ids.add(id)
    return Call(id, as_text(item.get("name")), None if id == wire_id else wire_id)


def tool_use(call: Call, item: JsonObject) -> ToolUse:
    raw = as_text(item.get("arguments"))
    if not raw.strip():
        raw = "{}"
    name = as_text(item.get("name")) or call.name
    if is_object(raw):
        return ToolUse(call.id, name, raw, wire_id=call.wire_id)
    return ToolUse(call.id, name, malformed=raw, wire_id=call.wire_id)


def opaque(item: JsonObject, provider: str) -> Opaque:
    return Opaque(provider, orjson.dumps(item).decode())


# -- reasoning ---------------------------------------------------------------------------------------------------------


def thoughts(item: JsonObject) -> str:
    """Return the words of a reasoning item: its summary, or what an open model thought."""
    parts = [as_object(part) for part in (*as_list(item.get("summary")), *as_list(item.get("content")))]
    return BETWEEN_THOUGHTS.join([text for part in parts if (text := as_text(part.get("text")))])


def pair_of(item: JsonObject) -> str:
    """Return the kind and the id of an item that goes back together with the reasoning before it; empty for none."""
    kind, id = as_text(item.get("type")), as_text(item.get("id"))
    return f"{kind} {id}" if kind in _PAIRED and 0 < len(id) <= _ID_CHARACTERS else ""


def reasoning(item: JsonObject, pair: str, provider: str) -> Thinking | None:
    """Return the block of a reasoning item; None if there is nothing in it.

    The API wants to see reasoning and what followed it together again, by their ids. So the signature is the item, and
    in a line of its own `pair`.
    """
    text = thoughts(item)
    if not text and not item.get("encrypted_content"):
        return None
    signature = orjson.dumps(item).decode()
    return Thinking(text, f"{signature}\n{pair}" if pair else signature, provider)


# -- texts -------------------------------------------------------------------------------------------------------------


def texts(item: JsonObject, pair: str, provider: str) -> list[Block]:
    """Return the blocks of a message: its texts, and what the model says when it refuses."""
    blocks: list[Block] = []
    for content in as_list(item.get("content")):
        part = as_object(content)
        match part.get("type"):
            case "output_text":
                blocks.append(Text(as_text(part.get("text")), extra=_extra(item, part)))
            case "refusal":
                blocks.append(Text(as_text(part.get("refusal")), extra={"refusal": True}))
            case _:
                blocks.append(opaque({**item, "content": [content]}, provider))
    if pair != pair_of(item):
        _keep_id(blocks, as_text(item.get("id")))
    return [block for block in blocks if not isinstance(block, Text) or block.text]


def is_refusal(block: Block) -> bool:
    return isinstance(block, Text) and block.extra is not None and "refusal" in block.extra


def _extra(item: JsonObject, part: JsonObject) -> JsonObject | None:
    extra = {key: part[key] for key in _KEPT_WITH_TEXT if part.get(key)}
    if phase := item.get("phase"):
        extra["phase"] = phase
    return extra or None


def _keep_id(blocks: list[Block], id: str) -> None:
    """Keep the id of a message with its first text, if that has annotations: they go back with an id only."""
    first = blocks[0] if blocks else None
    if isinstance(first, Text) and first.extra and "annotations" in first.extra and 0 < len(id) <= _ID_CHARACTERS:
        first.extra["id"] = id


# -- for display -------------------------------------------------------------------------------------------------------


def whole(block: Block) -> Part | None:
    """Return a block that came in one piece as a part; None if there is nothing to show."""
    match block:
        case Text(text) if text:
            return TextPart(text)
        case Thinking(text) if text:
            return ThinkingPart(text)
        case ToolUse():
            return InputPart(block.id, block.name, block.malformed or block.input_json)
        case _:
            return None

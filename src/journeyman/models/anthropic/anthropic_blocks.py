"""The blocks of a Messages API answer while they grow, piece by piece.

Blocks of unknown kinds are kept as they are. Imports `model`, `types` and `untrusted`. Read `anthropic_decode.py` next.
"""

from __future__ import annotations

from typing import Final, Protocol
from uuid import uuid4

import orjson

from journeyman.model import InputPart, Part, TextPart, ThinkingPart
from journeyman.models.untrusted import as_list, as_object, as_text, is_object
from journeyman.types import Block, JsonObject, Opaque, RedactedThinking, Text, Thinking, ToolUse

PROVIDER: Final = "anthropic"


class OpenBlock(Protocol):
    """A block that still grows."""

    def add(self, delta: JsonObject) -> Part | None:
        """Take in the next piece, and return it as it may be shown."""
        ...

    def finish(self) -> Block | None:
        """Return the whole block; None if there is nothing in it."""
        ...


def open_block(block: JsonObject, ids: set[str]) -> OpenBlock:
    match block.get("type"):
        case "text":
            return _OpenText(block)
        case "thinking":
            return _OpenThinking(block)
        case "tool_use":
            return _OpenToolUse(block, ids)
        case _:
            return _OpenOther(block)


def first_delta(block: JsonObject) -> JsonObject:
    """Return what a block brings along when it begins: usually nothing, all of it in an answer of one piece."""
    kind = block.get("type")
    return {kind: block[kind]} if kind in ("text", "thinking") and block.get(kind) else {}


class _OpenText:
    __slots__ = ("_citations", "_extra", "_pieces")

    def __init__(self, block: JsonObject) -> None:
        self._pieces: list[str] = []
        self._citations = list(as_list(block.get("citations")))
        self._extra: JsonObject = {
            k: v for k, v in block.items() if k not in ("type", "text", "citations") and v is not None
        }

    def add(self, delta: JsonObject) -> Part | None:
        if (citation := delta.get("citation")) is not None:
            self._citations.append(citation)
        if not (text := as_text(delta.get("text"))):
            return None
        self._pieces.append(text)
        return TextPart(text)

    def finish(self) -> Block | None:
        text = "".join(self._pieces)
        if self._citations:
            self._extra["citations"] = self._citations
        return Text(text, extra=self._extra or None) if text else None


class _OpenThinking:
    __slots__ = ("_pieces", "_signature")

    def __init__(self, block: JsonObject) -> None:
        self._pieces: list[str] = []
        self._signature = as_text(block.get("signature"))

    def add(self, delta: JsonObject) -> Part | None:
        self._signature = as_text(delta.get("signature")) or self._signature
        if not (text := as_text(delta.get("thinking"))):
            return None
        self._pieces.append(text)
        return ThinkingPart(text)

    def finish(self) -> Block | None:
        text = "".join(self._pieces)
        return Thinking(text, self._signature or None, PROVIDER) if text or self._signature else None


class _OpenToolUse:
    __slots__ = ("_given", "_id", "_name", "_pieces", "_wire_id")

    def __init__(self, block: JsonObject, ids: set[str]) -> None:
        wire_id = as_text(block.get("id"))
        self._id = wire_id if wire_id and wire_id not in ids else f"toolu_{uuid4().hex[:24]}"
        self._wire_id = None if self._id == wire_id else wire_id
        ids.add(self._id)
        self._name = as_text(block.get("name"))
        self._given = as_object(block.get("input"))
        self._pieces: list[str] = []

    def add(self, delta: JsonObject) -> Part | None:
        if not (piece := as_text(delta.get("partial_json"))):
            return None
        self._pieces.append(piece)
        return InputPart(self._id, self._name, piece)

    def finish(self) -> Block:
        raw = "".join(self._pieces)
        if not raw.strip():
            raw = orjson.dumps(self._given).decode()
        if is_object(raw):
            return ToolUse(self._id, self._name, raw, wire_id=self._wire_id)
        return ToolUse(self._id, self._name, malformed=raw, wire_id=self._wire_id)


class _OpenOther:
    __slots__ = ("_block", "_pieces")

    def __init__(self, block: JsonObject) -> None:
        self._block = block
        self._pieces: list[str] = []

    def add(self, delta: JsonObject) -> Part | None:
        # Every kind of delta known so far names the field that it extends.
        for key, value in delta.items():
            if key == "partial_json":
                self._pieces.append(as_text(value))
            elif key != "type":
                before = self._block.get(key)
                self._block[key] = before + value if isinstance(before, str) and isinstance(value, str) else value
        return None

    def finish(self) -> Block:
        if self._block.get("type") == "redacted_thinking":
            return RedactedThinking(as_text(self._block.get("data")), PROVIDER)
        raw = "".join(self._pieces)
        block: dict[str, object] = {**self._block}
        if is_object(raw):
            block["input"] = orjson.Fragment(raw)
        return Opaque(PROVIDER, orjson.dumps(block).decode())

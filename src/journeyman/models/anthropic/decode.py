"""Messages API answers as parts: a state machine fed with one event at a time, without waiting or input of its own.

Blocks of unknown kinds are kept as they are, and unknown events are ignored, so that a newer API does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import orjson

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import ProviderError
from journeyman.model import BlockFinished, InputPart, Part, ResponseFinished, TextPart, ThinkingPart, UsageSeen
from journeyman.models.decoding import Decoder, stop_of
from journeyman.models.error_reports import error_within, find_error
from journeyman.models.wire import all_parsed, is_object, make_damage_error, own_id, parse_object, tool_use
from journeyman.types import Block, JsonObject, Opaque, RedactedThinking, Text, Thinking, ToolUse

PROVIDER: Final = "anthropic"
_RAN_CODE: Final = "code_execution_tool_result"
_RUNS_CODE: Final = re.compile(rf"(\w+_)?{_RAN_CODE}")
_COUNTS: Final = (
    ("input_tokens", "", "input_tokens"),
    ("output_tokens", "", "output_tokens"),
    ("cache_read_tokens", "", "cache_read_input_tokens"),
    ("cache_write_tokens", "", "cache_creation_input_tokens"),
    ("reasoning_tokens", "output_tokens_details", "thinking_tokens"),
    ("web_searches", "server_tool_use", "web_search_requests"),
)


@dataclass(slots=True, repr=False, eq=False)
class AnthropicDecoder(Decoder):
    """A decoder that turns the events of one answer into parts."""

    _open: dict[int | None, OpenBlock] = field(default_factory=lambda: {}, init=False)
    _stop: str | None = field(default=None, init=False)
    _calls: bool = field(default=False, init=False)
    _detail: str | None = field(default=None, init=False)

    def parts(self, events: Iterable[tuple[bytes, bytes]]) -> Iterator[Part]:
        for event in all_parsed([data for _, data in events]):
            yield from self.take(event)

    def take(self, event: JsonObject) -> Sequence[Part]:
        """Return the parts that an event brings.

        Raises:
            ProviderError: the event reports an error, or is damaged.
        """
        parts: Sequence[Part] = ()
        match event.get("type"):
            case "content_block_delta":
                parts = self._extend_block(event)
            case "content_block_start":
                parts = self._start_block(event)
            case "content_block_stop":
                parts = self._finish_block(event)
            case "message_start":
                parts = self._start(event)
            case "message_delta":
                parts = self._change(event)
            case "message_stop":
                parts = self._finish()
            case "error":
                raise _read_event_error(event)
            case None if error := find_error(event):
                raise error_within(error)
            case _:
                pass
        return parts

    def document(self, data: bytes) -> list[Part]:
        """Return the parts of an answer that came in one piece, although a stream was asked for.

        Raises:
            ProviderError: the document reports an error, or is no answer.
        """
        message = parse_object(data)
        if message.get("type") != "message":
            if find_error(message):
                raise _read_event_error(message)
            raise make_damage_error("it is not a message", "unknown")
        parts = [*self._start({"message": message})]
        for index, block in enumerate(as_list(message.get("content"))):
            parts += self._start_block({"index": index, "content_block": block})
            finished = self._finish_block({"index": index})
            calls = [part.block for part in finished if self.deltas and isinstance(part.block, ToolUse)]
            # For display the arguments of calls come as a stream would have brought them.
            parts += [*[InputPart(call.id, call.name, call.input_json) for call in calls], *finished]
        return [*parts, *self._change({"delta": message, "usage": message.get("usage")}), *self._finish()]

    def end(self) -> Sequence[Part]:
        return Decoder.end(self) if self.complete or self._stop is None or self._open else self._finish()

    def unfinished_text(self) -> str:
        if self.deltas:
            return ""
        return "\n\n".join([opened.text for opened in self._open.values() if isinstance(opened, _OpenText)])

    def _start(self, event: JsonObject) -> Sequence[Part]:
        message = as_object(event.get("message"))
        self._take_counts(_COUNTS, as_object(message.get("usage")))
        return (self._begin(message.get("model"), message.get("id")),)

    def _start_block(self, event: JsonObject) -> Sequence[Part]:
        self._check_begun()
        self.room.n_blocks -= 1
        if self.room.n_blocks < 0:
            self.room.check()
        block = as_object(event.get("content_block"))
        opened = self._open[_index(event)] = _open_block(block, self._ids)
        # A block brings along usually nothing when it begins, all of it in an answer of one piece.
        kind = block.get("type")
        return self._extend(opened, {kind: block[kind]}) if kind in ("text", "thinking") and block.get(kind) else ()

    def _extend_block(self, event: JsonObject) -> Sequence[Part]:
        opened = self._open.get(_index(event))
        if opened is None:
            raise make_damage_error(f"block {event.get('index')} goes on without having begun")
        return self._extend(opened, as_object(event.get("delta")))

    def _extend(self, opened: OpenBlock, delta: JsonObject) -> Sequence[Part]:
        part, room = opened.add(delta), self.room
        if part is None:
            given = [value for key, value in delta.items() if key != "type"]
            room.other -= sum([len(each) if isinstance(each, str) else len(write_json(each)) for each in given])
            if room.other < 0:
                room.check()
            return ()
        room.chars = left = room.chars - len(part.json if isinstance(part, InputPart) else part.text)
        if left < 0:
            room.check()
        return (part,) if self.deltas else ()

    def _finish_block(self, event: JsonObject) -> Sequence[BlockFinished]:
        opened = self._open.pop(_index(event), None)
        block = opened.finish() if opened is not None else None
        self._calls = self._calls or type(block) is ToolUse
        if type(block) is Opaque and _RAN_CODE in block.json and _RUNS_CODE.match(block.kind):
            self._counts["code_executions"] = self._counts.get("code_executions", 0) + 1
        return () if block is None else (BlockFinished(block),)

    def _change(self, event: JsonObject) -> Sequence[Part]:
        delta = as_object(event.get("delta"))
        counted = self._take_counts(_COUNTS, as_object(event.get("usage")))
        if isinstance(reason := delta.get("stop_reason"), str):
            self._stop = reason
            self._detail = _detail(reason, delta)
        usage = self.usage()
        return (UsageSeen(usage),) if usage is not None and counted else ()

    def _finish(self) -> Sequence[Part]:
        self._check_begun()
        self.complete = True
        blocks = [part for index in [*self._open] for part in self._finish_block({"index": index})]
        stop, detail = ("other", None) if self._stop is None else stop_of(self._stop, has_calls=self._calls)
        if self._stop in ("end_turn", "tool_use"):  # this wire's own words mean what they say, whatever was called
            stop = self._stop
        return (*blocks, ResponseFinished(stop, self._detail or detail))


def _index(event: JsonObject) -> int | None:
    index = event.get("index")
    return index if isinstance(index, int) else None


def _detail(reason: str, delta: JsonObject) -> str | None:
    """Return what the API says about a reason besides the reason itself."""
    if reason == "refusal":
        return as_text(as_object(delta.get("stop_details")).get("category")) or None
    return as_text(delta.get("stop_sequence")) or None if reason == "stop_sequence" else None


def _read_event_error(event: JsonObject) -> ProviderError:
    """Return the error that the API reports within an answer."""
    failure = error_within(find_error(event))
    failure.request_id = as_text(event.get("request_id")) or None
    return failure


class OpenBlock(Protocol):
    """A block that still grows."""

    def add(self, delta: JsonObject) -> TextPart | ThinkingPart | InputPart | None:
        """Take in the next piece, and return it as it may be shown."""
        ...

    def finish(self) -> Block | None:
        """Return the whole block; None if there is nothing in it."""
        ...


def _open_block(block: JsonObject, ids: set[str]) -> OpenBlock:
    match block.get("type"):
        case "text":
            return _OpenText(block)
        case "thinking":
            return _OpenThinking(block)
        case "tool_use":
            return _OpenToolUse(block, ids)
        case _:
            return _OpenOther(block)


class _OpenText:
    __slots__ = ("_citations", "_extra", "_pieces")

    def __init__(self, block: JsonObject) -> None:
        self._pieces: list[str] = []
        self._citations = list(as_list(block.get("citations")))
        known = ("type", "text", "citations")
        self._extra: JsonObject = {name: block[name] for name in block if name not in known and block[name] is not None}

    def add(self, delta: JsonObject) -> TextPart | ThinkingPart | InputPart | None:
        if (citation := delta.get("citation")) is not None:
            self._citations.append(citation)
        if not (text := as_text(delta.get("text"))):
            return None
        self._pieces.append(text)
        return TextPart(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def finish(self) -> Block | None:
        text = self.text
        if self._citations:
            self._extra["citations"] = self._citations
        return Text(text, extra=self._extra or None) if text else None


class _OpenThinking:
    __slots__ = ("_pieces", "_signature")

    def __init__(self, block: JsonObject) -> None:
        self._pieces: list[str] = []
        self._signature = as_text(block.get("signature"))

    def add(self, delta: JsonObject) -> TextPart | ThinkingPart | InputPart | None:
        self._signature = as_text(delta.get("signature")) or self._signature
        if not (text := as_text(delta.get("thinking"))):
            return None
        self._pieces.append(text)
        return ThinkingPart(text)

    def finish(self) -> Block | None:
        text = "".join(self._pieces)
        return Thinking(text, self._signature or None, PROVIDER) if text or self._signature else None


class _OpenToolUse:
    __slots__ = ("_extra", "_given", "_id", "_name", "_pieces", "_wire_id")

    def __init__(self, block: JsonObject, ids: set[str]) -> None:
        self._id, self._wire_id = own_id(as_text(block.get("id")), ids, prefix="toolu")
        self._name = as_text(block.get("name"))
        self._given = as_object(block.get("input"))
        caller = block.get("caller")
        self._extra: JsonObject | None = None if caller is None else {PROVIDER: {"caller": caller}}
        self._pieces: list[str] = []

    def add(self, delta: JsonObject) -> TextPart | ThinkingPart | InputPart | None:
        if not (piece := as_text(delta.get("partial_json"))):
            return None
        self._pieces.append(piece)
        return InputPart(self._id, self._name, piece)

    def finish(self) -> Block:
        raw = "".join(self._pieces)
        if not raw.strip():
            raw = write_json(self._given).decode()
        return tool_use(self._id, self._name, raw, wire_id=self._wire_id, extra=self._extra)


class _OpenOther:
    __slots__ = ("_block", "_grown", "_pieces")

    def __init__(self, block: JsonObject) -> None:
        self._block = block
        self._grown: dict[str, list[str]] = {}
        """The pieces of the texts that grow."""
        self._pieces: list[str] = []

    def add(self, delta: JsonObject) -> TextPart | ThinkingPart | InputPart | None:
        # Every kind of delta known so far names the field that it extends.
        for key, value in delta.items():
            if key == "partial_json":
                self._pieces.append(as_text(value))
            elif key != "type":
                before = self._block.get(key)
                if isinstance(before, str) and isinstance(value, str):
                    self._grown.setdefault(key, [before]).append(value)
                else:
                    self._block[key] = value
                    self._grown.pop(key, None)
        return None

    def finish(self) -> Block:
        self._block |= {key: "".join(pieces) for key, pieces in self._grown.items()}
        if self._block.get("type") == "redacted_thinking":
            return RedactedThinking(as_text(self._block.get("data")), PROVIDER)
        raw = "".join(self._pieces)
        block: dict[str, object] = {**self._block}
        if is_object(raw):
            block["input"] = orjson.Fragment(raw)
        return Opaque(PROVIDER, write_json(block).decode())

"""Chat Completions answers as parts: a chunk of an event stream at a time, or one document at once.

Servers differ in what they leave out, so whatever can be told without it is: the index and the id of a call, the
arguments in pieces or whole, `stop` said where calls were made, or no reason to stop at all. An answer is complete when
that reason came, or `[DONE]`, or the whole document. Unknown fields are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, Literal

from pydantic import JsonValue

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.model import (
    MAX_BLOCKS,
    BlockFinished,
    InputPart,
    Part,
    ResponseFinished,
    TextPart,
    ThinkingPart,
    UsageSeen,
)
from journeyman.models.decoding import Decoder, stop_of
from journeyman.models.error_reports import error_within, find_error
from journeyman.models.wire import is_object, make_damage_error, own_id, parse_object, repeats, split_input, tool_use
from journeyman.types import Block, JsonObject, Opaque, RedactedThinking, StopReason, Text, Thinking, Usage

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
# Gemini's endpoint sends the signature of a call in it, and refuses late models' calls that come back without.
_KEPT_WITH_CALL: Final = "extra_content"
_LEAST_CHUNK_BYTES: Final = 32  # most chunks are longer, and are not compared with `[DONE]`
_TOLD_BY_CHARS: Final = 16_384
"""Longer arguments that come in pieces are not read again with each piece to see whether they are complete."""
_CACHED_ELSEWHERE: Final = ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
"""Where DeepSeek, Mistral and Moonshot tell the tokens that were read from the cache."""
_GROWING_DETAILS: Final = ("text", "summary", "data")


@dataclass(slots=True, repr=False, eq=False)
class ChatDecoder(Decoder):
    """A decoder that turns the chunks of one answer into parts."""

    provider: str
    """Whose reasoning it is."""
    _: KW_ONLY
    tells_cost: bool = False
    """Whether the cost that the answer tells is in US dollars; if not, it may be anything."""
    web_searches: int | None = None
    """How many searches were asked for: the answer does not tell."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The tools that the service knows by another name, by that."""
    finds_thoughts: bool = False
    """True for a server that may leave the tags of its model's reasoning in the text."""
    _text: list[str] = field(default_factory=list[str], init=False)
    _refusal: list[str] = field(default_factory=list[str], init=False)
    _reasoning: list[str] = field(default_factory=list[str], init=False)
    _tags: ThoughtTags = field(default_factory=lambda: ThoughtTags(), init=False)
    _details: list[JsonObject] = field(default_factory=list[JsonObject], init=False)
    _annotations: list[JsonValue] = field(default_factory=list[JsonValue], init=False)
    _executed: dict[JsonValue, JsonObject] = field(default_factory=dict[JsonValue, JsonObject], init=False)
    """What Groq's own tools did, by index: it comes in pieces, the arguments before the output."""
    _calls: _Calls = field(default_factory=lambda: _Calls(), init=False)
    _usage: JsonObject = field(default_factory=dict[str, JsonValue], init=False)
    _finish_reason: str | None = field(default=None, init=False)
    _stop_sequence: str | None = field(default=None, init=False)

    def parts(self, events: Iterable[tuple[bytes, bytes]]) -> Iterator[Part]:
        for name, data in events:
            yield from self.feed(data, is_error=name == b"error")

    def feed(self, data: bytes, *, is_error: bool = False) -> Sequence[Part]:
        """Return the parts that an event's data brings. What follows the last part is ignored.

        Raises:
            ProviderError: the event reports an error, or is damaged.
        """
        if self.complete:
            return ()
        if len(data) < _LEAST_CHUNK_BYTES and data.strip() == b"[DONE]":
            return self._end()
        chunk = parse_object(data)
        if is_error or "error" in chunk or "choices" not in chunk:
            error = chunk.get("error") if "choices" in chunk else find_error(chunk)
            if error or is_error:
                raise error_within(error or chunk)
        parts: list[Part] = []
        # Azure begins with a chunk about its filters, in which everything else is empty.
        if not self._started and (chunk.get("choices") or chunk.get("id") or chunk.get("model")):
            parts.append(self._begin(chunk.get("model"), chunk.get("id")))
        for choice in as_list(chunk.get("choices")):
            self._read_choice(as_object(choice), parts)
            if self.room.chars < 0:
                self.room.check()
        # Groq tells the usage of a stream in a field of its own.
        if told := chunk.get("usage") or as_object(chunk.get("x_groq")).get("usage"):
            usage = as_object(told)  # totals so far: later ones replace
            if any(isinstance(usage.get(name), int) for name in ("prompt_tokens", "completion_tokens")):
                self._usage = usage
                parts.append(UsageSeen(self.usage() or Usage(requests=1, exact=False)))
        return parts

    def document(self, data: bytes) -> Sequence[Part]:
        """Return the parts of an answer that came in one piece.

        Raises:
            ProviderError: the document reports an error, or is no answer.
        """
        completion = parse_object(data)
        parts = self.feed(data)
        choices = [as_object(choice) for choice in as_list(completion.get("choices"))]
        # Azure leaves the message out where its filter took all of it.
        if not any(isinstance(choice.get("message"), dict) or choice.get("finish_reason") for choice in choices):
            raise make_damage_error("it is not a chat completion", "unknown")
        return [*parts, *self._end()]

    def end(self) -> Sequence[Part]:
        return Decoder.end(self) if self.complete or self._finish_reason is None else self._end()

    def _reported_usage(self) -> Usage | None:
        if not self._usage:
            return None
        usage = usage_of_answer(self._usage, tells_cost=self.tells_cost)
        return usage if self.web_searches is None else replace(usage, web_searches=self.web_searches)

    def unfinished_text(self) -> str:
        return "" if self.deltas else "".join(self._text)

    def _end(self) -> Sequence[Part]:
        """Return the last parts of an answer that is complete, also without a reason to stop."""
        if not self._started:
            raise make_damage_error("it is empty")
        self.complete = True
        self._calls.all[:] = [call for call in self._calls.all if not call.is_empty]
        parts: list[Part] = []
        self._add_both(*self._tags.end(), parts)
        stop_reason, detail = self._stop(self._finish_reason or "stop")
        return (*parts, *[BlockFinished(block) for block in self._blocks()], ResponseFinished(stop_reason, detail))

    def _read_choice(self, choice: JsonObject, parts: list[Part]) -> None:
        if choice.get("index"):
            return  # `n` is not asked for
        if error := choice.get("error"):
            raise error_within(error)
        delta = as_object(choice.get("delta") or choice.get("message"))
        if len(delta) > 1:
            # In the order in which the model wrote them: reasoning first.
            delta = {key: delta[key] for key in _REASONING_FIELDS if key in delta} | delta
        for key, value in delta.items():
            if not value:
                continue
            if key == "content" and isinstance(value, str) and not self.finds_thoughts:
                self._text.append(value)
                self.room.chars -= len(value)
                if self.deltas:
                    parts.append(TextPart(value))
            elif key != "role":
                self._read_field(key, value, delta, parts)
        if reason := as_text(choice.get("finish_reason")):
            self._finish_reason = reason
            self._stop_sequence = as_text(choice.get("stop_reason")) or None

    def _read_field(self, key: str, value: JsonValue, delta: JsonObject, parts: list[Part]) -> None:
        """Take in a field of a message; one that is not known here is ignored."""
        match key:
            # Servers that changed the name of the field send the same text in both.
            case "reasoning" if delta.get("reasoning_content"):
                return
            case "reasoning_content" | "reasoning":
                self._add(self._reasoning, as_text(value), parts, ThinkingPart)
            case "content" if isinstance(value, str):
                self._add_both(*self._tags.split(value), parts)
            case "content":
                listed = [as_object(part) for part in as_list(value)]
                thoughts = [_read_thinking(part.get("thinking")) for part in listed if part.get("type") == "thinking"]
                texts = [as_text(part.get("text")) for part in listed if part.get("type") == "text"]
                self._add_both("".join(thoughts), "".join(texts), parts)
            case "refusal":
                self._add(self._refusal, as_text(value), parts, TextPart)
            case "tool_calls":
                self._read_calls([as_object(call) for call in as_list(value)], parts)
            # The form of a call before there were several in one answer.
            case "function_call":
                self._read_calls([{"index": key, "function": value}], parts)
            case "reasoning_details" | "annotations" | "executed_tools":
                self._keep(key, as_list(value))
            case _:
                return

    def _keep(self, key: str, told: Sequence[JsonValue]) -> None:
        """Store the items of a field that stands beside the words: details of reasoning, annotations, or tools that the
        service ran."""
        if key == "reasoning_details":
            self.room.chars -= len(write_json(told))
        else:
            self.room.other -= len(write_json(told))
        self.room.check()
        match key:
            case "reasoning_details":
                _add_details(self._details, told)
            case "annotations":
                self._annotations += told
            case _:
                for number, tool in enumerate(map(as_object, told)):
                    index = tool.get("index")
                    known = self._executed.setdefault(index if isinstance(index, int) else number, {})
                    known.update({name: each for name, each in tool.items() if each is not None})

    def _read_calls(self, deltas: Sequence[JsonObject], parts: list[Part]) -> None:
        if self.finds_thoughts:
            self._add_both(*self._tags.end(), parts)  # no more of a tag can come
        for delta in deltas:
            part = self._calls.add(delta, self.names)
            self.room.chars -= len(part.json) if part is not None else len(delta)
            if len(self._calls.all) > MAX_BLOCKS:
                self.room.n_blocks = -1
                self.room.check()
            if part is not None and self.deltas:
                parts.append(part)

    def _add(self, pieces: list[str], text: str, parts: list[Part], kind: type[TextPart] | type[ThinkingPart]) -> None:
        if text:
            pieces.append(text)
            self.room.chars -= len(text)
            if self.deltas:
                parts.append(kind(text))

    def _add_both(self, thought: str, said: str, parts: list[Part]) -> None:
        self._add(self._reasoning, thought, parts, ThinkingPart)
        self._add(self._text, said, parts, TextPart)

    def _blocks(self) -> list[Block]:
        blocks = [self._thinking()]
        if self._executed:
            told = {"type": "executed_tools", "executed_tools": [*self._executed.values()]}
            blocks.append(Opaque(self.provider, write_json(told).decode()))
        if text := "".join(self._text):
            blocks.append(Text(text, extra={"annotations": self._annotations} if self._annotations else None))
        if refusal := "".join(self._refusal):
            blocks.append(Text(refusal, extra={"refusal": True}))
        return [block for block in blocks if block is not None] + [
            call.finish(self.provider) for call in self._calls.all
        ]

    def _thinking(self) -> Block | None:
        text = "".join(self._reasoning)
        details = write_json(self._details).decode() if self._details else None
        if text:
            return Thinking(text, details, self.provider)
        return RedactedThinking(details, self.provider) if details else None

    def _stop(self, reason: str) -> tuple[StopReason, str | None]:
        """Return why the model stopped. Where the server's word is that it stopped by itself, the calls, the refusal or
        the stop sequence in the answer say more."""
        told, detail = stop_of(reason, has_calls=bool(self._calls.all))
        if told not in ("end_turn", "stop_sequence"):
            return told, detail
        if self._refusal:
            return "refusal", None
        return (told, None) if self._stop_sequence is None else ("stop_sequence", self._stop_sequence)


def _read_thinking(value: JsonValue | None) -> str:
    return as_text(value) or "".join([as_text(as_object(part).get("text")) for part in as_list(value)])


def _add_details(details: list[JsonObject], added: Sequence[JsonValue]) -> None:
    """Add pieces of `reasoning_details`: one with the index and type of the last one belongs to it."""
    for detail in map(as_object, added):
        last = details[-1] if details else None
        if last is None or last.get("type") != detail.get("type") or last.get("index") != detail.get("index"):
            details.append(detail)
            continue
        for key, value in detail.items():
            before = last.get(key)
            if key in _GROWING_DETAILS and isinstance(before, str) and isinstance(value, str):
                last[key] = before + value
            elif value is not None:
                last[key] = value


@dataclass(slots=True)
class ThoughtTags:
    """A splitter that parts the reasoning from a text which begins with it: `<think>…</think>`, cut anywhere."""

    _place: Literal["start", "thought", "gap", "text"] = "start"
    _held: str = ""
    """The last characters, which may be the beginning of a tag."""

    def split(self, text: str) -> tuple[str, str]:
        """Return what a piece of the text adds to the reasoning, and to the answer."""
        text, self._held = self._held + text, ""
        thought = ""
        if self._place == "start":
            inner = text.lstrip()
            if _THINK.startswith(inner[: len(_THINK)]) and len(inner) < len(_THINK):
                self._held = text
                return "", ""
            self._place, text = ("thought", inner[len(_THINK) :]) if inner.startswith(_THINK) else ("text", text)
        if self._place == "thought":
            thought, end, text = text.partition(_THOUGHT)
            if not end:
                n_held = next((n for n in range(len(_THOUGHT) - 1, 0, -1) if thought.endswith(_THOUGHT[:n])), 0)
                self._held = thought[len(thought) - n_held :]
                return thought[: len(thought) - n_held], ""
            self._place = "gap"
        if self._place == "gap":
            text = text.lstrip()
            self._place = "text" if text else "gap"
        return thought, text

    def end(self) -> tuple[str, str]:
        """Return what is held back when the text has ended."""
        held, self._held = self._held, ""
        return (held, "") if self._place == "thought" else ("", held)


_THINK: Final = "<think>"
_THOUGHT: Final = "</think>"


@dataclass(slots=True)
class _WrittenCall:
    id: str
    wire_id: str | None
    told_id: str
    name: str
    pieces: list[str] = field(default_factory=list[str])
    extra: JsonObject = field(default_factory=dict[str, JsonValue])
    """What the service wants back with the call, such as Gemini's signature of the thought that led to it."""

    @property
    def is_empty(self) -> bool:
        """True for what some servers send in place of no call: neither a name nor arguments."""
        return not self.name.strip() and "".join(self.pieces).strip() in ("", "{}")

    def finish(self, provider: str) -> Block:
        extra: JsonObject | None = {provider: self.extra} if self.extra else None
        return tool_use(self.id, self.name, "".join(self.pieces), wire_id=self.wire_id, extra=extra)


@dataclass(slots=True, repr=False, eq=False)
class _Calls:
    """The calls of one answer, in the order in which they began."""

    all: list[_WrittenCall] = field(default_factory=list[_WrittenCall])
    _by_index: dict[JsonValue, _WrittenCall] = field(default_factory=dict[JsonValue, _WrittenCall])
    _ids: set[str] = field(default_factory=set[str])

    def add(self, delta: JsonObject, names: Mapping[str, str]) -> InputPart | None:
        """Take in a call, or a piece of one."""
        function = as_object(delta.get("function") or delta.get("custom"))
        given = function.get("arguments", function.get("input"))
        # Some servers send the arguments as an object, where the API has a text.
        arguments = write_json(given).decode() if isinstance(given, dict) else as_text(given)
        name = as_text(function.get("name"))
        call = self._call(delta, names.get(name, name), arguments)
        if (more := delta.get(_KEPT_WITH_CALL)) is not None:
            call.extra[_KEPT_WITH_CALL] = more
        if not arguments:
            return None
        call.pieces.append(arguments)
        return InputPart(call.id, call.name, arguments)

    def _call(self, delta: JsonObject, name: str, arguments: str) -> _WrittenCall:
        index, id = delta.get("index"), as_text(delta.get("id"))
        index = index if isinstance(index, int | str) else None
        last = self.all[-1] if self.all and id in ("", self.all[-1].told_id) else None
        known = self._by_index.get(index) if index is not None else last
        if known is None or _begins_another(known, id=id, name=name, arguments=arguments):
            own, wire_id = own_id(id, self._ids)
            known = _WrittenCall(own, wire_id, id, name)
            self.all.append(known)
            if index is not None:
                self._by_index[index] = known
        elif not known.name:
            known.name = name
        return known


def _begins_another(known: _WrittenCall, *, id: str, name: str, arguments: str) -> bool:
    """Return whether a piece at the place of a known call is another call: some servers number all of them 0.

    A piece that goes on names no function, or the same and repeats the id; without an id, the arguments so far tell.
    """
    if not name or not known.name:
        return False
    if id:
        return id != known.told_id
    is_long = len(known.pieces) > 1 and sum(map(len, known.pieces)) > _TOLD_BY_CHARS
    if name != known.name or not arguments or is_long:
        return name != known.name
    before = "".join(known.pieces)
    return is_object(before) and not repeats(arguments, before)


def usage_of_answer(told: JsonObject, *, tells_cost: bool) -> Usage:
    """Return the usage in `told`, the field `usage` of an answer; its cost only where that is in US dollars."""
    prompt, completion = told.get("prompt_tokens"), told.get("completion_tokens")
    inside, outside = as_object(told.get("prompt_tokens_details")), as_object(told.get("completion_tokens_details"))
    read, written = _count_of(inside, "cached_tokens"), _count_of(inside, "cache_write_tokens")
    for name in _CACHED_ELSEWHERE:
        read = _count_of(told, name) if read is None else read
    reasoning = _count_of(outside, "reasoning_tokens")
    total, output = told.get("total_tokens"), completion if isinstance(completion, int) else 0
    if reasoning and isinstance(prompt, int) and total == prompt + output + reasoning:
        output += reasoning  # xAI counts the answer alone
    rest, written, fits = split_input(prompt if isinstance(prompt, int) else 0, read, written)
    return Usage(
        requests=1,
        input_tokens=rest,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        cost=_billed_cost(told) if tells_cost else None,
        exact=fits and isinstance(prompt, int) and isinstance(completion, int),
    )


def _count_of(details: JsonObject, name: str) -> int | None:
    count = details.get(name)
    return count if isinstance(count, int) else None


def _billed_cost(told: JsonObject) -> float | None:
    """Return the cost that was billed, in US dollars. Where the user's own key for the provider served (`is_byok`),
    `cost` is only the fee for passing on, and the provider's bill comes on top; without a word on that the whole is
    unknown."""
    cost = _dollars(told.get("cost"))
    if cost is None or told.get("is_byok") is not True:
        return cost
    upstream = _dollars(as_object(told.get("cost_details")).get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _dollars(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None

"""Answers of `generateContent` as parts: a state machine fed with one chunk at a time, without waiting or input of its
own.

A chunk is a whole `GenerateContentResponse` with the next pieces. A signature is kept in the `Thinking` before the
block that carried it, of whose model it names as its provider: no other model takes it. Parts of kinds that this
library has no class for are kept as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import UnusableAnswer
from journeyman.model import BlockFinished, InputPart, Part, ResponseFinished, TextPart, ThinkingPart, UsageSeen
from journeyman.models.decoding import Decoder, stop_of
from journeyman.models.error_reports import error_within, find_error
from journeyman.models.wire import all_parsed, make_damage_error, own_id, parse_object, tool_use
from journeyman.types import Block, JsonObject, Opaque, Text, Thinking, Usage

PROVIDER: Final = "google"
_BESIDE: Final = ("groundingMetadata", "urlContextMetadata", "logprobsResult")
"""What stands beside the parts of an answer: searches, pages that were read, how likely the words were. Each becomes a
block of that kind."""
_OWN_FIELDS: Final = frozenset(("candidates", "promptFeedback", "usageMetadata"))
_NUMBERS: Final[Mapping[object, str]] = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
"""What a gateway writes that asks for enums as numbers."""
_COUNTS: Final = ("promptTokenCount", "cachedContentTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
# Fields that say something about the part; the others say what it is.
_ABOUT_PARTS: Final = frozenset({"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"})


@dataclass(slots=True, repr=False, eq=False)
class GoogleDecoder(Decoder):
    """A decoder that turns the chunks of one answer into parts."""

    owner: str
    """Whose signatures these are: `google:` and the model's name."""
    _is_exact: bool = field(default=False, init=False)
    _kind: Literal["text", "thought"] | None = field(default=None, init=False)
    """Of the block that still grows."""
    _pieces: list[str] = field(default_factory=list[str], init=False)
    _signed: tuple[str, int] | None = field(default=None, init=False)
    """The signature within the text that still grows, and the number of the character where its part began."""
    _hosted: Counter[str] = field(default_factory=Counter[str], init=False)
    """How often each tool of the provider's own was called."""
    _beside: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject], init=False)
    """What was told beside the parts, by the names of `_BESIDE`."""
    _calls: bool = field(default=False, init=False)
    _has_blocks: bool = field(default=False, init=False)

    def parts(self, events: Iterable[tuple[bytes, bytes]]) -> Iterator[Part]:
        for chunk in all_parsed([data for _, data in events]):
            yield from self.take(chunk)

    def document(self, data: bytes) -> list[Part]:
        """Return the parts of an answer that came in one piece: one object, or a list of the chunks of a stream.

        Raises:
            ProviderError: the document reports an error, or is no answer.
        """
        # Where a gateway drops `alt=sse`, a stream is one list of all its chunks.
        if data.lstrip()[:1] == b"[":
            chunks = [as_object(chunk) for chunk in as_list(parse_object(b'{"chunks":%b}' % data).get("chunks"))]
        else:
            chunks = [parse_object(data)]
        parts = [part for chunk in chunks for part in self.take(chunk)]
        if not any(chunk.keys() & _OWN_FIELDS for chunk in chunks):
            raise make_damage_error("it is not an answer of generateContent", "unknown")
        return [*parts, *self.end()]

    def take(self, chunk: JsonObject) -> list[Part]:
        """Return the parts that a chunk brings.

        Raises:
            ProviderError: the chunk reports an error, is damaged, or has a call that cannot be made.
        """
        if self.complete:
            return []
        if ("error" in chunk or not chunk.keys() & _OWN_FIELDS) and (error := find_error(chunk)):
            raise error_within(error)
        counted = self._count(as_object(chunk.get("usageMetadata")))
        parts: list[Part] = []
        if not self._started:
            parts.append(self._begin(chunk.get("modelVersion"), chunk.get("responseId")))
        # Nobody asks for more than one candidate, and the parts of two would not be one answer.
        first = [each for each in map(as_object, as_list(chunk.get("candidates"))) if not each.get("index")]
        candidate = first[0] if first else {}
        for part in as_list(as_object(candidate.get("content")).get("parts")):
            self._take_part(as_object(part), parts)
        for name in _BESIDE:
            self._keep_beside(name, as_object(candidate.get(name)))
        counted = self._ground(as_object(candidate.get("groundingMetadata"))) or counted
        if counted and (usage := self.usage()) is not None:
            parts.append(UsageSeen(usage))
        reason = candidate.get("finishReason")
        if reason is not None and reason != "FINISH_REASON_UNSPECIFIED":
            self._finish(_NUMBERS.get(reason, str(reason)), as_text(candidate.get("finishMessage")), parts)
        # A blocked prompt brings no candidate, and so no reason to stop: nothing else ends this answer.
        elif blocked := as_text(as_object(chunk.get("promptFeedback")).get("blockReason")):
            self._close_block(parts)
            parts.append(ResponseFinished("refusal", blocked))
            self.complete = True
        return parts

    def end(self) -> Sequence[Part]:
        if self._started and not self.complete and not self._has_blocks and self._kind is None:
            raise make_damage_error("it has no candidates, and does not say why")
        return Decoder.end(self)  # a whole answer has said why it ended

    def _reported_usage(self) -> Usage | None:
        if not self._counts:
            return None
        # Cached tokens are counted within the prompt; those of the provider's tools beside it, and thoughts beside the
        # answer.
        prompt, cached, thoughts, tools = [self._counts.get(name, 0) for name in _COUNTS]
        return Usage(
            requests=1,
            input_tokens=prompt - min(cached, max(0, prompt)) + tools,
            output_tokens=self._counts["candidatesTokenCount"] + thoughts,
            cache_read_tokens=cached,
            reasoning_tokens=thoughts,
            web_searches=self._hosted["webSearchQueries"] or None,
            code_executions=self._hosted["executableCode"] or None,
            file_searches=self._hosted["retrievedContext"] or None,
            exact=self._is_exact and cached <= prompt,
        )

    def unfinished_text(self) -> str:
        return "" if self.deltas or self._kind != "text" else "".join(self._pieces)

    def _count(self, told: JsonObject) -> bool:
        """Take over the counts: each chunk has them all, and leaves out those that are 0. False for nothing new."""
        counts = {name: count for name, count in told.items() if type(count) is int}
        total, prompt = counts.get("totalTokenCount"), counts.get("promptTokenCount")
        if total is None and counts.keys().isdisjoint((*_COUNTS, "candidatesTokenCount")):
            return False
        cached, thoughts, tools = [counts.get(name, 0) for name in _COUNTS[1:]]
        said = counts.get("candidatesTokenCount")
        # The last chunk may lack the count of the answer, although a text came: the rest of the total, or what was told
        # before, stands for it.
        if said is None:
            rest = 0 if total is None else max(0, total - (prompt or 0) - thoughts - tools)
            said = max(rest, self._counts.get("candidatesTokenCount", 0))
        before, was_exact = self._counts, self._is_exact
        known_prompt = before.get("promptTokenCount", 0) if prompt is None else prompt
        self._counts = dict(zip(_COUNTS, (known_prompt, cached, thoughts, tools), strict=True))
        self._counts["candidatesTokenCount"] = said
        self._is_exact = prompt is not None and (total is not None or "candidatesTokenCount" in counts)
        return self._counts != before or self._is_exact != was_exact

    def _keep_beside(self, name: str, told: JsonObject) -> None:
        """Keep what a chunk tells beside its parts: lists of pages and of words go on, others are told again."""
        if not told:
            return
        known = self._beside.setdefault(name, {})
        self.room.other -= len(write_json(told))
        self.room.check()
        for key, value in told.items():
            before = known.get(key)
            goes_on = name != "groundingMetadata" and isinstance(before, list) and isinstance(value, list)
            known[key] = [*as_list(before), *as_list(value)] if goes_on else value

    def _ground(self, told: JsonObject) -> bool:
        """Take in what is told of searches; False if it is nothing."""
        queries = [query for query in as_list(told.get("webSearchQueries")) if query]
        self._hosted["webSearchQueries"] = max(self._hosted["webSearchQueries"], len(queries))
        chunks = [as_object(chunk) for chunk in as_list(told.get("groundingChunks"))]
        is_of_files = told.get("retrievalQueries") or any("retrievedContext" in chunk for chunk in chunks)
        self._hosted["retrievedContext"] |= int(bool(is_of_files))
        return bool(told)

    def _take_part(self, part: JsonObject, parts: list[Part]) -> None:
        signature, kinds = as_text(part.get("thoughtSignature")), part.keys() - _ABOUT_PARTS
        if kinds <= {"text"}:
            self._take_text(as_text(part.get("text")), signature, parts, is_thought=part.get("thought") is True)
        elif "functionCall" in kinds:
            if self._kind != "thought":
                self._close_block(parts)
                self._add_signature(signature, parts)
            self._close_block(parts, signature)
            self._take_call(as_object(part["functionCall"]), parts)
        else:
            self._close_block(parts)
            self._hosted[min(kinds)] += 1
            block = Opaque(self.owner, write_json({"type": min(kinds), **part}).decode())
            self.room.other -= len(block.json)
            self._add(block, parts)

    def _take_text(self, text: str, signature: str, parts: list[Part], *, is_thought: bool) -> None:
        if self._kind == "thought" and not is_thought and signature:
            self._close_block(parts, signature)  # encoded, it is in the part that follows the thought
            signature = ""
        elif self._kind is not None and (text or signature) and (self._kind == "thought") != is_thought:
            self._close_block(parts)
        if signature and self._kind == "text" and text and self._signed is None:
            self._signed = (signature, sum(map(len, self._pieces)))
        elif signature:
            self._close_block(parts)
            self._add_signature(signature, parts)
            self._signed = ("", 0) if text else None  # another one begins another block
        if not text:
            return
        self._kind = "thought" if is_thought else "text"
        self._pieces.append(text)
        self.room.chars -= len(text)
        if self.room.chars < 0:
            self.room.check()
        if self.deltas:
            parts.append(ThinkingPart(text) if is_thought else TextPart(text))

    def _take_call(self, call: JsonObject, parts: list[Part]) -> None:
        name = as_text(call.get("name"))
        if call.get("partialArgs") or call.get("willContinue"):
            raise UnusableAnswer(f"its call of {name!r} comes in pieces, which was not asked for")
        if not name:
            raise UnusableAnswer("it has a call without a name")
        id, wire_id = own_id(as_text(call.get("id")), self._ids)
        # Vertex was seen to leave the arguments out where there are none.
        given = call.get("args")
        written = given if isinstance(given, str) else write_json({} if given is None else given).decode()
        block = tool_use(id, name, written, wire_id=wire_id)
        self.room.chars -= len(written)
        if self.deltas:
            parts.append(InputPart(id, name, written))
        self._calls = True
        self._add(block, parts)

    def _close_block(self, parts: list[Part], signature: str = "") -> None:
        """Finish the block that grew, if there is one; a thought with the signature of the part that follows it."""
        kind, text, signed = self._kind, "".join(self._pieces), self._signed
        self._kind, self._signed = None, None
        self._pieces.clear()
        if kind == "thought":
            self._add(Thinking(text, signature or None, self.owner), parts)
        elif kind == "text" and signed is None:
            self._add(Text(text), parts)
        elif kind == "text" and signed is not None:
            self._add_signature(signed[0], parts)
            self._add(Text(text, extra={PROVIDER: {"signed_from": signed[1]}} if signed[1] else None), parts)

    def _add_signature(self, signature: str, parts: list[Part]) -> None:
        if signature:
            self.room.other -= len(signature)
            self._add(Thinking("", signature, self.owner), parts)

    def _add(self, block: Block, parts: list[Part]) -> None:
        self.room.n_blocks -= 1
        self.room.check()
        self._has_blocks = True
        parts.append(BlockFinished(block))

    def _finish(self, reason: str, message: str, parts: list[Part]) -> None:
        self._close_block(parts)
        for name, told in self._beside.items():
            self._add(Opaque(self.owner, write_json({"type": name, name: told}).decode()), parts)
        self.complete = True
        stop, detail = stop_of(reason, has_calls=self._calls)
        if self._calls and reason == "UNEXPECTED_TOOL_CALL":
            stop, detail = "tool_use", None
        elif stop == "other" and message:
            detail = f"{reason}: {message}"
        parts.append(ResponseFinished(stop, detail))

"""Responses API answers as parts: a state machine fed with one event at a time, without waiting or input of its own.

An answer is a list of items. What grows is shown as it comes; a block is made of the item as it is when it is done.
Items of unknown kinds are kept as they are, and unknown events are ignored, so that a newer API does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import orjson
from pydantic import JsonValue

from journeyman.model import (
    BlockFinished,
    InputPart,
    Part,
    ResponseFinished,
    ResponseStarted,
    TextPart,
    ThinkingPart,
    UsageSeen,
)
from journeyman.models.openai.endpoint import reported_within
from journeyman.models.wire import as_list, as_object, as_text, damaged, own_id, parsed, shown, tool_use
from journeyman.types import Block, JsonObject, Opaque, Price, StopReason, Text, Thinking, ToolUse, Usage

BETWEEN_THOUGHTS: Final = "\n\n"
"""What stands between the texts of one reasoning item."""

_ID_CHARACTERS: Final = 64  # the longest id of an item that the API takes back
_PAIRED: Final = ("message", "function_call")
_KEPT_WITH_TEXT: Final = ("annotations", "logprobs")
_DONE: Final = b"[DONE]"  # ends the stream of some servers that also speak Chat Completions

_INCOMPLETE: Final[Mapping[str, tuple[StopReason, str | None]]] = {
    "content_filter": ("refusal", "content_filter"),
    "max_output_tokens": ("max_tokens", None),
}


@dataclass(slots=True, repr=False, eq=False)
class Decoder:
    """Turns the events of one answer into parts."""

    provider: str
    """Whose reasoning it is."""
    price: Price | None = None
    _: KW_ONLY
    deltas: bool = True
    """False: the pieces of items make no parts, only the blocks."""
    complete: bool = field(default=False, init=False)
    """True when the last part was given."""
    _counts: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _calls: dict[int, ToolUse] = field(default_factory=dict[int, ToolUse], init=False)
    """The calls that have begun: their ids and names only."""
    _ids: set[str] = field(default_factory=set[str], init=False)
    _shown: set[int] = field(default_factory=set[int], init=False)
    _thought: tuple[JsonValue, ...] = field(default=(), init=False)
    _reasoning: JsonObject | None = field(default=None, init=False)
    _pair: str = field(default="", init=False)
    _n_added: int = field(default=0, init=False)
    _n_done: int = field(default=0, init=False)
    _refused: bool = field(default=False, init=False)
    _started: bool = field(default=False, init=False)

    def parts(self, events: Iterable[tuple[bytes, bytes]]) -> Iterator[Part]:
        """Yield the parts that some events bring, up to the last part of the answer; see `feed`."""
        for name, data in events:
            if self.complete:
                return
            if self.deltas or not name.endswith(b".delta"):
                yield from self.feed(data)

    def feed(self, data: bytes) -> Sequence[Part]:
        """Return the parts that an event's data brings.

        Raises:
            ProviderError: the event reports an error, or is damaged.
        """
        if data == _DONE:
            return ()
        event = parsed(data)
        kind = as_text(event.get("type"))
        if kind.endswith(".delta"):
            return self._piece(kind, event) if self.deltas else ()
        parts: Sequence[Part] = ()
        match kind:
            case "response.output_item.added":
                parts = self._add(event)
            case "response.output_item.done":
                parts = self._finish_item(event)
            case "response.created" | "response.in_progress" | "response.queued":
                parts = self._start(as_object(event.get("response")))
            case "response.completed" | "response.incomplete" | "response.failed":
                parts = self._finish(as_object(event.get("response")), kind.removeprefix("response."))
            case "error":
                raise reported_within(event.get("error") or {key: event.get(key) for key in ("code", "message")})
            case "" if error := event.get("error"):
                raise reported_within(error)
            case _:
                pass
        return parts

    def document(self, data: bytes) -> list[Part]:
        """Return the parts of an answer that came in one piece.

        Raises:
            ProviderError: the document reports an error, or is no answer.
        """
        response = parsed(data)
        if "output" not in response and (error := response.get("error")):
            raise reported_within(error)
        if not isinstance(response.get("output"), list):
            raise damaged("it is no response", "unknown")
        return [*self._start(response), *self._finish(response, as_text(response.get("status")) or "completed")]

    def end(self) -> Sequence[Part]:
        """Return what is left to say when the events have ended: nothing.

        Raises:
            ProviderError: the answer was not complete.
        """
        if not self.complete:
            raise damaged("it ended before it was complete" if self._started else "it is empty")
        return ()

    def usage(self) -> Usage | None:
        """Return what the answer has reported as used; None before it has reported anything."""
        counts = self._counts
        if not counts:
            return None
        read, written = counts.get("cached_tokens"), counts.get("cache_write_tokens")
        usage = Usage(
            requests=1,
            input_tokens=max(0, counts.get("input_tokens", 0) - (read or 0) - (written or 0)),
            output_tokens=counts.get("output_tokens", 0),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=counts.get("reasoning_tokens"),
            exact="input_tokens" in counts and "output_tokens" in counts,
        )
        return usage if self.price is None else self.price.charged(usage)

    def _start(self, response: JsonObject) -> Sequence[Part]:
        if self._started:
            return ()
        self._started = True
        usage = self.usage() or Usage(requests=1, exact=False)
        return (ResponseStarted(as_text(response.get("model")), as_text(response.get("id")), usage),)

    def _finish(self, response: JsonObject, status: str) -> Sequence[Part]:
        if not self._started:
            raise damaged("it has no beginning")
        self._count(response)
        if status == "failed":
            raise reported_within(response.get("error"))
        parts: list[Part] = []
        for index, item in enumerate(as_list(response.get("output"))[self._n_done :], self._n_done):
            parts += self._finish_item({"output_index": index, "item": item})
        if status == "completed" and self._n_added > self._n_done:
            raise damaged(f"item {self._n_done} was begun and never finished")
        parts += self._give_reasoning({})
        if (usage := self.usage()) is not None:
            parts.append(UsageSeen(usage))
        self.complete = True
        return [*parts, ResponseFinished(*self._stop(status, as_object(response.get("incomplete_details"))))]

    def _stop(self, status: str, details: JsonObject) -> tuple[StopReason, str | None]:
        if status == "incomplete":
            reason = as_text(details.get("reason"))
            return _INCOMPLETE.get(reason, ("other", reason or status))
        if status != "completed":
            return "other", status
        if self._ids:
            return "tool_use", None
        return ("refusal" if self._refused else "end_turn"), None

    def _count(self, response: JsonObject) -> None:
        usage = as_object(response.get("usage"))
        read, written = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
        for name, holder in (
            ("input_tokens", usage),
            ("output_tokens", usage),
            ("cached_tokens", read),
            ("cache_write_tokens", read),
            ("reasoning_tokens", written),
        ):
            if isinstance(count := holder.get(name), int):
                self._counts[name] = count

    # -- pieces, for display

    def _piece(self, kind: str, event: JsonObject) -> Sequence[Part]:
        text, index = as_text(event.get("delta")), self._index(event)
        if not text:
            return ()
        part: Part
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                part = TextPart(text)
            case "response.function_call_arguments.delta" if call := self._calls.get(index):
                part = InputPart(call.id, call.name, text)
            case "response.reasoning_summary_text.delta":
                part = self._thought_part(text, (index, "summary", event.get("summary_index")))
            case "response.reasoning_text.delta":
                part = self._thought_part(text, (index, "content", event.get("content_index")))
            case _:
                return ()
        self._shown.add(index)
        return (part,)

    def _thought_part(self, text: str, place: tuple[JsonValue, ...]) -> Part:
        """Return the piece of reasoning; `place` says of which item, and of which text in it."""
        before, self._thought = self._thought, place
        goes_on_elsewhere = bool(before) and before[0] == place[0] and before != place
        return ThinkingPart(BETWEEN_THOUGHTS + text if goes_on_elsewhere else text)

    # -- items

    def _add(self, event: JsonObject) -> Sequence[Part]:
        if not self._started:
            raise damaged("it has no beginning")
        item = as_object(event.get("item"))
        self._n_added += 1
        if item.get("type") == "function_call":
            self._calls[self._index(event)] = _open_call(item, self._ids)
        return self._give_reasoning(item)

    def _finish_item(self, event: JsonObject) -> Sequence[Part]:
        if not self._started:
            raise damaged("it has no beginning")
        item, index = as_object(event.get("item")), self._index(event)
        parts = [*self._give_reasoning(item)]
        self._n_done += 1
        blocks = self._blocks(item, index)
        if self.deltas and index not in self._shown:
            visible = (Thinking(thoughts(item)),) if self._reasoning is item else blocks
            parts += [part for block in visible if (part := shown(block)) is not None]
        return [*parts, *map(BlockFinished, blocks)]

    def _index(self, event: JsonObject) -> int:
        """Return the number of the item that an event is about; without one it is the item that is not done yet."""
        index = event.get("output_index")
        return index if isinstance(index, int) else self._n_done

    def _blocks(self, item: JsonObject, index: int) -> Sequence[Block]:
        """Return the blocks of an item; none for reasoning, which waits for what follows it."""
        match item.get("type"):
            case "message":
                blocks = texts(item, self._pair, self.provider)
                refused = [block for block in blocks if isinstance(block, Text) and "refusal" in (block.extra or {})]
                self._refused = self._refused or bool(refused)
                return blocks
            case "function_call":
                call = self._calls.pop(index, None) or _open_call(item, self._ids)
                name = as_text(item.get("name")) or call.name
                return (tool_use(call.id, name, as_text(item.get("arguments")), wire_id=call.wire_id),)
            case "reasoning":
                self._reasoning = item
                return ()
            case str():
                return (opaque(item, self.provider),)
            case _:
                return ()

    def _give_reasoning(self, following: JsonObject) -> Sequence[Part]:
        """Return the block of the reasoning that is done, if there is one, now that it is known what follows it."""
        item, self._reasoning = self._reasoning, None
        if item is None:
            return ()
        pair = pair_of(following)
        block = reasoning(item, pair, self.provider)
        if block is None:
            return ()
        self._pair = pair
        return (BlockFinished(block),)


# -- items as blocks ---------------------------------------------------------------------------------------------------


def _open_call(item: JsonObject, ids: set[str]) -> ToolUse:
    """Return the call that begins, with an id that is not among `ids`, and add that."""
    id, wire_id = own_id(as_text(item.get("call_id")), ids)
    return ToolUse(id, as_text(item.get("name")), wire_id=wire_id)


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
                extra = {key: part[key] for key in _KEPT_WITH_TEXT if part.get(key)}
                extra |= {"phase": item["phase"]} if item.get("phase") else {}
                blocks.append(Text(as_text(part.get("text")), extra=extra or None))
            case "refusal":
                blocks.append(Text(as_text(part.get("refusal")), extra={"refusal": True}))
            case _:
                blocks.append(opaque({**item, "content": [content]}, provider))
    first, id = blocks[0] if blocks else None, as_text(item.get("id"))
    # Annotations go back with an id only: it is kept with the first text, if that has some.
    extra = first.extra if isinstance(first, Text) else None
    if extra and "annotations" in extra and pair != pair_of(item) and 0 < len(id) <= _ID_CHARACTERS:
        extra["id"] = id
    return [block for block in blocks if not isinstance(block, Text) or block.text]

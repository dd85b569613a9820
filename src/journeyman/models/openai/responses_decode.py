"""Responses API answers as parts: a state machine fed with one event at a time, without waiting or input of its own.

An answer is a list of items, told by their number and their id. What grows is shown as it comes; a block is made of the
item as it is when it is done, and given when all items before it are: in the provider's order, whatever that of the
events. Items of unknown kinds are kept as they are, and unknown events are ignored, so that a newer API does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from pydantic import JsonValue

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import UnusableAnswer
from journeyman.model import BlockFinished, InputPart, Part, ResponseFinished, TextPart, ThinkingPart, UsageSeen
from journeyman.models.decoding import Decoder, stop_of
from journeyman.models.error_reports import error_within, find_error
from journeyman.models.wire import make_damage_error, own_id, parse_object, part_to_show, split_input, tool_use
from journeyman.types import Block, JsonObject, Opaque, StopReason, Text, Thinking, ToolUse, Usage

BETWEEN_THOUGHTS: Final = "\n\n"
"""What stands between the texts of one reasoning item."""

_ID_CHARACTERS: Final = 64  # the longest id of an item that the API takes back
_PAIRED: Final = ("message", "function_call")
_KEPT_WITH_TEXT: Final = ("annotations", "logprobs")
_KEPT_WITH_CALL: Final = ("async", "caller", "namespace")
_COUNTS: Final = (
    ("input_tokens", "", "input_tokens"),
    ("output_tokens", "", "output_tokens"),
    ("cache_read_tokens", "input_tokens_details", "cached_tokens"),
    ("cache_write_tokens", "input_tokens_details", "cache_write_tokens"),
    ("reasoning_tokens", "output_tokens_details", "reasoning_tokens"),
)
_HOSTED: Final = {
    "web_search_call": "web_searches",
    "code_interpreter_call": "code_executions",
    "file_search_call": "file_searches",
}
_MAX_ITEMS: Final = 300
_DONE: Final = b"[DONE]"  # ends the stream of some servers that also speak Chat Completions


@dataclass(slots=True, repr=False, eq=False)
class ResponsesDecoder(Decoder):
    """A decoder that turns the events of one answer into parts."""

    provider: str
    """Whose reasoning it is."""
    _: KW_ONLY
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The tools that the service knows by another name, by that."""
    _items: _AnswerItems = field(default_factory=lambda: _AnswerItems(), init=False)
    _skipped: list[bytes] = field(default_factory=list[bytes], init=False)
    """The pieces of the text that nobody watches, as they came: they are read only if the answer breaks off."""
    _n_given: int = field(default=0, init=False)
    """How many items have been given, the first ones in the answer's order."""
    _thought: tuple[JsonValue, ...] = field(default=(), init=False)
    _pair: str = field(default="", init=False)
    _called: bool = field(default=False, init=False)
    _refused: bool = field(default=False, init=False)

    def parts(self, events: Iterable[tuple[bytes, bytes]]) -> Iterator[Part]:
        for name, data in events:
            if self.complete:
                return
            if self.deltas or not name.endswith(b".delta"):
                if len(self._items.all) > _MAX_ITEMS:
                    raise UnusableAnswer(f"it has more than {_MAX_ITEMS} items", limit=_MAX_ITEMS)
                yield from self.feed(data)
            elif name == b"response.output_text.delta":
                self._skipped.append(data)

    def feed(self, data: bytes) -> Sequence[Part]:
        """Return the parts that an event's data brings.

        Raises:
            ProviderError: the event reports an error, or is damaged.
        """
        if data == _DONE:
            return ()
        event = parse_object(data)
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
                raise error_within(event.get("error") or {key: event.get(key) for key in ("code", "message")})
            case "" if error := find_error(event):
                raise error_within(error)
            case _:
                pass
        return parts

    def document(self, data: bytes) -> list[Part]:
        """Return the parts of an answer that came in one piece.

        Raises:
            ProviderError: the document reports an error, or is no answer.
        """
        response = parse_object(data)
        if "output" not in response and (error := find_error(response)):
            raise error_within(error)
        if not isinstance(response.get("output"), list):
            raise make_damage_error("it is not a response", "unknown")
        return [*self._start(response), *self._finish(response, as_text(response.get("status")) or "completed")]

    def unfinished_text(self) -> str:
        return "".join([as_text(parse_object(data).get("delta")) for data in self._skipped])

    def _reported_usage(self) -> Usage | None:
        usage = Decoder._reported_usage(self)
        if usage is None:
            return None
        rest, written, fits = split_input(usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        return replace(usage, input_tokens=rest, cache_write_tokens=written, exact=usage.exact and fits)

    def _start(self, response: JsonObject) -> Sequence[Part]:
        if self._started:
            return ()
        return (self._begin(response.get("model"), response.get("id")),)

    def _finish(self, response: JsonObject, status: str) -> Sequence[Part]:
        self._check_begun()
        self._take_counts(_COUNTS, as_object(response.get("usage")))
        if status == "failed":
            raise error_within(response.get("error"))
        parts: list[Part] = []
        self._items.take_over([as_object(item) for item in as_list(response.get("output"))])
        if status == "completed" and (lost := self._items.list_unfinished()):
            raise make_damage_error(f"item {lost[0].index} was begun and never finished")
        parts += self._give(is_last=True)
        if (usage := self.usage()) is not None:
            parts.append(UsageSeen(usage))
        self.complete = True
        return [*parts, ResponseFinished(*self._stop(status, as_object(response.get("incomplete_details"))))]

    def _stop(self, status: str, details: JsonObject) -> tuple[StopReason, str | None]:
        if status == "incomplete":
            reason = as_text(details.get("reason"))
            return stop_of(reason, has_calls=self._called) if reason else ("other", status)
        if status != "completed":
            return "other", status
        if self._called:
            return "tool_use", None
        return ("refusal" if self._refused else "end_turn"), None

    def _piece(self, kind: str, event: JsonObject) -> Sequence[Part]:
        text = as_text(event.get("delta"))
        if not text:
            return ()
        self.room.chars -= len(text)
        if self.room.chars < 0:
            self.room.check()
        item = self._items.of(event, as_text(event.get("item_id")))
        index = None if item is None else item.index
        part: Part
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                part = TextPart(text)
            case "response.function_call_arguments.delta" if item is not None and (call := item.call):
                part = InputPart(call.id, call.name, text)
            case "response.reasoning_summary_text.delta":
                part = self._thought_part(text, (index, "summary", event.get("summary_index")))
            case "response.reasoning_text.delta":
                part = self._thought_part(text, (index, "content", event.get("content_index")))
            case _:
                return ()
        if item is not None:
            item.is_shown = True
        return (part,)

    def _thought_part(self, text: str, place: tuple[JsonValue, ...]) -> Part:
        """Return the piece of reasoning; `place` says of which item, and of which text in it."""
        before, self._thought = self._thought, place
        goes_on_elsewhere = bool(before) and before[0] == place[0] and before != place
        return ThinkingPart(BETWEEN_THOUGHTS + text if goes_on_elsewhere else text)

    def _add(self, event: JsonObject) -> Sequence[Part]:
        self._check_begun()
        fields = as_object(event.get("item"))
        item = self._items.begin(event, fields)
        if fields.get("type") == "function_call" and item.call is None:
            item.call = self._open_call(fields)
        return self._give()

    def _finish_item(self, event: JsonObject) -> Sequence[Part]:
        self._check_begun()
        self.room.other -= len(write_json(event.get("item")))  # twice what it holds at most: that is kept, too
        if self.room.other < 0:
            self.room.check()
        self._items.finish(event, as_object(event.get("item")))
        self._skipped.clear()
        return self._give()

    def _give(self, *, is_last: bool = False) -> list[Part]:
        """Return the parts of the items that are done, up to the first one that is not.

        Reasoning waits for what follows it. `is_last`: nothing comes any more.
        """
        parts: list[Part] = []
        items = self._items.in_order()
        if is_last:
            items = [item for item in items if item.is_done]
        for place, item in enumerate(items[self._n_given :], self._n_given):
            following = items[place + 1] if place + 1 < len(items) else None
            if not is_last and (not item.is_done or item.index > place):
                break
            parts += self._pieces_of(item)
            if item.kind == "reasoning" and not is_last and (following is None or following.index > place + 1):
                break
            parts += map(BlockFinished, self._blocks(item, {} if following is None else following.fields))
            self._n_given += 1
        return parts

    def _pieces_of(self, item: _Item) -> list[Part]:
        """Return the parts that show an item which came without pieces."""
        if item.is_shown or not self.deltas:
            return []
        item.is_shown = True
        visible = (Thinking(thoughts(item.fields)),) if item.kind == "reasoning" else self._contents(item)
        return [part for block in visible if (part := part_to_show(block)) is not None]

    def _blocks(self, item: _Item, following: JsonObject) -> Sequence[Block]:
        if item.kind != "reasoning":
            blocks = self._contents(item)
            refused = [block for block in blocks if isinstance(block, Text) and "refusal" in (block.extra or {})]
            self._refused = self._refused or bool(refused)
            self._called = self._called or item.kind == "function_call"
            # To open a page is no search.
            hosted = _HOSTED.get(item.kind)
            if hosted is not None and as_object(item.fields.get("action")).get("type", "search") == "search":
                self._counts[hosted] = self._counts.get(hosted, 0) + 1
            return blocks
        pair = pair_of(following)
        block = reasoning(item.fields, pair, self.provider)
        if block is None:
            return ()
        self._pair = pair
        return (block,)

    def _contents(self, item: _Item) -> Sequence[Block]:
        """Return the blocks of an item that is no reasoning."""
        match item.kind:
            case "message":
                return texts(item.fields, self._pair, self.provider)
            case "function_call":
                fields, begun = item.fields, item.call or self._open_call(item.fields)
                item.call = begun
                name, arguments = as_text(fields.get("name")), as_text(fields.get("arguments"))
                name = self.names.get(name, name) or begun.name
                kept: JsonObject = {key: fields[key] for key in _KEPT_WITH_CALL if fields.get(key) is not None}
                extra: JsonObject | None = {self.provider: kept} if kept else None
                return (tool_use(begun.id, name, arguments, wire_id=begun.wire_id, extra=extra),)
            case "":
                return ()
            case _:
                return (opaque(item.fields, self.provider),)

    def _open_call(self, item: JsonObject) -> ToolUse:
        """Return the call that begins, with an id that no other has."""
        id, wire_id = own_id(as_text(item.get("call_id")), self._ids)
        name = as_text(item.get("name"))
        return ToolUse(id, self.names.get(name, name), wire_id=wire_id)


@dataclass(slots=True, eq=False)
class _Item:
    """One item, from its first event on."""

    index: int
    id: str = ""
    fields: JsonObject = field(default_factory=dict[str, JsonValue])
    """As it was told last."""
    is_begun: bool = False
    is_done: bool = False
    is_shown: bool = False
    call: ToolUse | None = None
    """The call that has begun: its id and name only."""

    @property
    def kind(self) -> str:
        return as_text(self.fields.get("type"))


@dataclass(slots=True, repr=False, eq=False)
class _AnswerItems:
    """The items of one answer.

    Both the number and the id can be missing, and some servers count wrong or give an item another id with each event.
    So the item that an event is about is the one that both name, else the open one of that id, else of that number.
    """

    all: list[_Item] = field(default_factory=list[_Item])
    """As they came."""

    def in_order(self) -> list[_Item]:
        return sorted(self.all, key=lambda item: item.index)

    def list_unfinished(self) -> list[_Item]:
        return [item for item in self.in_order() if item.is_begun and not item.is_done]

    def of(self, event: JsonObject, id: str) -> _Item | None:
        """Return the item that an event is about, a new one if it names a number that is not known.

        Without number and id it is the item that is not done yet; None if there is none.
        """
        index = _number(event)
        if self.all and (last := self.all[-1]).index == index and last.id == id and not last.is_done:
            return last
        found = self._find_item(index, id)
        return self._new(index, id) if found is None and index is not None else found

    def begin(self, event: JsonObject, fields: JsonObject) -> _Item:
        index, id = _number(event), as_text(fields.get("id"))
        item = self._find_item(index, id) if index is not None or id else None
        if item is None or item.is_begun:
            item = self._new(index, id)
        item.id, item.fields, item.is_begun = id, fields, True
        return item

    def finish(self, event: JsonObject, fields: JsonObject) -> None:
        """Take in a whole item; one that is told a second time is the same."""
        index, id = _number(event), as_text(fields.get("id"))
        item = self._find_item(index, id)
        if item is not None and item.is_done and (id == "" or item.index != index) and item.fields != fields:
            item = None
        if item is None:
            item = self._new(index, id)
        if not item.is_done:
            item.id, item.fields, item.is_done = id or item.id, fields, True

    def take_over(self, output: Sequence[JsonObject]) -> None:
        """Take in the items as the last event lists them: what is missing, and the order."""
        left = list(enumerate(output))
        unclaimed = list(self.all)
        for likeness in (3, 2, 1):
            for place, fields in tuple(left):
                item = next((item for item in unclaimed if _likeness(item, place, fields) == likeness), None)
                if item is not None:
                    unclaimed.remove(item)
                    left.remove((place, fields))
                    _complete(item, place, fields)
        for place, fields in left:
            _complete(self._new(place, as_text(fields.get("id"))), place, fields)

    def _find_item(self, index: int | None, id: str) -> _Item | None:
        open_ones = [item for item in self.all if not item.is_done]
        if index is None and not id:
            return open_ones[0] if open_ones else None
        fits = [item for item in self.all if item.index == index and item.id == id]
        fits = fits or [item for item in open_ones if id and item.id == id]
        fits = fits or [item for item in open_ones if item.index == index]
        fits = fits or (open_ones[:1] if index is None else [])
        fits = fits or [item for item in self.all if index is None and item.id == id]
        return fits[-1] if fits else None

    def _new(self, index: int | None, id: str) -> _Item:
        if index is None:
            index = max([item.index for item in self.all], default=-1) + 1
        item = _Item(index, id)
        self.all.append(item)
        return item


def _number(event: JsonObject) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) else None


def _likeness(item: _Item, place: int, fields: JsonObject) -> int:
    """Return how surely an item is that at a place of the last event's list: 3 for number and id, 0 for not at all."""
    if item.id == as_text(fields.get("id")) and (item.id or item.index == place):
        return 3 if item.index == place else 2
    return int(item.index == place and (not item.fields or item.kind == as_text(fields.get("type"))))


def _complete(item: _Item, place: int, fields: JsonObject) -> None:
    item.index = place
    if not item.is_done:
        item.fields, item.is_done = fields, True


def opaque(item: JsonObject, provider: str) -> Opaque:
    return Opaque(provider, write_json(item).decode())


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
    signature = write_json(item).decode()
    return Thinking(text, f"{signature}\n{pair}" if pair else signature, provider)


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

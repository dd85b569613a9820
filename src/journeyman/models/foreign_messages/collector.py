"""The conversation as far as it is read: whose turn it is, which calls wait for results, and what cannot be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from journeyman.definition.json_numbers import write_sound_json
from journeyman.definition.narrowing import is_list
from journeyman.errors import ProviderError
from journeyman.history import BEGINNING_LEFT_OUT, History, ImportedHistory
from journeyman.model import BlockFinished, Part
from journeyman.models.foreign_messages.parts import read_part, texts_of
from journeyman.types import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    Text,
    ToolReference,
    ToolResult,
    ToolUse,
    UserContent,
)

_MOST_TOLD: Final = 1_000


class AnswerDecoder(Protocol):
    """The reader of one wire's answers."""

    def document(self, data: bytes) -> Sequence[Part]:
        """Return the parts of an answer that came in one piece."""
        ...


@dataclass(slots=True)
class MessageCollector:
    """The messages that were read, and what was left out."""

    form: str
    provider: str
    """Whose reasoning it is."""
    messages: list[Message] = field(default_factory=list[Message])
    system: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])
    waiting: list[ToolUse] = field(default_factory=list[ToolUse])
    """The calls of the model's last turn that have no result yet."""
    _n_ids: int = 0

    def drop(self, place: str, what: str) -> None:
        """Note what is left out, and where it stood."""
        if len(self.dropped) == _MOST_TOLD:
            self.dropped.append("… and more: only the first are listed.")
        elif len(self.dropped) < _MOST_TOLD:
            self.dropped.append(f"{place}: {what[:300]}")

    def drop_keys(self, item: JsonObject, known: Iterable[str], place: str) -> None:
        """Note the fields of a message that nothing reads and that hold something."""
        for key in sorted(item.keys() - {*known}):
            if item[key] not in (None, "", [], {}, False):
                self.drop(f"{place}.{key[:60]}", "no field of a message here")

    def new_id(self) -> str:
        """Return an id for a call that came without one: the same whenever the same conversation is read."""
        self._n_ids += 1
        return f"read_{self._n_ids}"

    def say_system(self, content: object, place: str) -> None:
        """Take in a system prompt; one in the middle of a conversation loses its place."""
        if text := texts_of(content).strip():
            self.system.append(text)
            if self.messages:
                self.drop(place, "the place of a system prompt in the conversation; its text is in `system`")

    def say(self, content: object, place: str, read: Callable[..., UserContent] = read_part) -> None:
        """Take in what the user said: a text, or parts."""
        self.add_users(self.read_parts(content, place, read))

    def read_parts(
        self, content: object, place: str, read: Callable[..., UserContent] = read_part
    ) -> list[UserContent]:
        """Return the parts of a content that blocks can hold."""
        blocks: list[UserContent] = []
        parts = content if is_list(content) else [] if content is None else [content]
        for number, part in enumerate(parts):
            try:
                blocks.append(read(part))
            except ValueError as error:
                self.drop(f"{place}[{number}]" if parts is content else place, str(error))
        return blocks

    def add_users(self, blocks: Sequence[Block]) -> None:
        """Add a message of the user's."""
        if blocks:
            self.messages.append(Message("user", tuple(blocks)))

    def answer_call(self, content: object, place: str, *, id: str = "", name: str = "", is_error: bool = False) -> None:
        """Take in the result of a call: that of the id, or the first that waits, by its name if one is given."""
        call = next((each for each in self.waiting if (each.id == id if id else not name or each.name == name)), None)
        if call is None:
            self.drop(place, f"a result for {id or name or 'a call'!r}, which no call before it waits for")
            return
        self.waiting.remove(call)
        parts = self._result_parts(content, place)
        self.add_users([ToolResult(parts, is_error=is_error, tool_use_id=call.id)])

    def _result_parts(self, content: object, place: str) -> str | tuple[Text | Image | Document | ToolReference, ...]:
        if content is None or isinstance(content, str):
            return content or ""
        if not is_list(content):
            return write_sound_json(content).decode()
        references = [each for each in content if isinstance(each, ToolReference)]
        rest = self.read_parts([each for each in content if not isinstance(each, ToolReference)], place)
        kept = [block for block in rest if isinstance(block, Text | Image | Document)]
        if len(kept) < len(rest):
            self.drop(place, "a sound in a result")
        if len(kept) == 1 and isinstance(kept[0], Text) and not references:
            return kept[0].text
        return (*references, *kept)

    def decode(self, decoder: AnswerDecoder, document: JsonObject, place: str) -> None:
        """Take in what the model said, as the decoder of its wire reads it.

        Raises:
            ValueError: it is more than an answer may hold, or damaged.
        """
        try:
            parts = decoder.document(write_sound_json(document))
        except ProviderError as error:
            raise ValueError(f"{place}: {error}") from None
        self.add_models([part.block for part in parts if isinstance(part, BlockFinished)], place)

    def add_models(self, blocks: Iterable[Block], place: str) -> None:
        """Add a message of the model's."""
        kept: list[Block] = []
        for block in blocks:
            if isinstance(block, ToolUse) and not block.name.strip():
                self.drop(place, f"a call without a name, with the arguments {block.malformed or block.input_json}")
                continue
            # The decoder has made up an id where one was repeated: the history does so too, the same each time.
            if isinstance(block, ToolUse) and block.wire_id:
                block = replace(block, id=block.wire_id, wire_id=None)
            kept.append(block)
        if not self.messages or self.messages[-1].role == "user":
            self.waiting.clear()
        self.waiting += [block for block in kept if isinstance(block, ToolUse)]
        if kept:
            self.messages.append(Message("assistant", tuple(kept)))

    def finish(self) -> ImportedHistory:
        """Return the whole conversation, so that it can be sent."""
        messages = History(self.messages).export()
        if messages and messages[0].role == "assistant":
            # Providers take a conversation that the user begins.
            messages = (Message("user", (Text(BEGINNING_LEFT_OUT),)), *messages)
        return ImportedHistory(
            messages=messages, system="\n\n".join(self.system), form=self.form, dropped=tuple(self.dropped)
        )


def opaque(provider: str, item: JsonObject) -> Opaque:
    """Return a block that only its provider can read."""
    return Opaque(provider, write_sound_json(item).decode())

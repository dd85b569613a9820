"""Puts messages into the shapes of the conventions, without secrets, and never longer than a limit.

A text that is too long is cut, and a note says so. If there are too many messages, the first stays and the oldest of
the others are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from journeyman.definition.json_numbers import write_json
from journeyman.model import Prefix, Response
from journeyman.otel.names import FINISHES
from journeyman.tools.redaction import Redactor
from journeyman.types import (
    Audio,
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
)

_PART_OF_THE_WHOLE: Final = 4
"""A text may take that part of the limit."""
_PLACE: Final = 200
"""About so many bytes stand around a text."""


class Shapes:
    """The forms in which messages, tools and texts go out as values of attributes."""

    def __init__(self, redactor: Redactor, *, max_bytes: int) -> None:
        """`max_bytes`: the longest value of an attribute."""
        self._redactor: Final = redactor
        self._most: Final = max_bytes
        self._longest: Final = max_bytes // _PART_OF_THE_WHOLE

    def text(self, text: str) -> str:
        """Return a text, cut to the limit."""
        return self._cut(self._redactor.redacted_json_text(text), self._most)

    def system(self, prefix: Prefix) -> str:
        """Return the system prompt."""
        return self._fitting([self._part(block) for block in prefix.system])

    def tools(self, prefix: Prefix) -> str:
        """Return the tools that the model may call."""
        return self._fitting(
            [
                {"type": "function", "name": tool.name, "description": self._clean_text(tool.description)}
                | {"parameters": tool.input_schema}
                for tool in prefix.tools
            ]
        )

    def messages(self, messages: Sequence[Message]) -> str:
        """Return messages that were sent. The newest are kept if they are too many."""
        made: list[object] = []
        left = self._most
        # From the newest on: the old part of a long conversation is not even put into shape.
        for message in reversed(messages[1:]):
            shaped = self._message(message)
            # With its comma.
            left -= len(write_json(shaped, default=str)) + 1
            if left < self._longest:
                break
            made.append(shaped)
        made += [self._message(message) for message in messages[:1]]
        return self._fitting(made[::-1])

    def answer(self, response: Response) -> str:
        """Return the answer of the model."""
        parts = [self._part(block) for block in response.content]
        reason = FINISHES.get(response.stop_reason, response.stop_reason)
        return self._fitting([{"role": "assistant", "parts": parts, "finish_reason": reason}])

    def text_message(self, role: str, text: str) -> str:
        """Return one text as a message."""
        return self._fitting([{"role": role, "parts": [{"type": "text", "content": self._clean_text(text)}]}])

    def _message(self, message: Message) -> JsonObject:
        is_result = bool(message.content) and all(isinstance(block, ToolResult) for block in message.content)
        return {
            "role": "tool" if is_result else message.role,
            "parts": [self._part(block) for block in message.content],
        }

    def _part(self, block: Block) -> JsonObject:
        match block:
            case Text(text) | Thinking(text):
                return {"type": "text" if isinstance(block, Text) else "reasoning", "content": self._clean_text(text)}
            case ToolUse():
                given: Any = block.malformed if block.malformed is not None else block.input
                if len(block.input_json) > self._longest or isinstance(given, str):
                    given = self._clean_text(block.malformed or block.input_json)
                else:
                    given = self._redactor.redacted(given)
                return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": given}
            case ToolResult():
                return {"type": "tool_call_response", "id": block.tool_use_id, "response": self._clean_text(block.text)}
            case Image(source) | Document(source) | Audio(source):  # never its bytes
                if isinstance(source, Url):
                    # A query may be the signature that opens the file.
                    return {"type": "uri", "modality": block.type, "uri": source.url.partition("?")[0]}
                return {"type": "blob", "modality": block.type, "mime_type": source.media_type, "content": ""}
            case RedactedThinking() | Opaque():
                return {"type": "reasoning" if isinstance(block, RedactedThinking) else block.kind or "other"}

    def _clean_text(self, text: str) -> str:
        return self._cut(self._redactor.redacted_json_text(text), self._longest)

    def _cut(self, text: str, most: int) -> str:
        """Return a text cut to `most` bytes, with a note on how many more there were."""
        # No character has more than 4 bytes, so most texts need not be written for this.
        if len(text) * 4 <= most:
            return text
        written = text.encode("utf-8", "replace")
        if len(written) <= most:
            return text
        # A cut may leave a part of a character.
        return f"{written[:most].decode('utf-8', 'ignore')}… [{len(written) - most} more bytes]"

    def _fitting(self, values: list[Any]) -> str:
        """Return JSON of values. Where all would be too long, the oldest after the first are left out."""
        while True:
            text = write_json(values, default=str).decode("utf-8", "replace")
            if len(text) <= self._most + self._longest + _PLACE or len(values) == 1:
                return text if len(values) > 1 else self._shorten(values, text)
            del values[1 if len(values) > 2 else 0]

    def _shorten(self, values: list[Any], text: str) -> str:
        """Return one value as JSON: if it is too long as it is, with its texts only."""
        if len(text) <= self._most + self._longest + _PLACE:
            return text
        whole: JsonObject = values[0]
        rest = {name: value for name, value in whole.items() if isinstance(value, str)}
        parts = [{"type": "text", "content": self._cut(text, self._longest)}]
        return write_json([{**rest, "parts": parts}], default=str).decode()

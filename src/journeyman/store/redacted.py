"""The redaction of what is written to a session.

The conversation goes on word for word in memory; only what is written changes. Ids, names of tools, media, and what a
provider has signed or encrypted stay as they are, so that a provider takes the conversation once it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.session import Step
from journeyman.tools.redaction import MARK, Redactor, Secret, is_secret_value
from journeyman.types import (
    Block,
    Document,
    JsonObject,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
    UserContent,
)

_KEPT: Final = ("id", "signature", "encrypted_content", "encrypted_index", "data", "type", "name", "status")
"""How the names of fields end that only a provider reads."""


class StepRedactor:
    """Takes the secrets out of what is written to a session."""

    def __init__(self, redact: Sequence[Secret]) -> None:
        """`redact` says what to take out in addition to everything that looks like a secret, as for a cassette."""
        self._redactor = Redactor(redact)

    def redact_step(self, step: Step) -> Step:
        """Return a step as it is to be written."""
        messages = None if step.messages is None else [self._message(message) for message in step.messages]
        staged, view = tuple([self._staged(block) for block in step.staged]), step.view
        if view is not None:
            sent = tuple([self._message(message) for message in view.messages])
            view = replace(view, last=self._message(view.last), messages=sent)
        return replace(step, messages=messages, staged=staged, view=view)

    def redact_text(self, text: str) -> str:
        """Return a text as it is to be written."""
        return self._redactor.redacted_json_text(text)

    def _message(self, message: Message) -> Message:
        return Message(message.role, tuple([self._block(block) for block in message.content]), message.continues)

    def _block(self, block: Block) -> Block:
        match block:
            case Thinking():
                text = self.redact_text(block.text)
                return block if text == block.text else replace(block, text=text, signature=None)  # it signed the text
            case ToolUse():
                malformed = None if block.malformed is None else self.redact_text(block.malformed)
                return replace(
                    block,
                    input_json=self._redactor.redacted_json_text(block.input_json),
                    malformed=malformed,
                    extra=self._extra(block.extra),
                )
            case Opaque():
                whole: JsonObject = from_json(block.json)
                changed = self._extra(whole)
                # The very bytes where nothing was taken out: providers compare what they have signed.
                return block if changed == whole else replace(block, json=to_json(changed).decode())
            case ToolResult() | Text() | Document():
                return self._staged(block)
            case _:
                return block

    def _staged(self, block: UserContent | ToolResult) -> UserContent | ToolResult:
        match block:
            case ToolResult(str() as text):
                return replace(block, content=self.redact_text(text))
            case ToolResult(tuple() as blocks):
                content = [each if isinstance(each, ToolReference) else self._staged(each) for each in blocks]
                return replace(block, content=tuple(content))
            case Text():
                return replace(block, text=self.redact_text(block.text), extra=self._extra(block.extra))
            case Document(title=str() as title):
                return replace(block, title=self.redact_text(title))
            case _:
                return block

    def _extra(self, extra: JsonObject | None) -> JsonObject | None:
        return None if extra is None else {name: self._beside(value, name) for name, value in extra.items()}

    def _beside(self, value: JsonValue, name: str) -> JsonValue:
        """Return what a provider has sent beside the words, without secrets."""
        match value:
            case _ if name.lower().endswith(_KEPT):
                return value
            case str():
                return MARK if is_secret_value(name, value) else self.redact_text(value)
            case dict():
                return self._extra(value)
            case list():
                return [self._beside(item, name) for item in value]
            case _:
                return value

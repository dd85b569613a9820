"""What of a conversation is sent: the port of context strategies, and the size of things in tokens.

The history is never shortened. A strategy makes a *view* of it for the next request. Imports `types` and `model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.model import Prefix
from journeyman.types import (
    Base64,
    Block,
    Document,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
)

_BLOCK_TOKENS = 8
_PICTURE_TOKENS = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The messages to send, and what their making cost."""

    messages: Sequence[Message]
    changed: bool = False
    """True when they are not the whole history."""


class Strategy(Protocol):
    """A way to make a conversation fit its window."""

    @property
    def name(self) -> str: ...

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> View:
        """Return a view at least `excess_tokens` smaller, if it can. Never part a call from its result."""
        ...


async def fitted(
    strategies: Sequence[Strategy], messages: Sequence[Message], *, excess_tokens: int
) -> Sequence[Message]:
    """Let one strategy after the other make the messages smaller, until they are by `excess_tokens`."""
    whole = sum(estimate_message(message) for message in messages)
    for strategy in strategies:
        view = await strategy.view(messages, excess_tokens=excess_tokens)
        messages = view.messages
        saved = whole - sum(estimate_message(message) for message in messages)
        if saved >= excess_tokens:
            break
        excess_tokens, whole = excess_tokens - saved, whole - saved
    return messages


def estimate_text(text: str) -> int:
    """Return about how many tokens `text` is: a quarter of its UTF-8 bytes, at least 1."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return max(1, (size + 3) // 4)


def estimate_message(message: Message) -> int:
    """Return about how many tokens `message` is."""
    return sum(_estimate_block(block) for block in message.content)


def estimate_prefix(prefix: Prefix) -> int:
    """Return about how many tokens the system prompt and the tools are."""
    system = sum(estimate_text(block.text) for block in prefix.system)
    tools = sum(estimate_text(f"{tool.name}{tool.description}{tool.input_schema}") for tool in prefix.tools)
    return system + tools


def _estimate_block(block: Block) -> int:
    match block:
        case ToolResult(content=tuple() as parts):
            return _BLOCK_TOKENS + sum(_estimate_block(part) for part in parts)
        case Image() | Document(source=Url()):
            return _PICTURE_TOKENS
        case _:
            return _BLOCK_TOKENS + estimate_text(_text_of(block))


def _text_of(block: Block) -> str:
    match block:
        case Text(text) | Thinking(text) | RedactedThinking(data=text) | Opaque(json=text):
            return text
        case ToolUse():
            return block.name + block.input_json
        case ToolResult():
            return block.text
        case Document(source=Base64(data)):
            return data
        case _:
            return ""

"""Marks for the prompt cache in Chat Completions: which texts of a request end a cached prefix.

For the services that pass `cache_control` on to a provider that wants it. A mark is a member of a part of content, so
it can be set into the bytes of a message, and taken out of them, without encoding the message anew. Imports `model` and
`types`. Read `openai_chat_encode.py` next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from journeyman.model import CachePolicy
from journeyman.types import JsonObject, Message

MARK: Final[JsonObject] = {"cache_control": {"type": "ephemeral"}}
"""What a marked part has beside its text."""

_MARK: Final = b',"cache_control":{"type":"ephemeral"}'  # no text can hold this: quotes are escaped there
_BEGIN_OF_TEXT: Final = b'{"type":"text","text":'
_END_OF_TEXT: Final = b'"}]}'  # how a message ends whose last part is a text
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_AT_MOST: Final = 4
_LOOK_BACK_BLOCKS: Final = 20  # how far behind a mark Anthropic looks for what it has cached


def is_marked(piece: bytes) -> bool:
    """Return whether the user has set a mark in these bytes of a message."""
    return _MARK in piece


def set_marks(
    pieces: list[bytes],
    messages: Sequence[Message],
    by_hand: Sequence[int],
    *,
    system: bytes,
    tools: bytes,
    cache: CachePolicy,
) -> tuple[bytes, bytes]:
    """Set the marks of a request into the bytes of its messages, and return those of its system prompt and tools.

    `by_hand` says which messages have marks of the user's. Of all marks the last four stay; `auto` adds, as far as
    there is room, the end of the conversation, the end of the system prompt or of the tools, and where a long turn
    began.
    """
    left = 0 if cache == "off" else _AT_MOST
    for index in reversed(by_hand):
        pieces[index], left = _kept(pieces[index], left)
    system, left = _kept(system, left)
    if cache != "auto":
        return system, tools
    left -= _mark_last(pieces, messages, left)
    if left:
        system, tools = _marked_prefix(system, tools)
        left -= 1
    if left and len(messages) > 2 and sum(len(message.content) for message in messages[-2:]) >= _LOOK_BACK_BLOCKS:
        pieces[-3] = _marked_message(messages[-3], pieces[-3]) or pieces[-3]
    return system, tools


def _kept(piece: bytes, left: int) -> tuple[bytes, int]:
    """Return the piece with the last `left` of its marks, and how many marks may be set then."""
    found = piece.count(_MARK)
    kept = min(found, left)
    return piece.replace(_MARK, b"", found - kept), left - kept


def _mark_last(pieces: list[bytes], messages: Sequence[Message], left: int) -> int:
    """Mark the last text of the conversation that is not the assistant's; return how many marks that took."""
    for index in range(len(pieces) - 1, -1, -1):
        marked = _marked_message(messages[index], pieces[index])
        if marked is not None:
            is_new = left > 0 and marked is not pieces[index]
            pieces[index] = marked if is_new else pieces[index]
            return int(is_new)
    return 0


def _marked_prefix(system: bytes, tools: bytes) -> tuple[bytes, bytes]:
    """Mark the end of the system prompt, which stands behind the tools, or of these."""
    if system:
        return _marked(system) or system, tools
    return system, tools[:-1] + _MARK + tools[-1:] if tools else tools


def _marked_message(message: Message, piece: bytes) -> bytes | None:
    return _marked(piece) if message.role == "user" else None


def _marked(piece: bytes) -> bytes | None:
    """Return the message with a mark at its last text; as it is where there is one; None where there is no text."""
    if piece.endswith(_END_OF_TEXT):
        return piece[:-3] + _MARK + piece[-3:]
    begin = piece.rfind(_BEGIN_OF_TEXT)
    text = _STRING.match(piece, begin + len(_BEGIN_OF_TEXT)) if begin >= 0 else None
    if text is None:
        return None
    return piece if piece.startswith(_MARK, text.end()) else piece[: text.end()] + _MARK + piece[text.end() :]

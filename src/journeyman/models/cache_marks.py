"""The places of a request's marks for the prompt cache: planned here, and written by each encoder in its own way.

A provider takes four. Of those that the user has set the last ones stay; `auto` adds, as far as there is room, the end
of the conversation, the end of what stands before it, and where a long turn began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from journeyman.model import CachePolicy
from journeyman.types import Message

_AT_MOST: Final = 4  # of tools, system and messages together; the API refuses more
_LOOK_BACK_BLOCKS: Final = 20  # the API finds a cached beginning up to so many blocks before a mark


@dataclass(frozen=True, slots=True)
class MarkWriter:
    """A way to write marks into the bytes of a message."""

    count_marks: Callable[[Message, bytes], int]
    """Returns how many marks of the user's are in a message."""
    keep_marks: Callable[[Message, bytes, int], bytes]
    """Returns the bytes with so many of these, the last ones."""
    mark_end: Callable[[Message, bytes], bytes | None]
    """Returns the bytes with a mark at their end; as they are where there is one; None where none can be."""


def set_marks(
    pieces: list[bytes],
    messages: Sequence[Message],
    by_hand: Sequence[int],
    *,
    n_in_system: int,
    cache: CachePolicy,
    writer: MarkWriter,
) -> tuple[int, bool]:
    """Set the marks of a request into the bytes of its messages; return how many of the `n_in_system` marks in its
    system prompt stay, and whether the end of that, or of the tools, gets one.

    `by_hand` says which messages have marks of the user's.
    """
    left = 0 if cache == "off" else _AT_MOST
    for index in reversed(by_hand):
        kept = min(left, writer.count_marks(messages[index], pieces[index]))
        pieces[index] = writer.keep_marks(messages[index], pieces[index], kept)
        left -= kept
    kept_in_system = min(left, n_in_system)
    left -= kept_in_system
    if cache != "auto":
        return kept_in_system, False

    def add_mark(index: int) -> bool:
        nonlocal left
        marked = writer.mark_end(messages[index], pieces[index])
        if marked is not None and marked is not pieces[index] and left:
            pieces[index] = marked
            left -= 1
        return marked is not None

    any(map(add_mark, reversed(range(len(pieces)))))  # the last one that can be marked
    ends_prefix = left > 0
    left -= ends_prefix
    if left and len(messages) > 2 and sum(len(message.content) for message in messages[-2:]) >= _LOOK_BACK_BLOCKS:
        add_mark(len(messages) - 3)
    return kept_in_system, ends_prefix

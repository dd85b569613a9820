"""What one provider reads of another's messages: blocks that only their author understands, and ids and names.

A conversation may go on with another provider. Reasoning then becomes a text in tags, encrypted reasoning is left out,
and any other block of the old provider's becomes a text that says what is missing. Ids and names that the new provider
would refuse are rewritten, each always to the same, so that a call and its result still belong together. Imports
`types`. Read an adapter's encoder next.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from journeyman.types import Block, Opaque, RedactedThinking, Text, Thinking

_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_UNSAFE_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")


def readable(block: Block, provider: str) -> Block | None:
    """Return `block` as `provider` can read it; None if there is nothing in it for that provider.

    Reasoning that names no provider is taken for the reader's own.
    """
    match block:
        case Thinking() if block.provider not in (None, provider):
            return Text(f"<thinking>\n{block.text}\n</thinking>") if block.text.strip() else None
        case RedactedThinking() if block.provider not in (None, provider):
            return None
        case Opaque() if block.provider != provider:
            return Text(f"[A {block.kind!r} block that only {block.provider} can read is left out.]")
        case _:
            return block


def safe_id(id: str, *, longest: int | None = None) -> str:
    """Return the id if it is of letters, digits, `_` and `-`, and not too long; else another, always the same one."""
    if _SAFE.fullmatch(id) and (longest is None or len(id) <= longest):
        return id
    return f"id_{sha256(id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def safe_name(name: str, *, longest: int) -> str:
    """Return the name with what is not a letter, digit, `_` or `-` replaced, cut to the `longest` that is allowed."""
    if _SAFE.fullmatch(name) and len(name) <= longest:
        return name
    return _UNSAFE_CHARACTER.sub("_", name)[:longest] or "_"

"""References to deferred tools, as the Messages API takes them: a result that has any holds nothing else.

The API shows the model the tools that are referred to, so the texts that would say the same are left out. It refuses a
reference to a tool that the request does not defer: such a one is left out, too. Imports `foreign` and `types`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from journeyman.models.foreign import safe_id
from journeyman.models.wire import to_json
from journeyman.types import Block, Message, Opaque, ToolReference, ToolResult


def referring(messages: Sequence[Message], loadable: Collection[str], *, provider: str) -> Sequence[Message]:
    """Return the messages, their references to `loadable` tools as blocks of the provider's own."""
    return [_referring(message, loadable, provider) for message in messages]


def _referring(message: Message, loadable: Collection[str], provider: str) -> Message:
    if message.role != "user" or not any(_found(block, loadable) for block in message.content):
        return message
    return replace(message, content=tuple([_own(block, loadable, provider) for block in message.content]))


def _found(block: Block, loadable: Collection[str]) -> list[str]:
    if not isinstance(block, ToolResult) or isinstance(block.content, str) or block.is_error:
        return []
    return [part.name for part in block.content if isinstance(part, ToolReference) and part.name in loadable]


def _own(block: Block, loadable: Collection[str], provider: str) -> Block:
    names = _found(block, loadable)
    if not names or not isinstance(block, ToolResult):
        return block
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": safe_id(block.tool_use_id), "content": references}
    return Opaque(provider, to_json(result).decode())

"""The facts of an event as they are recorded: its JSON form, without what stands in columns of its own."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from pydantic import JsonValue

from journeyman.events import OutputDelta, TextDelta, ThinkingDelta, ToolInputDelta, ToolProgress
from journeyman.events.json_form import facts_of
from journeyman.types import JsonObject

DELTAS: Final = frozenset({TextDelta, ThinkingDelta, ToolInputDelta, OutputDelta})
"""What is not recorded: the whole follows."""
DROPPABLE: Final = frozenset({ToolProgress})
"""What is left out when the disk is too slow."""

_COLUMNS: Final = frozenset({"path", "attempt", "iteration", "tool_use_id", "tool_name"})
"""What stands in columns of its own."""


def facts_of_event(event: object) -> JsonObject:
    """Return the facts of an event, except for those that have columns of their own."""
    return {name: fact for name, fact in facts_of(event).items() if name not in _COLUMNS}


_SAFE: Final = frozenset(
    (
        *("type", "kind", "role", "code", "category", "phase", "status", "delivery", "liveness", "decision", "mode"),
        *("stop_reason", "model", "provider", "agent", "name", "id", "tool_use_id", "effect", "scope", "policy"),
        *("error_kind", "key", "extent", "url", "request_id", "question_id", "offers", "what", "outcome"),
    )
)
"""The fields whose texts say nothing of what was said."""


def shape_of(value: JsonValue, name: str = "") -> JsonValue:
    """Return JSON values with each text replaced by its length and its digest."""
    match value:
        case str() if name not in _SAFE:
            digest = blake2b(value.encode("utf-8", "replace"), digest_size=8).hexdigest()
            return {"characters": len(value), "digest": digest}
        case dict():
            return {each: shape_of(item, each) for each, item in value.items()}
        case list():
            return [shape_of(item, name) for item in value]
        case _:
            return value

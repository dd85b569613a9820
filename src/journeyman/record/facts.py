"""The facts of an event as they are recorded: plain JSON values, without those that are always the same.

No event may fail here: a value that JSON cannot carry becomes its `repr`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from typing import Any, Final

from pydantic import JsonValue

from journeyman.endings import ErrorInfo
from journeyman.errors import words_of
from journeyman.events import (
    OutputDelta,
    TaskEnded,
    TaskMessaged,
    TaskStarted,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolProgress,
)
from journeyman.narrowing import is_list_or_tuple, is_mapping, is_set
from journeyman.result import plain_output
from journeyman.types import JsonObject

DELTAS: Final = frozenset({TextDelta, ThinkingDelta, ToolInputDelta, OutputDelta})
"""What is not recorded: the whole follows."""
DROPPABLE: Final = frozenset({ToolProgress})
"""What is left out when the disk is too slow."""

_COLUMNS: Final = frozenset({"path", "attempt", "iteration", "tool_use_id", "tool_name", "wire"})
"""What stands in columns of its own, or is a memory of the moment."""
# What a user's value holds may hold itself.
_DEPTH: Final = 64
_ABOUT_TASKS: Final = (TaskStarted, TaskMessaged, TaskEnded)


def facts_of_event(event: object) -> JsonObject:
    """Return the facts of an event, except for those that have columns of their own."""
    facts = plain_fields(event)
    if isinstance(event, _ABOUT_TASKS) and isinstance(info := facts.get("info"), dict):
        info.pop("value", None)  # whatever the work returned; its text is there
    return facts


@cache
def _shown_fields(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    """Return the fields of a class that are told, each with the value that need not be told."""
    return tuple(
        (each.name, MISSING if each.name == "type" else each.default)
        for each in fields(kind)
        if each.name not in _COLUMNS or kind.__module__.startswith("journeyman.types")
        if each.name != "wire"
    )


def plain_fields(value: object, depth: int = 0) -> JsonObject:
    """Return the fields of one of our dataclasses as plain JSON, without those that are as usual."""
    facts: JsonObject = {}
    for name, usual in _shown_fields(type(value)):
        fact = getattr(value, name)
        if fact is not None and not (fact is usual or (usual is not MISSING and fact == usual)):
            is_time = type(fact) is float and name.endswith("_s")
            # Microseconds: what a clock says beyond them is noise.
            facts[name] = round(fact, 6) if is_time else plain(fact, depth + 1)
    return facts


def plain(value: object, depth: int = 0) -> JsonValue:
    """Return a value as plain JSON."""
    match value:
        case None | bool() | int() | float():
            told: JsonValue = value
        case str():
            # Not one of a class of its own, such as a member of an enumeration.
            told = str(value)
        case _ if depth > _DEPTH:
            told = repr(value)[:200]
        case ErrorInfo():
            told = {"code": str(value.code), "category": value.category, "message": value.message, "hint": value.hint}
            told |= {"phase": value.phase, "attempt": value.attempt, "iteration": value.iteration}
            told["context"] = plain(value.context, depth + 1)
        case BaseException():
            told = f"{type(value).__name__}: {words_of(value)}"
        case datetime():
            told = value.timestamp()
        case _ if is_mapping(value):
            told = {str(name): plain(each, depth + 1) for name, each in value.items()}
        case _ if is_list_or_tuple(value) or is_set(value):
            told = [plain(each, depth + 1) for each in value]
        case _ if is_dataclass(value) and type(value).__module__.startswith("journeyman."):
            told = plain_fields(value, depth)
        case _:
            told = plain_output(value, None)
    return told


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

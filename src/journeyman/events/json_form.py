"""The JSON form of an event: one for the command line, the service and recordings.

No event may fail here: a value that JSON cannot carry becomes its `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import write_sound_json
from journeyman.definition.narrowing import is_list_or_tuple, is_mapping, is_set
from journeyman.endings import ErrorInfo
from journeyman.errors import words_of
from journeyman.events.chat import TurnEnded
from journeyman.events.task import TaskEnded, TaskStarted
from journeyman.result import plain_output
from journeyman.types import JsonObject, RunPath

if TYPE_CHECKING:
    from pydantic import JsonValue

_DEPTH: Final = 64
_PLAIN: Final = frozenset({str, int, float, bool})
"""The types of which a value is JSON as it is."""
_JSON_TYPES: Final = frozenset({"JsonObject", "JsonValue"})
"""The annotations of fields that hold JSON as it is."""


def to_json(event: object) -> bytes:
    """Return an event as JSON on one line: `type` is the name of its class, and the rest are its fields.

    A field that has its default is left out. Times are seconds since 1970. Of `TurnEnded` the `code` of its result is
    told, and not the result: events before it have told the rest. Of the work of a task the text is told alone.
    """
    told = {"type": type(event).__name__, **facts_of(event)}
    try:
        return orjson.dumps(told)
    except TypeError:  # a long number, or half of a surrogate pair
        return write_sound_json(told)


def to_json_list(events: Iterable[object]) -> bytes | None:
    """Return events as one list of JSON, from which each can be read and written again as `to_json` writes it. None:
    one of them cannot."""
    try:
        return orjson.dumps([{"type": type(event).__name__, **facts_of(event)} for event in events])
    except TypeError:
        return None


def facts_of(event: object) -> JsonObject:
    """Return the fields of an event as plain JSON values, except for those with their default."""
    kind = type(event)
    if kind not in _SPECIAL:
        return _teller_of(kind)(event, 1)
    match event:
        case TurnEnded(path=path, result=result, usage=usage):
            code: JsonObject = {} if result is None else {"code": str(result.code)}
            return {"path": [*path], **code, "usage": plain_fields(usage)}
        case TaskStarted(info=info) | TaskEnded(info=info):
            facts = plain_fields(info)
            facts.pop("value", None)  # whatever the work returned
            return {"path": [*event.path], "info": facts}
        case _:
            return plain_fields(event)


_SPECIAL: Final = frozenset({TurnEnded, TaskStarted, TaskEnded})


PLACE: Final = ("path", "attempt", "iteration", "tool_use_id", "tool_name")
"""The fields that say where in a run something happened; where an event has none of a name, that is None."""


@lazy_dataclass(frozen=True, kw_only=True)
class RecordedEvent:
    """Something that happened in a run: an event of `journeyman.events` by the name of its class."""

    n: int
    """Its number in the recording; 0: it is not stored. Later events have higher numbers; give it as `after` to
    read what follows."""
    at: float
    """Seconds since 1970."""
    path: RunPath
    kind: str
    """The name of the event's class; `ModelAsked` for a request to a model and what came of it."""
    attempt: int | None
    """The attempt in which it happened, from 1; None outside of any."""
    iteration: int | None
    """The iteration within the attempt, from 1; None outside of any."""
    tool_use_id: str | None
    """The call that it is about; None: it is about none."""
    tool_name: str | None
    """The tool that it is about; None: it is about none."""
    facts: JsonObject
    """The other fields of the event. If no content is kept, a text is `{"characters": …, "digest": …}`."""

    def document(self) -> dict[str, Any]:
        """Return the JSON form of the event, as `journeyman.events.to_json` writes it, with its `n` and `at`."""
        place = (self.attempt, self.iteration, self.tool_use_id, self.tool_name)
        return document_of((self.n, self.at, self.kind, self.path), place, self.facts)


def told_of(event: object) -> RecordedEvent:
    """Return an event that nobody has stored as it is told: its place, and the facts that it has beside that."""
    facts = {name: fact for name, fact in facts_of(event).items() if name not in PLACE}
    place: dict[str, Any] = {name: getattr(event, name, None) for name in PLACE}
    return RecordedEvent(n=0, at=0.0, kind=type(event).__name__, **place, facts=facts)


_OF_EVERY_EVENT: Final = ("n", "at", "type", "path")


def document_of(head: tuple[object, ...], place: Sequence[object], facts: JsonObject) -> dict[str, Any]:
    """Return the JSON form of an event: what every event has, where in the run it happened, and its facts."""
    there = {name: each for name, each in zip(PLACE[1:], place, strict=True) if each is not None}
    return {**dict(zip(_OF_EVERY_EVENT, head, strict=True)), **there, **facts}


def plain_fields(value: object, depth: int = 0) -> JsonObject:
    """Return the fields of one of our dataclasses as plain JSON, without those that are as usual."""
    return _teller_of(type(value))(value, depth + 1)


@cache
def _teller_of(kind: type[Any]) -> Callable[[object, int], JsonObject]:
    """Compile what tells the fields of a class: a run makes some ten events, each of many fields that are as usual."""
    scope: dict[str, Any] = {"__plain": plain, "__PLAIN": _PLAIN}
    lines = ["facts = {}"]
    for each in fields(kind):
        if each.name == "wire":
            continue
        if each.name == "path":
            lines.append("facts['path'] = [*value.path]")
            continue
        usual = MISSING if each.name == "type" else each.default
        lines += [f"fact = value.{each.name}", "if fact is not None:"]
        is_json = (
            str(each.type).partition(" ")[0] in _JSON_TYPES
        )  # a million characters of it are a walk of half a second
        told = "fact" if is_json else "fact if type(fact) in __PLAIN else __plain(fact, depth)"
        if each.name.endswith("_s"):
            told = f"round(fact, 6) if type(fact) is float else {told}"
        if usual is not MISSING and usual is not None:
            scope[f"__usual_{each.name}"] = usual
            # First what is most often true: most fields are as usual.
            lines[-1] = f"if not (fact is __usual_{each.name} or fact is None or fact == __usual_{each.name}):"
        lines.append(f" facts[{each.name!r}] = {told}")
    code = "def tell(value, depth):\n " + "\n ".join([*lines, "return facts"])
    exec(compile(code, f"<fields of {kind.__qualname__}>", "exec"), scope)
    return scope["tell"]


_WALKED: Final = (str, int, float, list, tuple, set, frozenset, Mapping, ErrorInfo, BaseException, datetime)


@cache
def _teller_of_ours(kind: type[Any]) -> Callable[[object, int], JsonObject] | None:
    """Return what tells the fields of a class, if it is one of our dataclasses, of which nothing else is told."""
    if not is_dataclass(kind) or not kind.__module__.startswith("journeyman.") or issubclass(kind, _WALKED):
        return None
    return _teller_of(kind)


@cache
def _is_written_whole(kind: type[Any]) -> bool:
    """Tell whether values of a class are written by pydantic, in a list as alone."""
    return not issubclass(kind, (*_WALKED, type(None))) and _teller_of_ours(kind) is None


def plain(value: object, depth: int = 0) -> JsonValue:
    """Return a value as plain JSON."""
    kind: Any = type(value)
    if kind in _PLAIN:
        kept: Any = value
        return kept
    if depth > _DEPTH:
        return _plain_other(value, depth)
    if kind is tuple:
        parts: Any = value
        return [plain(each, depth + 1) for each in parts]
    if kind is dict:
        facts: Any = value
        return {str(name): plain(each, depth + 1) for name, each in facts.items()}
    tell = _teller_of_ours(kind)
    return _plain_other(value, depth) if tell is None else tell(value, depth + 1)


def _plain_other(value: object, depth: int) -> JsonValue:
    match value:
        case str():
            told: JsonValue = str(value)
        case None | bool() | int() | float():
            told = value
        case _ if depth > _DEPTH:
            told = repr(value)[:200]
        case _ if is_list_or_tuple(value) or is_set(value):
            # Written together if they can be: to begin with each takes longer than to write it.
            told = plain_output([*value], None) if all(map(_is_written_whole, {*map(type, value)})) else None
            told = told if isinstance(told, list) else [plain(each, depth + 1) for each in value]
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
        case _:
            told = plain_output(value, None)
    return told

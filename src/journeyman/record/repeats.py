"""The parts of an event that repeat a message: the arguments of a call, and an output that was written as such.

It is left out of what is stored of the event, and filled in from the stored message as the event is read. So a long
answer stands in a recording once, and what was taken out of the message as a secret is not in the event, either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from pydantic import JsonValue

from journeyman.definition.json_numbers import read_json, read_object
from journeyman.definition.narrowing import as_list, as_object, is_json_array, is_json_object
from journeyman.events import ApprovalRequested, RunSucceeded, ToolCalled
from journeyman.record.packing import dumped
from journeyman.types import JsonObject, Message

REPEATS: Final[dict[type, str]] = {ToolCalled: "tool_input", ApprovalRequested: "arguments", RunSucceeded: "output"}
"""By the class of an event, its field that repeats a message."""
_WORTH: Final = 64
"""A text that is left out has so many characters, at least: to say where it stands takes nearly as many."""
SAID: Final = "said"
"""In the stored facts of an event: which of them is filled in, from where, and at which places in it."""


def leave_out(facts: JsonObject, name: str, message: Message, call: str | None) -> bool:
    """Take out of a fact of an event what the message says: in the arguments of this call, or if that is None, of any
    call, or in its text. Tell whether there was anything."""
    found: list[tuple[int, JsonValue, list[JsonValue]]] = [(0, None, [])]
    for source, said in _sayings(message, call):
        common = [*_common(facts.get(name), said)]
        found.append((sum(n for n, _ in common), [*source], [place for _, place in common]))
    n, source, places = max(found, key=lambda each: each[0])
    if n:
        facts[SAID] = {"fact": name, "from": source, "at": places}
        for place in places:
            _put(facts, [name, *as_list(place)], None)
    return n > 0


def fill_in(facts: JsonObject, message: JsonObject) -> bool:
    """Put into the facts of an event what was left out of them, from the JSON of the message that says it. Tell whether
    all of it was there; else the fact is taken out."""
    if SAID not in facts:
        return True
    told = as_object(facts.pop(SAID))
    name = str(told.get("fact"))
    try:
        said = _said_by(message, as_list(told["from"]))
        for place in as_list(told["at"]):
            _put(facts, [name, *as_list(place)], _at(said, as_list(place)))
    except (LookupError, TypeError, ValueError):  # it is lost, or cut off where a secret was taken out
        facts.pop(name, None)
        return False
    return True


def forms_of(text: str) -> set[str]:
    """Return the forms in which a text that JSON writes may stand in a store: as it is, and in the arguments of a call,
    which are JSON in a text of JSON, with letters beyond ASCII as they are, or as escapes."""
    escaped = "".join([each if each.isascii() else json.dumps(each)[1:-1] for each in text])
    return {text, dumped(text)[1:-1], dumped(escaped)[1:-1]}


def _sayings(message: Message, call: str | None) -> Iterator[tuple[Sequence[str], JsonValue]]:
    """Give what a message says, each with the way to it, which `_said_by` goes."""
    for use in message.tool_uses:
        if call not in (None, use.id) or len(use.input_json) < _WORTH:
            continue
        with suppress(ValueError):  # a program's own model may write what is no JSON
            given = use.input
            yield ("call", use.id), given
            if [*given] == ["value"]:  # an output that is no object stands so
                yield ("call", use.id, "value"), given["value"]
    if call is None and len(text := message.text) >= _WORTH:
        yield ("text",), text
        with suppress(ValueError):
            yield ("json",), read_json(text)


def _said_by(message: JsonObject, way: Sequence[JsonValue]) -> JsonValue:
    blocks = [as_object(each) for each in as_list(message["content"])]
    match way:
        case ["call", id, *within]:
            [use] = [each for each in blocks if each.get("type") == "tool_use" and each.get("id") == id]
            return _at(read_object(str(use["input_json"])), within)
        case [how]:
            text = "\n\n".join([str(each["text"]) for each in blocks if each.get("type") == "text" and each["text"]])
            return text if how == "text" else read_json(text)
        case _:
            raise LookupError(way)


def _common(value: JsonValue, said: JsonValue) -> Iterator[tuple[int, list[JsonValue]]]:
    """Give the places at which two values are the same, each with its size: the whole, or long texts in it."""
    if (size := len(whole := dumped(value))) >= _WORTH and whole == dumped(said):
        yield size, []
    else:
        yield from _common_texts(value, said, [])


def _common_texts(value: JsonValue, said: JsonValue, at: list[JsonValue]) -> Iterator[tuple[int, list[JsonValue]]]:
    if isinstance(value, str):
        if len(value) >= _WORTH and value == said:
            yield len(value), at
    elif is_json_object(value) and is_json_object(said):
        for name in [each for each in value if each in said]:
            yield from _common_texts(value[name], said[name], [*at, name])
    elif is_json_array(value) and is_json_array(said):
        for n, (one, other) in enumerate(zip(value, said, strict=False)):
            yield from _common_texts(one, other, [*at, n])


def _at(value: JsonValue, place: Sequence[JsonValue]) -> JsonValue:
    for step in place:
        match value, step:
            case dict(), str():
                value = value[step]
            case list(), int():
                value = value[step]
            case _:
                raise LookupError(step)
    return value


def _put(facts: JsonObject, place: Sequence[JsonValue], value: JsonValue) -> None:
    *above, last = place
    cast("Any", _at(facts, above))[last] = value

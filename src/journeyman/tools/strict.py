"""Finds the parts of a `strict` schema that no provider can enforce while the model writes, each with the reason.

Providers make a grammar of a schema, which knows closed objects whose properties are all required, and few keywords.
What only some of them take is no fault here: the others are sent the schema as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from journeyman.definition.narrowing import as_list, as_object
from journeyman.errors import Problem
from journeyman.texts import shorten_line
from journeyman.types import JsonObject

DECIDING: Final = frozenset({"$ref", "anyOf", "const", "enum", "type"})
"""The keywords of which a schema has one, or it allows anything."""
KEYWORDS: Final = frozenset(
    {"$defs", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "minItems"}
    | {"properties", "required", "title", "type"}
)
"""What every grammar has a place for."""
OPENAI_KEYWORDS: Final = KEYWORDS | {
    *("exclusiveMaximum", "exclusiveMinimum", "maximum", "maxItems", "minimum", "multipleOf")
}
"""What OpenAI's grammars have a place for."""
FORMATS: Final = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
URI: Final = "uri"
"""A format that only the Messages API knows."""

_ENFORCED: Final = OPENAI_KEYWORDS | {"$ref"}
_LOCAL: Final = "#/$defs/"
_LEAVE: Final = "leave strict out, and the arguments are checked here as always."


def strict_problems(schema: JsonObject) -> Iterator[Problem]:
    """Give the first reason why no provider can enforce a schema, with what to write instead."""
    for place, wrong, hint in _Walk(schema).faults(schema, ""):
        named = f"at {shorten_line(place.removeprefix('.'))!r} " if place else ""
        text = f"It is strict, and no provider can enforce its schema: {named}{wrong}."
        yield Problem("CANNOT_BE_STRICT", text, f"{hint}. Or {_LEAVE}")
        return


class _Walk:
    def __init__(self, document: JsonObject) -> None:
        self._definitions = as_object(document.get("$defs"))
        self._seen = set[str]()

    def faults(self, given: object, place: str) -> Iterator[tuple[str, str, str]]:
        schema = as_object(given)
        types = schema.get("type")
        if types == "object" or "object" in as_list(types):
            yield from self._faults_of_object(schema, place)
        for keyword in schema.keys() - _ENFORCED:
            yield place, f"it has the rule {keyword!r}", _HINTS.get(keyword, "Leave that rule to a validator")
        if not schema.keys() & DECIDING:
            yield place, "anything is allowed", "Give it a type"
        if schema.get("format") not in (None, *FORMATS, URI):
            yield place, f"it has the format {schema['format']!r}", "Leave that rule to a validator"
        if any(isinstance(each, list | dict) for each in [*as_list(schema.get("enum")), schema.get("const")]):
            yield place, "it is one of values that hold others", "Use texts or numbers"
        if types == "array" or "array" in as_list(types):
            yield from self.faults(schema.get("items"), f"{place}[]")
        for choice in as_list(schema.get("anyOf")):
            yield from self.faults(choice, place)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in self._seen:
            self._seen.add(reference)
            yield from self.faults(self._definitions.get(reference.removeprefix(_LOCAL)), place)

    def _faults_of_object(self, schema: Mapping[str, object], place: str) -> Iterator[tuple[str, str, str]]:
        properties = as_object(schema.get("properties"))
        if schema.get("additionalProperties") is not False:
            if properties:
                yield place, "names are allowed that it does not have", 'Forbid them: ConfigDict(extra="forbid")'
            else:
                yield place, "it is a dict of any names", "Use a list of objects, each with a name and a value"
        required = as_list(schema.get("required"))
        for name in properties:
            if name not in required:
                yield f"{place}.{name}", "it may be left out", "Give it no default; what may be missing is `… | None`"
        for name, each in properties.items():
            yield from self.faults(each, f"{place}.{name}")


_HINTS: Final = {
    "oneOf": "Use a union without a discriminator",
    "allOf": "Write it as one object",
    "prefixItems": "Use an object with a name for each item",
    "default": "Give it no default; what may be missing is `… | None`",
}

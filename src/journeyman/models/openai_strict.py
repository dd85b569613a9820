"""Which tool schemas an OpenAI-style service can enforce while the model writes, without losing or refusing anything.

The rules are those of "Structured Outputs": closed objects whose properties are all required, references that stand
alone, no keyword that would be refused. What only some services take (patterns, more than five levels) is left
out: such a tool is sent without `strict`. Imports `types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from journeyman.types import JsonObject

LEVELS_AT_MOST: Final = 5
"""How deep objects may be nested; the definitions of references count by themselves."""
PROPERTIES_AT_MOST: Final = 100
"""How many properties all objects of a schema may have together."""
CHOICES_AT_MOST: Final = 500
"""How many values all `enum`s of a schema may have together."""

_KEYWORDS: Final = frozenset(
    {"$defs", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "properties"}
    | {"required", "title", "type"}
    | {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf", "maxItems", "minItems"}
)
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_FORMATS: Final = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
_LOCAL: Final = "#/$defs/"


def is_enforceable(schema: JsonObject) -> bool:
    """Return whether a tool with this schema may be sent as `strict`."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    walk = _Walk(schema)
    return (
        walk.accepts(schema)
        and all(walk.accepts(definition) for definition in walk.definitions.values())
        and walk.n_properties <= PROPERTIES_AT_MOST
        and walk.n_choices <= CHOICES_AT_MOST
    )


class _Walk:
    __slots__ = ("definitions", "n_choices", "n_properties")

    def __init__(self, document: JsonObject) -> None:
        self.definitions = _object(document.get("$defs"))
        self.n_choices = 0
        self.n_properties = 0

    def accepts(self, value: object, level: int = 0) -> bool:
        schema = _object(value)
        if "$ref" in schema:
            known = schema["$ref"] in [_LOCAL + name for name in self.definitions]
            return known and len(schema) == 1  # the API refuses a reference with a description beside it
        types = {str(name) for name in _list(schema.get("type"), *([schema["type"]] if "type" in schema else []))}
        choices = _list(schema.get("enum"))
        self.n_choices += len(choices)
        return (
            schema.keys() <= _KEYWORDS
            and ("anyOf" in schema or (bool(types) and types <= _TYPES))
            and all(_is_plain(choice) for choice in [*choices, schema.get("const")])
            and schema.get("format") in (None, *_FORMATS)
            and ("array" not in types or self.accepts(schema.get("items"), level))
            and ("object" not in types or self._accepts_object(schema, level + 1))
            and all(self.accepts(choice, level) for choice in _list(schema.get("anyOf")))
        )

    def _accepts_object(self, schema: Mapping[str, object], level: int) -> bool:
        properties = _object(schema.get("properties"))
        self.n_properties += len(properties)
        closed = schema.get("additionalProperties") is False
        complete = set[object](properties) == set(_list(schema.get("required")))
        fits = level <= LEVELS_AT_MOST
        return closed and complete and fits and all(self.accepts(each, level) for each in properties.values())


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object, *otherwise: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else otherwise

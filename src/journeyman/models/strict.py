"""Which JSON schemas a provider can enforce while the model writes, without loss.

A provider turns such a schema into a grammar. Only what every grammar keeps is let through: closed objects whose
properties are all required, and no keyword that would be dropped.

Which tool schemas an OpenAI-style service can enforce while the model writes, without losing or refusing anything.

The rules are those of "Structured Outputs": closed objects whose properties are all required, references that stand
alone, no keyword that would be refused. What only some services take (patterns, more than five levels) is left
out: such a tool is sent without `strict`.
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

_OPENAI_KEYWORDS: Final = frozenset(
    {"$defs", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "properties"}
    | {"required", "title", "type"}
    | {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf", "maxItems", "minItems"}
)
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_OPENAI_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_OPENAI_LOCAL: Final = "#/$defs/"


def is_enforceable(schema: JsonObject) -> bool:
    """Return whether a tool with this schema may be sent as `strict`."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    walk = _OpenAIWalk(schema)
    return (
        walk.accepts(schema)
        and all(walk.accepts(definition) for definition in walk.definitions.values())
        and walk.n_properties <= PROPERTIES_AT_MOST
        and walk.n_choices <= CHOICES_AT_MOST
    )


class _OpenAIWalk:
    __slots__ = ("definitions", "n_choices", "n_properties")

    def __init__(self, document: JsonObject) -> None:
        self.definitions = _openai_object(document.get("$defs"))
        self.n_choices = 0
        self.n_properties = 0

    def accepts(self, value: object, level: int = 0) -> bool:
        schema = _openai_object(value)
        if "$ref" in schema:
            known = schema["$ref"] in [_OPENAI_LOCAL + name for name in self.definitions]
            return known and len(schema) == 1  # the API refuses a reference with a description beside it
        types = {
            str(name) for name in _openai_list(schema.get("type"), *([schema["type"]] if "type" in schema else []))
        }
        choices = _openai_list(schema.get("enum"))
        self.n_choices += len(choices)
        return (
            schema.keys() <= _OPENAI_KEYWORDS
            and ("anyOf" in schema or (bool(types) and types <= _TYPES))
            and all(_openai_is_plain(choice) for choice in [*choices, schema.get("const")])
            and schema.get("format") in (None, *_OPENAI_FORMATS)
            and ("array" not in types or self.accepts(schema.get("items"), level))
            and ("object" not in types or self._accepts_object(schema, level + 1))
            and all(self.accepts(choice, level) for choice in _openai_list(schema.get("anyOf")))
        )

    def _accepts_object(self, schema: Mapping[str, object], level: int) -> bool:
        properties = _openai_object(schema.get("properties"))
        self.n_properties += len(properties)
        closed = schema.get("additionalProperties") is False
        complete = set[object](properties) == set(_openai_list(schema.get("required")))
        fits = level <= LEVELS_AT_MOST
        return closed and complete and fits and all(self.accepts(each, level) for each in properties.values())


def _openai_is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _openai_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _openai_list(value: object, *otherwise: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else otherwise


TOOLS_AT_MOST: Final = 20
"""The Messages API's limit of strict tools in one request."""
UNIONS_AT_MOST: Final = 16
"""The Messages API's limit of `anyOf`s and lists of types in all strict tools of one request."""

_KEYWORDS: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "minItems"}
    | {"properties", "required", "title", "type"}
)
_DECIDING: Final = frozenset({"$ref", "anyOf", "const", "enum", "type"})
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
_LOCAL: Final = "#/$defs/"


class Grammars:
    """Counts what one request may still ask a provider to enforce."""

    __slots__ = ("_tools", "_unions")

    def __init__(self) -> None:
        self._tools = TOOLS_AT_MOST
        self._unions = UNIONS_AT_MOST

    def take(self, schema: JsonObject) -> bool:
        """Return whether `schema` can be enforced, and count it if so."""
        walk = _Walk(schema)
        if not walk.accepts(schema) or walk.unions > self._unions or self._tools == 0:
            return False
        self._tools -= 1
        self._unions -= walk.unions
        return True


class _Walk:
    __slots__ = ("_definitions", "unions")

    def __init__(self, document: JsonObject) -> None:
        self._definitions = _object(document.get("$defs"))
        self.unions = 0

    def accepts(self, value: object, above: tuple[str, ...] = ()) -> bool:
        """`above` are the definitions that this schema is part of: one that contains itself has no grammar."""
        schema = _object(value)
        if not schema.keys() <= _KEYWORDS or not schema.keys() & _DECIDING:
            return False
        types = _list(schema.get("type"), schema.get("type"))
        self.unions += (len(types) > 1) + ("anyOf" in schema)
        return (
            all(_is_plain(choice) for choice in [*_list(schema.get("enum")), schema.get("const")])
            and schema.get("format") in (None, *_FORMATS)
            and schema.get("minItems") in (None, 0, 1)
            and ("array" not in types or self.accepts(schema.get("items"), above))
            and ("object" not in types or self._accepts_object(schema, above))
            and all(self.accepts(choice, above) for choice in _list(schema.get("anyOf")))
            and ("$ref" not in schema or self._accepts_reference(schema["$ref"], above))
        )

    def _accepts_object(self, schema: Mapping[str, object], above: tuple[str, ...]) -> bool:
        properties = _object(schema.get("properties"))
        closed = schema.get("additionalProperties") is False
        complete = set[object](properties) == set(_list(schema.get("required")))
        return closed and complete and all(self.accepts(property, above) for property in properties.values())

    def _accepts_reference(self, reference: object, above: tuple[str, ...]) -> bool:
        name = reference.removeprefix(_LOCAL) if isinstance(reference, str) else ""
        if reference != f"{_LOCAL}{name}" or name in above:
            return False
        return self.accepts(self._definitions.get(name), (*above, name))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object, *otherwise: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else otherwise

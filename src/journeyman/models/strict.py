"""The test whether a provider can enforce a tool's schema while the model writes, without loss.

A provider turns such a schema into a grammar. Only what every grammar keeps is let through: closed objects whose
properties are all required, and no keyword that would be dropped or refused. What only some services take (patterns,
more than five levels) is left out as well: such a tool is sent without `strict`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.models.wire import to_json
from journeyman.tools.strict import DECIDING, FORMATS, KEYWORDS, OPENAI_KEYWORDS, URI
from journeyman.types import JsonObject

TOOLS_AT_MOST: Final = 20
"""The Messages API's limit of strict tools in one request."""
UNIONS_AT_MOST: Final = 16
"""The Messages API's limit of `anyOf`s and lists of types in all strict tools of one request."""

LEVELS_AT_MOST: Final = 5
"""How deep objects may be nested for OpenAI's APIs; the definitions of references count by themselves."""
PROPERTIES_AT_MOST: Final = 100
"""How many properties all objects of a schema may have together for OpenAI's APIs."""
CHOICES_AT_MOST: Final = 500
"""How many values all `enum`s of a schema may have together for OpenAI's APIs."""

_LOCAL: Final = "#/$defs/"
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


@dataclass(slots=True)
class Grammars:
    """The number of tools and unions that one request may still ask the Messages API to enforce."""

    _tools: int = TOOLS_AT_MOST
    _unions: int = UNIONS_AT_MOST

    def take(self, schema: JsonObject) -> bool:
        """Return whether `schema` can be enforced, and count it if so."""
        walk = _GrammarWalk(schema)
        if not walk.accepts(schema) or walk.n_unions > self._unions or self._tools == 0:
            return False
        self._tools -= 1
        self._unions -= walk.n_unions
        return True


class _GrammarWalk:
    __slots__ = ("_definitions", "n_unions")

    def __init__(self, document: JsonObject) -> None:
        self._definitions = as_object(document.get("$defs"))
        self.n_unions = 0

    def accepts(self, value: object, above: tuple[str, ...] = ()) -> bool:
        """Tell whether the API can enforce this part of a schema. `above` are the definitions that it is part of: one
        that contains itself has no grammar."""
        schema = as_object(value)
        if not schema.keys() <= KEYWORDS | {"$ref"} or not schema.keys() & DECIDING:
            return False
        types = _types(schema)
        self.n_unions += (len(types) > 1) + ("anyOf" in schema)
        return (
            _says_plainly(schema, formats={*FORMATS, URI})
            and schema.get("minItems") in (None, 0, 1)
            and ("array" not in types or self.accepts(schema.get("items"), above))
            and ("object" not in types or self._accepts_object(schema, above))
            and all(self.accepts(choice, above) for choice in as_list(schema.get("anyOf")))
            and ("$ref" not in schema or self._accepts_reference(schema["$ref"], above))
        )

    def _accepts_object(self, schema: Mapping[str, object], above: tuple[str, ...]) -> bool:
        properties = as_object(schema.get("properties"))
        return _is_closed(schema) and all(self.accepts(property, above) for property in properties.values())

    def _accepts_reference(self, reference: object, above: tuple[str, ...]) -> bool:
        name = reference.removeprefix(_LOCAL) if isinstance(reference, str) else ""
        if reference != f"{_LOCAL}{name}" or name in above:
            return False
        return self.accepts(self._definitions.get(name), (*above, name))


def close_schema(schema: JsonObject) -> JsonObject:
    """Return a schema as the Messages API takes it for an answer: with closed objects, and what it has no keyword for
    in descriptions, where the model reads it.

    Raises:
        ValueError: something in it cannot be said there, with what that is.
    """
    definitions = as_object(schema.get("$defs"))
    for name in definitions:
        if name in _find_references(definitions, name):
            raise ValueError(f"{name} contains itself")
    return _close_part(schema)


def _find_references(definitions: JsonObject, name: str) -> set[str]:
    """Return the definitions that a definition refers to, also by others."""
    found: set[str] = set()
    waiting: list[JsonValue] = [definitions.get(name)]
    while waiting:
        value = waiting.pop()
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        reference = value.get("$ref") if isinstance(value, dict) else None
        if isinstance(reference, str) and (inner := reference.removeprefix(_LOCAL)) not in found:
            found.add(inner)
            waiting.append(definitions.get(inner))
    return found


def _close_part(schema: JsonObject) -> JsonObject:
    made: JsonObject = {}
    if definitions := as_object(schema.get("$defs")):
        made["$defs"] = {name: _close_part(as_object(each)) for name, each in definitions.items()}
    if "$ref" in schema:
        return {**made, "$ref": schema["$ref"]}
    choices = as_list(schema.get("anyOf")) or as_list(schema.get("oneOf"))
    if choices:
        made["anyOf"] = [_close_part(as_object(choice)) for choice in choices]
    made |= {key: schema[key] for key in ("type", "enum", "const", "title") if key in schema}
    if not made.keys() & DECIDING:
        raise ValueError("a part of it may be anything")
    if "object" in _types(schema):
        _close_object(schema, made)
    if "items" in schema:
        made["items"] = _close_part(as_object(schema["items"]))
    if schema.get("format") in (*FORMATS, URI):
        made["format"] = schema["format"]
    notes = {key: value for key, value in schema.items() if key not in _SAID and key not in made}
    said = [as_text(schema.get("description")), to_json(notes).decode() if notes else ""]
    if any(said):
        made["description"] = "\n\n".join([text for text in said if text])
    return made


def _close_object(schema: JsonObject, made: JsonObject) -> None:
    properties = as_object(schema.get("properties"))
    if not properties and schema.get("additionalProperties", False) is not False:
        raise ValueError("a part of it is an object whose names are not known, such as a dict")
    made["properties"] = {name: _close_part(as_object(each)) for name, each in properties.items()}
    made["required"] = as_list(schema.get("required"))
    made["additionalProperties"] = False


_SAID: Final = frozenset({"$defs", "additionalProperties", "anyOf", "description", "discriminator", "oneOf", "$schema"})


def is_enforceable(schema: JsonObject) -> bool:
    """Return whether a tool with this schema may be sent as `strict` to OpenAI's APIs, by their rules of "Structured
    Outputs"."""
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
        self.definitions = as_object(document.get("$defs"))
        self.n_choices = 0
        self.n_properties = 0

    def accepts(self, value: object, level: int = 0) -> bool:
        schema = as_object(value)
        if "$ref" in schema:
            known = schema["$ref"] in [_LOCAL + name for name in self.definitions]
            return known and len(schema) == 1  # the API refuses a reference with a description beside it
        types = _types(schema)
        self.n_choices += len(as_list(schema.get("enum")))
        return (
            schema.keys() <= OPENAI_KEYWORDS
            and ("anyOf" in schema or (bool(types) and types <= _TYPES))
            and _says_plainly(schema, formats=FORMATS)
            and ("array" not in types or self.accepts(schema.get("items"), level))
            and ("object" not in types or self._accepts_object(schema, level + 1))
            and all(self.accepts(choice, level) for choice in as_list(schema.get("anyOf")))
        )

    def _accepts_object(self, schema: Mapping[str, object], level: int) -> bool:
        properties = as_object(schema.get("properties"))
        self.n_properties += len(properties)
        fits = level <= LEVELS_AT_MOST
        return _is_closed(schema) and fits and all(self.accepts(each, level) for each in properties.values())


def _is_closed(schema: Mapping[str, object]) -> bool:
    """Tell whether an object has the properties that it names, all of them, and no others."""
    complete = set[object](as_object(schema.get("properties"))) == set(as_list(schema.get("required")))
    return schema.get("additionalProperties") is False and complete


def _says_plainly(schema: Mapping[str, object], *, formats: Collection[str]) -> bool:
    """Tell whether the values that may be chosen are plain ones, and the format is one of `formats`."""
    choices = [*as_list(schema.get("enum")), schema.get("const")]
    return all(choice is None or isinstance(choice, str | int | float | bool) for choice in choices) and (
        schema.get("format") in (None, *formats)
    )


def _types(schema: Mapping[str, object]) -> set[str]:
    types = schema.get("type", [])
    listed = as_list(types)
    return {str(name) for name in listed} if listed or types == [] else {str(types)}

"""Prepares the arguments that a model wrote for their check: drops nulls that count as absent, and quotes non-objects.

Nothing is changed but what the schema itself says: a null for a property that may be left out and may not be null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.definition.narrowing import as_list, as_object, is_dict, is_list, is_str_dict
from journeyman.texts import without_middle
from journeyman.types import JsonObject

_QUOTED_HEAD: Final = 700
_QUOTED_TAIL: Final = 300
_EITHER: Final = ("anyOf", "oneOf")
_MAX_PLACES: Final = 1_000
_SCALARS: Final = ("boolean", "integer", "null", "number", "string")
_HOLDERS: Final = (dict, list)
_LEADING: Final = frozenset({"$ref", "allOf", *_EITHER})


def quoting(text: str, malformed: str | None, *, may_be_quoted: bool) -> str:
    """Return the text of an error, followed by what the model wrote in place of a JSON object, if it did: no provider
    takes that back as arguments, so the model has it nowhere else. Of a long one, the middle is left out."""
    if malformed is None or not may_be_quoted:
        return text
    return f"{text}\nYou wrote: {without_middle(malformed, _QUOTED_HEAD, _QUOTED_TAIL)}"


def holds_secrets(schema: object) -> bool:
    """Tell whether a JSON Schema has a clause whose values are not to be shown: pydantic marks its secrets so."""
    match schema:
        case {"writeOnly": True} | {"format": "password"}:
            return True
        case _ if is_dict(schema):
            return any(map(holds_secrets, schema.values()))
        case _:
            return is_list(schema) and any(map(holds_secrets, schema))


class AbsentNulls:
    """The nulls that count as absent in the arguments of one tool."""

    __slots__ = ("_reader", "_schema")

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._reader = _SchemaReader(schema)

    def without(self, input_json: str | bytes) -> str | bytes:
        """Return the arguments without those nulls. What cannot be read stays as it is."""
        has_null = b"null" in input_json if isinstance(input_json, bytes) else "null" in input_json
        if not (has_null and self._reader.has_lackable):
            return input_json
        try:
            value: object = read_json(input_json)
        except (ValueError, TypeError):  # the check will say what is wrong
            return input_json
        return write_json(value) if self.leave_out(value) else input_json

    def leave_out(self, value: object) -> bool:
        """Take those nulls out of `value`, at any depth. Return whether there were any."""
        reader = self._reader
        if not reader.has_lackable:
            return False
        if reader.n_places > _MAX_PLACES:  # some schemas have more than can be kept
            reader = self._reader = _SchemaReader(self._schema)
        return reader.clean([value], reader.place([_Clause(self._schema)]))


@lazy_dataclass(frozen=True)
class _Clause:
    """A schema that a value may have to fit."""

    schema: object
    is_choice: bool = False
    """True when it is one of several, of which the value fits another perhaps."""


class _SchemaReader:
    """Reads a schema and what it refers to. What it does not understand allows null, and requires nothing."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._nulls: dict[str, bool] = {}
        """True for a reference that leads to what null fits."""
        self._places: dict[tuple[tuple[int, bool], ...], _Spot] = {}

    @property
    def n_places(self) -> int:
        return len(self._places)

    def place(self, given: list[_Clause]) -> _Spot:
        """Return what is known of values that have to fit these clauses: there may be very many such values."""
        key = tuple(dict.fromkeys([(id(each.schema), each.is_choice) for each in given]))
        if key not in self._places:
            seen = set[tuple[str, bool]]()
            self._places[key] = _Spot(self, [clause for each in given for clause in self._clauses(each, seen)])
        return self._places[key]

    @cached_property
    def has_lackable(self) -> bool:
        """False when the document says of no property that it may be left out and may not be null."""
        waiting: list[object] = [self._root]
        while waiting:
            found = waiting.pop()
            if is_dict(found):
                required = as_list(found.get("required"))
                optional = [each for name, each in as_object(found.get("properties")).items() if name not in required]
                if not all(map(self.allows_null, optional)):
                    return True
                waiting += found.values()
            elif is_list(found):
                waiting += found
        return False

    def clean(self, values: Iterable[object], place: _Spot) -> bool:
        """Take those nulls out of values that stand at a place. Return whether there were any."""
        if place.is_empty:
            return False
        holders: list[object] = [each for each in values if isinstance(each, _HOLDERS)]
        changed = [self.clean(each, place.items) for each in holders if is_list(each)]
        objects = [] if place.is_flat and not place.lackable else [each for each in holders if is_str_dict(each)]
        absent = [(each, name) for name in place.lackable for each in objects if each.get(name, True) is None]
        for each, name in absent:
            del each[name]
        if not place.is_flat:
            named = [each for fields in objects for each in fields.items() if isinstance(each[1], _HOLDERS)]
            changed += [self.clean([item], place.property(name)) for name, item in named]
        return bool(absent) or any(changed)

    def _clauses(self, clause: _Clause, seen: set[tuple[str, bool]]) -> Iterator[_Clause]:
        """Give the schema, and every schema that it is made of; each reference once, which keeps hostile ones short."""
        schema = as_object(clause.schema)
        yield clause
        reference = schema.get("$ref")
        if isinstance(reference, str) and (reference, clause.is_choice) not in seen:
            seen.add((reference, clause.is_choice))
            yield from self._clauses(_Clause(self._target(reference), clause.is_choice), seen)
        for keyword in ("allOf", *_EITHER):
            for choice in as_list(schema.get(keyword)):
                yield from self._clauses(_Clause(choice, clause.is_choice or keyword in _EITHER), seen)

    def allows_null(self, given: object, within: frozenset[str] = frozenset()) -> bool:
        """Tell whether null fits a schema, as far as its usual keywords say. `within`: the references that led here."""
        if given is False:
            return False
        schema = as_object(given)
        types = schema.get("type", "null")
        if types != "null" and "null" not in as_list(types):
            return False
        if schema.get("const") is not None or None not in as_list(schema.get("enum", [None])):
            return False
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in self._nulls and reference not in within:
            self._nulls[reference] = self.allows_null(self._target(reference), within | {reference})
        fits = partial(self.allows_null, within=within)
        either = [map(fits, as_list(schema[key])) for key in _EITHER if key in schema]
        every = map(fits, as_list(schema.get("allOf")))
        return self._nulls.get(str(reference), True) and all(map(any, either)) and all(every)

    def _target(self, reference: str) -> object:
        """Return what a reference inside the document leads to; what allows everything, if it leads nowhere."""
        if not reference.startswith("#"):
            return True
        place: object = self._root
        for step in reference[1:].split("/")[1:]:
            place = as_object(place).get(step.replace("~1", "/").replace("~0", "~"), True)
        return place


class _Spot:
    """A place in the schema where values may stand: what may be left out there, and what leads on."""

    def __init__(self, reader: _SchemaReader, clauses: list[_Clause]) -> None:
        self._reader = reader
        self._clauses = clauses
        self._known = [as_object(as_object(clause.schema).get("properties")) for clause in clauses]
        self.is_empty = not clauses
        """True when nothing is known of what stands here."""
        self._properties: dict[str, _Spot] = {}

    @cached_property
    def items(self) -> _Spot:
        schemas = [as_object(each.schema) for each in self._clauses]
        return self._reader.place([_Clause(schema["items"]) for schema in schemas if "items" in schema])

    def property(self, name: str) -> _Spot:
        if not any([name in properties for properties in self._known]):
            return self._reader.place([])
        if name not in self._properties:
            given = [_Clause(properties[name]) for properties in self._known if name in properties]
            self._properties[name] = self._reader.place(given)
        return self._properties[name]

    @cached_property
    def is_flat(self) -> bool:
        """True when nothing is known of what lists and objects in an object hold here."""
        schemas = [as_object(each) for known in self._known for each in known.values()]
        return all([each.get("type") in _SCALARS and not each.keys() & _LEADING for each in schemas])

    @cached_property
    def lackable(self) -> Sequence[str]:
        """The properties that may be left out, and may not be null."""
        names = dict.fromkeys([name for properties in self._known for name in properties])
        return tuple([name for name in names if self._may_be_absent(name)])

    def _may_be_absent(self, name: str) -> bool:
        pairs = [*zip(self._clauses, self._known, strict=True)]
        known = [as_object(clause.schema) for clause, properties in pairs if name in properties]
        binding = [*known, *[as_object(clause.schema) for clause in self._clauses if not clause.is_choice]]
        is_required = any(name in as_list(schema.get("required")) for schema in binding)
        properties = [as_object(schema["properties"])[name] for schema in known]
        return not is_required and not any(map(self._reader.allows_null, properties))

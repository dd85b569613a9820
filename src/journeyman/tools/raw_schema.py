"""A JSON Schema that is given as such, for example by an MCP server, as the check of a tool's arguments.

Whoever wrote the schema does not decide how long a check takes: what it costs is counted first, and what is too much is
refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, cast

from pydantic_core import from_json

from journeyman.definition.narrowing import as_list, is_json_array, is_json_object, is_list, is_str_dict
from journeyman.errors import DefinitionError, InvalidArguments, Problem
from journeyman.texts import shorten_line
from journeyman.tools.issues import Fault, Rank, excerpt, holds_json, issue_lines
from journeyman.tools.shape import TooManyToCount
from journeyman.tools.written import AbsentNulls, holds_secrets
from journeyman.types import JsonObject

if TYPE_CHECKING:
    from jsonschema_rs import FancyRegexOptions, RegexOptions
    from pydantic import JsonValue

MAX_SCHEMA_PARTS: Final = 20_000
"""The most schemas that a tool's schema may hold, each counted as often as references lead to it."""
MAX_SCHEMA_CHARS: Final = 1_000_000
"""The longest texts that a tool's schema may hold, all together."""
_MAX_REPEATS: Final = 20_000
"""How often all patterns of a schema may repeat something, as in `a{20}`: each repetition is compiled. Every pattern
counts 100 more."""
_REPEATS_OF_ANY: Final = 100
_MAX_STEPS: Final = 500_000
"""How often arguments may be compared with a part of the schema: some 20 ms."""
_MAX_STEPS_EXPLAINED: Final = 4_000
"""The same, where every fault is told: that takes hundreds of times as long."""
_MAX_LOOKS: Final = 40_000
"""How many pairs of a value and a schema are looked at to count those steps: some 30 ms."""
_MAX_SCHEMA_VALUES: Final = 20_000
_BACKTRACKS: Final = 10_000  # a pattern with a look-around could go back and forth without end


class RawSchema:
    """A JSON Schema: the arguments come out as plain JSON values.

    A null for what may be left out is taken out of them, unless its schema allows null.
    """

    __slots__ = ("_checks_formats", "_nulls", "_schema", "_validator", "_weight", "input_schema", "may_be_quoted")

    def __init__(self, schema: JsonObject, *, formats: bool = False) -> None:
        """`formats`: texts must be in the `format` that the schema names; otherwise, its draft decides.

        Raises:
            DefinitionError: the package that checks by schemas is not installed.
        """
        if sys.modules.get("jsonschema_rs") is None and find_spec("jsonschema_rs") is None:
            text = "A tool of a ready schema needs the package jsonschema-rs, which is not installed."
            problem = Problem("MISSING_PACKAGE", text, "Install it: pip install 'journeyman[schemas]'")
            raise DefinitionError("A ready JSON Schema", [problem])
        self._schema = schema
        self._checks_formats = formats or None
        self._nulls = AbsentNulls(schema)
        self._validator: _Validator | None = None
        self._weight: _Weight | None = None
        self.may_be_quoted = not holds_secrets(schema)
        self.input_schema: JsonObject = {key: value for key, value in schema.items() if key != "$schema"}

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        """Return the arguments, checked, in objects of their own. `subject` is what error texts call them.

        Raises:
            InvalidArguments: they do not fit, or the schema itself is faulty; it lists every issue.
        """
        arguments = _parse_object(input_json, subject)
        try:
            steps = self._steps(arguments, input_json)
            if steps.most > _MAX_STEPS and steps.counted > _MAX_STEPS:
                wrong = "checking them by the tool's schema would take too long; send less at a time"
                raise InvalidArguments(subject, [wrong])
            if (b"null" in input_json) if isinstance(input_json, bytes) else "null" in input_json:
                self._nulls.leave_out(arguments)
            validator = self._validator
            if validator is None:
                validator = self._validator = self._compile()
            if steps.most > _MAX_STEPS_EXPLAINED:
                if validator.is_valid(arguments):
                    return arguments
                if steps.counted > _MAX_STEPS_EXPLAINED:
                    wrong = "they do not fit the tool's schema, and are too many to say where; send less at a time"
                    raise InvalidArguments(subject, [wrong])
            faults = [fault for error in validator.iter_errors(arguments) for fault in _faults(error)]
        except (ValueError, RecursionError) as error:  # of the schema, or of a pattern that takes too long
            reason = shorten_line(str(error).partition("\n")[0])
            raise InvalidArguments(
                subject, [f"they cannot be checked, the tool's schema is faulty: {reason}"]
            ) from error
        if faults:
            raise InvalidArguments(subject, issue_lines(faults))
        return arguments

    def fault(self) -> str | None:
        """Return why nothing can be checked by the schema; None if it can."""
        try:
            if self._validator is None:
                self._validator = self._compile()
        except (ValueError, RecursionError) as error:
            return shorten_line(str(error).partition("\n")[0]) or "it is nested too deeply"
        return None

    def _compile(self) -> _Validator:
        from jsonschema_rs import FancyRegexOptions, RegexOptions

        try:
            return self._with_patterns(RegexOptions())  # in linear time, whatever the pattern
        except ValueError:  # of a look-around, perhaps
            return self._with_patterns(FancyRegexOptions(backtrack_limit=_BACKTRACKS))

    def _with_patterns(self, patterns: RegexOptions | FancyRegexOptions) -> _Validator:
        import jsonschema_rs

        of_draft = _DRAFT.fullmatch(str(self._schema.get("$schema")))
        # Values are masked, since messages repeat them whole. References lead nowhere outside, to neither files nor
        # hosts.
        validator = (jsonschema_rs.validator_for if of_draft else jsonschema_rs.Draft202012Validator)(
            self._schema if of_draft else self.input_schema,
            mask="it",
            retriever=_refuse,
            pattern_options=patterns,
            validate_formats=self._checks_formats,
        )
        return cast("_Validator", validator)

    def _steps(self, arguments: dict[str, object], input_json: str | bytes) -> _Steps:
        if self._weight is None:
            self._weight = _Weight(self._schema)
        if self._weight.problem:
            raise ValueError(f"it {self._weight.problem}")
        return _Steps(self._weight, arguments, input_json)


def _parse_object(input_json: str | bytes, subject: str) -> dict[str, object]:
    try:
        value: object = from_json(input_json, allow_inf_nan=False)
    except (ValueError, TypeError) as error:  # TypeError: it holds a lone surrogate
        raise InvalidArguments(subject, [f"it is not valid JSON: {shorten_line(str(error))}"]) from None
    if is_str_dict(value):
        return value
    fault = Fault(Rank.TYPE, (), "should be an object", excerpt(value), is_quoted=holds_json(value))
    raise InvalidArguments(subject, issue_lines([fault]))


_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/2019-09|draft/2020-12)/schema#?")


class _Kind(Protocol):
    """The attributes by which jsonschema_rs describes an error; each keyword of a schema sets those that concern it."""

    property: str
    unexpected: list[str]
    types: list[str]


class _Error(Protocol):
    """The part of an error that is used here."""

    message: str
    instance_path: list[str | int]
    schema_path: list[str | int]
    instance: object
    kind: _Kind


class _Validator(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Iterator[_Error]: ...


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"references to other documents are not followed: {uri}")


def _faults(error: _Error) -> Iterator[Fault]:
    path, found = tuple(error.instance_path), excerpt(error.instance)
    match error.schema_path[-1:]:
        case ["required"]:
            yield Fault(Rank.MISSING, (*path, error.kind.property), "is required")
        case ["additionalProperties" | "unevaluatedProperties"] if hasattr(error.kind, "unexpected"):
            for name in error.kind.unexpected:
                yield Fault(Rank.UNKNOWN, (*path, name), "is not a known name")
        case ["additionalProperties"]:  # of an object without any property: the error does not name the offender
            yield Fault(Rank.UNKNOWN, path, "takes no names")
        case ["type"]:
            types = error.kind.types
            is_quoted = holds_json(error.instance) and not {"object", "array"}.isdisjoint(types)
            yield Fault(Rank.TYPE, path, f"should be of type {' or '.join(sorted(types))}", found, is_quoted)
        case _:
            yield Fault(Rank.VALUE, path, error.message.removeprefix("it "), found)


_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("dependentSchemas", "patternProperties", "properties")
_SINGLE: Final = (
    *("not", "if", "then", "else", "contains", "propertyNames"),
    *("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_AGAIN: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""With these, whatever else holds for the same value is checked twice."""
_HELD: Final = frozenset({*_LISTED, *_NAMED, *_SINGLE, *_REFERENCES, "items"})
_REPEATS: Final = re.compile(r"(\)?)\{(\d{1,9})(?:,(\d{0,9}))?\}")


def size_problems(schema: JsonObject) -> list[Problem]:
    """Return why a schema is too large to be used, if it is: it can be huge although its text is short."""
    problem = _Weight(schema).problem
    hint = "Make it simpler, or leave the tool out (that of an MCP server with only=[…])."
    return [Problem("INPUT_SCHEMA_TOO_LARGE", f"The input schema {problem}.", hint)] if problem else []


class _References:
    """Finds what references of a document lead to: all that they may mean, where there are several."""

    def __init__(self, document: JsonObject) -> None:
        self._bases: list[JsonObject] = [document]
        self._anchors: dict[str, list[object]] = {}
        self._found: dict[str, Sequence[object]] = {}
        self.n_chars = 0
        """How long all texts of the document are together."""
        self.patterns: list[str] = []
        self.n_values = 0
        """How many values the document holds; counted no further than is allowed."""
        waiting: list[JsonValue] = [document]
        while waiting and self.n_values <= _MAX_SCHEMA_VALUES:
            self.n_values += 1
            match waiting.pop():
                case dict() as schema:
                    if isinstance(schema.get("$id"), str) and schema is not document:
                        self._bases.append(schema)
                    for name in ("$anchor", "$dynamicAnchor"):
                        if isinstance(anchor := schema.get(name), str):
                            self._anchors.setdefault(anchor, []).append(schema)
                    if isinstance(pattern := schema.get("pattern"), str):
                        self.patterns.append(pattern)
                    if isinstance(patterns := schema.get("patternProperties"), dict):
                        self.patterns += patterns
                    self.n_chars += sum(map(len, schema))
                    waiting += schema.values()
                case list() as items:
                    waiting += items
                case str() as text:
                    self.n_chars += len(text)
                case _:
                    pass

    def targets(self, schema: JsonObject) -> Iterator[object]:
        """Give what the references of a schema lead to."""
        for name in _REFERENCES:
            reference = schema.get(name)
            if isinstance(reference, str):
                if reference not in self._found:
                    self._found[reference] = self._resolve_pointer(reference.partition("#")[2])
                yield from self._found[reference]

    def _resolve_pointer(self, fragment: str) -> Sequence[object]:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment, [])
        found: list[object] = []
        for base in self._bases[:_MOST_BASES]:
            place: JsonValue = base
            for step in fragment.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                match place:
                    case dict():
                        place = place.get(name)
                    case list() if name.isdecimal() and int(name) < len(place):
                        place = place[int(name)]
                    case _:
                        place = None
            if place is not None:
                found.append(place)
        return found


_MOST_BASES: Final = 100


class _Weight:
    """A measure of how large a schema is with its references followed; a reference to itself is followed once."""

    def __init__(self, document: JsonObject) -> None:
        self.document = document
        self.references = _References(document)
        self.is_recursive = False
        self.problem = ""
        """What is wrong with it, to be read after `The input schema`; empty if nothing is."""
        self._known: dict[int, int] = {}
        self._own: dict[int, int] = {}
        n_chars, n_values = self.references.n_chars, self.references.n_values
        in_all = sum(map(n_repeats, self.references.patterns))
        self.n_parts = 0 if n_values > _MAX_SCHEMA_VALUES else self._count_parts(document)
        if self.n_parts > MAX_SCHEMA_PARTS or n_values > _MAX_SCHEMA_VALUES:
            self.problem = f"has more than {MAX_SCHEMA_PARTS:,} parts, with its references followed"
        elif n_chars > MAX_SCHEMA_CHARS:
            self.problem = f"has texts of {n_chars:,} characters, of at most {MAX_SCHEMA_CHARS:,}"
        elif in_all > _MAX_REPEATS:
            self.problem = f"has patterns that repeat {in_all:,} times, of at most {_MAX_REPEATS:,}"

    def own(self, schema: JsonObject) -> int:
        """Return the steps that a schema takes itself, without those that it holds or refers to."""
        if (known := self._own.get(id(schema))) is not None:
            return known
        choices = [schema[name] for name in ("enum", "const") if name in schema]
        known = self._own[id(schema)] = 1 + len(as_list(schema.get("required"))) + 4 * _n_values(choices)
        return known

    def _count_parts(self, value: object) -> int:
        if not is_json_object(schema := value):
            return 1
        if (known := self._known.get(id(schema))) is not None:
            self.is_recursive = self.is_recursive or known == 0
            return known or 1
        self._known[id(schema)] = 0  # until it is known: it may refer to itself
        held = [] if schema.keys().isdisjoint(_HELD) else [*_schemas_in(schema), *self.references.targets(schema)]
        again = 1 if schema.keys().isdisjoint(_AGAIN) else 2
        try:
            n_parts = self.own(schema) + again * sum(map(self._count_parts, held))
        except RecursionError:
            n_parts = MAX_SCHEMA_PARTS + 1
        self._known[id(schema)] = n_parts
        return n_parts


def _n_values(value: object) -> int:
    waiting, n_values = [value], -1
    while waiting:
        n_values += 1
        found = waiting.pop()
        if is_json_object(found):
            waiting += found.values()
        elif is_json_array(found):
            waiting += found
    return n_values


def n_repeats(pattern: str) -> int:
    """Return what a pattern costs to compile: as many repetitions as it says, and some for being one."""
    found = [(bool(closing), int(most or least)) for closing, least, most in _REPEATS.findall(pattern)]
    inside = sum(number for is_group, number in found if not is_group)
    return _REPEATS_OF_ANY + max(1, inside) * prod([max(1, number) for is_group, number in found if is_group])


def _schemas_in(schema: JsonObject) -> Iterator[object]:
    """Give the schemas that a schema holds, except for those that it only defines."""
    for name in _LISTED:
        yield from as_list(schema.get(name))
    for name in _NAMED:
        if isinstance(named := schema.get(name), dict):
            yield from named.values()
    yield from (schema[name] for name in _SINGLE if name in schema)
    items = schema.get("items")
    yield from as_list(items) if isinstance(items, list) else () if items is None else (items,)


class _Steps:
    """Counts how often a check compares a value with a schema, each pair once: every further time costs an addition."""

    def __init__(self, weight: _Weight, value: dict[str, object], written: str | bytes) -> None:
        """`written` is the JSON text that the value was read from."""
        self._weight = weight
        self._value = value
        self._counted: dict[tuple[int, int], float] = {}
        self._n_looks = 0
        if isinstance(written, bytes):
            n_values = 1 + sum([written.count(mark) for mark in b",{["])
        else:
            n_values = 1 + sum([written.count(mark) for mark in ",{["])
        self.most = float("inf") if weight.is_recursive else float(weight.n_parts * n_values + len(written) // 16)
        """More than it takes, told without a look at the value."""

    @cached_property
    def counted(self) -> float:
        """Return the number of comparisons, a little overestimated; infinity if they are too many to count."""
        try:
            return self._of(self._weight.document, self._value)
        except (RecursionError, TooManyToCount):
            return float("inf")

    def _of(self, given: object, value: object) -> float:
        self._n_looks += 1
        if self._n_looks > _MAX_LOOKS:
            raise TooManyToCount
        if not is_json_object(schema := given):
            return 1
        own = self._weight.own(schema)
        if isinstance(value, str) and "pattern" in schema:
            own += len(value) // 16
        if schema.keys().isdisjoint(_HELD):
            return own
        pair = (id(schema), id(value))
        if pair in self._counted:
            return self._counted[pair]
        self._counted[pair] = 1  # until it is known: it may refer to itself
        here = self._here(schema, value)
        self._counted[pair] = found = own + here * (1 if schema.keys().isdisjoint(_AGAIN) else 2)
        return found

    def _here(self, schema: JsonObject, value: object) -> float:
        whole = [*self._weight.references.targets(schema)]
        for name in ("allOf", "anyOf", "oneOf"):
            whole += as_list(schema.get(name))
        whole += [schema[name] for name in ("not", "if", "then", "else") if name in schema]
        if isinstance(dependent := schema.get("dependentSchemas"), dict):
            whole += dependent.values()
        n_steps = sum([self._of(each, value) for each in whole])
        if is_str_dict(value):
            return n_steps + self._in_object(schema, value)
        return n_steps + self._in_list(schema, value) if is_list(value) else n_steps

    def _in_object(self, schema: JsonObject, value: dict[str, object]) -> float:
        properties = schema.get("properties")
        known = properties if is_json_object(properties) else {}
        patterns = schema.get("patternProperties")
        rest: list[object] = [*patterns.values()] if is_json_object(patterns) else []
        rest += [schema[name] for name in ("additionalProperties", "unevaluatedProperties") if name in schema]
        n_steps = 0.0
        for name, item in value.items():
            if "propertyNames" in schema:
                n_steps += self._of(schema["propertyNames"], name)
            if name in known:
                n_steps += self._of(known[name], item)
            n_steps += sum([self._of(each, item) for each in rest])
        return n_steps

    def _in_list(self, schema: JsonObject, value: list[object]) -> float:
        first = [*as_list(schema.get("prefixItems")), *as_list(schema.get("items"))]
        rest = [schema[name] for name in ("additionalItems", "contains", "unevaluatedItems") if name in schema]
        rest += [] if isinstance(schema.get("items", []), list) else [schema["items"]]
        n_steps = sum([self._of(each, item) for each, item in zip(first, value, strict=False)])
        for each in rest:
            known = each if is_json_object(each) else {}
            is_plain = known.keys().isdisjoint(_HELD) and "pattern" not in known
            n_steps += self._weight.own(known) * len(value) if is_plain else sum([self._of(each, at) for at in value])
        return n_steps

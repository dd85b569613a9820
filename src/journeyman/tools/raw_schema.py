"""A JSON Schema that is given as such, for example by an MCP server, as the check of a tool's arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn, Protocol, cast

from pydantic_core import from_json

from journeyman.errors import InvalidArguments
from journeyman.tools.issues import Fault, Rank, bounded, excerpt, holds_json, issue_lines
from journeyman.tools.written import holds_secrets, leave_out_absent
from journeyman.types import JsonObject


class RawSchema:
    """A JSON Schema: the arguments come out as plain JSON values.

    A null for what may be left out is taken out of them, unless its schema allows null.
    """

    __slots__ = ("_schema", "_validator", "input_schema", "may_be_quoted")

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._validator: _Validator | None = None
        self.may_be_quoted = not holds_secrets(schema)
        self.input_schema: JsonObject = {key: value for key, value in schema.items() if key != "$schema"}

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        """Return the arguments, checked, in objects of their own. `subject` is what error texts call them.

        Raises:
            InvalidArguments: they do not fit, or the schema itself is faulty; it lists every issue.
        """
        arguments = _loaded(input_json, subject)
        try:
            leave_out_absent(arguments, self._schema)
            faults = [fault for error in self._compiled().iter_errors(arguments) for fault in _faults(error)]
        except (ValueError, RecursionError) as error:  # of the schema, or of a pattern that takes too long
            reason = bounded(str(error).partition("\n")[0])
            raise InvalidArguments(
                subject, [f"they cannot be checked, the tool's schema is faulty: {reason}"]
            ) from error
        if faults:
            raise InvalidArguments(subject, issue_lines(faults))
        return arguments

    def _compiled(self) -> _Validator:
        if self._validator is None:
            self._validator = _compile(self._schema, self.input_schema)
        return self._validator


def _loaded(input_json: str | bytes, subject: str) -> dict[str, object]:
    try:
        value: object = from_json(input_json, allow_inf_nan=False)
    except (ValueError, TypeError) as error:  # TypeError: it holds a lone surrogate
        raise InvalidArguments(subject, [f"it is not valid JSON: {bounded(str(error))}"]) from None
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    fault = Fault(Rank.TYPE, (), "should be an object", excerpt(value), is_quoted=holds_json(value))
    raise InvalidArguments(subject, issue_lines([fault]))


_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/2019-09|draft/2020-12)/schema#?")


class _Kind(Protocol):
    """What jsonschema_rs tells of an error, each for the keyword of that sense."""

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
    def iter_errors(self, instance: object) -> Iterator[_Error]: ...


def _compile(schema: JsonObject, without_draft: JsonObject) -> _Validator:
    import jsonschema_rs

    # Values are masked, since messages repeat them whole. References lead nowhere outside, to neither files nor hosts.
    if _DRAFT.fullmatch(str(schema.get("$schema"))):
        validator = jsonschema_rs.validator_for(schema, mask="it", retriever=_refuse)
    else:
        validator = jsonschema_rs.Draft202012Validator(without_draft, mask="it", retriever=_refuse)
    return cast("_Validator", validator)


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

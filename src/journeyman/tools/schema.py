"""From types to JSON Schema and back: what the model is told to send, and the check of what it sent.

`Fields` are a tool's parameters, `OutputSchema` is any type that an agent takes or gives. Each has an `input_schema`
with an object at the top, as the APIs want it, and a `parse` that raises `InvalidArguments` and nothing else.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache, lru_cache
from hashlib import sha256
from typing import Annotated, Any, Final, Generic, NotRequired, Protocol, Required, TypeVar, cast, get_args

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, JsonValue, PydanticUserError, TypeAdapter, with_config
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema, PydanticSerializationError, SchemaError, core_schema
from typing_extensions import TypedDict, TypeForm

from journeyman.content.media import n_bytes_of
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.definition.problems import raise_problems
from journeyman.errors import DefinitionError, InvalidArguments, Problem
from journeyman.model import ToolSpec
from journeyman.texts import shorten_line
from journeyman.tools.bounded import BoundedValidator
from journeyman.tools.issues import hides_input
from journeyman.tools.prose import find_object
from journeyman.tools.written import AbsentNulls, holds_secrets
from journeyman.types import JsonObject, Text, Url, UserContent

UNIONS: Final = frozenset({"allOf", "anyOf", "oneOf"})
_PROPERTY_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_OTHERWISE: Final = "leave the tool out (that of an MCP server with only=[…]), or use another provider."

T = TypeVar("T")

REQUIRED = inspect.Parameter.empty
"""The default of a parameter that has none."""


@lazy_dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    annotation: object
    """The resolved annotation, `Annotated` included."""
    default: object = REQUIRED
    description: str = ""
    """Used when the annotation brings no description of its own."""


class Arguments(Protocol):
    """A port that describes a tool's arguments by a schema, and checks what a model wrote as such."""

    @property
    def input_schema(self) -> JsonObject: ...

    @property
    def may_be_quoted(self) -> bool:
        """False when what the model wrote may hold secrets, so that no error may repeat it."""
        ...

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        """Return the arguments, checked, in objects of their own. `subject` is what error texts call them.

        Raises:
            InvalidArguments: they do not fit; it lists every issue.
        """
        ...


class TypedArguments:
    """Arguments of a tool of the library: a type checks them, and no package by the schema."""

    __slots__ = ("_nulls", "_validator", "input_schema", "may_be_quoted")

    def __init__(self, schema: JsonObject, checked_by: TypeAdapter[Any]) -> None:
        self.input_schema, self.may_be_quoted = schema, not holds_secrets(schema)
        self._validator, self._nulls = BoundedValidator(checked_by), AbsentNulls(schema)

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        return self._validator.check_json(self._nulls.without(input_json), subject)

    @staticmethod
    def describe(checked_by: TypeAdapter[Any]) -> JsonObject:
        """Return the schema of a type, for a tool that has none in its own words."""
        return _json_schema(checked_by)


class Fields:
    """Parameters with Python types: the arguments come out as values of those types, defaults filled in.

    A null for what may be left out counts as absent, unless its type allows None.
    """

    __slots__ = ("_nulls", "_validator", "input_schema", "may_be_quoted")

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Compile the parameters.

        Raises:
            DefinitionError: a type cannot be described or checked; it lists every such parameter.
        """
        given = tuple(parameters)
        written = _words_for_types(given)
        compiled = _compile_fields(given) if written is None else _compile_fields_once(given, written)
        # In objects of its own: whoever changes the schema of one tool must not change that of another.
        self.input_schema: JsonObject = deepcopy(compiled.input_schema)
        self.may_be_quoted = compiled.may_be_quoted
        self._validator, self._nulls = compiled.validator, compiled.nulls

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        """Return the arguments, checked, in objects of their own. `subject` is what error texts call them.

        Raises:
            InvalidArguments: they do not fit; it lists every issue, or the first ones of long arguments.
        """
        return self._validator.check_json(self._nulls.without(input_json), subject)


@lazy_dataclass(frozen=True, eq=False)
class _CompiledFields:
    """Parameters, compiled: for all tools that have the same."""

    input_schema: JsonObject
    validator: BoundedValidator[dict[str, object]]
    nulls: AbsentNulls
    may_be_quoted: bool


def _compile_fields(parameters: tuple[Parameter, ...], *apart: object) -> _CompiledFields:
    """Compile parameters. What tells them `apart` from others matters only where it is done once for all equal ones."""
    try:
        adapter = _adapter_of(parameters)
        input_schema: JsonObject = {**_json_schema(adapter), "additionalProperties": False}
        hides = hides_input(adapter.core_schema)
        is_secret = hides or holds_secrets(input_schema)
        validator = BoundedValidator(cast("TypeAdapter[dict[str, object]]", adapter), hides=hides)
    except BUILD_ERRORS as error:
        raise DefinitionError("The signature", _problems_of(parameters, error)) from error
    for parameter in parameters:
        _describe(input_schema, parameter)
    return _CompiledFields(input_schema, validator, AbsentNulls(input_schema), not is_secret)


_MOST_SHARED: Final = 128
"""It bounds what is kept of types that a program makes each time."""
# A program may define its tools and agents in each request, and to compile them is most of what that costs.
_compile_fields_once: Final = lru_cache(maxsize=_MOST_SHARED)(_compile_fields)


def _words_for_types(given: object) -> str | None:
    """Return what tells types and defaults apart that count as equal: `int | str` is `str | int` to Python, and True is
    1. None: they cannot be compared, so nothing is shared."""
    try:
        hash(given)
        return repr(given)
    except Exception:  # noqa: BLE001 - of a stranger's object
        return None


BUILD_ERRORS = (
    *(PydanticUserError, SchemaError),
    *(NameError, TypeError, ValueError, AttributeError, LookupError, RecursionError),
)
"""What building a schema from a stranger's type may raise."""


def _adapter_of(parameters: Sequence[Parameter]) -> TypeAdapter[object]:
    # A TypedDict and not a model: its keys cannot collide with methods such as `copy`, `json` or `schema`.
    make = cast("Callable[[str, Mapping[str, object]], type[object]]", TypedDict)
    fields = make("Arguments", {parameter.name: _type_of_field(parameter) for parameter in parameters})
    closed = Annotated[with_config(ConfigDict(allow_inf_nan=False))(fields), _Closed()]
    return TypeAdapter(cast("type[object]", closed))


class _Closed:
    """Refuses unknown names. In the config it would also count for the dataclasses and TypedDicts inside."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler.resolve_ref_schema(handler(source))
        if schema["type"] == "typed-dict":
            schema["extra_behavior"] = "forbid"
        return schema


def _type_of_field(parameter: Parameter) -> object:
    default, annotation = parameter.default, cast("type[object]", parameter.annotation)
    if default is REQUIRED:
        return Required[annotation]
    if type(default) is int and (annotation is float or get_args(annotation)[:1] == (float,)):
        default = float(default)  # as pydantic makes it of what the model writes, so that both have one cache key
    if not isinstance(default, FieldInfo):
        default = cast("FieldInfo", Field(default=default))
    elif default.is_required():
        return Required[Annotated[annotation, default]]
    return NotRequired[Annotated[annotation, default]]


def _describe(schema: JsonObject, parameter: Parameter) -> None:
    properties = schema.get("properties")
    described = properties.get(parameter.name) if isinstance(properties, dict) else None
    if parameter.description and isinstance(described, dict):
        described.setdefault("description", parameter.description)


def _problems_of(parameters: Sequence[Parameter], error: Exception) -> list[Problem]:
    one_by_one = [(parameter, _build_error(parameter)) for parameter in parameters]
    return [
        _type_problem(f"Parameter {parameter.name!r}", parameter.annotation, found)
        for parameter, found in one_by_one
        if found is not None
    ] or [_type_problem("Parameters", [parameter.name for parameter in parameters], error)]


def _build_error(parameter: Parameter) -> Exception | None:
    try:
        _json_schema(_adapter_of([parameter]))
    except BUILD_ERRORS as error:
        return error
    return None


def _type_problem(subject: str, annotation: object, error: Exception) -> Problem:
    reason = shorten_line(str(error).partition("\n")[0].partition(". ")[0])
    return Problem(
        "UNSUPPORTED_TYPE",
        f"{subject} cannot be described as JSON: {inspect.formatannotation(annotation)} ({reason}).",
        "Use JSON types, pydantic models, dataclasses, TypedDicts, enums, and unions and collections of those.",
    )


@lazy_dataclass(frozen=True)
class CheckedValue:
    """A value that a type has checked already. It is not checked twice: a validator that converts would do so again."""

    schema: OutputSchema[Any]
    value: object


@lazy_dataclass(frozen=True)
class RefusedValue:
    """A value that cannot be used, though it may fit its type. It is refused for this reason where it is checked."""

    error: InvalidArguments


@lazy_dataclass(frozen=True, kw_only=True, eq=False)
class OutputSchema(Generic[T]):
    """A type that an agent takes or gives, compiled."""

    name: str
    """What error texts call the arguments: the name of the tool that takes them."""
    input_schema: JsonObject
    """An object at the top; a type that is no object is its one property, `value`."""
    is_wrapped: bool
    """True when the type is no object, so that the model sends it as `value`."""
    _adapter: TypeAdapter[T]
    _validator: BoundedValidator[T]
    _wrapped: BoundedValidator[Any] | None
    """Of the object that a type which is no object stands in."""
    may_be_quoted: bool
    """False when what the model wrote may hold secrets, so that no error may repeat it."""
    is_in_prose: bool = False
    """True when `parse` gets an answer in which the JSON may have words around it."""

    def parse(self, input_json: str | bytes) -> T:
        """Return the value that the model's arguments hold, unwrapped.

        Raises:
            InvalidArguments: they do not fit; it lists every issue.
        """
        subject = f"answer for {self.name!r}" if self.is_in_prose else f"arguments for tool {self.name!r}"
        input_json = take_from_prose(input_json, self.name) if self.is_in_prose else input_json
        if self._wrapped is None:
            return self._validator.check_json(input_json, subject)
        return cast("T", self._wrapped.check_json(input_json, subject)["value"])

    def check(self, value: object) -> T:
        """Return a Python value, validated.

        Raises:
            InvalidArguments: it does not fit; it lists every issue.
        """
        if isinstance(value, CheckedValue) and value.schema is self:
            return cast("T", value.value)
        if isinstance(value, RefusedValue):
            raise value.error
        return self._validator.check_python(value, f"value for {self.name!r}")

    def parse_checked(self, input_json: str | bytes) -> CheckedValue:
        """Return what `parse` does, in a form that `check` passes as it is.

        Raises:
            InvalidArguments: they do not fit; it lists every issue.
        """
        return CheckedValue(self, self.parse(input_json))

    @property
    def core_schema(self) -> CoreSchema:
        """The type as pydantic has it."""
        return self._adapter.core_schema

    def told(self, value: object) -> str:
        """Return a checked value for people and logs: a text as it is, any other as JSON."""
        return value if isinstance(value, str) else self.dump(value).decode()

    def describe(self, place: str = "#") -> JsonObject:
        """Return the schema of the type, not wrapped. `place` is where it stands in a document: its references begin
        there."""
        return _inline_reference(_json_schema(self._adapter, place=place))

    def dumped_schema(self) -> JsonObject | None:
        """Return the schema of what `dump` gives, not wrapped; None where it cannot be described."""
        try:
            return _inline_reference(_json_schema(self._adapter, mode="serialization"))
        except BUILD_ERRORS:
            return None

    def dump(self, value: object) -> bytes:
        """Return a value of the type as JSON, to compare it with another or to show it."""
        try:
            return self._adapter.dump_json(cast("T", value), by_alias=True, warnings=False, fallback=repr)
        except (PydanticSerializationError, ValueError, TypeError, AttributeError):
            return repr(value).encode("utf-8", "backslashreplace")

    def load(self, dumped: bytes) -> T:
        """Return the value that `dump` has written.

        Raises:
            InvalidArguments: it does not fit; it lists every issue.
        """
        return self._validator.check_json(dumped, f"stored {self.name!r}")


def take_from_prose(written: str | bytes, name: str) -> str | bytes:
    """Return the JSON of an answer that was asked for in words.

    Raises:
        InvalidArguments: it has none, or more than one.
    """
    try:
        return find_object(written) if isinstance(written, str) else written
    except ValueError as error:
        raise InvalidArguments(f"answer for {name!r}", (str(error),)) from None


def output_schema(form: TypeForm[T], *, name: str = "output") -> OutputSchema[T]:
    """Compile a type.

    Raises:
        DefinitionError: the type cannot be described or checked.
    """
    written = _words_for_types(form)
    if written is None:
        return _compile_output(form, name)
    # A model that was rebuilt has another validator.
    shared = _compile_output_once(form, name, written, getattr(form, "__pydantic_validator__", None))
    return replace(shared, input_schema=deepcopy(shared.input_schema))


def _compile_output(form: TypeForm[Any], name: str, *apart: object) -> OutputSchema[Any]:
    """Compile a type. What tells it `apart` from others matters only where it is done once for all equal ones."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(form)
        schema = _inline_reference(_json_schema(adapter))
    except BUILD_ERRORS as error:
        raise DefinitionError(f"The type of {name!r}", [_type_problem("It", form, error)]) from error
    hides = hides_input(adapter.core_schema)
    wrapped = None
    if is_wrapped := not is_object(schema):
        wrapper = _adapter_of([Parameter(name="value", annotation=form)])
        schema = {**_json_schema(wrapper), "additionalProperties": False}
        wrapped = BoundedValidator(wrapper, hides=hides)
    raise_problems(f"The type of {name!r}", schema_problems(schema))
    return OutputSchema(
        name=name,
        input_schema=schema,
        is_wrapped=is_wrapped,
        _adapter=adapter,
        _validator=BoundedValidator(adapter, hides=hides),
        _wrapped=wrapped,
        may_be_quoted=not (hides or holds_secrets(schema)),
    )


_compile_output_once: Final = lru_cache(maxsize=_MOST_SHARED)(_compile_output)


class TextInput(OutputSchema[Any]):
    """The input of most agents: a text, or content, which `check` returns as a tuple of blocks. Described as a text."""

    __slots__ = ()

    def check(self, value: object) -> str | tuple[UserContent, ...]:
        """Return a text, or the blocks of a content.

        Raises:
            InvalidArguments: it is neither; it lists every issue.
        """
        if type(value) is str:  # any text fits
            return value
        given = (value,) if isinstance(value, UserContent) else value
        if not is_list_or_tuple(given):
            return super().check(value)
        blocks = [Text(each) if isinstance(each, str) else each for each in given]
        issues = [
            f"item {number}: {shorten_line(repr(each))} is neither a text nor an Image, a Document or an Audio"
            for number, each in enumerate(blocks, start=1)
            if not isinstance(each, UserContent)
        ]
        kept = [each for each in blocks if isinstance(each, UserContent)]
        if not issues and not any(not isinstance(each, Text) or each.text.strip() for each in kept):
            issues.append("it holds no words and no files")
        if issues:
            raise InvalidArguments(f"value for {self.name!r}", issues)
        return tuple([each for each in kept if not isinstance(each, Text) or each.text.strip()])

    def told(self, value: object) -> str:
        """Return a text as it is, and content as its words with a note for each file, which tells it from others."""
        if not isinstance(value, tuple):
            return super().told(value)
        return "\n".join([_describe_block(block) for block in cast("tuple[UserContent, ...]", value)])


def _describe_block(block: UserContent) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block.source, Url):
        return f"[{block.type} at {block.source.url}]"
    digest = sha256(block.source.data.encode()).hexdigest()[:16]
    return f"[{block.type}: {block.source.media_type}, {n_bytes_of(block.source.data):,} bytes, sha256 {digest}]"


@cache
def text_input() -> TextInput:
    """Return what most agents take, a text. To compile it is most of the work of making an agent: it is done once."""
    compiled: OutputSchema[Any] = output_schema(str, name="input")
    return TextInput(**{each.name: getattr(compiled, each.name) for each in fields(compiled)})


def schema_problems(schema: JsonObject) -> list[Problem]:
    """Return why every provider would refuse `schema` as the input of a tool; see also `anthropic_problems`."""
    if schema.get("type") == "object":
        return []
    wrong = "The input schema is not an object at the top."
    return [Problem("INVALID_INPUT_SCHEMA", wrong, 'Give it "type": "object".')]


def is_object(schema: JsonObject) -> bool:
    """Tell whether all providers would take `schema` as the input of a tool."""
    return schema.get("type") == "object" and not UNIONS & schema.keys()


_NO_KEYS: Final = frozenset({"tuple", "list", "set", "frozenset", "dict", "model", "typed-dict", "dataclass"})


class _Generator(GenerateJsonSchema):
    """Leaves out titles that are made from names: they cost tokens and say nothing."""

    _n_converters = 0
    """How many functions stand around what is described, which may make of JSON what it takes."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        self._n_converters += 1
        try:
            return super().function_before_schema(schema)
        finally:
            self._n_converters -= 1

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        self._n_converters += 1
        try:
            return super().function_wrap_schema(schema)
        finally:
            self._n_converters -= 1

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        if "_missing_" not in vars(schema["cls"]):
            self._check_values("an enum", [each.value for each in schema["members"]])
        return super().enum_schema(schema)

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        self._check_values("a Literal", [getattr(each, "value", each) for each in schema["expected"]])
        return super().literal_schema(schema)

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        keys = schema.get("keys_schema", {}).get("type")
        if keys in _NO_KEYS and not self._n_converters:
            raise ValueError(f"a key in JSON is a text, never a {keys}")
        return super().dict_schema(schema)

    def _check_values(self, what: str, values: Sequence[object]) -> None:
        """Refuse what the model could never send: the check compares it with a value that no JSON is read as."""
        wrong = [each for each in values if not isinstance(each, str | int | float | None)]
        if wrong and self.mode == "validation" and not self._n_converters:
            raise ValueError(f"{what} of {wrong[0]!r} accepts no JSON")

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def encode_default(self, dft: object) -> object:
        encoded: object = super().encode_default(dft)
        try:
            json.dumps(encoded, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from error
        return encoded

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Stay silent: a default that is no JSON is left out of the schema, and that is all."""


def _json_schema(adapter: TypeAdapter[T], mode: JsonSchemaMode = "validation", place: str = "#") -> JsonObject:
    template = f"{place}/$defs/{{model}}"
    schema: JsonObject = adapter.json_schema(schema_generator=_Generator, mode=mode, ref_template=template)
    schema.pop("title", None)
    definitions = schema.get("$defs")
    for name, definition in definitions.items() if isinstance(definitions, dict) else ():
        if isinstance(definition, dict) and definition.get("title") == name:
            del definition["title"]
    return schema


def _inline_reference(schema: JsonObject) -> JsonObject:
    """Put the definition in place of a `$ref` at the top, and leave the definitions for those below."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    definition = definitions.get(reference.rpartition("/$defs/")[2])
    if not isinstance(definition, dict) or "$ref" in definition:
        return schema
    return {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}


def flatten(schema: JsonObject, description: str) -> tuple[JsonObject, str]:
    """Return the schema of a tool without the keywords that some APIs refuse at its top, and the description with them.

    The properties that only stand inside of these keywords become ordinary ones. Arguments are checked by the schema as
    it was.
    """
    moved = {key: schema[key] for key in sorted(_NOT_AT_THE_TOP & schema.keys())}
    either = moved.get("anyOf")
    if isinstance(either, list) and {} in either:  # it forbids nothing
        schema = {key: value for key, value in schema.items() if key != "anyOf"}
        del moved["anyOf"]
    if not moved:
        return schema, description
    properties = {**_properties(schema)}
    lists = [moved[key] for key in sorted(UNIONS & moved.keys())]
    inside: dict[str, list[JsonValue]] = {}
    for branch in [branch for each in lists if isinstance(each, list) for branch in each]:
        for name, each in _properties(branch).items():
            if name not in properties and each not in (known := inside.setdefault(name, [])):
                known.append(each)
    properties |= {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in inside.items()}
    said = f"The arguments as a whole must also fit this JSON Schema: {json.dumps(moved, ensure_ascii=False)}"
    rest = {key: value for key, value in schema.items() if key not in moved}
    return {**rest, "properties": properties}, f"{description}\n\n{said}".strip()


_NOT_AT_THE_TOP: Final = UNIONS | {"enum", "not"}


def _properties(schema: JsonValue) -> JsonObject:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def anthropic_problems(tool: ToolSpec) -> list[Problem]:
    """Return why Anthropic would refuse the input schema of a tool that other providers take."""
    schema = tool.input_schema
    problems: list[Problem] = []
    if unions := sorted(UNIONS & schema.keys()):
        named = " and no ".join(unions)
        wrong = f"Anthropic takes no {named} at the top of the input schema of a tool, as {tool.name!r} has."
        problems.append(Problem("INVALID_INPUT_SCHEMA", wrong, f"Put it inside a property, {_OTHERWISE}"))
    properties = schema.get("properties")
    for name in properties if isinstance(properties, dict) else ():
        if not _PROPERTY_NAME.fullmatch(name):
            wrong = f"Anthropic does not take {name[:80]!r} as the name of a property, as in tool {tool.name!r}."
            hint = f"Use 1 to 64 of the characters a-z, A-Z, 0-9, _, . and -, {_OTHERWISE}"
            problems.append(Problem("INVALID_PROPERTY_NAME", wrong, hint))
    return problems

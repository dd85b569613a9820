"""The JSON Schema of a Messages API request, made from the official SDK's types and then made strict.

The schema that Pydantic generates accepts almost anything: unknown keys pass, and unions also take the SDK's
response models. Both are taken out here. Imports the SDK and `jsonschema_rs`; read `messages_rules.py` next.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import cast

from anthropic.types import MessageCreateParams
from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind
from pydantic import TypeAdapter

from tests.support.messages_json import Json, as_list, as_object, as_text

_OLDER_MODELS_TAKE: dict[str, Json] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0},
}
_SENT_AS_HEADERS = ("user_profile_id", "workspace_id")
_TAGS = (["type"], ["role"], ["stream"])
_REQUESTS = ("MessageCreateParamsNonStreaming", "MessageCreateParamsStreaming")


def type_errors(body: Json) -> list[str]:
    """Return what the official types have against this body, each error with its path."""
    validator = request_validator()
    if validator.is_valid(body):
        return []
    return list(dict.fromkeys(map(_explain, _leaves(validator.iter_errors(body)))))


@cache
def request_validator() -> Draft202012Validator:
    """Compile the strict schema, once per process."""
    return Draft202012Validator(_strict_schema())


def _strict_schema() -> Json:
    schema = cast("Json", TypeAdapter[object](MessageCreateParams).json_schema())
    definitions = {name: as_object(value) for name, value in as_object(schema["$defs"]).items()}
    models = {name for name, definition in definitions.items() if _is_response_model(definition)}
    for definition in definitions.values():
        _drop_from_unions(definition, models)
        definition.setdefault("additionalProperties", False)
    for name in _REQUESTS:
        properties = as_object(definitions[name]["properties"])
        properties |= _OLDER_MODELS_TAKE
        for header in _SENT_AS_HEADERS:
            del properties[header]
    return {**schema, "$defs": {name: value for name, value in definitions.items() if name not in models}}


def _is_response_model(definition: Json) -> bool:
    """Tell a response model from a request type: models allow extra fields, TypedDicts do not say.

    The one TypedDict that does say is a tool's input schema: it alone has a property called `properties`.
    """
    return definition.get("additionalProperties") is True and "properties" not in as_object(definition["properties"])


def _drop_from_unions(node: object, models: set[str]) -> None:
    for child in as_object(node).values():
        _drop_from_unions(child, models)
    for child in as_list(node):
        _drop_from_unions(child, models)
    options = as_list(as_object(node).get("anyOf"))
    options[:] = [option for option in options if _target(option) not in models]


def _target(option: object) -> str:
    return as_text(as_object(option).get("$ref")).rpartition("/")[2]


def _explain(error: ValidationError) -> str:
    return f"{'.'.join(map(str, error.instance_path)) or 'body'}: {error.message[:300]}"


def _intended(error: ValidationError) -> list[ValidationError]:
    """Return the faults of the union's option that the value comes nearest to; empty if it is no union."""
    match error.kind:
        case ValidationErrorKind.AnyOf(context=context) if context:
            return min(context, key=lambda option: _distance(option, len(error.instance_path)))
        case _:
            return []


def _distance(option: list[ValidationError], depth: int) -> tuple[bool, bool, int]:
    """Order options: of the right JSON type, then with the right tag, then with the fewest faults."""
    leaves = list(_leaves(option))
    return (
        any(error.kind.name == "type" and len(error.instance_path) == depth for error in option),
        any(error.kind.name == "const" and error.instance_path[depth:] in _TAGS for error in leaves),
        len(leaves),
    )


def _leaves(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Follow every failed union into the option that was meant; yield the innermost faults."""
    for error in errors:
        if option := _intended(error):
            yield from _leaves(option)
        else:
            yield error

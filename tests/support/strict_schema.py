"""What a JSON Schema has against a value, in few words, and how an SDK's types become a schema that is strict.

The schema that Pydantic generates from an SDK accepts almost anything: unknown keys pass, and unions also take the
SDK's response models.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind
from pydantic import TypeAdapter
from typing_extensions import TypeForm

from tests.support.messages_json import Json, as_list, as_object, as_text

_TAGS = (["type"], ["role"], ["stream"])


def strict_schema(request: TypeForm[object]) -> Json:
    """Return the schema of an SDK's request type without response models, and closed to unknown keys."""
    schema = cast("Json", TypeAdapter(request).json_schema())
    definitions = {name: as_object(value) for name, value in as_object(schema["$defs"]).items()}
    models = {name for name, definition in definitions.items() if _is_response_model(definition)}
    for definition in definitions.values():
        _drop_from_unions(definition, models)
        definition.setdefault("additionalProperties", False)
    return {**schema, "$defs": {name: value for name, value in definitions.items() if name not in models}}


def faults(validator: Draft202012Validator, body: Json) -> list[str]:
    """Return what the schema has against this body, each fault with its path."""
    if validator.is_valid(body):
        return []
    return list(dict.fromkeys(map(_explain, _leaves(validator.iter_errors(body)))))


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

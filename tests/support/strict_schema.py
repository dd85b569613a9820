"""What a JSON Schema has against a value, in few words, and how an SDK's types become a schema that is strict.

The schema that Pydantic generates from an SDK accepts almost anything: unknown keys pass, and unions also take the
SDK's response models. Where real clients send more than the types know, the types are only advice: an assistant's
message may bring back what the API itself put into it.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal, TypeAlias, cast

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from typing_extensions import TypeForm

from tests.support.messages_json import Json, as_list, as_object, as_text

Api: TypeAlias = Literal["chat", "responses"]
"""An API of OpenAI's."""

_TAGS = (["type"], ["role"], ["stream"])
_OLDER_MODELS_TAKE: dict[str, Json] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0},
}
_SENT_AS_HEADERS = ("user_profile_id", "workspace_id")


def messages_type_errors(body: Json) -> list[str]:
    """Return what Anthropic's types have against this body, each error with its path."""
    return _faults(messages_schema(), body)


def openai_type_errors(api: Api, body: Json, *, echoed: tuple[str, ...], extensions: frozenset[str]) -> list[str]:
    """Return what OpenAI's types have against this body, each error with its path.

    `echoed` are further fields of an assistant's message, `extensions` further parameters that this server takes.
    """
    return _faults(openai_schema(api, echoed), {k: v for k, v in body.items() if k not in extensions})


def without_marks(value: object) -> object:
    """Return JSON without `cache_control`, which no type of OpenAI's knows."""
    members, items = as_object(value), as_list(value)
    if members:
        return {name: without_marks(member) for name, member in members.items() if name != "cache_control"}
    return [without_marks(item) for item in items] if items else value


@cache
def messages_schema() -> Draft202012Validator:
    """Compile the strict schema, once per process."""
    from anthropic.types import MessageCreateParams  # noqa: PLC0415 - it takes seconds; who judges nothing needs it not

    schema = strict_schema(MessageCreateParams)
    for name in ("MessageCreateParamsNonStreaming", "MessageCreateParamsStreaming"):
        properties = as_object(as_object(as_object(schema["$defs"])[name])["properties"])
        properties |= _OLDER_MODELS_TAKE
        for header in _SENT_AS_HEADERS:
            del properties[header]
    return Draft202012Validator(schema)


@cache
def openai_schema(api: Api, echoed: tuple[str, ...] = ()) -> Draft202012Validator:
    """Compile the strict schema, once per process."""
    from openai.types.chat.completion_create_params import CompletionCreateParams  # noqa: PLC0415 - as slow
    from openai.types.responses.response_create_params import ResponseCreateParams  # noqa: PLC0415 - as slow

    schema = strict_schema(ResponseCreateParams if api == "responses" else CompletionCreateParams)
    definitions = as_object(schema["$defs"])
    if api == "responses":
        _let_the_assistant_speak(definitions)
    else:
        properties = as_object(as_object(definitions["ChatCompletionAssistantMessageParam"])["properties"])
        properties |= {name: True for name in ("annotations", *echoed)}
    return Draft202012Validator(schema)


def gemini_type_errors(body: Json) -> list[str]:
    """Return what Google's types have against this body, each error with its path."""
    return _faults(gemini_schema(), body)


@cache
def gemini_schema() -> Draft202012Validator:
    """Compile the strict schema, once per process. The SDK has no type of a whole body."""
    from google.genai import types  # noqa: PLC0415 - as slow

    fields: dict[str, TypeAdapter[Any]] = {
        "contents": TypeAdapter(list[types.Content]),
        "systemInstruction": TypeAdapter(types.Content),
        "tools": TypeAdapter(list[types.Tool]),
        "toolConfig": TypeAdapter(types.ToolConfig),
        "generationConfig": TypeAdapter(types.GenerationConfig),
        "safetySettings": TypeAdapter(list[types.SafetySetting]),
    }
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]]
    inputs = [(name, "validation", adapter) for name, adapter in fields.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, by_alias=True)
    properties: Json = {name: schema for (name, _), schema in schemas.items()}
    properties |= dict.fromkeys(("cachedContent", "labels", "serviceTier"), True)
    return Draft202012Validator({**definitions, "properties": properties, "additionalProperties": False})


def strict_schema(request: TypeForm[object]) -> Json:
    """Return the schema of an SDK's request type without response models, and closed to unknown keys."""
    schema = cast("Json", TypeAdapter(request).json_schema())
    definitions = {name: as_object(value) for name, value in as_object(schema["$defs"]).items()}
    models = {name for name, definition in definitions.items() if _is_response_model(definition)}
    for definition in definitions.values():
        _drop_from_unions(definition, models)
        definition.setdefault("additionalProperties", False)
    return {**schema, "$defs": {name: value for name, value in definitions.items() if name not in models}}


def _faults(validator: Draft202012Validator, body: Json) -> list[str]:
    """Return what the schema has against this body, each fault with its path."""
    if validator.is_valid(body):
        return []
    errors = _leaves(validator.iter_errors(body))
    return list(dict.fromkeys([f"{'.'.join(map(str, e.instance_path)) or 'body'}: {e.message[:300]}" for e in errors]))


def _let_the_assistant_speak(definitions: Json) -> None:
    """Take the assistant's parts also in a message without id and status, which the types leave out."""
    message = as_object(as_object(definitions["EasyInputMessageParam"])["properties"])
    for option in map(as_object, as_list(as_object(message["content"])["anyOf"])):
        if option.get("type") == "array":
            parts = as_list(as_object(option["items"])["anyOf"])
            parts += [{"$ref": f"#/$defs/{name}"} for name in ("ResponseOutputTextParam", "ResponseOutputRefusalParam")]


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
    options[:] = [each for each in options if as_text(as_object(each).get("$ref")).rpartition("/")[2] not in models]


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

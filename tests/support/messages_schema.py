"""The JSON Schema of a Messages API request, made from the official SDK's types and then made strict."""

from functools import cache

from jsonschema_rs import Draft202012Validator

from tests.support.messages_json import Json, as_object
from tests.support.strict_schema import faults, strict_schema

_OLDER_MODELS_TAKE: dict[str, Json] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0},
}
_SENT_AS_HEADERS = ("user_profile_id", "workspace_id")
_REQUESTS = ("MessageCreateParamsNonStreaming", "MessageCreateParamsStreaming")


def type_errors(body: Json) -> list[str]:
    """Return what the official types have against this body, each error with its path."""
    return faults(request_validator(), body)


@cache
def request_validator() -> Draft202012Validator:
    """Compile the strict schema, once per process."""
    from anthropic.types import MessageCreateParams  # noqa: PLC0415 - it takes seconds; who judges nothing needs it not

    schema = strict_schema(MessageCreateParams)
    for name in _REQUESTS:
        properties = as_object(as_object(as_object(schema["$defs"])[name])["properties"])
        properties |= _OLDER_MODELS_TAKE
        for header in _SENT_AS_HEADERS:
            del properties[header]
    return Draft202012Validator(schema)

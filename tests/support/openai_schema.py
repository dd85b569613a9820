"""The JSON Schemas of OpenAI requests, made from the official SDK's types and then made strict.

Where real clients send more than the types know, the types are only advice: an assistant's message may bring back
what the API itself put into it.
"""

from functools import cache
from typing import Literal, TypeAlias

from jsonschema_rs import Draft202012Validator
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams

from tests.support.messages_json import Json, as_list, as_object
from tests.support.strict_schema import faults, strict_schema

Api: TypeAlias = Literal["chat", "responses"]

_ECHOED: tuple[str, ...] = ("annotations",)


def type_errors(api: Api, body: Json, *, echoed: tuple[str, ...], extensions: frozenset[str]) -> list[str]:
    """Return what the official types have against this body, each error with its path.

    `echoed` are further fields of an assistant's message, `extensions` further parameters that this server takes.
    """
    return faults(request_validator(api, echoed), {k: v for k, v in body.items() if k not in extensions})


def without_marks(value: object) -> object:
    """Return JSON without `cache_control`, which no official type knows."""
    members, items = as_object(value), as_list(value)
    if members:
        return {name: without_marks(member) for name, member in members.items() if name != "cache_control"}
    return [without_marks(item) for item in items] if items else value


@cache
def request_validator(api: Api, echoed: tuple[str, ...] = ()) -> Draft202012Validator:
    """Compile the strict schema, once per process."""
    if api == "responses":
        schema = strict_schema(ResponseCreateParams)
        _let_the_assistant_speak(as_object(schema["$defs"]))
        return Draft202012Validator(schema)
    schema = strict_schema(CompletionCreateParams)
    assistant = as_object(as_object(schema["$defs"])["ChatCompletionAssistantMessageParam"])
    properties = as_object(assistant["properties"])
    properties |= {name: True for name in (*_ECHOED, *echoed)}
    return Draft202012Validator(schema)


def _let_the_assistant_speak(definitions: Json) -> None:
    """Take the assistant's parts also in a message without id and status, which the types leave out."""
    message = as_object(as_object(definitions["EasyInputMessageParam"])["properties"])
    for option in map(as_object, as_list(as_object(message["content"])["anyOf"])):
        if option.get("type") == "array":
            parts = as_list(as_object(option["items"])["anyOf"])
            parts += [{"$ref": f"#/$defs/{name}"} for name in ("ResponseOutputTextParam", "ResponseOutputRefusalParam")]

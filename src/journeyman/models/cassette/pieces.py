"""Requests and answers as the JSON that a cassette holds: requests to be compared and read, answers to be given again.

A request's JSON is the same for every provider, and leaves out what is as usual, so that a recording stays equal to
what later versions of this package ask.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import fields
from hashlib import sha256
from typing import Final, TypeAlias

from pydantic import JsonValue
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from journeyman.errors import ProviderError, ProviderErrorKind, count
from journeyman.model import (
    Answered,
    BlockFinished,
    InputPart,
    ModelSettings,
    Part,
    Prefix,
    ResponseFinished,
    ResponseStarted,
    Restarted,
    Retried,
    TextPart,
    ThinkingPart,
    ToolSpec,
    UsageSeen,
)
from journeyman.types import Block, JsonObject, Message, Usage, adapter_of

PartJson: TypeAlias = JsonObject
"""One part: `part` says which, and its fields. Files of before have the time of each, too, as `ms`."""

_LONGEST_DATA: Final = 200
"""Longer pictures and documents in a request are kept as a hash: they are compared, and never given back."""

_USUAL: Final = frozenset({"cache_mark", "is_error", "continues"})
"""Fields that are left out when they are false."""

_SETTINGS: Final = ModelSettings()


def json_line(value: object) -> bytes:
    """Return `value` as one line of JSON, readable where its characters allow that."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value).encode()


def head_json(prefix: Prefix, settings: ModelSettings) -> JsonObject:
    """Return a request without its messages."""
    return {
        "system": [_readable(block) for block in prefix.system],
        "tools": [_facts_of_tool(tool) for tool in sorted(prefix.tools, key=lambda tool: tool.name)],
        "settings": {
            each.name: to_jsonable_python(value)
            for each in fields(settings)
            if (value := getattr(settings, each.name)) != getattr(_SETTINGS, each.name)
        },
    }


def message_json(message: Message) -> JsonObject:
    """Return one message of a request."""
    content: list[JsonValue] = [_readable(block) for block in message.content]
    shown: JsonObject = {"role": message.role, "content": content}
    return shown | {"continues": True} if message.continues else shown


def digest_of(head: bytes, messages: list[bytes]) -> str:
    """Return the digest of a request from the `canonical` bytes of its head and of each of its messages."""
    whole = sha256(head)
    for message in messages:
        whole.update(b"\n")
        whole.update(message)
    return whole.hexdigest()[:32]


def _facts_of_tool(tool: ToolSpec) -> JsonObject:
    spec: JsonObject = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    spec |= {"forms": to_jsonable_python(tool.provider_schemas)} if tool.provider_schemas else {}
    return spec | ({"strict": True} if tool.strict else {}) | ({"deferred": True} if tool.deferred else {})


def _readable(block: Block) -> JsonObject:
    """Return a block to be compared: arguments as JSON and not as a text, long data as a hash."""
    shown = block_json(block)
    for name, parsed_name in (("input_json", "input"), ("json", "block")):
        if isinstance(text := shown.get(name), str):
            del shown[name]
            try:
                shown[parsed_name] = json.loads(text)
            except (ValueError, RecursionError):
                shown[parsed_name] = text
    return _with_short_data(shown)


def _with_short_data(value: JsonObject) -> JsonObject:
    for key, item in value.items():
        if key == "source" and isinstance(item, dict) and isinstance(data := item.get("data"), str):
            value[key] = item | {"data": _short(data)}
        elif key == "content" and isinstance(item, list):
            value[key] = [_with_short_data(each) if isinstance(each, dict) else each for each in item]
    return value


def _short(data: str) -> str:
    if len(data) <= _LONGEST_DATA:
        return data
    try:
        size = len(b64decode(data))
    except NotBase64:
        size = len(data)
    return f"sha256 {sha256(data.encode()).hexdigest()[:32]} of {count(size, 'byte')}"


def block_json(block: Block) -> JsonObject:
    """Return a block with all that it takes to make it again."""
    dumped: JsonObject = adapter_of(Block).dump_python(block, mode="json", exclude_none=True)
    left_out = {"type", *(name for name in _USUAL if dumped.get(name) is False)}
    return {"type": block.type, **{name: value for name, value in dumped.items() if name not in left_out}}


_PARTS: Final[dict[str, type[Part]]] = {
    "started": ResponseStarted,
    "text": TextPart,
    "thinking": ThinkingPart,
    "input": InputPart,
    "block": BlockFinished,
    "usage": UsageSeen,
    "finished": ResponseFinished,
    "restarted": Restarted,
    "answered": Answered,
}
_NAMES: Final = {kind: name for name, kind in _PARTS.items()}


def part_json(part: Part) -> PartJson:
    """Return a part of an answer."""
    match part:
        case Retried():
            counts: JsonObject = {"attempt": part.attempt, "max_attempts": part.max_attempts, "delay_s": part.delay_s}
            return {"part": "retried", **counts, "error": to_jsonable_python(error_json(part.error))}
        case BlockFinished():
            return {"part": "block", "block": block_json(part.block)}
        case _:
            dumped: JsonObject = adapter_of(type(part)).dump_python(part, mode="json", exclude_none=True)
            return {"part": _NAMES[type(part)], **dumped}


def part_of(given: PartJson) -> Part:
    """Return the part that `part_json` has written.

    Raises:
        KeyError: there is no such part.
        pydantic.ValidationError: a field is missing or wrong.
    """
    rest = {key: value for key, value in given.items() if key not in ("ms", "part")}
    if given["part"] == "retried":
        retried = adapter_of(_RetriedJson).validate_python(rest)
        return Retried(retried["attempt"], retried["max_attempts"], retried["delay_s"], error_of(retried["error"]))
    return adapter_of(_PARTS[str(given["part"])]).validate_python(rest)


class ErrorJson(TypedDict, total=False):
    """A failed request."""

    kind: ProviderErrorKind
    message: str
    status: int
    type: str
    request_id: str
    retry_after_s: float
    usage: JsonObject


class _RetriedJson(TypedDict):
    attempt: int
    max_attempts: int
    delay_s: float
    error: ErrorJson


def error_json(error: ProviderError) -> ErrorJson:
    """Return a failed request."""
    usage = None if error.usage is None else adapter_of(Usage).dump_python(error.usage, mode="json", exclude_none=True)
    names = ("kind", "status", "type", "request_id", "retry_after_s")
    facts = {"message": str(error), "usage": usage, **{name: getattr(error, name) for name in names}}
    return adapter_of(ErrorJson).validate_python({name: value for name, value in facts.items() if value is not None})


def error_of(given: ErrorJson) -> ProviderError:
    """Return the error that `error_json` has written."""
    usage = given.get("usage")
    return ProviderError(
        given.get("message", ""),
        kind=given.get("kind", "unknown"),
        status=given.get("status"),
        type=given.get("type"),
        request_id=given.get("request_id"),
        retry_after_s=given.get("retry_after_s"),
        usage=None if usage is None else adapter_of(Usage).validate_python(usage),
    )

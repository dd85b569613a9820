"""Between the words of a test and those of the Messages API: answers to replies, bodies to requests.

Written apart from the adapter that it tests: nothing of `journeyman.models` is used.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, assert_never, cast

import orjson
import pytest

from journeyman import types as parts
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import ModelSettings, Prefix, Request, Response, ToolSpec
from journeyman.testing.scripted import Answer as ScriptedModel
from journeyman.testing.scripted import say
from tests.support import messages_answers as wire
from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.messages_sse import body_parts

_STATUS: Final[dict[ProviderErrorKind, int]] = {
    "rate_limited": 429,
    "overloaded": 529,
    "timeout": 504,
    "auth": 401,
    "quota": 402,
    "bad_request": 400,
    "not_found": 404,
    "context_overflow": 413,
}

_EVENTS_AFTER_BLOCKS: Final = 2
"""`message_delta` and `message_stop`."""


def neutral(messages: Iterable[parts.Message]) -> list[parts.Message]:
    """Return messages as they compare equal however they travelled.

    Messages of one role are one, as the API sees them; arguments are compact JSON; cache marks are left out.
    """
    merged: list[parts.Message] = []
    for message in messages:
        content = tuple(_neutral_block(block) for block in message.content)
        if merged and merged[-1].role == message.role:
            content = (*merged.pop().content, *content)
        merged.append(parts.Message(message.role, content))
    return merged


def _neutral_block(block: parts.Block) -> parts.Block:
    match block:
        case parts.ToolUse():
            return replace(block, input_json=_compact(block.input_json), malformed=None, wire_id=None)
        case parts.Text():
            return replace(block, cache_mark=False)
        case parts.Opaque():
            return replace(block, json=_compact(block.json))
        case _:
            return block


def _compact(json: str) -> str:
    return orjson.dumps(orjson.loads(json)).decode()


def request_of(body: Json) -> Request:
    """Return a body as the request that it encodes. Its settings are not read back."""
    system = body.get("system")
    texts = [system] if isinstance(system, str) else [as_text(as_object(each).get("text")) for each in as_list(system)]
    max_tokens = body.get("max_tokens")
    return Request(
        prefix=Prefix(
            system=tuple(parts.Text(text) for text in texts),
            tools=tuple(_tool(as_object(each)) for each in as_list(body.get("tools"))),
        ),
        messages=[_message(as_object(each)) for each in as_list(body.get("messages"))],
        settings=ModelSettings(),
        max_tokens=max_tokens if isinstance(max_tokens, int) else None,
    )


def _tool(tool: Json) -> ToolSpec:
    return ToolSpec(
        name=as_text(tool.get("name")),
        description=as_text(tool.get("description")),
        input_schema=cast("parts.JsonObject", as_object(tool.get("input_schema"))),
        strict=tool.get("strict") is True,
    )


def _message(message: Json) -> parts.Message:
    content = message.get("content")
    blocks = (
        (parts.Text(content),) if isinstance(content, str) else tuple(_block(as_object(it)) for it in as_list(content))
    )
    return parts.Message("assistant" if message.get("role") == "assistant" else "user", blocks)


def _block(given: Json) -> parts.Block:  # noqa: PLR0911 - a table
    block = {name: value for name, value in given.items() if name != "cache_control"}
    match as_text(block.get("type")):
        case "text":
            beside = {name: value for name, value in block.items() if name not in ("type", "text")}
            return parts.Text(as_text(block["text"]), extra=cast("parts.JsonObject", beside) or None)
        case "thinking":
            return parts.Thinking(as_text(block["thinking"]), as_text(block.get("signature")) or None)
        case "redacted_thinking":
            return parts.RedactedThinking(as_text(block["data"]))
        case "tool_use":
            return parts.ToolUse(as_text(block["id"]), as_text(block["name"]), orjson.dumps(block["input"]).decode())
        case "tool_result":
            return _result(block)
        case "image":
            return parts.Image(_source(block))
        case "document":
            return parts.Document(_source(block), as_text(block.get("title")) or None)
        case _:
            return parts.Opaque("anthropic", orjson.dumps(block).decode())


def _result(block: Json) -> parts.ToolResult:
    content, is_error = block.get("content"), block.get("is_error") is True
    if isinstance(content, str):
        return parts.ToolResult(content, is_error, as_text(block["tool_use_id"]))
    blocks = tuple(_block(as_object(each)) for each in as_list(content))
    if len(blocks) == 1 and isinstance(blocks[0], parts.Text) and blocks[0].extra is None:
        return parts.ToolResult(blocks[0].text, is_error, as_text(block["tool_use_id"]))
    kept = tuple(each for each in blocks if isinstance(each, parts.Text | parts.Image | parts.Document))
    return parts.ToolResult(kept, is_error, as_text(block["tool_use_id"]))


def _source(block: Json) -> parts.Source:
    source = as_object(block.get("source"))
    if source.get("type") == "url":
        return parts.Url(as_text(source["url"]))
    return parts.Base64(as_text(source["data"]), as_text(source["media_type"]))


def reply_of(answer: ScriptedModel, *, turn: int, broken: tuple[int, str] | None = None) -> wire.Reply:
    """Return an answer of a script as the server gives it.

    Calls without an id get the one that `ScriptedModel` would give. `broken` is the number of blocks that are still
    sent, and what then happens.
    """
    if isinstance(answer, ProviderError):
        return _fault(answer)
    whole = _whole(_response(answer), turn)
    if broken is None:
        return whole
    after_blocks, ending = broken
    begun = replace(whole, content=whole.content[:after_blocks])
    n_events = len(body_parts(begun, stream=True, model="", seed=0, serial=1)) - _EVENTS_AFTER_BLOCKS
    match ending:
        case "stall":
            return wire.stall(whole, after_events=n_events)
        case "cut":
            return wire.cut(whole, after_events=n_events)
        case _:
            return wire.broken_off(whole, after_events=n_events)


def _response(answer: Response | str | parts.Block | Sequence[parts.Block]) -> Response:
    match answer:
        case Response():
            return answer
        case str():
            return say(answer)
        case Sequence():
            return say(*answer)
        case _:
            return say(answer)


def _whole(response: Response, turn: int) -> wire.Answer:
    reason, detail = response.stop_reason, response.stop_detail
    details: Json = {"type": "refusal", "category": detail, "explanation": None}
    return wire.answer(
        *(_wire_block(block, f"call_{turn}_{number}") for number, block in enumerate(response.content)),
        stop_reason=_wire_reason(reason, detail),
        stop_sequence=detail if reason == "stop_sequence" else None,
        stop_details=details if reason == "refusal" else None,
        usage=_wire_usage(response.usage),
        model=response.model or None,
        delta_chars=10_000,
    )


def _wire_reason(reason: parts.StopReason, detail: str | None) -> str | None:
    match reason:
        case "context_window":
            return "model_context_window_exceeded"
        case "other":
            return detail
        case _:
            return reason


def _wire_usage(usage: parts.Usage) -> Json:
    reasoning = usage.reasoning_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens_details": None if reasoning is None else {"thinking_tokens": reasoning},
    }


def _wire_block(block: parts.Block, id: str) -> Json:
    match block:
        case parts.Text():
            return {"type": "text", "text": block.text, **(block.extra or {})}
        case parts.Thinking():
            return wire.thinking(block.text, signature=block.signature)
        case parts.RedactedThinking():
            return wire.redacted_thinking(block.data)
        case parts.ToolUse():
            arguments = as_object(orjson.loads(block.input_json)) if block.malformed is None else block.malformed
            return wire.tool_use(block.name, arguments, id=block.id or id)
        case parts.Opaque():
            return as_object(orjson.loads(block.json))
        case parts.Image() | parts.Document() | parts.Audio() | parts.ToolResult():
            raise TypeError(f"A model does not say {block!r}.")
        case _:
            assert_never(block)


def _fault(error: ProviderError) -> wire.Reply:
    status = error.status or _STATUS.get(error.kind)
    if status is None:
        pytest.skip(f"the server cannot fail with {error.kind!r}")
    headers = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:g}"}
    if error.request_id is not None:
        headers["request-id"] = error.request_id
    return wire.fault(status, error_type=error.type, message=str(error), headers=headers)

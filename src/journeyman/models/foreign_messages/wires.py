"""The conversations of four wires: Anthropic's Messages, Chat Completions, Responses, and Gemini's contents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from pydantic import JsonValue

from journeyman.definition.json_numbers import write_sound_json
from journeyman.definition.narrowing import as_list, as_object, as_text, is_json_array, is_json_object
from journeyman.models.anthropic.decode import AnthropicDecoder
from journeyman.models.foreign_messages.collector import MessageCollector
from journeyman.models.foreign_messages.parts import part_of_gemini
from journeyman.models.google.decode import GoogleDecoder
from journeyman.models.openai.chat_decode import ChatDecoder
from journeyman.models.openai.responses_decode import ResponsesDecoder
from journeyman.types import JsonObject, ToolReference

Item = tuple[str, JsonObject]
"""A message of another program, after its place."""

_BOOKKEEPING: Final = ("id", "type", "status", "model", "usage", "stop_reason", "stop_sequence", "created_at", "object")
"""The fields that say how a message came about, and nothing that a model reads."""

_MESSAGE_KEYS: Final = (*_BOOKKEEPING, "role", "content", "stop_details", "container", "context_management")
_USERS_BLOCKS: Final = ("", "image", "document", "tool_result", "search_result")


def read_anthropic(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the messages of Anthropic's Messages API."""
    for place, item in items:
        collector.drop_keys(item, _MESSAGE_KEYS, place)
        content = item.get("content")
        match item.get("role"):
            case "user":
                say_anthropic(collector, content, place)
            case "assistant":
                answer_anthropic(collector, content, place)
            case "system":
                collector.say_system(content, place)
            case role:
                collector.drop(place, f"a message of the role {role!r}")


def say_anthropic(collector: MessageCollector, content: object, place: str) -> None:
    """Take in a user's message: results of tools, and what the user says beside them."""
    if isinstance(content, str):
        collector.say(content, place)
    for number, block in enumerate(as_list(content)):
        fields, at = as_object(block), f"{place}.content[{number}]"
        if fields.get("type") != "tool_result":
            collector.say(block, at)
            continue
        parts: object = fields.get("content")
        if is_json_array(parts):
            told = [(part, as_object(part)) for part in parts]
            parts = [
                ToolReference(as_text(each.get("tool_name"))) if each.get("type") == "tool_reference" else part
                for part, each in told
            ]
        id, is_error = as_text(fields.get("tool_use_id")), fields.get("is_error") is True
        collector.answer_call(parts, at, id=id, is_error=is_error)


def answer_anthropic(collector: MessageCollector, content: object, place: str) -> None:
    """Take in what the model said, in the blocks of the Messages API."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    sent: list[JsonObject] = []
    for number, block in enumerate(map(as_object, blocks)):
        kind = as_text(block.get("type"))
        if kind in _USERS_BLOCKS:
            collector.drop(f"{place}.content[{number}]", f"a block of type {kind!r}, which no model says")
            continue
        block = {key: value for key, value in block.items() if key != "cache_control"}
        if kind == "tool_use" and not as_text(block.get("id")):
            block["id"] = collector.new_id()
        sent.append(block)
    document: JsonObject = {"type": "message", "role": "assistant", "content": [*sent], "stop_reason": "end_turn"}
    collector.decode(AnthropicDecoder(deltas=False), document, place)


_CHAT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "assistant": (
        *("role", "content", "refusal", "tool_calls", "function_call", "annotations", "executed_tools"),
        *("reasoning", "reasoning_content", "reasoning_details"),
    ),
    "tool": ("role", "content", "tool_call_id", "name"),
    "function": ("role", "content", "name"),
}


def read_chat(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the messages of Chat Completions."""
    for place, item in items:
        role, content = item.get("role"), item.get("content")
        collector.drop_keys(item, (*_BOOKKEEPING, *_CHAT_KEYS.get(as_text(role), ("role", "content"))), place)
        match role:
            case "user":
                collector.say(content, f"{place}.content")
            case "assistant":
                collector.decode(ChatDecoder(collector.provider, deltas=False), _chat_answer(collector, item), place)
            case "tool" | "function":
                id, name = as_text(item.get("tool_call_id")), as_text(item.get("name"))
                collector.answer_call(content, place, id=id, name="" if id else name)
            case "system" | "developer":
                collector.say_system(content, place)
            case _:
                collector.drop(place, f"a message of the role {role!r}")


def _chat_answer(collector: MessageCollector, item: JsonObject) -> JsonObject:
    """Return a message as an answer has it: its refusals beside its words, and each call with an id."""
    message = {**item}
    listed = [as_object(part) for part in as_list(item.get("content"))]
    if refusals := [as_text(part.get("refusal")) for part in listed if part.get("type") == "refusal"]:
        message["refusal"] = as_text(item.get("refusal")) + "".join(refusals)
    function = message.pop("function_call", None)
    calls = [as_object(call) for call in as_list(item.get("tool_calls"))]
    calls += [{"function": function}] if is_json_object(function) else []
    # Without numbers two calls would be read as the pieces of one.
    message["tool_calls"] = [
        {**call, "index": number, "id": as_text(call.get("id")) or collector.new_id()}
        for number, call in enumerate(calls)
    ]
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


_RUN_BY_THE_CLIENT: Final = frozenset(
    {"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)
"""Calls of the service's own tools that the client does: no tool here answers them."""
_NOT_THE_MODELS: Final = frozenset({"item_reference", "mcp_approval_response", "additional_tools"})


def read_responses(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the items of the Responses API."""
    for of_model, group in groupby(items, lambda each: _is_models(each[1])):
        members = [*group]
        if not of_model:
            for place, item in members:
                _say_item(collector, item, place)
            continue
        output: list[JsonValue] = [_as_output(collector, item) for _, item in members]
        document: JsonObject = {"output": output, "status": "completed"}
        collector.decode(ResponsesDecoder(collector.provider, deltas=False), document, members[0][0])


def _is_models(item: JsonObject) -> bool:
    kind = item.get("type") or "message"
    if kind == "message":
        return item.get("role") == "assistant"
    name = as_text(kind)
    return not name.endswith("_output") and name not in _RUN_BY_THE_CLIENT | _NOT_THE_MODELS


def _as_output(collector: MessageCollector, item: JsonObject) -> JsonObject:
    """Return an item as an answer has it: a message in parts, and each call with an id."""
    match item.get("type") or "message":
        case "message":
            content = item.get("content")
            parts = [content] if isinstance(content, str) else as_list(content)
            return {**item, "type": "message", "content": [_output_part(part) for part in parts]}
        case "custom_tool_call":
            arguments = write_sound_json({"input": item.get("input")}).decode()
            kept = {key: value for key, value in item.items() if key not in ("input", "id")}
            item = {**kept, "type": "function_call", "arguments": arguments}
        case "function_call":
            pass
        case _:
            return item
    return {**item, "call_id": as_text(item.get("call_id")) or collector.new_id()}


def _output_part(part: object) -> JsonObject:
    fields = as_object(part)
    if isinstance(part, str) or fields.get("type") in ("input_text", "text"):
        return {"type": "output_text", "text": part if isinstance(part, str) else fields.get("text")}
    return fields


def _say_item(collector: MessageCollector, item: JsonObject, place: str) -> None:
    kind, role = item.get("type") or "message", item.get("role")
    match kind:
        case "function_call_output" | "custom_tool_call_output":
            collector.answer_call(item.get("output"), place, id=as_text(item.get("call_id")))
        case "message" if role == "user":
            collector.say(item.get("content"), f"{place}.content")
        case "message" if role in ("system", "developer"):
            collector.say_system(item.get("content"), place)
        case "message":
            collector.drop(place, f"a message of the role {role!r}")
        case _:
            collector.drop(place, f"an item of type {kind!r}")


_CAMEL: Final = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "display_name": "displayName",
}
"""The names that Google's own Python package writes, by those of the API."""


def read_google(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the contents of Gemini's API."""
    for place, item in items:
        collector.drop_keys(item, ("role", "parts"), place)
        parts = [_camel(part) for part in as_list(item.get("parts"))]
        match item.get("role") or "user":
            case "model":
                _answer_google(collector, parts, place)
            case "user" | "function":
                _say_google(collector, parts, place)
            case "system":
                collector.say_system([*parts], place)
            case role:
                collector.drop(place, f"a content of the role {role!r}")


def _camel(part: object) -> JsonObject:
    fields: JsonObject = {_CAMEL.get(key, key): value for key, value in as_object(part).items() if value is not None}
    for key in ("inlineData", "fileData"):
        if key in fields:
            fields[key] = {_CAMEL.get(name, name): value for name, value in as_object(fields[key]).items()}
    return fields


def _answer_google(collector: MessageCollector, parts: Sequence[JsonObject], place: str) -> None:
    whole: list[JsonObject] = []
    for number, part in enumerate(parts):
        call = as_object(part.get("functionCall"))
        if call and not as_text(call.get("name")):
            collector.drop(f"{place}.parts[{number}]", "a call without a name")
        elif call:
            whole.append({**part, "functionCall": {**call, "id": as_text(call.get("id")) or collector.new_id()}})
        elif part:
            whole.append(part)
    candidate: JsonObject = {"content": {"parts": [*whole]}, "finishReason": "STOP"}
    collector.decode(GoogleDecoder(collector.provider, deltas=False), {"candidates": [candidate]}, place)


def _say_google(collector: MessageCollector, parts: Sequence[JsonObject], place: str) -> None:
    for number, part in enumerate(parts):
        at, result = f"{place}.parts[{number}]", as_object(part.get("functionResponse"))
        if not result:
            collector.say(part, at, part_of_gemini)
            continue
        inline = [as_object(_camel(each).get("inlineData")) for each in as_list(result.get("parts"))]
        files = [{"type": "file", "data": each.get("data"), "mime_type": each.get("mimeType")} for each in inline]
        response = as_object(result.get("response"))
        told = response.get("error", response.get("output", response.get("result"))) if len(response) == 1 else None
        said: object = response if told is None else told
        if files:
            said = [said if isinstance(said, str) else write_sound_json(said).decode(), *files]
        id, name = as_text(result.get("id")), as_text(result.get("name"))
        collector.answer_call(said, at, id=id, name=name, is_error=[*response] == ["error"])

"""The forms that conversations come in, each told by its shape, and read by the function in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from journeyman.definition.json_numbers import read_json, write_sound_json
from journeyman.definition.narrowing import (
    as_list,
    as_object,
    as_text,
    is_dict,
    is_json_object,
    is_list,
    is_list_or_tuple,
)
from journeyman.history import ImportedHistory
from journeyman.models.foreign_messages.collector import MessageCollector
from journeyman.models.foreign_messages.libraries import (
    read_claude_code,
    read_langchain,
    read_pydantic_ai,
    read_sharegpt,
)
from journeyman.models.foreign_messages.wires import Item, read_anthropic, read_chat, read_google, read_responses
from journeyman.types import JsonObject, Message

_READERS: Final[Mapping[str, tuple[Callable[[MessageCollector, Sequence[Item]], None], str]]] = {
    "anthropic": (read_anthropic, "anthropic"),
    "chat": (read_chat, "openai"),
    "responses": (read_responses, "openai"),
    "google": (read_google, "google:unknown"),
    "pydantic_ai": (read_pydantic_ai, "unknown"),
    "langchain": (read_langchain, "unknown"),
    "sharegpt": (read_sharegpt, "unknown"),
    "claude_code": (read_claude_code, "anthropic"),
}
"""By form: its reader, and the provider whose reasoning it holds unless the caller names one."""
_LISTS: Final = ("messages", "input", "contents", "conversations", "conversation")
_SYSTEMS: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_HEAD: Final = (*_SYSTEMS, "model", "stream", "id")

_LANGCHAIN_TYPES: Final = frozenset({"human", "ai", "system", "tool", "function", "chat", "AIMessageChunk"})
_ANTHROPIC_PARTS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}
)
_CHAT_PARTS: Final = frozenset({"image_url", "input_audio", "refusal"})
_CHAT_KEYS: Final = frozenset({"tool_calls", "function_call", "tool_call_id", "reasoning_content", "reasoning_details"})
_RESPONSES_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_RESPONSES_TYPES: Final = frozenset({"function_call", "function_call_output", "reasoning", "item_reference"})


def _parts_of(item: JsonObject) -> set[str]:
    return {as_text(as_object(part).get("type")) for part in as_list(item.get("content"))}


_SHAPES: Final[Mapping[str, Callable[[JsonObject], bool]]] = {
    "claude_code": lambda item: is_json_object(item.get("message")) and bool({"sessionId", "uuid"} & item.keys()),
    "sharegpt": lambda item: {"from", "value"} <= item.keys(),
    "pydantic_ai": lambda item: is_list(item.get("parts")) and item.get("kind") in ("request", "response"),
    "google": lambda item: is_list(item.get("parts")) and "kind" not in item,
    "langchain": lambda item: "lc" in item or (item.get("type") in _LANGCHAIN_TYPES and "role" not in item),
}
"""Shapes that no other form has, the surest first."""
_SIGNS: Final[Mapping[str, Callable[[JsonObject], bool]]] = {
    "responses": lambda item: item.get("type") in _RESPONSES_TYPES or bool(_parts_of(item) & _RESPONSES_PARTS),
    "anthropic": lambda item: (
        bool(_parts_of(item) & _ANTHROPIC_PARTS)
        or any("source" in as_object(part) for part in as_list(item.get("content")))
    ),
    "chat": lambda item: (
        item.get("role") in ("tool", "function") or bool(_CHAT_KEYS & item.keys() or _parts_of(item) & _CHAT_PARTS)
    ),
}
"""What one message of three forms that are much alike may have, and those of the others never."""


def _tell_form(items: Sequence[Item]) -> str:
    for form, has_shape in _SHAPES.items():
        if any(has_shape(item) for _, item in items):
            return form
    found = {form: place for form, has_sign in _SIGNS.items() for place, item in items if has_sign(item)}
    if len(found) > 1:
        where = " and ".join(f"{place} is {form}'s" for form, place in found.items())
        raise ValueError(f"These messages are of several forms: {where}. Say which with form=….")
    if not found and not any("role" in item for _, item in items):
        raise ValueError(f"No form is known whose messages look like these. {_ALL_FORMS}")
    return next(iter(found), "chat")  # messages of texts only are the same in two forms


_ALL_FORMS: Final = f"Give messages of one of these, and name it with form=…: {', '.join(_READERS)}."


def read_messages(messages: object, *, form: str | None = None, provider: str | None = None) -> ImportedHistory:
    """Do what `journeyman.history.from_messages` says."""
    if form is not None and form not in _READERS:
        raise ValueError(f"There is no form {form!r}. {_ALL_FORMS}")
    given = _parse(messages) if isinstance(messages, str | bytes) else _plain(messages)
    head = as_object(given)
    key = next((key for key in _LISTS if key in head), None)
    listed = head[key] if key else given
    if isinstance(listed, str):  # the input of the Responses API may be a text
        listed = [{"role": "user", "content": listed}]
    if not is_list(listed):
        raise ValueError(f"These are no messages, but a {type(messages).__name__}. {_ALL_FORMS}")
    places = [(f"messages[{number}]", each) for number, each in enumerate(listed)]
    items = [(place, each) for place, each in places if is_json_object(each)]
    form = form or (_tell_form(items) if items else "chat")
    read, whose = _READERS[form]
    model = as_text(head.get("model"))
    whose = f"google:{model}" if form == "google" and model else whose
    collector = MessageCollector(form, provider or whose)
    for name in _SYSTEMS:
        system = head.get(name)
        collector.say_system(as_object(system).get("parts", system), name)
    collector.drop_keys(head, (*_HEAD, key or ""), "the request")
    for place, each in places:
        if not is_json_object(each):
            collector.drop(place, f"{str(each)[:60]!r}, which is no message")
    read(collector, items)
    return collector.finish()


def _parse(text: str | bytes) -> object:
    """Return the JSON of a text, or the objects of its lines."""
    written = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        return read_json(written)
    except ValueError as error:
        lines = [line for line in written.splitlines() if line.strip()]
        if len(lines) < 2:
            raise ValueError(f"The messages are no JSON: {error}.") from None
    parsed: list[object] = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(read_json(line))
        except ValueError as error:
            raise ValueError(f"Line {number} of the messages is no JSON: {error}.") from None
    return parsed


def _plain(value: object) -> object:
    """Return messages as they are after being written as JSON: the objects of an SDK, too.

    Raises:
        ValueError: they hold what is no JSON, or are messages of ours.
    """
    if isinstance(value, Message) or (is_list(value) and any(isinstance(each, Message) for each in value)):
        raise ValueError("These are messages of ours already: give them to history=….")
    try:
        return read_json(write_sound_json(_dump_objects(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The messages hold what is no JSON: {error}.") from None


def _dump_objects(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_none=True)
    if is_dict(value):
        return {key: _dump_objects(each) for key, each in value.items()}
    if is_list_or_tuple(value):
        return [_dump_objects(each) for each in value]
    return value

"""The conversations of libraries and programs: pydantic-ai, LangChain, ShareGPT, and Claude Code's session lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from pydantic import JsonValue

from journeyman.definition.json_numbers import write_sound_json
from journeyman.definition.narrowing import as_list, as_object, as_text, object_in
from journeyman.models.foreign_messages.collector import MessageCollector
from journeyman.models.foreign_messages.wires import Item, answer_anthropic, say_anthropic
from journeyman.models.wire import tool_use
from journeyman.types import Block, JsonObject, Text, Thinking

_REQUEST_KEYS: Final = ("parts", "kind", "instructions", "timestamp", "run_id", "conversation_id", "metadata", "state")
_RESPONSE_KEYS: Final = (
    *(*_REQUEST_KEYS, "usage", "model_name", "provider_name", "provider_url", "provider_details"),
    *("provider_response_id", "finish_reason", "vendor_id", "vendor_details"),
)
_FAILED: Final = ("failed", "denied", "error", "retried")


def read_pydantic_ai(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read messages that pydantic-ai has dumped as JSON."""
    for place, item in items:
        parts = [
            (f"{place}.parts[{number}]", as_object(part)) for number, part in enumerate(as_list(item.get("parts")))
        ]
        if item.get("kind") == "response":
            collector.drop_keys(item, _RESPONSE_KEYS, place)
            collector.add_models(_pydantic_answer(collector, item, parts), place)
            continue
        collector.drop_keys(item, _REQUEST_KEYS, place)
        instructions = as_text(item.get("instructions"))
        if instructions and instructions not in collector.system:
            collector.system.append(instructions)
        for at, part in parts:
            _read_request_part(collector, part, at)


def _read_request_part(collector: MessageCollector, part: JsonObject, place: str) -> None:
    content, id = part.get("content"), as_text(part.get("tool_call_id"))
    match part.get("part_kind"):
        case "system-prompt":
            collector.say_system(content, place)
        case "user-prompt":
            collector.say(content, place)
        case "tool-return":
            collector.answer_call(content, place, id=id, is_error=part.get("outcome") in _FAILED)
        case "retry-prompt" | "retry-feedback":
            words = content if isinstance(content, str) else write_sound_json(content).decode()
            if part.get("tool_name"):
                collector.answer_call(words, place, id=id, is_error=True)
            else:
                collector.say(words, place)
        case kind:
            collector.drop(place, f"a part of kind {kind!r}")


def _pydantic_answer(collector: MessageCollector, item: JsonObject, parts: Sequence[Item]) -> Iterator[Block]:
    provider = as_text(item.get("provider_name")) or collector.provider
    for place, part in parts:
        text, details = as_text(part.get("content")), part.get("provider_details")
        match part.get("part_kind"):
            case "text":
                yield Text(text)
            case "thinking":
                yield _pydantic_thought(collector, part, as_text(part.get("provider_name")) or provider, place)
                continue
            case "tool-call":
                yield _call_of(collector, part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
            case kind:
                collector.drop(place, f"a part of kind {kind!r}")
        if details:
            collector.drop(place, f"details that only {provider} reads")


def _pydantic_thought(collector: MessageCollector, part: JsonObject, provider: str, place: str) -> Block:
    """Return a thought: only Anthropic's signature stands in it as the provider takes it back."""
    signature = as_text(part.get("signature")) or None
    if signature and provider != "anthropic":
        collector.drop(place, f"the signature of a thought, in a form of its own for {provider}")
        signature = None
    return Thinking(as_text(part.get("content")), signature, provider)


def _call_of(collector: MessageCollector, id: object, name: object, arguments: object) -> Block:
    written = arguments if isinstance(arguments, str) else write_sound_json(arguments or {}).decode()
    return tool_use(as_text(id) or collector.new_id(), as_text(name), written, wire_id=None)


_LANGCHAIN_KEYS: Final = (
    *("content", "type", "id", "name", "example", "additional_kwargs", "response_metadata", "usage_metadata", "role"),
    *("tool_calls", "invalid_tool_calls", "tool_call_chunks", "tool_call_id", "status", "artifact", "chunk_position"),
)
_LANGCHAIN_ROLES: Final = {
    **dict.fromkeys(("human", "HumanMessage", "HumanMessageChunk"), "human"),
    **dict.fromkeys(("ai", "AIMessage", "AIMessageChunk"), "ai"),
    **dict.fromkeys(("system", "SystemMessage", "SystemMessageChunk"), "system"),
    **dict.fromkeys(("tool", "ToolMessage", "ToolMessageChunk"), "tool"),
}


def read_langchain(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read LangChain's messages, dumped in any of its three ways."""
    for place, item in items:
        # `dumpd` names the class in a path, `messages_to_dict` puts the fields one level below, `model_dump` nothing.
        path = [as_text(each) for each in as_list(item.get("id"))] if item.get("lc") else [as_text(item.get("type"))]
        fields = as_object(item.get("kwargs")) or as_object(item.get("data")) or item
        collector.drop_keys(fields, _LANGCHAIN_KEYS, place)
        role = _LANGCHAIN_ROLES.get(path[-1] if path else "")
        content = fields.get("content")
        match role:
            case "human":
                collector.say(content, f"{place}.content")
            case "system":
                collector.say_system(content, place)
            case "tool":
                id, is_error = as_text(fields.get("tool_call_id")), fields.get("status") == "error"
                collector.answer_call(content, place, id=id, is_error=is_error)
            case "ai":
                collector.add_models(_langchain_answer(collector, fields, place), place)
            case _:
                collector.drop(place, f"a message of type {'.'.join(path)!r}")


def _langchain_answer(collector: MessageCollector, fields: JsonObject, place: str) -> Iterator[Block]:
    more, content = as_object(fields.get("additional_kwargs")), fields.get("content")
    if thought := as_text(more.get("reasoning_content")):
        yield Thinking(thought, None, collector.provider)
    for number, part in enumerate([content] if isinstance(content, str) else as_list(content)):
        block = _langchain_block(collector, part)
        if block is not None:
            yield block
        elif as_object(part).get("type") not in ("tool_use", "tool_call", "tool_call_chunk", "function_call"):
            collector.drop(f"{place}.content[{number}]", f"a part of type {as_object(part).get('type')!r}")
    raw = [as_object(call) for call in as_list(more.get("tool_calls"))]
    listed = [as_object(call) for key in ("tool_calls", "invalid_tool_calls") for call in as_list(fields.get(key))]
    for call in listed:
        yield _call_of(collector, call.get("id"), call.get("name"), call.get("args"))
    for call in [] if listed else raw:
        function = as_object(call.get("function"))
        yield _call_of(collector, call.get("id"), function.get("name"), function.get("arguments"))


def _langchain_block(collector: MessageCollector, part: JsonValue) -> Block | None:
    """Return a text or a thought; the calls stand beside the content once more."""
    fields = as_object(part)
    match "text" if isinstance(part, str) else fields.get("type"):
        case "text" | "output_text":
            return Text(part if isinstance(part, str) else as_text(fields.get("text")))
        case "thinking":
            return Thinking(as_text(fields.get("thinking")), as_text(fields.get("signature")) or None, "anthropic")
        case "reasoning" if text := as_text(fields.get("reasoning")):
            return Thinking(text, None, collector.provider)
        case _:
            return None


_SHAREGPT_KEYS: Final = ("from", "value")


def read_sharegpt(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the turns of a ShareGPT conversation."""
    for place, item in items:
        collector.drop_keys(item, _SHAREGPT_KEYS, place)
        value = item.get("value")
        text = value if isinstance(value, str) else write_sound_json(value).decode()
        match item.get("from"):
            case "human" | "user":
                collector.say(text, place)
            case "gpt" | "assistant" | "chatgpt" | "bing" | "bard":
                collector.add_models([Text(text)], place)
            case "system":
                collector.say_system(text, place)
            case "function_call":
                call = object_in(text)
                collector.add_models([_call_of(collector, "", call.get("name"), call.get("arguments"))], place)
            case "observation" | "tool" | "function_response":
                collector.answer_call(text, place)
            case who:
                collector.drop(place, f"a turn of {who!r}")


def read_claude_code(collector: MessageCollector, items: Sequence[Item]) -> None:
    """Read the lines of a session that Claude Code has stored: the conversation that its last line belongs to."""
    left_out: Counter[str] = Counter()
    spoken = [(place, line) for place, line in items if _is_spoken(line, left_out)]
    current = _on_the_branch([line for _, line in spoken])
    kept = [(place, line) for place, line in spoken if id(line) in current]
    left_out["of another branch, or before a compaction"] += len(spoken) - len(kept)
    for why, number in left_out.items():
        if number:
            collector.drop("lines", f"{number:,} {why}")
    for (role, _), group in groupby(kept, lambda each: _turn_of(each[1])):
        lines = [*group]
        if role == "assistant":
            # Each block of an answer has a line of its own; they belong to one message.
            contents = [as_object(line.get("message")).get("content") for _, line in lines]
            whole = [part for each in contents for part in ([each] if isinstance(each, str) else as_list(each))]
            blocks: list[JsonValue] = [
                {"type": "text", "text": part} if isinstance(part, str) else part for part in whole
            ]
            answer_anthropic(collector, blocks, lines[0][0])
            continue
        for place, line in lines:
            _say_line(collector, line, place)


def _is_spoken(line: JsonObject, left_out: Counter[str]) -> bool:
    """Tell whether a line is a message of the conversation; of others, count why they are left out."""
    message = line.get("message")
    if line.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        why = f"of type {line.get('type')!r}"
    elif line.get("isSidechain"):
        why = "of sub-agents"
    elif line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        why = "that no model wrote"
    else:
        return True
    left_out[why] += 1
    return False


def _on_the_branch(lines: Sequence[JsonObject]) -> set[int]:
    """Return the lines that lead to the last one, by identity. Answers and results that came at the same time follow
    one another's parents, so those of a message or of a call on the way are on it, too."""
    by_id = {as_text(line.get("uuid")): line for line in lines}
    found: dict[int, JsonObject] = {}
    line = lines[-1] if lines else None
    while line is not None and id(line) not in found:
        found[id(line)] = line
        line = by_id.get(as_text(line.get("parentUuid")))
    answers = {name for each in found.values() if (name := _turn_of(each))[0] == "assistant"}
    found |= {id(line): line for line in lines if _turn_of(line) in answers}
    calls = {id for line in found.values() for kind, id in _ids_in(line) if kind == "tool_use"}
    results = {id(line) for line in lines if (told := {*_ids_in(line)}) and {each for _, each in told} <= calls}
    return {*found} | results


def _turn_of(line: JsonObject) -> tuple[str, str]:
    message = as_object(line.get("message"))
    is_answer = line.get("type") == "assistant"
    return (as_text(line.get("type")), as_text(message.get("id")) or as_text(line.get("uuid")) if is_answer else "")


def _ids_in(line: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the ids of the calls and results in a line, each after its kind."""
    for part in map(as_object, as_list(as_object(line.get("message")).get("content"))):
        match part.get("type"):
            case "tool_use":
                yield "tool_use", as_text(part.get("id"))
            case "tool_result":
                yield "tool_result", as_text(part.get("tool_use_id"))
            case _:
                pass


def _say_line(collector: MessageCollector, line: JsonObject, place: str) -> None:
    n_before = len(collector.messages)
    say_anthropic(collector, as_object(line.get("message")).get("content"), place)
    if line.get("isCompactSummary"):
        for number, message in enumerate(collector.messages[n_before:], n_before):
            told = [replace(each, origin="summary") if isinstance(each, Text) else each for each in message.content]
            collector.messages[number] = replace(message, content=tuple(told))

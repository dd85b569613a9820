"""An answer in the words of the Responses API: one JSON document, or the events of a stream.

Where deltas are cut is arbitrary but seeded.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import orjson

from tests.support.messages_answers import SERIAL, sse
from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.messages_sse import pieces
from tests.support.openai_answers import Answer, Counted


def responses_parts(answer: Answer, *, stream: bool, encrypted: bool, model: str, seed: int) -> list[bytes]:
    """Return the body as whole parts: one per event, or the JSON document alone.

    `encrypted` asks for the encrypted content of reasoning items.
    """
    items = output_items(answer, encrypted=encrypted)
    if not stream:
        return [orjson.dumps(_response(answer, model, items))]
    numbers = count()
    return [sse({**event, "sequence_number": next(numbers)}) for event in _events(answer, model, items, Random(seed))]


def output_items(answer: Answer, *, encrypted: bool) -> list[Json]:
    """Return the answer as output items; neighbouring texts and refusals are one message."""
    items: list[Json] = []
    for number, block in enumerate(answer.content, 1):
        part = _part(block)
        if part is None:
            items.append(_item(block, f"{SERIAL}_{number}", encrypted=encrypted))
        elif items and items[-1]["type"] == "message":
            as_list(items[-1]["content"]).append(part)
        else:
            message = {"id": f"msg_{SERIAL}_{number}", "type": "message", "status": "completed"}
            items.append({**message, "role": "assistant", "content": [part]})
    return items


def _part(block: Json) -> Json | None:
    match block["type"]:
        case "text":
            return {"type": "output_text", "text": block["text"], "annotations": block["annotations"], "logprobs": []}
        case "refusal":
            return {"type": "refusal", "refusal": block["refusal"]}
        case _:
            return None


def _item(block: Json, number: str, *, encrypted: bool) -> Json:
    match block["type"]:
        case "call":
            arguments = {"name": block["name"], "arguments": block["arguments"]}
            call = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
            return {**call, "call_id": block["id"], **arguments}
        case "reasoning":
            summary = [{"type": "summary_text", "text": block["text"]}] if block["text"] else []
            item: Json = {"id": f"rs_{number}", "type": "reasoning", "summary": summary}
            return {**item, "encrypted_content": block["encrypted"]} if encrypted else item
        case _:
            return as_object(block["item"])


def _response(answer: Answer, model: str, output: Sequence[Json], status: str = "") -> Json:
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(answer.ending)
    status = status or ("incomplete" if reason else "completed")
    begun = status == "in_progress"
    return {
        "id": answer.id,
        "object": "response",
        "created_at": 1_763_769_600,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason and not begun else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model or model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None if begun or answer.usage is None else responses_usage(answer.usage),
    }


def responses_usage(counted: Counted) -> Json:
    """Return the usage as this API words it."""
    usage: Json = {
        "input_tokens": counted.input,
        "output_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
    }
    if counted.cached is not None:
        details: Json = {"cached_tokens": counted.cached}
        usage["input_tokens_details"] = (
            details if counted.written is None else {**details, "cache_write_tokens": counted.written}
        )
    if counted.reasoning is not None:
        usage["output_tokens_details"] = {"reasoning_tokens": counted.reasoning}
    return usage


def _events(answer: Answer, model: str, items: Sequence[Json], random: Random) -> Iterator[Json]:
    begun = _response(answer, model, [], "in_progress")
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
        place: Json = {"item_id": item.get("id"), "output_index": index}
        for event in _inside(item, random, answer.delta_chars):
            yield {**event, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    whole = _response(answer, model, items)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _begun(item: Json) -> Json:
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case "reasoning":
            return {**item, "summary": []}
        case _:
            return item


def _inside(item: Json, random: Random, chars: int | None) -> Iterator[Json]:
    match item["type"]:
        case "message":
            for index, part in enumerate(map(as_object, as_list(item["content"]))):
                for event in _part_events(part, random, chars):
                    yield {**event, "content_index": index}
        case "function_call":
            arguments = as_text(item["arguments"])
            for piece in pieces(arguments, random, chars):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
            done = {"type": "response.function_call_arguments.done", "arguments": arguments}
            yield {**done, "name": item["name"]}
        case "reasoning":
            for index, part in enumerate(map(as_object, as_list(item["summary"]))):
                for event in _summary_events(part, random, chars):
                    yield {**event, "summary_index": index}
        case _:
            return


def _part_events(part: Json, random: Random, chars: int | None) -> Iterator[Json]:
    is_text = part["type"] == "output_text"
    kind, key = ("output_text", "text") if is_text else ("refusal", "refusal")
    beside: Json = {"logprobs": []} if is_text else {}
    yield {"type": "response.content_part.added", "part": {**part, key: ""}}
    for piece in pieces(as_text(part[key]), random, chars):
        yield {"type": f"response.{kind}.delta", "delta": piece, **beside}
    yield {"type": f"response.{kind}.done", key: part[key], **beside}
    yield {"type": "response.content_part.done", "part": part}


def _summary_events(part: Json, random: Random, chars: int | None) -> Iterator[Json]:
    yield {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}}
    for piece in pieces(as_text(part["text"]), random, chars):
        yield {"type": "response.reasoning_summary_text.delta", "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", "part": part}

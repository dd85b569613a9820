"""An answer in the words of OpenAI's APIs: one JSON document, or the chunks or events of a stream.

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
from tests.support.openai_rules import Service

DONE = b"data: [DONE]\n\n"


def chat_parts(
    answer: Answer, *, stream: bool, usage: bool, model: str, seed: int, reasoning_field: str | None
) -> list[bytes]:
    """Return the body as whole parts: one per chunk, or the JSON document alone.

    `usage` asks for the last chunk of a stream, with the usage; reasoning goes into `reasoning_field`, if there is one.
    """
    if not stream:
        return [orjson.dumps(_completion(answer, model, reasoning_field))]
    chunks = _chunks(answer, model, Random(seed), reasoning_field, usage=usage)
    return [*(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks), DONE]


def _completion(answer: Answer, model: str, reasoning_field: str | None) -> Json:
    message: Json = {"role": "assistant", "content": _joined(answer, "text"), "refusal": _joined(answer, "refusal")}
    message["annotations"] = []
    if reasoning_field and (thoughts := _joined(answer, "reasoning")):
        message[reasoning_field] = thoughts
    if calls := [_chat_call(block) for block in answer.content if block["type"] == "call"]:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.ending}
    whole = {**_envelope(answer, model, "chat.completion"), "choices": [choice]}
    return whole if answer.usage is None else {**whole, "usage": chat_usage(answer.usage)}


def _chunks(answer: Answer, model: str, random: Random, reasoning_field: str | None, *, usage: bool) -> Iterator[Json]:
    envelope = {**_envelope(answer, model, "chat.completion.chunk"), **({"usage": None} if usage else {})}

    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**envelope, "choices": [choice]}

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for delta in _deltas(answer, random, reasoning_field):
        yield chunk(delta)
    yield chunk({}, answer.ending)
    if usage and answer.usage is not None:
        yield {**envelope, "choices": [], "usage": chat_usage(answer.usage)}


def _deltas(answer: Answer, random: Random, reasoning_field: str | None) -> Iterator[Json]:
    n_calls = 0
    for block in answer.content:
        match block["type"]:
            case "text":
                for piece in pieces(as_text(block["text"]), random, answer.delta_chars):
                    yield {"content": piece}
                yield from _cited(as_list(block["annotations"]))
            case "refusal":
                for piece in pieces(as_text(block["refusal"]), random, answer.delta_chars):
                    yield {"refusal": piece}
            case "reasoning" if reasoning_field:
                for piece in pieces(as_text(block["text"]), random, answer.delta_chars):
                    yield {reasoning_field: piece}
            case "call":
                begun = _chat_call({**block, "arguments": ""})
                yield {"tool_calls": [{"index": n_calls, **begun}]}
                for piece in pieces(as_text(block["arguments"]), random, answer.delta_chars):
                    yield {"tool_calls": [{"index": n_calls, "function": {"arguments": piece}}]}
                n_calls += 1
            case _:
                pass


def _cited(annotations: Sequence[object]) -> Iterator[Json]:
    for annotation in annotations:
        yield {"annotations": [annotation]}


def chat_usage(counted: Counted) -> Json:
    """Return the usage as Chat Completions words it."""
    usage = usage_of(counted, of_input="prompt", of_output="completion")
    if counted.cached is not None:
        usage["prompt_tokens_details"] = {"audio_tokens": 0, **as_object(usage["prompt_tokens_details"])}
    if counted.reasoning is not None:
        rest = {"audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        usage["completion_tokens_details"] = {**as_object(usage["completion_tokens_details"]), **rest}
    if counted.cost is not None:
        usage |= {"cost": counted.cost, "is_byok": counted.upstream_cost is not None}
        usage["cost_details"] = {"upstream_inference_cost": counted.upstream_cost}
    return usage


def usage_of(counted: Counted, *, of_input: str, of_output: str) -> Json:
    """Return the usage in the words that both APIs have, with the names that this one gives to input and output."""
    usage: Json = {f"{of_input}_tokens": counted.input, f"{of_output}_tokens": counted.output}
    usage["total_tokens"] = counted.input + counted.output
    if counted.cached is not None:
        written = {} if counted.written is None else {"cache_write_tokens": counted.written}
        usage[f"{of_input}_tokens_details"] = {"cached_tokens": counted.cached, **written}
    if counted.reasoning is not None:
        usage[f"{of_output}_tokens_details"] = {"reasoning_tokens": counted.reasoning}
    return usage


def _envelope(answer: Answer, model: str, kind: str) -> Json:
    return {
        "id": answer.id.replace("resp_", "chatcmpl-"),
        "object": kind,
        "created": 1_763_769_600,
        "model": answer.model or model,
        "service_tier": "default",
        "system_fingerprint": "fp_0",
    }


def _chat_call(block: Json) -> Json:
    function = {"name": block["name"], "arguments": block["arguments"]}
    return {"id": block["id"], "type": "function", "function": function}


def _joined(answer: Answer, kind: str) -> str | None:
    key = "refusal" if kind == "refusal" else "text"
    texts = [as_text(block[key]) for block in answer.content if block["type"] == kind]
    return "".join(texts) if texts else None


def as_said_by(service: Service, parts: list[bytes], answer: Answer) -> list[bytes]:
    """Return the parts of a chat completion as a service says them that has habits of its own."""
    habits = (service.always_counts, service.output_without_reasoning, service.thinks_in_content)
    if not any(habits) and service.good_end == "stop":
        return parts
    return [part if part == DONE else _said_by(service, part, answer) for part in parts]


def _said_by(service: Service, part: bytes, answer: Answer) -> bytes:
    chunk = as_object(orjson.loads(part.removeprefix(b"data: ")))
    for choice in map(as_object, as_list(chunk.get("choices"))):
        said = as_object(choice.get("delta") or choice.get("message"))
        if choice.get("finish_reason") == "stop":
            choice["finish_reason"] = service.good_end
        if choice.get("finish_reason") and service.always_counts and answer.usage is not None:
            chunk["usage"] = chat_usage(answer.usage)
        if service.thinks_in_content and (thought := said.pop(service.reasoning_field or "", None)):
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            text = as_text(said.get("content"))
            said["content"] = [thinking, {"type": "text", "text": text}] if text else [thinking]
    usage = as_object(chunk.get("usage"))
    if usage and service.output_without_reasoning and answer.usage is not None:
        usage["completion_tokens"] = answer.usage.output - (answer.usage.reasoning or 0)
    whole = orjson.dumps(chunk)
    return b"data: " + whole + b"\n\n" if part.startswith(b"data: ") else whole


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
        "usage": None
        if begun or answer.usage is None
        else usage_of(answer.usage, of_input="input", of_output="output"),
    }


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

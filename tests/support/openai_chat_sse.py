"""An answer in the words of Chat Completions: one JSON document, or the chunks of a stream.

Where deltas are cut is arbitrary but seeded.
"""

from collections.abc import Iterator
from random import Random

import orjson

from tests.support.messages_json import Json, as_text
from tests.support.messages_sse import pieces
from tests.support.openai_answers import Answer, Counted

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
    if calls := [_call(block) for block in answer.content if block["type"] == "call"]:
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
            case "refusal":
                for piece in pieces(as_text(block["refusal"]), random, answer.delta_chars):
                    yield {"refusal": piece}
            case "reasoning" if reasoning_field:
                for piece in pieces(as_text(block["text"]), random, answer.delta_chars):
                    yield {reasoning_field: piece}
            case "call":
                begun = _call({**block, "arguments": ""})
                yield {"tool_calls": [{"index": n_calls, **begun}]}
                for piece in pieces(as_text(block["arguments"]), random, answer.delta_chars):
                    yield {"tool_calls": [{"index": n_calls, "function": {"arguments": piece}}]}
                n_calls += 1
            case _:
                pass


def chat_usage(counted: Counted) -> Json:
    """Return the usage as this API words it."""
    usage: Json = {
        "prompt_tokens": counted.input,
        "completion_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
    }
    if counted.cached is not None:
        details: Json = {"cached_tokens": counted.cached, "audio_tokens": 0}
        usage["prompt_tokens_details"] = (
            details if counted.written is None else {**details, "cache_write_tokens": counted.written}
        )
    if counted.reasoning is not None:
        rest = {"audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        usage["completion_tokens_details"] = {"reasoning_tokens": counted.reasoning, **rest}
    if counted.cost is not None:
        usage |= {"cost": counted.cost, "is_byok": counted.upstream_cost is not None}
        usage["cost_details"] = {"upstream_inference_cost": counted.upstream_cost}
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


def _call(block: Json) -> Json:
    function = {"name": block["name"], "arguments": block["arguments"]}
    return {"id": block["id"], "type": "function", "function": function}


def _joined(answer: Answer, kind: str) -> str | None:
    key = "refusal" if kind == "refusal" else "text"
    texts = [as_text(block[key]) for block in answer.content if block["type"] == kind]
    return "".join(texts) if texts else None

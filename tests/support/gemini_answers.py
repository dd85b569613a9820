"""What the Gemini server says: parts, answers made of them, and the ways in which an answer can go wrong.

Signatures are given as the API gives them (wire-gemini, section 4): on the first call of an answer; without one, after
thoughts, on an empty text at the end of a stream, or on the last text of a document. Faults inside a body (`cut`,
`stall`, `insert`, `late`) and bytes that are no answer (`raw`, `html_page`) are those of `messages_answers.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import orjson

from tests.support.messages_answers import SERIAL, AnyAnswer, Raw, Twist, raw, sealed
from tests.support.messages_json import Json, as_object, as_text
from tests.support.messages_sse import pieces

_STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What an answer used, as the API counts it; what is 0 is left out."""

    prompt: int = 25
    """All input but that of hosted tools, cached or not."""
    candidates: int = 9
    """Without thoughts."""
    cached: int = 0
    thoughts: int = 0
    hosted: int = 0
    """Input that hosted tools brought."""

    def told(self) -> Json:
        counts = {
            "promptTokenCount": self.prompt,
            "candidatesTokenCount": self.candidates,
            "cachedContentTokenCount": self.cached,
            "thoughtsTokenCount": self.thoughts,
            "toolUsePromptTokenCount": self.hosted,
            "totalTokenCount": self.prompt + self.candidates + self.thoughts + self.hosted,
        }
        return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer(AnyAnswer):
    """One answer of `generateContent`; its content is parts."""

    ending: str
    """The finish reason."""
    usage: Counted | None
    """None: the server does not count."""
    signs: bool = True
    """Whether it gives signatures, as models from the third on do."""
    grounding: Json | None = None
    """What it says of the provider's searches."""


def text(value: str) -> Json:
    """Return a text."""
    return {"text": value}


def thought(value: str) -> Json:
    """Return a summary of what the model thought."""
    return {"text": value, "thought": True}


def call(name: str, arguments: object = None, *, id: str | None = None) -> Json:
    """Return a call; without an id it has none, as of most models (section 3)."""
    beside: Json = {} if id is None else {"id": id}
    return {"functionCall": {**beside, "name": name, "args": {} if arguments is None else arguments}}


def signed(part: Json, signature: str) -> Json:
    """Return the part with a signature."""
    return {**part, "thoughtSignature": signature}


def answer(
    *parts: Json | str,
    ending: str = "STOP",
    usage: Counted | None = Counted(),
    model: str | None = None,
    id: str = f"resp_{SERIAL}",
    headers: Mapping[str, str] | None = None,
    delta_chars: int | None = None,
    signs: bool = True,
    grounding: Json | None = None,
) -> Answer:
    """Return an answer of these parts (a string is a text)."""
    return Answer(
        content=tuple(text(part) if isinstance(part, str) else part for part in parts),
        ending=ending,
        usage=usage,
        model=model,
        id=id,
        headers=headers or {},
        delta_chars=delta_chars,
        signs=signs,
        grounding=grounding,
    )


def fault(
    status: int = 503,
    *,
    label: str | None = None,
    message: str = "ScriptedModel fault",
    details: Sequence[Json] = (),
    in_a_list: bool = False,
    content_type: str = "application/json",
) -> Raw:
    """Return an error as the API words it; the label follows from the status (section 6)."""
    error: Json = {"code": status, "message": message, "status": label or _STATUSES.get(status, "UNKNOWN")}
    document: object = {"error": {**error, "details": list(details)} if details else error}
    return raw(orjson.dumps([document] if in_a_list else document), status=status, content_type=content_type)


def broken_off(
    whole: Answer, *, after_events: int, status: int = 503, message: str = "The model is overloaded."
) -> Answer:
    """Send the first events, then an error, with which the stream ends."""
    error: Json = {"error": {"code": status, "message": message, "status": _STATUSES[status]}}
    return replace(whole, twist=Twist(after_events=after_events, insert=event(error)))


def event(chunk: object) -> bytes:
    """Return a chunk as an event; they bear no names (section 5)."""
    return b"data: " + orjson.dumps(chunk) + b"\r\n\r\n"


def body_parts(answer: Answer, *, stream: bool, model: str, seed: int) -> list[bytes]:
    """Return the body as whole parts: one per chunk, or the JSON document alone."""
    if not stream:
        return [orjson.dumps(_chunk(answer, model, with_signatures(answer), is_last=True))]
    chunks = [[part] for part in _cut(answer, Random(seed))]
    if not any("functionCall" in part for part in answer.content):
        chunks.append([signed(text(""), _seal(answer))] if _signs_text(answer) else [text("")])
    elif not chunks:
        chunks.append([])
    last = len(chunks) - 1
    return [event(_chunk(answer, model, parts, is_last=index == last)) for index, parts in enumerate(chunks)]


def with_signatures(answer: Answer) -> list[Json]:
    """Return the parts of an answer in one piece, signed."""
    parts = _with_signed_call(answer)
    if _signs_text(answer):
        parts = [*parts[:-1], signed(parts[-1], _seal(answer))]
    return parts


def _with_signed_call(answer: Answer) -> list[Json]:
    parts = list(answer.content)
    first = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
    if answer.signs and first is not None and "thoughtSignature" not in parts[first]:
        parts[first] = signed(parts[first], _seal(answer))
    return parts


def _signs_text(answer: Answer) -> bool:
    last = answer.content[-1] if answer.content else {}
    has_call = any("functionCall" in part for part in answer.content)
    has_thought = any(part.get("thought") for part in answer.content)
    return answer.signs and has_thought and not has_call and last.keys() == {"text"}


def _seal(answer: Answer) -> str:
    return sealed(repr(answer.content))


def _cut(answer: Answer, random: Random) -> Iterator[Json]:
    for part in _with_signed_call(answer):
        if part.keys() <= {"text", "thought"}:
            for piece in pieces(as_text(part["text"]), random, answer.delta_chars):
                yield {**part, "text": piece}
        else:
            yield part


def _chunk(answer: Answer, model: str, parts: Sequence[Json], *, is_last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    if is_last:
        candidate["finishReason"] = answer.ending
        candidate |= {} if answer.grounding is None else {"groundingMetadata": answer.grounding}
    chunk: Json = {"candidates": [candidate], "modelVersion": answer.model or model, "responseId": answer.id}
    if answer.usage is not None:
        told = answer.usage.told()
        chunk["usageMetadata"] = told if is_last else _so_far(told)
    return chunk


def _so_far(told: Json) -> Json:
    """Return what is told before the end: all input, and nothing that the model said."""
    so_far = {name: count for name, count in told.items() if "rompt" in name or name.startswith("cached")}
    return {**so_far, "totalTokenCount": sum(v for k, v in so_far.items() if "rompt" in k and isinstance(v, int))}


def calls_of(answer: Answer) -> list[Json]:
    """Return the calls that an answer brings."""
    return [as_object(part["functionCall"]) for part in answer.content if "functionCall" in part]

"""What the OpenAI server says: blocks, answers made of them, and the ways in which an answer can go wrong.

One script serves both of OpenAI's APIs: `openai_sse.py` turns an answer into bytes.
Faults inside a body (`cut`, `stall`, `insert`, `late`) and bytes that are no answer (`raw`, `html_page`) are those of
`messages_answers.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import orjson

from tests.support.messages_answers import SERIAL, AnyAnswer, Raw, Twist, raw, sealed, sse, with_ids
from tests.support.messages_answers import by_turn as by_turn
from tests.support.messages_json import Json

Ending: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why the model stopped, in the words of Chat Completions."""

_ERROR_TYPES: Mapping[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "server_is_overloaded"),
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What an answer used, as both APIs count it: all input together, cached or not."""

    input: int = 25
    output: int = 9
    cached: int | None = 0
    """None leaves out the details, as many compatible servers do."""
    reasoning: int | None = 0
    """None leaves out the details."""
    written: int | None = None
    """Tokens written to the cache; None leaves them out."""
    cost: float | None = None
    """US dollars, as OpenRouter tells them when asked; None leaves them out."""
    upstream_cost: float | None = None
    """What the user's own key for the provider was billed beside; None: no such key was used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer(AnyAnswer):
    """One answer of either API."""

    ending: Ending
    usage: Counted | None
    """None: the server does not count."""


Reply: TypeAlias = Answer | Raw
Policy: TypeAlias = Callable[[Json], Reply | Awaitable[Reply]]


def text(value: str, *, annotations: Sequence[Json] = ()) -> Json:
    """Return a text."""
    return {"type": "text", "text": value, "annotations": list(annotations)}


def refusal(value: str) -> Json:
    """Return the text with which the model refuses."""
    return {"type": "refusal", "refusal": value}


def call(name: str, arguments: Json | str, *, id: str | None = None) -> Json:
    """Return a call; arguments that are a string are written as they are, broken or not.

    Without an id it gets one like call_2_1: request 2, call 1.
    """
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"type": "call", "id": id, "name": name, "arguments": written}


def reasoning(value: str, *, encrypted: str | None = None) -> Json:
    """Return reasoning: for Responses a summary with `encrypted` content, by default made from the text."""
    return {"type": "reasoning", "text": value, "encrypted": sealed(value) if encrypted is None else encrypted}


def item(**fields: object) -> Json:
    """Return an output item of Responses as it is; Chat Completions leaves it out."""
    return {"type": "item", "item": fields}


def answer(
    *blocks: Json | str,
    ending: Ending | None = None,
    usage: Counted | None = Counted(),
    model: str | None = None,
    id: str = f"resp_{SERIAL}",
    headers: Mapping[str, str] | None = None,
    delta_chars: int | None = None,
) -> Answer:
    """Return an answer of these blocks (a string is a text block); the ending defaults to what fits them."""
    made = (text(block) if isinstance(block, str) else block for block in blocks)
    content = with_ids(made, kind="call", prefix="call")
    calls = any(block["type"] == "call" for block in content)
    return Answer(
        content=content,
        ending=ending or ("tool_calls" if calls else "stop"),
        usage=usage,
        model=model,
        id=id,
        headers={"x-request-id": f"req_{SERIAL}", **(headers or {})},
        delta_chars=delta_chars,
    )


def fault(
    status: int = 503,
    *,
    error_type: str | None = None,
    code: str | None = None,
    message: str = "ScriptedModel fault",
    headers: Mapping[str, str] | None = None,
) -> Raw:
    """Return an error as the API words it; type and code follow from the status."""
    usual_type, usual_code = _ERROR_TYPES.get(status, ("server_error", None))
    error = {"message": message, "type": error_type or usual_type, "param": None, "code": code or usual_code}
    body = orjson.dumps({"error": error})
    return raw(body, status=status, headers={"x-request-id": f"req_{SERIAL}", **(headers or {})})


def broken_off(
    whole: Answer, *, after_events: int, code: str = "server_error", message: str = "The server had an error"
) -> Answer:
    """Send the first events, then an error, with which the stream ends: one that holds for both APIs."""
    error: Json = {"message": message, "type": "server_error", "param": None, "code": code}
    event: Json = {**error, "type": "error", "sequence_number": 99, "error": error}
    return replace(whole, twist=Twist(after_events=after_events, insert=sse(event)))

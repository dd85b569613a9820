"""Parses what clients send: bodies, keys and numbers. What does not fit is refused, with its path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from ag_ui.core.types import RunAgentInput
from pydantic import ValidationError
from starlette.requests import Request

from journeyman.agent import Agent
from journeyman.errors import DefinitionError
from journeyman.gate import DECISION, Allow, Decision, Deny, Rewrite
from journeyman.json_numbers import read_json, write_json
from journeyman.model import ToolSpec
from journeyman.narrowing import as_list, is_json_object, is_list_of_texts, is_str_dict
from journeyman.serve.openapi import ID, KEY
from journeyman.serve.refusals import Refusal
from journeyman.tools.external import ExternalTools
from journeyman.types import JsonObject

_ID: Final = re.compile(ID)
_KEY: Final = re.compile(KEY)


def is_id(text: str) -> bool:
    """Tell whether a text may be the id of a run, a chat or a request."""
    return _ID.fullmatch(text) is not None


def parse_body(raw: bytes) -> object:
    """Return what a body says; an empty one says an empty object.

    Raises:
        Refusal: it is not JSON, or nested too deeply.
    """
    if not raw:
        return {}
    try:
        return read_json(raw)
    except ValueError as error:
        raise Refusal(400, "NOT_JSON", f"The body is not JSON: {error}.", "Send JSON in UTF-8.") from None


def wrong(path: str, what: str) -> Refusal:
    """Return the refusal of a body, for the value at this path."""
    issues = [{"path": path, "message": what}]
    return Refusal(422, "INVALID_INPUT", f"The body does not fit: {path}: {what}.", "See /openapi.json.", issues=issues)


def object_of(body: object, known: Sequence[str]) -> JsonObject:
    """Return the object that a body is.

    Raises:
        Refusal: it is none, or has other properties.
    """
    if not is_json_object(body):
        raise wrong("", "it is not an object")
    for name in body:
        if name not in known:
            raise wrong(name[:80], f"it is not known. Known are: {', '.join(known)}")
    return body


def input_of_body(agent: Agent[Any, Any, Any], body: object) -> object:
    """Return the input of a run, as the agent takes it.

    Raises:
        Refusal: it is missing, or is no text where the agent takes text.
        InvalidArguments: it does not fit the agent's type.
    """
    given = object_of(body, ("input",))
    if "input" not in given:
        raise wrong("input", "it is missing")
    value = given["input"]
    if agent.input is str:
        if not isinstance(value, str) or not value.strip():
            raise wrong("input", "it is not a text, or is blank")
        return value
    schema = agent.plan.input
    return schema.parse_checked(write_json({"value": value} if schema.is_wrapped else value))


def text_of_body(body: object, name: str, *, default: str | None = None) -> str:
    """Return a text that a body holds.

    Raises:
        Refusal: it is missing, blank, or no text.
    """
    value = object_of(body, (name,)).get(name, default)
    if not isinstance(value, str) or not value.strip():
        raise wrong(name, "it is not a text, or is blank")
    return value


def answer_of(body: object) -> Decision | str:
    """Return the answer to a question: a decision, or a text.

    Raises:
        Refusal: it is neither.
    """
    given = object_of(body, ("text", "decision", "reason", "arguments", "extent"))
    if "text" in given:
        return text_of_body(given, "text")
    if "decision" not in given:
        raise wrong("decision", "it is missing, and there is no text")
    return decision_of(given, "decision")


class RunInput(NamedTuple):
    """A request of a client of AG-UI, with what is read of it."""

    given: RunAgentInput
    """Its messages are the last ones only: the server has the conversation."""
    n_before: int
    """How many messages stood before those."""


def run_input(body: object) -> RunInput:
    """Return the parsed request of a client of AG-UI.

    What is not read is not looked at, and what is read is bounded first: to take a body apart costs far more than to
    receive it.

    Raises:
        Refusal: it does not fit the protocol, or has too many parts; it lists the first issues.
    """
    n_before, fields = 0, body
    if is_str_dict(body):
        fields = {**body, "state": None, "context": None}
        for name, most in _MOST.items():
            if (n_items := len(as_list(fields.get(name)))) > most:
                raise wrong(name, f"it has {n_items:,} items, and may have {most:,}")
        if _count_parts(fields.get("tools"), _MOST_PARTS) > _MOST_PARTS:
            raise wrong("tools", f"they have more than {_MOST_PARTS:,} parts, with those of their schemas")
        if messages := as_list(fields.get("messages")):
            fields["messages"] = last = _last_messages(messages)
            n_before = len(messages) - len(last)
            if _count_parts(last, _MOST_SAID) > _MOST_SAID:
                raise wrong(f"messages.{n_before}", f"from there on they have more than {_MOST_SAID:,} parts")
    try:
        return RunInput(RunAgentInput.model_validate(fields), n_before)
    except ValidationError as error:
        issues: list[dict[str, str]] = []
        for each in error.errors(include_url=False, include_input=False, include_context=False)[:20]:
            first, *rest = each["loc"] or ("",)
            if first == "messages" and rest and isinstance(rest[0], int):
                rest[0] += n_before  # of the body, whose first messages were left out
            issues.append({"path": ".".join(map(str, (first, *rest))), "message": each["msg"]})
        text = f"The body is not a RunAgentInput: {issues[0]['path']}: {issues[0]['message']}."
        raise Refusal(422, "INVALID_INPUT", text, "See the AG-UI protocol.", issues=issues) from None


_MOST: Final = {"messages": 100_000, "tools": 128, "resume": 256}
"""How many of each a request may have."""
_MOST_RESULTS: Final = 256
"""How many results of a client's tools are read."""
_MOST_SAID: Final = 10_000
"""How many values the messages that are read may be made of, all together."""
_MOST_PARTS: Final = 4_000
"""How many values the tools of a client may be made of, all together."""


def _last_messages(messages: Sequence[object]) -> Sequence[object]:
    """Return the messages that are read: the results at the end, and the one before them."""
    n_results = 0
    for message in reversed(messages):
        if not is_json_object(message) or message.get("role") != "tool":
            break
        n_results += 1
    if n_results > _MOST_RESULTS:
        raise wrong("messages", f"they end with {n_results:,} results, and may end with {_MOST_RESULTS:,}")
    return messages[-n_results - 1 :]


def _count_parts(value: object, most: int) -> int:
    """Count the values that JSON is made of, up to one more than `most`."""
    n_parts, left = 0, [value]
    while left and n_parts <= most:
        value = left.pop()
        n_parts += 1
        inside = [*value.values()] if is_json_object(value) else as_list(value)
        if len(inside) > most:
            return most + 1
        left += inside
    return n_parts


def idempotency_key(request: Request) -> str | None:
    """Return the key of a request that may be sent again; None: it has none.

    Raises:
        Refusal: it cannot be one.
    """
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    if _KEY.fullmatch(given) is None:
        raise Refusal(400, "BAD_KEY", f"The Idempotency-Key {given[:80]!r} cannot be used.", f"Its form is {KEY}")
    return given.strip(' \t"')


def after_of(request: Request) -> int:
    """Return the number of the last event that a client has.

    Raises:
        Refusal: it is no number.
    """
    numbers = [0]
    for given in (request.query_params.get("after"), request.headers.get("last-event-id")):
        number = "0" if given is None else given
        if not number.isascii() or not number.isdecimal() or len(number) > 15:
            shown = repr((given or "")[:80])
            raise Refusal(
                400,
                "BAD_NUMBER",
                f"{shown} is not the number of an event.",
                "Give the number of the last event that came.",
            )
        numbers.append(int(number))
    return max(numbers)


def seen_of(request: Request) -> tuple[int, int]:
    """Return the number and the place of the last event of AG-UI that a client has."""
    number, _, place = request.headers.get("last-event-id", "0.0").partition(".")
    is_known = number.isascii() and number.isdecimal() and place.isascii() and place.isdecimal()
    return (int(number), int(place)) if is_known and len(number) < 19 and len(place) < 19 else (0, 0)


# -- AG-UI -------------------------------------------------------------------------------------------------------------


def answers_of(given: RunAgentInput) -> dict[str, Decision | str]:
    """Return the answers that a client sends, by the ids of what was asked.

    Raises:
        Refusal: one is none.
    """
    answers: dict[str, Decision | str] = {}
    for number, entry in enumerate(given.resume or ()):
        if entry.status == "cancelled":
            answers[entry.interrupt_id] = Deny("the user cancelled")
        else:
            answers[entry.interrupt_id] = _read_answer(entry.payload, f"resume.{number}.payload")
    return answers


def with_tools(agent: Agent[Any, Any, Any], given: RunAgentInput) -> Agent[Any, Any, Any]:
    """Return the agent with the tools that a client has and executes.

    Raises:
        Refusal: one cannot be a tool of this agent.
    """
    if not given.tools:
        return agent
    nothing: JsonObject = {"type": "object", "properties": {}}
    specs = [
        ToolSpec(
            name=each.name, description=each.description, input_schema=cast("JsonObject", each.parameters or nothing)
        )
        for each in given.tools
    ]
    try:
        return replace(agent, tools=[*agent.tools, ExternalTools(specs)])
    except DefinitionError as error:
        issues = [{"path": "tools", "message": each.message} for each in error.problems[:20]]
        text = f"The tools cannot be used: {issues[0]['message']}"
        raise Refusal(422, "INVALID_INPUT", text, "Change the client's tools.", issues=issues) from None


def results_of(asked: RunInput) -> dict[str, str]:
    """Return the results of the client's tools, which its messages end with, by the ids of their calls.

    Raises:
        Refusal: one is no text.
    """
    results: dict[str, str] = {}
    for number, message in reversed(list(enumerate(asked.given.messages, asked.n_before))):
        if message.role != "tool":
            break
        content = message.content
        parts = [content] if isinstance(content, str) else [getattr(part, "text", None) for part in content]
        if not is_list_of_texts(parts):
            raise wrong(f"messages.{number}.content", "it holds more than text")
        text = "\n".join(parts)
        results[message.tool_call_id] = f"It failed: {message.error}" if message.error else text or "(nothing)"
    return dict(reversed(results.items()))


def _read_answer(payload: object, path: str) -> Decision | str:
    if isinstance(payload, str) and payload.strip():
        return payload
    given = payload if is_json_object(payload) else {}
    match given.get("approved"), given.get("editedArgs"):
        case True, dict(arguments):
            return Rewrite(arguments)
        case True, None:
            return Allow()
        case False, _:
            return Deny(str(given.get("reason") or "the user denied it"))
        case _ if "decision" in given:
            return decision_of(given, path)
        case _:
            wrong = "it is neither a text nor an object with 'approved'"
            raise Refusal(
                422,
                "INVALID_INPUT",
                f"The answer cannot be used: {wrong}.",
                "Send what the interrupt's responseSchema says.",
                issues=[{"path": path, "message": wrong}],
            )


def decision_of(payload: JsonObject, path: str) -> Decision:
    """Return the decision that a client sends.

    Raises:
        Refusal: it is none.
    """
    try:
        return DECISION.read(payload)
    except ValueError as error:
        what = str(error).splitlines()[0]
        raise Refusal(
            422,
            "INVALID_INPUT",
            f"The decision cannot be used: {what}.",
            "Send decision: allow, deny, rewrite or stop.",
            issues=[{"path": path, "message": what}],
        ) from None


def prompt_of(asked: RunInput) -> str:
    """Return what the user says: the last message.

    Raises:
        Refusal: it is not the user's, or says nothing.
    """
    wrong = "there is no message"
    for number, message in reversed(list(enumerate(asked.given.messages, asked.n_before))):
        path = f"messages.{number}"
        if message.role != "user":
            wrong, path = "the last message is not the user's", f"{path}.role"
        else:
            content = message.content
            parts = [content] if isinstance(content, str) else [getattr(part, "text", None) for part in content]
            if is_list_of_texts(parts) and "".join(parts).strip():
                return "\n".join(parts)
            wrong, path = "it holds no text, or more than text", f"{path}.content"
        break
    else:
        path = "messages"
    issues = [{"path": path, "message": wrong}]
    raise Refusal(
        422, "INVALID_INPUT", f"Nothing can be answered: {wrong}.", "Send a text of the user last.", issues=issues
    )


def typed_input(agent: Agent[Any, Any, Any], asked: RunInput) -> object:
    """Return the input of a turn: what the user says; for an agent that takes no text `forwardedProps.input`, or JSON
    in what the user says.

    Raises:
        Refusal: it is missing.
        InvalidArguments: it does not fit the agent's type.
    """
    forwarded: object = asked.given.forwarded_props
    if agent.input is str:
        return prompt_of(asked)
    if is_json_object(forwarded) and "input" in forwarded:
        return input_of_body(agent, {"input": forwarded["input"]})
    return input_of_body(agent, {"input": parse_body(prompt_of(asked).encode())})

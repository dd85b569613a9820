"""Parses what clients send: bodies, keys and numbers. What does not fit is refused, with its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from ag_ui.core.types import Message, RunAgentInput
from pydantic import JsonValue, ValidationError
from starlette.requests import Request

from journeyman.agent import Agent
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.definition.narrowing import as_list, is_json_object, is_list_of_texts
from journeyman.errors import DefinitionError
from journeyman.gate import DECISION_WORDS, Allow, Decision, Deny, Rewrite
from journeyman.model import ToolSpec
from journeyman.serve.documents import ID, Issue, RunBody, TextBody
from journeyman.serve.openapi import KEY, NUMBER
from journeyman.serve.refusals import Refusal, misfit, wrong
from journeyman.texts import shorten_line
from journeyman.tools.collection import do_aside
from journeyman.tools.external import ExternalTools
from journeyman.tools.issues import Fault, faults_of, text_of_fault
from journeyman.types import JsonObject, adapter_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

B = TypeVar("B", bound="DataclassInstance")

_ID: Final = re.compile(ID)
_KEY: Final = re.compile(KEY)
_NUMBER: Final = re.compile(NUMBER)
_LEVELS: Final = 254
"""So many levels of JSON can be written."""


def is_id(text: str) -> bool:
    """Tell whether a text may be the id of a run, a chat or a request."""
    return _ID.fullmatch(text) is not None


def parse_body(raw: bytes) -> object:
    """Return what a body says; an empty one says an empty object.

    Raises:
        Refusal: it is not JSON.
    """
    if not raw:
        return {}
    try:
        return read_json(raw)
    except ValueError as error:
        raise Refusal(400, "NOT_JSON", f"The body is not JSON: {error}.", "Send JSON in UTF-8.") from None


def _check_levels(value: JsonObject) -> None:
    """Check that a value can be written again, and so be kept: deeper JSON can be read than written."""
    if all([type(each) is str for each in value.values()]):
        return
    try:
        write_json(value)
    except (TypeError, RecursionError):
        raise wrong("", f"it has more than {_LEVELS} levels", "Send less at a time.") from None


def parse_object(kind: type[B], body: object, path: str = "") -> B:
    """Return what a body, or the value at a path in one, says, as an object of a class.

    Raises:
        Refusal: it does not fit the fields of the class, or has others.
    """
    if not is_json_object(body):
        raise wrong(path, "it is not an object")
    _check_levels(body)
    known = kind.__dataclass_fields__
    for name in body:
        if name not in known:
            unknown = f"{path}.{shorten_line(name, 80)}".lstrip(".")
            raise wrong(unknown, f"it is not known. Known are: {', '.join(known)}")
    try:
        return adapter_of(kind).validate_python(body)
    except ValidationError as error:
        raise misfit([_issue(each, [path] if path else []) for each in faults_of(error)]) from None


def _issue(fault: Fault, before: Sequence[str] = ()) -> Issue:
    return Issue(path=".".join([*before, *map(str, fault.path)]), message=text_of_fault(fault))


async def input_of_body(agent: Agent[Any, Any, Any], body: object) -> object:
    """Return the input of a run, as the agent takes it.

    Raises:
        Refusal: it is missing, or is no text where the agent takes text.
        InvalidArguments: it does not fit the agent's type.
    """
    value = parse_object(RunBody, body).input
    if agent.input is str:
        if not isinstance(value, str) or not value.strip():
            raise wrong("input", "it is not a text, or is blank")
        return value
    schema = agent.plan.input
    return await do_aside(write_json({"value": value} if schema.is_wrapped else value), schema.parse_checked)


def answer_of(body: object) -> Decision | str:
    """Return the answer to a question: a decision, or a text.

    Raises:
        Refusal: it is neither.
    """
    if is_json_object(body) and "text" not in body:
        return decision_of(body)
    return parse_object(TextBody, body).text


def decision_of(given: JsonObject, path: str = "") -> Decision:
    """Return the decision that is a body, or the value at a path in one.

    Raises:
        Refusal: it is none.
    """
    rest = dict(given)
    word = rest.pop("decision", None)
    for kind, known in DECISION_WORDS.items():
        if known == word:
            return parse_object(kind, rest, path)
    raise wrong(f"{path}.decision".lstrip("."), f"it is none of {', '.join(DECISION_WORDS.values())}")


class RunInput(NamedTuple):
    """A request of a client of AG-UI, with what is read of it."""

    given: RunAgentInput
    """Its messages are the last ones only: the server has the conversation."""
    n_before: int
    """How many messages stood before those."""

    def from_last(self) -> Iterator[tuple[str, Message]]:
        """Give the messages, the last one first, with their paths."""
        for number, message in reversed([*enumerate(self.given.messages, self.n_before)]):
            yield f"messages.{number}", message


def run_input(body: object) -> RunInput:
    """Return the parsed request of a client of AG-UI.

    What is not read is not looked at, and what is read is bounded first: to take a body apart costs far more than to
    receive it.

    Raises:
        Refusal: it does not fit the protocol, or has too many parts; it lists the first issues.
    """
    hint = "See the AG-UI protocol."
    if not is_json_object(body):
        raise wrong("", "it is not an object", hint)
    fields: JsonObject = {**body, "state": None, "context": None}
    for name, most in _MOST.items():
        if (n_items := len(as_list(fields.get(name)))) > most:
            raise wrong(name, f"it has {n_items:,} items, and may have {most:,}")
    if _count_parts(fields.get("tools"), _MOST_PARTS) > _MOST_PARTS:
        raise wrong("tools", f"they have more than {_MOST_PARTS:,} parts, with those of their schemas")
    messages = as_list(fields.get("messages"))
    last = _last_messages(messages)
    n_before = len(messages) - len(last)
    if _count_parts(last, _MOST_SAID) > _MOST_SAID:
        raise wrong(f"messages.{n_before}", f"from there on they have more than {_MOST_SAID:,} parts")
    if last:
        fields["messages"] = last
    _check_levels(fields)
    try:
        return RunInput(RunAgentInput.model_validate(fields), n_before)
    except ValidationError as error:
        issues: list[Issue] = []
        for fault in faults_of(error):
            match fault.path:
                case ("messages", int(number), *rest):  # of the body, whose first messages were left out
                    fault = replace(fault, path=("messages", number + n_before, *rest))
                case _:
                    pass
            issues.append(_issue(fault))
        raise misfit(issues, hint) from None


_MOST: Final = {"messages": 100_000, "tools": 128, "resume": 256}
"""How many of each a request may have."""
_MOST_RESULTS: Final = 256
"""How many results of a client's tools are read."""
_MOST_SAID: Final = 10_000
"""How many values the messages that are read may be made of, all together."""
_MOST_PARTS: Final = 4_000
"""How many values the tools of a client may be made of, all together."""


def _last_messages(messages: list[JsonValue]) -> list[JsonValue]:
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
    given = (request.query_params.get("after", "0"), request.headers.get("last-event-id", "0"))
    for number in given:
        if _NUMBER.fullmatch(number) is None:
            text = f"{number[:80]!r} is not the number of an event."
            raise Refusal(400, "BAD_NUMBER", text, "Give the number of the last event that came.")
    return max(map(int, given))


def seen_of(request: Request) -> tuple[int, int]:
    """Return the number and the place of the last event of AG-UI that a client has."""
    number, _, place = request.headers.get("last-event-id", "0.0").partition(".")
    is_known = number.isascii() and number.isdecimal() and place.isascii() and place.isdecimal()
    return (int(number), int(place)) if is_known and len(number) < 19 and len(place) < 19 else (0, 0)


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
        issues = [Issue(path="tools", message=each.message) for each in error.problems]
        raise misfit(issues, "Change the client's tools.") from None


def results_of(asked: RunInput) -> dict[str, str]:
    """Return the results of the client's tools, which its messages end with, by the ids of their calls.

    Raises:
        Refusal: one is no text.
    """
    results: dict[str, str] = {}
    for path, message in asked.from_last():
        if message.role != "tool":
            break
        text = _text_of(message.content, path)
        results[message.tool_call_id] = f"It failed: {message.error}" if message.error else text or "(nothing)"
    return dict(reversed(results.items()))


def _text_of(content: str | Sequence[object], path: str) -> str:
    parts = [content] if isinstance(content, str) else [getattr(part, "text", None) for part in content]
    if not is_list_of_texts(parts):
        raise wrong(f"{path}.content", "it holds more than text")
    return "\n".join(parts)


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
            hint = "Send what the interrupt's responseSchema says."
            raise wrong(path, "it is neither a text nor an object with 'approved'", hint)


def prompt_of(asked: RunInput) -> str:
    """Return what the user says: the last message.

    Raises:
        Refusal: it is not the user's, or says nothing.
    """
    hint = "Send a text of the user last."
    for path, message in asked.from_last():
        if message.role != "user":
            raise wrong(f"{path}.role", "the last message is not the user's", hint)
        text = _text_of(message.content, path)
        if not text.strip():
            raise wrong(f"{path}.content", "it holds no text", hint)
        return text
    raise wrong("messages", "there is no message", hint)


async def typed_input(agent: Agent[Any, Any, Any], asked: RunInput) -> object:
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
        return await input_of_body(agent, {"input": forwarded["input"]})
    return await input_of_body(agent, {"input": parse_body(prompt_of(asked).encode())})

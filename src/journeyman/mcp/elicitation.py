"""Puts the questions that an MCP server has for the user in the middle of a call to the user of the chat.

A server is somebody else's program, so each question begins with its name, and no answer is sent that does not fit what
it asked for. A form becomes one question for each of its fields, one after the other. The user can decline each of
them. If nobody is there to answer, the answer is that the user declined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from journeyman.errors import InvalidArguments
from journeyman.inbox.questions import Asker
from journeyman.mcp.call_answers import CallAnswers
from journeyman.texts import shorten_line
from journeyman.tools.raw_schema import RawSchema
from journeyman.types import JsonObject

if TYPE_CHECKING:
    from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

MAX_QUESTIONS: Final = 50
"""How many questions one call may put to the user."""
MAX_FIELDS: Final = 20
"""The most fields of one form."""
MAX_CHOICES: Final = 100
DECLINE: Final = "Decline to answer"
"""The option with which the user declines."""
SKIP: Final = "Leave it out"
"""The option with which the user leaves out what need not be given."""
_TRIES: Final = 3
_MESSAGE_SHOWN: Final = 2_000
_WORDS_SHOWN: Final = 300
_YES: Final = frozenset({"yes", "y", "true", "ok"})
_NO: Final = frozenset({"no", "n", "false"})
_ABSENT: Final = object()


class _Declined(Exception):
    """The user said no."""


class _GivenUp(Exception):
    """The user gave no answer that fits."""


class _TooMuch(Exception):
    """The server asks for more than it may, or for what cannot be asked."""


class CallQuestions:
    """The questions of one call to the user, put one after the other and answered as MCP wants it."""

    def __init__(
        self, server: str, asker: Asker | None, path: tuple[str, ...], shown: Callable[[str], str] = str
    ) -> None:
        """`shown` makes a text of the server fit to be shown."""
        self.asker: Final = asker
        self._server: Final = server
        self._path: Final = path
        self._shown: Final = shown
        self._turn: Final = asyncio.Lock()
        self._n_asked = 0
        self.answers: Final[CallAnswers[ElicitResult | ErrorData]] = CallAnswers()

    async def answer(self, wanted: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Return what the user answers; `cancel` where the call ended before that."""
        from mcp.types import INVALID_REQUEST, ElicitResult, ErrorData

        if len(self.answers.open) >= MAX_QUESTIONS:
            return ErrorData(code=INVALID_REQUEST, message=f"{MAX_QUESTIONS} questions of this call wait already.")
        return await self.answers.find(self._answer(wanted)) or ElicitResult(action="cancel")

    async def _answer(self, wanted: ElicitRequestParams) -> ElicitResult | ErrorData:
        from mcp.types import INVALID_PARAMS, ElicitResult, ErrorData

        try:
            async with self._turn:
                if wanted.mode == "url":
                    await self._visit(wanted.message, wanted.url)
                    return ElicitResult(action="accept")
                content = await self._fill_in(wanted.message, wanted.requested_schema)
        except _Declined:
            return ElicitResult(action="decline")
        except _GivenUp:
            return ElicitResult(action="cancel")
        except _TooMuch as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return ElicitResult(action="accept", content=cast("Any", content))

    async def _visit(self, message: str, url: str) -> None:
        """Ask whether the user opens an address, which they do by themselves."""
        host = _host_of_address(url)
        said = shorten_line(message, _MESSAGE_SHOWN)
        await self._ask_to_agree(
            f"asks you to open an address of {host} in your browser: {said}\n\n{url}\n\n"
            "Open it only if you trust that address. Have you opened it, or will you?"
        )

    async def _fill_in(self, message: str, schema: JsonObject) -> dict[str, object]:
        fields = _form_fields(schema)
        said = f"asks: {shorten_line(message, _MESSAGE_SHOWN)}"
        if not fields:
            await self._ask_to_agree(said)
        content: dict[str, object] = {}
        for number, each in enumerate(fields, 1):
            count = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
            value = await self._value(each, f"{said}\n\n{each.question}{count}")
            if value is not _ABSENT:
                content[each.name] = value
        try:
            RawSchema(schema).parse(to_json(content), "the answers")
        except InvalidArguments as error:
            raise _TooMuch(f"The form cannot be filled in: {error}") from None
        return content

    async def _ask_to_agree(self, text: str) -> None:
        agreement = _Field("", {"type": "boolean"}, _YES_OR_NO, is_required=True)
        if not await self._value(agreement, text):
            raise _Declined

    async def _value(self, wanted: _Field, text: str) -> object:
        """Return the value of one field, `_ABSENT` if it is left out."""
        why = ""
        for _ in range(_TRIES):
            try:
                return wanted.read(await self._ask(f"{text}{why}", wanted.options))
            except ValueError as error:
                why = f"\n\nThat does not fit: {error}"
        raise _GivenUp

    async def _ask(self, text: str, options: Sequence[str]) -> str:
        self._n_asked += 1
        if self._n_asked > MAX_QUESTIONS:
            raise _TooMuch(f"One call asks the user at most {MAX_QUESTIONS} questions.")
        question = self._shown(f"The MCP server {self._server!r} {text}")
        shown = [self._shown(each) for each in options]
        answer = None if self.asker is None else await self.asker.ask(self._path, question, shown)
        if answer is None:
            raise _Declined
        return answer


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a form: its schema says what is asked for, and checks the answer."""

    name: str
    """Its name; empty for a question that is not part of a form."""
    schema: JsonObject
    choices: Mapping[str, object]
    """The values to choose from, by the words that the user reads."""
    is_required: bool

    @property
    def options(self) -> list[str]:
        given = [*self.choices]
        if not given and "default" in self.schema:
            given = [self._default]
        skip = [] if self.is_required or "default" in self.schema else [SKIP]
        return [*given, *skip, *([DECLINE] if self.name else [])]

    @property
    def question(self) -> str:
        title, about = self.schema.get("title") or self.name, self.schema.get("description")
        text = f"{title}: {about}" if about else str(title)
        is_plain = not self.choices or self._type in ("array", "boolean")
        notes = [_WHAT[self._type] if is_plain else "one of these"]
        if "default" in self.schema:
            notes.append(f"if blank, {self._default}")
        elif not self.is_required:
            notes.append("may be left blank")
        return f"{shorten_line(text, _WORDS_SHOWN)} [{', '.join(notes)}]"

    def read(self, answer: str) -> object:
        """Return the value that an answer stands for.

        Raises:
            ValueError: it does not fit, and why.
            _Declined: the user does not want to answer.
        """
        text = answer.strip()
        if text not in self.choices and text.casefold() in (DECLINE.casefold(), "decline"):
            raise _Declined
        if text == SKIP and not self.is_required:
            return _ABSENT
        if not text or ("default" in self.schema and text == self._default):
            return self._blank()
        try:
            return self._check(self._value(text))
        except ValueError:
            if text.casefold() in _NO and not self._is_text:
                raise _Declined from None
            raise

    @property
    def _type(self) -> str:
        return str(self.schema.get("type"))

    @property
    def _is_text(self) -> bool:
        return self._type == "string" and not self.choices

    @property
    def _default(self) -> str:
        return shorten_line(_answer_words(self.schema["default"]), _WORDS_SHOWN)

    def _blank(self) -> object:
        if "default" in self.schema:
            return self.schema["default"]
        if self.is_required:
            raise ValueError("it is needed.")
        return _ABSENT

    def _value(self, text: str) -> object:
        if self._type == "array":
            return [self._choice(each.strip()) for each in text.split(",") if each.strip()]
        if self.choices:
            return self._choice(text)
        if self._is_text:
            return text
        try:
            return from_json(text, allow_inf_nan=False)
        except ValueError:
            return text

    def _choice(self, text: str) -> object:
        word = text.casefold()
        if self._type == "boolean" and word in _YES | _NO:
            return word in _YES
        known = {_answer_words(value).casefold(): value for value in self.choices.values()}
        known |= {words.casefold(): value for words, value in self.choices.items()}
        if word not in known:
            raise ValueError(
                f"{shorten_line(text, 80)} is none of: {shorten_line(', '.join(self.choices), _WORDS_SHOWN)}."
            )
        return known[word]

    def _check(self, value: object) -> object:
        schema: JsonObject = {"type": "object", "properties": {"it": self.schema}, "required": ["it"]}
        try:
            return RawSchema(schema, formats=True).parse(to_json({"it": value}), "the answer")["it"]
        except InvalidArguments as error:
            raise ValueError("; ".join([each.removeprefix("it: ") for each in error.issues])) from None


_WHAT: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "any of these, with commas between",
}
_YES_OR_NO: Final = {"yes": True, "no": False}


def _answer_words(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case list():
            return ", ".join(_answer_words(each) for each in cast("list[object]", value))
        case _:
            return to_json(value).decode()


_OPTION: Final[JsonObject] = {
    "type": "object",
    "properties": {"const": {"type": ["string", "number"]}, "title": {"type": "string"}},
    "required": ["const"],
}
_LISTS: Final[JsonObject] = {
    "enum": {"type": "array", "items": {"type": ["string", "number"]}, "maxItems": MAX_CHOICES},
    "enumNames": {"type": "array", "items": {"type": "string"}},
    "oneOf": {"type": "array", "items": _OPTION, "maxItems": MAX_CHOICES},
    "anyOf": {"type": "array", "items": _OPTION, "maxItems": MAX_CHOICES},
}
"""The keywords that list values to choose from, in each of the ways in which MCP writes it."""
_FIELD: Final[JsonObject] = {
    "type": "object",
    "properties": {"type": {"enum": [*_WHAT]}, "items": {"type": "object", "properties": _LISTS}, **_LISTS},
}
_FORM: Final = RawSchema(
    {
        "type": "object",
        "properties": {
            "type": {"const": "object"},
            "properties": {"type": "object", "additionalProperties": _FIELD, "maxProperties": MAX_FIELDS},
            "required": {"type": "array", "items": {"type": "string"}},
        },
    }
)
"""The schema of a form's schema, as far as it is one: an object of plain values."""


def _form_fields(schema: JsonObject) -> list[_Field]:
    """Take a form apart.

    Raises:
        _TooMuch: it is more than a form may be.
    """
    try:
        form: dict[str, Any] = _FORM.parse(to_json(schema), "the form")
    except InvalidArguments as error:
        where = shorten_line(error.issues[0], _WORDS_SHOWN)
        raise _TooMuch(f"It is not a form with at most {MAX_FIELDS} plain values, at {where}.") from None
    needed = {*form.get("required", ())}
    fields: list[_Field] = []
    for name, each in form.get("properties", {}).items():
        kind = each.get("type")
        choices = _choices(each.get("items", {}) if kind == "array" else each)
        if kind == "boolean":
            choices = choices or _YES_OR_NO
        if not name or not (choices or kind in ("string", "integer", "number")):
            raise _TooMuch(f"Field {name!r}: it has a name, and is a text, a number, yes or no, or a choice of values.")
        fields.append(_Field(name, each, choices, name in needed))
    return fields


def _choices(schema: dict[str, Any]) -> Mapping[str, object]:
    """Return the values that a schema lists, by their titles."""
    if options := schema.get("oneOf") or schema.get("anyOf"):
        values = [each["const"] for each in options]
        titles = [each.get("title") or _answer_words(each["const"]) for each in options]
    else:
        values, titles = schema.get("enum", []), schema.get("enumNames", [])
        if len(titles) != len(values):
            titles = [_answer_words(each) for each in values]
    return {shorten_line(title, _WORDS_SHOWN): value for title, value in zip(titles, values, strict=True)}


def _host_of_address(url: str) -> str:
    """Return the host of an address that a user may be asked to open.

    Raises:
        _TooMuch: it is no such address.
    """
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        scheme = host = ""
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _MESSAGE_SHOWN
    is_safe = scheme == "https" or (scheme == "http" and host in ("localhost", "127.0.0.1", "::1"))
    if not host or not is_plain or not is_safe:
        raise _TooMuch("A user is asked to open only https addresses, written in ASCII.")
    return host

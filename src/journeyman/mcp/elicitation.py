"""Puts the questions that an MCP server has for the user in the middle of a call to the user of the chat.

A server is somebody else's program, so each question begins with its name, and no answer is sent that does not fit what
it asked for. A form becomes one question for each of its fields, one after the other. The user can decline each of
them. If nobody is there to answer, the answer is that the user declined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from journeyman.errors import InvalidArguments
from journeyman.texts import shorten_line
from journeyman.tools.context import Asker
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
Kind: TypeAlias = Literal["text", "integer", "number", "boolean", "choice", "choices"]


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
        self._open: set[asyncio.Task[ElicitResult | ErrorData]] = set()

    def close(self) -> None:
        """Take back what is still asked: the call has ended."""
        for task in self._open:
            task.cancel()

    async def answer(self, wanted: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Return what the user answers; `cancel` where the call ended before that."""
        from mcp.types import INVALID_REQUEST, ElicitResult, ErrorData

        if len(self._open) >= MAX_QUESTIONS:
            return ErrorData(code=INVALID_REQUEST, message=f"{MAX_QUESTIONS} questions of this call wait already.")
        task = asyncio.create_task(self._answer(wanted))
        self._open.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._open.discard(task)
        return ElicitResult(action="cancel") if task.cancelled() else task.result()

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
        await self._value(_Field("", {"type": "boolean"}, "boolean", {"yes": True}, is_required=True), text)

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


# -- a form ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a form."""

    name: str
    schema: JsonObject
    kind: Kind
    choices: Mapping[str, object] = field(default_factory=dict[str, object])
    """The values to choose from, by the words that the user reads."""
    is_required: bool = False

    @property
    def options(self) -> list[str]:
        if not self.name:
            return ["yes", "no"]
        given = ["yes", "no"] if self.kind == "boolean" else [*self.choices]
        if not given and "default" in self.schema:
            given = [self._default]
        return [*given, *([] if self.is_required or "default" in self.schema else [SKIP]), DECLINE]

    @property
    def _default(self) -> str:
        return shorten_line(_answer_words(self.schema["default"]), _WORDS_SHOWN)

    @property
    def question(self) -> str:
        title, about = self.schema.get("title") or self.name, self.schema.get("description")
        text = f"{title}: {about}" if about else str(title)
        notes = [_WHAT[self.kind]]
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
        if not self.name:
            return self._agreement(text.casefold())
        if text.casefold() in (DECLINE.casefold(), "decline") and text not in self.choices:
            raise _Declined
        if text == SKIP and not self.is_required:
            return _ABSENT
        if not text or ("default" in self.schema and text == self._default):
            return self._blank()
        value = self._value(text)
        try:
            RawSchema({"type": "object", "properties": {"it": self.schema}}).parse(to_json({"it": value}), "the answer")
        except InvalidArguments as error:
            raise ValueError("; ".join([each.removeprefix("it: ") for each in error.issues])) from None
        _check_format(value, self.schema.get("format"))
        return value

    def _agreement(self, text: str) -> object:
        if text in _NO or text == DECLINE.casefold() or text == "decline":
            raise _Declined
        if text not in _YES:
            raise ValueError("answer yes or no.")
        return True

    def _blank(self) -> object:
        if "default" in self.schema:
            return self.schema["default"]
        if self.is_required:
            raise ValueError("it is needed.")
        return _ABSENT

    def _value(self, text: str) -> object:
        match self.kind:
            case "text":
                return text
            case "boolean":
                if text.casefold() not in _YES | _NO:
                    raise ValueError("answer yes or no.")
                return text.casefold() in _YES
            case "choices":
                return [self._choice(each.strip()) for each in text.split(",") if each.strip()]
            case "choice":
                return self._choice(text)
            case "integer" | "number":
                return self._number(text)

    def _choice(self, text: str) -> object:
        known = {word.casefold(): value for word, value in self.choices.items()}
        known |= {_answer_words(value).casefold(): value for value in self.choices.values()}
        if text.casefold() not in known:
            self._refuse_if_no(text)
            raise ValueError(
                f"{shorten_line(text, 80)} is none of: {shorten_line(', '.join(self.choices), _WORDS_SHOWN)}."
            )
        return known[text.casefold()]

    def _number(self, text: str) -> object:
        try:
            value: object = from_json(text, allow_inf_nan=False)
        except ValueError:
            value = text
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse_if_no(text)
            raise ValueError(f"{shorten_line(text, 80)} is not a number.")
        return value

    def _refuse_if_no(self, text: str) -> None:
        if text.casefold() in _NO:
            raise _Declined


_WHAT: Final[dict[Kind, str]] = {
    "text": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "choice": "one of these",
    "choices": "any of these, with commas between",
}


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


class _Option(BaseModel):
    const: str | int | float
    title: str | None = None


class _Choosing(BaseModel):
    """The part of a form's schema that lists values to choose from, in each of the ways in which MCP writes it."""

    enum: list[str | int | float] | None = None
    enum_names: list[str] | None = Field(default=None, alias="enumNames")
    one_of: list[_Option] | None = Field(default=None, alias="oneOf")
    any_of: list[_Option] | None = Field(default=None, alias="anyOf")

    @property
    def choices(self) -> dict[str, object]:
        options = self.one_of or self.any_of
        if options is not None:
            return {shorten_line(each.title or _answer_words(each.const), _WORDS_SHOWN): each.const for each in options}
        values = self.enum or []
        named = self.enum_names is not None and len(self.enum_names) == len(values)
        names = self.enum_names if named and self.enum_names else [_answer_words(each) for each in values]
        return {shorten_line(name, _WORDS_SHOWN): value for name, value in zip(names, values, strict=True)}


class _Property(_Choosing):
    """The schema of one field of a form."""

    type: Literal["string", "integer", "number", "boolean", "array"] | None = None
    items: _Choosing | None = None


class _Form(BaseModel):
    """A form, as far as it is one: an object of plain values."""

    type: Literal["object"] = "object"
    properties: dict[str, _Property] = Field(default_factory=dict[str, _Property], max_length=MAX_FIELDS)
    required: list[str] = Field(default_factory=list[str])


def _form_fields(schema: JsonObject) -> list[_Field]:
    """Take a form apart.

    Raises:
        _TooMuch: it is more than a form may be.
    """
    try:
        form = _Form.model_validate(schema)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = shorten_line(".".join(map(str, fault["loc"])), _WORDS_SHOWN)
        raise _TooMuch(
            f"It is not a form with at most {MAX_FIELDS} plain values, at {where}: {fault['msg']}."
        ) from None
    given = cast("dict[str, JsonObject]", schema.get("properties", {}))
    needed = {*form.required}
    return [_form_field(name, each, given[name], is_required=name in needed) for name, each in form.properties.items()]


def _form_field(name: str, said: _Property, schema: JsonObject, *, is_required: bool) -> _Field:
    listing = said.items if said.type == "array" else said
    choices = {} if listing is None else listing.choices
    kind: Kind
    match said.type:
        case "array":
            kind = "choices"
        case "integer" | "number" | "boolean" if not choices:
            kind = said.type
        case "string" if not choices:
            kind = "text"
        case _:
            kind = "choice"
    if not name or len(choices) > MAX_CHOICES or (kind in ("choice", "choices") and not choices):
        raise _TooMuch(f"Field {name!r}: it has a name, and is a text, a number, yes or no, or a choice of values.")
    return _Field(name, schema, kind, choices, is_required)


def _check_format(value: object, name: object) -> None:
    if not isinstance(value, str):
        return
    try:
        match name:
            case "date":
                date.fromisoformat(value)
            case "date-time":
                datetime.fromisoformat(value)
            case "email":
                local, _, domain = value.rpartition("@")
                if not local or "." not in domain.strip(".") or any(sign.isspace() for sign in value):
                    raise ValueError
            case "uri":
                if not urlsplit(value).scheme:
                    raise ValueError
            case _:
                return
    except ValueError:
        raise ValueError(f"{shorten_line(value, 80)} is no {name}.") from None


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

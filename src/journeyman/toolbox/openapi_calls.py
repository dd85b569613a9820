"""The calls of an OpenAPI document's operations: arguments as a request, and its answer as a result.

No argument leads elsewhere than its place: what stands in the path is escaped, and may not be empty or dots only; a
header takes no line break. The address, the keys and the timeouts are the client's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote, urlencode

from journeyman.data import lazy_dataclass
from journeyman.errors import Rejected
from journeyman.json_numbers import write_sound_json
from journeyman.narrowing import is_dict, is_list_or_tuple
from journeyman.types import JsonObject, ToolResult

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
_MOST_BYTES: Final = 1_000_000
"""So much of an answer is read; more than any tool's result may have."""
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/problem")


class ServiceAnswer(Protocol):
    """The answer of a service, whose body is read piece by piece."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Give the body, piece by piece."""
        ...


class HttpClient(Protocol):
    """Sends requests, as an `httpx.AsyncClient` does: with the keys and the timeouts that it was made with."""

    def stream(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[ServiceAnswer]:
        """Send a request; inside the context its answer can be read."""
        ...


@lazy_dataclass(frozen=True)
class ApiArgument:
    """One argument of an operation, and where it goes."""

    name: str
    """What the model calls it."""
    wire: str
    """What the service calls it."""
    place: str
    """`path`, `query`, `header` or `body`."""
    style: str
    """How it is written; of a body, its type."""
    _: KW_ONLY
    required: bool
    schema: JsonObject
    explode: bool = False
    """Whether each value of a list stands by itself."""


@lazy_dataclass(frozen=True)
class ApiOperation:
    """One operation: a method, the address with places for arguments, and these."""

    method: str
    url: str
    arguments: tuple[ApiArgument, ...]


async def call_operation(client: HttpClient, operation: ApiOperation, arguments: dict[str, object]) -> ToolResult:
    """Send a request with the arguments of a call, and return the answer as a result.

    Raises:
        Rejected: an argument would lead elsewhere.
    """
    url, query = operation.url, list[tuple[str, str]]()
    headers, content = {"accept": f"{JSON}, text/*;q=0.9, */*;q=0.1"}, None
    for argument in operation.arguments:
        value = arguments.get(argument.name)
        if argument.name not in arguments or (value is None and not argument.required):
            continue
        match argument.place:
            case "path":
                url = url.replace(f"{{{argument.wire}}}", _in_path(argument, value))
            case "query":
                query += _in_query(argument, value)
            case "header":
                headers[argument.wire] = text = _join_values(value, argument)
                if not text.isascii() or not text.isprintable():
                    wrong = f"{argument.name} is {text[:100]!r}, which cannot stand in a header: plain ASCII only."
                    raise Rejected(wrong)
            case _:
                content, headers["content-type"] = _encode_body(argument.style, value), argument.style
    if query:
        url = f"{url}?{urlencode(query, quote_via=quote, safe='')}"
    async with client.stream(operation.method, url, content=content, headers=headers) as answer:
        return await _result_of(answer)


def _write_text(value: object) -> str:
    """Return a value as it stands in an address or a header."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return write_sound_json(value).decode()


def _join_values(value: object, argument: ApiArgument) -> str:
    if argument.style == JSON:
        return write_sound_json(value).decode()
    if is_list_or_tuple(value):
        return ",".join(map(_write_text, value))
    if is_dict(value):
        between = "=" if argument.explode else ","
        return ",".join(f"{_write_text(key)}{between}{_write_text(each)}" for key, each in value.items())
    return _write_text(value)


def _in_path(argument: ApiArgument, value: object) -> str:
    text = _join_values(value, argument)
    if not text.strip(". "):
        raise Rejected(f"{argument.name} is {text!r}, which would lead to another path.")
    return quote(text, safe=",=" if not isinstance(value, str) else "", errors="replace")


def _in_query(argument: ApiArgument, value: object) -> Iterator[tuple[str, str]]:
    is_many = is_list_or_tuple(value) or is_dict(value)
    if argument.style == "deepObject" and is_dict(value):
        yield from ((f"{argument.wire}[{_write_text(key)}]", _write_text(each)) for key, each in value.items())
    elif not is_many or not argument.explode or argument.style == JSON:
        yield argument.wire, _join_values(value, argument)
    elif is_dict(value):
        yield from ((_write_text(key), _write_text(each)) for key, each in value.items())
    elif is_list_or_tuple(value):
        yield from ((argument.wire, _write_text(each)) for each in value)


def _encode_body(kind: str, value: object) -> bytes:
    if kind == FORM and is_dict(value):
        pairs: Sequence[tuple[str, str]] = [
            (_write_text(key), _write_text(each))
            for key, many in value.items()
            for each in (many if is_list_or_tuple(many) else [many])
        ]
        return urlencode(pairs).encode()
    return _write_text(value).encode("utf-8", "replace") if kind == "text/plain" else write_sound_json(value)


async def _result_of(answer: ServiceAnswer) -> ToolResult:
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > _MOST_BYTES:
            break
    status, kind = answer.status_code, answer.headers.get("content-type", "").lower()
    told = status in {*HTTPStatus}
    head = "" if status < 300 else f"HTTP {status}{f' {HTTPStatus(status).phrase}' if told else ''}\n"
    if 300 <= status < 400:
        head += f"The service refers to {answer.headers.get('location', 'nowhere')[:500]}, which was not followed.\n"
    rest = f"\n[Only the first {_MOST_BYTES:,} bytes are shown.]" if len(data) > _MOST_BYTES else ""
    if not data or kind.startswith(_TEXTS) or "+json" in kind or not kind:
        body = bytes(data[:_MOST_BYTES]).decode("utf-8", "replace") + rest
    else:
        body = (
            f"[{'More than ' if rest else ''}{min(len(data), _MOST_BYTES):,} bytes of type {kind[:100]} are left out.]"
        )
    return ToolResult(head + body, is_error=status >= 300)

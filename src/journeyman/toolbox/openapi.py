"""Tools from an OpenAPI document: one for each operation, whose arguments are its parameters and its body.

The document is a stranger's: what a tool cannot carry is refused by its name when the tools are made, before anything
is sent. Who calls, and with which keys, is the caller's client.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import JsonValue

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_json, write_json, write_sound_json
from journeyman.definition.narrowing import (
    as_list,
    as_object,
    as_text,
    is_dict,
    is_json_array,
    is_json_object,
    is_list_or_tuple,
)
from journeyman.errors import DefinitionError, Problem, Rejected
from journeyman.tools.tools import AnyTool, Tool, ToolOptions
from journeyman.tools.toolsets import Toolset, toolset
from journeyman.types import Effect, JsonObject, ToolResult

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_READING: Final = ("get", "head", "options")
_STYLES: Final = {"path": ("simple",), "query": ("form", "deepObject"), "header": ("simple",)}
"""By place: the styles of arguments that are written, the default first."""
_THE_CLIENTS: Final = frozenset({"accept", "content-type", "authorization", "cookie", "host", "connection"})
"""Headers that no argument sets: the document's own rule for the first three, and for the others it would be unsafe."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_NAME: Final = 64
_LONGEST_DESCRIPTION: Final = 2_000
_MOST_REFS: Final = 500
"""The most schemas that those of one operation may lead to."""
_MOST_CHARS: Final = 20_000_000
"""The longest that the schemas of all tools may be together."""
_MOST_SHOWN: Final = 20


def openapi_tools(
    document: Mapping[str, object] | str | bytes,
    *,
    client: HttpClient,
    only: Collection[str] | None = None,
    base_url: str | None = None,
    effects: Mapping[str, Effect] | None = None,
) -> Toolset[Any]:
    """Return a toolset with a tool for each operation of an OpenAPI document, version 3: its name is the `operationId`.

        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
            agent = Agent(..., tools=[openapi_tools(document, client=client, only=["get*", "!getSecrets"])])

    Answers are not trusted, and one with a status from 400 on is an error. What only reads (GET, HEAD, OPTIONS) has the
    effect `pure`.

    Args:
        document: The document, or its JSON. Of YAML, give what `yaml.safe_load` returns.
        client: Sends the requests, with keys, timeouts and limits of its own: an `httpx.AsyncClient`, or what has its
            `stream`.
        only: The names to take, or `GET /path`; `*` stands for anything, and `!` before one leaves it out.
        base_url: Where the service is; None: where the document says.
        effects: By name, what the other operations do to the world; see `Tool.effect`.

    Raises:
        DefinitionError: it is no such document, or the operations hold what no tool can carry; lists every problem.
    """
    spec = _load(document)
    reader = _DocumentReader(spec)
    found = [*_choose(_list_operations(reader), only)]
    reader.problems += _refuse_names([each.name for each in found], effects or {}, found)
    address = _find_address(spec, base_url, reader.problems)
    tools: list[AnyTool] = []
    for each in found:
        try:
            operation, schema = _read_operation(reader, each, address)
            tools.append(_make_tool(each, schema, partial(call_operation, client, operation), effects or {}))
        except _Unsupported as error:
            reader.refuse(f"{each.name} ({each.route}) {error}.", f"Leave it out: only=[…, '!{each.name}'].")
        except RecursionError:
            reader.refuse(f"{each.name} ({each.route}) is nested too deep.", f"only=[…, '!{each.name}'].")
    if reader.problems:
        more = len(reader.problems) - _MOST_SHOWN
        hint = Problem("INVALID_OPENAPI", f"And {more:,} more.", "Choose with only=.")
        raise DefinitionError("The OpenAPI document", [*reader.problems[:_MOST_SHOWN], *([hint] if more > 0 else [])])
    return toolset(tools)


class _Unsupported(Exception):
    """Says what an operation asks for that no tool can carry."""


@dataclass(frozen=True, slots=True)
class _FoundOperation:
    name: str
    route: str
    path: str
    method: str
    item: JsonObject
    """The path's own fields."""
    fields: JsonObject


@dataclass(slots=True)
class _DocumentReader:
    """The document, and what is wrong with it."""

    spec: JsonObject
    problems: list[Problem] = field(default_factory=list[Problem])
    n_chars: int = 0
    """How long the schemas are that were made so far."""

    def refuse(self, message: str, hint: str) -> None:
        self.problems.append(Problem("INVALID_OPENAPI", message, hint))

    def follow(self, value: object) -> JsonObject:
        """Return what a reference leads to, or the object itself."""
        seen: set[str] = set()
        fields = as_object(value)
        while isinstance(reference := fields.get("$ref"), str):
            if reference in seen:
                raise _Unsupported(f"refers to itself, by {reference}")
            seen.add(reference)
            fields = as_object(self.look_up(reference))
        return fields

    def look_up(self, reference: str) -> object:
        """Return the value at a reference within the document."""
        if not reference.startswith("#/"):
            raise _Unsupported(f"refers to another document, {reference[:200]}: bundle it first")
        value: object = self.spec
        for step in unquote(reference[2:]).split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            listed = as_list(value)
            place = int(key) if listed and key.isdecimal() else None
            value = as_object(value).get(key) if place is None else listed[place] if place < len(listed) else None
        if value is None:
            raise _Unsupported(f"refers to {reference[:200]}, which is not there")
        return value


def _load(document: Mapping[str, object] | str | bytes) -> JsonObject:
    """Return a document as JSON has it, so that nothing the caller changes later reaches the tools."""
    try:
        spec = read_json(document if isinstance(document, str | bytes) else write_json(document))
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem(
            "INVALID_OPENAPI", f"It is no JSON: {error}.", "Give a dict, or JSON; YAML is to be read first."
        )
        raise DefinitionError("The OpenAPI document", [problem]) from None
    fields = as_object(spec)
    version = as_text(fields.get("openapi"))
    if not version.startswith("3."):
        what = f"Swagger {fields['swagger']}" if "swagger" in fields else f"of version {fields.get('openapi')!r}"
        problem = Problem("INVALID_OPENAPI", f"It is {what}.", "Convert it to OpenAPI 3.0 or 3.1 first.")
        raise DefinitionError("The OpenAPI document", [problem])
    return fields


def _list_operations(reader: _DocumentReader) -> Iterator[_FoundOperation]:
    for path, given in as_object(reader.spec.get("paths")).items():
        try:
            item = reader.follow(given)
        except _Unsupported as error:
            reader.refuse(f"The path {path} {error}.", "Correct the document.")
            continue
        for method in _METHODS:
            if is_json_object(fields := item.get(method)):
                wanted = as_text(fields.get("operationId")) or f"{method}{path}"
                name = _NAME.sub("_", wanted).strip("_")[:_LONGEST_NAME] or method
                yield _FoundOperation(name, f"{method.upper()} {path}", path, method, item, fields)


def _choose(found: Iterator[_FoundOperation], only: Collection[str] | None) -> list[_FoundOperation]:
    every = [*found]
    if only is None:
        return every
    if isinstance(only, str):
        raise DefinitionError("openapi_tools", [Problem("INVALID_OPENAPI", f"only is {only!r}.", f"Write [{only!r}].")])
    wanted = [each for each in only if not each.startswith("!")] or ["*"]
    unwanted = [each[1:] for each in only if each.startswith("!")]
    unknown = [name for name in (*wanted, *unwanted) if not any(_fits(each, name) for each in every)]
    if unknown:
        names = ", ".join(each.name for each in every[:_MOST_SHOWN])
        problem = Problem("INVALID_OPENAPI", f"No operation is called {', '.join(unknown)}.", f"There are: {names}.")
        raise DefinitionError("openapi_tools", [problem])
    chosen = (each for each in every if any(_fits(each, name) for name in wanted))
    return [each for each in chosen if not any(_fits(each, name) for name in unwanted)]


def _fits(operation: _FoundOperation, pattern: str) -> bool:
    return fnmatchcase(operation.name, pattern) or operation.route == pattern


def _refuse_names(names: list[str], effects: Mapping[str, Effect], found: list[_FoundOperation]) -> Iterator[Problem]:
    for name in sorted({each for each in names if names.count(each) > 1} if len({*names}) < len(names) else ()):
        routes = [each.route for each in found if each.name == name]
        hint = f"Leave out all but one: only=[…, '!{routes[-1]}']."
        yield Problem("DUPLICATE_TOOL_NAME", f"{' and '.join(routes)} are all called {name!r}.", hint)
    for name in effects.keys() - {*names}:
        yield Problem("INVALID_OPENAPI", f"effects names {name!r}, which is no operation here.", "Correct the name.")


def _find_address(spec: JsonObject, base_url: str | None, problems: list[Problem]) -> str:
    server = as_object(next(iter(as_list(spec.get("servers"))), None))
    address = as_text(server.get("url")) if base_url is None else base_url
    for name, variable in as_object(server.get("variables")).items() if base_url is None else ():
        address = address.replace(f"{{{name}}}", as_text(as_object(variable).get("default")))
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_whole = False
    if not is_whole or not address.isprintable() or set(address) & set("{}?# "):
        message = f"The service's address is {address[:200]!r}, which is no whole URL."
        problems.append(Problem("INVALID_OPENAPI", message, "Say it with base_url='https://HOST/…'."))
    return address.rstrip("/")


def _read_operation(reader: _DocumentReader, found: _FoundOperation, address: str) -> tuple[ApiOperation, JsonObject]:
    """Return what a call sends, and the schema of its arguments."""
    for place in (found.item, found.fields):
        if place.get("servers") and as_list(place["servers"]) != as_list(reader.spec.get("servers")):
            raise _Unsupported("has a server of its own, which would be sent the client's keys")
    schemas = _SchemaConverter(reader)
    arguments = [*_read_arguments(reader, found)]
    body = _read_body(reader, found)
    names = [each.name for each in arguments]
    if body is not None:
        name = next(each for each in ("body", "request_body", "the_body") if each not in names)
        arguments.append(ApiArgument(name, name, "body", body[0], required=body[2], schema=body[1]))
    missing = set(re.findall(r"\{([^{}]*)\}", found.path)) - {each.wire for each in arguments if each.place == "path"}
    if missing or not found.path.startswith("/"):
        raise _Unsupported(f"has no parameter for {', '.join(sorted(missing)) or 'its path'}")
    schema: JsonObject = {
        "type": "object",
        "properties": {each.name: schemas.convert(each.schema) for each in arguments},
        "required": [each.name for each in arguments if each.required],
        "additionalProperties": False,
    }
    if definitions := schemas.definitions():
        schema["$defs"] = definitions
    reader.n_chars += len(write_json(schema))
    if reader.n_chars > _MOST_CHARS:
        raise _Unsupported(f"makes the schemas longer than {_MOST_CHARS:,} characters")
    return ApiOperation(found.method.upper(), address + found.path, tuple(arguments)), schema


def _make_tool(
    found: _FoundOperation,
    schema: JsonObject,
    handler: Callable[[dict[str, object]], Awaitable[ToolResult]],
    effects: Mapping[str, Effect],
) -> AnyTool:
    is_reading = found.method in _READING
    effect = effects.get(found.name) or ("pure" if is_reading else None)
    options: ToolOptions = {"effect": effect, "parallel": is_reading, "untrusted": True}
    tool = Tool(found.name, _describe(found), schema, handler, **options, external=True)
    if fault := tool.schema_fault:
        raise _Unsupported(f"has a schema that checks nothing: {fault}")
    return tool


def _describe(found: _FoundOperation) -> str:
    told = [as_text(found.fields.get(key)).strip() for key in ("summary", "description")]
    words = "\n\n".join(dict.fromkeys(each for each in told if each)) or found.route
    return (
        f"Deprecated. {words}"[:_LONGEST_DESCRIPTION]
        if found.fields.get("deprecated")
        else words[:_LONGEST_DESCRIPTION]
    )


def _read_arguments(reader: _DocumentReader, found: _FoundOperation) -> Iterator[ApiArgument]:
    """Yield the parameters that the model gives; an operation's own come in place of its path's."""
    every = [reader.follow(each) for item in (found.item, found.fields) for each in as_list(item.get("parameters"))]
    by_place = {(as_text(each.get("in")), as_text(each.get("name"))): each for each in every}
    taken: set[str] = set()
    for (place, wire), parameter in by_place.items():
        if place == "cookie" or (place == "header" and wire.lower() in _THE_CLIENTS):
            continue
        name = wire if wire not in taken else f"{place}_{wire}"
        taken.add(name)
        yield _read_argument(parameter, place, wire, name)


def _read_argument(parameter: JsonObject, place: str, wire: str, name: str) -> ApiArgument:
    if place not in _STYLES or not wire or (place == "header" and not _HEADER_NAME.fullmatch(wire)):
        raise _Unsupported(f"has the parameter {wire!r} in {place!r}")
    contents = as_object(parameter.get("content"))
    style = as_text(parameter.get("style")) or _STYLES[place][0]
    if style not in _STYLES[place] or (contents and [*contents] != [JSON]):
        raise _Unsupported(f"has the parameter {wire!r} as {style if not contents else ', '.join(contents)}")
    schema = as_object(as_object(contents.get(JSON)).get("schema") if contents else parameter.get("schema"))
    explode = parameter.get("explode", style == "form")
    return ApiArgument(
        name,
        wire,
        place,
        JSON if contents else style,
        required=place == "path" or parameter.get("required") is True,
        explode=explode is True,
        schema=_describe_schema(schema, as_text(parameter.get("description"))),
    )


def _describe_schema(schema: JsonObject, words: str) -> JsonObject:
    """Return a schema with the words for it; a reference gets a place of its own, since 3.0 has nothing beside one."""
    return {**({"allOf": [schema]} if "$ref" in schema else schema), "description": words} if words else schema


def _read_body(reader: _DocumentReader, found: _FoundOperation) -> tuple[str, JsonObject, bool] | None:
    """Return the type of an operation's body, its schema, and whether it must be given."""
    body = reader.follow(found.fields.get("requestBody"))
    contents = {
        as_text(key).partition(";")[0].strip().lower(): each for key, each in as_object(body.get("content")).items()
    }
    if not contents:
        return None
    kinds = [each for each in contents if each == JSON or each.endswith("+json")] or [
        each for each in (FORM, "text/plain") if each in contents
    ]
    if not kinds and "*/*" not in contents:
        raise _Unsupported(f"takes a body of {', '.join(contents)}")
    kind = kinds[0] if kinds else "*/*"
    schema = as_object(as_object(contents[kind]).get("schema"))
    schema = _describe_schema(schema, as_text(body.get("description")))
    return (JSON if kind == "*/*" else kind), schema, body.get("required") is True


@dataclass(slots=True)
class _SchemaConverter:
    """The schemas of one operation in the words of JSON Schema, and those that they lead to as its definitions."""

    reader: _DocumentReader
    _names: dict[str, str] = field(default_factory=dict[str, str])
    """By reference: the name of the definition."""

    def definitions(self) -> JsonObject:
        """Return the schemas that were referred to, and those that these refer to."""
        found: JsonObject = {}
        while len(found) < len(self._names):
            if len(self._names) > _MOST_REFS:
                raise _Unsupported(f"has schemas that lead to more than {_MOST_REFS} others")
            for reference, name in [*self._names.items()][len(found) :]:
                target = self.reader.look_up(reference)
                found[name] = self.convert(target) if is_json_object(target) else target is not False
        return found

    def convert(self, schema: JsonObject) -> JsonObject:
        """Return a schema of OpenAPI, of either version, as one of JSON Schema."""
        if isinstance(reference := schema.get("$ref"), str):
            rest: JsonObject = {key: value for key, value in schema.items() if key == "description"}
            return {**rest, "$ref": f"#/$defs/{self._name_of(reference)}"}
        made: JsonObject = {key: self._inside(key, value) for key, value in schema.items() if key not in _OWN_WORDS}
        for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(schema.get(bound), bool):  # 3.0 says of the limit whether it counts
                made.pop(bound)
                if schema[bound] and limit in made:
                    made[bound] = made.pop(limit)
        if schema.get("nullable") is not True:
            return made
        kind = made.get("type")
        if not isinstance(kind, str) or "enum" in made or "const" in made:
            return {"anyOf": [made, {"type": "null"}]}
        return {**made, "type": [kind, "null"]}

    def _inside(self, key: str, value: JsonValue) -> JsonValue:
        if is_json_object(value) and key in _MAPS:
            return {name: self.convert(each) if is_json_object(each) else each for name, each in value.items()}
        if is_json_object(value) and key in _SCHEMAS:
            return self.convert(value)
        if is_json_array(value) and key in _SCHEMAS:
            return [self.convert(each) if is_json_object(each) else each for each in value]
        return value

    def _name_of(self, reference: str) -> str:
        if reference not in self._names:
            wanted = _NAME.sub("_", reference.rpartition("/")[2])[:_LONGEST_NAME] or "schema"
            taken = {*self._names.values()}
            self._names[reference] = wanted if wanted not in taken else f"{wanted}_{len(taken)}"
        return self._names[reference]


_OWN_WORDS: Final = frozenset({"nullable", "discriminator", "xml", "externalDocs", "example", "readOnly", "writeOnly"})
"""The words of OpenAPI that check nothing."""
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMAS: Final = frozenset(
    {
        *("items", "prefixItems", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains"),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "propertyNames"),
    }
)


#
# No argument leads elsewhere than its place: what stands in the path is escaped, and may not be empty or dots only; a
# header takes no line break. The address, the keys and the timeouts are the client's.

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
    """The name that the model calls it by."""
    wire: str
    """The name that the service calls it by."""
    place: str
    """`path`, `query`, `header` or `body`."""
    style: str
    """Its style of writing; of a body, its type."""
    _: KW_ONLY
    required: bool
    schema: JsonObject
    explode: bool = False
    """True: each value of a list stands by itself."""


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

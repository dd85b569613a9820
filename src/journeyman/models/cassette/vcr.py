"""Cassettes of vcrpy as cassettes of ours: the requests to models that a test of another library has recorded.

Each wire is read by the decoder that reads it from the network. What is no traffic with a model, or cannot be read, is
left out, and told.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from journeyman.definition.json_numbers import read_json
from journeyman.definition.narrowing import as_list, as_object, as_text, is_dict, is_list
from journeyman.errors import CassetteError, DefinitionError, ProviderError
from journeyman.history import from_messages
from journeyman.model import ModelSettings, Part, Prefix, Request, ToolSpec
from journeyman.models.anthropic.decode import AnthropicDecoder
from journeyman.models.cassette.format import FORMAT, VERSION, CassetteFile, Header, ModelLine, write
from journeyman.models.cassette.record import Recording
from journeyman.models.error_reports import error_within, find_error, kind_of_status
from journeyman.models.google.decode import GoogleDecoder
from journeyman.models.openai.chat_decode import ChatDecoder
from journeyman.models.openai.responses_decode import ResponsesDecoder
from journeyman.models.sse import Parser
from journeyman.tools.dicts import read_tool_dict
from journeyman.tools.redaction import Redactor, Secret
from journeyman.types import Text

_Decoder = AnthropicDecoder | ChatDecoder | ResponsesDecoder | GoogleDecoder
_WIRES: Final[Sequence[tuple[re.Pattern[str], str, str, Callable[[str], _Decoder]]]] = (
    (re.compile(r"/messages$"), "anthropic", "anthropic", lambda model: AnthropicDecoder()),
    (re.compile(r"/chat/completions$"), "chat", "openai", lambda model: ChatDecoder("openai")),
    (re.compile(r"/responses$"), "responses", "openai", lambda model: ResponsesDecoder("openai")),
    (re.compile(r"/models/([^/:]+):(?:stream)?[gG]enerateContent$"), "google", "google", GoogleDecoder),
)
"""By the end of the address: the form of the messages, the provider, and the decoder for a model's answers."""
_MOST_BYTES: Final = 64 * 1024 * 1024


class _NotRead(Exception):
    """Says why an exchange is left out."""


def import_vcr(
    source: str | PathLike[str], path: str | PathLike[str], *, redact: Sequence[Secret] = ()
) -> tuple[str, ...]:
    """Write the traffic with models that vcrpy has recorded into a new cassette at `path`, without its secrets, and
    return what is left out, with its place. `source` is YAML or JSON; `redact` names more secrets to take out.

    Raises:
        CassetteError: it is no cassette of vcrpy, holds no such traffic, or the new one cannot be written.
    """
    target = Path(path)
    recording, dropped, n_read = Recording(Redactor(redact), CassetteFile(target)), list[str](), 0
    for number, exchange in enumerate(_exchanges(Path(source))):
        place = f"interactions[{number}]"
        try:
            model, request, parts, error = _read_exchange(exchange, place, dropped)
        except (_NotRead, ValueError) as reason:
            dropped.append(f"{place}: {reason}")
            continue
        run = recording.run_of(None)
        asked = recording.make_comparable(run, model, request)
        recording.model(ModelLine(model=model))
        recording.begin(asked)
        recording.end(asked, parts, ms=0.0, error=error, stopped=False)
        n_read += 1
    if not n_read:
        hint = f"Left out: {'; '.join(dropped)[:500]}." if dropped else "Check the path."
        raise CassetteError(f"{source} holds no traffic with a model.", hint=hint)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write(target, Header(format=FORMAT, version=VERSION, recorded=now), recording.lines)
    return tuple(dropped)


def _exchanges(source: Path) -> Sequence[Mapping[object, object]]:
    try:
        data = source.read_bytes()
        given: object = read_json(data) if data.lstrip()[:1] == b"{" else _read_yaml(data)
    except OSError as error:
        raise CassetteError(f"{source} cannot be read: {error.strerror}.", hint="Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise CassetteError(f"{source} cannot be read: {str(error)[:300]}.", hint="Check the path.") from None
    listed = given.get("interactions") if is_dict(given) else None
    if not is_list(listed):
        raise CassetteError(f"{source} is no cassette of vcrpy: it has no interactions.", hint="Check the path.")
    return [each for each in listed if is_dict(each)]


def _read_yaml(data: bytes) -> object:
    try:
        import yaml
    except ImportError:
        raise ValueError("the package pyyaml is not installed: pip install 'journeyman[skills]'") from None
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _read_exchange(
    exchange: Mapping[object, object], place: str, dropped: list[str]
) -> tuple[str, Request, list[Part], ProviderError | None]:
    sent, came = _fields(exchange.get("request")), _fields(exchange.get("response"))
    path = urlsplit(str(sent.get("uri"))).path
    found = next(((match, wire) for wire in _WIRES if (match := wire[0].search(path))), None)
    if found is None:
        raise _NotRead(f"{sent.get('method')} {path} is no request to a model")
    match, (_, form, provider, decoder_of) = found
    body = as_object(read_json(_bytes_of(sent.get("body"))))
    name = match[1] if match.groups() else as_text(body.get("model"))
    owner = f"google:{name}" if form == "google" else provider
    read = from_messages({**body, "model": name}, form=form, provider=owner)
    dropped += [f"{place}: {each}" for each in read.dropped if not each.startswith("the request.")]
    tools = [spec for each in as_list(body.get("tools")) for spec in _tools_of(each, place, dropped)]
    prefix = Prefix(system=(Text(read.system),) if read.system else (), tools=tuple(tools))
    # Of the other settings nobody can tell which the program chose, and which its library.
    chosen = {key: value for key in ("temperature", "top_p") if isinstance(value := body.get(key), int | float)}
    settings = ModelSettings(temperature=chosen.get("temperature"), top_p=chosen.get("top_p"))
    request = Request(prefix=prefix, messages=read.messages, settings=settings)
    parts, error = _decode_answer(came, decoder_of(owner))
    return f"{provider}:{name}", request, parts, error


def _fields(value: object) -> Mapping[object, object]:
    return value if is_dict(value) else {}


def _bytes_of(body: object) -> bytes:
    """Return a body: a text, bytes, or either one level below."""
    if is_dict(body):
        body = body.get("string", body.get("base64_string"))
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return body if isinstance(body, bytes) else b""


def _tools_of(given: object, place: str, dropped: list[str]) -> list[ToolSpec]:
    inner = as_object(given).get("functionDeclarations")
    found: list[ToolSpec] = []
    for each in as_list(inner) if inner is not None else [given]:
        try:
            told = read_tool_dict(each)
        except DefinitionError as error:
            dropped.append(f"{place}: a tool. {error.problems[0].message}")
        else:
            found.append(ToolSpec(name=told.name, description=told.description, input_schema=told.schema))
    return found


def _decode_answer(came: Mapping[object, object], decoder: _Decoder) -> tuple[list[Part], ProviderError | None]:
    given = _fields(came.get("headers")).items()
    headers = {str(key).lower(): value[0] if is_list(value) and value else value for key, value in given}
    data = _unpack(_bytes_of(came.get("body")), str(headers.get("content-encoding") or "identity").lower())
    status = _fields(came.get("status")).get("code")
    try:
        if isinstance(status, int) and status >= 400:
            return [], _failure(data, status)
        if "event-stream" not in str(headers.get("content-type")) and data.lstrip()[:1] in (b"{", b"["):
            return [*decoder.document(data)], None
        parser = Parser(_MOST_BYTES)
        events = [*parser.feed(data), *parser.end()]
        return [*decoder.parts(events), *decoder.end()], None
    except ProviderError as error:
        return [], error


def _failure(data: bytes, status: int) -> ProviderError:
    kind = kind_of_status(status)
    try:
        told = error_within(find_error(as_object(read_json(data))))
    except ValueError:
        return ProviderError(data[:500].decode("utf-8", "replace"), kind=kind, status=status)
    return ProviderError(str(told), kind=kind, status=status, type=told.type)


def _unpack(data: bytes, coding: str) -> bytes:
    # Where vcrpy has unpacked a body, the header still names its coding.
    if coding not in ("gzip", "deflate") or data.lstrip()[:1] in (b"{", b"[") or data[:5] in (b"data:", b"event"):
        if coding in ("identity", "gzip", "deflate") or data[:1] in (b"{", b"[", b"d", b"e"):
            return data
        raise _NotRead(f"its answer is packed as {coding}")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32 if coding == "gzip" else zlib.MAX_WBITS)
    try:
        unpacked = unpacking.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise _NotRead(f"its answer is damaged: {error}") from None
    if unpacking.unconsumed_tail:
        raise _NotRead(f"its answer has more than {_MOST_BYTES:,} bytes")
    return unpacked

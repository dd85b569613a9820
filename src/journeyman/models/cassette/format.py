"""The file of a cassette: one line of JSON for each event, in order, behind a line that says what it is.

A request says only what is new in it, and which earlier one it goes on from: so the file grows with the conversation
and not with its square, and a change of one prompt changes one line. Reading names the line that is wrong.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import CassetteError, ProviderError, count
from journeyman.machine.files import make_private_folder, replace_file
from journeyman.model import Part
from journeyman.models.cassette.pieces import ErrorJson, PartJson, digest_of, error_of, json_line, part_of
from journeyman.types import JsonObject, Price, adapter_of, canonical_json

FORMAT: Final = "journeyman cassette"
VERSION: Final = 1

_AGAIN: Final = "Record it again."

T = TypeVar("T")


@lazy_dataclass(frozen=True, kw_only=True)
class Header:
    """The first line."""

    format: str
    """What kind of file it is."""
    version: int
    """The number of the format."""
    recorded: str
    """When it was recorded, as an ISO date and time in UTC."""
    agent: str | None = None
    """The agent that the command line recorded."""
    input: str | None = None
    """The agent's input, as it was given."""


@lazy_dataclass(frozen=True, kw_only=True)
class ModelLine:
    """The facts of a model, so that it need not be there when it is replayed."""

    event: Literal["model"] = "model"
    model: str
    """The provider, a colon and the name."""
    called: str | None = None
    """The name by which the program asked for it, if that is another one."""
    max_output_tokens: int | None = None
    context_window: int | None = None
    price: Price | None = None
    loads_tools: bool = False


@lazy_dataclass(frozen=True, kw_only=True)
class Continues:
    """The earlier request that another one goes on from, and the number of messages that both begin with."""

    request: int
    messages: int


@lazy_dataclass(frozen=True, kw_only=True)
class RequestLine:
    """One request. Where it goes on from another, `system`, `tools` and `settings` are that one's unless given."""

    event: Literal["request"] = "request"
    request: int
    """Its number, from 1."""
    run: int
    """The run that asked, numbered in the order in which they came."""
    model: str
    digest: str | None = None
    """The digest of the whole request; where it was taken out of the line, it is not checked."""
    continues: Continues | None = None
    system: JsonValue = None
    tools: JsonValue = None
    settings: JsonValue = None
    messages: list[JsonValue]


@lazy_dataclass(frozen=True, kw_only=True)
class AnswerLine:
    """The answer to a request."""

    event: Literal["answer"] = "answer"
    """Tells the kinds of lines apart."""
    request: int
    """The number of the request, from 1."""
    parts: list[PartJson]
    """The parts of the answer, in order."""
    error: ErrorJson | None = None
    """Why the request failed."""
    ms: float = 0.0
    """When the answer ended, in milliseconds since the request."""
    stopped: bool = False
    """True when nobody waited for the rest."""


@lazy_dataclass(frozen=True, kw_only=True)
class CallLine:
    """The outcome of a tool call, as the journal of a run keeps it."""

    event: Literal["call"] = "call"
    """Tells the kinds of lines apart."""
    run: int
    """The number of the run, from 1."""
    key: str
    """The step."""
    tool: str | None = None
    """The name of the tool."""
    ms: float = 0.0
    """How long the call took, in milliseconds."""
    runs: list[int] = field(default_factory=list[int])
    """The runs that it started, if it is the call of another agent."""
    outcome: JsonObject
    """The result, or how the call failed."""


Line: TypeAlias = Annotated[ModelLine | RequestLine | AnswerLine | CallLine, Field(discriminator="event")]


def write_line(line: Header | Line) -> bytes:
    """Return a line as it stands in the file, without its end."""
    adapter = adapter_of(Header) if isinstance(line, Header) else adapter_of(Line)
    dumped: JsonObject = adapter.dump_python(line, mode="json")  # pyright: ignore[reportArgumentType] - fits its class
    usual = {name for name, each in dumped.items() if each is None or each is False or (name == "runs" and not each)}
    return json_line({name: value for name, value in dumped.items() if name not in usual})


@lazy_dataclass(kw_only=True, eq=False)
class RecordedRequest:
    """One recorded request and its answer."""

    number: int
    """The number of the request, from 1."""
    run: int
    """The number of the run that made it, from 1."""
    line: int
    """The number of its line in the file."""
    body: JsonObject
    """The whole request: `model`, `system`, `tools`, `settings`, `messages`."""
    digest: str
    """The digest by which it is found."""
    canonical: list[bytes]
    """The bytes of each message."""
    answer: AnswerLine | None = None
    """None when the recording ended before the answer."""
    answer_line: int = 0
    """The number of the answer's line in the file; 0 without one."""
    parts: list[Part] = field(default_factory=list[Part])
    """The parts of the answer, in order."""
    is_used: bool = False
    """Whether a replay has taken it."""

    @property
    def is_stopped(self) -> bool:
        """True when nobody waited for the whole answer."""
        return self.answer is None or self.answer.stopped

    def error(self) -> ProviderError | None:
        """Return the failure of the request, in an exception of its own; None if it did not fail."""
        return None if self.answer is None or self.answer.error is None else error_of(self.answer.error)


@lazy_dataclass(kw_only=True, eq=False)
class RecordedCall:
    """One recorded tool call."""

    line: int
    """The number of its line in the file."""
    call: CallLine
    """What the line holds."""
    is_used: bool = False
    """Whether a replay has taken it."""


@lazy_dataclass()
class CassetteFile:
    """The content of a cassette's file."""

    path: Path
    header: Header | None = None
    lines: list[bytes] = field(default_factory=list[bytes])
    """The lines after the first."""
    models: dict[str, ModelLine] = field(default_factory=dict[str, ModelLine])
    """The models by their `model`, and by their `called`."""
    requests: dict[int, RecordedRequest] = field(default_factory=dict[int, RecordedRequest])
    """The requests by their numbers, in order."""
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])


def read_cassette(path: Path) -> CassetteFile:
    """Return what the file holds.

    Raises:
        CassetteError: it cannot be read, or is not what a cassette is; the error names the line.
    """
    file = CassetteFile(path)
    first, *rest = _raw_lines(path)
    file.header = _header(path, first)
    for number, raw in enumerate(rest, 2):
        _add_line(file, _validate_line(adapter_of(Line), path, _parse_object(path, raw, number), number), number)
        file.lines.append(raw)
    return file


def write(path: Path, header: Header, lines: Sequence[bytes]) -> None:
    """Write the file as a whole: whoever looks finds the old one or the new one.

    Raises:
        CassetteError: it cannot be written.
    """
    data = b"".join(line + b"\n" for line in (write_line(header), *lines))
    try:
        make_private_folder(path.parent)
        replace_file(path, data, mode=stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600)
    except OSError as error:
        hint = "Check the folder and its permissions."
        raise CassetteError(f"{path} cannot be written: {error.strerror}.", hint=hint) from error


def _raw_lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CassetteError(f"There is no file {path}.", hint="Check the path, or record the cassette.") from error
    except OSError as error:
        hint = "Give a file that you may read."
        raise CassetteError(f"{path} cannot be read: {error.strerror}.", hint=hint) from error
    if not data.strip():
        raise CassetteError(f"{path} is empty.", hint=_AGAIN)
    return data.removesuffix(b"\n").split(b"\n")


def _wrong(path: Path, number: int, what: str, hint: str = _AGAIN) -> CassetteError:
    return CassetteError(f"{path}, line {number}: {what}.", hint=hint, line=number)


def _parse_object(path: Path, raw: bytes, number: int) -> JsonObject:
    try:
        value: JsonValue = json.loads(raw)
    except (ValueError, RecursionError) as error:
        what = "the line is empty" if not raw.strip() else f"this is not JSON, or is cut off ({error})"
        raise _wrong(path, number, what) from error
    if not isinstance(value, dict):
        raise _wrong(path, number, f"this is not a JSON object but {raw[:40].decode(errors='replace')}")
    return value


def _header(path: Path, raw: bytes) -> Header:
    given = _parse_object(path, raw, 1)
    if given.get("format") != FORMAT:
        raise _wrong(path, 1, f'this is not a cassette: the first line has no "format": "{FORMAT}"', "Check the path.")
    if given.get("version") != VERSION:
        what = f"the cassette is of version {json.dumps(given.get('version'))}, and this journeyman reads {VERSION}"
        raise _wrong(path, 1, what, "Update journeyman, or record it again.")
    return _validate_line(adapter_of(Header), path, given, 1)


def _validate_line(adapter: TypeAdapter[T], path: Path, given: JsonObject, number: int) -> T:
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        raise _wrong(path, number, _fault(error)) from error


def _fault(error: ValidationError) -> str:
    """Say the first thing that is wrong: `request: 'messages' is missing`."""
    first = error.errors(include_url=False)[0]
    match [str(step) for step in first["loc"]], first["type"]:
        case _, "union_tag_not_found":
            return "'event' is missing"
        case _, "union_tag_invalid":
            return f"there is no event {first.get('ctx', {}).get('tag')!r}"
        case [*above, name], "missing":
            return f"{'.'.join([*above, ''])[:-1] or 'the line'} has no {name!r}"
        case steps, _:
            return f"{'.'.join(steps)} is wrong: {first['msg']}"


def _add_line(file: CassetteFile, line: Line, number: int) -> None:
    match line:
        case ModelLine():
            file.models[line.model] = line
            file.models[line.called or line.model] = line
        case RequestLine():
            file.requests[line.request] = _request(file, line, number)
        case AnswerLine():
            _add_answer(file, line, number)
        case CallLine():
            file.calls.append(RecordedCall(line=number, call=line))


def _request(file: CassetteFile, line: RequestLine, number: int) -> RecordedRequest:
    if line.request in file.requests:
        raise _wrong(file.path, number, f"there is a request {line.request} before")
    before, kept = _find_continued(file, line, number)
    body: JsonObject = {"model": line.model}
    for name, value in (("system", line.system), ("tools", line.tools), ("settings", line.settings)):
        if value is None and before is None:
            raise _wrong(file.path, number, f"request {line.request} has no {name!r}")
        body[name] = before.body[name] if value is None and before is not None else value
    messages, canonical = ([], []) if before is None else (messages_of(before.body)[:kept], before.canonical[:kept])
    body["messages"] = [*messages, *line.messages]
    canonical += map(canonical_json, line.messages)
    digest = digest_of(head_bytes(body), canonical)
    if line.digest not in (None, digest):
        what = f"request {line.request} was changed after it was recorded: its digest is {digest}"
        raise _wrong(file.path, number, what, "Record it again, or take the digest out of the line if it is meant.")
    n, run = line.request, line.run
    return RecordedRequest(number=n, run=run, line=number, body=body, digest=digest, canonical=canonical)


def _find_continued(file: CassetteFile, line: RequestLine, number: int) -> tuple[RecordedRequest | None, int]:
    """Return the request that this one goes on from, and how many of its messages they have in common."""
    if line.continues is None:
        return None, 0
    before, kept = file.requests.get(line.continues.request), line.continues.messages
    if before is None:
        raise _wrong(file.path, number, f"it continues request {line.continues.request}, which is not before it")
    if not 0 <= kept <= len(before.canonical):
        what = f"it continues {count(kept, 'message')} of request {before.number}, which has {len(before.canonical)}"
        raise _wrong(file.path, number, what)
    return before, kept


def _add_answer(file: CassetteFile, line: AnswerLine, number: int) -> None:
    request = file.requests.get(line.request)
    if request is None or request.answer is not None:
        what = "is not before it" if request is None else "has an answer before"
        raise _wrong(file.path, number, f"this answers request {line.request}, which {what}")
    request.answer, request.answer_line = line, number
    for index, part in enumerate(line.parts):
        try:
            request.parts.append(part_of(part))
        except KeyError as error:
            raise _wrong(file.path, number, f"parts.{index} has no known {error.args[0]!r}") from error
        except ValidationError as error:
            raise _wrong(file.path, number, f"parts.{index}: {_fault(error)}") from error


def messages_of(body: JsonObject) -> list[JsonValue]:
    """Return the messages of a request."""
    messages = body["messages"]
    return messages if isinstance(messages, list) else []


def head_bytes(body: JsonObject) -> bytes:
    """Return the bytes of a request without its messages, for its digest."""
    return canonical_json({name: value for name, value in body.items() if name != "messages"})

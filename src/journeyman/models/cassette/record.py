"""Turning what happens into the lines of a cassette, without its secrets.

A message is encoded once for each run that sends it. Every secret becomes the same mark, whatever it was found by, so
that a conversation recorded on one machine is the same on another. Redacting twice changes nothing more: what is
replayed was redacted, and is redacted again when the model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import accumulate, pairwise
from typing import TypeAlias

from pydantic import JsonValue

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import ProviderError
from journeyman.model import (
    BlockFinished,
    InputPart,
    Model,
    ModelSettings,
    Part,
    Prefix,
    Request,
    Restarted,
    TextPart,
    ThinkingPart,
    facts_of,
)
from journeyman.models.cassette.format import (
    AnswerLine,
    CallLine,
    CassetteFile,
    Continues,
    ModelLine,
    RequestLine,
    head_bytes,
    messages_of,
    write_line,
)
from journeyman.models.cassette.pieces import digest_of, error_json, head_json, message_json, part_json
from journeyman.models.wire import as_list, as_object
from journeyman.step import RunStep
from journeyman.tools.redaction import Redactor
from journeyman.types import Block, JsonObject, Message, Text, Thinking, ToolUse, canonical_json


@lazy_dataclass()
class _Encoded:
    message: Message
    """Kept, so that its identity stays its own."""
    json: JsonObject
    canonical: bytes


@lazy_dataclass()
class _RequestHead:
    model: str
    prefix: Prefix
    settings: ModelSettings
    json: JsonObject
    canonical: bytes


@lazy_dataclass(eq=False)
class LiveRun:
    """A run that is going on now, with all that its next request is compared to."""

    scope: object
    """Kept, so that its identity stays its own."""
    number: int = 0
    """Its number in the recording; 0 while nothing of it is recorded."""
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the tools that were called, by the id of the call."""
    head: _RequestHead | None = None
    encoded: dict[int, _Encoded] = field(default_factory=dict[int, _Encoded])
    """The messages of the last request, by identity."""
    last: NewRequest | None = None
    """The last request that was recorded."""


@lazy_dataclass(kw_only=True)
class NewRequest:
    """One request, as it is compared and written."""

    run: LiveRun
    number: int
    """The number of this request among all that the program made, from 1."""
    model: str
    body: JsonObject
    digest: str
    recorded_as: int = 0
    """Its number in the file; 0 while it is not recorded."""


class Recording:
    """A recording that goes on: it encodes what is asked, and collects the lines of what is recorded."""

    def __init__(self, redactor: Redactor, file: CassetteFile) -> None:
        """`file` is what the recording is added to."""
        self._redactor = redactor
        self._models = dict(file.models)
        self._last_request = max(file.requests, default=0)
        runs = [*(take.run for take in file.requests.values()), *(call.call.run for call in file.calls)]
        self._last_run = max(runs, default=0)
        self._n_asked = 0
        self._runs: dict[int, LiveRun] = {}
        self.lines: list[bytes] = []

    def run_of(self, scope: object) -> LiveRun:
        """Return the live run that has this scope; the scope None is of a program that asks outside of a run."""
        run = self._runs.get(id(scope))
        if run is None:
            run = self._runs[id(scope)] = LiveRun(scope)
        return run

    def make_comparable(self, run: LiveRun, model: str, request: Request) -> NewRequest:
        """Return a request in the form in which requests are compared, under the next number."""
        self._n_asked += 1
        head = self._head(run, model, request)
        encoded = [run.encoded.get(id(message)) or self._encode_message(message) for message in request.messages]
        run.encoded = {id(each.message): each for each in encoded}
        messages: list[JsonValue] = [each.json for each in encoded]
        body: JsonObject = {**head.json, "messages": messages}
        return NewRequest(
            run=run,
            number=self._n_asked,
            model=model,
            body=body,
            digest=digest_of(head.canonical, [each.canonical for each in encoded]),
        )

    def _head(self, run: LiveRun, model: str, request: Request) -> _RequestHead:
        head = run.head
        if head is None or (head.model, head.prefix, head.settings) != (model, request.prefix, request.settings):
            content = self._redact_value({"model": model} | head_json(request.prefix, request.settings))
            head = run.head = _RequestHead(model, request.prefix, request.settings, content, head_bytes(content))
        return head

    def _encode_message(self, message: Message) -> _Encoded:
        content = self._redact_value(message_json(message))
        return _Encoded(message, content, canonical_json(content))

    def _redact_value(self, value: JsonObject) -> JsonObject:
        return as_object(self._redactor.redacted(value))

    def model(self, line: ModelLine) -> None:
        """Record the facts of a model, unless they are recorded."""
        if self._models.get(line.model) != line:
            self._models[line.model] = line
            self.lines.append(write_line(line))

    def begin(self, asked: NewRequest) -> None:
        """Record a request."""
        self._last_request += 1
        asked.recorded_as = self._last_request
        before, kept = asked.run.last, _in_common(asked.run.last, asked)
        again = {} if before is None else before.body
        body = {name: value for name, value in asked.body.items() if name not in again or again[name] != value}
        line = RequestLine(
            request=asked.recorded_as,
            run=self._number(asked.run),
            model=asked.model,
            digest=asked.digest,
            continues=None if before is None else Continues(request=before.recorded_as, messages=kept),
            system=body.get("system"),
            tools=body.get("tools"),
            settings=body.get("settings"),
            messages=messages_of(asked.body)[kept:],
        )
        self.lines.append(write_line(line))
        asked.run.last = asked

    def end(
        self, asked: NewRequest, parts: Sequence[Part], *, ms: float, error: ProviderError | None, stopped: bool
    ) -> None:
        """Record the outcome of a request."""
        shown: JsonValue = [part_json(part) for part in _without_secrets(parts, self._redactor)]
        line = AnswerLine(
            request=asked.recorded_as,
            parts=[as_object(each) for each in as_list(self._redactor.redacted(shown))],
            error=None if error is None else {**error_json(error), "message": self._redactor.redacted_text(str(error))},
            ms=round(ms, 1),
            stopped=stopped,
        )
        self.lines.append(write_line(line))

    def call(self, run: LiveRun, step: RunStep, *, ms: float, outcome: JsonObject, started: Sequence[LiveRun]) -> None:
        """Record the outcome of a call; `started` are the runs that it started."""
        usual = {name for name, value in outcome.items() if value is None or value is False}
        line = CallLine(
            run=self._number(run),
            key=step.key,
            tool=run.tools.get(step.call or ""),
            ms=round(ms, 1),
            runs=sorted({each.number for each in started}),
            outcome=self._redact_value({name: value for name, value in outcome.items() if name not in usual}),
        )
        self.lines.append(write_line(line))

    def _number(self, run: LiveRun) -> int:
        if not run.number:
            self._last_run += 1
            run.number = self._last_run
        return run.number


def model_line(model: Model, called: str | None) -> ModelLine:
    """Return the line with the facts of a model; `called` is the name that it was asked for by."""
    name, facts = f"{model.provider}:{model.name}", facts_of(model)
    return ModelLine(
        model=name,
        called=None if called == name else called,
        max_output_tokens=facts.max_output_tokens,
        context_window=facts.context_window,
        price=facts.price,
        loads_tools=facts.loads_tools,
    )


def note_tools(run: LiveRun, part: Part) -> None:
    """Remember the name of a tool that is called."""
    if isinstance(part, BlockFinished) and isinstance(part.block, ToolUse):
        run.tools[part.block.id] = part.block.name


def _in_common(before: NewRequest | None, asked: NewRequest) -> int:
    """Return how many messages a request has in common with the one before it."""
    if before is None:
        return 0
    mine, theirs = messages_of(before.body), messages_of(asked.body)
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((index for index, (one, other) in pairs if one is not other), min(len(mine), len(theirs)))


_Piece: TypeAlias = TextPart | ThinkingPart | InputPart


def _without_secrets(parts: Sequence[Part], redactor: Redactor) -> list[Part]:
    """Return the parts, with the pieces of each text redacted as a whole: a secret may be spread over several."""
    changed = list(parts)
    for pieces in _pieces_of_texts(parts):
        texts = [each.json if isinstance(each, InputPart) else each.text for each in pieces.values()]
        whole = "".join(texts)
        is_json = any(isinstance(each, InputPart) for each in pieces.values())
        redacted = redactor.redacted_json_text(whole) if is_json else redactor.redacted_text(whole)
        if redacted != whole:
            done = [*accumulate(map(len, texts))]
            ends = [0, *(len(redacted) * each // (done[-1] or 1) for each in done)]  # in about the same proportions
            for (index, piece), (start, end) in zip(pieces.items(), pairwise(ends), strict=True):
                text = redacted[start:end]
                changed[index] = replace(piece, **{"json" if isinstance(piece, InputPart) else "text": text})
    return changed


def _pieces_of_texts(parts: Sequence[Part]) -> Iterator[dict[int, _Piece]]:
    """Give the pieces of each text that came in pieces, by their place in the answer."""
    open_texts: dict[str, dict[int, _Piece]] = {}
    for index, part in enumerate(parts):
        match part:
            case TextPart() | ThinkingPart() | InputPart():
                open_texts.setdefault(_text_name(part), {})[index] = part
            case BlockFinished(block) if pieces := open_texts.pop(_text_name(block), None):
                yield pieces
            case Restarted():
                yield from open_texts.values()
                open_texts.clear()
            case _:
                pass
    yield from open_texts.values()


def _text_name(of: Part | Block) -> str:
    """Return a name that is the same for the pieces of a text and for the block that they make."""
    match of:
        case TextPart() | Text():
            return "text"
        case ThinkingPart() | Thinking():
            return "thinking"
        case InputPart(tool_use_id=id) | ToolUse(id=id):
            return f"call {id}"
        case _:
            return ""

"""The document that `--json` prints: everything a run gave, in one JSON object with a schema of its own.

The schema is in `docs/result-document.schema.json`, the explanation in `docs/result-document.md`. Imports `result`,
`agent` and the values.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from journeyman.agent import Agent
from journeyman.endings import Category, Ending, ErrorCode, Phase
from journeyman.result import (
    AttemptRecord,
    CallbackError,
    ChildRecord,
    Failure,
    LayerOutcome,
    Metadata,
    Result,
    Success,
    ToolKind,
    ToolStats,
)
from journeyman.types import JsonObject, Message, Usage

_CONFIG = ConfigDict(use_attribute_docstrings=True, extra="forbid", ser_json_inf_nan="null")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """Why a run failed."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    code: ErrorCode
    category: Category
    message: str
    """What happened, with the values."""
    hint: str
    """What to do about it."""
    phase: Phase
    """Where the run was."""
    context: JsonObject
    """The facts behind the message; which ones depends on the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDocument:
    """What requests used."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    requests: int
    """Responses counted, complete or not."""
    input_tokens: int
    """Input tokens neither read from nor written to a cache."""
    output_tokens: int
    cache_read_tokens: int | None
    """null when no response reported it."""
    cache_write_tokens: int | None
    """null when no response reported it."""
    reasoning_tokens: int | None
    """The part of `output_tokens` spent on reasoning; null when no response reported it."""
    total_tokens: int
    """All tokens, cached or not, in and out."""
    cost: float | None
    """US dollars; null when the price of any counted response is unknown."""
    cache_saved: float | None
    """US dollars that the cache saved, against all input at the plain price; below 0 when writing it cost more. null
    when no response reported a cache, or when the price of any that did is unknown."""
    exact: bool
    """False when a response broke off before it reported all it used: the figures are then lower bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDocument:
    """What one validation layer said."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    name: str
    kind: Literal["schema", "validator"]
    passed: bool
    feedback: str
    """What the model was told; empty when the layer passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """One attempt."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    number: int
    """From 1."""
    iterations: int
    """How many model calls it made."""
    usage: UsageDocument
    layers: list[LayerDocument] | None
    """In order, up to the first that did not pass; null when the attempt ended before validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDocument:
    """How one tool was used."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    kind: ToolKind
    calls: int
    succeeded: int
    cache_hits: int
    errors: dict[str, int]
    """How many calls failed, by kind."""
    duration_s: float
    """Seconds spent in the tool, all calls together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDocument:
    """A run that this run started."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    path: list[str]
    """Its place in the tree, names from the root down, each with a number where there may be several."""
    code: ErrorCode | None
    """null when it succeeded."""
    usage: UsageDocument
    """With that of the runs that it started in turn. Part of this run's usage."""
    attempts: int
    """Its own, with those that were rejected."""
    iterations: int
    """Model calls of its own, of all attempts."""
    calls: int
    """Tool calls of its own."""
    latency_s: float
    """Seconds from its start to its end."""
    children: list[ChildDocument]
    """The runs that it started in turn, in the order in which they began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDocument:
    """What `journeyman run --json` prints: how a run ended, and all it gathered."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    version: Literal[1]
    """Of this format; a change that may break a reader makes it 2."""
    agent: str
    """The agent's name."""
    code: Literal["SUCCESS"] | ErrorCode
    """`SUCCESS`, or why the run failed."""
    output: JsonValue
    """What the agent handed in; null on failure."""
    error: ErrorDocument | None
    """null on success."""
    candidate: JsonValue
    """On failure, the last output that was proposed, not validated; null when there was none."""
    state: JsonValue
    """What the agent's `project` function made of the final state; null without one, or on failure."""
    terminal_result: str | None
    """The result of the call that ended the run through `stop_after`."""
    usage: UsageDocument | None
    """All requests, attempts and children together; null when the agent does not track tokens."""
    latency_s: float
    """Seconds from the start to the end of the run."""
    attempts: list[AttemptDocument]
    tools: dict[str, ToolDocument]
    """By name. Calls of names that no tool has are counted together, under `(unknown)`."""
    children: list[ChildDocument]
    """The runs that this one started, in the order in which they began; not those in the background."""
    callback_errors: list[str]
    """What callbacks raised; the run went on."""
    history: tuple[Message, ...]
    """The whole conversation, as `journeyman.load_messages` reads it."""


def result_document(agent: Agent[Any, Any], result: Result[Any]) -> ResultDocument:
    """Return the document for a result of `agent`."""
    metadata = result.metadata
    is_success = isinstance(result, Success)
    return ResultDocument(
        version=1,
        agent=agent.name,
        code="SUCCESS" if is_success else result.code,
        output=output_json(agent, result.output) if is_success else None,
        error=None if is_success else _error(result.error),
        candidate=result.candidate if isinstance(result, Failure) else None,
        state=_jsonable(result.state) if is_success else None,
        terminal_result=result.terminal_result if is_success else None,
        usage=None if metadata.usage is None else _usage(metadata.usage),
        latency_s=metadata.latency_s,
        attempts=[_attempt(record) for record in metadata.attempts],
        tools={name: _tool(stats) for name, stats in metadata.tools.items()},
        children=[_child(record) for record in metadata.children],
        callback_errors=_callback_errors(metadata),
        history=result.history,
    )


def output_json(agent: Agent[Any, Any], output: object) -> JsonValue:
    """Return an output as plain JSON values."""
    schema = agent.plan.output
    if schema is None:
        return _jsonable(output)
    dumped = schema.dump(output)
    try:
        return from_json(dumped)
    except ValueError:  # what has no JSON is dumped as its repr
        return dumped.decode()


def dump_document(document: ResultDocument, *, indent: int | None = None) -> bytes:
    """Return the document as JSON."""
    try:
        return _documents().dump_json(document, indent=indent, fallback=repr)
    except PydanticSerializationError:  # half of a surrogate pair, which UTF-8 cannot hold
        plain = _documents().dump_python(document, mode="json", fallback=repr)
        return json.dumps(plain, indent=indent, ensure_ascii=False).encode("utf-8", "replace")


def document_schema() -> JsonObject:
    """Return the JSON Schema of the document."""
    return _documents().json_schema(mode="serialization")


@cache
def _documents() -> TypeAdapter[ResultDocument]:
    return TypeAdapter(ResultDocument)


def _jsonable(value: object) -> JsonValue:
    plain: JsonValue = to_jsonable_python(value, fallback=repr)
    return plain


def _error(ending: Ending) -> ErrorDocument:
    context = _jsonable(asdict(ending.context))
    return ErrorDocument(
        code=ending.code,
        category=ending.category,
        message=ending.message,
        hint=ending.hint,
        phase=ending.phase,
        context=context if isinstance(context, dict) else {},
    )


def _usage(usage: Usage) -> UsageDocument:
    return UsageDocument(**asdict(usage), total_tokens=usage.total_tokens)


def _attempt(record: AttemptRecord) -> AttemptDocument:
    return AttemptDocument(
        number=record.number,
        iterations=record.iterations,
        usage=_usage(record.usage),
        layers=None if record.report is None else [_layer(outcome) for outcome in record.report.layers],
    )


def _layer(outcome: LayerOutcome) -> LayerDocument:
    return LayerDocument(name=outcome.name, kind=outcome.kind, passed=outcome.passed, feedback=outcome.feedback)


def _tool(stats: ToolStats) -> ToolDocument:
    return ToolDocument(
        kind=stats.kind,
        calls=stats.calls,
        succeeded=stats.succeeded,
        cache_hits=stats.cache_hits,
        errors=dict(stats.errors),
        duration_s=stats.duration_s,
    )


def _child(record: ChildRecord) -> ChildDocument:
    return ChildDocument(
        path=list(record.path),
        code=record.code,
        usage=_usage(record.usage),
        attempts=record.attempts,
        iterations=record.iterations,
        calls=record.calls,
        latency_s=record.latency_s,
        children=[_child(below) for below in record.children],
    )


def _callback_errors(metadata: Metadata) -> list[str]:
    return [_callback_error(error) for error in metadata.callback_errors]


def _callback_error(found: CallbackError) -> str:
    return f"{found.callback}: {type(found.error).__name__}: {found.error}"

"""The result of a run: a `Success`, or a `Failure` whose `error` is one of a closed set of endings.

Both carry the whole conversation, exact usage and what was checked, and both become one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeAlias

import orjson
from pydantic import JsonValue
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python
from typing_extensions import TypeVar

from journeyman.definition.data import fields_of, lazy_dataclass
from journeyman.definition.problems import join_sentences, missing_attribute
from journeyman.endings import Context, ErrorCode, ErrorInfo, Phase
from journeyman.errors import RunError, count, visible_json
from journeyman.texts import shorten, shorten_line
from journeyman.types import NOTHING_USED, JsonObject, Message, Usage, adapter_of

__all__ = [
    "AskedQuestion",
    "AttemptRecord",
    "CallbackError",
    "ChildRecord",
    "LayerKind",
    "LayerOutcome",
    "Metadata",
    "Pending",
    "PendingCall",
    "ToolKind",
    "ToolStats",
    "ValidationReport",
]

_SHOWN_CHARS: Final = 500
"""The most that a summary shows of an output or an error."""

Out = TypeVar("Out", default=str, covariant=True)
Other = TypeVar("Other")


LayerKind: TypeAlias = Literal["schema", "validator", "function"]
"""What a validation layer is: the output's type, a function that checks, or the function that makes the output."""


@lazy_dataclass(frozen=True, kw_only=True)
class LayerOutcome:
    """The verdict of one validation layer: whether the output passed, and the feedback if it did not."""

    name: str
    """The name of the layer."""
    kind: LayerKind
    """What the layer is: the output's type, a function that checks, or the function that makes the output."""
    description: str
    """What it checks, in words."""
    passed: bool
    """Whether the output passed it."""
    feedback: str = ""
    """What the model is told when the layer did not pass."""
    error: BaseException | None = field(default=None, compare=False)
    """What the layer raised, as it is."""


@lazy_dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """The verdicts of the layers, in order, up to and with the first that did not pass."""

    layers: tuple[LayerOutcome, ...]
    """The verdict of each layer."""

    @property
    def passed(self) -> bool:
        """True when all of them passed."""
        return all([layer.passed for layer in self.layers])

    @property
    def feedback(self) -> str:
        """The text that the layer that did not pass tells the model; empty when all passed."""
        return self.layers[-1].feedback if self.layers and not self.passed else ""


@lazy_dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One attempt, after the fact."""

    number: int
    """The number of the attempt, from 1."""
    iterations: int
    """How many iterations it took."""
    usage: Usage
    """What it used."""
    report: ValidationReport | None
    """None when the attempt ended before validation."""


ToolKind: TypeAlias = Literal["tool", "output", "submit", "unknown"]
"""What a call is of: a tool, the agent's output, its submit, or a name that no tool has."""

COUNTED: Final[tuple[ToolKind, ...]] = ("tool", "unknown")
"""The kinds of calls that counts and limits of calls are about: not those that hand in."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolStats:
    """Counts of the calls of one tool in a run: how many, how many failed, and how long they took."""

    kind: ToolKind
    """What its calls are of."""
    calls: int = 0
    """How many calls there were."""
    succeeded: int = 0
    """How many of them did not fail."""
    cache_hits: int = 0
    """How many got the result of an earlier call."""
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many calls failed, by kind: `unknown`, `invalid_input`, `raised`, `timeout`, `denied`, `over_budget`,
    `interrupted`, `skipped`, `rejected`."""
    duration_s: float = 0.0
    """Seconds spent in the handler, all calls together."""


@lazy_dataclass(frozen=True, kw_only=True)
class CallbackError:
    """A callback or listener raised. The run went on."""

    callback: str
    """Which callback or listener raised."""
    error: BaseException
    """What it raised."""


@lazy_dataclass(frozen=True, kw_only=True)
class ChildRecord:
    """The usage, counts and outcome of a run that this run started. This run's usage includes it."""

    path: tuple[str, ...]
    """The run, as the names from the outermost run down to it."""
    usage: Usage
    """The usage of that run, and of the runs that it started in turn."""
    code: ErrorCode | None
    """None when it succeeded."""
    attempts: int = 0
    """How many attempts the run itself made."""
    iterations: int = 0
    """How many model calls the run itself made, in all attempts."""
    calls: int = 0
    """How many tool calls the run itself made; output and submit are not counted."""
    latency_s: float = 0.0
    """How long it took, in seconds."""
    children: tuple[ChildRecord, ...] = ()
    """The runs that it started in turn."""


@lazy_dataclass(frozen=True, kw_only=True)
class Metadata:
    """The usage, time, attempts and tool calls of a run, in the same form on success and on failure."""

    usage: Usage | None
    """All requests of all attempts and children; None when the agent does not track tokens."""
    latency_s: float
    """How long the run took, in seconds."""
    agent: str = ""
    """The agent's name."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The attempts, in order."""
    tools: Mapping[str, ToolStats] = field(default_factory=dict[str, ToolStats])
    """By tool name. All names that no tool has are counted together, under `(unknown)`."""
    callback_errors: tuple[CallbackError, ...] = ()
    """What callbacks and listeners raised."""
    children: tuple[ChildRecord, ...] = ()
    """The runs that this one started, in the order in which they began; not those in the background."""
    overshoot_tokens: int = 0
    """Tokens that responses reported beyond what a token budget had reserved for them."""
    overshoot_cost: float = 0.0
    """US dollars that responses cost beyond what a budget of cost had reserved for them."""
    background_usage: Usage | None = NOTHING_USED
    """What background sub-agents of this run, and of the runs below it, have used by its end. `usage` does not include
    it, but this run's budget counts both. None when the agent does not track tokens."""

    @property
    def n_calls(self) -> int:
        """The number of the run's own tool calls, refused ones included; output and submit are not counted."""
        return sum([stats.calls for stats in self.tools.values() if stats.kind in COUNTED])

    @property
    def cost(self) -> float | None:
        """US dollars of the whole tree: of this run, of all runs below it, and of what runs in the background have used
        by its end. None when the price of any response is not known, or when the agent does not track tokens; 0 when no
        response was counted. `usage.cost` and `background_usage.cost` are the parts."""
        if self.usage is None or self.background_usage is None:
            return None
        usage = self.usage + self.background_usage
        return usage.cost if usage.requests else 0.0

    def __str__(self) -> str:
        """Say on one line what the run took: attempts, iterations, calls, tokens, cost and time."""
        attempts, cost = len(self.attempts), self.cost
        iterations = sum([record.iterations for record in self.attempts])
        tokens = "tokens not counted" if self.usage is None else str(self.usage).rpartition(", ")[0]
        told = [count(attempts, "attempt"), count(iterations, "iteration"), count(self.n_calls, "call"), tokens]
        money = [] if self.usage is None else ["cost unknown" if cost is None else f"${cost:.4f}"]
        return ", ".join([*told, *money, f"{self.latency_s:.1f} s"])


@lazy_dataclass(frozen=True, kw_only=True)
class Success(Generic[Out]):
    """The output passed every check."""

    output: Out
    """The output that passed every check."""
    metadata: Metadata
    history: tuple[Message, ...] = field(repr=False)
    """The whole conversation; can be sent, continued or stored."""
    state: object = None
    """What `Agent.final_state` made of the final state, which may be None; `has_state` tells."""
    has_state: bool = False
    """True when there was an `Agent.final_state`."""
    terminal_result: str | None = None
    """The result of the call that ended the run through `Agent.stop_after`."""
    output_type: Any = field(default=None, repr=False, compare=False)
    """The type of `Agent.output`, by which `to_json` writes the output; None for a text."""

    @property
    def code(self) -> Literal["SUCCESS"]:
        """The word of the document for a success; a failure has its `ErrorCode` here."""
        return "SUCCESS"

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(missing_attribute(self, "Success", name), name=name, obj=self)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the document of the result, the same as `journeyman run --json` prints."""
        return _to_json(self, plain_output(self.output, self.output_type), indent)

    def __str__(self) -> str:
        """Say in two lines what was handed in and what it took. The text is bounded, and has no characters that control
        a terminal."""
        output = self.output if isinstance(self.output, str) else plain_output(self.output, self.output_type)
        return _summary(self, output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))

    def unwrap(self) -> Out:
        """Return the output."""
        return self.output

    def unwrap_or(self, default: object) -> Out:
        """Return the output."""
        return self.output

    def map(self, change: Callable[[Out], Other]) -> Success[Other]:
        """Return the same success with `change(output)` as its output."""
        return Success(
            output=change(self.output),
            metadata=self.metadata,
            history=self.history,
            state=self.state,
            has_state=self.has_state,
            terminal_result=self.terminal_result,
        )


@lazy_dataclass(frozen=True, kw_only=True)
class Failure:
    """The run ended without an output that passed; `error` says why."""

    error: ErrorInfo
    """Why the run failed."""
    metadata: Metadata
    history: tuple[Message, ...] = field(repr=False)
    """The conversation so far; can be sent, continued or stored."""
    candidate: JsonObject | str | None = None
    """The last output proposed: the arguments as the model gave them, or its text. None when there was none."""
    answer: str | None = None
    """The model's last words in this run, also those of an answer that broke off or was aborted. None: it said none."""
    report: ValidationReport | None = None
    """What validation last said; None when it never ran."""

    @property
    def code(self) -> ErrorCode:
        return self.error.code

    @property
    def phase(self) -> Phase:
        return self.error.phase

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            ended = f"The run has no output, since it ended as {self.error}" if name == "output" else ""
            raise AttributeError(missing_attribute(self, "Failure", name, ended), name=name, obj=self)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the document of the result, the same as `journeyman run --json` prints."""
        return _to_json(self, None, indent)

    def __str__(self) -> str:
        """Say in two lines why the run failed and what it took. The text is bounded, and has no characters that control
        a terminal."""
        return _summary(self, join_sentences(self.error.message, self.error.hint))

    def unwrap(self) -> NoReturn:
        """Raise.

        Raises:
            RunError: always; its `failure` is this.
        """
        raise RunError(join_sentences(str(self.error), self.error.hint), self) from self.error.cause

    def unwrap_or(self, default: Other) -> Other:
        """Return `default`."""
        return default

    def map(self, change: Callable[..., object]) -> Failure:
        """Return this."""
        return self


def fail_before_start(context: Context) -> Failure:
    """Return the end of a run that did not begin."""
    return Failure(error=ErrorInfo(context), metadata=Metadata(usage=NOTHING_USED, latency_s=0.0), history=())


@lazy_dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call of an external tool that waits for its result."""

    id: str
    """The id under which its result is given. In a run below: with the names of the runs on the way in front."""
    tool_name: str
    arguments: JsonObject
    """As the model gave them; they fit the schema."""
    path: tuple[str, ...] = ()
    """The run that calls, from the root down."""


@lazy_dataclass(frozen=True, kw_only=True)
class AskedQuestion:
    """A question that waits for an answer: whether a call may happen, or what a tool wants to know."""

    id: str
    """The id under which it is answered: that of the call."""
    kind: Literal["approve", "answer"]
    """Answered with a decision, such as `Allow()`, or with a text."""
    question: str
    """What is asked, in words."""
    options: tuple[str, ...] = ()
    """Answers that the model offers; another one may be given."""
    tool_name: str = ""
    """The tool that is to be called; empty for a question of the model's."""
    arguments: JsonObject | None = None
    """Those of that call."""


@lazy_dataclass(frozen=True, kw_only=True)
class Pending:
    """A run that waits for those outside. Only a run that was told not to wait returns one.

    It goes on with answers: `run(agent, pending, results={id: …}, wait=False)`.
    """

    calls: tuple[PendingCall, ...] = ()
    """The calls of external tools, in order."""
    questions: tuple[AskedQuestion, ...] = ()
    """What is asked."""
    history: tuple[Message, ...] = field(default=(), repr=False)
    """The conversation so far, up to the message with the calls that wait."""
    steps: Any = field(default=None, repr=False, compare=False)
    """What the run has done; it goes on from there. None: it goes on by itself, as a durable run."""


Result: TypeAlias = Success[Out] | Failure
"""How a run ends."""


def _summary(result: Result[Any], text: str) -> str:
    agent = f"{result.metadata.agent}: " if result.metadata.agent else ""
    shown = visible_json(shorten_line(text, _SHOWN_CHARS))
    return f"{result.code} {agent}{shorten(shown, _SHOWN_CHARS)}\n{result.metadata}"


def plain_output(output: object, kind: Any) -> JsonValue:  # noqa: ANN401 - any type there is
    """Return an output as plain JSON values: as its type `kind` writes it, or by itself if that is None."""
    is_text: bool = kind is str
    if is_text and type(output) is str and output.isascii():
        return output
    try:
        if kind is None:
            return to_jsonable_python(output, fallback=repr)
        return from_json(adapter_of(kind).dump_json(output, by_alias=True, warnings=False, fallback=repr))
    except (PydanticSchemaGenerationError, PydanticSerializationError, ValueError, TypeError, AttributeError):
        return repr(output)


def _to_json(result: Result[Any], output: JsonValue, indent: int | None) -> str:
    document = result_document(result, agent=result.metadata.agent, output=output)
    return dump_document(document, indent=indent).decode()


def result_document(result: Result[Any], *, agent: str, output: JsonValue) -> dict[str, object]:
    """Return the document of a result: the object that `dump_document` writes as JSON.

    `docs/result-document.schema.json` says what is in it. `agent` is the agent's name, and `output` is what it handed
    in, in plain JSON values.
    """
    error, metadata = result.error if isinstance(result, Failure) else None, result.metadata
    return {
        "version": 1,
        "agent": agent,
        "code": "SUCCESS" if error is None else error.code,
        "output": output if error is None else None,
        "error": None if error is None else _error_document(error),
        "candidate": result.candidate if isinstance(result, Failure) else None,
        "answer": result.answer if isinstance(result, Failure) else None,
        "state": result.state if isinstance(result, Success) else None,
        "terminal_result": result.terminal_result if isinstance(result, Success) else None,
        "usage": _usage_document(metadata.usage),
        "background_usage": _usage_document(metadata.background_usage),
        "cost": metadata.cost,
        "overshoot_tokens": metadata.overshoot_tokens,
        "overshoot_cost": metadata.overshoot_cost,
        "latency_s": metadata.latency_s,
        "attempts": [_attempt_document(record) for record in metadata.attempts],
        "tools": {name: fields_of(stats) for name, stats in metadata.tools.items()},
        "children": [_child_document(record) for record in metadata.children],
        "callback_errors": [
            f"{each.callback}: {type(each.error).__name__}: {each.error}" for each in metadata.callback_errors
        ],
        "history": adapter_of(tuple[Message, ...]).dump_python(result.history, mode="json", fallback=repr),
    }


_JSON_ALONE: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""It takes a third of the time that pydantic does, and writes other types in its own way."""


def dump_document(document: Mapping[str, object], *, indent: int | None = None) -> bytes:
    """Return the document as JSON. What has no JSON becomes its `repr`, and a number that is none becomes null."""
    if indent is None:
        with suppress(TypeError):  # it holds more than JSON's own types, which pydantic writes, or their `repr`
            return orjson.dumps(document, option=_JSON_ALONE)
    try:
        return to_json(document, indent=indent, fallback=repr, inf_nan_mode="null")
    except PydanticSerializationError:  # half of a surrogate pair, which UTF-8 cannot hold
        plain: object = to_jsonable_python(document, fallback=repr)
        return json.dumps(plain, indent=indent, ensure_ascii=False).encode("utf-8", "replace")


def _error_document(ending: ErrorInfo) -> dict[str, object]:
    return {
        "code": ending.code,
        "category": ending.category,
        "message": ending.message,
        "hint": ending.hint,
        "phase": ending.phase,
        "context": {"attempt": ending.attempt, "iteration": ending.iteration, **asdict(ending.context)},
    }


def _usage_document(usage: Usage | None) -> dict[str, object] | None:
    return None if usage is None else {**fields_of(usage), "total_tokens": usage.total_tokens}


def _attempt_document(record: AttemptRecord) -> dict[str, object]:
    layers = (
        None
        if record.report is None
        else [
            {"name": each.name, "kind": each.kind, "passed": each.passed, "feedback": each.feedback}
            for each in record.report.layers
        ]
    )
    usage = _usage_document(record.usage)
    return {"number": record.number, "iterations": record.iterations, "usage": usage, "layers": layers}


def _child_document(record: ChildRecord) -> dict[str, object]:
    below = [_child_document(child) for child in record.children]
    return {**fields_of(record), "usage": _usage_document(record.usage), "children": below}

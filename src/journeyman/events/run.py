"""The events of a run, one frozen class for each."""

from __future__ import annotations

from typing import Literal, TypeVar, overload

from typing_extensions import TypeForm

from journeyman.definition.data import lazy_dataclass
from journeyman.endings import ErrorInfo
from journeyman.events.partials import read_object, read_value
from journeyman.hosted.calls import HostedCall
from journeyman.result import LayerOutcome, Metadata, ToolKind
from journeyman.types import JsonObject, Message, RefusalCause, RunPath, StopReason, Usage, adapter_of

T = TypeVar("T")


@lazy_dataclass(frozen=True, kw_only=True)
class RunStarted:
    """The first event of a run. Exactly one `RunSucceeded` or `RunFailed` follows as its last, unless the surrounding
    task is cancelled."""

    path: RunPath
    agent: str
    """The agent's name."""
    model: str
    """`provider:name`, or the name that could not be resolved."""
    max_attempts: int
    max_iterations: int
    tool_use_id: str | None = None
    """For a sub-agent: the call, of the run above, that delegated to it."""
    mode: str | None = None
    """For a sub-agent: `single`, `parallel`, `chain` or `background`; for a run of a batch: `batch`."""
    description: str = ""
    """The agent's description."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunResumed:
    """A run goes on where its journal ends. It stands where `RunStarted` stands for a new one; what happened before was
    told in an earlier life, so an attempt, an iteration and calls may be under way."""

    path: RunPath
    attempt: int
    """From 1; 0 before the first."""
    iteration: int
    usage: Usage
    """Of all that is not done again."""
    description: str = ""
    """The agent's description."""


@lazy_dataclass(frozen=True, kw_only=True)
class MessageCommitted:
    """A message became part of the history, the initial prompt included. In the order of the history.

    The user's last message may grow until the model answers it: it is then told again, under the same index.
    """

    path: RunPath
    message: Message
    """The message as it stands in the history."""
    index: int = 0
    """Its place in the history, from 0."""


@lazy_dataclass(frozen=True, kw_only=True)
class AttemptStarted:
    """Before anything of this attempt. One `AttemptCompleted` follows on every path."""

    path: RunPath
    attempt: int


@lazy_dataclass(frozen=True, kw_only=True)
class IterationStarted:
    """Before the model call of this iteration."""

    path: RunPath
    attempt: int
    iteration: int


@lazy_dataclass(frozen=True, kw_only=True)
class TextDelta:
    """A piece of the model's text, between `IterationStarted` and `ModelResponded`."""

    path: RunPath
    text: str
    """The new piece."""


@lazy_dataclass(frozen=True, kw_only=True)
class ThinkingDelta:
    """A piece of the model's reasoning, between `IterationStarted` and `ModelResponded`."""

    path: RunPath
    text: str
    """The new piece."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolInputDelta:
    """A piece of the arguments of a call that the model is still writing. JSON text, cut anywhere."""

    path: RunPath
    tool_use_id: str
    tool_name: str
    json: str
    """The new piece."""


@lazy_dataclass(frozen=True, kw_only=True)
class OutputDelta:
    """The output as far as the model has written it. Comes instead of `ToolInputDelta` for the output tool, and instead
    of `TextDelta` for a native output, and for the JSON of a prompted one."""

    path: RunPath
    tool_use_id: str
    """Empty for an output without a tool."""
    json: str
    """Everything so far, not just the new piece."""
    is_wrapped: bool = False
    """True when the output's type is no object: it stands in the property `value`."""
    tool_name: str = ""
    """The tool, by which the members of a `OneOf` are told apart; empty for an output without a tool."""

    @overload
    def partial(self, /) -> JsonObject: ...
    @overload
    def partial(self, kind: TypeForm[T], /) -> T | None: ...
    def partial(self, kind: TypeForm[T] | None = None, /) -> JsonObject | T | None:
        """Parse what is there: a growing object, strings cut where they are. Not validated.

        Of a type, return a value of that type, checked by Pydantic; None as long as what is there does not make one.
        What is cut and does not fit yet is left out, from the innermost list or object outwards. A string is shown
        while it grows if any words may follow, and a number once it has ended. A model or dataclass is there when all
        its required fields are, and it stays there.
        """
        if kind is None:
            return read_object(self.json)
        return read_value(self.json, adapter_of(kind), is_wrapped=self.is_wrapped)


@lazy_dataclass(frozen=True, kw_only=True)
class ModelRetried:
    """A request failed; another follows after `delay_s` seconds. Comes before the wait."""

    path: RunPath
    attempt: int
    iteration: int
    request: int
    """The number of the request that failed, from 1."""
    max_requests: int
    """How many requests may be made for one response."""
    delay_s: float
    """How long it waits before the next, in seconds."""
    kind: str
    """How the request failed."""
    message: str
    """What the provider said, or what broke."""


@lazy_dataclass(frozen=True, kw_only=True)
class ModelRestarted:
    """The call starts again: forget the deltas since `IterationStarted`."""

    path: RunPath
    attempt: int
    iteration: int


@lazy_dataclass(frozen=True, kw_only=True)
class ModelAnswered:
    """One of several models was found that answers; sent before the deltas of its answer."""

    path: RunPath
    provider: str
    """The provider of the model that answers."""
    model: str
    """The name of the model that answers."""


@lazy_dataclass(frozen=True, kw_only=True)
class ModelResponded:
    """The response is complete; before any of its calls."""

    path: RunPath
    attempt: int
    iteration: int
    stop_reason: StopReason
    """Why the model stopped."""
    text: str
    """The text of the response; empty when it only calls tools."""
    usage: Usage
    """Of this iteration's model call, failed requests included."""
    model: str
    """The model that answered, as its provider names it."""


@lazy_dataclass(frozen=True, kw_only=True)
class HostedToolRan:
    """The provider ran one of its own tools within a response: after its `ModelResponded`, in order, and before the
    calls of tools that are yours. Told with the result, which may be one pause later than the call."""

    path: RunPath
    attempt: int
    iteration: int
    call: HostedCall
    """The call with its result."""


@lazy_dataclass(frozen=True, kw_only=True)
class CompactionStep:
    """The outcome of one strategy that was tried for a `ContextCompacted`."""

    strategy: str
    """The name of the strategy."""
    saved_tokens: int
    """About so many; 0 when its view was not used."""
    error: str | None
    """Why it made no view, or why that could not be sent."""


@lazy_dataclass(frozen=True, kw_only=True)
class ContextCompacted:
    """Compaction tried to shorten what is sent of the conversation; before the deltas of the request that it is for.

    It had no effect when `after_tokens` is `before_tokens`: the steps say why.
    """

    path: RunPath
    attempt: int
    iteration: int
    reason: Literal["threshold", "overflow", "breaker", "asked"]
    """It was longer than the threshold; the provider said so; it was left out this time, because it had failed three
    times in a row; or `Chat.compact` asked for it."""
    before_tokens: int
    """The size of the request, about; in tokens."""
    after_tokens: int
    """The size of what is sent instead, about; in tokens."""
    steps: tuple[CompactionStep, ...]
    """What the strategies did, in order, as far as they were asked."""
    usage: Usage
    """Of the model calls that the strategies made. Not in any `ModelResponded`, but in the usage of the run."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolCalled:
    """Before the call, in call order: exactly one for each `tool_use` block of a response that asks for calls."""

    path: RunPath
    attempt: int
    iteration: int
    tool_use_id: str
    tool_name: str
    kind: ToolKind
    """What the call is: of a tool, of output, of submit, or of a name that no tool has."""
    tool_input: JsonObject
    """What the model wrote as arguments, parsed."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolProgress:
    """A running tool reported its progress; between its `ToolCalled` and `ToolFinished`."""

    path: RunPath
    tool_use_id: str
    tool_name: str
    message: str
    """What the tool says."""
    fraction: float | None
    """How much is done, 0 to 1; None when unknown."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolFinished:
    """After the call, as it happens: exactly one for each `ToolCalled`, unless the run is cancelled from outside. The
    terminator's comes after validation."""

    path: RunPath
    attempt: int
    iteration: int
    tool_use_id: str
    tool_name: str
    kind: ToolKind
    """What the call was: of a tool, of output, of submit, or of a name that no tool has."""
    tool_result: str
    """The text that the model gets."""
    is_error: bool
    """Whether the call failed: the text then says why."""
    cached: bool
    """Whether the result is that of an earlier call."""
    duration_s: float
    """How long the call took, in seconds."""


@lazy_dataclass(frozen=True, kw_only=True)
class SandboxRefused:
    """The sandbox refused something to a command of a running tool, or put aside a file that it had made; between its
    `ToolCalled` and `ToolFinished`. Of a command in the background it is told when that has ended."""

    path: RunPath
    tool_use_id: str
    tool_name: str
    sandbox: str
    """The name of the sandbox, such as `bubblewrap`."""
    cause: RefusalCause
    """The kind of what was refused."""
    what: str
    """The path, the program or the host."""
    need: str | None
    """The need with which it may be asked for, such as `host:packages.example`; None: it cannot be had."""


@lazy_dataclass(frozen=True, kw_only=True)
class CallAbandoned:
    """A call was stopped and would not end: a sync tool in its thread, told at once; what swallows its cancellation,
    told after `Runtime.grace_s`. Its late result is dropped."""

    path: RunPath
    tool_use_id: str | None
    """None: no tool, but the model's client or another function of the caller's."""
    tool_name: str | None


@lazy_dataclass(frozen=True, kw_only=True)
class LayerStarted:
    """Before a validation layer. One `LayerCompleted` follows; after one that did not pass comes no other layer."""

    path: RunPath
    attempt: int
    name: str
    """The name of the layer."""
    description: str
    """What it checks, in words."""
    kind: str
    """`schema`: the output's type; `validator`: one of the agent's functions, or what looks at a draft."""


@lazy_dataclass(frozen=True, kw_only=True)
class LayerCompleted:
    """After a validation layer."""

    path: RunPath
    attempt: int
    outcome: LayerOutcome
    """Whether it passed, and what it found."""


@lazy_dataclass(frozen=True, kw_only=True)
class ValidationFailed:
    """After the layers, when one did not pass; before the terminator's `ToolFinished`."""

    path: RunPath
    attempt: int
    feedback: str
    """What the model reads."""


@lazy_dataclass(frozen=True, kw_only=True)
class AttemptCompleted:
    """The last event of an attempt; before the next `AttemptStarted`."""

    path: RunPath
    attempt: int
    succeeded: bool
    """Whether its output passed every check."""


@lazy_dataclass(frozen=True, kw_only=True)
class RecordingEnded:
    """The store cannot be written any more, so nothing of what follows is recorded. The run goes on."""

    path: RunPath
    reason: str
    """Why nothing more is recorded."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunSucceeded:
    """The last event of a run that succeeded."""

    path: RunPath
    output: object
    """The output that passed every check."""
    metadata: Metadata


@lazy_dataclass(frozen=True, kw_only=True)
class RunFailed:
    """The last event of a run that failed."""

    path: RunPath
    error: ErrorInfo
    """Why the run failed."""
    metadata: Metadata

"""Events: everything that can be seen of runs, durable or not, batches, chats, tasks and teams, and who is told.

Every event names the run it belongs to by `path`. The docstring of each class is its promise about order. A `Listener`
gets every event and is never awaited; `Callbacks` get the lifecycle and the calls and are awaited in place. Neither can
break a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.faces import refuse_name
from journeyman.endings import ErrorInfo
from journeyman.events.batch import BatchEvent, BatchPaused, InputFinished
from journeyman.events.chat import (
    ApprovalAnswered,
    ApprovalRequested,
    DecisionWord,
    QuestionAnswered,
    QuestionAsked,
    TurnEnded,
)
from journeyman.events.durable import (
    DurableEvent,
    RunClaimed,
    RunClaimLost,
    RunNeedsAttention,
    RunQueued,
    RunSuspended,
    RunWoken,
    StepStored,
)
from journeyman.events.json_form import to_json
from journeyman.events.noted import (
    ApproverAnswered,
    CallOutcome,
    GateDecided,
    Input,
    NotedEvent,
    OutputModeChosen,
    SignalOutcome,
    SignalTaken,
    StepRecalled,
    Target,
    ToolsDiffer,
)
from journeyman.events.run import (
    AttemptCompleted,
    AttemptStarted,
    CallAbandoned,
    CompactionStep,
    ContextCompacted,
    HostedToolRan,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    MessageCommitted,
    ModelAnswered,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    RecordingEnded,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSucceeded,
    SandboxRefused,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    ToolInputDelta,
    ToolProgress,
    ValidationFailed,
)
from journeyman.events.task import (
    PREFIXES,
    Delivery,
    Identity,
    MemberStatus,
    TaskEnded,
    TaskEvent,
    TaskInfo,
    TaskKind,
    TaskMessaged,
    TaskStarted,
    TaskStatus,
)
from journeyman.events.team import (
    DeadLetter,
    DeadLetterReason,
    MailDelivered,
    MailKind,
    MailReturned,
    MailSent,
    MemberChanged,
    TeamMessage,
)
from journeyman.result import LayerOutcome, ToolKind
from journeyman.types import JsonObject, RunPath

__all__ = [
    "PREFIXES",
    "ApprovalAnswered",
    "ApprovalRequested",
    "ApproverAnswered",
    "AttemptCompleted",
    "AttemptStarted",
    "BatchEvent",
    "BatchPaused",
    "CallAbandoned",
    "CallOutcome",
    "CallbackContext",
    "Callbacks",
    "CompactionStep",
    "ContextCompacted",
    "DeadLetter",
    "DeadLetterReason",
    "DecisionWord",
    "Delivery",
    "DurableEvent",
    "Event",
    "GateDecided",
    "HostedToolRan",
    "Identity",
    "Input",
    "InputFinished",
    "IterationStarted",
    "LayerCompleted",
    "LayerStarted",
    "Listener",
    "MailDelivered",
    "MailKind",
    "MailReturned",
    "MailSent",
    "MemberChanged",
    "MemberStatus",
    "MessageCommitted",
    "ModelAnswered",
    "ModelResponded",
    "ModelRestarted",
    "ModelRetried",
    "NotedEvent",
    "OutputDelta",
    "OutputModeChosen",
    "QuestionAnswered",
    "QuestionAsked",
    "RecordingEnded",
    "RunClaimLost",
    "RunClaimed",
    "RunFailed",
    "RunNeedsAttention",
    "RunQueued",
    "RunResumed",
    "RunStarted",
    "RunSucceeded",
    "RunSuspended",
    "RunWoken",
    "SandboxRefused",
    "SignalOutcome",
    "SignalTaken",
    "SinkEvent",
    "StepRecalled",
    "StepStored",
    "Target",
    "TaskEnded",
    "TaskEvent",
    "TaskInfo",
    "TaskKind",
    "TaskMessaged",
    "TaskStarted",
    "TaskStatus",
    "TeamMessage",
    "TextDelta",
    "ThinkingDelta",
    "ToolCalled",
    "ToolFinished",
    "ToolInputDelta",
    "ToolProgress",
    "ToolsDiffer",
    "TurnEnded",
    "ValidationFailed",
    "to_json",
]

_RunEvent: TypeAlias = RunStarted | RunResumed | MessageCommitted | RecordingEnded | RunSucceeded | RunFailed
_AttemptEvent: TypeAlias = AttemptStarted | IterationStarted | ContextCompacted | AttemptCompleted
_Delta: TypeAlias = TextDelta | ThinkingDelta | ToolInputDelta | OutputDelta
_ModelEvent: TypeAlias = ModelRetried | ModelRestarted | ModelAnswered | ModelResponded | HostedToolRan
_CallEvent: TypeAlias = ToolCalled | ToolProgress | SandboxRefused | ToolFinished | CallAbandoned
_LayerEvent: TypeAlias = LayerStarted | LayerCompleted | ValidationFailed
_ChatEvent: TypeAlias = ApprovalRequested | ApprovalAnswered | QuestionAsked | QuestionAnswered | TurnEnded
_TeamEvent: TypeAlias = MailSent | MailDelivered | MailReturned | MemberChanged
_InRun: TypeAlias = _RunEvent | _AttemptEvent | _Delta | _ModelEvent | _CallEvent | _LayerEvent

Event: TypeAlias = _InRun | DurableEvent | BatchEvent | _ChatEvent | TaskEvent | _TeamEvent
"""Anything that a listener may be given."""

SinkEvent: TypeAlias = Event | NotedEvent
"""Anything that a `RecordingSink` may be given."""

Listener: TypeAlias = Callable[[Event], None]
"""Gets every event, synchronously, in order. Must be quick. One that raises is recorded and goes on being told."""


@lazy_dataclass(frozen=True, kw_only=True)
class CallbackContext:
    """A snapshot of where a run stands; each call of a callback gets one of its own."""

    path: RunPath
    attempt: int
    """0 before the first attempt."""
    max_attempts: int
    iteration: int
    """0 before the first iteration of the attempt."""
    max_iterations: int
    tool_use_id: str | None = None
    kind: ToolKind | None = None
    """What the call is, for `on_tool_call` and `on_tool_result`; None elsewhere."""
    is_error: bool | None = None
    """For `on_tool_result`: whether the call failed; None elsewhere."""
    cached: bool | None = None
    """For `on_tool_result`: whether the result is that of an earlier call; None elsewhere."""


@lazy_dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions to call at the steps of a run, sync or async; an awaitable is awaited in place.

    They fire on the lifecycle and on calls, not on deltas. One that raises is recorded in `Metadata.callback_errors`
    and never breaks the run. Exactly one of `on_success` and `on_failure` fires, last, on every path that returns.
    """

    on_run_start: Callable[[CallbackContext], object] | None = None
    """Called before anything of the run."""
    on_attempt_start: Callable[[CallbackContext], object] | None = None
    """Called before anything of an attempt."""
    on_attempt_complete: Callable[[CallbackContext, bool], object] | None = None
    """Gets whether the attempt succeeded."""
    on_iteration_start: Callable[[CallbackContext], object] | None = None
    """Called before each model call."""
    on_model_response: Callable[[CallbackContext, ModelResponded], object] | None = None
    """Gets the response, before any of its calls."""
    on_tool_call: Callable[[CallbackContext, str, JsonObject], object] | None = None
    """Gets the tool's name and its input (a copy of its own)."""
    on_tool_result: Callable[[CallbackContext, str, str], object] | None = None
    """Gets the tool's name and the text that the model gets."""
    on_layer_start: Callable[[CallbackContext, str], object] | None = None
    """Gets the layer's name."""
    on_layer_complete: Callable[[CallbackContext, LayerOutcome], object] | None = None
    """Gets what came of the layer."""
    on_validation_failure: Callable[[CallbackContext, str], object] | None = None
    """Gets the feedback."""
    on_success: Callable[[CallbackContext, object], object] | None = None
    """Gets the output."""
    on_failure: Callable[[CallbackContext, ErrorInfo], object] | None = None
    """Gets why the run failed."""


if not TYPE_CHECKING:
    __getattr__ = partial(refuse_name, __name__)

CALLBACKS: Final[Mapping[str, tuple[int, str]]] = {
    "on_run_start": (1, "a CallbackContext"),
    "on_attempt_start": (1, "a CallbackContext"),
    "on_attempt_complete": (2, "a CallbackContext and whether the attempt succeeded"),
    "on_iteration_start": (1, "a CallbackContext"),
    "on_model_response": (2, "a CallbackContext and the ModelResponded"),
    "on_tool_call": (3, "a CallbackContext, the tool's name and its input"),
    "on_tool_result": (3, "a CallbackContext, the tool's name and its result"),
    "on_layer_start": (2, "a CallbackContext and the layer's name"),
    "on_layer_complete": (2, "a CallbackContext and the LayerOutcome"),
    "on_validation_failure": (2, "a CallbackContext and the feedback"),
    "on_success": (2, "a CallbackContext and the output"),
    "on_failure": (2, "a CallbackContext and the ErrorInfo"),
}
"""With how many arguments each callback is called, and which."""

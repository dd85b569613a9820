"""Why a run fails: a closed set of endings.

Every ending has a frozen context class of its own, and the code follows from the class, so that a code can never carry
another ending's facts. Imports `errors` and `types`. Read `result.py` next: it carries an ending to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, TypeAlias

from journeyman.errors import ProviderErrorKind
from journeyman.types import StopReason

Phase: TypeAlias = Literal["prompt_generation", "iteration", "validation"]
"""Where a run was when it ended. `iteration` lasts from the first call of an attempt until its output is extracted."""


class ErrorCode(StrEnum):
    """Every way in which a run can fail."""

    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    INVALID_INPUT = "INVALID_INPUT"
    PROMPT_GENERATION_FAILED = "PROMPT_GENERATION_FAILED"
    API_ERROR = "API_ERROR"
    RATE_LIMIT_ERROR = "RATE_LIMIT_ERROR"
    CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW"
    TOKEN_LIMIT_EXCEEDED = "TOKEN_LIMIT_EXCEEDED"
    MODEL_REFUSED = "MODEL_REFUSED"
    INVALID_RESPONSE = "INVALID_RESPONSE"
    SUBMIT_BEFORE_OUTPUT = "SUBMIT_BEFORE_OUTPUT"
    MAX_ITERATIONS = "MAX_ITERATIONS"
    MAX_ATTEMPTS_EXCEEDED = "MAX_ATTEMPTS_EXCEEDED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    STATE_PROJECTION_FAILED = "STATE_PROJECTION_FAILED"
    STOP_GUARD = "STOP_GUARD"
    EXECUTION_CANCELLED = "EXECUTION_CANCELLED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


Category: TypeAlias = Literal["definition", "model", "limit", "validation", "execution"]


# -- one context class for each code ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnavailableContext:
    """No model answers to that name, or its key is missing. No request was made."""

    code: ClassVar = ErrorCode.MODEL_UNAVAILABLE
    category: ClassVar[Category] = "model"
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidInputContext:
    """The input does not fit the agent's input type. No request was made."""

    code: ClassVar = ErrorCode.INVALID_INPUT
    category: ClassVar[Category] = "definition"
    issues: tuple[str, ...]
    """One line for each fault, with its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """A prompt function raised, or gave nothing that can be sent."""

    code: ClassVar = ErrorCode.PROMPT_GENERATION_FAILED
    category: ClassVar[Category] = "execution"
    prompt: Literal["system", "user", "error"]
    reason: str
    attempt: int
    """0 for the system and user prompts, which are built before the first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiErrorContext:
    """A model call failed, after the retries."""

    code: ClassVar = ErrorCode.API_ERROR
    category: ClassVar[Category] = "model"
    kind: ProviderErrorKind
    message: str
    status: int | None
    type: str | None
    request_id: str | None
    retry_after_s: float | None
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitContext:
    """The provider's rate limit held on, after the retries."""

    code: ClassVar = ErrorCode.RATE_LIMIT_ERROR
    category: ClassVar[Category] = "model"
    message: str
    status: int | None
    request_id: str | None
    retry_after_s: float | None
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowContext:
    """The conversation no longer fits the model's window, and could not be made to fit."""

    code: ClassVar = ErrorCode.CONTEXT_OVERFLOW
    category: ClassVar[Category] = "model"
    message: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedContext:
    """A response was cut by `max_tokens` or by the window. Its calls were not run."""

    code: ClassVar = ErrorCode.TOKEN_LIMIT_EXCEEDED
    category: ClassVar[Category] = "limit"
    stop_reason: StopReason
    max_tokens: int | None
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedContext:
    """The model refused. Its calls, if any, were not run."""

    code: ClassVar = ErrorCode.MODEL_REFUSED
    category: ClassVar[Category] = "model"
    refusal: str | None
    """The provider's category of the refusal, when it gives one."""
    text: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidResponseContext:
    """The response neither called a tool nor gave the output that was asked for."""

    code: ClassVar = ErrorCode.INVALID_RESPONSE
    category: ClassVar[Category] = "model"
    stop_reason: StopReason
    stop_detail: str | None
    expected_tool: str | None
    """The tool that would have ended the attempt; None for an agent that answers with text."""
    has_draft: bool
    """True when an output was proposed but never submitted."""
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitContext:
    """Submit was called before any output was proposed in this attempt."""

    code: ClassVar = ErrorCode.SUBMIT_BEFORE_OUTPUT
    category: ClassVar[Category] = "model"
    output_tool: str
    submit_tool: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationsContext:
    """The attempt used all its iterations without handing in an output."""

    code: ClassVar = ErrorCode.MAX_ITERATIONS
    category: ClassVar[Category] = "limit"
    attempt: int
    iteration_count: int
    max_iterations: int
    has_draft: bool
    """True when an output was proposed but never submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsContext:
    """The last allowed attempt's output was rejected."""

    code: ClassVar = ErrorCode.MAX_ATTEMPTS_EXCEEDED
    category: ClassVar[Category] = "validation"
    attempts: int
    max_attempts: int
    last_error: str
    """The feedback on the last output, whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetContext:
    """A budget policy ended the run."""

    code: ClassVar = ErrorCode.BUDGET_EXCEEDED
    category: ClassVar[Category] = "limit"
    policy: str
    """`tokens`, `cost`, `seconds`, `calls`, or the name of the user's policy."""
    limit: float
    used: float
    scope: str
    """Whose budget it is: `run`, `attempt`, or the name of the agent above whose budget this run draws on."""
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """A validator is wrong itself (it changed the output, or returned a value). A bug of the program, not of the
    model, so no new attempt is made."""

    code: ClassVar = ErrorCode.VALIDATION_FAILED
    category: ClassVar[Category] = "validation"
    layer: str
    reason: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionContext:
    """The function that projects the final state raised."""

    code: ClassVar = ErrorCode.STATE_PROJECTION_FAILED
    category: ClassVar[Category] = "execution"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGuardContext:
    """The stop guard escalated, or raised."""

    code: ClassVar = ErrorCode.STOP_GUARD
    category: ClassVar[Category] = "execution"
    reason: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledContext:
    """The caller's `Abort` fired."""

    code: ClassVar = ErrorCode.EXECUTION_CANCELLED
    category: ClassVar[Category] = "execution"
    reason: str
    doing: str
    """What was going on, for example `calling the model`."""
    attempt: int
    """0 before the first attempt."""
    iteration: int
    """0 before the first iteration of the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalContext:
    """Code around the loop raised: a state function, a journal, a model that broke its contract, or this library."""

    code: ClassVar = ErrorCode.INTERNAL_ERROR
    category: ClassVar[Category] = "execution"
    where: str
    error: str
    """Class and message of the exception."""


Context: TypeAlias = (
    ModelUnavailableContext
    | InvalidInputContext
    | PromptContext
    | ApiErrorContext
    | RateLimitContext
    | OverflowContext
    | TruncatedContext
    | RefusedContext
    | InvalidResponseContext
    | SubmitContext
    | IterationsContext
    | AttemptsContext
    | BudgetContext
    | ValidationContext
    | ProjectionContext
    | StopGuardContext
    | CancelledContext
    | InternalContext
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a run failed."""

    context: Context
    """The facts, in the class that belongs to the code."""
    message: str
    """What happened, with the values."""
    hint: str
    """What to do about it."""
    phase: Phase
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception behind it, if there was one."""

    @property
    def code(self) -> ErrorCode:
        return self.context.code

    @property
    def category(self) -> Category:
        return self.context.category

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

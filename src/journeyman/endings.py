"""The reasons for which a run fails: a closed set of classes, each with its facts, its message and its hint.

The code follows from the class, so that a code can never carry another's facts. Where the run was when it ended is in
`ErrorInfo.place`, not in the facts.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, assert_never

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import ModelUnavailable, ProviderErrorKind, count, shortage
from journeyman.types import StopReason

__all__ = [
    "ApiErrorContext",
    "AttemptsContext",
    "BudgetContext",
    "CancelledContext",
    "Category",
    "Context",
    "InternalContext",
    "InvalidInputContext",
    "InvalidResponseContext",
    "IterationsContext",
    "ModelUnavailableContext",
    "OverflowContext",
    "Phase",
    "Place",
    "ProjectionContext",
    "PromptContext",
    "RateLimitContext",
    "RefusedContext",
    "StopGuardContext",
    "SubmitContext",
    "TruncatedContext",
    "UnusableAnswerContext",
    "ValidationContext",
]

Phase: TypeAlias = Literal["prompt_generation", "iteration", "validation"]
"""Where a run was when it ended. `iteration` lasts from the first call of an attempt until its output is extracted."""


class Place(NamedTuple):
    """The place of a run in its work."""

    attempt: int
    """0 before the first attempt."""
    iteration: int
    """0 before the first iteration of the attempt."""
    phase: Phase
    """What the run was about."""
    doing: str
    """What is going on, for example `calling the model`."""


START: Final = Place(0, 0, "prompt_generation", "building the prompts")
"""Where every run begins."""


class ErrorCode(StrEnum):
    """Every way in which a run can fail."""

    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    """No model answers to the name, its key is missing, or none is set."""
    INVALID_INPUT = "INVALID_INPUT"
    """The input does not fit the agent's input type."""
    PROMPT_GENERATION_FAILED = "PROMPT_GENERATION_FAILED"
    """A prompt function raised, or gave nothing that can be sent."""
    API_ERROR = "API_ERROR"
    """A model call failed, after the retries."""
    RATE_LIMIT_ERROR = "RATE_LIMIT_ERROR"
    """The provider's rate limit held on, after the retries."""
    CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW"
    """The conversation no longer fits the model's window."""
    TOKEN_LIMIT_EXCEEDED = "TOKEN_LIMIT_EXCEEDED"
    """A response was cut by `max_tokens` or by the window."""
    MODEL_REFUSED = "MODEL_REFUSED"
    """The model refused."""
    INVALID_RESPONSE = "INVALID_RESPONSE"
    """The response has neither a call nor the output, or cannot be right."""
    SUBMIT_BEFORE_OUTPUT = "SUBMIT_BEFORE_OUTPUT"
    """The model called submit before it had proposed an output."""
    MAX_ITERATIONS = "MAX_ITERATIONS"
    """The attempt used all its iterations."""
    MAX_ATTEMPTS_EXCEEDED = "MAX_ATTEMPTS_EXCEEDED"
    """The output of the last attempt was rejected."""
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    """A budget policy ended the run."""
    VALIDATION_FAILED = "VALIDATION_FAILED"
    """A validator is wrong itself: a bug of the program, so no new attempt is made."""
    STATE_PROJECTION_FAILED = "STATE_PROJECTION_FAILED"
    """`Agent.final_state` raised."""
    STOP_GUARD = "STOP_GUARD"
    """The stop guard escalated, or raised."""
    EXECUTION_CANCELLED = "EXECUTION_CANCELLED"
    """The caller's abort signal ended the run, or a tool stopped it."""
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """Code around the loop raised: a state function, a journal, a model that broke its contract, or this library."""


Category: TypeAlias = Literal["definition", "model", "limit", "validation", "execution"]
"""What kind of failure an ending is; the first thing to sort failures by."""


_API_HINTS: Final[dict[ProviderErrorKind, str]] = {
    "auth": "Check the API key: the provider does not accept it.",
    "quota": "Check the account's balance and spend limit with the provider.",
    "not_found": "Check the model's name and the base URL.",
    "bad_request": "The message says what has to be changed; the same request will fail again.",
    "content_filtered": "The provider's filter stopped the answer; change the task.",
    "overloaded": "The provider is overloaded; run again later, or raise Limits(request_retries=…).",
    "network": "Check the network, the base URL and the proxy; run again if the fault may pass.",
    "timeout": "The provider took too long; run again, or raise the model's timeout.",
    "stream_idle": "The provider fell silent within its answer; run again, or raise the model's idle timeout.",
    "stream_cut": "The connection broke within an answer; run again, or raise Limits(request_retries=…).",
    "not_recorded": "The cassette holds another conversation: undo the change, or record it again.",
}


def told_reason(reason: StopReason, detail: str | None) -> str:
    """Return why a model stopped: in the provider's word, where there is one; of a stop sequence, which it was."""
    if reason == "stop_sequence" and detail:
        return f"{reason}: {detail}"
    return detail or ("no reason given" if reason == "other" else reason)


CutBy: TypeAlias = Literal["max_tokens", "budget", "window", "service"]
"""The limit that cut a response: its `max_tokens`; a budget that paid for less; the model's window; or, where the
response was shorter than all that is known, a window or a limit that only the service knows."""

_CUT_HINTS: Final[dict[CutBy, str]] = {
    "max_tokens": "Raise ModelSettings(max_tokens=…), or ask for a shorter answer. "
    "Limits(extended_max_tokens=…) repeats "
    "such a call once.",
    "budget": "Raise the limit on tokens or cost, or ask for a shorter answer: a higher max_tokens is not paid for.",
    "window": "Shorten the input, give the agent a compaction strategy, or use a model with a larger window: a higher "
    "max_tokens does not help.",
    "service": "Its window may be full: shorten the input, or raise the service's own limit, such as the context size "
    "of a local server. A higher max_tokens does not help.",
}


@lazy_dataclass(frozen=True, kw_only=True)
class ModelUnavailableContext:
    """The model cannot be used: none is set or none has that name, its key or a package is missing, or it cannot do
    what the agent needs. No request was made to it."""

    code: ClassVar = ErrorCode.MODEL_UNAVAILABLE
    category: ClassVar[Category] = "model"
    model: str
    """The name that was asked for."""
    reason: str
    """Why it cannot be used."""
    hint: str

    @classmethod
    def of(cls, error: ModelUnavailable) -> ModelUnavailableContext:
        """Return the facts of the exception."""
        return cls(model=error.model, reason=str(error), hint=error.hint)

    def __str__(self) -> str:
        return f"Model {self.model!r} cannot be used: {self.reason.rstrip('.')}."


@lazy_dataclass(frozen=True, kw_only=True)
class InvalidInputContext:
    """The input does not fit the agent's input type, or what was passed beside it is wrong. No request was made."""

    code: ClassVar = ErrorCode.INVALID_INPUT
    category: ClassVar[Category] = "definition"
    hint: ClassVar = "Pass an input of the agent's input type, and beside it only what run(…) describes."
    issues: tuple[str, ...]
    """One line for each fault: in the input with its path, beside it with the name of the argument."""

    def __str__(self) -> str:
        return "The input does not fit: " + "; ".join(self.issues) + "."


@lazy_dataclass(frozen=True, kw_only=True)
class PromptContext:
    """A prompt function raised, or gave nothing that can be sent."""

    code: ClassVar = ErrorCode.PROMPT_GENERATION_FAILED
    category: ClassVar[Category] = "execution"
    hint: ClassVar = "Fix the prompt function, or give the prompt as a text."
    prompt: Literal["system", "user", "error"]
    """Which prompt it was."""
    reason: str
    """What was raised, or what is wrong with what the function gave."""

    def __str__(self) -> str:
        return f"The {self.prompt} prompt failed: {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class ApiErrorContext:
    """A model call failed, after the retries."""

    code: ClassVar = ErrorCode.API_ERROR
    category: ClassVar[Category] = "model"
    kind: ProviderErrorKind
    """How the call failed."""
    message: str
    """What the provider said, or what broke."""
    status: int | None
    """The HTTP status; None when there was no response."""
    type: str | None
    """The provider's own label for the error; None when it gives none."""
    request_id: str | None
    """The provider's id of the request, for its support; None when it gives none."""
    retry_after_s: float | None
    """How long the provider asks to wait, in seconds; None when it does not say."""
    advice: str | None = None
    """What the error itself says to do; None: what fits its kind."""

    @property
    def hint(self) -> str:
        if self.advice is not None:
            return self.advice
        return _API_HINTS.get(self.kind, "Look at the message; run again if the fault may pass.")

    def __str__(self) -> str:
        status = "" if self.status is None else f", status {self.status}"
        return f"The model call failed ({self.kind}{status}): {self.message}"


@lazy_dataclass(frozen=True, kw_only=True)
class RateLimitContext:
    """The provider still limited the rate of requests after the retries."""

    code: ClassVar = ErrorCode.RATE_LIMIT_ERROR
    category: ClassVar[Category] = "model"
    hint: ClassVar = "Wait and run again, send fewer requests at once, or ask the provider for a higher limit."
    message: str
    """What the provider said."""
    status: int | None
    """The HTTP status; None when there was no response."""
    request_id: str | None
    """The provider's id of the request, for its support; None when it gives none."""
    retry_after_s: float | None
    """How long the provider asks to wait, in seconds; None when it does not say."""

    def __str__(self) -> str:
        return f"The provider limits the rate of requests: {self.message}"


@lazy_dataclass(frozen=True, kw_only=True)
class OverflowContext:
    """The conversation no longer fits the model's window, and could not be made to fit."""

    code: ClassVar = ErrorCode.CONTEXT_OVERFLOW
    category: ClassVar[Category] = "model"
    hint: ClassVar = (
        "Give the agent a compaction strategy, cap the size of tool results, or use a model with a larger window. A"
        " chat has taken back what was said last, if the model had answered nothing of it; else undo() does."
    )
    message: str
    """What the provider said, or what was measured."""

    def __str__(self) -> str:
        return f"The conversation is too long for the model: {self.message}"


@lazy_dataclass(frozen=True, kw_only=True)
class TruncatedContext:
    """A response was cut. Its calls were not run."""

    code: ClassVar = ErrorCode.TOKEN_LIMIT_EXCEEDED
    category: ClassVar[Category] = "limit"
    stop_reason: StopReason
    """The provider's word for the limit that cut it: `max_tokens` or the window."""
    max_tokens: int | None
    """How long a response might have been, in tokens; None when no limit was set."""
    cut_by: CutBy = "max_tokens"
    """The limit that left no more room, as far as that is known."""
    input_tokens: int | None = None
    """The length of the input; None when the service did not tell it."""
    output_tokens: int | None = None
    """The length of the response; None when the service did not tell it."""
    window_tokens: int | None = None
    """The window of the model; None when it is not known."""
    calls: int = 0
    """The number of calls in the response; none of them was run."""

    @property
    def hint(self) -> str:
        """The advice on what to do."""
        return _CUT_HINTS[self.cut_by]

    def __str__(self) -> str:
        asked = count(self.max_tokens or 0, "token")
        match self.cut_by:
            case "max_tokens":
                words = f"The response was cut ({self.stop_reason}) at {asked}"
            case "budget":
                words = f"The response was cut at {asked}, because the budget left no more"
            case "window":
                size = "" if self.window_tokens is None else f" of {count(self.window_tokens, 'token')}"
                words = f"The response was cut because the model's window{size} is full: {self._lengths()}"
            case "service":
                words = f"The service cut the response before max_tokens ({self.max_tokens}): {self._lengths()}"
            case _:
                assert_never(self.cut_by)
        unrun = "its call was" if self.calls == 1 else f"its {self.calls} calls were"
        return f"{words}; {unrun} not run." if self.calls else f"{words}."

    def _lengths(self) -> str:
        if self.input_tokens is None or self.output_tokens is None:
            return "how much of it, the service did not tell"
        return f"{count(self.input_tokens, 'token')} of input and {self.output_tokens} of the answer"


@lazy_dataclass(frozen=True, kw_only=True)
class RefusedContext:
    """The model refused. Its calls, if any, were not run."""

    code: ClassVar = ErrorCode.MODEL_REFUSED
    category: ClassVar[Category] = "model"
    hint: ClassVar = "Change the task or the system prompt; the same request will be refused again."
    refusal: str | None
    """The provider's category of the refusal, when it gives one."""
    text: str
    """What the model said; perhaps nothing."""

    def __str__(self) -> str:
        refusal = "" if self.refusal is None else f" ({self.refusal})"
        return f"The model refused{refusal}: {self.text or 'it gave no reason'}"


_SHOW_TOOLS: Final = "A server of your own has to be started with a chat template that shows tools to the model."


@lazy_dataclass(frozen=True, kw_only=True)
class InvalidResponseContext:
    """The response neither called a tool nor gave the output that was asked for."""

    code: ClassVar = ErrorCode.INVALID_RESPONSE
    category: ClassVar[Category] = "model"
    stop_reason: StopReason
    """Why the model stopped."""
    stop_detail: str | None
    """The provider's own word for it; None when it has none."""
    expected_tool: str | None
    """The tool that would have ended the attempt, or several, joined by `' or '`; None for an agent that answers with
    text."""
    has_draft: bool
    """True when an output was proposed but never submitted."""
    shown_no_tools: bool = False
    """True when the model's server has told that its chat template shows the model no tools."""

    @property
    def hint(self) -> str:
        """The advice on what to do."""
        if self.shown_no_tools:
            return _SHOW_TOOLS
        if self.stop_reason == "other":
            return (
                "Look up this reason in the service's documentation; the text before it is kept as the answer so far."
            )
        return "Say in the system prompt which tool hands in the result, or set Output(reminder=True) for a reminder."

    def __str__(self) -> str:
        draft = ", with a draft not submitted" if self.has_draft else ""
        missing = "any text" if self.expected_tool is None else f"calling '{self.expected_tool}'{draft}"
        missing += ", which its server does not show it" if self.shown_no_tools else ""
        if self.stop_reason == "other":
            told = (
                f"for a reason that is not known here, {self.stop_detail!r}" if self.stop_detail else "without a reason"
            )
            return f"The model stopped {told}{'' if self.expected_tool is None else f', without {missing}'}."
        return f"The model stopped ({told_reason(self.stop_reason, self.stop_detail)}) without {missing}."


@lazy_dataclass(frozen=True, kw_only=True)
class UnusableAnswerContext:
    """The answer is too large to be right, or reports usage that is impossible. No part of it was used."""

    code: ClassVar = ErrorCode.INVALID_RESPONSE
    category: ClassVar[Category] = "model"
    hint: ClassVar = (
        "Check which service answers at the model's address; if answers may be so long, raise"
        " ModelSettings(max_tokens=…)."
    )
    reason: str
    """What is wrong with the answer."""
    limit: int | None
    """The limit that the answer exceeds, in characters or blocks as the reason says; None if it exceeds none."""

    def __str__(self) -> str:
        return f"The model's answer was not accepted: {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class SubmitContext:
    """Submit was called before any output was proposed in this attempt."""

    code: ClassVar = ErrorCode.SUBMIT_BEFORE_OUTPUT
    category: ClassVar[Category] = "model"
    hint: ClassVar = "Say in the system prompt that a draft comes first, or set Reflection(early_submit='answer')."
    output_tool: str
    """The name of the tool that proposes an output, or several, joined by `' or '`."""
    submit_tool: str
    """The name of the tool that submits it."""

    def __str__(self) -> str:
        return f"The model called {self.submit_tool!r} before it proposed anything with '{self.output_tool}'."


@lazy_dataclass(frozen=True, kw_only=True)
class IterationsContext:
    """The attempt used all its iterations without handing in an output."""

    code: ClassVar = ErrorCode.MAX_ITERATIONS
    category: ClassVar[Category] = "limit"
    iteration_count: int
    """How many iterations the attempt took."""
    max_iterations: int
    has_draft: bool
    """True when an output was proposed but never submitted."""
    never_called_tools: bool = False
    """True when the agent has tools, and the model called none of them."""

    @property
    def hint(self) -> str:
        """The advice on what to do."""
        if self.never_called_tools:
            return f"See whether the model can call tools. {_SHOW_TOOLS}"
        return "Raise Limits(iterations=…), or help the model get there in fewer steps."

    def __str__(self) -> str:
        draft = ", with a draft not submitted" if self.has_draft else " without an output"
        all_of_them = "its only iteration" if self.max_iterations == 1 else f"all its {self.max_iterations} iterations"
        never = "; the model never called a tool" if self.never_called_tools else ""
        return f"The attempt used {all_of_them}{draft}{never}."


@lazy_dataclass(frozen=True, kw_only=True)
class AttemptsContext:
    """The last allowed attempt's output was rejected."""

    code: ClassVar = ErrorCode.MAX_ATTEMPTS_EXCEEDED
    category: ClassVar[Category] = "validation"
    hint: ClassVar = (
        "Look at the report: the model cannot satisfy a check, "
        "or the check is wrong. Raise Limits(attempts=…) if it was close."
    )
    attempts: int
    """How many attempts were made."""
    max_attempts: int
    last_error: str
    """The feedback on the last output, whole."""

    def __str__(self) -> str:
        if self.max_attempts == 1:
            return f"The only attempt was rejected, with: {self.last_error}"
        return f"All {self.max_attempts} attempts were rejected, the last with: {self.last_error}"


@lazy_dataclass(frozen=True, kw_only=True)
class BudgetContext:
    """A budget policy ended the run."""

    code: ClassVar = ErrorCode.BUDGET_EXCEEDED
    category: ClassVar[Category] = "limit"
    hint: ClassVar = "Raise the limit, or give the agent less to do."
    policy: str
    """`tokens`, `cost`, `seconds`, `calls`, or the name of the user's policy."""
    limit: float
    """What is allowed: tokens, US dollars, seconds or calls, as the policy says."""
    used: float
    """What was used, in the same unit."""
    scope: str
    """Whose budget it is: `run`, `attempt`, or the name of the agent above whose budget this run draws on."""
    needed: float | None = field(default=None, compare=False)
    """What the next model call would have needed at least, where too little was left for it."""

    def __str__(self) -> str:
        if self.needed is not None:
            what = "used up" if self.used else "too small"
            lack = shortage(self.policy, needed=self.needed, limit=self.limit, used=self.used)
            return f"The {self.scope}'s {self.policy} budget is {what}: {lack}."
        return f"The {self.scope}'s {self.policy} budget is used up: {self.used:g} of {self.limit:g}."


@lazy_dataclass(frozen=True, kw_only=True)
class ValidationContext:
    """A validator itself is wrong: it changed the output, returned a value, or raised what broken code raises, such as
    a `NameError`. This is a bug of the program and not the model's fault, so no new attempt is made."""

    code: ClassVar = ErrorCode.VALIDATION_FAILED
    category: ClassVar[Category] = "validation"
    hint: ClassVar = (
        "Fix the validator: it must raise ValueError or Rejected to reject, return nothing, and leave the output alone."
    )
    layer: str
    """The name of the layer that failed."""
    reason: str
    """What it raised."""

    def __str__(self) -> str:
        return f"Validator {self.layer!r} {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class ProjectionContext:
    """The function that projects the final state raised."""

    code: ClassVar = ErrorCode.STATE_PROJECTION_FAILED
    category: ClassVar[Category] = "execution"
    hint: ClassVar = "Fix the function given as Agent(final_state=…)."
    reason: str
    """What was raised."""

    def __str__(self) -> str:
        return f"Projecting the final state failed: {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class StopGuardContext:
    """The stop guard escalated, or raised."""

    code: ClassVar = ErrorCode.STOP_GUARD
    category: ClassVar[Category] = "execution"
    hint: ClassVar = "See what the stop guard says."
    reason: str
    """Why the guard ended the run."""

    def __str__(self) -> str:
        return f"The stop guard ended the run: {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class CancelledContext:
    """The caller's `Abort` fired, or a tool, an approver or an operator stopped the run."""

    code: ClassVar = ErrorCode.EXECUTION_CANCELLED
    category: ClassVar[Category] = "execution"
    hint: ClassVar = "Nothing to fix: the run was stopped. Its history can be continued."
    reason: str
    """What was given as the reason by whoever stopped it first."""
    doing: str
    """What was going on, for example `calling the model`."""

    def __str__(self) -> str:
        return f"Cancelled while {self.doing}: {self.reason}."


@lazy_dataclass(frozen=True, kw_only=True)
class InternalContext:
    """Code around the loop raised, such as a state function, a journal or this library itself. A model that breaks its
    contract ends the run with `API_ERROR` instead, with the kind `unknown`."""

    code: ClassVar = ErrorCode.INTERNAL_ERROR
    category: ClassVar[Category] = "execution"
    hint: ClassVar = "Look at the cause; if it is not in your own functions, please report it."
    where: str
    """What was going on."""
    error: str
    """Class and message of the exception."""

    def __str__(self) -> str:
        return f"{self.where} failed: {self.error}."


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
    | UnusableAnswerContext
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
"""The facts of an ending: one class for each code, and two for `INVALID_RESPONSE`."""


@lazy_dataclass(frozen=True)
class ErrorInfo:
    """The reason why a run failed, and its place in the run."""

    context: Context
    """The facts, in the class that belongs to the code."""
    place: Place = START
    """Where the run was."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception behind it, if there was one."""

    @property
    def code(self) -> ErrorCode:
        return self.context.code

    @property
    def phase(self) -> Phase:
        return self.place.phase

    @property
    def attempt(self) -> int:
        """The number of the attempt; 0 before the first."""
        return self.place.attempt

    @property
    def iteration(self) -> int:
        """The number of the iteration in its attempt; 0 before the first."""
        return self.place.iteration

    @property
    def category(self) -> Category:
        return self.context.category

    @property
    def message(self) -> str:
        """The report of what happened, with the values."""
        return str(self.context)

    @property
    def hint(self) -> str:
        """The advice on what to do."""
        return self.context.hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

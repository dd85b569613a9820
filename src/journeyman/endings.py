"""Why a run failed. Imports `contexts`. Read `result.py` next: it carries an ending to the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from journeyman.contexts import (
    ApiErrorContext,
    AttemptsContext,
    BudgetContext,
    CancelledContext,
    Category,
    ErrorCode,
    InternalContext,
    InvalidInputContext,
    InvalidResponseContext,
    IterationsContext,
    ModelUnavailableContext,
    OverflowContext,
    Phase,
    ProjectionContext,
    PromptContext,
    RateLimitContext,
    RefusedContext,
    StopGuardContext,
    SubmitContext,
    TruncatedContext,
    ValidationContext,
)

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


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run failed."""

    context: Context
    """The facts, in the class that belongs to the code."""
    phase: Phase
    """Where the run was."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception behind it, if there was one."""

    @property
    def code(self) -> ErrorCode:
        return self.context.code

    @property
    def category(self) -> Category:
        return self.context.category

    @property
    def message(self) -> str:
        """What happened, with the values."""
        return str(self.context)

    @property
    def hint(self) -> str:
        """What to do about it."""
        return self.context.hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

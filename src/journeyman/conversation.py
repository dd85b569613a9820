"""One conversation under way: what an iteration needs, and what it leaves behind.

A run makes one of these and lends it to `iteration.py`; nothing in it is shared between runs. Plain data with the few
verbs that keep it consistent. Imports the parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from journeyman.budget import Budget, BudgetPolicy, Limits
from journeyman.cancel import Abort, Scope
from journeyman.contexts import Phase
from journeyman.events import MessageCommitted, Path
from journeyman.gate import Approver, Gate
from journeyman.history import History
from journeyman.journal import Journal
from journeyman.model import Model, Prefix, Settings
from journeyman.result import ToolKind, ToolStats
from journeyman.tools import BackgroundTasks, Effect, Middleware, States, Tool
from journeyman.types import Message, Price, ToolResult, ToolUse, Usage
from journeyman.watch import Watch
from journeyman.window import Strategy, estimate_message, estimate_prefix

UNKNOWN_TOOLS = "(unknown)"
"""Under this name all calls of tools that do not exist are counted: the names are the model's, and endless."""


@dataclass(frozen=True, slots=True)
class HandInTool:
    """A tool that belongs to the loop itself: the output tool or submit."""

    kind: ToolKind
    handle: Callable[[ToolUse], Awaitable[ToolResult | None]]
    """Answers the call; None withholds the answer until the output was validated."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Everything that one run's iterations read and write."""

    path: Path
    agent: str
    input: object
    model: Model
    prefix: Prefix
    settings: Settings
    limits: Limits
    price: Price | None
    """Of the model; None when unknown."""
    max_tokens: int
    """The longest answer to ask for, before a budget lowers it."""
    history: History
    tools: Mapping[str, Tool[..., Any]]
    default_effect: Effect
    hand_in: Mapping[str, HandInTool]
    """The output tool and submit, by name."""
    budget: Budget
    retries: int
    policies: Sequence[BudgetPolicy] = ()
    strategies: Sequence[Strategy] = ()
    convert: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    gates: Sequence[Gate] = ()
    approve: Approver | None = None
    middlewares: Sequence[Middleware] = ()
    journal: Journal | None = None
    tasks: BackgroundTasks | None = None
    abort: Abort | None = None
    scope: Scope
    """What stops the run. Its checkpoints stand where nothing else would wait."""
    watch: Watch | None = None
    max_result_chars: int | None = None

    states: States
    started_s: float
    """When the run began, on the event loop's clock."""
    phase: Phase = "prompt_generation"
    doing: str = "building the prompts"
    attempt: int = 0
    iteration: int = 0
    iterations: int = 0
    """Model calls, of all attempts."""
    usage: Usage = Usage()
    attempt_usage: Usage = Usage()
    call_usage: Usage = Usage()
    """Of the last model call, failed requests included."""
    tally: dict[str, ToolStats] = field(default_factory=dict[str, ToolStats])
    attempt_cache: dict[str, asyncio.Future[ToolResult]] = field(
        default_factory=dict[str, "asyncio.Future[ToolResult]"]
    )
    run_cache: dict[str, asyncio.Future[ToolResult]] = field(default_factory=dict[str, "asyncio.Future[ToolResult]"])
    announced: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])
    """The calls that were announced and have not finished."""
    _measured: tuple[int, int] = (0, 0)
    """How many messages the last exact response covered, and how many tokens they were."""

    def now(self) -> float:
        """Return the reading of the event loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    async def committed(self, message: Message | None) -> None:
        """Announce a message that became part of the history."""
        if message is not None and self.watch is not None:
            await self.watch.tell(MessageCommitted(path=self.path, message=message))

    def spend(self, usage: Usage) -> None:
        """Count what a request used."""
        if usage.cost is None and usage.requests and self.price is not None:
            usage = replace(usage, cost=self.price.of(usage))
        self.usage += usage
        self.attempt_usage += usage
        self.call_usage += usage

    def count(self, kind: ToolKind, name: str, *, error: str | None, cached: bool, duration_s: float) -> None:
        """Count one finished call; `error` is the kind of its failure."""
        name = UNKNOWN_TOOLS if kind == "unknown" else name
        stats = self.tally.get(name) or ToolStats(kind=kind)
        errors = stats.errors if error is None else {**stats.errors, error: stats.errors.get(error, 0) + 1}
        self.tally[name] = replace(
            stats,
            calls=stats.calls + 1,
            succeeded=stats.succeeded + (error is None),
            cache_hits=stats.cache_hits + cached,
            errors=errors,
            duration_s=stats.duration_s + duration_s,
        )

    def measured(self, usage: Usage) -> None:
        """Remember how many tokens the history is, now that the model has told."""
        if usage.exact and usage.input_tokens:
            self._measured = (len(self.history.messages), usage.total_tokens)

    def estimated_tokens(self) -> int:
        """Return about how many tokens the next request is: what the model told last, and an estimate of the rest."""
        covered, tokens = self._measured
        if not covered:
            tokens = estimate_prefix(self.prefix)
        return tokens + sum(estimate_message(message) for message in self.history.messages[covered:])

"""One conversation under way: what an iteration needs, and what it leaves behind.

A run makes one of these and lends it to `iteration.py`; nothing in it is shared between runs. Plain data with the few
verbs that keep it consistent. Imports the parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman.budget import Budget, BudgetPolicy, Limits
from journeyman.cancel import Abort, Scope
from journeyman.contexts import Phase
from journeyman.events.run import MessageCommitted, Path
from journeyman.guard import Guard
from journeyman.history import History
from journeyman.inbox import Inbox
from journeyman.journal import Journal
from journeyman.kept_view import KeptView
from journeyman.ledger import Ledger
from journeyman.loop.outcome import Outcome
from journeyman.loop.watch import Watch
from journeyman.model import Model, Prefix, Settings
from journeyman.result import ToolKind
from journeyman.tools.tool import BackgroundTasks, Effect, Middleware, States, Tool
from journeyman.types import NOTHING_USED, Message, ToolResult, ToolUse, Usage, UserContent
from journeyman.window import Compaction, estimate_message, estimate_prefix


@dataclass(slots=True)
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
    max_tokens: int
    """The longest answer to ask for, before a budget lowers it."""
    asked_max_tokens: int = 0
    """The longest answer that the last request asked for."""
    history: History
    tools: Mapping[str, Tool[..., Any]]
    default_effect: Effect
    hand_in: Mapping[str, HandInTool]
    """The output tool and submit, by name."""
    budget: Budget
    retries: int
    policies: Sequence[BudgetPolicy] = ()
    compaction: Compaction | None = None
    kept: KeptView | None = None
    """What is sent of the history; None where all of it is, because nothing compacts it."""
    convert: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    guard: Guard | None = None
    """What guards the calls; None where there is neither gate nor approver."""
    middlewares: Sequence[Middleware] = ()
    journal: Journal | None = None
    tasks: BackgroundTasks | None = None
    inbox: Inbox | None = None
    """What a chat's user says while the run goes on; None outside a chat."""
    keep: Callable[[], None] | None = None
    """Stores what is new, before anything comes of it; None where nothing is stored."""
    abort: Abort | None = None
    scope: Scope
    """What stops the run. Its checkpoints stand where nothing else would wait."""
    watch: Watch | None = None
    ledger: Ledger
    above: Conversation | None = None
    """Of the run that started this one."""
    max_result_chars: int | None = None

    states: States
    now: Callable[[], float]
    """Reads the event loop's clock, in seconds."""
    started_s: float
    """When the run began, on that clock."""
    phase: Phase = "prompt_generation"
    doing: str = "building the prompts"
    attempt: int = 0
    iteration: int = 0
    iterations: int = 0
    """Model calls, of all attempts."""
    call_usage: Usage = NOTHING_USED
    """Of the last model call, failed requests included."""
    attempt_cache: dict[str, asyncio.Future[Outcome]] = field(default_factory=lambda: {})
    run_cache: dict[str, asyncio.Future[Outcome]] = field(default_factory=lambda: {})
    failures: dict[str, int] = field(default_factory=lambda: {})
    """How often each tool has failed in a row; counted only where that is limited."""
    announced: dict[str, ToolUse] = field(default_factory=lambda: {})
    """The calls that were announced and have not finished."""
    _measured: tuple[int, Usage] = (0, NOTHING_USED)
    """How many messages the last response covered, and what it told of them."""

    def say(self, *content: UserContent) -> None:
        """Stage what the run's user says."""
        self.history.say(*content)
        if self.guard is not None:
            self.guard.hear(content)

    async def committed(self, message: Message | None) -> None:
        """Announce a message that became part of the history."""
        if message is not None and self.watch is not None:
            index = len(self.history.messages) - 1
            await self.watch.tell(MessageCommitted(path=self.path, message=message, index=index))

    def spend(self, usage: Usage) -> None:
        """Count what a request used."""
        self.ledger.add(usage)
        self.call_usage = usage if self.call_usage is NOTHING_USED else self.call_usage + usage

    def measured(self, usage: Usage) -> None:
        """Remember how many tokens the history is, now that the model has told."""
        self._measured = (len(self.history.messages), usage)
        if self.kept is not None:
            self.kept.measure(usage, self.history.messages)

    def estimated_tokens(self) -> int:
        """Return about how many tokens the next request is: what the model told last, and an estimate of the rest."""
        if self.kept is not None:
            return self.kept.tokens
        covered, usage = self._measured
        tokens = usage.total_tokens
        if not (usage.exact and usage.input_tokens):
            covered, tokens = 0, estimate_prefix(self.prefix)
        return tokens + sum(estimate_message(message) for message in self.history.messages[covered:])

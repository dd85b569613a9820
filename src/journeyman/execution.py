"""The record of one run, from its first event to its result. Imports `agent`, `conversation`, `handin` and the parts.

`preparing.py` fills it, `loop.py` runs it, `concluding.py` makes the result of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.budget import Budget
from journeyman.cancel import Abort, Scope
from journeyman.conversation import Conversation
from journeyman.events import Callbacks, Listener, MessageCommitted, Path
from journeyman.handin import HandIn, hand_in_of
from journeyman.history import History
from journeyman.inbox import Inbox
from journeyman.result import AttemptRecord, LayerOutcome, ValidationReport
from journeyman.types import Message, UserContent
from journeyman.watch import Watch


@dataclass(slots=True)
class Layer:
    """A validation layer that is about to judge."""

    name: str
    kind: Literal["schema", "validator"]
    description: str
    work: Callable[[], Awaitable[LayerOutcome]]

    def cut_short(self, why: str, error: BaseException | None = None) -> LayerOutcome:
        """Return the outcome of a layer that gave no verdict."""
        return LayerOutcome(
            name=self.name, kind=self.kind, description=self.description, passed=False, feedback=why, error=error
        )


current_path: ContextVar[Path] = ContextVar("journeyman_path", default=())
"""The run that is going on here, from the root down."""


@dataclass(slots=True, kw_only=True)
class Options:
    """What a caller may say about one run."""

    max_attempts: int | None = None
    callbacks: Callbacks | None = None
    listeners: Sequence[Listener] = ()
    """Read anew at each event."""
    abort: Abort | None = None
    history: Sequence[Message] | History = ()
    """The conversation to go on from. A `History` is lent: it is written to, and nothing of it is copied."""
    host: Host = NOTHING_AROUND
    inbox: Inbox | None = None
    """What is said while the run goes on."""
    going_on: Callable[[], Sequence[UserContent]] | None = None
    """What is said instead of a prompt: asked for when it is said, perhaps nothing. None: the prompt."""
    abort_note: Callable[[], str] | None = None
    """What the model reads of it when the signal has interrupted it; empty for nothing."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One run."""

    agent: Agent[Any, Any]
    input: object
    options: Options
    path: Path
    now: Callable[[], float]
    """Reads the event loop's clock, in seconds."""
    started_s: float
    max_attempts: int
    history: History
    budget: Budget
    scope: Scope
    watch: Watch | None
    hand_in: HandIn
    wrong_history: Exception | None = None
    """Why the conversation that was given cannot be gone on from."""
    talk: Conversation | None = None
    """None until there are a model and prompts."""
    records: list[AttemptRecord] = field(default_factory=lambda: [])
    report: ValidationReport | None = None
    """What validation last said."""
    attempt_report: ValidationReport | None = None
    """What validation said in this attempt, so far."""
    open_layer: Layer | None = None
    """The layer that is judging."""
    attempt_is_open: bool = False
    attempt_started_s: float = 0.0

    @property
    def depth(self) -> int:
        """0 for a run that no other run started."""
        return len(self.path) - 1


def begin(agent: Agent[Any, Any], input: object, options: Options) -> Execution:
    """Open the record of one run. Nothing of it has happened yet."""
    path = (*current_path.get(), agent.name)
    clock = asyncio.get_running_loop().time
    now = clock()
    budget = Budget(agent.limits, scope="run", now=now, parent=options.host.budget)
    attempts = agent.limits.attempts if options.max_attempts is None else options.max_attempts
    history, wrong_history = _history_of(options.history)
    return Execution(
        agent=agent,
        input=input,
        options=options,
        path=path,
        now=clock,
        started_s=now,
        max_attempts=attempts,
        history=history,
        wrong_history=wrong_history,
        budget=budget,
        scope=Scope(options.abort, budget.deadline),
        watch=_watch(agent, options, path, attempts),
        hand_in=hand_in_of(agent),
    )


def _history_of(messages: Sequence[Message] | History) -> tuple[History, Exception | None]:
    """Return the history to go on from: an empty one, and why, if `messages` hold what is no message."""
    if isinstance(messages, History):
        return messages, None
    try:
        return History(messages), None
    except Exception as error:  # noqa: BLE001 - whatever the caller gave
        return History(), error


def _watch(agent: Agent[Any, Any], options: Options, path: Path, attempts: int) -> Watch | None:
    if not options.listeners and options.callbacks is None:
        return None
    return Watch(
        path=path,
        listeners=options.listeners,
        callbacks=options.callbacks or Callbacks(),
        max_attempts=attempts,
        max_iterations=agent.limits.iterations,
    )


def listeners_of(agent: Agent[Any, Any], on_event: Listener | None) -> list[Listener]:
    """Return who listens to a run of `agent`: the caller, and the agent's own `on_message`."""
    listeners = [on_event] if on_event is not None else []
    return listeners if agent.on_message is None else [*listeners, _message_listener(agent)]


def _message_listener(agent: Agent[Any, Any]) -> Listener:
    def on_message(event: object) -> None:
        if isinstance(event, MessageCommitted) and agent.on_message is not None:
            agent.on_message(event.message)

    return on_message

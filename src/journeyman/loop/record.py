"""One conversation under way: what an iteration needs, and what it leaves behind.

A run makes one of these and lends it to `iteration.py`; nothing in it is shared between runs. Plain data with the few
verbs that keep it consistent.

What comes of one call, before it is staged; and how a journal keeps it.

The record of one run, from its first event to its result.

`preparing.py` fills it, `loop.py` runs it, `concluding.py` makes the result of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.budget import Budget, BudgetPolicy, Ledger, Limits
from journeyman.cancel import Abort, Scope, current_scope
from journeyman.endings import Ending, ErrorCode, Phase
from journeyman.events import AttemptCompleted, Callbacks, Listener, MessageCommitted
from journeyman.gate import Guard
from journeyman.history import History
from journeyman.inbox import Inbox
from journeyman.journal import Journal
from journeyman.loop.watch import Watch
from journeyman.model import Model, Prefix, Response, Settings
from journeyman.result import AttemptRecord, ChildRecord, LayerOutcome, ToolKind, ValidationReport
from journeyman.tools.tools import BackgroundTasks, Middleware, States, Tool
from journeyman.types import NOTHING_USED, Effect, Message, RunPath, Text, ToolResult, ToolUse, Usage, UserContent
from journeyman.window import Compaction, KeptView, estimate_message, estimate_prefix


@dataclass(slots=True)
class Outcome:
    """The result of a call, and how it came about."""

    result: ToolResult
    error: str | None = None
    """The kind of failure, as `ToolStats.errors` counts it; None for a success."""
    cached: bool = False

    @classmethod
    def failed(cls, error: str, text: str) -> Outcome:
        """Return the outcome of a call that was not made, or failed: the model reads `text`."""
        return cls(ToolResult(text, is_error=True), error)

    def noting(self, note: str) -> Outcome:
        """Return this with a note to the model in front of the result."""
        content = self.result.content
        noted = f"{note}\n{content}" if isinstance(content, str) else (Text(note), *content)
        return replace(self, result=replace(self.result, content=noted))


@dataclass(frozen=True, slots=True)
class _Stored:
    """One call in a journal: what came of it, and the states it left."""

    result: ToolResult
    error: str | None = None
    run: Any = None
    attempt: Any = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeCodec:
    """Stores a call's outcome together with the states it left, and puts those back when it is read."""

    states: States

    def encode(self, value: Outcome) -> bytes:
        stored = _Stored(value.result, value.error, self.states.run, self.states.attempt, value.cached)
        return _stored().dump_json(stored)

    def decode(self, data: bytes) -> Outcome:
        stored = _stored().validate_json(data)
        self.states.run = _like(self.states.run, stored.run)
        self.states.attempt = _like(self.states.attempt, stored.attempt)
        return Outcome(stored.result, stored.error, stored.cached)


@cache
def _stored() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


def _like(state: object, stored: object) -> object:
    return TypeAdapter[object](type(state)).validate_python(stored)


@dataclass(slots=True)
class HandInTool:
    """A tool that belongs to the loop itself: the output tool or submit."""

    kind: ToolKind
    handle: Callable[[ToolUse], Awaitable[ToolResult | None]]
    """Answers the call; None withholds the answer until the output was validated."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Everything that one run's iterations read and write."""

    path: RunPath
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


current_path: ContextVar[RunPath] = ContextVar("journeyman_path", default=())
"""The run that is going on here, from the root down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a sub-agent came to its task."""

    mode: Literal["single", "parallel", "chain", "background"]
    tool_use_id: str | None = None
    """The call that delegated to it; None when a program did."""
    number: int | None = None
    """Tells it from other runs of the same agent; None outside a run."""


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
    keep: Callable[[], None] | None = None
    """Stores what is new in the history; called before anything comes of it."""
    going_on: Callable[[], Sequence[UserContent]] | None = None
    """What is said instead of a prompt: asked for when it is said, perhaps nothing. None: the prompt."""
    abort_note: Callable[[], str] | None = None
    """What the model reads of it when the signal has interrupted it; empty for nothing."""
    origin: Origin | None = None
    """How a sub-agent came to its task; None for any other run."""
    numbers: Iterator[int] | None = None
    """Numbers for the runs that this one starts; None: from 1."""
    watch_above: Watch | None = None
    """Who watches a run that no other waits for, beside its own listeners."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One run."""

    agent: Agent[Any, Any]
    input: object
    options: Options
    path: RunPath
    now: Callable[[], float]
    """Reads the event loop's clock, in seconds."""
    started_s: float
    max_attempts: int
    history: History
    budget: Budget
    scope: Scope
    ledger: Ledger
    watch: Watch | None
    hand_in: HandIn
    numbers: Iterator[int]
    """For the runs that this one starts."""
    above: Execution | None = None
    """The run that started this one, and waits for it."""
    number: int = 0
    """Which of the runs that were started there."""
    children: dict[int, ChildRecord] = field(default_factory=dict[int, ChildRecord])
    """The runs that this one started and that have ended, by number."""
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

    @property
    def abort(self) -> Abort | None:
        """The signal that ends this run: its own, or that of the run above."""
        if self.options.abort is not None or self.above is None:
            return self.options.abort
        return self.above.abort

    @property
    def spending(self) -> Budget:
        """What is spent now comes from here."""
        return self.budget if self.talk is None else self.talk.budget

    def end(self, code: ErrorCode | None) -> None:
        """Tell the run above how this one ended: with an error, or well."""
        if self.above is None:
            return
        self.above.children[self.number] = ChildRecord(
            path=self.path,
            usage=self.ledger.usage,
            code=code,
            attempts=len(self.records),
            iterations=0 if self.talk is None else self.talk.iterations,
            calls=self.ledger.own_calls,
            latency_s=self.now() - self.started_s,
            children=self.ended_children(),
        )

    def ended_children(self) -> tuple[ChildRecord, ...]:
        """Return the runs that this one started, in the order in which they began."""
        return tuple([self.children[number] for number in sorted(self.children)])


current_run: ContextVar[Execution | None] = ContextVar("journeyman_run", default=None)
"""The run that is going on here: the one above the next that begins here."""


def detach() -> None:
    """Let the runs that begin here be nobody's children: what goes on in this task outlives the run it came from.

    They keep its path and its gates.
    """
    current_run.set(None)
    current_scope.set(None)


@contextmanager
def detached() -> Generator[None]:
    """Let the runs and tasks that begin in this block be nobody's children, as `detach` does."""
    run, scope = current_run.set(None), current_scope.set(None)
    try:
        yield
    finally:
        current_run.reset(run)
        current_scope.reset(scope)


@dataclass(slots=True)
class Candidate:
    """An output that was handed in and not validated yet."""

    raw: str
    """The arguments as the model wrote them; or its text."""
    call: ToolUse | None = None
    """The call that handed it in: the verdict is its result. None for text."""
    terminal_result: str | None = None
    """The result of the call that ended the run through `stop_after`."""


class HandIn(Protocol):
    """Decides after each iteration whether there is an output."""

    @property
    def tools(self) -> Mapping[str, HandInTool]:
        """The tools that belong to it, by name."""
        ...

    @property
    def has_draft(self) -> bool:
        """True when an output was proposed in this attempt."""
        ...

    @property
    def last_raw(self) -> str | None:
        """What was proposed last, in any attempt."""
        ...

    def begin_attempt(self) -> None: ...

    async def judge(self, talk: Conversation, turn: Iterated) -> Candidate | Ending | None:
        """Return the candidate, the end of the run, or None to go on."""
        ...


@dataclass(slots=True)
class Call:
    """One call of a response, after it ended."""

    use: ToolUse
    outcome: Outcome | None
    """None: withheld until the output was validated."""


@dataclass(slots=True)
class Iterated:
    """What one iteration brought."""

    response: Response
    said: Message | None
    """The response as it stands in the history; None if it was empty."""
    calls: tuple[Call, ...] = ()
    """In call order; empty unless the model stopped for them."""


@dataclass(slots=True)
class Finished:
    """The run has an output that passed."""

    output: Any
    terminal_result: str | None


async def complete_attempt(execution: Execution, talk: Conversation, *, succeeded: bool) -> None:
    """Record the attempt, and tell that it is over."""
    execution.attempt_is_open = False
    record = AttemptRecord(
        number=talk.attempt,
        iterations=talk.iteration,
        usage=talk.ledger.attempt_usage,
        report=execution.attempt_report,
    )
    execution.records.append(record)
    if execution.watch is not None:
        await execution.watch.tell(AttemptCompleted(path=talk.path, attempt=talk.attempt, succeeded=succeeded))

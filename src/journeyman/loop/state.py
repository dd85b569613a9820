"""The record of one run: what was asked for, what surrounds it, and all that happens.

`Agent` says what, `Runtime` what surrounds it, and `Run` is what happens: everything that the steps of one run read and
write, with parts that own themselves. Nothing in it is shared between runs. Its verbs only keep it consistent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import field, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypedDict, TypeVar, cast

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.budget import Budget, Ledger
from journeyman.cancellation import Abort, Scope, current_scope
from journeyman.definition.data import lazy_dataclass
from journeyman.endings import START, Context, CutBy, ErrorCode, ErrorInfo, Phase, Place
from journeyman.events import AttemptCompleted, Callbacks, Event, Listener, MessageCommitted
from journeyman.gate import Guard
from journeyman.history import History
from journeyman.inbox.inbox import Inbox
from journeyman.journal import NO_JOURNAL, Digests, Journal, Outside, RecordingSink, SentRuns, SinkEvent
from journeyman.loop.watch import NO_CALLBACKS, Watch
from journeyman.model import Model, Response, ToolSpec
from journeyman.output.output import OutputMode, StopGuard
from journeyman.output.plan import OutputMember
from journeyman.result import AttemptRecord, ChildRecord, LayerKind, LayerOutcome, Result, ToolKind, ValidationReport
from journeyman.step import RunStep, StepKind, iteration_key
from journeyman.tools.background import TaskContext
from journeyman.tools.collection import do_aside
from journeyman.tools.context import States, own_copy
from journeyman.tools.exact import StoredValue
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, JsonObject, Message, RunPath, Text, ToolResult, ToolUse, Usage, UserContent
from journeyman.window import View

T = TypeVar("T")


@lazy_dataclass(frozen=True, kw_only=True)
class Origin:
    """The way in which a sub-agent, or a run of a batch, got its task."""

    mode: Literal["single", "parallel", "chain", "background", "batch"]
    tool_use_id: str | None = None
    """The call that delegated to it; None when a program did."""
    number: int | None = None
    """Tells it from other runs of the same agent; None outside a run."""


class StreamOptions(TypedDict, total=False):
    """The options that `stream` and `run` share, besides the agent, its input and the deps."""

    max_attempts: int | None
    callbacks: Callbacks | None
    """Functions to call at the steps of the run."""
    abort: Abort | None
    """The signal that ends the run."""
    history: Sequence[Message]
    """The conversation to go on from."""
    runtime: Runtime | None
    """What is around the run: journal, gate, approvals, telemetry."""


class RunOptions(StreamOptions, total=False):
    """The options of `run`, besides the agent, its input and the deps."""

    on_event: Listener | None
    """Called with every event, in order, and never awaited: what is async goes into `callbacks`."""


class PausingOptions(RunOptions, total=False):
    """The options of `run(…, wait=False)`."""

    deps: object
    """What the agent's functions and tools use."""
    results: Mapping[str, object] | None
    """Answers to what is open in the `Pending` that is passed as the input, by the ids there."""


@lazy_dataclass(kw_only=True)
class Options:
    """All that a caller may say about one run, as the loop reads it."""

    deps: object = field(default=None, repr=False)
    """What the agent's functions and tools use. None: what the agent was given for all its runs."""
    max_attempts: int | None = None
    callbacks: Callbacks | None = None
    listeners: Sequence[Listener] = ()
    """Read again at each event."""
    abort: Abort | None = None
    history: Sequence[Message] | History = ()
    """The conversation to go on from. A `History` is lent: it is written to, and nothing of it is copied."""
    runtime: Runtime = DEFAULT_RUNTIME
    inbox: Inbox | None = None
    """What is said while the run goes on."""
    more: Callable[[], Awaitable[bool]] | None = None
    """Asked when the run has its answer, in a run that no other follows: waits for what may still be said in it. True:
    there is something; False: nothing can come. None: what is said then is for another run."""
    store_step: Callable[[], Awaitable[None]] | None = None
    """Stores what is new in the history; called before anything comes of it."""
    going_on: Callable[[], Sequence[UserContent]] | None = None
    """What is said instead of a prompt: asked for when it is said, perhaps nothing. None: the prompt."""
    abort_note: Callable[[], str] | None = None
    """What the model reads of it when the signal has interrupted it; empty for nothing."""
    origin: Origin | None = None
    """How a sub-agent, or a run of a batch, came to its task; None for any other run."""
    numbers: Iterator[int] | None = None
    """Numbers for the runs that this one starts; None: from 1."""
    digests: Digests | None = None
    """Those of the conversation, from its runs before; None: there were none."""
    settle: Callable[[Result[Any]], Awaitable[bool]] | None = None
    """Stores how the run has ended, before anybody is told of it. False: the signal has ended the run before that, and
    it is asked again with that end."""
    tape: RecordingSink | None = None
    """Records the run together with others, as those of a chat; None: a recording of its own, if `runtime` says so."""
    watch_above: Watch | None = None
    """Who watches a run that no other waits for, beside its own listeners."""
    ledger_beside: Ledger | None = None
    """The ledger of the run that started this one, and does not wait for it."""
    is_checked: bool = False
    """True: whoever gives them has checked them, or made them."""
    keeps_steps: bool = True
    """False: the run has one life, and what the journal stores of its steps is read in no other."""

    @property
    def journal(self) -> Journal:
        """The journal of the run; one that keeps nothing, if `runtime` names none."""
        given = self.runtime.journal
        return NO_JOURNAL if given is None else given

    @property
    def kept_journal(self) -> Journal | None:
        """The journal, if another life of the run may read its steps."""
        return self.runtime.journal if self.keeps_steps else None


class AttemptPlace(TypedDict):
    """The place of an event in an attempt, as its constructor takes it: `AttemptStarted(**attempt_place(run))`."""

    path: RunPath
    attempt: int


class IterationPlace(AttemptPlace):
    """The place of an event in an iteration: `IterationStarted(**iteration_place(run))`."""

    iteration: int


@lazy_dataclass()
class Clock:
    """The event loop's clock, and when the run began on it, in seconds."""

    now: Callable[[], float]
    started_s: float
    prepared_s: float | None = None
    """When everything was there for the first model call; None until then."""

    @property
    def elapsed_s(self) -> float:
        return self.now() - self.started_s


@lazy_dataclass()
class Attempt:
    """The state of the attempt that is under way, and of no other; before the first, that of the preparations."""

    number: int
    """0 before the first attempt."""
    started_s: float
    budget: Budget
    """What is spent now comes from here: a budget of the attempt's own, or the run's."""
    iteration: int = 0
    """0 before the first iteration."""
    phase: Phase = START.phase
    doing: str = START.doing
    is_open: bool = False
    """True from its first event to its last."""
    report: ValidationReport | None = None
    """What validation has said so far."""
    open_layer: Layer | None = None
    """The layer that is judging."""
    checking: Checking | None = None
    """The facts that the validators may read while they judge."""
    asked_max_tokens: int = 0
    """The longest answer that the last request asked for."""
    asked_by: CutBy = "max_tokens"
    """Why it asked for no longer one."""
    cache: dict[str, asyncio.Future[Outcome]] = field(default_factory=lambda: {})
    cut: str = ""
    """The beginning of an answer that broke off, if it was the last."""

    def key(self, name: str) -> str:
        """Return the key of what belongs to the iteration that goes on, in the journal of the run."""
        return iteration_key(self.number, self.iteration, name)

    def step(self, kind: StepKind, name: str, *, call: str | None = None) -> RunStep:
        """Return a step of the iteration that goes on."""
        return RunStep(key=self.key(name), kind=kind, attempt=self.number, iteration=self.iteration, call=call)

    def outer_step(self, kind: StepKind, name: str) -> RunStep:
        """Return a step of the attempt that belongs to none of its iterations."""
        return RunStep(key=f"attempt/{self.number}/{name}", kind=kind, attempt=self.number)

    def next_said(self) -> RunStep:
        """Return the step that holds what was said before the next iteration."""
        n = self.iteration + 1
        return RunStep(key=iteration_key(self.number, n, "said"), kind="said", attempt=self.number, iteration=n)


@lazy_dataclass()
class StepTally:
    """The use of all runs that begin in one step of a journal. They are no steps of it themselves, so the step's record
    says what they used."""

    run: Run
    """The run whose step it is."""
    above: StepTally | None
    """That of the step in which that run began."""
    is_stored: bool = False
    """True when the journal has sections for these runs, which store what they use."""
    hands_in: bool = False
    """True when the step makes an output: limits count no such call."""
    counts: int = 0
    """How many calls of theirs limits have counted."""
    children: list[ChildRecord] = field(default_factory=list[ChildRecord])
    numbers: list[int] = field(default_factory=list[int])
    """Those of the children."""
    calls: int = 0
    """How many calls of all tools have finished in them."""
    background: list[Usage] = field(default_factory=list[Usage])
    n_sent: int = 0
    """How many runs of their own a tool's code has sent out in it."""
    _around: Token[StepTally | None] = field(init=False)

    def __enter__(self) -> Self:
        """Count the runs that begin in the block."""
        self._around = current_tally.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        current_tally.reset(self._around)

    def count_call(self) -> None:
        """Count a call, here and above."""
        level: StepTally | None = self
        while level is not None:
            level.counts += 1
            level = level.above


@lazy_dataclass(frozen=True, kw_only=True)
class ToolFacts:
    """What the model is told of a tool, and what the tool does to the world, as a journal keeps it."""

    name: str
    description: str
    input_schema: JsonObject
    effect: Effect
    strict: bool = False
    deferred: bool = False
    is_proxy: bool = False
    provider_schemas: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def make_spec(self) -> ToolSpec:
        """Return the tool as the model sees it."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            strict=self.strict,
            deferred=self.deferred,
            is_proxy=self.is_proxy,
            provider_schemas=self.provider_schemas,
        )


@lazy_dataclass()
class Calls:
    """The state of a run's tool calls, which decides on the next call."""

    tools: Mapping[str, AnyTool]
    """The tools that the model may call, by name; those that hand in are not among them."""
    announced: dict[str, ToolUse] = field(default_factory=lambda: {})
    """The calls that were announced and have not finished, by id."""
    passed_on: dict[str, tuple[AnyTool, ToolUse]] = field(default_factory=lambda: {})
    """The calls that the tool that passes calls on was given for a tool behind it, by id, until they have finished:
    that tool, and the call under its name."""
    failures: dict[str, int] = field(default_factory=lambda: {})
    """How often each tool has failed in a row; counted only where that is limited."""
    cache: dict[str, asyncio.Future[Outcome]] = field(default_factory=lambda: {})
    """Results that hold for the whole run."""
    stop: str | None = None
    """Why a call ended the run: no call after it is made; None: none did."""
    n_taken: int | None = None
    """How many calls of this response may still be made, if it was asked of all of them at once; None: it was not."""
    refusal: str = ""
    """Why no call of this response is made; empty: they are."""
    n_unstored: int = 0
    """The delegations that were counted, and are no steps of the journal."""
    recorded_states: tuple[object, object] = (None, None)
    """The states of the run and of the attempt as they were recorded last."""
    tally: StepTally | None = None
    """That of the step in which the run began, of a run above that has a journal."""
    asked: dict[int, tuple[object, Sequence[AnyTool]]] = field(default_factory=lambda: {})
    """What the toolsets that are asked once have given, by the `id` of each."""
    checked: dict[int, AnyTool] = field(default_factory=lambda: {})
    """The tools of toolsets that were found to be right, by `id`."""
    described: dict[str, str] = field(default_factory=lambda: {})
    """What the gates were told of tools that strangers describe, by name."""
    facts: tuple[ToolFacts, ...] | None = None
    """What the journal says of the tools that toolsets gave last; None: nothing."""
    effects: Mapping[str, Effect] = field(default_factory=lambda: {})
    """The effects that tools had in an earlier life of the run, by name, where toolsets give others now."""
    differs: bool = False
    """True once it was told that toolsets give others now."""


@lazy_dataclass()
class Children:
    """The runs that a run starts."""

    numbers: Iterator[int]
    """For those that begin."""
    ended: dict[int, ChildRecord] = field(default_factory=dict[int, ChildRecord])
    """By number."""

    def records(self) -> tuple[ChildRecord, ...]:
        """Return those that have ended, in the order in which they began."""
        return tuple([self.ended[number] for number in sorted(self.ended)])


@lazy_dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """The parts of a run that are made before its first model call, and hold until it ends."""

    model: Model
    max_tokens: int
    """The longest answer to ask for, before a budget lowers it."""
    retries: int
    """The number of times that a failed request is repeated."""
    hand_in: HandIn
    view: View
    """The view holds those messages of the history that are sent."""
    guard: Guard
    """The guard asks the gates about each call."""
    stop_guard: StopGuard[Any] | None = None
    """May veto a normal stop of an agent that answers with text."""
    states: States = field(default_factory=States)
    digests: Digests = field(default_factory=Digests)
    """Digests of what the model was asked, for the journal."""


class Objection(NamedTuple):
    """The reasons why something cannot be used that was passed beside the input."""

    issues: tuple[str, ...] = ()
    cause: Exception | None = None
    """Why the conversation that was given cannot be continued."""


@lazy_dataclass(kw_only=True)
class Run:
    """One run."""

    agent: Agent[Any, Any, Any]
    input: object
    """As it was given; once it was checked, as its type has it."""
    options: Options
    deps: Any = field(repr=False)
    """What the agent's functions and tools use, of the type that it declares."""
    path: RunPath
    above: Run | None
    """The run that started this one, and waits for it."""
    number: int
    """Which of the runs that were started there this is."""
    children: Children
    clock: Clock
    scope: Scope
    """What stops the run. Its checkpoints stand where nothing else would wait."""
    watch: Watch | None
    """Who watches the run; None: nobody does, and no event is made."""
    budget: Budget
    ledger: Ledger
    history: History
    objection: Objection
    prepared: PreparedRun = field(init=False)
    """There is none before `clock.prepared_s`."""
    attempt: Attempt
    calls: Calls
    answer: str = ""
    """The model's last words; also those of an answer that broke off."""
    records: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    """The attempts that have ended."""
    doubtful: set[str] = field(default_factory=set[str])
    """Where validators raised what may be a bug of theirs: once more, and the run ends."""

    @property
    def tape(self) -> RecordingSink | None:
        """The sink that records the run; None: nobody does."""
        return None if self.watch is None else self.watch.tape

    @property
    def max_attempts(self) -> int:
        given = self.options.max_attempts
        return self.agent.limits.attempts if given is None else given

    def cut_off(self, text: str) -> None:
        """Keep what had arrived of an answer that broke off."""
        self.answer = self.attempt.cut = text

    @property
    def task(self) -> str:
        """The checked input: a text as it is, content as its words with a note for each file, any other as JSON."""
        return self.agent.plan.input.told(self.input)

    @property
    def abort(self) -> Abort | None:
        """The signal that ends this run: its own, or that of the run above."""
        if self.options.abort is not None or self.above is None:
            return self.options.abort
        return self.above.abort

    @property
    def report(self) -> ValidationReport | None:
        """The last report of validation, in this attempt or an earlier one; None when it never ran."""
        reports = [self.attempt.report, *[record.report for record in reversed(self.records)]]
        return next((report for report in reports if report is not None), None)

    @property
    def place(self) -> Place:
        """The place that the run has reached, as endings and events take it."""
        attempt = self.attempt
        return Place(attempt.number, attempt.iteration, attempt.phase, attempt.doing)

    def enter(self, phase: Phase, doing: str) -> None:
        """Begin another phase of the same attempt and iteration."""
        self.attempt.phase, self.attempt.doing = phase, doing

    def ending(self, context: Context, cause: BaseException | None = None) -> ErrorInfo:
        """Return an `ErrorInfo` with these facts, at the place that the run has reached."""
        return ErrorInfo(context, self.place, cause)

    def tell(self, event: Callable[[], Event]) -> Awaitable[None]:
        """Tell those who watch what happens here. The event is made only for somebody."""
        watch = self.watch
        if watch is None:
            return _TOLD
        if watch.callbacks is not NO_CALLBACKS:
            return watch.tell(event(), self.place)
        watch.show(event())
        return _TOLD

    def show(self, event: Callable[[], Event]) -> None:
        """Show listeners, and no callback, what happens here. The event is made only for somebody."""
        if self.watch is not None:
            self.watch.show(event())

    def record(self, event: Callable[[], SinkEvent]) -> None:
        """Record what no listener hears. The event is made only for a recording."""
        if self.tape is not None:
            self.tape.hear(event())

    def tell_message(self, message: Message | None) -> Awaitable[None]:
        """Tell of the message that has just become the last of the history; None: none has."""
        if message is None:
            return _TOLD
        return self.tell(
            lambda: MessageCommitted(path=self.path, message=message, index=len(self.history.messages) - 1)
        )

    async def complete_attempt(self, *, succeeded: bool) -> None:
        """Record the attempt, and tell that it has ended."""
        self.attempt.is_open = False
        attempt, usage = self.attempt, self.ledger.attempt_usage
        record = AttemptRecord(number=attempt.number, iterations=attempt.iteration, usage=usage, report=attempt.report)
        self.records.append(record)
        await self.tell(lambda: AttemptCompleted(**attempt_place(self), succeeded=succeeded))

    def end(self, code: ErrorCode | None) -> None:
        """Tell the run above how this one ended: with an error, or well."""
        if self.above is not None:
            record = self.above.children.ended[self.number] = ChildRecord(
                path=self.path,
                usage=self.ledger.usage,
                code=code,
                attempts=len(self.records),
                iterations=self.ledger.n_model_calls,
                calls=self.ledger.own_calls,
                latency_s=self.clock.elapsed_s,
                children=self.children.records(),
            )
            tally = self.calls.tally
            if tally is not None and tally.run is self.above:
                tally.children.append(record)
                tally.numbers.append(self.number)
                tally.calls += self.ledger.calls
                tally.background.append(self.ledger.background_usage)


def attempt_place(run: Run) -> AttemptPlace:
    """Return where a run is, as the events of its attempt take it."""
    return {"path": run.path, "attempt": run.attempt.number}


def iteration_place(run: Run) -> IterationPlace:
    """Return where a run is, as the events of its iteration take it."""
    attempt = run.attempt
    return {"path": run.path, "attempt": attempt.number, "iteration": attempt.iteration}


def last_handed_in(run: Run) -> str | None:
    """Return the last output of a run that was handed in, as the model wrote it; None if there is none."""
    return None if run.clock.prepared_s is None else run.prepared.hand_in.last_raw


def content_of(run: Run) -> tuple[UserContent, ...]:
    """Return the blocks of a checked input that is content; none of any other."""
    is_content = run.agent.input is str and not isinstance(run.input, str)
    return cast("tuple[UserContent, ...]", run.input) if is_content else ()


async def input_for_functions(run: Run) -> object:
    """Return the checked input as the agent's functions take it, in a copy: of content, its words."""
    if content := content_of(run):
        return "\n\n".join([block.text for block in content if isinstance(block, Text)])
    return await do_aside(run.input, own_copy)


def call_with_deps(run: Run, function: Callable[..., T], *given: object) -> T:
    """Call a function of the agent; with the run's deps, if it takes them."""
    return function(*given, run.deps) if id(function) in run.agent.plan.takes_deps else function(*given)


# One object for all, in place of a coroutine for each event that nobody awaits.
class _Told:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None]:
        yield from ()


_TOLD = _Told()


LONGEST_PAUSE_S: Final = 3_600.0
"""The longest that the runs of a batch pause together, whatever a provider asks for. It bounds a wrong header:
without it, one answer could stop a batch of thousands for days."""


class RatePause:
    """The pauses that the runs of a batch share: when a provider limits the rate of one, none of them asks it for a
    while."""

    def __init__(self, told: Callable[[str, float], object]) -> None:
        """`told` is called with the provider and the seconds of each pause, when it begins or becomes longer."""
        self._told = told
        self._ends: dict[str, float] = {}
        """When the pause of each provider ends, on the event loop's clock."""

    def begin(self, provider: str, seconds: float) -> None:
        """Let nobody ask the provider for so many seconds; a longer pause that goes on stays."""
        ends = asyncio.get_running_loop().time() + min(seconds, LONGEST_PAUSE_S)
        if seconds > 0 and ends > self._ends.get(provider, 0.0):
            self._ends[provider] = ends
            self._told(provider, min(seconds, LONGEST_PAUSE_S))

    async def over(self, provider: str) -> None:
        """Wait until the provider may be asked."""
        left_s = self._ends.get(provider, 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)
            await self.over(provider)  # it may be longer by now


class RunContext(NamedTuple):
    """The place where code runs, as the loop knows it."""

    path: RunPath = ()
    """The run that goes on here, from the root down."""
    run: Run | None = None
    """The run that goes on here: the one above the next that begins here."""
    call: Scope | None = None
    """The scope that limits the time of the tool call that goes on here."""
    task: TaskContext | None = None
    """The background task that goes on here."""
    pause: RatePause | None = None
    """The pause that the runs of the batch share which goes on here."""


_NO_RUN: Final = RunContext()
run_context: ContextVar[RunContext] = ContextVar("journeyman_run_context", default=_NO_RUN)
current_tally: ContextVar[StepTally | None] = ContextVar("journeyman_tally", default=None)
"""What counts the runs that begin in the step that is done here."""


def enter(**changes: Any) -> Callable[[], None]:
    """Change the place of what goes on in this context, and return a function that changes it back.

    Without a run and a call, the runs that begin here are nobody's children, and outlive the run they came from: they
    are not stopped with it, not counted in it, and not cut by a call's limit of time. They keep its path and its gates.
    """
    around = run_context.get()._replace(**changes)
    scope = None if around.run is None else around.run.scope
    before, above = run_context.set(around), current_scope.set(scope)

    def leave() -> None:
        current_scope.reset(above)
        run_context.reset(before)

    return leave


@lazy_dataclass()
class Candidate:
    """An output that was handed in and not validated yet."""

    raw: str
    """The arguments as the model wrote them; or its text."""
    call: ToolUse | None = None
    """The call that handed it in: the verdict is its result. None for text."""
    terminal_result: str | None = None
    """The result of the call that ended the run through `stop_after`."""
    member: OutputMember | None = None
    """The output that it is; None: the text is the output."""


class HandIn(Protocol):
    """The way in which an agent hands in its output: it decides after each iteration whether there is one."""

    @property
    def mode(self) -> OutputMode | None:
        """How the model hands in; None for an agent that answers with text."""
        ...

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
        """The last proposal, in any attempt."""
        ...

    def begin_attempt(self) -> None: ...

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        """Return the candidate, the end of the run, or None to go on."""
        ...


@lazy_dataclass()
class Call:
    """One call of a response, after it ended."""

    use: ToolUse
    outcome: Outcome | None
    """None: withheld until the output was validated."""


@lazy_dataclass()
class Iterated:
    """The outcome of one iteration: the response, and the calls that were made for it."""

    response: Response
    said: Message | None
    """The response as it stands in the history; None if it was empty."""
    calls: tuple[Call, ...] = ()
    """In call order; empty unless the model stopped for them."""


@lazy_dataclass()
class Finished:
    """The run has an output that passed."""

    output: Any
    terminal_result: str | None


@lazy_dataclass(frozen=True, kw_only=True)
class Checking:
    """The circumstances of a check, for a validator that takes them besides the output."""

    input: object
    """The run's input, in a copy of its own."""
    attempt: int
    max_attempts: int
    abort: Abort | None
    """The caller's signal, for a check that takes long."""


@lazy_dataclass()
class Layer:
    """A validation layer that is about to judge."""

    name: str
    kind: LayerKind
    description: str
    work: Callable[[], Awaitable[LayerOutcome]]

    def cut_short(self, why: str, error: BaseException | None = None) -> LayerOutcome:
        """Return the outcome of a layer that gave no verdict."""
        return LayerOutcome(
            name=self.name, kind=self.kind, description=self.description, passed=False, feedback=why, error=error
        )


@lazy_dataclass()
class Outcome:
    """The result of a call, and how it came about."""

    result: ToolResult
    error: str | None = None
    """The kind of failure, as `ToolStats.errors` counts it; None for a success."""
    cached: bool = False
    stop: str | None = None
    """Why the call ends its run; None: it does not."""
    made: StoredValue | None = None
    """The output that a function made, as a journal stores it."""

    @classmethod
    def failure(cls, error: str, text: str) -> Outcome:
        """Return the outcome of a call that was not made, or failed: the model reads `text`."""
        return cls(ToolResult(text, is_error=True), error)

    def noting(self, note: str) -> Outcome:
        """Return this with a note to the model in front of the result."""
        content = self.result.content
        noted = f"{note}\n{content}" if isinstance(content, str) else (Text(note), *content)
        return replace(self, result=replace(self.result, content=noted))


@lazy_dataclass()
class HandInTool:
    """A tool that belongs to the loop itself: the output tool or submit."""

    kind: ToolKind
    handle: Callable[[ToolUse], Awaitable[ToolResult | None]]
    """Answers the call; None withholds the answer until the output was validated."""


def sent_runs() -> SentRuns | None:
    """Return the runs that the durable run which goes on here has sent out; None where there is no such run."""
    run = run_context.get().run
    return None if run is None else run.options.journal.sent


def outside_of(run: Run) -> Outside | None:
    """Return those outside of the process who follow the recording of a run."""
    return None if run.tape is None else run.tape.outside


async def wait_while_held(run: Run) -> None:
    """Wait while the run is held from outside."""
    outside = outside_of(run)
    if outside is not None and outside.is_held:
        await outside.wait_until_released()

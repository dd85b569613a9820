"""The definition of an agent: frozen data, checked as a whole when it is made, and shared by every run of it.

No verbs: `loop.py` runs it. Imports `definition`, which says what may be wrong with one, and the parts it is made of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from journeyman.budget import Budget, BudgetPolicy, Limits
from journeyman.definition import Plan, planned
from journeyman.gate import Approver, Gate
from journeyman.journal import Journal
from journeyman.loop.validation import Validator
from journeyman.model import Model, Settings
from journeyman.output import TEXT, Output
from journeyman.prompt import ErrorPrompt, Prompt, SystemPrompt, default_error_prompt
from journeyman.tools.tool import BackgroundTasks, Middleware, States, Tool
from journeyman.types import Message, ToolResult
from journeyman.window import AnyStrategy, Compaction

Out = TypeVar("Out", default=str, covariant=True)
In = TypeVar("In", default=str, contravariant=True)

SystemMode: TypeAlias = Literal["append", "replace", "prepend"] | str
"""How a team host joins the system prompt with its own. Unknown words are kept and mean `append`; a single run uses the
prompt as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observability:
    """What a result reports."""

    track_tokens: bool = True
    """False: `Metadata.usage` is None. Budgets still count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A normal stop that a stop guard may veto."""

    text: str
    """The model's last words."""
    attempt: int
    iteration: int
    trigger: Literal["answer", "stop_after"]


@dataclass(frozen=True, slots=True)
class KeepGoing:
    """The run goes on; the model reads `text`. A blank text lets it stop."""

    text: str


@dataclass(frozen=True, slots=True)
class Escalate:
    """The run ends with `Failure(STOP_GUARD)`."""

    reason: str


StopVerdict: TypeAlias = KeepGoing | Escalate | None
StopGuard: TypeAlias = Callable[[Stopping], StopVerdict | Awaitable[StopVerdict]]
"""Asked on a normal stop of an agent that answers with text, before its validators. None lets it stop."""

StopAfter: TypeAlias = Sequence[str] | Callable[[str, ToolResult], bool | Awaitable[bool]]
"""Which successful call ends the run: names of tools, or a predicate on the tool's name and result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What surrounds a run: the same for it and for the runs it starts."""

    journal: Journal | None = None
    """Remembers finished steps, so that a run that died can go on."""
    gate: Gate | Sequence[Gate] | None = None
    """Asked after the agent's own gate; of several, one after the other."""
    approve: Approver | None = None
    """Answers what a gate asks. None: what is asked is denied."""
    budget: Budget | None = None
    """The budget to draw on."""
    tasks: BackgroundTasks | None = None
    """Where tools start background work."""
    model: Model | None = None
    """Used instead of the agent's. Sub-agents keep their own."""


NOTHING_AROUND: Final = Host()
"""What surrounds a run of which nothing is said."""


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `Agent[Report](…)`.
@dataclass(frozen=True, kw_only=True, eq=False)
class Agent(Generic[Out, In]):
    """An agent: who it is, what it may use, what it hands in, how that is checked, and how far it may go.

    `Agent[Report]` hands in a `Report`; an agent without `output` answers with text.

    Raises:
        DefinitionError: when made, if anything is wrong with it; lists every problem.
    """

    name: str
    """Letters, digits, `_` and `-`; names the run in events."""
    model: str | Model
    """`"provider:name"`, resolved when a run starts, or a model."""
    description: str = ""
    """What it is good for, for whoever delegates to it."""
    input: type[In] = str  # pyright: ignore[reportAssignmentType] - solves In when omitted
    """The type of the input. Checked before anything is sent."""
    output: Output[Out] = TEXT  # pyright: ignore[reportAssignmentType] - solves Out when omitted
    """What it hands in. Left out, it answers with text."""
    system: SystemPrompt | Callable[[In], SystemPrompt | Awaitable[SystemPrompt]] = ""
    """Built once for each run."""
    system_mode: SystemMode = "append"
    prompt: Prompt | Callable[[In], Prompt | Awaitable[Prompt]] | None = None
    """The first user message, built once for each run. None: a text input as it is, any other as JSON."""
    error_prompt: ErrorPrompt = default_error_prompt
    """What the model reads after a failed validation; built once for each failed attempt that has a successor."""
    feedback: Literal["result", "text"] = "result"
    """Where it reads that: in the result of its last call, or in a text after the results."""
    nudge: bool = False
    """Remind a model that stops without handing in, instead of failing with `INVALID_RESPONSE`. Costs iterations."""
    tools: Sequence[Tool[..., Any]] = ()
    tools_are_idempotent: bool = False
    """The effect of tools that declare none: `idempotent` if True, `once` if False."""
    validators: Sequence[Validator[Out]] = ()
    """Checks after the schema, in order, up to the first that rejects."""
    limits: Limits = Limits()
    budget: Sequence[BudgetPolicy] = ()
    """Further policies of your own, checked before each model call."""
    settings: Settings = Settings()
    retries: int | None = None
    """How often a failed model request is repeated. None: 2 for a top-level run, 0 for a sub-agent."""
    max_result_chars: int | None = None
    """Cut tool results beyond this many characters, for tools that set no limit of their own."""
    run_state: Callable[[In], object] | None = None
    """Makes the state that lives as long as the run."""
    attempt_state: Callable[[In, Any], object] | None = None
    """Makes the state of one attempt, from the input and the run's state."""
    project: Callable[[States], object] | None = None
    """Makes `Success.state` of the final state."""
    gate: Gate | Sequence[Gate] | None = None
    """Decides about every call before its effect; of several, all must let it through."""
    middlewares: Sequence[Middleware] = ()
    """Wrapped around every call of a tool; the first is outermost."""
    compaction: Sequence[AnyStrategy] | Compaction | Callable[[Model], Sequence[AnyStrategy] | Compaction] = ()
    """How a long conversation is made to fit, in order (see `compaction.py`); a `Compaction`, to say when as well; or a
    factory of either, called with the model of each run."""
    convert: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    """Changes the messages of each request, after compaction. The history stays as it is."""
    stop_after: StopAfter = ()
    """Calls that end the run of an agent that answers with text."""
    stop_guard: StopGuard | None = None
    """May veto a normal stop of an agent that answers with text."""
    on_message: Callable[[Message], object] | None = None
    """Called with every message as it is committed, the prompt included, in order."""
    observability: Observability = Observability()
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    """Yours; not read by this library."""
    _plan: Plan[Out] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("tools", "validators", "budget", "middlewares", "stop_after", "compaction", "gate"):
            value = getattr(self, name)
            if isinstance(value, list):  # the caller may go on changing it
                object.__setattr__(self, name, tuple(cast("list[object]", value)))
        object.__setattr__(self, "_plan", planned(self))

    @property
    def plan(self) -> Plan[Out]:
        """What the definition compiles to: tools by name, schemas, the tools as the model sees them."""
        return self._plan

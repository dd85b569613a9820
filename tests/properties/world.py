"""Everything that one generated run depends on, as plain data: the model's script, the agent, the user's functions.

A function of the user's is a `Site`: what it does the first time, the second time, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from journeyman import Limits, Message
from journeyman.types import Price
from tests.properties.played_model import Turn

Waiting: TypeAlias = Literal["fine", "slow", "hang", "swallow", "convert"]
Stopping: TypeAlias = Literal["abort", "cancel"]
Raising: TypeAlias = Literal[
    "raise", "raise blank", "raise mute", "raise group", "raise base group", "raise timeout", "reject", "leak"
]
Returning: TypeAlias = Literal[
    "nothing",
    "blank",
    "value",
    "not a number",
    "huge",
    "blocks",
    "error result",
    "surrogate",
    "circular",
    "object",
    "generator",
    "coroutine",
]
"""What a tool or a reflection may return."""
UsingContext: TypeAlias = Literal["state", "bad state", "progress", "nested run"]
Judging: TypeAlias = Literal["mutate", "return"]
Deciding: TypeAlias = Literal["deny", "ask", "rewrite", "bad rewrite", "garbage"]
Guarding: TypeAlias = Literal["keep going", "escalate", "stop"]
Wrapping: TypeAlias = Literal["answer", "twice"]
ActKind: TypeAlias = Waiting | Stopping | Raising | Returning | UsingContext | Judging | Deciding | Guarding | Wrapping


@dataclass(frozen=True, slots=True)
class Act:
    """What a function does once."""

    kind: ActKind = "fine"
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Site:
    """A function of the user's."""

    form: Literal["sync", "async"] = "sync"
    acts: tuple[Act, ...] = (Act(),)
    """Call by call; then from the beginning."""

    @property
    def may_raise(self) -> bool:
        return any(act.kind in (*get_args(Raising), "convert") for act in self.acts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPlan:
    """A tool."""

    name: str
    form: Literal["async", "inline", "thread"] = "async"
    acts: tuple[Act, ...] = (Act(),)
    parallel: bool = False
    cache: Literal["attempt", "run", False] = False
    timeout_s: float | None = None
    max_chars: int | None = None
    is_raw: bool = False
    """Its schema is given as it is, instead of read from a signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionPlan:
    site: Site = Site()
    require_clean: bool = False
    submit_alone: bool = False
    early_submit: Literal["fail", "answer"] = "fail"


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody outside stops the run."""

    at_s: float
    how: Literal["abort", "cancel"]


OutputKind: TypeAlias = Literal["text", "model", "list", "optional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One run, before it happens."""

    turns: tuple[Turn, ...]
    output: OutputKind = "text"
    tools: tuple[ToolPlan, ...] = ()
    reflection: ReflectionPlan | None = None
    validators: tuple[Site, ...] = ()
    limits: Limits = field(default_factory=Limits)
    request_retries: int | None = 0
    price: Price | None = None
    max_tokens: int | None = None
    reminder: bool = False
    feedback_role: Literal["result", "text"] = "result"
    stop_after: Site | tuple[str, ...] = ()
    stop_guard: Site | None = None
    system: Site | None = None
    prompt: Site | None = None
    error_prompt: Site | None = None
    run_state: Site | None = None
    attempt_state: Site | None = None
    final_state: Site | None = None
    gate: Site | None = None
    runtime_gate: Site | None = None
    approve: Site | None = None
    tool_middleware: tuple[Site, ...] = ()
    policy: Site | None = None
    transform_messages: Site | None = None
    compaction: Site | None = None
    on_message: Site | None = None
    callbacks: Mapping[str, Site] = field(default_factory=dict[str, Site])
    is_journalled: bool = False
    has_runtime_budget: bool = False
    tracks_tokens: bool = True
    given: tuple[Message, ...] = ()
    max_attempts: int | None = None
    stops: tuple[Stop, ...] = ()
    watch: Literal["listener", "stream", "nobody"] = "listener"

    @property
    def may_fail_inside(self) -> bool:
        """Whether a function that nothing protects may raise: that is `INTERNAL_ERROR`."""
        unprotected = (
            self.run_state,
            self.attempt_state,
            self.stop_after,
            self.policy,
            self.transform_messages,
            self.compaction,
        )
        return any(isinstance(site, Site) and site.may_raise for site in unprotected)

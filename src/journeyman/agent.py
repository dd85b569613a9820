"""The definition of an agent: frozen data, checked as a whole when it is made, and shared by every run of it.

Every check adds its problems to one list, so that a definition is refused with all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from journeyman.budget import Allowance, Budget, BudgetPolicy, Limits
from journeyman.connect import name_problem
from journeyman.errors import DefinitionError, Problem
from journeyman.gate import Approver, Gate
from journeyman.journal import Journal
from journeyman.model import Model, Settings, ToolSpec
from journeyman.output import TEXT, Output, Reflection
from journeyman.prompt import ErrorPrompt, Prompt, SystemPrompt, default_error_prompt
from journeyman.tools.context import BackgroundTasks, States
from journeyman.tools.schema import OutputSchema, output_schema
from journeyman.tools.tools import TOOL_NAME, Middleware, Tool, tool_problems
from journeyman.types import JsonObject, Message, RunPath, Text, ToolResult, frozen, frozen_in_order
from journeyman.window import AnyStrategy, Compaction

Co = TypeVar("Co", covariant=True)
Contra = TypeVar("Contra", contravariant=True)

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_PASS_COUNT = "Pass a whole number of at least 1."
_PASS_AMOUNT = "Pass a finite number above 0."
_OUTPUT_DESCRIPTION = "Give the final output with this tool."
_DRAFT_DESCRIPTION = "Propose the output with this tool; you will see it as others would, and may propose it again."

Out = TypeVar("Out", default=str, covariant=True)
In = TypeVar("In", default=str, contravariant=True)

SystemMode: TypeAlias = Literal["append", "replace", "prepend"] | str
"""How a team host joins the system prompt with its own. Unknown words are kept and mean `append`; a single run uses the
prompt as it is."""


Validator: TypeAlias = Callable[[Contra], Awaitable[None] | None]
"""Raises to reject an output: `Rejected(text, path=…)` or any exception, whose text the model reads."""


@frozen
class Observability:
    """What a result reports."""

    track_tokens: bool = True
    """False: `Metadata.usage` is None. Budgets still count."""


@frozen
class Stopping:
    """A normal stop that a stop guard may veto."""

    text: str
    """The model's last words."""
    attempt: int
    iteration: int
    trigger: Literal["answer", "stop_after"]


@frozen_in_order
class KeepGoing:
    """The run continues; the model reads `text`. A blank text lets it stop."""

    text: str


@frozen_in_order
class Escalate:
    """The run ends with `Failure(STOP_GUARD)`."""

    reason: str


StopVerdict: TypeAlias = KeepGoing | Escalate | None
StopGuard: TypeAlias = Callable[[Stopping], StopVerdict | Awaitable[StopVerdict]]
"""Asked on a normal stop of an agent that answers with text, before its validators. None lets it stop."""


@frozen
class MessageContext:
    """Where a message was committed."""

    path: RunPath
    """The run, from the top."""
    agent: str
    """The name of its agent."""
    task: str
    """The input of the run: a text as it is, anything else as JSON."""
    index: int
    """The place of the message in the history, from 0. The user's last message may grow until the model answers it: it
    is then told again, under the same index."""


OnMessage: TypeAlias = Callable[[Message], object] | Callable[[Message, MessageContext], object]
"""Called with every message as it is committed; a function with two required parameters is told where, too."""

StopAfter: TypeAlias = Sequence[str] | Callable[[str, ToolResult], bool | Awaitable[bool]]
"""Which successful call ends the run: names of tools, or a predicate on the tool's name and result."""


@frozen
class Host:
    """What surrounds a run: the same for it and for the runs it starts."""

    journal: Journal | None = None
    """Remembers finished steps, so that a run that died can be resumed."""
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
"""What surrounds a run when the caller says nothing."""


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
    """The system prompt; a function is called once for each run."""
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
    on_message: OnMessage | None = None
    """Called with every message as it is committed, the prompt included, in order. A function with two required
    parameters gets a `MessageContext` as the second."""
    observability: Observability = Observability()
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    """Your own facts about the agent; this library does not read them."""
    _plan: Plan[Out] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("tools", "validators", "budget", "middlewares", "stop_after", "compaction", "gate"):
            value = getattr(self, name)
            if isinstance(value, list):  # the caller may still change it
                object.__setattr__(self, name, tuple(cast("list[object]", value)))
        object.__setattr__(self, "_plan", planned(self))

    @property
    def plan(self) -> Plan[Out]:
        """What the definition compiles to: tools by name, schemas, the tools as the model sees them."""
        return self._plan


# -- what a definition compiles to -------------------------------------------------------------------------------------


@frozen
class Plan(Generic[Co]):
    """A definition, compiled."""

    input: OutputSchema[Any]
    output: OutputSchema[Any] | None = None
    """None for an agent that answers with text."""
    reflection: Reflection[Any] | None = None
    tools: Mapping[str, Tool[..., Any]]
    specs: tuple[ToolSpec, ...]
    """The tools as the model sees them: output, helpers in order, submit."""
    output_name: str | None = None
    submit_name: str | None = None

    @property
    def terminator(self) -> str | None:
        """The tool that ends an attempt; None for an agent that answers with text."""
        return self.submit_name or self.output_name


def planned(agent: Agent[Any, Any]) -> Plan[Any]:
    """Check a definition and compile it.

    Raises:
        DefinitionError: with every problem that was found.
    """
    problems = list(_check_sections(agent))
    for check in _CHECKS:
        try:
            problems += check(agent)
        except (TypeError, AttributeError):
            if not problems:  # a section that is of no use was found and named above
                raise
    if problems:
        raise DefinitionError(f"Agent {agent.name!r}", problems)
    try:
        return _compiled(agent)
    except DefinitionError as error:
        raise DefinitionError(f"Agent {agent.name!r}", error.problems) from error


def _compiled(agent: Agent[Any, Any]) -> Plan[Any]:
    tools = {tool.name: tool for tool in agent.tools}
    helpers = tuple(tool.spec for tool in agent.tools)
    given = output_schema(agent.input, name="input")
    if agent.output is TEXT:
        return Plan(input=given, tools=tools, specs=helpers)
    output, reflection = agent.output, agent.output.reflecting()
    schema = output_schema(output.type, name=output.name)
    about = output.description.strip() or (_DRAFT_DESCRIPTION if reflection else _OUTPUT_DESCRIPTION)
    specs = [ToolSpec(name=output.name, description=about, input_schema=schema.input_schema, strict=output.strict)]
    specs += helpers
    if reflection is not None:
        submit = reflection.submit
        nothing: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
        specs.append(ToolSpec(name=submit.name, description=submit.description, input_schema=nothing))
    return Plan(
        input=given,
        output=schema,
        reflection=reflection,
        tools=tools,
        specs=tuple(specs),
        output_name=output.name,
        submit_name=reflection.submit.name if reflection else None,
    )


# -- the checks -------------------------------------------------------------------------------------------------------


def _check_sections(agent: Agent[Any, Any]) -> Iterator[Problem]:
    for name, kind in _SECTIONS.items():
        value = getattr(agent, name)
        if not isinstance(value, kind) and not (name == "system" and callable(value)):
            wanted = " or ".join(each.__name__ for each in kind)
            yield Problem("INVALID_SECTION", f"{name} is {value!r}.", f"Leave it out, or pass {wanted}.")
    if not hasattr(agent.observability, "track_tokens"):
        yield Problem("INVALID_SECTION", f"observability is {agent.observability!r}.", "Leave it out.")


def _check_name(agent: Agent[Any, Any]) -> Iterator[Problem]:
    if not isinstance(agent.name, str) or not NAME.fullmatch(agent.name):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        yield Problem(
            "INVALID_NAME",
            f"The name {agent.name!r} is not 1 to 64 letters, digits, '_' or '-'.",
            "Give the agent a name such as 'analyst'.",
        )


def _check_model(agent: Agent[Any, Any]) -> Iterator[Problem]:
    if isinstance(agent.model, str):
        problem = name_problem(agent.model)
        if problem is not None:
            yield problem
        return
    missing = [name for name in ("stream", "provider", "name") if not hasattr(agent.model, name)]
    if missing:
        yield Problem(
            "INVALID_MODEL",
            f"The model is {agent.model!r}, which has no {' and no '.join(missing)}.",
            "Pass 'provider:name', or a model such as connect(…) or Scripted([…]) gives.",
        )


def _check_prompts(agent: Agent[Any, Any]) -> Iterator[Problem]:
    if isinstance(agent.prompt, str) and not agent.prompt.strip():
        yield Problem("EMPTY_PROMPT", "The prompt is blank.", "Leave it out to send the input itself.")
    if not callable(agent.error_prompt):
        yield Problem(
            "INVALID_PROMPT",
            f"The error prompt is {agent.error_prompt!r}, not a function.",
            "Pass a function from a Rejection to a text.",
        )
    system = agent.system
    blank_text = isinstance(system, str) and system != "" and not system.strip()
    blocks = cast("Sequence[object]", system) if isinstance(system, Sequence) else ()
    blank_block = any(isinstance(block, Text) and not block.text.strip() for block in blocks)
    if blank_text or blank_block:
        yield Problem("EMPTY_PROMPT", "The system prompt is blank, or a block of it is.", "Leave it out, or fill it.")


def _check_tools(agent: Agent[Any, Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for tool in agent.tools:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            yield Problem(
                "INVALID_TOOL",
                f"Agent.tools holds {tool!r}, which is no tool.",
                "Decorate the function with @tool, or build a Tool(name, description, input_schema, handler).",
            )
        elif tool.name in seen:
            yield Problem(
                "DUPLICATE_TOOL_NAME",
                f"Tool {tool.name!r} is defined twice.",
                "Rename one, or remove it from Agent.tools.",
            )
        else:
            seen.add(tool.name)
            yield from tool_problems(tool)


def _check_output(agent: Agent[Any, Any]) -> Iterator[Problem]:
    if agent.output is TEXT:
        return
    reflection = agent.output.reflecting()
    names = [("output", agent.output.name)]
    if reflection is not None:
        names.append(("submit", reflection.submit.name))
        if not reflection.submit.description.strip():
            yield Problem("EMPTY_DESCRIPTION", "The submit tool has a blank description.", "Say when to call it.")
        if not callable(reflection.handler):
            yield Problem(
                "INVALID_REFLECTION", f"The reflection is {reflection.handler!r}, not a function.", "Pass a function."
            )
    yield from _check_reserved(names, {tool.name for tool in agent.tools if isinstance(tool, Tool)})  # pyright: ignore[reportUnnecessaryIsInstance]


def _check_reserved(names: Sequence[tuple[str, str]], helpers: set[str]) -> Iterator[Problem]:
    taken = set(helpers)
    for role, name in names:
        if not TOOL_NAME.fullmatch(name):
            yield Problem(
                "INVALID_TOOL_NAME",
                f"The {role} tool's name {name!r} is not 1 to 128 letters, digits, '_' or '-'.",
                "Choose another name.",
            )
        if name in taken:
            yield Problem(
                "RESERVED_TOOL_NAME",
                f"The {role} tool is named {name!r}, as another tool is.",
                "Rename one of the two.",
            )
        taken.add(name)


def _check_text_only(agent: Agent[Any, Any]) -> Iterator[Problem]:
    if agent.output is TEXT:
        if agent.nudge:
            yield Problem("INVALID_NUDGE", "nudge is set, but there is no output tool to remind of.", "Remove it.")
        return
    for name, value in (("stop_after", agent.stop_after), ("stop_guard", agent.stop_guard)):
        if value:
            yield Problem(
                "TEXT_AGENT_ONLY",
                f"{name} is set, but the agent hands in a typed output.",
                f"Remove {name}, or leave out output so that the agent answers with text.",
            )


def _check_validators(agent: Agent[Any, Any]) -> Iterator[Problem]:
    for validator in agent.validators:
        if not callable(validator):
            yield Problem(
                "INVALID_VALIDATOR", f"{validator!r} is no function.", "Pass a function that raises to reject."
            )


def _check_limits(agent: Agent[Any, Any]) -> Iterator[Problem]:
    limits = agent.limits
    for name in ("attempts", "iterations", "parallel_calls"):
        value = getattr(limits, name)
        if not is_count(value):
            yield Problem(f"INVALID_MAX_{name.upper()}", f"limits.{name} is {value!r}.", _PASS_COUNT)
    yield from _check_numbers("limits", limits, ("extended_max_tokens", "tool_failures"), ("approval_seconds",))
    for where, allowance in (("limits", limits.run_allowance()), ("limits.each_attempt", limits.each_attempt)):
        yield from _check_numbers(where, allowance, ("tokens", "calls"), ("seconds", "cost"))
    if agent.retries is not None and not is_count(agent.retries, 0):
        yield Problem("INVALID_RETRIES", f"retries is {agent.retries!r}.", "Pass a whole number of at least 0.")


def _check_numbers(
    where: str, holder: Limits | Allowance, counts: Sequence[str], amounts: Sequence[str]
) -> Iterator[Problem]:
    for names, is_right, hint in (
        (counts, is_count, _PASS_COUNT),
        (amounts, is_amount, "Pass a finite number above 0."),
    ):
        for name in names:
            value = getattr(holder, name)
            if value is not None and not is_right(value):
                yield Problem("INVALID_LIMIT", f"{where}.{name} is {value!r}.", hint)


def _check_settings(agent: Agent[Any, Any]) -> Iterator[Problem]:
    max_tokens = agent.settings.max_tokens
    if max_tokens is not None and not is_count(max_tokens):
        yield Problem("INVALID_MAX_TOKENS", f"settings.max_tokens is {max_tokens!r}.", _PASS_COUNT)
    thinking = agent.settings.thinking
    if not isinstance(thinking, str) and thinking is not None and not is_count(thinking):
        yield Problem("INVALID_THINKING", f"settings.thinking is {thinking!r}.", "Pass a level, or a budget of tokens.")
    longest = agent.max_result_chars
    if longest is not None and not is_count(longest):
        yield Problem(
            "INVALID_MAX_CHARS", f"max_result_chars is {longest!r}.", "Pass a whole number of at least 1, or None."
        )


_CHECKS: Final = (
    _check_name,
    _check_model,
    _check_prompts,
    _check_tools,
    _check_output,
    _check_text_only,
    _check_validators,
    _check_limits,
    _check_settings,
)


_SECTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "limits": (Limits,),
    "settings": (Settings,),
    "output": (Output,),
    "tools": (list, tuple),
    "validators": (list, tuple),
    "system": (str, list, tuple),
}


def is_count(value: object, least: int = 1) -> bool:
    """True for a whole number of at least `least`; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_amount(value: object) -> bool:
    """True for a finite number above 0; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")

"""The definition of an agent: frozen data, checked as a whole when it is made, and shared by every run of it.

Every check adds its problems to one list, so that a definition is refused with all of them at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, cast, get_args

from typing_extensions import TypeForm, TypeIs, TypeVar

from journeyman.budget import Budget, Limits
from journeyman.cancellation import GRACE_S
from journeyman.connect import name_problem
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list, is_sequence
from journeyman.definition.problems import (
    Kind,
    is_one_of,
    missing_attribute,
    raise_problems,
    value_problems,
    write_value,
)
from journeyman.definition.references import SentByName
from journeyman.errors import DefinitionError, Problem
from journeyman.gate import Approver, Gate, GateWithDeps
from journeyman.hosted.tools import own_tools
from journeyman.journal import Journal, Records, Telemetry
from journeyman.model import Model, ModelSettings, ToolSpec
from journeyman.output.output import TEXT, OneOf, Output, OutputMode, StopAfter, StopGuard
from journeyman.output.output import ContinueRun as ContinueRun
from journeyman.output.output import FailRun as FailRun
from journeyman.output.output import PerRun as PerRun
from journeyman.output.output import StopContext as StopContext
from journeyman.output.output import StopVerdict as StopVerdict
from journeyman.output.output import Validator as Validator
from journeyman.output.plan import OutputPlan, Surroundings, compile_output, output_problems
from journeyman.prompt import ErrorPrompt, Prompt, SystemPrompt, default_error_prompt
from journeyman.tools.check import (
    async_problems,
    block_problems,
    function_problem,
    gate_problems,
    limits_problems,
    meant,
    section_hint,
    settings_problems,
    tools_hint,
)
from journeyman.tools.context import BackgroundTasks, States, own_copy
from journeyman.tools.deps import (
    NOT_DECLARED,
    Bound,
    declared,
    deps_problems,
    function_or_deps_problem,
    lacks_deps,
    takes_deps,
    tool_deps_problems,
)
from journeyman.tools.schema import OutputSchema, anthropic_problems, output_schema, text_input
from journeyman.tools.tools import AnyTool, Middleware, tool_problems
from journeyman.tools.toolsets import (
    Toolset,
    ToolSource,
    fixed_tools,
    gives_tools,
    is_tool,
    is_toolset,
    source_problems,
)
from journeyman.types import Effect, Message, RunPath, Text, UserContent
from journeyman.window import AnyStrategy, Compaction

__all__ = ["Maker", "MessageContext", "OnMessage", "SystemMode", "TeamPrompt"]

Co = TypeVar("Co", covariant=True)
Contra = TypeVar("Contra", contravariant=True)

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Out = TypeVar("Out", default=str, covariant=True)
In = TypeVar("In", default=str, contravariant=True)
Deps = TypeVar("Deps", default=object, contravariant=True)

SystemMode: TypeAlias = Literal["append", "replace", "prepend"] | str
"""The place of a member's system prompt beside that of its team. An unknown word is kept, and means `append`."""


Maker: TypeAlias = Callable[[Contra], Co | Awaitable[Co]] | Callable[[Contra, Deps], Co | Awaitable[Co]]
"""Makes something for one run from its input, and from the run's deps if it needs them."""


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `TeamPrompt[Task](…)`.
@lazy_dataclass(frozen=True, slots=False)
class TeamPrompt(Generic[In, Deps]):
    """A system prompt that says how a team joins it with its own: `Agent(system=TeamPrompt("…", mode="replace"))`.

    A run that is no member of a team uses the prompt as it is.
    """

    prompt: SystemPrompt | Maker[In, SystemPrompt, Deps]
    """The system prompt; a function is called once for each run."""
    _: KW_ONLY
    mode: SystemMode = "append"
    """The place of the prompt: after the team's, before it, or instead of it."""


@lazy_dataclass(frozen=True, kw_only=True)
class MessageContext:
    """The place of a committed message: its run, that run's agent and task, and its index in the history."""

    path: RunPath
    """The run, from the top."""
    agent: str
    """The name of its agent."""
    task: str
    """The input of the run: a text as it is, anything else as JSON."""
    index: int
    """The place of the message in the history, from 0. The user's last message may grow until the model answers it: the
    function is then called again with the same index."""


OnMessage: TypeAlias = Callable[[Message], object] | Callable[[Message, MessageContext], object]
"""Called with every message as it is committed. A function with two required parameters also gets a
`MessageContext`."""


@lazy_dataclass(frozen=True, kw_only=True)
class Runtime:
    """The surroundings of a run, shared with the runs that it starts: journal, gates, budget, recorder, and more."""

    journal: Journal | None = None
    """Remembers finished steps, so that a run that died can be resumed."""
    gate: Gate | Sequence[Gate] | None = None
    """Asked after the agent's own gate. Several gates are asked one after the other."""
    approver: Approver | None = None
    """Answers what a gate asks. None: a chat, a durable run or a recorder may have somebody to ask; otherwise the call
    is denied."""
    budget: Budget | None = None
    """The budget to draw on."""
    tasks: BackgroundTasks | None = None
    """Where tools start background work."""
    model: Model | None = None
    """Used instead of the agent's. Sub-agents keep their own."""
    recorder: Records | str | os.PathLike[str] | None = None
    """Records what happens, so that somebody can look at it later: a `Recorder`, a `Store`, or the path of one, which
    is opened for each run. The recording of a run includes the runs that it starts."""
    telemetry: Telemetry | None = None
    """Tells others what happens, as it happens: an `OpenTelemetry` of `journeyman.otel`."""
    grace_s: float = GRACE_S
    """How many seconds a stopped run waits for a tool, or a model's client, that swallows its cancellation. Then the
    run ends, and leaves behind the work that has not ended."""


DEFAULT_RUNTIME: Final = Runtime()
"""What surrounds a run when the caller says nothing."""


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `Agent[Report](…)`.
@lazy_dataclass(frozen=True, kw_only=True, eq=False, slots=False)
class Agent(SentByName, Generic[Out, In, Deps]):
    """An agent: who it is, what it may use, what it hands in, how that is checked, and how far it may go.

    `Agent[Report]` hands in a `Report`; an agent without `output` answers with text. Each of its functions gets the
    run's deps as one more argument, if it needs one more. Most agents need no more than the first nine fields.

    Raises:
        DefinitionError: when made, if anything is wrong with it; lists every problem.
    """

    name: str
    """Letters, digits, `_` and `-`; names the run in events."""
    model: str | Model
    """`"provider:name"`, resolved when a run starts, or a model."""
    system: SystemPrompt | Maker[In, SystemPrompt, Deps] | TeamPrompt[In, Deps] = ""
    """The system prompt; a function is called once for each run. A `TeamPrompt` also says how a team joins it with its
    own."""
    tools: Sequence[ToolSource[Deps]] = ()
    """The tools that the model may call, in the order in which the model reads about them; and toolsets, or functions
    of a `ToolsetContext`, which say in each run what tools there are."""
    output: Output[Out, Deps] | OneOf[Out, Deps] = TEXT  # pyright: ignore[reportAssignmentType] - solves Out when omitted
    """The type of what the agent hands in, and the tool for it; or several, of which it hands in one. If this is left
    out, the agent answers with text."""
    validators: Sequence[Validator[Out, Deps]] = ()
    """Checks that run after that of the schema, in order, up to the first that rejects."""
    limits: Limits = Limits()
    """The limits of a run: tokens, money, time, calls, attempts, iterations."""
    deps: TypeForm[Deps] = object  # pyright: ignore[reportAssignmentType] - solves Deps when omitted
    """The type of what each run is given beside its input: `run(agent, …, deps=db)`. `with_deps` gives the same deps to
    all runs."""
    settings: ModelSettings = ModelSettings()
    """The settings of each request: length, thinking, sampling, hosted tools, the cache."""

    # What fewer agents need: how it is called, and asked.
    description: str = ""
    """The work that the agent is good for. An agent that may delegate to it reads this."""
    input: type[In] = str  # pyright: ignore[reportAssignmentType] - solves In when omitted
    """The type of the input. Checked before anything is sent."""
    prompt: Prompt | Maker[In, Prompt, Deps] | None = None
    """The first user message, built once for each run. None: a text input as it is, any other as JSON."""
    error_prompt: ErrorPrompt[Deps] = default_error_prompt
    """What the model reads after a failed validation; built once for each failed attempt that has a successor."""
    compaction: Sequence[AnyStrategy] | Compaction | Callable[[Model], Sequence[AnyStrategy] | Compaction] = ()
    """The strategies that make a long conversation fit, in order (see `compaction.py`); or a `Compaction`, which also
    says when they are asked; or a function that returns either, called with the model of each run."""

    # The state of its runs.
    run_state: Maker[In, object, Deps] | None = None
    """Makes the state that lives as long as the run."""
    attempt_state: (
        Callable[[In, Any], object] | Callable[[In, Any, int], object] | Callable[[In, Any, int, Deps], object] | None
    ) = None
    """Makes the state of one attempt, from the input and the run's state; a third parameter, if it needs one, gets the
    attempt's number, and a fourth the deps."""
    final_state: Maker[States, object, Deps] | None = None
    """Makes `Success.state` from the final state; `States.number` is the number of the last attempt."""

    # Its calls, and what is heard of it.
    default_effect: Effect = "once"
    """The effect of tools that declare none."""
    gate: Gate | GateWithDeps[Deps] | Sequence[Gate | GateWithDeps[Deps]] | None = None
    """Decides about every call before it has an effect. If there are several gates, each must let the call through."""
    tool_middleware: Sequence[Middleware] = ()
    """Functions that are wrapped around every call of a tool; the first is outermost."""
    stop_after: StopAfter = ()
    """Calls that end the run of an agent that answers with text."""
    stop_guard: StopGuard[Deps] | PerRun | None = None
    """May veto a normal stop of an agent that answers with text; `PerRun` makes one for each run."""
    on_message: OnMessage | None = None
    """Called with every message as it is committed, the prompt included, in order. A function with two required
    parameters gets a `MessageContext` as the second."""
    track_tokens: bool = True
    """False: `Metadata.usage` is None. Budgets still count."""
    _plan: Plan[Out] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for each in fields(self):  # the caller may still change them
            value: object = getattr(self, each.name, None)
            if is_list(value):
                object.__setattr__(self, each.name, tuple(value))
        object.__setattr__(self, "_plan", compile_plan(self))

    def with_deps(self, deps: Deps) -> Agent[Out, In]:
        """Return this agent with deps for all its runs. Use it where nobody can give deps to each run: for a member of
        a team, in a worker, or behind a command.

        Raises:
            DefinitionError: the deps are not of the type that the agent declares.
        """
        if (lack := lacks_deps(deps, self.deps)) is not None:
            raise DefinitionError(f"Agent {self.name!r}", [Problem("WRONG_DEPS", lack, "")])
        bound = copy(self)
        object.__setattr__(bound, "deps", Bound(declared(self.deps), deps))
        return cast("Agent[Out, In]", bound)

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(missing_attribute(self, "Agent", name), name=name, obj=self)

    @property
    def plan(self) -> Plan[Out]:
        """The compiled definition: tools by name, schemas, and the tools as the model sees them."""
        return self._plan

    @property
    def system_mode(self) -> SystemMode:
        """The place of the system prompt beside that of a team: `append`, unless a `TeamPrompt` says otherwise."""
        return self.system.mode if _is_team_prompt(self.system) else "append"


@lazy_dataclass(frozen=True, kw_only=True)
class Plan(Generic[Co]):
    """A definition, compiled."""

    input: OutputSchema[Any]
    system: SystemPrompt | Maker[Any, SystemPrompt, Any]
    """The system prompt, without what it says to a team."""
    outputs: OutputPlan = OutputPlan()
    """The ways to hand in."""
    tools: Mapping[str, AnyTool]
    """The tools that each run has, by name."""
    specs: tuple[ToolSpec, ...]
    """The tools as the model sees them: output, helpers in order, submit."""
    sources: tuple[AnyTool | Toolset[Any], ...] = ()
    """These tools, and the toolsets that each run is to ask, in order; empty where there is none to ask."""
    takes_deps: frozenset[int] = frozenset()
    """The `id` of each function and gate of the agent that takes the run's deps."""

    @property
    def output(self) -> OutputSchema[Any] | None:
        """The type of what the agent hands in; None for an agent that answers with text."""
        return self.outputs.schema

    def list_specs(self, helpers: Sequence[ToolSpec], mode: OutputMode | None) -> tuple[ToolSpec, ...]:
        """Return the tools as the model sees them where these are the helpers, and it hands in by this mode."""
        return self.outputs.specs(helpers) if mode == "tool" else tuple(helpers)


def compile_plan(agent: Agent[Any, Any, Any]) -> Plan[Any]:
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
    raise_problems(f"Agent {agent.name!r}", problems)
    # Checked, so that they can be copied: the caller may still change what they hold.
    stops, extra = tuple(agent.settings.stop), own_copy(agent.settings.extra)
    hosted = own_tools(agent.settings.hosted)
    object.__setattr__(agent, "settings", replace(agent.settings, stop=stops, extra=extra, hosted=hosted))
    try:
        return _compile(agent)
    except DefinitionError as error:
        raise DefinitionError(f"Agent {agent.name!r}", error.problems) from error


def _compile(agent: Agent[Any, Any, Any]) -> Plan[Any]:
    sources = fixed_tools(agent.tools)
    tools = {tool.name: tool for tool in sources if is_tool(tool)}
    helpers = tuple([tool.spec for tool in tools.values()])
    asked = () if len(tools) == len(sources) else tuple(sources)
    given = text_input() if agent.input is str else output_schema(agent.input, name="input")
    gates = agent.gate if isinstance(agent.gate, Sequence) else (agent.gate,)
    taking = {id(each) for each, n in _functions_of(agent) if takes_deps(each, n)}
    taking |= {id(gate) for gate in gates if gate is not None and takes_deps(gate.decide, 1)}
    outputs = compile_output(agent.output)
    has_tool = outputs.mode in ("tool", "auto")
    return Plan[Any](
        input=given,
        system=_system_of(agent),
        outputs=outputs,
        tools=tools,
        specs=outputs.specs(helpers) if has_tool else helpers,
        sources=asked,
        takes_deps=frozenset(taking),
    )


def _system_of(agent: Agent[Any, Any, Any]) -> SystemPrompt | Maker[Any, SystemPrompt, Any]:
    return agent.system.prompt if _is_team_prompt(agent.system) else agent.system


def _is_team_prompt(given: object) -> TypeIs[TeamPrompt[Any, Any]]:
    return isinstance(given, TeamPrompt)


def _check_sections(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    for name, kind in _SECTIONS.items():
        value = getattr(agent, name)
        is_none = value is None and name in _MAY_BE_NONE
        if not (isinstance(value, kind) or is_none or (name in _MAY_BE_CALLED and callable(value))):
            is_alone = name == "tools" and (gives_tools(value) or (is_toolset(value) and not is_tool(value)))
            hint = f"Write tools=[{write_value(value)}]." if is_alone else section_hint(name, value, kind)
            yield Problem("INVALID_SECTION", f"{name} is {value!r}.", hint)
    if _is_team_prompt(agent.system):
        prompt: object = agent.system.prompt
        mode: object = agent.system.mode
        if not (isinstance(prompt, str | list | tuple) or callable(prompt)):
            yield Problem("INVALID_SECTION", f"TeamPrompt.prompt is {prompt!r}.", "Pass a text, texts, or a function.")
        if not isinstance(mode, str):  # pyright: ignore[reportUnnecessaryIsInstance] - see above
            yield Problem("INVALID_SECTION", f"TeamPrompt.mode is {mode!r}.", "Pass a word, such as 'append'.")
    yield from value_problems("INVALID_SECTION", "default_effect", agent.default_effect, _EFFECT)


def _check_name(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    if not isinstance(agent.name, str) or not NAME.fullmatch(agent.name):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        yield Problem(
            "INVALID_NAME",
            f"The name {agent.name!r} is not 1 to 64 letters, digits, '_' or '-'.",
            "Give the agent a name such as 'analyst'.",
        )


def _check_model(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    if isinstance(agent.model, str):
        problem = name_problem(agent.model)
        if problem is not None:
            yield problem
        return
    if isinstance(agent.model, type):
        kind = agent.model.__name__
        yield Problem("INVALID_MODEL", f"The model is the class {kind}, not yet a model.", f"Write model={kind}(…).")
        return
    missing = [name for name in ("stream", "provider", "name") if not hasattr(agent.model, name)]
    if missing:
        yield Problem(
            "INVALID_MODEL",
            f"The model is {agent.model!r}, which has no {' and no '.join(missing)}.",
            "Pass 'provider:name', or a model such as connect(…) or ScriptedModel([…]) gives.",
        )


def _check_prompts(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    if isinstance(agent.prompt, str) and not agent.prompt.strip():
        yield Problem("EMPTY_PROMPT", "The prompt is blank.", "Leave it out to send the input itself.")
    yield from function_or_deps_problem(
        agent.deps, "error_prompt", agent.error_prompt, "an ErrorPromptContext", code="INVALID_PROMPT"
    )
    system = _system_of(agent)
    for name, prompt, kinds in (("system", system, Text), ("prompt", agent.prompt, UserContent)):
        given: object = prompt
        yield from block_problems(name, given, kinds)
        if not isinstance(given, str | list | tuple) and callable(given):
            yield from function_or_deps_problem(agent.deps, name, given, "the input", code="INVALID_PROMPT")
    blank_text = isinstance(system, str) and system != "" and not system.strip()
    blocks = system if is_sequence(system) else ()
    blank_block = any(isinstance(block, Text) and not block.text.strip() for block in blocks)
    if blank_text or blank_block:
        yield Problem("EMPTY_PROMPT", "The system prompt is blank, or a block of it is.", "Leave it out, or fill it.")


def _check_tools(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    model = agent.model
    provider = model.partition(":")[0] if isinstance(model, str) else getattr(model, "provider", None)
    for source in agent.tools:
        given: object = source
        if isinstance(given, Agent):
            hint = "Let the model delegate to it: tools=[Subagents(agent)]."
            yield Problem("INVALID_TOOL", f"Agent.tools holds the agent {given.name!r}, which is not a tool.", hint)
            continue
        if not (is_tool(given) or is_toolset(given) or gives_tools(given)):
            yield Problem(
                "INVALID_TOOL",
                f"Agent.tools holds {given!r}, which is not a tool.",
                tools_hint(given)
                or "Decorate the function with @tool, or build a Tool(name, description, input_schema, handler).",
            )
            continue
        yield from source_problems(given)
        for tool in [each for each in fixed_tools([source]) if is_tool(each)]:
            if tool.name in seen:
                wrong = f"Tool {tool.name!r} is defined twice."
                yield Problem("DUPLICATE_TOOL_NAME", wrong, "Rename one, or remove it from Agent.tools.")
                continue
            seen.add(tool.name)
            yield from tool_problems(tool)
            yield from tool_deps_problems(tool, deps=agent.deps, input=agent.input)
            if provider == "anthropic" and "anthropic" not in tool.spec.provider_schemas:
                yield from anthropic_problems(tool.spec)


def _names_of_tools(agent: Agent[Any, Any, Any]) -> list[str]:
    """Return the names of the tools that each run has."""
    return [tool.name for tool in fixed_tools(agent.tools) if is_tool(tool)]


def _check_output(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    if agent.output is TEXT:
        return
    around = Surroundings(
        deps=agent.deps,
        input=agent.input,
        model=agent.model,
        helpers=_names_of_tools(agent),
        has_validators=bool(agent.validators),
    )
    yield from output_problems(agent.output, around)


def _check_text_only(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    if agent.output is TEXT:
        return
    for name, value in (("stop_after", agent.stop_after), ("stop_guard", agent.stop_guard)):
        if value:
            yield Problem(
                "TEXT_AGENT_ONLY",
                f"{name} is set, but the agent hands in a typed output.",
                f"Remove {name}, or leave out output so that the agent answers with text.",
            )


def _check_stopping(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    names = _names_of_tools(agent)
    is_asked = len(names) < len(fixed_tools(agent.tools))
    given = agent.stop_after or ()
    for each in (given,) if callable(given) else given:
        if not isinstance(each, str):
            takes = "a tool's name and its result"
            yield from function_problem("stop_after", each, takes, n=2, code="INVALID_STOP_AFTER")
        elif agent.output is TEXT and each not in names and not is_asked:
            wrong = f"stop_after names {each!r}, and no tool has that name.{meant(each, names)}"
            hint = f"Use one of: {', '.join(names)}." if names else "Give the agent that tool."
            yield Problem("INVALID_STOP_AFTER", wrong, hint)


def _check_functions(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    yield from deps_problems(agent.deps, agent.gate)
    for validator in agent.validators:
        yield from function_or_deps_problem(agent.deps, "A validator", validator, "an output", code="INVALID_VALIDATOR")
    for middleware in agent.tool_middleware or ():
        yield from function_problem("A middleware", middleware, "the call and what comes next", n=2)
    for name, n, least, takes in _FUNCTIONS:
        value = getattr(agent, name)
        if value is not None and not isinstance(value, PerRun):
            deps = NOT_DECLARED if name in _NEVER_GIVEN_DEPS else agent.deps
            yield from function_or_deps_problem(deps, name, value, takes, n=n, least=least)
    yield from async_problems("on_message", agent.on_message, code="INVALID_FUNCTION")
    if isinstance(agent.stop_guard, PerRun):
        takes = "the agent's name and its task"
        yield from function_or_deps_problem(agent.deps, "PerRun", agent.stop_guard.factory, takes, n=2)


def _check_parts(agent: Agent[Any, Any, Any]) -> Iterator[Problem]:
    """Check the gates, the strategies, the limits and the settings."""
    yield from gate_problems("gate", agent.gate)
    given = agent.compaction
    if callable(given):
        yield from function_problem("compaction", given, "the model", code="INVALID_COMPACTION")
        given = ()
    if isinstance(given, Compaction) and given.transform_messages is not None:
        yield from function_problem("Compaction.transform_messages", given.transform_messages, "the messages")
    for strategy in given.strategies if isinstance(given, Compaction) else given or ():
        if not hasattr(strategy, "name") or not (hasattr(strategy, "view") or hasattr(strategy, "informed")):
            hint = "Pass strategies such as ClearToolResults()."
            yield Problem("INVALID_COMPACTION", f"A strategy of compaction is {strategy!r}.", hint)
    yield from limits_problems(agent.limits)
    yield from settings_problems(agent.settings, agent.model, has_tools=bool(agent.tools))


_CHECKS: Final = (
    _check_name,
    _check_model,
    _check_prompts,
    _check_tools,
    _check_output,
    _check_text_only,
    _check_stopping,
    _check_functions,
    _check_parts,
)


_SECTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "limits": (Limits,),
    "settings": (ModelSettings,),
    "output": (Output, OneOf),
    "tools": (list, tuple),
    "validators": (list, tuple),
    "system": (str, list, tuple, TeamPrompt),
    "prompt": (str, *get_args(UserContent), list, tuple),
    "tool_middleware": (list, tuple),
    "stop_after": (list, tuple),
    "compaction": (list, tuple, Compaction),
    "description": (str,),
    "track_tokens": (bool,),
}
_EFFECT: Final[Kind] = (is_one_of(*get_args(Effect)), "Pass 'pure', 'idempotent' or 'once'.")
_MAY_BE_NONE: Final = {"prompt", "tool_middleware", "stop_after", "compaction", "description"}
_MAY_BE_CALLED: Final = {"system", "prompt", "stop_after", "compaction"}
_FUNCTIONS: Final = (
    ("run_state", 1, 1, "the input"),
    ("attempt_state", 3, 2, "the input, the run's state and, if it likes, the number of the attempt"),
    ("final_state", 1, 1, "the States"),
    ("stop_guard", 1, 1, "a StopContext"),
    ("on_message", 2, 1, "a Message and, if it likes, what is known of it"),
)
"""The functions of an agent: with how many arguments they are called, and how few they may take."""
_NEVER_GIVEN_DEPS: Final = ("on_message",)


def _functions_of(agent: Agent[Any, Any, Any]) -> Iterator[tuple[object, int]]:
    """Yield the functions that may take deps, each with the number of its other arguments."""
    yield from ((_system_of(agent), 1), (agent.prompt, 1), (agent.error_prompt, 1))
    yield from ((getattr(agent, name), n) for name, n, _, _ in _FUNCTIONS if name not in _NEVER_GIVEN_DEPS)
    yield (agent.stop_guard.factory, 2) if isinstance(agent.stop_guard, PerRun) else (None, 1)
    yield from ((validator, 1) for validator in agent.validators)
    for member in agent.output.members if isinstance(agent.output, OneOf) else (agent.output,):
        yield from ((validator, 1) for validator in member.validators)
        if (reflection := member.reflecting()) is not None:
            yield reflection.handler, 1
